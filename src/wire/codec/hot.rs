//! The messages that carry bulk: output and bytes of files on their way to the client, writes on their way to the
//! server.
//!
//! The encoders write a whole message into one buffer, whose size is known before, with the payload encoded straight
//! into it. The decoders know the layout in which these messages are written by everyone: this crate and the reference
//! alike, without blanks and with the members in one order. A message of that layout is valid by construction, so
//! the payload is touched once only, by the base64 decoder. Any other spelling of the same message is for
//! [`decode`](super::decode).

use base64_simd::STANDARD;
use bytes::Bytes;

use super::encode::{encode_request, push_id, push_json};
use crate::config::MessageLimits;
use crate::event::OutputStream;
use crate::path_uri::PathUri;
use crate::request::ProcessId;
use crate::wire::bytes::Base64;
use crate::wire::fs::{LateBase64, WriteBlockParams, WriteFileExtension, WriteFileParams};
use crate::wire::method;
use crate::wire::process::WriteParams;
use crate::wire::request_id::RequestId;
use crate::wire::scalars::stream_name;
use crate::wire::scan::plain_length;

/// Encodes the `process/output` notifications of one process.
#[derive(Clone, Debug)]
pub struct OutputEncoder {
    /// Everything up to the sequence number.
    head: Box<[u8]>,
}

impl OutputEncoder {
    /// An encoder for this process.
    pub fn new(process_id: &ProcessId) -> Self {
        let mut head = Vec::with_capacity(OUTPUT_HEAD.len() + process_id.as_str().len() + 16);
        // The id's own quotes come with it.
        head.extend_from_slice(OUTPUT_HEAD.strip_suffix(b"\"").unwrap_or(OUTPUT_HEAD));
        push_json(&mut head, process_id);
        head.extend_from_slice(SEQ.strip_prefix(b"\"").unwrap_or(SEQ));
        Self { head: head.into() }
    }

    /// Appends a whole message to `out`.
    pub fn encode(&self, seq: u64, stream: OutputStream, chunk: &[u8], out: &mut Vec<u8>) {
        out.reserve_exact(self.encoded_length(seq, stream, chunk.len()));
        out.extend_from_slice(&self.head);
        push_json(out, &seq);
        out.extend_from_slice(STREAM);
        out.extend_from_slice(stream_name(stream).as_bytes());
        out.extend_from_slice(CHUNK);
        STANDARD.encode_append(chunk, out);
        out.extend_from_slice(TAIL);
    }

    /// A whole message.
    pub fn message(&self, seq: u64, stream: OutputStream, chunk: &[u8]) -> Bytes {
        let mut out = Vec::new();
        self.encode(seq, stream, chunk, &mut out);
        out.into()
    }

    /// The size in bytes of the message with a chunk of this size.
    pub fn encoded_length(&self, seq: u64, stream: OutputStream, chunk_bytes: usize) -> usize {
        let digits = seq.checked_ilog10().map_or(1, |log| log as usize + 1);
        self.head.len()
            + digits
            + STREAM.len()
            + stream_name(stream).len()
            + CHUNK.len()
            + chunk_bytes.div_ceil(3).saturating_mul(4)
            + TAIL.len()
    }
}

/// The parameters of a `process/output` notification, with the id still in the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// The process.
    pub process_id: &'a str,
    /// Sequence number.
    pub seq: u64,
    /// The stream.
    pub stream: OutputStream,
    /// The bytes.
    pub chunk: Bytes,
}

/// Decodes a `process/output` notification of the usual layout. None: ask [`decode`](super::decode).
pub fn decode_output<'a>(message: &'a [u8], limits: &MessageLimits) -> Option<Output<'a>> {
    within(message, limits, OUTPUT_VALUES)?;
    let rest = message.strip_prefix(OUTPUT_HEAD)?;
    let (process_id, rest) = plain_text(rest)?;
    let (seq, rest) = number(rest.strip_prefix(SEQ)?)?;
    let (stream, rest) = plain_text(rest.strip_prefix(STREAM)?)?;
    let stream = [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Pty]
        .into_iter()
        .find(|known| stream_name(*known) == stream)?;
    let chunk = base64(rest.strip_prefix(CHUNK)?.strip_suffix(TAIL)?)?;
    Some(Output { process_id, seq, stream, chunk })
}

/// Encodes a `process/write` request.
pub fn encode_write(id: &RequestId, params: &WriteParams) -> Bytes {
    let WriteParams { process_id, chunk: Base64(chunk), write_id } = params;
    let texts = process_id.as_str().len() + write_id.len();
    let mut out = Vec::with_capacity(SMALL_PARTS_BYTES + texts + chunk.len().div_ceil(3).saturating_mul(4));
    out.extend_from_slice(ID);
    push_id(&mut out, id);
    out.extend_from_slice(WRITE_HEAD.strip_suffix(b"\"").unwrap_or(WRITE_HEAD));
    push_json(&mut out, process_id);
    out.extend_from_slice(CHUNK.strip_prefix(b"\"").unwrap_or(CHUNK));
    STANDARD.encode_append(chunk, &mut out);
    out.extend_from_slice(WRITE_ID.strip_suffix(b"\"").unwrap_or(WRITE_ID));
    push_json(&mut out, write_id);
    out.extend_from_slice(TAIL.strip_prefix(b"\"").unwrap_or(TAIL));
    out.into()
}

/// Decodes a `process/write` request of the usual layout. None: ask [`decode`](super::decode).
pub fn decode_write(message: &[u8], limits: &MessageLimits) -> Option<(RequestId, WriteParams)> {
    within(message, limits, WRITE_VALUES)?;
    let (id, rest) = id(message.strip_prefix(ID)?)?;
    let (process_id, rest) = plain_text(rest.strip_prefix(WRITE_HEAD)?)?;
    // The write id is looked for from the end, since the payload would have to be searched for its own end.
    let rest = rest.strip_prefix(CHUNK)?.strip_suffix(TAIL)?;
    let (rest, write_id) = rest.split_at_checked(rest.iter().rposition(|byte| *byte == b'"')? + 1)?;
    let write_id = whole_plain_text(write_id)?;
    let chunk = base64(rest.strip_suffix(WRITE_ID)?)?;
    let params = WriteParams { process_id: ProcessId::new(process_id), chunk: chunk.into(), write_id: write_id.into() };
    Some((id, params))
}

/// Encodes the answer to `fs/readBlock`.
pub fn encode_block(id: &RequestId, chunk: &[u8], eof: bool) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_PARTS_BYTES + id_length(id) + base64_length(chunk));
    out.extend_from_slice(ID);
    push_id(&mut out, id);
    out.extend_from_slice(BLOCK_HEAD);
    STANDARD.encode_append(chunk, &mut out);
    out.extend_from_slice(if eof { LAST_BLOCK_TAIL } else { BLOCK_TAIL });
    out.into()
}

/// The answer to a call that asked for bytes of a file, with the call's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileBytes {
    /// The call.
    pub id: RequestId,
    /// The bytes.
    pub bytes: Bytes,
    /// Whether the file ends with them, for a block; none for a whole file.
    pub eof: Option<bool>,
}

/// Encodes the answer to `fs/readFile`.
pub fn encode_file(id: &RequestId, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_PARTS_BYTES + id_length(id) + base64_length(data));
    out.extend_from_slice(ID);
    push_id(&mut out, id);
    out.extend_from_slice(FILE_HEAD);
    STANDARD.encode_append(data, &mut out);
    out.extend_from_slice(TAIL);
    out.into()
}

/// Decodes an answer of the usual layout to `fs/readBlock` or `fs/readFile`. None: ask [`decode`](super::decode).
pub fn decode_file_bytes(message: &[u8], limits: &MessageLimits) -> Option<FileBytes> {
    let (id, rest) = id(message.strip_prefix(ID)?)?;
    if let Some(rest) = rest.strip_prefix(FILE_HEAD) {
        within(message, limits, FILE_VALUES)?;
        return Some(FileBytes { id, bytes: base64(rest.strip_suffix(TAIL)?)?, eof: None });
    }
    let rest = rest.strip_prefix(BLOCK_HEAD)?;
    within(message, limits, BLOCK_VALUES)?;
    let (chunk, eof) = match rest.strip_suffix(BLOCK_TAIL) {
        Some(chunk) => (chunk, false),
        None => (rest.strip_suffix(LAST_BLOCK_TAIL)?, true),
    };
    Some(FileBytes { id, bytes: base64(chunk)?, eof: Some(eof) })
}

/// Encodes an `fs/writeBlock` request.
pub fn encode_write_block(id: &RequestId, params: &WriteBlockParams) -> Bytes {
    let WriteBlockParams { handle_id, offset, chunk: Base64(chunk) } = params;
    let mut out = Vec::with_capacity(SMALL_PARTS_BYTES + id_length(id) + handle_id.len() + base64_length(chunk));
    out.extend_from_slice(ID);
    push_id(&mut out, id);
    out.extend_from_slice(WRITE_BLOCK_HEAD.strip_suffix(b"\"").unwrap_or(WRITE_BLOCK_HEAD));
    push_json(&mut out, handle_id);
    out.extend_from_slice(OFFSET.strip_prefix(b"\"").unwrap_or(OFFSET));
    push_json(&mut out, offset);
    out.extend_from_slice(CHUNK.strip_prefix(b"\"").unwrap_or(CHUNK));
    STANDARD.encode_append(chunk, &mut out);
    out.extend_from_slice(TAIL);
    out.into()
}

/// Decodes an `fs/writeBlock` request of the usual layout. None: ask [`decode`](super::decode).
pub fn decode_write_block(message: &[u8], limits: &MessageLimits) -> Option<(RequestId, WriteBlockParams)> {
    let (id, rest) = id(message.strip_prefix(ID)?)?;
    let (handle_id, rest) = plain_text(rest.strip_prefix(WRITE_BLOCK_HEAD)?)?;
    within(message, limits, WRITE_BLOCK_VALUES)?;
    let (offset, rest) = number(rest.strip_prefix(OFFSET)?)?;
    let chunk = base64(rest.strip_prefix(CHUNK.strip_prefix(b"\"")?)?.strip_suffix(TAIL)?)?;
    Some((id, WriteBlockParams { handle_id: handle_id.into(), offset, chunk: chunk.into() }))
}

/// Encodes an `fs/writeFile` request.
pub fn encode_write_file(id: &RequestId, params: &WriteFileParams) -> Bytes {
    let WriteFileParams { path, data_base64: LateBase64(Ok(Base64(data))), follow_symlinks, sandbox: None, longarm } =
        params
    else {
        return encode_request::<method::WriteFile>(id, params);
    };
    let small_parts = SMALL_PARTS_BYTES + id_length(id) + path.as_str().len();
    let mut out = Vec::with_capacity(small_parts + base64_length(data));
    out.extend_from_slice(ID);
    push_id(&mut out, id);
    out.extend_from_slice(WRITE_FILE_HEAD.strip_suffix(b"\"").unwrap_or(WRITE_FILE_HEAD));
    push_json(&mut out, path);
    out.extend_from_slice(DATA.strip_prefix(b"\"").unwrap_or(DATA));
    STANDARD.encode_append(data, &mut out);
    out.extend_from_slice(b"\"");
    if let Some(follow) = follow_symlinks {
        out.extend_from_slice(if *follow { FOLLOW } else { NO_FOLLOW });
    }
    out.extend_from_slice(NO_SANDBOX);
    if let Some(WriteFileExtension { fsync }) = longarm {
        out.extend_from_slice(if *fsync { FSYNC } else { NO_FSYNC });
    }
    out.extend_from_slice(b"}}");
    out.into()
}

/// Decodes an `fs/writeFile` request of the usual layout. None: ask [`decode`](super::decode).
pub fn decode_write_file(message: &[u8], limits: &MessageLimits) -> Option<(RequestId, WriteFileParams)> {
    let (id, rest) = id(message.strip_prefix(ID)?)?;
    let (path, rest) = plain_text(rest.strip_prefix(WRITE_FILE_HEAD)?)?;
    within(message, limits, WRITE_FILE_VALUES)?;
    (WRITE_FILE_CONTAINERS <= limits.max_json_depth).then_some(())?;
    let rest = rest.strip_prefix(DATA)?;
    let (data, rest) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
    let (follow_symlinks, rest) = either(rest.strip_prefix(b"\"")?, FOLLOW, NO_FOLLOW);
    let rest = rest.strip_prefix(NO_SANDBOX).unwrap_or(rest);
    let (fsync, rest) = either(rest, FSYNC, NO_FSYNC);
    (rest == b"}}").then_some(())?;
    let params = WriteFileParams {
        path: PathUri::parse(path).ok()?,
        data_base64: LateBase64(Ok(base64(data)?.into())),
        follow_symlinks,
        sandbox: None,
        longarm: fsync.map(|fsync| WriteFileExtension { fsync }),
    };
    Some((id, params))
}

/// Which of two texts comes next, if one does, and what follows it.
fn either<'a>(bytes: &'a [u8], yes: &[u8], no: &[u8]) -> (Option<bool>, &'a [u8]) {
    if let Some(rest) = bytes.strip_prefix(yes) {
        return (Some(true), rest);
    }
    match bytes.strip_prefix(no) {
        Some(rest) => (Some(false), rest),
        None => (None, bytes),
    }
}

/// The length of an id's text, unless it is a number, which is short.
fn id_length(id: &RequestId) -> usize {
    match id {
        RequestId::Number(_) => 0,
        RequestId::Text(text) => text.len(),
    }
}

const fn base64_length(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3).saturating_mul(4)
}

/// Whether the limits allow a message of this size, with so many values and two containers in each other.
fn within(message: &[u8], limits: &MessageLimits, values: usize) -> Option<()> {
    let allowed = message.len() <= limits.max_message_bytes
        && values <= limits.max_json_values
        && CONTAINERS <= limits.max_json_depth;
    allowed.then_some(())
}

/// The text of a string without escapes, and what follows, which begins with the closing quote.
fn plain_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (text, rest) = bytes.split_at_checked(plain_length(bytes))?;
    rest.starts_with(b"\"").then_some(())?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn whole_plain_text(bytes: &[u8]) -> Option<&str> {
    (plain_length(bytes) == bytes.len()).then_some(())?;
    std::str::from_utf8(bytes).ok()
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take(MAX_DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = bytes.split_at_checked(digits)?;
    if digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

fn id(bytes: &[u8]) -> Option<(RequestId, &[u8])> {
    if let Some(text) = bytes.strip_prefix(b"\"") {
        let (text, rest) = plain_text(text)?;
        return Some((text.into(), rest.strip_prefix(b"\"")?));
    }
    let (number, rest) = number(bytes)?;
    Some((RequestId::Number(number.try_into().ok()?), rest))
}

fn base64(text: &[u8]) -> Option<Bytes> {
    STANDARD.decode_to_vec(text).ok().map(Bytes::from)
}

const OUTPUT_HEAD: &[u8] = b"{\"method\":\"process/output\",\"params\":{\"processId\":\"";
const SEQ: &[u8] = b"\",\"seq\":";
const STREAM: &[u8] = b",\"stream\":\"";
const CHUNK: &[u8] = b"\",\"chunk\":\"";
const TAIL: &[u8] = b"\"}}";
const ID: &[u8] = b"{\"id\":";
const WRITE_HEAD: &[u8] = b",\"method\":\"process/write\",\"params\":{\"processId\":\"";
const WRITE_ID: &[u8] = b"\",\"writeId\":\"";

const BLOCK_HEAD: &[u8] = b",\"result\":{\"chunk\":\"";
const BLOCK_TAIL: &[u8] = b"\",\"eof\":false}}";
const LAST_BLOCK_TAIL: &[u8] = b"\",\"eof\":true}}";
const FILE_HEAD: &[u8] = b",\"result\":{\"dataBase64\":\"";
const WRITE_BLOCK_HEAD: &[u8] = b",\"method\":\"fs/writeBlock\",\"params\":{\"handleId\":\"";
const OFFSET: &[u8] = b"\",\"offset\":";

const WRITE_FILE_HEAD: &[u8] = b",\"method\":\"fs/writeFile\",\"params\":{\"path\":\"";
const DATA: &[u8] = b"\",\"dataBase64\":\"";
const FOLLOW: &[u8] = b",\"followSymlinks\":true";
const NO_FOLLOW: &[u8] = b",\"followSymlinks\":false";
const NO_SANDBOX: &[u8] = b",\"sandbox\":null";
const FSYNC: &[u8] = b",\"longarm\":{\"fsync\":true}";
const NO_FSYNC: &[u8] = b",\"longarm\":{\"fsync\":false}";

/// The values of a write of a whole file: three objects, the id, the method, two members and three that may be there.
const WRITE_FILE_VALUES: usize = 10;
const WRITE_FILE_CONTAINERS: usize = 3;

/// The values of an answer with a block: two objects, the id, and two members.
const BLOCK_VALUES: usize = 5;

/// The values of an answer with a whole file: two objects, the id, and one member.
const FILE_VALUES: usize = 4;

/// The values of a write of a block: two objects, the id, the method, and three members.
const WRITE_BLOCK_VALUES: usize = 7;

/// The values of an output message: two objects, the method, and four members.
const OUTPUT_VALUES: usize = 7;

/// The values of a write: two objects, the id, the method, and three members.
const WRITE_VALUES: usize = 7;

const CONTAINERS: usize = 2;

/// Digits of the largest unsigned 64-bit integer.
const MAX_DIGITS: usize = 20;

/// More than the fixed parts of a write take.
const SMALL_PARTS_BYTES: usize = 192;
