//! How fast bulk goes through the codec, beside what the same bytes cost without it.
//!
//! Every row is in MiB of payload a second, with the ratio to a plain copy and to the base64 step alone in the same run.
//! `cargo bench --bench codec`; without `--bench` each row runs once, to see that it works.

use std::hint::black_box;
use std::time::{Duration, Instant};

use base64_simd::STANDARD;
use bytes::Bytes;
use longarm::config::MessageLimits;
use longarm::event::OutputStream;
use longarm::request::ProcessId;
use longarm::wire::codec::{self, Message, hot};
use longarm::wire::process::{OutputParams, WriteParams};
use longarm::wire::{Base64, RequestId};

fn main() {
    let measure = std::env::args().any(|argument| argument == "--bench");
    let limits = MessageLimits::default();
    for payload_bytes in [64, 4 << 10, 64 << 10] {
        // No run of equal bytes, as real output has none.
        let payload: Vec<u8> = (0..payload_bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let text = STANDARD.encode_to_string(&payload);
        let process_id = ProcessId::random();
        let encoder = hot::OutputEncoder::new(&process_id);
        let output = encoder.message(123_456, OutputStream::Stdout, &payload);
        let params = WriteParams {
            process_id,
            chunk: Base64(Bytes::from(payload.clone())),
            write_id: "0123456789abcdef".into(),
        };
        let write = hot::encode_write(&RequestId::Number(123_456), &params);

        let mut bench = Bench { measure, payload_bytes, copy: 0.0, base64: 0.0 };
        println!("payload of {payload_bytes} bytes");
        println!("  {:30} {:>10} {:>11} {:>11}", "", "MiB/s", "of a copy", "of base64");
        let mut buffer = Vec::with_capacity(2 * payload_bytes + 256);
        bench.copy = bench.row("copy", || {
            buffer.clear();
            buffer.extend_from_slice(black_box(&payload));
            black_box(&buffer).len()
        });
        bench.base64 = bench.row("base64 encode", || {
            buffer.clear();
            STANDARD.encode_append(black_box(&payload), &mut buffer);
            black_box(&buffer).len()
        });
        bench.row("encode output, buffer kept", || {
            buffer.clear();
            encoder.encode(123_456, OutputStream::Stdout, black_box(&payload), &mut buffer);
            black_box(&buffer).len()
        });
        bench.row("encode output, new message", || {
            black_box(encoder.message(123_456, OutputStream::Stdout, black_box(&payload))).len()
        });
        bench.row("encode write", || {
            black_box(hot::encode_write(&RequestId::Number(123_456), black_box(&params))).len()
        });
        bench.base64 = bench.row("base64 decode", || {
            black_box(STANDARD.decode_to_vec(black_box(&text))).map_or(0, |bytes| bytes.len())
        });
        bench.row("decode output, short way", || {
            black_box(hot::decode_output(black_box(&output), &limits)).expect("the usual layout").chunk.len()
        });
        bench.row("decode output, long way", || {
            let Ok(Message::Notification { params, .. }) = codec::decode(black_box(&output), &limits) else {
                panic!("not a notification");
            };
            black_box(params.decode::<OutputParams>()).expect("good parameters").chunk.0.len()
        });
        bench.row("decode write, short way", || {
            black_box(hot::decode_write(black_box(&write), &limits)).expect("the usual layout").1.chunk.0.len()
        });
        bench.row("decode write, long way", || {
            let Ok(Message::Request { params, .. }) = codec::decode(black_box(&write), &limits) else {
                panic!("not a request");
            };
            black_box(params.decode::<WriteParams>()).expect("good parameters").chunk.0.len()
        });
    }
}

struct Bench {
    measure: bool,
    payload_bytes: usize,
    copy: f64,
    base64: f64,
}

impl Bench {
    /// Runs one row, prints it and returns MiB/s: the best of several stretches, since the rest is noise of the machine.
    fn row(&self, name: &str, mut step: impl FnMut() -> usize) -> f64 {
        assert!(step() >= self.payload_bytes, "{name} makes less than the payload");
        if !self.measure {
            return 0.0;
        }
        let steps = (16 << 20) / (self.payload_bytes + 512);
        let mut best = Duration::MAX;
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            let begin = Instant::now();
            for _ in 0..steps {
                black_box(step());
            }
            best = best.min(begin.elapsed());
        }
        let rate = (steps * self.payload_bytes) as f64 / f64::from(1 << 20) / best.as_secs_f64();
        let of = |base: f64| if base > 0.0 { format!("{:.2}", rate / base) } else { "-".into() };
        println!("  {name:30} {rate:10.0} {:>11} {:>11}", of(self.copy), of(self.base64));
        rate
    }
}
