use serde_json::json;

use super::hot::{self, OutputEncoder};
use super::*;
use crate::event::OutputStream;
use crate::request::ProcessId;
use crate::wire::bytes::Base64;
use crate::wire::method::{self, Empty, NoParams};
use crate::wire::process::{OutputParams, ReadParams, SignalParams, WriteParams, WriteResult, WriteStatus};

fn read(text: &str) -> Result<Message<'_>, DecodeError> {
    decode(text.as_bytes(), &MessageLimits::default())
}

fn value(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn kinds_are_told_by_the_members_that_are_present() {
    let kind = |text: &str| match read(text) {
        Ok(Message::Request { id, .. }) => format!("request {id}"),
        Ok(Message::Notification { method, .. }) => format!("notification {method}"),
        Ok(Message::Response { id, result }) => format!("response {id} {}", result.as_json()),
        Ok(Message::Error { id, error }) => format!("error {id} {}", error.code),
        Err(DecodeError::Envelope(_)) => "malformed".into(),
        Err(other) => panic!("{text}: {other}"),
    };
    for (text, expected) in [
        (r#"{"id":1,"method":"m","result":1,"error":5}"#, "request 1"),
        (r#"{"jsonrpc":7,"id":"","method":"m"}"#, r#"request """#),
        (r#"{"id":"\u0061","method":"m"}"#, r#"request "a""#),
        (r#"{"id":-0,"method":"m"}"#, "request 0"),
        (r#"{"id":9223372036854775807,"method":"m"}"#, "request 9223372036854775807"),
        (r#"{"id":-9223372036854775808,"method":"m"}"#, "request -9223372036854775808"),
        (r#"{"method":"\u006d","result":1}"#, "notification m"),
        (r#"{"id":1,"result":1,"error":5}"#, "response 1 1"),
        (r#"{"id":1,"result":null}"#, "response 1 null"),
        (r#"{"id":1,"error":{"code":5,"message":"x","more":[]}}"#, "error 1 5"),
        (r#"{"id":9223372036854775808,"method":"m"}"#, "malformed"),
        (r#"{"id":-9223372036854775809,"method":"m"}"#, "malformed"),
        (r#"{"id":1.0,"method":"m"}"#, "malformed"),
        (r#"{"id":1e2,"method":"m"}"#, "malformed"),
        (r#"{"id":null,"method":"m"}"#, "malformed"),
        (r#"{"id":true,"method":"m"}"#, "malformed"),
        (r#"{"id":{},"method":"m"}"#, "malformed"),
        (r#"{"id":[],"method":"m"}"#, "malformed"),
        (r#"{"id":1,"method":null}"#, "malformed"),
        (r#"{"id":1,"method":5,"result":1}"#, "malformed"),
        (r#"{"method":5}"#, "malformed"),
        (r#"{"id":null,"result":1}"#, "malformed"),
        (r#"{"result":1}"#, "malformed"),
        (r#"{"error":{"code":1,"message":"x"}}"#, "malformed"),
        (r#"{"id":1,"error":null}"#, "malformed"),
        (r#"{"id":1,"error":"x"}"#, "malformed"),
        (r#"{"id":1,"error":{"code":1.5,"message":"x"}}"#, "malformed"),
        (r#"{"id":1,"error":{"code":9223372036854775808,"message":"x"}}"#, "malformed"),
        (r#"{"id":1,"error":{"code":1}}"#, "malformed"),
        (r#"{"id":1}"#, "malformed"),
        (r#"{"params":{}}"#, "malformed"),
        ("{}", "malformed"),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

#[test]
fn a_trace_matters_in_requests_only() {
    for (trace, good) in [
        ("null", true),
        ("{}", true),
        (r#"{"traceparent":null,"tracestate":"x","more":1}"#, true),
        (r#"{"traceparent":"\u0061"}"#, true),
        ("5", false),
        (r#""x""#, false),
        (r#"{"traceparent":5}"#, false),
        (r#"{"tracestate":{}}"#, false),
    ] {
        assert_eq!(read(&format!(r#"{{"id":1,"method":"m","trace":{trace}}}"#)).is_ok(), good, "{trace}");
        assert!(read(&format!(r#"{{"method":"m","trace":{trace}}}"#)).is_ok(), "{trace}");
    }
}

#[test]
fn size_and_encoding_are_checked_first() {
    let limits = MessageLimits { max_message_bytes: 20, ..MessageLimits::default() };
    assert!(decode(br#"{"method":"abcdefg"}"#, &limits).is_ok());
    let too_large = DecodeError::TooLarge { size_bytes: 21, limit_bytes: 20 };
    assert_eq!(decode(br#"{"method":"abcdefgh"}"#, &limits), Err(too_large));
    for text in [&b"{\"method\":\"\xff\"}"[..], b"{\"method\":\"\xed\xa0\x80\"}"] {
        assert_eq!(decode(text, &MessageLimits::default()), Err(DecodeError::NotUtf8 { offset: 11 }));
    }
}

#[test]
fn faults_of_parameters_are_told_without_a_place() {
    let fault = |params: &str| {
        let text = format!(r#"{{"id":1,"method":"m","params":{params}}}"#);
        let Ok(Message::Request { params, .. }) = read(&text) else { panic!("{text}") };
        params.decode::<ReadParams>().unwrap_err().into_invalid_params()
    };
    assert_eq!(fault("{}"), ErrorCode::INVALID_PARAMS.error("missing field `processId`"));
    assert_eq!(fault("{\n\"processId\":5}").message, "invalid type: integer `5`, expected a string");
    for params in ["null", "5", r#"{"processId":"x","afterSeq":1.0}"#, r#"{"processId":"x","afterSeq":-1}"#] {
        assert_eq!(fault(params).code, -32602, "{params}");
    }
    let text = r#"{"id":1,"method":"process/signal","params":{"processId":"x","signal":"int"}}"#;
    let Ok(Message::Request { params, .. }) = read(text) else { panic!() };
    assert_eq!(params.decode::<SignalParams>().unwrap_err().to_string(), "unknown variant `int`, expected `interrupt`");
}

#[test]
fn methods_without_parameters_take_null_and_objects() {
    for (params, good) in
        [("null", true), ("{}", true), (r#"{"a":1}"#, true), ("[]", false), ("5", false), (r#""""#, false)]
    {
        assert_eq!(Payload(params).decode::<NoParams>().is_ok(), good, "{params}");
    }
    assert_eq!(Payload("null").decode::<NoParams>(), Ok(NoParams));
    assert!(Payload(r#"{"more":[{}]}"#).decode::<Empty>().is_ok());
}

#[test]
fn encoded_messages_have_exactly_the_members_of_their_kind() {
    let id = RequestId::from("a\"b");
    let params = ReadParams { process_id: ProcessId::new("p"), after_seq: Some(3), max_bytes: None, wait_ms: None };
    assert_eq!(
        value(&encode_request::<method::Read>(&id, &params)),
        json!({"id":"a\"b","method":"process/read","params":{"processId":"p","afterSeq":3,"maxBytes":null,"waitMs":null}})
    );
    assert_eq!(
        value(&encode_request::<method::Status>(&RequestId::Number(-5), &NoParams)),
        json!({"id":-5,"method":"environment/status","params":null})
    );
    assert_eq!(
        value(&encode_notification::<method::Initialized>(&crate::wire::initialize::Initialized)),
        json!({"method":"initialized","params":{}})
    );
    assert_eq!(
        value(&encode_response(&7.into(), &WriteResult { status: WriteStatus::StdinClosed })),
        json!({"id":7,"result":{"status":"stdinClosed"}})
    );
    assert_eq!(value(&encode_response(&7.into(), &Empty)), json!({"id":7,"result":{}}));
}

#[test]
fn errors_round_trip_with_any_code_and_any_data() {
    for (data, on_the_wire) in [
        (None, json!({"code":77,"message":"m\n"})),
        (Some(r#"{"kind":"x"}"#), json!({"code":77,"message":"m\n","data":{"kind":"x"}})),
        (Some("not json"), json!({"code":77,"message":"m\n","data":"not json"})),
    ] {
        let error = RpcError { code: 77, message: "m\n".into(), data: data.map(Into::into) };
        let message = encode_error(&RequestId::MALFORMED, &error);
        assert_eq!(value(&message), json!({"id":-1,"error":on_the_wire}));
        let Ok(Message::Error { id, error: decoded }) = decode(&message, &MessageLimits::default()) else { panic!() };
        assert_eq!((id, decoded.code, &decoded.message), (RequestId::MALFORMED, 77, &error.message));
        assert_eq!(decoded.data.is_some(), data.is_some());
    }
}

#[test]
fn an_output_message_is_what_the_plain_encoder_makes_of_it() {
    for id in ["p", "", "with \"quotes\" and \\ and é and \n"] {
        for chunk in [&b""[..], b"h", b"hi", b"hi!", &[0xff; 1000]] {
            for (seq, stream) in [(0, OutputStream::Stdout), (10, OutputStream::Stderr), (u64::MAX, OutputStream::Pty)]
            {
                let process_id = ProcessId::new(id);
                let encoder = OutputEncoder::new(&process_id);
                let message = encoder.message(seq, stream, chunk);
                let params = OutputParams { process_id, seq, stream, chunk: Base64(chunk.to_vec().into()) };
                assert_eq!(message, encode_notification::<method::Output>(&params));
                assert_eq!(message.len(), encoder.encoded_length(seq, stream, chunk.len()));
            }
        }
    }
}

#[test]
fn messages_are_appended_behind_each_other() {
    let encoder = OutputEncoder::new(&ProcessId::new("p"));
    let mut out = b"before\n".to_vec();
    encoder.encode(1, OutputStream::Pty, b"a", &mut out);
    encoder.encode(2, OutputStream::Pty, b"b", &mut out);
    let first = encoder.message(1, OutputStream::Pty, b"a");
    let second = encoder.message(2, OutputStream::Pty, b"b");
    assert_eq!(out, [b"before\n", &first[..], &second[..]].concat());
}

#[test]
fn a_write_is_what_the_plain_encoder_makes_of_it() {
    for text in ["1", "", "\"é\n"] {
        for chunk in [&b""[..], b"h", b"hi", b"hi!"] {
            let params = WriteParams {
                process_id: ProcessId::new(text),
                chunk: Base64(chunk.to_vec().into()),
                write_id: text.into(),
            };
            for id in [RequestId::from(text), 7.into(), (-1).into()] {
                assert_eq!(hot::encode_write(&id, &params), encode_request::<method::Write>(&id, &params));
            }
        }
    }
}

#[test]
fn the_short_way_takes_the_usual_layout_and_leaves_the_rest() {
    let limits = MessageLimits::default();
    let output = |text: &str| hot::decode_output(text.as_bytes(), &limits).map(|output| (output.seq, output.chunk));
    let usual = r#"{"method":"process/output","params":{"processId":"é","seq":7,"stream":"pty","chunk":"aGk="}}"#;
    assert_eq!(output(usual), Some((7, "hi".into())));
    for (what, with) in [
        ("\"seq\":7", "\"seq\": 7"),
        ("\"seq\":7", "\"seq\":07"),
        ("\"seq\":7", "\"seq\":-7"),
        ("\"seq\":7", "\"seq\":7.0"),
        ("\"seq\":7", "\"seq\":"),
        ("\"seq\":7", "\"seq\":18446744073709551616"),
        ("é", "\\u00e9"),
        ("é", "\u{1}"),
        ("pty", "tty"),
        ("aGk=", "aGk"),
        ("aGk=", "aG\\u006b="),
        ("aGk=", "aGk=\",\"seq\":\"aGk="),
        ("aGk=\"}}", "aGk=\"}} "),
        ("process/output", "process/exited"),
    ] {
        assert_eq!(output(&usual.replace(what, with)), None, "{with}");
    }
    let write = |text: &str| hot::decode_write(text.as_bytes(), &limits);
    let usual = r#"{"id":5,"method":"process/write","params":{"processId":"p","chunk":"aGk=","writeId":"w"}}"#;
    let (id, params) = write(usual).unwrap();
    assert_eq!((id, &params.chunk.0[..], &*params.write_id), (5.into(), &b"hi"[..], "w"));
    assert_eq!(write(&usual.replace("5", "\"5\"")).unwrap().0, "5".into());
    for (what, with) in [
        ("5", "-5"),
        ("5", "05"),
        ("5", "9223372036854775808"),
        ("5", "\"\\u0035\""),
        ("aGk=", "aGk"),
        ("\"w\"", "null"),
        ("\"w\"", "\"\\\"\""),
        ("\"w\"", "\"w\",\"more\":\"w\""),
        ("\"w\"}}", "\"w\"}"),
    ] {
        assert!(write(&usual.replace(what, with)).is_none(), "{with}");
    }
}

#[test]
fn the_short_way_keeps_to_the_limits() {
    let message = OutputEncoder::new(&ProcessId::new("p")).message(1, OutputStream::Stdout, b"hi");
    let bytes = message.len();
    for (max_message_bytes, max_json_values, max_json_depth) in
        [(bytes, 7, 2), (bytes - 1, 7, 2), (bytes, 6, 2), (bytes, 7, 1)]
    {
        let limits = MessageLimits { max_message_bytes, max_json_values, max_json_depth };
        assert_eq!(hot::decode_output(&message, &limits).is_some(), decode(&message, &limits).is_ok());
    }
}

#[test]
fn bytes_of_files_are_what_the_plain_encoder_makes_of_them() {
    use crate::wire::fs::{ReadBlockResult, ReadFileResult, WriteBlockParams};

    let limits = MessageLimits::default();
    for id in [RequestId::Number(0), RequestId::Number(i64::MAX), RequestId::from(""), RequestId::from("a")] {
        for length in [0, 1, 2, 3, 1000] {
            let bytes = bytes::Bytes::from(vec![0xA5; length]);
            for eof in [false, true] {
                let block = ReadBlockResult { chunk: bytes.clone().into(), eof };
                let message = hot::encode_block(&id, &bytes, eof);
                assert_eq!(message, encode_response(&id, &block));
                let decoded = hot::decode_file_bytes(&message, &limits).unwrap();
                assert_eq!(decoded, hot::FileBytes { id: id.clone(), bytes: bytes.clone(), eof: Some(eof) });
            }
            let file = ReadFileResult { data_base64: bytes.clone().into() };
            let message = hot::encode_file(&id, &bytes);
            assert_eq!(message, encode_response(&id, &file));
            let decoded = hot::decode_file_bytes(&message, &limits).unwrap();
            assert_eq!(decoded, hot::FileBytes { id: id.clone(), bytes: bytes.clone(), eof: None });
            let params = WriteBlockParams { handle_id: "h".into(), offset: u64::MAX, chunk: bytes.into() };
            let message = hot::encode_write_block(&id, &params);
            assert_eq!(message, encode_request::<method::WriteBlock>(&id, &params));
            assert_eq!(hot::decode_write_block(&message, &limits).unwrap(), (id.clone(), params));
        }
    }
}

#[test]
fn a_whole_file_is_written_as_the_plain_encoder_has_it() {
    use crate::wire::fs::{LateBase64, WriteFileExtension, WriteFileParams};

    let limits = MessageLimits::default();
    let longarm = [None, Some(false), Some(true)].map(|fsync| fsync.map(|fsync| WriteFileExtension { fsync }));
    for id in [RequestId::Number(0), RequestId::from("a")] {
        for follow_symlinks in [None, Some(false), Some(true)] {
            for longarm in longarm {
                for length in [0, 1, 2, 3, 1000] {
                    let params = WriteFileParams {
                        path: "file:///a%20b".parse().unwrap(),
                        data_base64: LateBase64(Ok(bytes::Bytes::from(vec![0xA5; length]).into())),
                        follow_symlinks,
                        sandbox: None,
                        longarm,
                    };
                    let message = hot::encode_write_file(&id, &params);
                    assert_eq!(message, encode_request::<method::WriteFile>(&id, &params));
                    let decoded = hot::decode_write_file(&message, &limits).unwrap();
                    assert_eq!(decoded, (id.clone(), params));
                    // What the short way takes, the long way reads likewise.
                    let Ok(Message::Request { params: payload, .. }) = decode(&message, &limits) else { panic!() };
                    assert_eq!(payload.decode::<WriteFileParams>().unwrap(), decoded.1);
                }
            }
        }
    }
    let usual = r#"{"id":1,"method":"fs/writeFile","params":{"path":"file:///a","dataBase64":"aGk="}}"#;
    assert!(hot::decode_write_file(usual.as_bytes(), &limits).is_some());
    for (what, with) in [
        ("aGk=\"", "aGk=\",\"sandbox\":{}"),
        ("aGk=\"", "aGk=\",\"sandbox\":null,\"followSymlinks\":true"),
        ("aGk=\"", "aGk=\",\"followSymlinks\":true,\"followSymlinks\":true"),
        ("aGk=\"", "aGk=\",\"followSymlinks\":null"),
        ("aGk=\"", "aGk=\",\"longarm\":{}"),
        ("aGk=\"", "aGk=\",\"more\":1"),
        ("aGk=", "aGk"),
        ("aGk=", "a\\u0047k="),
        ("file:///a", "a"),
        ("file:///a", "file:///\\u0061"),
        ("}}", "}"),
        ("}}", "}} "),
        ("\"id\":1", "\"id\":1.0"),
    ] {
        assert_eq!(hot::decode_write_file(usual.replacen(what, with, 1).as_bytes(), &limits), None, "{with}");
    }
    let small = MessageLimits { max_json_values: 9, ..limits };
    assert!(hot::decode_write_file(usual.as_bytes(), &small).is_none());
}

#[test]
fn the_short_way_of_blocks_leaves_what_is_not_of_the_usual_layout() {
    let limits = MessageLimits::default();
    for text in [
        r#"{"id":1,"result":{"eof":false,"chunk":"aGk="}}"#,
        r#"{"id":1,"result":{"chunk":"aGk=","eof":null}}"#,
        r#"{"id":1,"result":{"chunk":"aGk","eof":false}}"#,
        r#"{"id":1,"result":{"chunk":"aGk=","eof":false},"x":1}"#,
        r#"{"id":1,"result":{"chunk":"a\"k=","eof":false}}"#,
        r#"{"id":1,"result":{"dataBase64":"aGk=","x":"aGk="}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"id":1,"error":{"code":1,"message":""}}"#,
        r#"{"id":01,"result":{"chunk":"aGk=","eof":false}}"#,
    ] {
        assert_eq!(hot::decode_file_bytes(text.as_bytes(), &limits), None, "{text}");
    }
    let small = MessageLimits { max_json_values: 4, ..MessageLimits::default() };
    assert!(hot::decode_file_bytes(br#"{"id":1,"result":{"dataBase64":""}}"#, &small).is_some());
    assert!(hot::decode_file_bytes(br#"{"id":1,"result":{"chunk":"","eof":true}}"#, &small).is_none());
    for text in [
        r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"h","chunk":"aGk=","offset":0}}"#,
        r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"h","offset":-1,"chunk":"aGk="}}"#,
        r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"h","offset":1.0,"chunk":"aGk="}}"#,
        r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"\n","offset":1,"chunk":"aGk="}}"#,
        r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"h","offset":1,"chunk":"!"}}"#,
    ] {
        assert_eq!(hot::decode_write_block(text.as_bytes(), &limits), None, "{text}");
    }
}
