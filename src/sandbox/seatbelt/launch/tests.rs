use proptest::prelude::*;

use super::*;

#[test]
fn a_command_has_the_name_of_its_program_or_is_refused() {
    check_name(OsStr::new("sh"), OsStr::new("sh")).unwrap();
    let error = check_name(OsStr::new("sh"), OsStr::new("-sh")).unwrap_err();
    assert!(
        matches!(&error, SandboxError::Unavailable { remedy: Some(remedy), .. } if remedy.contains("arg0")),
        "{error}"
    );
}

#[test]
fn only_what_the_system_executes_is_an_image() {
    for head in [
        &b"#!/bin/sh\n"[..],
        b"\xcf\xfa\xed\xfe\x0c\0\0\x01",
        b"\xce\xfa\xed\xfe",
        b"\xfe\xed\xfa\xcf",
        b"\xfe\xed\xfa\xce",
        b"\xca\xfe\xba\xbe\0\0\0\x02",
        b"\xca\xfe\xba\xbf",
    ] {
        assert!(is_image(head), "{head:?}");
    }
    for head in [&b""[..], b"#", b"echo hi\n", b"\x7fELF", b"\xbe\xba\xfe\xca", b"\xcf\xfa\xed"] {
        assert!(!is_image(head), "{head:?}");
    }
}

#[test]
fn a_command_has_begun_once_its_process_is_another_program() {
    let applying = Path::new(SANDBOX_EXEC);
    assert_eq!(beginning(Some(applying), false), Beginning::Waits);
    assert_eq!(beginning(Some(Path::new("/bin/sh")), false), Beginning::Began);
    assert_eq!(beginning(None, false), Beginning::Began, "so that nobody waits for what cannot be told");
    for program in [Some(applying), Some(Path::new("/bin/sh")), None] {
        assert_eq!(beginning(program, true), Beginning::Ended);
    }
}

#[test]
fn the_exits_of_the_program_that_applies_policies_are_told_apart() {
    let exec =
        |text: &str| refusal(Some(71), format!("sandbox-exec: execvp() of 'x y: z' failed: {text}\r\n").as_bytes());
    for (text, expected) in FAULTS {
        assert!(matches!(exec(text), Some(Refusal::Execute(fault, _)) if fault == expected), "{text}");
    }
    assert!(matches!(exec("Input/output error"), Some(Refusal::Execute(ExecuteFault::Other, _))));
    let nested = b"sandbox-exec: sandbox_apply: Operation not permitted\n";
    let error = refusal(Some(71), nested).unwrap().into_error().unwrap_err();
    assert_eq!(
        error.to_string(),
        "sandbox cannot be enforced here: the system refused to apply a sandbox: sandbox_apply: Operation not permitted; run \
         the executor outside of any other sandbox, or send the profile `external`"
    );
    for code in [64, 65] {
        let error = refusal(Some(code), b"sandbox-exec: <input string>:1:2:\n").unwrap().into_error().unwrap_err();
        assert!(matches!(error, SandboxError::Preparation { .. }), "{error}");
    }
    // What a command does itself.
    assert_eq!(refusal(Some(1), nested), None);
    assert_eq!(refusal(None, nested), None);
    assert_eq!(refusal(Some(71), b"sandbox-exec"), None);
    assert_eq!(refusal(Some(71), b"make: sandbox-exec: no\n"), None);
    assert_eq!(refusal(Some(71), b""), None);
}

#[test]
fn every_sandbox_says_what_it_lacks() {
    let fake = crate::sandbox::fake::FakePaths::new(&["/w/"]);
    let reasons = |intent: crate::sandbox::SandboxIntent| {
        let facts = crate::sandbox::Facts::new(crate::sandbox::Platform::MacOs, &fake);
        reasons(&intent.bind(&facts).unwrap())
    };
    let count = |intent| reasons(intent).len();
    assert_eq!(count(crate::sandbox::SandboxIntent::no_network()), 2);
    assert_eq!(count(crate::sandbox::SandboxIntent::read_only()), 3);
    assert_eq!(count(crate::sandbox::SandboxIntent::read_only().deny_glob("/w/*.pem")), 4);
}

proptest! {
    #[test]
    fn no_output_is_taken_for_a_refusal_unless_it_begins_as_one(code: Option<i32>, output: Vec<u8>) {
        let taken = refusal(code, &output);
        prop_assert!(taken.is_none() || output.starts_with(b"sandbox-exec: "));
        let mut own = b"sandbox-exec: ".to_vec();
        own.extend(&output);
        prop_assert_eq!(refusal(code, &own).is_some(), matches!(code, Some(64 | 65 | 71)));
    }
}
