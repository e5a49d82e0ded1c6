use proptest::prelude::*;

use super::*;

fn vars<const N: usize>(pairs: [(&str, &str); N]) -> EnvMap {
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn child(base: &EnvMap, policy: Option<&ShellEnvPolicy>, overlay: &EnvMap, metadata: Option<&Metadata>) -> EnvMap {
    let policy = policy.map(|policy| policy as &dyn EnvPolicy);
    child_environment(base, policy, overlay, metadata, &ReservedNames::default(), false)
}

fn metadata(tool_call_id: &str) -> Metadata {
    Metadata::new(Some(crate::request::ThreadId::from_u128(0x0190_a5ad)), Some(tool_call_id.into()))
}

/// The executor's variables in the recording of the reference.
fn recorded_base() -> EnvMap {
    vars([
        ("FOO", "foo"),
        ("FOOBAR", "fb"),
        ("MY_KEY", "k"),
        ("Api_Token", "t"),
        ("TERM", "xterm"),
        ("LANG", "C.UTF-8"),
        ("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", "n"),
    ])
}

#[test]
fn without_a_policy_the_child_gets_exactly_the_overlay() {
    let overlay = vars([("A", "1")]);
    assert_eq!(child(&recorded_base(), None, &overlay, None), overlay);
}

#[test]
fn the_recorded_cases_of_the_reference_come_out_the_same() {
    let strict = |inherit| ShellEnvPolicy::new(inherit).ignore_default_excludes(false);
    for (policy, overlay, expected) in [
        (
            strict(Inherit::None).set("X", "1").set("Y_TOKEN", "2").include_only("x*"),
            vars([("Z", "3")]),
            vars([("X", "1"), ("Z", "3")]),
        ),
        (
            strict(Inherit::All).exclude("foo?*"),
            EnvMap::new(),
            vars([("FOO", "foo"), ("TERM", "xterm"), ("LANG", "C.UTF-8")]),
        ),
        (ShellEnvPolicy::inherit_all(), EnvMap::new(), {
            let mut all = recorded_base();
            all.remove(OsStr::new("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN"));
            all
        }),
        (strict(Inherit::Core), EnvMap::new(), vars([("LANG", "C.UTF-8")])),
    ] {
        assert_eq!(child(&recorded_base(), Some(&policy), &overlay, None), expected, "{policy:?}");
    }
}

#[test]
fn patterns_match_the_whole_name_without_regard_to_case() {
    for (pattern, name, expected) in [
        ("*KEY*", "KEY", true),
        ("*KEY*", "my_key_1", true),
        ("foo", "FOO", true),
        ("foo", "FOOBAR", false),
        ("foo?", "FOO", false),
        ("foo?*", "FOOBAR", true),
        ("*", "", true),
        ("?", "", false),
        ("", "", true),
        ("", "A", false),
        ("[AB]", "A", false),
        ("[AB]", "[ab]", true),
        ("{A|B}!\\", "{a|b}!\\", true),
        ("\u{c4}*", "\u{e4}x", true),
        ("a?c", "a\u{20ac}c", true),
    ] {
        let policy = ShellEnvPolicy::inherit_all().include_only(pattern);
        let base = vars([(name, "")]);
        assert_eq!(policy.apply(&base, false) == base, expected, "{pattern:?} on {name:?}");
    }
}

#[test]
fn the_overlay_is_exempt_from_patterns_but_not_from_reserved_names() {
    let overlay = vars([
        ("MY_SECRET", "1"),
        ("openai_identity_token_file", "2"),
        ("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE", "3"),
        ("codex_exec_server_exit_on_stdin_close", "4"),
        ("CODEX_TOOL_CALL_ID", "5"),
        ("CODEX_THREAD_ID", "6"),
    ]);
    let kept = vars([("MY_SECRET", "1"), ("codex_exec_server_exit_on_stdin_close", "4"), ("CODEX_THREAD_ID", "6")]);
    let strict = ShellEnvPolicy::inherit_none().ignore_default_excludes(false).include_only("NOTHING");
    assert_eq!(child(&EnvMap::new(), Some(&strict), &overlay, None), kept);
    assert_eq!(child(&EnvMap::new(), None, &overlay, None), kept);
}

#[test]
fn metadata_replaces_what_the_variables_say() {
    let overlay = vars([("CODEX_THREAD_ID", "old"), ("CODEX_TOOL_CALL_ID", "old")]);
    let both = vars([("CODEX_THREAD_ID", "00000000-0000-0000-0000-00000190a5ad"), ("CODEX_TOOL_CALL_ID", "")]);
    assert_eq!(child(&EnvMap::new(), None, &overlay, Some(&metadata(""))), both);
    assert_eq!(child(&EnvMap::new(), None, &overlay, Some(&Metadata::default())), EnvMap::new());
}

#[test]
fn a_host_chooses_its_own_reserved_names() {
    let base = vars([("MY_APP_CREDENTIAL", "x"), ("NODE_REPL_AUTH_TOKEN", "y")]);
    let policy = ShellEnvPolicy::inherit_all();
    for (reserved, expected) in [
        (ReservedNames::none(), base.clone()),
        (ReservedNames::none().with("my_app_Credential"), vars([("NODE_REPL_AUTH_TOKEN", "y")])),
        (ReservedNames::default().with("my_app_Credential"), EnvMap::new()),
    ] {
        let found = child_environment(&base, Some(&policy), &EnvMap::new(), None, &reserved, false);
        assert_eq!(found, expected, "{reserved:?}");
    }
}

#[test]
fn case_of_names_counts_on_posix_and_not_on_windows() {
    let base = vars([("Path", "base"), ("ProgramFiles(x86)", "p"), ("HOME", "h")]);
    let policy = ShellEnvPolicy::inherit_core().set("PATH", "set");
    let overlay = vars([("home", "overlay")]);
    let reserved = ReservedNames::default();
    let found = child_environment(&base, Some(&policy), &overlay, None, &reserved, false);
    assert_eq!(found, vars([("Path", "base"), ("PATH", "set"), ("HOME", "h"), ("home", "overlay")]));
    let found = child_environment(&base, Some(&policy), &overlay, None, &reserved, true);
    let expected =
        vars([("PATH", "set"), ("ProgramFiles(x86)", "p"), ("home", "overlay"), ("PATHEXT", ".COM;.EXE;.BAT;.CMD")]);
    assert_eq!(found, expected, "HOME is not a core name there");
}

#[test]
fn windows_gets_a_pathext_only_if_a_policy_left_it_out() {
    let reserved = ReservedNames::default();
    let base = vars([("PathExt", ".EXE")]);
    let policy = ShellEnvPolicy::inherit_all();
    assert_eq!(child_environment(&base, Some(&policy), &EnvMap::new(), None, &reserved, true), base);
    assert_eq!(child_environment(&base, None, &EnvMap::new(), None, &reserved, true), EnvMap::new());
}

#[cfg(unix)]
#[test]
fn bytes_that_are_not_utf_8_pass_through() {
    use std::os::unix::ffi::OsStringExt;
    let raw = |text: &[u8]| OsString::from_vec(text.into());
    let base = EnvMap::from([(raw(b"A\xff"), raw(b"\xfe")), (raw(b"KEY\xff"), raw(b"x"))]);
    let policy = ShellEnvPolicy::inherit_all().ignore_default_excludes(false).include_only("A?");
    assert_eq!(child(&base, Some(&policy), &EnvMap::new(), None), EnvMap::from([(raw(b"A\xff"), raw(b"\xfe"))]));
}

#[test]
fn debug_shows_names_and_never_values() {
    let shown = format!("{:?}", ShellEnvPolicy::inherit_all().set("NAME", "hunter2"));
    assert!(shown.contains("NAME") && !shown.contains("hunter2"), "{shown}");
}

/// The specification's table, written once more without sharing any code: rules are tried for one name at a time.
mod oracle {
    use super::*;

    pub(super) fn value(
        name: &str,
        base: &EnvMap,
        policy: Option<&ShellEnvPolicy>,
        overlay: &EnvMap,
        metadata: Option<&Metadata>,
    ) -> Option<OsString> {
        match (name, metadata) {
            ("CODEX_TOOL_CALL_ID", metadata) => return metadata?.tool_call_id.clone().map(Into::into),
            ("CODEX_THREAD_ID", Some(metadata)) => return metadata.thread_id.map(|id| id.to_string().into()),
            ("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE", _) => return None,
            _ => {}
        }
        if RESERVED.iter().any(|reserved| reserved.to_lowercase() == name.to_lowercase()) {
            return None;
        }
        if let Some(value) = overlay.get(OsStr::new(name)) {
            return Some(value.clone());
        }
        let policy = policy?;
        if !policy.include_only.is_empty() && !policy.include_only.iter().any(|pattern| glob(pattern, name)) {
            return None;
        }
        if let Some(value) = policy.set.get(name) {
            return Some(value.into());
        }
        let value = base.get(OsStr::new(name))?;
        let core = "PATH SHELL TMPDIR TEMP TMP HOME LANG LC_ALL LC_CTYPE LOGNAME USER";
        let inherited = match policy.inherit {
            Inherit::All => true,
            Inherit::Core => core.split(' ').any(|known| known == name.to_uppercase()),
            Inherit::None => false,
        };
        let secret = ["KEY", "SECRET", "TOKEN"].iter().any(|word| name.to_uppercase().contains(word));
        let excluded =
            secret && !policy.ignore_default_excludes || policy.exclude.iter().any(|pattern| glob(pattern, name));
        (inherited && !excluded).then(|| value.clone())
    }

    fn glob(pattern: &str, name: &str) -> bool {
        fn matches(pattern: &[char], name: &[char]) -> bool {
            match (pattern, name) {
                ([], []) => true,
                (['*', rest @ ..], _) => {
                    matches(rest, name) || matches!(name, [_, tail @ ..] if matches(pattern, tail))
                }
                (['?', rest @ ..], [_, tail @ ..]) => matches(rest, tail),
                ([first, rest @ ..], [other, tail @ ..]) => first == other && matches(rest, tail),
                _ => false,
            }
        }
        let fold = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
        matches(&fold(pattern), &fold(name))
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abAB_]{1,4}",
        "[a-b]?(KEY|Token|secret)[AB]?",
        prop::sample::select(vec!["PATH", "Path", "HOME", "lang", "TMPDIR"]).prop_map(String::from),
        prop::sample::select(vec![
            "CODEX_THREAD_ID",
            "CODEX_TOOL_CALL_ID",
            "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
            "Node_Repl_Auth_Token",
            "OPENAI_FEDERATION_RULE_ID",
        ])
        .prop_map(String::from),
    ]
}

fn env_map() -> impl Strategy<Value = EnvMap> {
    prop::collection::btree_map(name().prop_map(OsString::from), "[0-9]".prop_map(OsString::from), 0..10)
}

prop_compose! {
    fn policy()(
        inherit in prop::sample::select(vec![Inherit::All, Inherit::Core, Inherit::None]),
        ignore_default_excludes in any::<bool>(),
        exclude in prop::collection::vec("[abAB*?\\[K]{0,4}", 0..3),
        set in prop::collection::btree_map(name(), "[0-9]", 0..4),
        include_only in prop::collection::vec("[abAB*?P]{0,3}", 0..3),
    ) -> ShellEnvPolicy {
        ShellEnvPolicy { inherit, ignore_default_excludes, exclude, set, include_only }
    }
}

proptest! {
    #[test]
    fn every_name_is_decided_as_the_table_says(
        base in env_map(),
        policy in prop::option::of(policy()),
        overlay in env_map(),
        ids in prop::option::of((any::<bool>(), prop::option::of("[a-z]{0,2}"))),
    ) {
        let metadata = ids.map(|(thread, tool)| Metadata::new(thread.then_some(crate::request::ThreadId::from_u128(0)), tool));
        let found = child(&base, policy.as_ref(), &overlay, metadata.as_ref());
        let set = policy.iter().flat_map(|policy| policy.set.keys().map(OsString::from)).collect::<Vec<_>>();
        let ids = ["CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID"].map(OsString::from);
        let names = base.keys().chain(overlay.keys()).chain(&set).chain(&ids).chain(found.keys());
        for name in names {
            let expected =
                oracle::value(name.to_str().unwrap(), &base, policy.as_ref(), &overlay, metadata.as_ref());
            prop_assert_eq!(found.get(name), expected.as_ref(), "{:?}", name);
        }
    }
}
