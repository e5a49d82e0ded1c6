//! Answers about files, and to HTTP requests, that would be larger than a message may be: no peer takes them, and with the
//! connection it would lose everything else as well.

use std::io;

use serde::Serialize;

use super::fault::Fault;
use super::reply::Reply;
use crate::wire::RequestId;
use crate::wire::fs::WalkResult;

/// The answer itself, if its message has at most `limit` bytes; else as much of it as has, if a part can be told from
/// the whole, or an error that says the size and the limit.
pub(super) fn fitting(mut reply: Reply, id: &RequestId, method: &str, limit: usize) -> Reply {
    let Some(mut bytes) = excess(&reply, id, limit) else { return reply };
    if let Reply::Walk(walk) = &mut reply {
        // Once for the message, and once for what the result has around its items.
        cut(walk, limit.saturating_sub(2 * AROUND + length(id)));
        match excess(&reply, id, limit) {
            Some(left) => bytes = left,
            None => return reply,
        }
    }
    let text = format!("the answer to {method} would have {bytes} bytes, and the limit of a message is {limit} bytes");
    Reply::Fault(if matches!(reply, Reply::Http(_)) {
        Fault::internal(format!("http/request failed: {text}"))
    } else {
        Fault::invalid_request(text)
    })
}

/// More than an answer has around its content and its id.
const AROUND: usize = 256;

/// How large the message of an answer would be, if that is more than `limit`.
fn excess(reply: &Reply, id: &RequestId, limit: usize) -> Option<usize> {
    // No byte takes more than six in JSON, so that most answers need not be measured.
    if reply.content_bytes().saturating_mul(6).saturating_add(AROUND) <= limit {
        return None;
    }
    let bytes = encoded_length(reply).saturating_add(AROUND + length(id));
    (bytes > limit).then_some(bytes)
}

fn encoded_length(reply: &Reply) -> usize {
    let base64 = |bytes: usize| bytes.div_ceil(3).saturating_mul(4);
    match reply {
        Reply::File(bytes) => base64(bytes.len()),
        Reply::Block(block) => base64(block.bytes.len()),
        Reply::Directory(result) => length(result),
        Reply::Walk(result) => length(result),
        // Its members, without those bytes.
        Reply::Http(result) => length(&result.headers).saturating_add(base64(result.body_base64.0.len())),
        other => other.content_bytes().saturating_mul(6),
    }
}

/// Leaves of a walk what has at most `room` bytes. What could not be examined goes first, since it says what is missing.
fn cut(walk: &mut WalkResult, mut room: usize) {
    let mut is_cut = keep(&mut walk.errors, &mut room);
    is_cut |= keep(&mut walk.entries, &mut room);
    if let Some(extension) = &mut walk.longarm {
        is_cut |= keep(&mut extension.skipped, &mut room);
    }
    walk.truncated |= is_cut;
}

/// Keeps as many items as there is room for; returns whether others were dropped.
fn keep<T: Serialize>(items: &mut Vec<T>, room: &mut usize) -> bool {
    let mut kept = 0;
    for item in &*items {
        // With the comma behind it.
        let Some(rest) = room.checked_sub(length(item) + 1) else { break };
        *room = rest;
        kept += 1;
    }
    let is_cut = kept < items.len();
    items.truncate(kept);
    is_cut
}

/// The length of a value as JSON.
fn length<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    // The types of the wire have a JSON form, and counting succeeds.
    if serde_json::to_writer(&mut counter, value).is_err() {
        debug_assert!(false, "a wire type has no JSON form");
    }
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
