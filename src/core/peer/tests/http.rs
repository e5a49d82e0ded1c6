//! HTTP: the answer and what follows it, in which pieces, and what is held.

use super::*;
use crate::http::{HttpError, HttpRequest};
use crate::wire::fs;

impl Rig {
    /// Asks for a request, and takes what it becomes.
    fn exchange(&mut self, params: Value) -> (i64, HttpKey, HttpRequest) {
        let id = self.ask("http/request", params);
        match self.actions.pop_back() {
            Some(Action::Http { exchange, request }) => (id, exchange, *request),
            other => panic!("{other:?} instead of a request; {:?}", self.out()),
        }
    }

    fn stream(&mut self, id: &str) -> HttpKey {
        let (_, exchange, _) = self.exchange(streamed(id));
        self.head(exchange);
        self.out();
        exchange
    }

    fn head(&mut self, exchange: HttpKey) {
        let headers = [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())].into_iter().collect();
        self.complete(Completion::HttpHead { exchange, result: Ok(HttpHead { status: 200, headers }) });
        self.expect_pull(exchange);
    }

    fn body(&mut self, exchange: HttpKey, result: Result<Option<&[u8]>, HttpError>) {
        let result = result.map(|bytes| bytes.map(Bytes::copy_from_slice));
        self.complete(Completion::HttpBody { exchange, result });
    }

    fn expect_pull(&mut self, exchange: HttpKey) {
        self.collect();
        let action = self.actions.pop_front();
        assert!(matches!(action, Some(Action::PullBody { exchange: pulled }) if pulled == exchange), "{action:?}");
    }

    fn expect_forgotten(&mut self, exchange: HttpKey) {
        let action = self.actions.pop_front();
        assert!(matches!(action, Some(Action::ForgetHttp { exchange: gone }) if gone == exchange), "{action:?}");
    }
}

fn streamed(id: &str) -> Value {
    json!({"method": "GET", "url": "http://x/", "requestId": id, "streamResponse": true})
}

fn whole(id: &str) -> Value {
    json!({"method": "GET", "url": "http://x/", "requestId": id})
}

fn refused() -> HttpError {
    HttpError::ConnectionRefused { origin: "http://x".into() }
}

/// What a notification about a body carries.
fn delta(message: &Value) -> (String, u64, usize, bool, Option<String>) {
    assert_eq!(message["method"], "http/request/bodyDelta", "{message}");
    let params = &message["params"];
    let bytes: wire::Base64 = serde_json::from_value(params["deltaBase64"].clone()).unwrap();
    (
        params["requestId"].as_str().unwrap().into(),
        params["seq"].as_u64().unwrap(),
        bytes.0.len(),
        params["done"].as_bool().unwrap(),
        params["error"].as_str().map(Into::into),
    )
}

#[test]
fn a_request_is_passed_on_as_it_is() {
    let mut rig = Rig::attached(false);
    let (_, _, request) = rig.exchange(json!({
        "method": "PuT", "url": "http://x/?k", "requestId": "", "bodyBase64": "aGk=", "timeoutMs": 0,
        "redirectPolicy": "stop",
        "headers": [{"name": "A", "value": "1"}, {"name": "a", "value": "2", "valueEnvVar": "V"}],
    }));
    let expected = HttpRequest::new("PuT", "http://x/?k")
        .header("A", "1")
        .header_from_variable("a", "2", "V")
        .body("hi")
        .timeout(Duration::ZERO)
        .redirects(crate::http::Redirects::Stop);
    assert_eq!(request, expected);
    let long = json!({"method": "GET", "url": "http://x/", "requestId": "a".repeat(1025)});
    assert_eq!(rig.refusal("http/request", long).0, -32602);
    for wrong in [
        json!({"url": "http://x/", "requestId": ""}),
        json!({"method": "GET", "url": "http://x/"}),
        json!({"method": "GET", "url": "http://x/", "requestId": "", "redirectPolicy": null}),
        json!({"method": "GET", "url": "http://x/", "requestId": "", "bodyBase64": "!"}),
    ] {
        assert_eq!(rig.refusal("http/request", wrong).0, -32602);
    }
}

#[test]
fn a_body_that_is_not_streamed_is_in_the_answer() {
    let mut rig = Rig::attached(false);
    let (id, exchange, _) = rig.exchange(whole("a"));
    rig.head(exchange);
    assert!(rig.out().is_empty());
    rig.body(exchange, Ok(Some(b"he")));
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(Some(b"llo")));
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(None));
    let headers = json!([{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]);
    let expected = json!({"id": id, "result": {"status": 200, "headers": headers, "bodyBase64": "aGVsbG8="}});
    assert_eq!(rig.out(), [expected]);
    assert!(rig.actions.is_empty());
}

#[test]
fn a_failure_is_told_by_code_text_and_to_who_knows_them_details() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let (id, exchange, _) = rig.exchange(whole("a"));
        rig.complete(Completion::HttpHead { exchange, result: Err(refused()) });
        let answer = rig.out().remove(0);
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32603)));
        assert_eq!(answer["error"]["message"], "http/request failed: http://x refused the connection");
        assert_eq!(answer["error"]["data"]["longarm"]["kind"] == "connectionRefused", extended);
        let (_, exchange, _) = rig.exchange(whole("a"));
        rig.head(exchange);
        rig.body(exchange, Err(HttpError::BodyCut { origin: "http://x".into(), reason: "odd".into() }));
        let text = "failed to read http/request response body: the body from http://x was cut short: odd";
        assert_eq!(rig.out()[0]["error"]["message"], text);
    }
}

#[test]
fn the_answer_goes_before_the_body_and_the_last_piece_says_so() {
    let mut rig = Rig::attached(false);
    let (id, exchange, _) = rig.exchange(streamed("a"));
    rig.complete(Completion::HttpHead {
        exchange,
        result: Ok(HttpHead { status: 204, headers: crate::http::Headers::default() }),
    });
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(Some(b"one")));
    assert!(rig.actions.is_empty(), "the next piece is asked for when this one has left");
    let out = rig.out();
    assert_eq!(out[0], json!({"id": id, "result": {"status": 204, "headers": [], "bodyBase64": ""}}));
    assert_eq!(delta(&out[1]), ("a".into(), 1, 3, false, None));
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(None));
    let out = rig.out();
    let expected = json!({"requestId": "a", "seq": 2, "deltaBase64": "", "done": true, "error": null});
    assert_eq!(out, [json!({"method": "http/request/bodyDelta", "params": expected})]);
    assert!(rig.actions.is_empty() && !rig.peer.wants_transmit(true));
}

#[test]
fn a_body_that_fails_says_why_at_its_end() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let exchange = rig.stream("a");
        rig.body(exchange, Err(HttpError::TimedOut { origin: "http://x".into(), in_body: true }));
        let out = rig.out();
        let text = "the body from http://x did not end in time";
        assert_eq!(delta(&out[0]), ("a".into(), 1, 0, true, Some(text.into())));
        assert_eq!(out[0]["params"]["longarm"]["error"]["kind"] == "timedOut", extended);
    }
}

#[test]
fn an_id_is_taken_until_its_last_piece_has_left() {
    let mut rig = Rig::attached(false);
    let exchange = rig.stream("a");
    let text = "http/request streamResponse requestId `a` is already active";
    assert_eq!(rig.refusal("http/request", streamed("a")), (-32602, text.into()));
    // One that is not streamed neither takes an id nor minds one.
    let (_, buffered, _) = rig.exchange(whole("a"));
    rig.head(buffered);
    rig.body(exchange, Ok(None));
    assert_eq!(rig.refusal("http/request", streamed("a")).0, -32602);
    let (_, again, _) = rig.exchange(streamed("a"));
    rig.complete(Completion::HttpHead { exchange: again, result: Err(refused()) });
    rig.out();
    drop(rig.exchange(streamed("a")));
}

#[test]
fn large_pieces_are_cut_and_take_turns_with_output() {
    let mut rig = Rig::attached(false);
    let process = rig.run("p");
    let exchange = rig.stream("a");
    rig.body(exchange, Ok(Some(&vec![7; 200_000])));
    for number in 0..4 {
        rig.output(process, &number.to_string());
    }
    let out: Vec<_> = rig
        .out()
        .iter()
        .map(|message| match message["method"].as_str() {
            Some("process/output") => 0,
            _ => delta(message).2,
        })
        .collect();
    assert_eq!(out, [65_536, 0, 65_536, 0, 65_536, 0, 3_392, 0]);
    rig.expect_pull(exchange);
}

#[test]
fn a_body_waits_for_credit_and_its_end_does_not() {
    let mut rig = Rig::attached(true);
    let mut params = streamed("a");
    params["longarm"] = json!({"creditBytes": 5});
    let (_, exchange, _) = rig.exchange(params);
    rig.head(exchange);
    rig.out();
    rig.body(exchange, Ok(Some(b"0123456789")));
    assert_eq!(rig.out().iter().map(|message| delta(message).2).collect::<Vec<_>>(), [5]);
    assert!(!rig.peer.wants_transmit(true) && rig.actions.is_empty());
    let credit = |bytes| json!({"method": "longarm/http/credit", "params": {"requestId": "a", "creditBytes": bytes}});
    // Less than before changes nothing.
    for (bytes, sent) in [(8, vec![3]), (7, vec![]), (10, vec![2])] {
        rig.tell(&credit(bytes)).unwrap();
        assert_eq!(rig.out().iter().map(|message| delta(message).2).collect::<Vec<_>>(), sent);
    }
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(None));
    assert_eq!(delta(&rig.out()[0]), ("a".into(), 4, 0, true, None));
    rig.tell(&credit(20)).unwrap();
    assert!(rig.out().is_empty());
}

#[test]
fn what_is_cancelled_is_dropped_and_its_id_free() {
    let mut rig = Rig::attached(true);
    let cancel = json!({"method": "longarm/http/cancel", "params": {"requestId": "a"}});
    let exchange = rig.stream("a");
    rig.body(exchange, Ok(Some(b"x")));
    rig.tell(&cancel).unwrap();
    rig.expect_forgotten(exchange);
    assert!(rig.out().is_empty(), "nothing follows");
    for params in [streamed("a"), whole("a")] {
        let (id, exchange, _) = rig.exchange(params);
        rig.tell(&cancel).unwrap();
        rig.expect_forgotten(exchange);
        assert_eq!(rig.out()[0]["id"], id, "it has its answer");
        // What the driver had to say at that moment comes too late.
        rig.complete(Completion::HttpHead { exchange, result: Err(refused()) });
        rig.body(exchange, Ok(None));
        assert!(rig.out().is_empty() && rig.actions.is_empty());
    }
    rig.tell(&cancel).unwrap();
}

#[test]
fn a_plain_client_has_no_notifications_of_its_own() {
    for method in ["longarm/http/cancel", "longarm/http/credit"] {
        let mut rig = Rig::attached(false);
        let message = json!({"method": method, "params": {"requestId": "a", "creditBytes": 1}});
        assert!(rig.tell(&message).is_err());
    }
}

#[test]
fn what_is_collected_has_a_bound_each_and_together() {
    let mut rig = Rig::with(|config| {
        config.max_http_body_bytes = 10;
        config.max_http_bytes_in_flight = 15;
    });
    rig.attach(true);
    let (_, small, _) = rig.exchange({
        let mut params = whole("small");
        params["longarm"] = json!({"maxBodyBytes": 3});
        params
    });
    rig.head(small);
    rig.body(small, Ok(Some(b"1234")));
    rig.expect_forgotten(small);
    let limit = |rig: &mut Rig| rig.out().remove(0)["error"]["data"]["longarm"].take();
    assert_eq!(limit(&mut rig), json!({"kind": "bodyTooLarge", "limit": 3}));
    let (_, one, _) = rig.exchange(whole("one"));
    rig.head(one);
    rig.body(one, Ok(Some(b"0123456789")));
    rig.expect_pull(one);
    let (_, two, _) = rig.exchange(whole("two"));
    rig.head(two);
    rig.body(two, Ok(Some(b"012345")));
    rig.expect_forgotten(two);
    assert_eq!(limit(&mut rig), json!({"kind": "overflow", "limit": 15}));
    rig.body(one, Ok(Some(b"x")));
    rig.expect_forgotten(one);
    assert_eq!(limit(&mut rig), json!({"kind": "bodyTooLarge", "limit": 10}));
    // What was collected is not held any more.
    let (_, three, _) = rig.exchange(whole("three"));
    rig.head(three);
    rig.body(three, Ok(Some(b"0123456789")));
    rig.expect_pull(three);
}

#[test]
fn an_answer_is_never_larger_than_a_message_may_be() {
    const LIMIT: usize = 64 << 10;
    let mut rig = Rig::with(|config| config.max_answer_bytes = LIMIT);
    rig.attach(false);
    // A body is given up when it is known not to fit.
    let (id, exchange, _) = rig.exchange(whole("a"));
    rig.head(exchange);
    let fitting = usize::try_from(fs::whole_file_bytes(LIMIT)).unwrap();
    rig.body(exchange, Ok(Some(&vec![1; fitting])));
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(Some(&[1])));
    rig.expect_forgotten(exchange);
    let refused = rig.out().pop().unwrap();
    assert_eq!(refused["id"], id);
    assert!(
        refused["error"]["message"].as_str().unwrap().contains(&format!("larger than {fitting} bytes")),
        "{refused}"
    );
    // One that just fits does.
    let (id, exchange, _) = rig.exchange(whole("a"));
    rig.head(exchange);
    rig.body(exchange, Ok(Some(&vec![1; fitting])));
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(None));
    let answer = rig.out().pop().unwrap();
    assert_eq!((&answer["id"], &answer["result"]["status"]), (&json!(id), &json!(200)));
    assert!(answer.to_string().len() <= LIMIT);
    // Headers count as well, streamed or not; the stream's id is free then.
    let large = || HttpHead { status: 200, headers: [("a".to_owned(), "b".repeat(LIMIT))].into_iter().collect() };
    let text = format!("and the limit of a message is {LIMIT} bytes");
    let (id, exchange, _) = rig.exchange(whole("a"));
    rig.complete(Completion::HttpHead { exchange, result: Ok(large()) });
    rig.expect_pull(exchange);
    rig.body(exchange, Ok(None));
    let refused = rig.out().pop().unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(id), &json!(-32603)));
    assert!(refused["error"]["message"].as_str().unwrap().ends_with(&text), "{refused}");
    for _ in 0..2 {
        let (id, exchange, _) = rig.exchange(streamed("s"));
        rig.complete(Completion::HttpHead { exchange, result: Ok(large()) });
        rig.expect_forgotten(exchange);
        let refused = rig.out();
        assert_eq!(refused.len(), 1, "no body follows");
        assert_eq!(refused[0]["id"], id);
        assert!(refused[0]["error"]["message"].as_str().unwrap().ends_with(&text), "{refused:?}");
    }
}

#[test]
fn requests_have_a_bound() {
    let mut rig = Rig::with(|config| config.max_http_requests = 2);
    rig.attach(false);
    let one = rig.stream("one");
    drop(rig.exchange(whole("two")));
    let (code, text) = rig.refusal("http/request", whole("three"));
    assert_eq!((code, &*text), (-32603, "http/request failed: 2 calls are already in flight"));
    rig.body(one, Ok(None));
    rig.out();
    drop(rig.exchange(whole("three")));
}

#[test]
fn the_end_of_the_connection_is_the_end_of_all() {
    let mut rig = Rig::attached(true);
    let exchange = rig.stream("a");
    drop(rig.exchange(whole("b")));
    rig.body(exchange, Ok(Some(b"x")));
    rig.peer.handle_disconnect(rig.now);
    rig.collect();
    assert!(matches!(rig.actions.pop_front(), Some(Action::ForgetAllHttp)));
    rig.body(exchange, Ok(Some(b"x")));
    rig.attach(true);
    assert!(rig.actions.is_empty() && !rig.peer.wants_transmit(true));
    drop(rig.exchange(streamed("a")));
}

#[test]
fn a_place_without_http_does_not_know_the_method() {
    let now = crate::time::now();
    let offers = Offers { files: true, http: false };
    let peer = Peer::new("session".into(), Arc::default(), Features::all(), offers, now);
    let mut rig = Rig { peer, now, next_id: 1, actions: VecDeque::new() };
    rig.attach(true);
    assert_eq!(rig.refusal("http/request", whole("a")).0, -32601);
}
