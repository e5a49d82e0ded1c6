use serde_json::json;

use super::*;

#[test]
fn statuses_survive_the_wire_with_the_extension_and_become_codes_without() {
    let statuses = [
        ExitStatus::exited(0),
        ExitStatus::exited(137),
        ExitStatus::exited(i32::MIN),
        ExitStatus::unknown(),
        ExitStatus::signaled(Signal::Kill),
        ExitStatus::signaled(Signal::Other(64)),
        ExitStatus::signaled(Signal::Terminate).with_limit(Some(LimitExceeded::Time)),
        ExitStatus::exited(3).with_limit(Some(LimitExceeded::Output)),
    ];
    for status in statuses {
        let json = serde_json::to_string(&ExitedExtension::of(status)).unwrap();
        let extension: Option<ExitedExtension> = serde_json::from_str(&json).unwrap();
        let extension = extension.unwrap_or_default();
        assert_eq!(extension.status(status.wire_code()), status, "{json}");
        let ExitedExtension { signal, timed_out, limit, .. } = extension;
        assert_eq!(timed_out, status.limit_exceeded() == Some(LimitExceeded::Time));
        let read = ReadExtension { signal, timed_out, limit, ..Default::default() };
        assert_eq!(read.status(status.wire_code()), status);
    }
    assert_eq!(ExitedExtension::of(ExitStatus::exited(5)), None);
    assert_eq!(ExitedExtension::default().status(137), ExitStatus::exited(137));
}

#[test]
fn words_of_an_exit_that_are_not_known_count_as_absent() {
    let status = |json| serde_json::from_value::<ExitedExtension>(json).unwrap().status(137);
    assert_eq!(status(json!({"signal": "NOVA", "limit": "memory", "core": true})), ExitStatus::exited(137));
    assert_eq!(status(json!({"signal": {"name": "KILL"}, "limit": 3})), ExitStatus::exited(137));
    assert_eq!(status(json!({"signal": null, "limit": null})), ExitStatus::exited(137));
    let timed_out = ExitStatus::signaled(Signal::Kill).with_limit(Some(LimitExceeded::Time));
    assert_eq!(status(json!({"signal": "KILL", "timedOut": true})), timed_out);
    let read = json!({"totalBytes": {}, "offset": 0, "signal": "NOVA", "limit": "memory"});
    assert_eq!(serde_json::from_value::<ReadExtension>(read).unwrap().status(1), ExitStatus::exited(1));
}

#[test]
fn signals_go_by_name_and_by_number_where_there_is_none() {
    for (signal, json) in
        [(Signal::Kill, json!("KILL")), (Signal::User1, json!("USR1")), (Signal::Other(40), json!(40))]
    {
        assert_eq!(serde_json::to_value(signal).unwrap(), json);
        assert_eq!(serde_json::from_value::<Signal>(json).unwrap(), signal);
    }
    for signal in Signal::named() {
        assert_eq!(serde_json::from_value::<Signal>(json!(signal)).unwrap(), signal);
    }
    for bad in [json!("NOPE"), json!(null), json!(1.5), json!(1_u64 << 40), json!([])] {
        assert!(serde_json::from_value::<Signal>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn facts_of_a_place_survive_the_wire() {
    let mut info = EnvironmentInfo::new(Shell { name: "zsh".into(), path: "/bin/zsh".into() });
    let wire = |info: &EnvironmentInfo, offer| {
        serde_json::to_string(&environment::EnvironmentInfo::of(info.clone(), offer)).unwrap()
    };
    let back = |json: &str| serde_json::from_str::<environment::EnvironmentInfo>(json).unwrap();
    assert_eq!(EnvironmentInfo::from(back(&wire(&info, None))), info);
    let uri = |text: &str| crate::path_uri::PathUri::parse(text).unwrap();
    info.executor_version = "1.2.3".into();
    info.provider_id = Some("id".into());
    info.cwd = Some(uri("file:///c%20d"));
    info.home_dir = Some(uri("file:///home"));
    info.platform_os = Some("linux".into());
    info.prepend_path_dirs = vec![uri("file:///bin")];
    info.temporary_directories = Some(vec![]);
    info.temp_dir = Some(uri("file:///tmp"));
    info.capabilities = vec!["a".into(), "b".into()];
    let decoded = back(&wire(&info, Some(Offer::of(Features::all()))));
    assert_eq!(decoded.features(), Features::all());
    assert_eq!(EnvironmentInfo::from(decoded), info);
}

#[test]
fn facts_of_an_old_or_a_newer_place_are_understood() {
    let info = |capabilities: serde_json::Value| {
        let json =
            json!({"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": null, "more": {}, "capabilities": capabilities});
        serde_json::from_str::<environment::EnvironmentInfo>(&json.to_string()).unwrap()
    };
    let odd = info(json!({"yes": true, "no": false, "n": null, "number": 1, "list": [true], "object": {"version": 1}}));
    assert_eq!(odd.features(), Features::default());
    assert_eq!(odd.executor_version, "0.0.0");
    assert_eq!(odd.capabilities.flags.len(), 2);
    assert_eq!(EnvironmentInfo::from(odd).capabilities, ["yes"]);
    for offer in [json!(true), json!(5), json!({}), json!({"version": "x"}), json!({"version": 1, "features": [1]})] {
        assert_eq!(info(json!({ "longarm": offer })).features(), Features::default());
    }
    let newer = info(json!({"longarm": {"version": 9, "features": ["list", "ofTheFuture"], "more": 1}}));
    assert_eq!(newer.features(), Features { list: true, ..Features::default() });
    let bare: environment::EnvironmentInfo =
        serde_json::from_str(r#"{"shell":{"name":"sh","path":"/bin/sh"}}"#).unwrap();
    assert_eq!(EnvironmentInfo::from(bare), EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }));
}

#[test]
fn policies_survive_the_wire() {
    for inherit in [env_policy::Inherit::All, env_policy::Inherit::Core, env_policy::Inherit::None] {
        let policy =
            ShellEnvPolicy::new(inherit).exclude("A*").set("B", "c").include_only("D?").ignore_default_excludes(false);
        let json = serde_json::to_string(&EnvPolicy::from(policy.clone())).unwrap();
        assert_eq!(ShellEnvPolicy::from(serde_json::from_str::<EnvPolicy>(&json).unwrap()), policy);
    }
    let shown = format!("{:?}", EnvPolicy::from(ShellEnvPolicy::inherit_all().set("TOKEN", "hunter2")));
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn sizes_totals_and_metadata_survive_the_wire() {
    let size = TerminalSize { rows: 3, cols: 65_535 };
    assert_eq!(TerminalSize::from(Size::from(size)), size);
    let totals = Totals { stdout: 1, stderr: 2, pty: u64::MAX };
    assert_eq!(Totals::from(TotalBytes::from(totals)), totals);
    let closed = Closed { seq: 1, totals: Some(totals), cut: true };
    assert_eq!(ClosedExtension::of(&closed), Some(ClosedExtension { total_bytes: totals.into(), cut: true }));
    assert_eq!(ClosedExtension::of(&Closed { totals: None, ..closed }), None);
    let metadata = Metadata::new(Some(crate::request::ThreadId::from_u128(7)), Some(String::new()));
    let json = serde_json::to_string(&process::Metadata::from(metadata.clone())).unwrap();
    assert_eq!(json, r#"{"threadId":"00000000-0000-0000-0000-000000000007","toolCallId":""}"#);
    assert_eq!(Metadata::from(serde_json::from_str::<process::Metadata>(&json).unwrap()), metadata);
    for (text, good) in [
        ("\"{00000000-0000-0000-0000-000000000007}\"", true),
        ("\"urn:uuid:00000000-0000-0000-0000-000000000007\"", true),
        ("\"00000000000000000000000000000007\"", true),
        ("null", true),
        ("\"\"", false),
        ("5", false),
    ] {
        let json = format!(r#"{{"threadId":{text}}}"#);
        assert_eq!(serde_json::from_str::<process::Metadata>(&json).is_ok(), good, "{text}");
    }
}
