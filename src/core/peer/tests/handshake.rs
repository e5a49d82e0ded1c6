//! States, malformed messages and the order of checks.

use super::*;
use crate::config::MessageLimits;
use crate::core::peer::lobby::{Step, handle_message};

fn in_lobby(text: &str) -> Step {
    handle_message(
        &Bytes::copy_from_slice(text.as_bytes()),
        &MessageLimits::default(),
        Offers { files: true, http: true },
    )
}

fn lobby_error(text: &str) -> (i64, String) {
    let Step::Reply(answer) = in_lobby(text) else { panic!("no answer") };
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap().into())
}

#[test]
fn before_initialize_params_are_decoded_first_and_unknown_methods_are_unknown() {
    let (code, text) = lobby_error(r#"{"id":1,"method":"process/start","params":{"processId":5}}"#);
    assert_eq!(code, -32602, "{text}");
    for (method, family, params) in [
        ("environment/info", "environment info", json!(null)),
        ("environment/status", "environment status", json!({})),
        ("process/start", "exec", start_params("p")),
        ("process/read", "exec", json!({"processId": "p"})),
        ("process/terminate", "exec", json!({"processId": "p"})),
    ] {
        let expected = format!("client must call initialize before using {family} methods");
        let request = json!({"id": 1, "method": method, "params": params});
        assert_eq!(lobby_error(&request.to_string()), (-32600, expected));
    }
    for method in ["foo/bar", "initialized", "longarm/process/list"] {
        let expected = format!("exec-server stub does not implement `{method}` yet");
        assert_eq!(lobby_error(&json!({"id": 1, "method": method}).to_string()), (-32601, expected));
    }
}

#[test]
fn initialize_is_decoded_in_the_lobby() {
    assert_eq!(lobby_error(r#"{"id":1,"method":"initialize"}"#).0, -32602);
    let step = in_lobby(r#"{"id":"a","method":"initialize","params":{"clientName":"","resumeSessionId":"s"}}"#);
    let Step::Initialize { id, params } = step else { panic!("{step:?}") };
    assert_eq!((id, params.resume_session_id.as_deref()), (RequestId::from("a"), Some("s")));
}

#[test]
fn other_messages_end_a_connection_in_the_lobby() {
    for text in [
        r#"{"method":"initialized"}"#,
        r#"{"method":"longarm/process/ack","params":{"acks":[]}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"id":1,"error":{"code":1,"message":""}}"#,
    ] {
        assert!(matches!(in_lobby(text), Step::Drop(_)), "{text}");
    }
    for text in ["not json", "[]", r#"{"id":null,"method":"initialize"}"#, "{}", r#"{"id":1,"id":2,"method":"x"}"#] {
        assert_eq!(lobby_error(text).0, -32600);
        let Step::Reply(answer) = in_lobby(text) else { panic!("no answer") };
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap()["id"], -1);
    }
}

#[test]
fn between_initialize_and_initialized_methods_are_refused_after_decoding() {
    let mut rig = Rig::new();
    let info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
    rig.peer.attach(rig.now, RequestId::Number(1), None, info);
    assert_eq!(rig.out().len(), 1);
    let (code, text) = rig.refusal("process/read", json!({"processId": "p"}));
    assert_eq!((code, &*text), (-32600, "client must send initialized before using exec methods"));
    assert_eq!(rig.refusal("process/read", json!({})).0, -32602);
    let (code, text) = rig.refusal("initialize", json!({"clientName": "x"}));
    assert_eq!((code, &*text), (-32600, "initialize may only be sent once per connection"));
    rig.tell(&json!({"method": "initialized", "params": [1]})).unwrap();
    rig.tell(&json!({"method": "initialized"})).unwrap();
    assert_eq!(rig.call("environment/status", json!({}))["result"], json!({"status": "ready"}));
    assert_eq!(rig.refusal("initialize", json!({"clientName": "x"})).0, -32600);
    assert_eq!(rig.refusal("initialize", json!({})).0, -32602);
}

#[test]
fn malformed_messages_are_answered_with_id_minus_one_and_the_connection_goes_on() {
    let mut rig = Rig::attached(false);
    for text in ["", "nul", "[]", "{} {}", r#"{"id":1.5,"method":"environment/status"}"#, "\u{0}"] {
        rig.peer.handle_message(rig.now, &Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let answers = rig.out();
        assert_eq!(answers.len(), 1);
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&json!(-1), &json!(-32600)), "{text:?}");
    }
    assert_eq!(rig.call("environment/status", json!(null))["result"]["status"], "ready");
}

#[test]
fn unexpected_messages_end_the_connection() {
    for extended in [false, true] {
        for message in [
            json!({"method": "some/notification"}),
            json!({"method": "process/output", "params": {}}),
            json!({"id": 1, "result": null}),
            json!({"id": "x", "error": {"code": -1, "message": ""}}),
            json!({"method": "longarm/process/ack", "params": {"acks": "no"}}),
        ] {
            let mut rig = Rig::attached(extended);
            assert!(rig.tell(&message).is_err(), "{message}");
        }
    }
    // Only a client that has the feature may acknowledge.
    let acknowledgement = json!({"method": "longarm/process/ack", "params": {"acks": [["p", 1]]}});
    assert!(Rig::attached(true).tell(&acknowledgement).is_ok());
    assert!(Rig::attached(false).tell(&acknowledgement).is_err());
}

#[test]
fn ids_are_echoed_and_not_compared() {
    let mut rig = Rig::attached(false);
    for id in [json!(7), json!(7), json!(""), json!(i64::MIN), json!("7")] {
        rig.tell(&json!({"id": id, "method": "environment/status"})).unwrap();
        assert_eq!(rig.out(), [json!({"id": id, "result": {"status": "ready"}})]);
    }
}

#[test]
fn the_checks_of_a_start_come_in_their_order() {
    let mut rig = Rig::attached(true);
    rig.run("taken");
    let fault = |rig: &mut Rig, changes: Value| {
        let mut params = start_params("taken");
        for (name, value) in changes.as_object().unwrap() {
            params[name] = value.clone();
        }
        let answer = rig.call("process/start", params);
        let error = answer["error"].clone();
        assert!(rig.actions.is_empty(), "nothing is started");
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned(), error["data"]["kind"].clone())
    };
    let kind = |text: &str| json!(text);
    // Everything is wrong with this one, and then one thing after the other is put right.
    let mut wrong = json!({
        "networkProxy": {"proxy": {}}, "cwd": "file:///C:/x", "sandbox": {"permissions": 1}, "argv": [],
    });
    let (code, _, what) = fault(&mut rig, wrong.clone());
    assert_eq!((code, what), (-32602, kind("sandboxUnavailable")));
    wrong["networkProxy"] = json!(null);
    let (code, text, what) = fault(&mut rig, wrong.clone());
    let expected = "cwd URI `file:///C:/x` is not valid on this exec-server host: 'file:///C:/x' is invalid on 'linux'";
    assert_eq!((code, &*text, what), (-32602, expected, json!(null)));
    wrong["cwd"] = json!("file:///tmp");
    let (code, _, what) = fault(&mut rig, wrong.clone());
    assert_eq!((code, what), (-32602, json!(null)));
    wrong["sandbox"] = json!(null);
    wrong["managedNetwork"] = json!({"loopbackPorts": "all"});
    let (code, text, what) = fault(&mut rig, wrong.clone());
    assert_eq!((code, what), (-32602, json!(null)), "{text}");
    wrong["managedNetwork"] = json!(null);
    let (code, text, _) = fault(&mut rig, wrong.clone());
    assert_eq!((code, &*text), (-32602, "argv must not be empty"));
    wrong["argv"] = json!(["true", "a\u{0}b"]);
    let (code, text, _) = fault(&mut rig, wrong.clone());
    assert_eq!((code, &*text), (-32602, "argv[1] contains a NUL"));
    wrong["argv"] = json!(["true"]);
    let (code, text, what) = fault(&mut rig, wrong.clone());
    assert_eq!((code, &*text, what), (-32600, "process taken already exists", json!(null)));
}

#[test]
fn names_and_values_that_no_child_can_have_are_named() {
    let mut rig = Rig::attached(false);
    for (member, value, named) in [
        ("env", json!({"A=B": "x"}), "A=B"),
        ("env", json!({"": "x"}), "\"\""),
        ("env", json!({"A\u{0}": "x"}), "A\\0"),
        ("env", json!({"A": "\u{0}"}), "env[\"A\"]"),
        ("argv", json!([""]), "argv[0]"),
        ("arg0", json!("a\u{0}"), "arg0"),
    ] {
        let mut params = start_params("p");
        params[member] = value;
        let (code, text) = rig.refusal("process/start", params);
        assert_eq!(code, -32602, "{text}");
        assert!(text.contains(named), "{text}");
    }
    assert!(rig.actions.is_empty());
    rig.run("p");
}

#[test]
fn a_sandbox_is_passed_on_unless_it_restricts_nothing() {
    let mut rig = Rig::attached(false);
    let mut start = |number: usize, sandbox: Value| {
        let mut params = start_params(&number.to_string());
        params["sandbox"] = sandbox;
        rig.starting_with(params);
    };
    for (number, permissions) in [
        json!({"type": "disabled"}),
        json!({"type": "external", "network": "enabled"}),
        json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"}),
    ]
    .into_iter()
    .enumerate()
    {
        start(number, json!({"permissions": permissions, "windowsSandboxLevel": "disabled"}));
    }
    for (number, permissions) in [
        json!({"type": "external", "network": "restricted"}),
        json!({"type": "managed", "file_system": {"type": "restricted", "entries": []}, "network": "enabled"}),
        json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut params = start_params(&format!("r{number}"));
        params["sandbox"] = json!({"permissions": permissions, "windowsSandboxLevel": "disabled", "other": 1});
        rig.ask("process/start", params);
        let Some(Action::Start { request, process, .. }) = rig.actions.pop_back() else { panic!("a start") };
        assert!(request.requested_sandbox().is_some());
        // As every backend without an enforcer says.
        let refused = crate::sandbox::SandboxError::Unsupported.into();
        rig.complete(Completion::Started { process, result: Err(refused) });
        let answers = rig.out();
        assert_eq!(answers[0]["error"]["data"]["kind"], "sandboxUnavailable");
    }
    for sandbox in [
        json!({"permissions": {"type": "disabled"}}),
        json!({"permissions": {"type": "new"}, "windowsSandboxLevel": "disabled"}),
        json!({"windowsSandboxLevel": "disabled"}),
    ] {
        let mut params = start_params("bad");
        params["sandbox"] = sandbox;
        let answer = rig.call("process/start", params);
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(-32602), &Value::Null), "{answer}");
    }
    let mut params = start_params("managed");
    params["enforceManagedNetwork"] = json!(true);
    assert_eq!(rig.call("process/start", params.clone())["error"]["data"]["kind"], "sandboxUnavailable");
    params["sandbox"] =
        json!({"permissions": {"type": "external", "network": "restricted"}, "windowsSandboxLevel": "disabled"});
    assert_eq!(rig.call("process/start", params.clone())["error"]["data"]["kind"], "sandboxUnavailable", "no details");
    for no_port in [json!({}), json!({"loopbackPorts": [0]})] {
        params["managedNetwork"] = no_port;
        assert_eq!(rig.call("process/start", params.clone())["error"]["data"]["kind"], "sandboxUnavailable", "no port");
    }
    params["managedNetwork"] = json!({"loopbackPorts": [8080], "later": 1});
    rig.ask("process/start", params);
    let Some(Action::Start { request, .. }) = rig.actions.pop_back() else { panic!("a start") };
    assert!(request.requires_managed_network());
    assert_eq!(request.requested_managed_network().unwrap().loopback_ports, [8080]);
    // Whoever has no containers has to say so, even for nothing.
    let mut params = start_params("contained");
    params["sandbox"] = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "mxc"});
    rig.ask("process/start", params);
    let Some(Action::Start { request, .. }) = rig.actions.pop_back() else { panic!("a start") };
    assert!(request.requested_sandbox().is_some());
    // Without the capabilities these mean nothing.
    let mut params = start_params("ignored");
    params["managedNetwork"] = json!({});
    params["shellSnapshot"] = json!({"scopeId": ""});
    rig.starting_with(params);
}

#[test]
fn a_request_becomes_what_it_says() {
    let mut rig = Rig::attached(true);
    let params = json!({
        "processId": "p", "argv": ["a", "b"], "cwd": "file:///w", "env": {"X": "1"}, "tty": true, "arg0": "zero",
        "envPolicy": {"inherit": "core", "ignoreDefaultExcludes": false, "exclude": [], "set": {}, "includeOnly": []},
        "metadata": {"threadId": "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8", "toolCallId": "t"},
        "longarm": {"terminal": {"rows": 3, "cols": 5}, "timeLimitMs": 7, "outputLimitBytes": 8, "stopGraceMs": 9,
            "contain": true},
    });
    rig.ask("process/start", params);
    let Some(Action::Start { request, .. }) = rig.actions.pop_back() else { panic!("a start") };
    assert_eq!(request.requested_id(), None, "ids are the session's own");
    assert_eq!(request.argv(), ["a", "b"]);
    assert_eq!(request.requested_arg0(), Some("zero".as_ref()));
    assert_eq!(request.requested_env()[std::ffi::OsStr::new("X")], "1");
    assert!(request.requested_env_policy().is_some());
    assert_eq!(request.requested_terminal(), Some(crate::TerminalSize { rows: 3, cols: 5 }));
    assert_eq!(request.requested_time_limit(), Some(Duration::from_millis(7)));
    assert_eq!(request.requested_output_limit_bytes(), Some(8));
    assert_eq!(request.requested_stop_grace(), Duration::from_millis(9));
    assert!(request.requested_containment());
    let metadata = request.requested_metadata().unwrap();
    assert_eq!(metadata.tool_call_id.as_deref(), Some("t"));

    rig.ask("process/start", start_params("plain"));
    let Some(Action::Start { request, .. }) = rig.actions.pop_back() else { panic!("a start") };
    assert!(request.requested_env_policy().is_none(), "without a policy nothing is inherited");
    assert_eq!(request.requested_stdin(), crate::Stdin::Piped);
    assert_eq!(request.requested_terminal(), None);
    assert!(!request.requested_containment());
}

#[test]
fn what_a_nul_or_a_sign_would_cut_is_refused_by_its_name() {
    let mut rig = Rig::attached(false);
    let policy = |set: Value| json!({"inherit": "none", "ignoreDefaultExcludes": true, "exclude": [], "set": set, "includeOnly": []});
    // The path "/a\0b" in its opaque form.
    let opaque = format!("file:///%00/bad/path/{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(b"/a\0b"));
    for (member, value, named) in [
        ("envPolicy", policy(json!({"A=B": "x"})), "A=B"),
        ("envPolicy", policy(json!({"": "x"})), "\"\""),
        ("envPolicy", policy(json!({"A\0": "x"})), "A"),
        ("envPolicy", policy(json!({"SET": "x\0y"})), "SET"),
        ("metadata", json!({"threadId": null, "toolCallId": "a\0b"}), "metadata.toolCallId"),
        ("cwd", json!(opaque), "cwd contains a NUL"),
        ("argv", json!(["a", "b\0c"]), "argv[1]"),
        ("arg0", json!("b\0c"), "arg0"),
        ("env", json!({"A=B": "x"}), "A=B"),
        ("env", json!({"VALUE": "x\0"}), "VALUE"),
    ] {
        let mut params = start_params("p");
        params[member] = value;
        let (code, text) = rig.refusal("process/start", params);
        assert_eq!(code, -32602, "{text}");
        assert!(text.contains(named), "{text} does not name {named}");
    }
    assert!(rig.actions.is_empty());
}

#[test]
fn extensions_are_there_only_for_those_who_agreed() {
    let mut plain = Rig::attached(false);
    for (method, params) in [
        ("longarm/process/list", json!({})),
        ("longarm/process/closeStdin", json!({"processId": "p"})),
        ("longarm/process/resize", json!({"processId": "p", "rows": 1, "cols": 1})),
        ("longarm/process/signal", json!({"processId": "p", "signal": "TERM"})),
    ] {
        assert_eq!(plain.refusal(method, params).0, -32601);
    }
    let mut params = start_params("p");
    params["longarm"] = json!({"timeLimitMs": 5});
    assert_eq!(plain.refusal("process/start", params).0, -32602);
    let mut params = start_params("p");
    params["longarm"] = json!({"contain": true});
    let (code, text) = plain.refusal("process/start", params);
    assert_eq!((code, &*text), (-32602, "member longarm.contain needs a feature that was not agreed on"));
    plain.run("p");
    assert_eq!(plain.refusal("process/terminate", json!({"processId": "p", "longarm": {"graceMs": 5}})).0, -32602);

    let mut extended = Rig::attached(true);
    let mut params = start_params("p");
    params["tty"] = json!(true);
    params["longarm"] = json!({"terminal": {"rows": 0, "cols": 5}});
    assert_eq!(extended.refusal("process/start", params).0, -32602);
    extended.run("p");
    let (code, text) = extended.refusal("longarm/process/resize", json!({"processId": "p", "rows": 0, "cols": 1}));
    assert_eq!(code, -32602, "{text}");
    let (code, text) = extended.refusal("longarm/process/resize", json!({"processId": "p", "rows": 1, "cols": 1}));
    assert_eq!((code, &*text), (-32600, "process p has no terminal"));
    let (code, text) = extended.refusal("longarm/process/resize", json!({"processId": "q", "rows": 1, "cols": 1}));
    assert_eq!((code, &*text), (-32600, "unknown process id q"));
    let status = extended.call("longarm/process/closeStdin", json!({"processId": "q"}));
    assert_eq!(status["result"], json!({"status": "unknownProcess"}));
}

#[test]
fn what_the_server_offers_is_what_it_and_its_backend_have() {
    let offered = |backend, files, http| {
        let now = crate::time::now();
        let mut peer = Peer::new("s".into(), Arc::default(), backend, Offers { files, http }, now);
        let info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
        peer.attach(now, RequestId::Number(1), Some(&Offer::of(Features::all())), info);
        let answer: Value = serde_json::from_slice(&peer.poll_transmit(true).unwrap()).unwrap();
        answer["result"]["environmentInfo"]["capabilities"].clone()
    };
    let plain = json!({"version": 1, "features": ["credits", "list"]});
    let without_files = json!({"environmentConfigRead": true, "longarm": plain});
    assert_eq!(offered(Features::default(), false, false), without_files);
    let with_files = json!({"environmentConfigRead": true, "fsWatchMissing": true, "fileWriteStreaming": true, "sandboxedFileStreaming": true, "longarm": plain});
    assert_eq!(offered(Features::default(), true, false), with_files);
    let with_http = json!({"version": 1, "features": ["credits", "list", "http"]});
    let with_http = json!({"environmentConfigRead": true, "httpHeaderEnvVars": true, "longarm": with_http});
    assert_eq!(offered(Features::default(), false, true), with_http);
    for (files, http, features) in [(true, true, 12), (true, false, 11), (false, true, 11), (false, false, 10)] {
        let offered = &offered(Features::all(), files, http)["longarm"]["features"];
        assert_eq!(offered.as_array().unwrap().len(), features, "{files} {http}");
    }
}

#[test]
fn reports_of_a_sandbox_go_to_clients_that_want_them() {
    use crate::sandbox::{Denial, Enforcement, Evidence, Level};

    for wanted in [true, false] {
        let mut rig = Rig::attached(wanted);
        rig.ask("process/start", start_params("p"));
        let Some(Action::Start { process, .. }) = rig.actions.pop_back() else { panic!("a start") };
        let level = Level::Partial(vec!["no landlock".into()]);
        let enforcement = Enforcement::new(level, vec!["seccomp".into()], vec!["landlock abi 0".into()]);
        let facts = StartFacts { sandbox_type: Some("linuxSeccomp".into()), enforcement: Some(enforcement) };
        rig.complete(Completion::Started { process, result: Ok(facts) });
        let started = rig.out().remove(0);
        assert_eq!(started["result"]["sandboxType"], "linuxSeccomp");
        let report = json!({
            "level": "partial", "reasons": ["no landlock"], "mechanisms": ["seccomp"], "kernelFacts": ["landlock abi 0"],
        });
        assert_eq!(started["result"]["longarm"]["enforcement"] == report, wanted, "{started}");
        let evidence = vec![Evidence::Signal { number: 31 }];
        rig.peer.handle_denial(process, &Denial::new(true, evidence));
        let status = ExitStatus::exited(1);
        rig.event(process, Event::Exited(Exited { seq: 0, status, sandbox_denied: true }));
        let exited = rig.out().remove(0);
        assert_eq!(exited["params"]["sandboxDenied"], true);
        let seen = json!([{"kind": "signal", "number": 31}]);
        assert_eq!(exited["params"]["longarm"]["denial"]["evidence"] == seen, wanted, "{exited}");
        let read = rig.call("process/read", json!({"processId": "p"}));
        assert_eq!(read["result"]["longarm"]["denial"]["evidence"] == seen, wanted, "{read}");
    }
}
