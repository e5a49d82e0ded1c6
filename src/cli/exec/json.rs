//! Events as lines of JSON.
//!
//! Each line is an object with a member `event`. Output has a member `text` if its bytes are UTF-8, else `base64`.

use base64_simd::STANDARD;
use bytes::Bytes;
use longarm::event::Totals;
use longarm::request::ProcessId;
use longarm::status::LimitExceeded;
use longarm::{Event, OutputStream};
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Line<'a> {
    Started {
        process_id: &'a str,
    },
    Output {
        seq: u64,
        stream: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
    Gap {
        first_seq: u64,
        last_seq: u64,
        bytes: Option<u64>,
    },
    Exited {
        seq: u64,
        exit_code: i32,
        signal: Option<String>,
        limit: Option<&'static str>,
        sandbox_denied: bool,
    },
    Closed {
        seq: u64,
        total_bytes: Option<TotalBytes>,
        cut: bool,
    },
}

#[derive(Serialize)]
struct TotalBytes {
    stdout: u64,
    stderr: u64,
    pty: u64,
}

pub(super) fn started(id: &ProcessId) -> Bytes {
    encode(&Line::Started { process_id: id.as_str() })
}

/// One line, with its end; none for an event of a kind that is not known here.
pub(super) fn line(event: &Event) -> Option<Bytes> {
    Some(encode(&match event {
        Event::Output(output) => {
            let text = std::str::from_utf8(&output.bytes).ok();
            let base64 = text.is_none().then(|| STANDARD.encode_to_string(&output.bytes));
            Line::Output { seq: output.seq, stream: stream_name(output.stream), text, base64 }
        }
        Event::Gap(gap) => Line::Gap { first_seq: gap.first_seq, last_seq: gap.last_seq, bytes: gap.bytes },
        Event::Exited(exited) => Line::Exited {
            seq: exited.seq,
            exit_code: exited.status.wire_code(),
            signal: exited.status.signal().map(|signal| signal.to_string()),
            limit: exited.status.limit_exceeded().map(|limit| match limit {
                LimitExceeded::Time => "time",
                LimitExceeded::Output => "output",
                _ => "other",
            }),
            sandbox_denied: exited.sandbox_denied,
        },
        Event::Closed(closed) => {
            let totals = closed.totals.map(|Totals { stdout, stderr, pty }| TotalBytes { stdout, stderr, pty });
            Line::Closed { seq: closed.seq, total_bytes: totals, cut: closed.cut }
        }
        _ => return None,
    }))
}

fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
        OutputStream::Pty => "pty",
    }
}

fn encode(line: &Line<'_>) -> Bytes {
    let mut text = Vec::with_capacity(128);
    // Writing plain members into memory cannot fail.
    if serde_json::to_writer(&mut text, line).is_ok() {
        text.push(b'\n');
    }
    text.into()
}
