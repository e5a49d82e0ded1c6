use serde_json::{Value, json};

use super::*;

fn parse(value: &Value) -> Result<SandboxIntent, String> {
    SandboxIntent::from_json(&value.to_string()).map_err(|error| error.to_string())
}

fn example() -> Value {
    json!({
        "permissions": {"type": "managed", "network": "restricted", "file_system": {
            "type": "restricted",
            "entries": [
                {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
                {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"},
                {"path": {"type": "special", "value": {"kind": "tmpdir"}}, "access": "write"},
                {"path": {"type": "special", "value": {"kind": "slash_tmp"}}, "access": "write"},
                {"path": {"type": "special", "value": {"kind": "minimal"}}, "access": "read"},
                {"path": {"type": "special", "value": {"kind": "unknown", "path": ":new", "subpath": "x"}}, "access": "read"},
                {"path": {"type": "special", "value": {"kind": "project_roots", "subpath": "secrets"}}, "access": "deny"},
                {"path": {"type": "path", "path": "file:///srv/a"}, "access": "read", "missing_path_behavior": "skip"},
                {"path": {"type": "glob_pattern", "pattern": "**/*.pem"}, "access": "deny"},
            ],
            "glob_scan_max_depth": 3,
        }},
        "cwd": "file:///srv/job",
        "workspaceRoots": ["file:///srv/job", "file:///srv/lib"],
        "policyContext": {"cwd": "file:///srv", "workspaceRoots": ["file:///srv"]},
        "userHomeDir": "file:///home/u",
        "temporaryDirectories": ["file:///scratch"],
        "sandboxOverride": "bypassSandboxFirstAttempt",
        "windowsSandboxLevel": "restricted-token",
        "windowsSandboxProxySettingsMode": "preserve",
        "useLegacyLandlock": true,
    })
}

#[test]
fn every_member_goes_both_ways() {
    let intent = parse(&example()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&intent.to_json()).unwrap(), example());
    assert_eq!(intent.effective_cwd().map(PathUri::as_str), Some("file:///srv"));
    assert_eq!(intent.effective_roots().len(), 1);
}

#[test]
fn what_is_optional_may_be_absent_and_mostly_null() {
    let least = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
    let intent = parse(&least).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&intent.to_json()).unwrap(), least);
    for (member, accepted) in [
        ("cwd", true),
        ("policyContext", true),
        ("userHomeDir", true),
        ("temporaryDirectories", true),
        ("windowsSandboxProxySettingsMode", true),
        ("useLegacyLandlock", true),
        ("workspaceRoots", false),
        ("sandboxOverride", false),
        ("permissions", false),
        ("windowsSandboxLevel", false),
    ] {
        let mut with_null = least.clone();
        with_null[member] = Value::Null;
        assert_eq!(parse(&with_null) == Ok(intent.clone()), accepted, "{member}");
    }
}

#[test]
fn unknown_members_are_ignored_on_every_level() {
    fn strew(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.values_mut().for_each(strew);
                members.insert("ofTheFuture".into(), json!({"a": [1]}));
            }
            Value::Array(values) => values.iter_mut().for_each(strew),
            _ => {}
        }
    }
    let mut strewn = example();
    strew(&mut strewn);
    assert_eq!(parse(&strewn), parse(&example()));
    let mut disabled = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
    strew(&mut disabled);
    assert!(parse(&disabled).unwrap().restricts_nothing());
}

#[test]
fn old_names_are_understood_and_not_sent() {
    let old = json!({
        "permissions": {"type": "managed", "network": "enabled", "file_system": {"type": "restricted", "entries": [
            {"path": {"type": "special", "value": {"kind": "current_working_directory", "subpath": "a"}}, "access": "none"},
        ]}},
        "windowsSandboxLevel": "mxc",
        "windowsSandboxPrivateDesktop": true,
    });
    let intent = parse(&old).unwrap();
    let expected = Entry::special(Special::ProjectRoots { subpath: Some("a".into()) }, Access::Deny);
    assert_eq!(intent.permissions.entries(), [expected]);
    let sent = intent.to_json();
    assert!(sent.contains("project_roots") && sent.contains(r#""access":"deny""#), "{sent}");
}

#[test]
fn what_is_malformed_is_named() {
    let with = |pointer: &str, value: Value| {
        let mut changed = example();
        *changed.pointer_mut(pointer).unwrap() = value;
        parse(&changed).unwrap_err()
    };
    let entry = "/permissions/file_system/entries/7";
    for (pointer, value, named) in [
        ("/permissions/type", json!("new"), "unknown variant `new`"),
        ("/permissions/network", json!("some"), "unknown variant `some`"),
        ("/permissions/file_system/type", json!("new"), "unknown variant `new`"),
        ("/permissions/file_system/entries", json!(null), "null"),
        ("/permissions/file_system/glob_scan_max_depth", json!(0), "nonzero"),
        (&format!("{entry}/access"), json!("execute"), "unknown variant `execute`"),
        (&format!("{entry}/missing_path_behavior"), json!("create"), "unknown variant `create`"),
        (&format!("{entry}/path/path"), json!("/srv/a"), "`/srv/a`: invalid URI"),
        (&format!("{entry}/path/path"), json!("https://h/a"), "`https://h/a`: unsupported path URI scheme"),
        (&format!("{entry}/path/type"), json!("new"), "unknown variant `new`"),
        ("/permissions/file_system/entries/0/path/value/kind", json!("new"), "unknown variant `new`"),
        ("/windowsSandboxLevel", json!("none"), "unknown variant `none`"),
        ("/cwd", json!("srv"), "`srv`: invalid URI"),
        ("/workspaceRoots/0", json!("file:///srv?x"), "`file:///srv?x`: query"),
    ] {
        let error = with(pointer, value);
        assert!(error.contains(named) && !error.contains("column"), "{pointer}: {error}");
    }
    for (json, named) in [
        ("[]", "not an object"),
        ("null", "not an object"),
        ("", "not an object"),
        ("{", "EOF"),
        ("{}", "missing field `permissions`"),
        (r#"{"permissions":{"type":"disabled"}}"#, "missing field `windowsSandboxLevel`"),
        (r#"{"permissions":{"type":"managed","network":"enabled"},"windowsSandboxLevel":"disabled"}"#, "file_system"),
    ] {
        let error = SandboxIntent::from_json(json).unwrap_err();
        assert!(matches!(&error, SandboxError::Invalid { reason } if reason.contains(named)), "{json}: {error}");
    }
}

#[test]
fn paths_are_cleaned_by_their_text() {
    let mut intent = example();
    intent["cwd"] = json!("FILE:/srv/./x/../job");
    assert_eq!(parse(&intent).unwrap().cwd.unwrap().as_str(), "file:///srv/job");
}

#[test]
fn an_intent_is_dynamic_if_it_names_roots_or_a_relative_pattern() {
    let read_only = SandboxIntent::read_only();
    assert!(!read_only.is_dynamic());
    assert!(!read_only.clone().deny_glob("/srv/**/*.pem").deny_glob("~/**/*.pem").is_dynamic());
    assert!(read_only.clone().deny_glob("*.pem").is_dynamic());
    assert!(read_only.clone().deny_glob("codex-project-roots://*.pem").is_dynamic());
    assert!(read_only.write_below_roots("x").is_dynamic());
}
