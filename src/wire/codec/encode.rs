//! Messages to bytes.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::wire::error_code::ErrorCode;
use crate::wire::method::{Method, Notification};
use crate::wire::request_id::RequestId;

/// Encodes a request.
pub fn encode_request<M: Method>(id: &RequestId, params: &M::Params) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_MESSAGE_BYTES);
    out.extend_from_slice(b"{\"id\":");
    push_id(&mut out, id);
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(M::NAME.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    push_json(&mut out, params);
    out.push(b'}');
    out.into()
}

/// Encodes a notification.
pub fn encode_notification<N: Notification>(params: &N::Params) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_MESSAGE_BYTES);
    out.extend_from_slice(b"{\"method\":\"");
    out.extend_from_slice(N::NAME.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    push_json(&mut out, params);
    out.push(b'}');
    out.into()
}

/// Encodes the good answer to the request `id`.
pub fn encode_response<T: Serialize>(id: &RequestId, result: &T) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_MESSAGE_BYTES);
    out.extend_from_slice(b"{\"id\":");
    push_id(&mut out, id);
    out.extend_from_slice(b",\"result\":");
    push_json(&mut out, result);
    out.push(b'}');
    out.into()
}

/// Encodes the bad answer to the request `id`. If the error's data is no JSON text, it goes as a string.
pub fn encode_error(id: &RequestId, error: &RpcError) -> Bytes {
    let mut out = Vec::with_capacity(SMALL_MESSAGE_BYTES);
    out.extend_from_slice(b"{\"error\":");
    push_json(
        &mut out,
        &WireError {
            code: ErrorCode(error.code),
            data: error.data.as_deref().map(|data| match serde_json::from_str::<&RawValue>(data) {
                Ok(json) => Data::Json(json),
                Err(_) => Data::Text(data),
            }),
            message: &error.message,
        },
    );
    out.extend_from_slice(b",\"id\":");
    push_id(&mut out, id);
    out.push(b'}');
    out.into()
}

#[derive(Serialize)]
struct WireError<'a> {
    code: ErrorCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
    message: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

pub(super) fn push_id(out: &mut Vec<u8>, id: &RequestId) {
    push_json(out, id);
}

/// Appends a value. Writing to memory succeeds, and so does the encoding of every type of the wire; should one ever
/// fail, the peer gets `null` in its place, which it refuses, rather than half a value.
pub(super) fn push_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let begin = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        debug_assert!(false, "a wire type has no JSON form: {error}");
        out.truncate(begin);
        out.extend_from_slice(b"null");
    }
}

/// Appends a text as JSON.
#[cfg(feature = "tracing")]
pub(crate) fn push_string(out: &mut bytes::BytesMut, text: &str) {
    let mut json = Vec::with_capacity(text.len() + 2);
    push_json(&mut json, text);
    out.extend_from_slice(&json);
}

/// Most messages fit, and are then written without growing the buffer.
const SMALL_MESSAGE_BYTES: usize = 192;
