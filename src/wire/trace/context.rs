//! The context of a trace in the form of the W3C, and how a request carries it.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::wire::codec::push_string;

/// Which trace a request belongs to, and who made it: `traceparent` and `tracestate` of the W3C.
///
/// It travels in the member `trace` of a request. How calls get one is told [there](crate::telemetry).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// `00-` trace id `-` span id `-` flags, all in lower-case hexadecimal digits.
    parent: [u8; PARENT_BYTES],
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Checks a `traceparent` and a `tracestate`. None if the first is not of version 00, or names nothing. A state that is
    /// empty, longer than 512 bytes or not of printable ASCII is dropped, as W3C allows.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let parent: [u8; PARENT_BYTES] = traceparent.as_bytes().try_into().ok()?;
        let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let mut parts = traceparent.split('-');
        let mut part = |length| parts.next().filter(|part| part.len() == length && part.bytes().all(|byte| hex(&byte)));
        let (version, trace, span, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let named = |id: &str| id.bytes().any(|digit| digit != b'0');
        if version != "00" || !named(trace) || !named(span) {
            return None;
        }
        let printable = |state: &&str| {
            !state.is_empty() && state.len() <= MAX_STATE_BYTES && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        Some(Self { parent, state: tracestate.filter(printable).map(Into::into) })
    }

    /// A trace that begins here, sampled. The numbers are to be random, and are not 0.
    pub(crate) fn begin(trace: u128, span: u64) -> Option<Self> {
        Self::parse(&format!("00-{trace:032x}-{span:016x}-01"), None)
    }

    /// The same trace, as seen by what is done within this span.
    pub(crate) fn child(&self, span: u64) -> Option<Self> {
        let text = format!("00-{}-{span:016x}-{}", self.trace_id(), self.part(53..55));
        Self::parse(&text, self.state.as_deref())
    }

    /// `traceparent`.
    pub fn traceparent(&self) -> &str {
        self.part(0..PARENT_BYTES)
    }

    /// `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.part(3..35)
    }

    /// The id of the span that made the request: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        self.part(36..52)
    }

    /// It is made of ASCII only.
    fn part(&self, range: std::ops::Range<usize>) -> &str {
        self.parent.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Adds it to a request, which is a complete JSON object without one.
    pub(crate) fn add_to(&self, request: Bytes) -> Bytes {
        let mut out = match request.try_into_mut() {
            Ok(out) => out,
            Err(shared) => BytesMut::from(shared.as_ref()),
        };
        if out.last() != Some(&b'}') {
            return out.freeze();
        }
        out.truncate(out.len() - 1);
        out.put_slice(b",\"trace\":{\"traceparent\":\"");
        out.put_slice(&self.parent);
        out.put_u8(b'"');
        if let Some(state) = &self.state {
            out.put_slice(b",\"tracestate\":");
            push_string(&mut out, state);
        }
        out.put_slice(b"}}");
        out.freeze()
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext")
            .field("traceparent", &self.traceparent())
            .field("tracestate", &self.state)
            .finish()
    }
}

const PARENT_BYTES: usize = 55;
const MAX_STATE_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MessageLimits;
    use crate::wire::RequestId;
    use crate::wire::codec::{self, Message};
    use crate::wire::method::{NoParams, Status};
    use crate::wire::trace::Trace;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_what_names_a_trace_and_a_span_is_one() {
        let context = TraceContext::parse(PARENT, Some("vendor=\"x\",other=1")).unwrap();
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), "b7ad6b7169203331");
        assert_eq!(context.tracestate(), Some("vendor=\"x\",other=1"));
        for bad in [
            "",
            &PARENT[1..],
            &PARENT.replace("00-", "01-"),
            &PARENT.to_uppercase(),
            &PARENT.replace("b7ad6b7169203331", "0000000000000000"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace('-', "_"),
            &format!("{PARENT}-more"),
        ] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
        for dropped in ["", "a\nb", &"x".repeat(513)] {
            assert_eq!(TraceContext::parse(PARENT, Some(dropped)).unwrap().tracestate(), None);
        }
    }

    #[test]
    fn a_child_keeps_the_trace_its_flags_and_its_state() {
        let context = TraceContext::parse(PARENT, Some("a=b")).unwrap();
        let child = context.child(0x1234).unwrap();
        assert_eq!(child.traceparent(), "00-0af7651916cd43dd8448eb211c80319c-0000000000001234-01");
        assert_eq!(child.tracestate(), Some("a=b"));
        assert_eq!(context.child(0), None);
        assert!(TraceContext::begin(5, 7).is_some() && TraceContext::begin(0, 7).is_none());
    }

    #[test]
    fn a_request_carries_it_and_brings_it_back() {
        for state in [None, Some("vendor=\"x\\y\"")] {
            let context = TraceContext::parse(PARENT, state).unwrap();
            let request = codec::encode_request::<Status>(&RequestId::Number(7), &NoParams);
            let shared = request.clone();
            for request in [shared, request] {
                let traced = context.add_to(request);
                let decoded = codec::decode(&traced, &MessageLimits::default()).unwrap();
                let Message::Request { id: RequestId::Number(7), trace, .. } = decoded else { panic!("{decoded:?}") };
                assert_eq!(Trace::of(&trace.unwrap()).context(), Some(&context));
            }
        }
    }
}
