//! Properties of the codec: it takes exactly the texts that it should, whatever comes, and what it writes it reads.

use bytes::Bytes;
use longarm::config::MessageLimits;
use longarm::wire::codec::{self, DecodeError, Message, hot};
use longarm::wire::extension::{
    AckParams, ClosedExtension, ExitedExtension, ListResult, ListedProcess, Offer, ProcessState, ReadExtension,
    TerminateExtension,
};
use longarm::wire::initialize::InitializeParams;
use longarm::wire::method::{self, Method, Notification};
use longarm::wire::process::{
    ClosedParams, ExitedParams, OutputParams, ReadChunk, ReadParams, ReadResult, TerminateParams, WriteParams,
};
use longarm::wire::{Base64, RequestId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

mod oracle;
mod strategies;

use strategies::{chunk, json, limit, piece, process_id, request_id, signal, start_params, stream, totals};

fn limits() -> MessageLimits {
    MessageLimits::default()
}

fn small_limits() -> MessageLimits {
    let mut limits = MessageLimits::default();
    limits.max_json_values = 12;
    limits.max_json_depth = 4;
    limits
}

/// What the codec says of the text as a whole, without what it says of the envelope.
fn is_well_formed(text: &[u8], limits: &MessageLimits) -> bool {
    matches!(codec::decode(text, limits), Ok(_) | Err(DecodeError::Envelope(_)))
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_decoded(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(is_well_formed(&bytes, &limits()), oracle::accepts(&bytes, &limits()));
    }

    /// Pieces of JSON in any order: much nearer to messages than bytes are.
    #[test]
    fn pieces_of_json_are_taken_exactly_if_they_make_a_good_object(pieces in vec(piece(), 0..14), wrap in 0..3) {
        let inner = pieces.concat();
        let text = match wrap {
            0 => inner,
            1 => format!("{{{inner}}}"),
            _ => format!(r#"{{"a":[{inner}]}}"#),
        };
        for limits in [limits(), small_limits()] {
            prop_assert_eq!(is_well_formed(text.as_bytes(), &limits), oracle::accepts(text.as_bytes(), &limits), "{}", text);
        }
    }

    /// Good JSON, with few enough keys to have some twice, and limits that some exceed.
    #[test]
    fn json_is_taken_exactly_if_it_keeps_to_the_limits(json in json(), cut in any::<prop::sample::Index>()) {
        let text = format!(r#"{{"id":1,"method":"m","x":{json}}}"#);
        for limits in [limits(), small_limits()] {
            prop_assert_eq!(codec::decode(text.as_bytes(), &limits).is_ok(), oracle::accepts(text.as_bytes(), &limits), "{}", text);
        }
        let cut = cut.index(text.len());
        prop_assert!(codec::decode(&text.as_bytes()[..cut], &limits()).is_err());
    }

    #[test]
    fn ids_are_echoed(id in request_id()) {
        let message = codec::encode_request::<method::Status>(&id, &method::NoParams);
        let decoded = codec::decode(&message, &limits());
        prop_assert!(matches!(decoded, Ok(Message::Request { id: ref echoed, .. }) if *echoed == id), "{:?}", decoded);
        let answer = codec::encode_response(&id, &method::Empty);
        let decoded = codec::decode(&answer, &limits());
        prop_assert!(matches!(decoded, Ok(Message::Response { id: ref echoed, .. }) if *echoed == id), "{:?}", decoded);
    }

    #[test]
    fn starts_round_trip(params in start_params()) {
        request_round_trips::<method::Start>(&params)?;
    }

    #[test]
    fn other_parameters_round_trip(
        id in process_id(), numbers in (of(any::<u64>()), of(any::<u64>()), of(any::<u64>())), text in ".{0,9}", features in vec(".{0,9}", 0..3),
    ) {
        let (after_seq, max_bytes, wait_ms) = numbers;
        request_round_trips::<method::Read>(&ReadParams { process_id: id.clone(), after_seq, max_bytes, wait_ms })?;
        let longarm = wait_ms.map(|grace_ms| TerminateExtension { grace_ms, descendants: grace_ms % 2 == 0 });
        request_round_trips::<method::Terminate>(&TerminateParams { process_id: id.clone(), longarm })?;
        let longarm = after_seq.map(|version| Offer { version, features });
        request_round_trips::<method::Initialize>(&InitializeParams { client_name: text.clone(), resume_session_id: Some(text), longarm })?;
        let acks = [after_seq, max_bytes].into_iter().flatten().map(|seq| (id.clone(), seq)).collect();
        notification_round_trips::<method::Ack>(&AckParams { acks })?;
    }

    #[test]
    fn events_round_trip(id in process_id(), seq in any::<u64>(), code in any::<i32>(), denied in of(any::<bool>()), extension in of((of(signal()), of(limit()))), totals in of((totals(), any::<bool>()))) {
        let exited = extension.map(|(signal, limit)| ExitedExtension { signal, timed_out: denied.is_some(), limit, denial: None });
        notification_round_trips::<method::Exited>(&ExitedParams { process_id: id.clone(), seq, exit_code: code, sandbox_denied: denied, longarm: exited })?;
        let closed = totals.map(|(total_bytes, cut)| ClosedExtension { total_bytes, cut });
        notification_round_trips::<method::Closed>(&ClosedParams { process_id: id, seq, longarm: closed })?;
    }

    #[test]
    fn results_of_reads_and_lists_round_trip(
        chunks in vec((any::<u64>(), stream(), chunk()), 0..4), next_seq in any::<u64>(), exit_code in of(any::<i32>()),
        failure in of(".{0,9}"), flags in any::<[bool; 4]>(), longarm in of((totals(), any::<u64>(), of(signal()), of(limit()))), id in process_id(),
    ) {
        let [exited, closed, sandbox_denied, cut] = flags;
        let result = ReadResult {
            chunks: chunks.into_iter().map(|(seq, stream, chunk)| ReadChunk { seq, stream, chunk: Base64(chunk) }).collect(),
            next_seq, exited, exit_code, closed, failure, sandbox_denied,
            longarm: longarm.map(|(total_bytes, offset, signal, limit)| ReadExtension {
                total_bytes, offset, exit_seq: signal.map(|_| offset), more: closed, next_seq: limit.map(|_| next_seq), signal, timed_out: exited, limit, cut, denial: None,
            }),
        };
        result_round_trips::<method::Read>(&result)?;
        let json: serde_json::Value = serde_json::from_slice(&codec::encode_response(&1.into(), &result)).unwrap();
        for member in ["chunks", "nextSeq", "exited", "exitCode", "closed", "failure", "sandboxDenied"] {
            prop_assert!(json["result"].get(member).is_some(), "{} is always present", member);
        }
        let states = [ProcessState::Starting, ProcessState::Running, ProcessState::Exited, ProcessState::Closed];
        let processes = states.into_iter().map(|state| ListedProcess { process_id: id.clone(), state, next_seq, tty: exited, exit_code });
        result_round_trips::<method::List>(&ListResult { processes: processes.collect() })?;
    }

    /// Both ways are one: what the short one takes, the long one takes as the same, and what is written in the usual layout
    /// goes the short one.
    #[test]
    fn the_short_way_for_output_is_the_long_one(
        id in process_id(), seq in any::<u64>(), stream in stream(), chunk in chunk(), edits in vec((any::<prop::sample::Index>(), piece()), 0..3),
    ) {
        let encoder = hot::OutputEncoder::new(&id);
        let message = encoder.message(seq, stream, &chunk);
        prop_assert_eq!(message.len(), encoder.encoded_length(seq, stream, chunk.len()));
        let params = OutputParams { process_id: id.clone(), seq, stream, chunk: Base64(chunk) };
        prop_assert_eq!(&message, &codec::encode_notification::<method::Output>(&params));
        let plain_id = !serde_json::to_string(id.as_str()).unwrap().contains('\\');
        prop_assert_eq!(hot::decode_output(&message, &limits()).is_some(), plain_id);
        let edited = edit(&message, edits);
        if let Some(output) = hot::decode_output(&edited, &limits()) {
            let Ok(Message::Notification { method, params }) = codec::decode(&edited, &limits()) else {
                return Err(TestCaseError::fail("the long way refuses it"));
            };
            let long: OutputParams = params.decode().unwrap();
            prop_assert_eq!(method, "process/output");
            prop_assert_eq!((output.process_id, output.seq, output.stream, output.chunk), (long.process_id.as_str(), long.seq, long.stream, long.chunk.0));
        }
    }

    #[test]
    fn the_short_way_for_writes_is_the_long_one(
        id in request_id(), process_id in process_id(), chunk in chunk(), write_id in "[a-z\"é]{0,9}", edits in vec((any::<prop::sample::Index>(), piece()), 0..3),
    ) {
        let params = WriteParams { process_id, chunk: Base64(chunk), write_id };
        let message = hot::encode_write(&id, &params);
        prop_assert_eq!(&message, &codec::encode_request::<method::Write>(&id, &params));
        request_round_trips::<method::Write>(&params)?;
        let short = hot::decode_write(&message, &limits());
        prop_assert!(short.is_none() || short == Some((id, params)));
        let edited = edit(&message, edits);
        if let Some((id, params)) = hot::decode_write(&edited, &limits()) {
            let Ok(Message::Request { id: long_id, method, params: long, .. }) = codec::decode(&edited, &limits()) else {
                return Err(TestCaseError::fail("the long way refuses it"));
            };
            prop_assert_eq!(method, "process/write");
            prop_assert_eq!((id, params), (long_id, long.decode().unwrap()));
        }
    }
}

fn request_round_trips<M: Method>(params: &M::Params) -> Result<(), TestCaseError>
where
    M::Params: PartialEq + std::fmt::Debug,
{
    let message = codec::encode_request::<M>(&RequestId::Number(7), params);
    let Ok(Message::Request { id, method, params: payload, .. }) = codec::decode(&message, &limits()) else {
        return Err(TestCaseError::fail("not a request"));
    };
    prop_assert_eq!((id, &*method), (RequestId::Number(7), M::NAME));
    prop_assert_eq!(&payload.decode::<M::Params>().unwrap(), params);
    Ok(())
}

fn notification_round_trips<N: Notification>(params: &N::Params) -> Result<(), TestCaseError>
where
    N::Params: PartialEq + std::fmt::Debug,
{
    let message = codec::encode_notification::<N>(params);
    let Ok(Message::Notification { method, params: payload }) = codec::decode(&message, &limits()) else {
        return Err(TestCaseError::fail("not a notification"));
    };
    prop_assert_eq!(&*method, N::NAME);
    prop_assert_eq!(&payload.decode::<N::Params>().unwrap(), params);
    Ok(())
}

fn result_round_trips<M: Method>(result: &M::Result) -> Result<(), TestCaseError>
where
    M::Result: PartialEq + std::fmt::Debug,
{
    let message = codec::encode_response(&RequestId::Number(7), result);
    let Ok(Message::Response { result: payload, .. }) = codec::decode(&message, &limits()) else {
        return Err(TestCaseError::fail("not a response"));
    };
    prop_assert_eq!(&payload.decode::<M::Result>().unwrap(), result);
    Ok(())
}

fn edit(message: &[u8], edits: Vec<(prop::sample::Index, String)>) -> Bytes {
    let mut edited = message.to_vec();
    for (at, piece) in edits {
        let at = at.index(edited.len());
        let end = (at + piece.len()).min(edited.len());
        edited.splice(at..end, piece.bytes());
    }
    edited.into()
}
