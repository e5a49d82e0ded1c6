use proptest::prelude::*;

use super::*;
use OutputStream::{Pty, Stderr, Stdout};

fn watched(output: &[(OutputStream, &[u8])]) -> DenialWatch {
    let mut watch = DenialWatch::new(SandboxBackend::Linux, true);
    for (stream, bytes) in output {
        watch.feed(*stream, bytes);
    }
    watch
}

fn denied(output: &[(OutputStream, &[u8])], code: i32) -> bool {
    watched(output).classify(ExitStatus::exited(code)).denied
}

#[test]
fn a_phrase_counts_unless_the_exit_code_is_zero() {
    for code in [1, 2, 126, 127, 159, -1] {
        assert!(denied(&[(Stderr, b"sh: x: Permission denied\n")], code), "{code}");
    }
    assert!(!denied(&[(Stderr, b"Permission denied")], 0));
    for (keyword, _) in KEYWORDS {
        assert!(denied(&[(Pty, keyword.to_ascii_uppercase().as_bytes())], 1), "{keyword}");
    }
    assert!(!denied(&[(Stderr, b"Access is denied. Network is unreachable")], 1));
}

#[test]
fn without_a_phrase_only_the_signal_of_a_filter_counts() {
    for code in [1, 2, 126, 127, 137] {
        assert!(!denied(&[(Stdout, b"something else")], code), "{code}");
    }
    let sigsys = Signal::from_number(31);
    // Any program can end with the code; only the kernel ends one by the signal.
    for (status, evidence) in
        [(ExitStatus::exited(159), vec![]), (ExitStatus::signaled(sigsys), vec![Evidence::Signal { number: 31 }])]
    {
        let denial = watched(&[]).classify(status);
        assert!(!evidence.iter().any(Evidence::is_guess));
        assert_eq!(denial, Denial::new(true, evidence));
        let event = watched(&[]).violation(&denial).unwrap();
        assert_eq!(event, FileViolation::new(SandboxBackend::Linux, ViolationReason::Sigsys).snippet(""));
    }
    let both = watched(&[(Stderr, b"seccomp")]).classify(ExitStatus::signaled(sigsys));
    assert_eq!(both.evidence.len(), 2);
}

#[test]
fn where_there_are_no_filters_the_number_of_their_signal_is_like_any_other() {
    for backend in [SandboxBackend::Seatbelt, SandboxBackend::Windows] {
        let watch = DenialWatch::new(backend, false);
        for status in [ExitStatus::exited(159), ExitStatus::signaled(Signal::from_number(31))] {
            assert_eq!(watch.classify(status), Denial::default(), "{backend:?}");
        }
        let mut watch = watch;
        watch.feed(Stderr, b"Permission denied");
        let denial = watch.classify(ExitStatus::exited(159));
        assert!(denial.denied && denial.evidence.iter().all(Evidence::is_guess));
        let violation = FileViolation::new(backend, ViolationReason::PermissionDenied);
        assert_eq!(watch.violation(&denial), Some(violation));
    }
}

#[test]
fn evidence_says_what_became_of_a_name() {
    let evidence = |change, moved_to: Option<&str>| Evidence::ProtectedName {
        path: "/w/.git".into(),
        change,
        moved_to: moved_to.map(Into::into),
    };
    for (evidence, text) in [
        (evidence(NameChange::Appeared, None), "protected name /w/.git appeared"),
        (evidence(NameChange::Appeared, Some("/s/x")), "protected name /w/.git appeared, and was moved to /s/x"),
        (evidence(NameChange::Replaced, None), "protected name /w/.git was replaced"),
        (evidence(NameChange::Unknown, None), "protected name /w/.git changed"),
    ] {
        assert_eq!(evidence.to_string(), text);
        assert!(!evidence.is_guess());
    }
}

#[test]
fn what_has_long_gone_by_still_counts() {
    let filler = vec![b'x'; 64 << 10];
    let mut watch = watched(&[(Stderr, b"Read-only file system\n")]);
    (0..32).for_each(|_| watch.feed(Stdout, &filler));
    let denial = watch.classify(ExitStatus::exited(1));
    let expected = Evidence::Text { keyword: "read-only file system".into(), stream: Stderr };
    assert_eq!(denial, Denial::new(true, vec![expected]));
    assert!(denial.evidence[0].is_guess());
    assert_eq!(denial.evidence[0].to_string(), r#"text "read-only file system" on standard error"#);
    assert_eq!(Evidence::Signal { number: 31 }.to_string(), "ended by signal 31 (SIGSYS)");
}

#[test]
fn the_path_is_that_of_the_line_that_ends_with_the_error() {
    for (output, path) in [
        ("touch: cannot touch '/x': Read-only file system\n", None),
        ("sh: 1: cannot create /x: Read-only file system\n", None),
        ("cat: /etc/shadow: Permission denied\n", Some("/etc/shadow")),
        ("cat: /etc/shadow: Permission denied\r\n", Some("/etc/shadow")),
        ("cat: ./x: Operation not permitted", Some("./x")),
        ("../x: Permission denied", Some("../x")),
        ("cat: x: Permission denied\nls: /y z: Permission denied\n", Some("/y z")),
        ("cat: /x: Permission denied, sorry\n", None),
        ("cat: /x: sandbox\n", None),
        ("/a: b: Permission denied\n", None),
        ("/x\n: Permission denied\n", None),
    ] {
        let watch = watched(&[(Stderr, output.as_bytes())]);
        let event = watch.violation(&watch.classify(ExitStatus::exited(1))).unwrap();
        assert_eq!(event.path.as_deref(), path, "{output:?}");
        assert_eq!(event.output_snippet.as_deref(), Some(output));
    }
    let watch = watched(&[(Stderr, b"cat: /x: Permission denied\n")]);
    assert!(watch.violation(&watch.classify(ExitStatus::exited(0))).is_none());
}

#[test]
fn of_a_line_whose_beginning_is_lost_no_path_is_told() {
    let start = "/".repeat(LINE_BYTES + 1);
    let watch = watched(&[(Stderr, start.as_bytes()), (Stderr, b"/x: Permission denied\n")]);
    let denial = watch.classify(ExitStatus::exited(1));
    assert_eq!(watch.violation(&denial).unwrap().path, None);
}

#[test]
fn a_snippet_is_the_beginning_and_only_where_it_is_wanted() {
    let text = "é".repeat(600) + " sandbox";
    let watch = watched(&[(Stdout, text.as_bytes())]);
    let denial = watch.classify(ExitStatus::exited(1));
    let event = watch.violation(&denial).unwrap();
    assert_eq!(event.output_snippet, Some("é".repeat(512)));
    assert_eq!(event.reason, ViolationReason::PolicyDenied);
    let mut plain = DenialWatch::new(SandboxBackend::Linux, false);
    plain.feed(Stdout, text.as_bytes());
    assert_eq!(plain.violation(&denial).unwrap().output_snippet, None);
}

proptest! {
    /// However the output is cut and mixed, the answer is that of the whole texts.
    #[test]
    fn the_answer_does_not_depend_on_how_output_is_cut(
        pieces in proptest::collection::vec(
            (0..2_usize, prop_oneof![
                Just("perm"), Just("ission"), Just(" denied"), Just("SAND"), Just("box"), Just("\n"), Just("x: "), Just("/p: "),
                Just("Permission denied\n"), Just("landlock"), Just("operation not "), Just("permitted"),
            ]),
            0..12,
        ),
        cuts in proptest::collection::vec(1..7_usize, 1..5),
    ) {
        let (mut watch, mut whole) = (DenialWatch::new(SandboxBackend::Linux, false), [String::new(), String::new(), String::new()]);
        let mut cuts = cuts.iter().cycle();
        for (stream, piece) in pieces {
            whole[stream].push_str(piece);
            whole[2].push_str(piece);
            let mut rest = piece.as_bytes();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                watch.feed([Stdout, Stderr][stream], now);
                rest = later;
            }
        }
        let expected = whole.iter().any(|text| {
            let lower = text.to_lowercase();
            KEYWORDS.iter().any(|(keyword, _)| lower.contains(keyword))
        });
        prop_assert_eq!(watch.classify(ExitStatus::exited(1)).denied, expected);
    }
}
