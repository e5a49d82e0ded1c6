//! What the short ways take, the long way takes as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longarm::config::MessageLimits;
use longarm::wire::codec::{Message, decode, hot};
use longarm::wire::process::{OutputParams, WriteParams};

fuzz_target!(|bytes: &[u8]| {
    let limits = MessageLimits::default();
    if let Some(output) = hot::decode_output(bytes, &limits) {
        let Ok(Message::Notification { params, .. }) = decode(bytes, &limits) else { panic!("refused") };
        let long: OutputParams = params.decode().expect("other parameters");
        assert_eq!(
            (output.process_id, output.seq, output.stream, output.chunk),
            (long.process_id.as_str(), long.seq, long.stream, long.chunk.0)
        );
    }
    if let Some((id, params)) = hot::decode_write(bytes, &limits) {
        let Ok(Message::Request { id: long_id, params: long, .. }) = decode(bytes, &limits) else { panic!("refused") };
        let long: WriteParams = long.decode().expect("other parameters");
        assert_eq!((id, params), (long_id, long));
    }
});
