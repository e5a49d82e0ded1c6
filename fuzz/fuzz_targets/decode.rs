//! Whatever bytes come: the codec takes or refuses them, and what it takes is JSON to another reader, too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longarm::config::MessageLimits;
use longarm::wire::RequestId;
use longarm::wire::codec::{Message, Payload, decode, encode_error, hot};
use longarm::wire::method::{self, Method, Notification};
use longarm::wire::spawn_error::{Asked, from_rpc, to_rpc};
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let limits = MessageLimits::default();
    hot::decode_output(bytes, &limits);
    hot::decode_write(bytes, &limits);
    let Ok(message) = decode(bytes, &limits) else { return };
    serde_json::from_slice::<&RawValue>(bytes).expect("another reader refuses it");
    match message {
        Message::Request { params, .. } => {
            request::<method::Initialize>(params);
            request::<method::Info>(params);
            request::<method::Start>(params);
            request::<method::Read>(params);
            request::<method::Write>(params);
            request::<method::SendSignal>(params);
            request::<method::Terminate>(params);
            request::<method::CloseStdin>(params);
            request::<method::Resize>(params);
            request::<method::SendSignalByName>(params);
        }
        Message::Notification { params, .. } => {
            notification::<method::Ack>(params);
            notification::<method::Output>(params);
            notification::<method::Exited>(params);
            notification::<method::Closed>(params);
        }
        Message::Response { result, .. } => {
            response::<method::Initialize>(result);
            response::<method::Info>(result);
            response::<method::Status>(result);
            response::<method::Start>(result);
            response::<method::Read>(result);
            response::<method::Write>(result);
            response::<method::Terminate>(result);
            response::<method::CloseStdin>(result);
            response::<method::List>(result);
        }
        Message::Error { id, error } => {
            encode_error(&id, &error);
            let process_id = longarm::request::ProcessId::new("p");
            let asked = Asked { process_id: &process_id, program: "p".as_ref(), cwd: "/".as_ref() };
            to_rpc(&from_rpc(error, asked));
        }
    }
});

fn request<M: Method>(params: Payload<'_>) {
    if let Ok(params) = params.decode::<M::Params>() {
        let message = longarm::wire::codec::encode_request::<M>(&RequestId::Number(1), &params);
        assert!(decode(&message, &MessageLimits::default()).is_ok());
    }
}

fn notification<N: Notification>(params: Payload<'_>) {
    if let Ok(params) = params.decode::<N::Params>() {
        let message = longarm::wire::codec::encode_notification::<N>(&params);
        assert!(decode(&message, &MessageLimits::default()).is_ok());
    }
}

fn response<M: Method>(result: Payload<'_>) {
    if let Ok(result) = result.decode::<M::Result>() {
        let message = longarm::wire::codec::encode_response(&RequestId::Number(1), &result);
        assert!(decode(&message, &MessageLimits::default()).is_ok());
    }
}
