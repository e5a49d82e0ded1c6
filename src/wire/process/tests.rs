use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;
use crate::wire::extension::{AckParams, ListedProcess, Offer, ResizeParams};
use crate::wire::initialize::{InitializeParams, InitializeResult};

/// How a member may be missing.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::wire) enum Presence {
    Required,
    /// May be absent, and then has a default; if it is there, it must be good.
    Defaulted,
    /// May be absent or null.
    Nullable,
    /// Must be there, and may be null.
    Present,
}
use Presence::{Defaulted, Nullable, Present, Required};

/// Checks each member of `good`: absent, null, and of a type that no member has.
pub(in crate::wire) fn check<T: Serialize + DeserializeOwned + fmt::Debug>(good: &Value, members: &[(&str, Presence)]) {
    let decode = |object: &Map<String, Value>| serde_json::from_str::<T>(&serde_json::to_string(object).unwrap());
    let good = good.as_object().unwrap();
    let decoded = decode(good).unwrap();
    let encoded = serde_json::to_value(&decoded).unwrap();
    for (name, value) in good {
        assert_eq!(&encoded[name], value, "{name}");
        assert!(members.iter().any(|(member, _)| member == name), "{name} is not in the table");
    }
    for (name, presence) in members {
        let mut object = good.clone();
        object.remove(*name);
        assert_eq!(decode(&object).is_ok(), !matches!(presence, Required), "{name} absent");
        object.insert((*name).into(), Value::Null);
        assert_eq!(decode(&object).is_ok(), matches!(presence, Nullable | Present), "{name} null");
        object.insert((*name).into(), json!([[{}]]));
        assert!(decode(&object).is_err(), "{name} of a wrong type");
    }
    let mut object = good.clone();
    object.insert("ofTheFuture".into(), json!([{"a": 1}]));
    assert!(decode(&object).is_ok(), "unknown members are ignored");
    // What is always on the wire is there also when it has no value.
    for (name, _) in members.iter().filter(|(_, presence)| *presence == Present) {
        let mut object = good.clone();
        object.insert((*name).into(), Value::Null);
        assert_eq!(serde_json::to_value(decode(&object).unwrap()).unwrap().get(*name), Some(&Value::Null), "{name}");
    }
}

#[test]
fn members_of_requests_are_required_nullable_or_defaulted_as_specified() {
    check::<InitializeParams>(
        &json!({"clientName": "", "resumeSessionId": "s", "longarm": {"version": 1, "features": ["list"]}}),
        &[("clientName", Required), ("resumeSessionId", Nullable), ("longarm", Nullable)],
    );
    check::<StartParams>(
        &json!({
            "processId": "", "argv": ["a", ""], "cwd": "file:///", "env": {"A": ""}, "tty": true, "pipeStdin": true, "arg0": "",
            "envPolicy": {"inherit": "core", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []},
            "metadata": {"threadId": null, "toolCallId": ""}, "sandbox": {}, "enforceManagedNetwork": true,
            "managedNetwork": {}, "networkProxy": {}, "shellSnapshot": {},
            "longarm": {"terminal": {"rows": 1, "cols": 2}, "timeLimitMs": 3, "outputLimitBytes": 4, "stopGraceMs": 5},
        }),
        &[
            ("processId", Required),
            ("argv", Required),
            ("cwd", Required),
            ("env", Required),
            ("tty", Required),
            ("pipeStdin", Defaulted),
            ("arg0", Nullable),
            ("envPolicy", Nullable),
            ("metadata", Nullable),
            ("sandbox", Nullable),
            ("enforceManagedNetwork", Defaulted),
            ("managedNetwork", Nullable),
            ("networkProxy", Nullable),
            ("shellSnapshot", Nullable),
            ("longarm", Nullable),
        ],
    );
    check::<EnvPolicy>(
        &json!({"inherit": "all", "ignoreDefaultExcludes": false, "exclude": ["*"], "set": {"A": "b"}, "includeOnly": ["?"]}),
        &[
            ("inherit", Required),
            ("ignoreDefaultExcludes", Required),
            ("exclude", Required),
            ("set", Required),
            ("includeOnly", Required),
        ],
    );
    check::<ReadParams>(
        &json!({"processId": "p", "afterSeq": u64::MAX, "maxBytes": 0, "waitMs": u64::MAX}),
        &[("processId", Required), ("afterSeq", Nullable), ("maxBytes", Nullable), ("waitMs", Nullable)],
    );
    check::<WriteParams>(
        &json!({"processId": "p", "chunk": "", "writeId": ""}),
        &[("processId", Required), ("chunk", Required), ("writeId", Required)],
    );
    check::<SignalParams>(
        &json!({"processId": "p", "signal": "interrupt"}),
        &[("processId", Required), ("signal", Required)],
    );
    check::<TerminateParams>(
        &json!({"processId": "p", "longarm": {"graceMs": 1, "descendants": true}}),
        &[("processId", Required), ("longarm", Nullable)],
    );
    check::<ResizeParams>(
        &json!({"processId": "p", "rows": 0, "cols": 65_535}),
        &[("processId", Required), ("rows", Required), ("cols", Required)],
    );
    check::<AckParams>(&json!({"acks": [["p", 1], ["q", 2]]}), &[("acks", Required)]);
    check::<Offer>(&json!({"version": 1, "features": ["x"]}), &[("version", Required), ("features", Defaulted)]);
}

#[test]
fn members_of_answers_and_events_are_as_specified() {
    check::<InitializeResult>(
        &json!({"sessionId": "", "environmentInfo": {
            "shell": {"name": "sh", "path": "/bin/sh"}, "executorVersion": "1", "cwd": null, "prependPathDirs": [], "capabilities": {},
        }}),
        &[("sessionId", Required), ("environmentInfo", Nullable)],
    );
    check::<StartResult>(
        &json!({
            "processId": "p", "sandboxType": "none",
            "longarm": {"enforcement": {"level": "partial", "reasons": ["r"], "mechanisms": ["m"], "kernelFacts": ["k"]}},
        }),
        &[("processId", Required), ("sandboxType", Present), ("longarm", Nullable)],
    );
    check::<ReadResult>(
        &json!({
            "chunks": [{"seq": 1, "stream": "pty", "chunk": "aGk="}], "nextSeq": 2, "exited": true, "exitCode": -1, "closed": true,
            "failure": "f", "sandboxDenied": true,
            "longarm": {
                "totalBytes": {"stdout": 1, "stderr": 2, "pty": 3}, "offset": 4, "exitSeq": 5, "more": true, "nextSeq": 6,
                "signal": "KILL", "timedOut": true, "limit": "time", "cut": true,
                "denial": {"evidence": [{"kind": "signal", "number": 31}]},
            },
        }),
        &[
            ("chunks", Required),
            ("nextSeq", Required),
            ("exited", Required),
            ("exitCode", Present),
            ("closed", Required),
            ("failure", Present),
            ("sandboxDenied", Defaulted),
            ("longarm", Nullable),
        ],
    );
    check::<OutputParams>(
        &json!({"processId": "p", "seq": 1, "stream": "stderr", "chunk": "aGk="}),
        &[("processId", Required), ("seq", Required), ("stream", Required), ("chunk", Required)],
    );
    check::<ExitedParams>(
        &json!({
            "processId": "p", "seq": 1, "exitCode": i32::MIN, "sandboxDenied": false,
            "longarm": {"signal": 64, "limit": "output", "denial": {"evidence": [
                {"kind": "protectedName", "path": "/w/.git"},
                {"kind": "protectedName", "path": "/w/.aws", "change": "appeared", "movedTo": "/s/.aws"},
                {"kind": "namesUnchecked"},
            ]}},
        }),
        &[
            ("processId", Required),
            ("seq", Required),
            ("exitCode", Required),
            ("sandboxDenied", Nullable),
            ("longarm", Nullable),
        ],
    );
    check::<ClosedParams>(
        &json!({"processId": "p", "seq": 1, "longarm": {"totalBytes": {"stdout": 0, "stderr": 0, "pty": 0}, "cut": true}}),
        &[("processId", Required), ("seq", Required), ("longarm", Nullable)],
    );
    check::<ListedProcess>(
        &json!({"processId": "p", "state": "starting", "nextSeq": 1, "tty": false, "exitCode": 3}),
        &[
            ("processId", Required),
            ("state", Required),
            ("nextSeq", Required),
            ("tty", Required),
            ("exitCode", Present),
        ],
    );
}

#[test]
fn numbers_have_their_range_and_no_fraction() {
    let read = |after_seq: &str| {
        serde_json::from_str::<ReadParams>(&format!(r#"{{"processId":"p","afterSeq":{after_seq}}}"#)).is_ok()
    };
    for (number, good) in [
        ("0", true),
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("-1", false),
        ("1.0", false),
        ("1e2", false),
        ("\"1\"", false),
        ("true", false),
    ] {
        assert_eq!(read(number), good, "{number}");
    }
    let exited = |code: i64| {
        serde_json::from_value::<ExitedParams>(json!({"processId": "p", "seq": 1, "exitCode": code})).is_ok()
    };
    assert!(exited(i64::from(i32::MAX)) && exited(i64::from(i32::MIN)));
    assert!(!exited(i64::from(i32::MAX) + 1) && !exited(i64::from(i32::MIN) - 1));
    let rows =
        |rows: u32| serde_json::from_value::<ResizeParams>(json!({"processId": "p", "rows": rows, "cols": 1})).is_ok();
    assert!(rows(65_535) && !rows(65_536));
}

#[test]
fn what_may_be_secret_is_not_shown() {
    let params: StartParams = serde_json::from_str(&json!({
        "processId": "p", "argv": ["a"], "cwd": "file:///", "env": {"NAME": "hunter2"}, "tty": true,
        "networkProxy": {"credential": "hunter2"},
        "envPolicy": {"inherit": "all", "ignoreDefaultExcludes": false, "exclude": [], "set": {"OTHER": "hunter2"}, "includeOnly": []},
    }).to_string())
    .unwrap();
    let shown = format!("{params:?}");
    assert!(shown.contains("NAME") && shown.contains("OTHER") && !shown.contains("hunter2"), "{shown}");
}
