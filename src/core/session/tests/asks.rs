//! Calls of any method: those about files.

use super::*;
use crate::error::{Disconnected, Sent};
use crate::wire::fs::{CloseParams, ReadBlockParams};
use crate::wire::method::{CloseFile, ReadBlock};

fn read() -> Op {
    let params = ReadBlockParams { handle_id: "h".into(), offset: 0, len: 2 };
    let encode = move |id: &RequestId| codec::encode_request::<ReadBlock>(id, &params);
    Op::Ask(Box::new(Ask { method: ReadBlock::NAME, cleanup: false, on: None, encode: Box::new(encode) }))
}

fn close() -> Op {
    let params = CloseParams { handle_id: "h".into() };
    let encode = move |id: &RequestId| codec::encode_request::<CloseFile>(id, &params);
    Op::Ask(Box::new(Ask { method: CloseFile::NAME, cleanup: true, on: None, encode: Box::new(encode) }))
}

#[test]
fn a_block_comes_as_bytes_and_any_other_result_as_its_text() {
    let mut harness = Harness::open(&[]);
    let tokens = [read(), read(), read(), read()].map(|op| harness.submit(0, op));
    let sent = harness.sent();
    assert_eq!(sent[0]["params"], json!({"handleId": "h", "offset": 0, "len": 2}));
    let id = |place: usize| sent[place]["id"].as_i64().unwrap();
    harness.receive_raw(format!(r#"{{"id":{},"result":{{"chunk":"aGk=","eof":false}}}}"#, id(1)).as_bytes());
    harness.receive_raw(format!(r#"{{"id":{},"result":{{"dataBase64":"aGk="}}}}"#, id(0)).as_bytes());
    harness.receive_raw(format!(r#"{{ "id":{}, "result":{{"eof":true,"chunk":"aGk="}}}}"#, id(2)).as_bytes());
    harness.receive(&json!({"id": id(3), "error": {"code": -32004, "message": "unknown file handle `h`"}}));
    let block = Answer::FileBytes { bytes: "hi".into(), eof: Some(false) };
    assert_eq!(harness.answer(tokens[1]).unwrap().as_ref().unwrap(), &block);
    let file = Answer::FileBytes { bytes: "hi".into(), eof: None };
    assert_eq!(harness.answer(tokens[0]).unwrap().as_ref().unwrap(), &file);
    let text = Answer::Json(r#"{"eof":true,"chunk":"aGk="}"#.into());
    assert_eq!(harness.answer(tokens[2]).unwrap().as_ref().unwrap(), &text);
    let Failure::Remote(error) = harness.failure(tokens[3]) else { panic!() };
    assert_eq!(error.code, -32004);
}

#[test]
fn a_block_for_a_call_that_asked_for_none_is_a_bad_result_of_that_call_only() {
    let mut harness = Harness::open(&[]);
    let token = harness.submit(0, Op::Status);
    let id = harness.sent_one()["id"].as_i64().unwrap();
    harness.receive_raw(br#"{"id":99,"result":{"chunk":"aGk=","eof":false}}"#);
    harness.receive_raw(format!(r#"{{"id":{id},"result":{{"chunk":"aGk=","eof":false}}}}"#).as_bytes());
    assert!(matches!(harness.failure(token), Failure::Peer(PeerMisbehaved::BadResult { .. })));
    assert!(harness.end.is_none());
}

#[test]
fn a_close_has_a_place_of_its_own_and_one_more_waits_for_it() {
    let config = ClientConfig { max_calls: 1, max_calls_extended: 1, ..ClientConfig::default() };
    let mut harness = Harness::open_with(&[], config);
    let busy = harness.submit(0, read());
    let refused = harness.submit(0, read());
    assert!(matches!(harness.failure(refused), Failure::Busy(_)));
    let closes = [harness.submit(0, close()), harness.submit(0, close())];
    let sent = harness.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!((&sent[0]["method"], &sent[1]["method"]), (&json!("fs/readBlock"), &json!("fs/close")));
    harness.receive(&json!({"id": sent[1]["id"], "result": {}}));
    let last = harness.sent_one();
    assert_eq!(last["method"], "fs/close");
    harness.receive(&json!({"id": last["id"], "result": {}}));
    for token in closes {
        assert!(matches!(harness.answer(token), Some(Ok(Answer::Json(json))) if &**json == "{}"));
    }
    assert!(harness.answer(busy).is_none());
}

#[test]
fn the_end_of_the_connection_ends_all_of_them_at_once() {
    let config = ClientConfig { max_calls: 1, max_calls_extended: 1, ..ClientConfig::default() };
    let mut harness = Harness::open_with(&[], config);
    let tokens = [harness.submit(0, read()), harness.submit(0, close()), harness.submit(0, close())];
    harness.sent();
    harness.cut();
    for (token, expected) in tokens.into_iter().zip([Sent::Unknown, Sent::Unknown, Sent::NotSent]) {
        assert!(
            matches!(harness.failure(token), Failure::Disconnected(Disconnected { sent, .. }) if *sent == expected)
        );
    }
    let late = harness.submit(0, read());
    assert!(matches!(harness.failure(late), Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })));
}

#[test]
fn the_end_of_a_watch_is_told() {
    let mut harness = Harness::open(&[]);
    harness.receive(&json!({"method": "fs/missingChanged", "params": {"watchId": 7}}));
    assert_eq!(harness.changed, [7]);
    harness.receive(&json!({"method": "fs/missingChanged", "params": {"watchId": -1}}));
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::ProtocolError);
}

#[test]
fn pieces_of_bodies_are_passed_on_and_notices_go_behind_what_was_asked_before() {
    let mut harness = Harness::open(&["http"]);
    harness.submit(0, Op::Status);
    harness.session.notify(Bytes::from_static(br#"{"method":"a notice"}"#));
    let sent = harness.sent();
    assert_eq!((&sent[0]["method"], &sent[1]["method"]), (&json!("environment/status"), &json!("a notice")));
    let delta = |seq: u64, text: &str| {
        let params = json!({"requestId": "a", "seq": seq, "deltaBase64": text, "done": false, "error": null});
        json!({"method": "http/request/bodyDelta", "params": params})
    };
    harness.receive(&delta(1, "aGk="));
    harness.receive(&delta(7, ""));
    let passed: Vec<_> = harness.deltas.iter().map(|delta| (delta.seq, &delta.delta_base64.0[..])).collect();
    assert_eq!(passed, [(1, &b"hi"[..]), (7, b"")]);
    harness.receive(&json!({"method": "http/request/bodyDelta", "params": {"requestId": "a"}}));
    assert!(harness.end.is_some(), "it cannot be understood");
    harness.session.notify(Bytes::from_static(b"{}"));
    assert!(harness.sent().is_empty());
}
