//! `longarm info`, of every place.

use serde_json::Value;

use crate::support::{PROGRAM, Place, run};

#[test]
fn every_place_says_what_it_is() {
    for place in Place::all() {
        let outcome = run(place.info().arg("--json"), b"");
        assert_eq!((outcome.code(), &outcome.stderr[..]), (0, &b""[..]), "{}", place.name());
        let facts: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(facts["platformOs"], std::env::consts::OS, "{}", place.name());
        assert_eq!(facts["executorVersion"], env!("CARGO_PKG_VERSION"));
        assert!(facts["shell"]["path"].as_str().unwrap().starts_with('/'), "{facts}");
        assert!(facts["tempDir"].as_str().unwrap().starts_with('/'), "{facts}");
        assert!(facts["features"].as_array().unwrap().iter().any(|name| name == "closeStdin"), "{facts}");
        let outcome = run(&mut place.info(), b"");
        let text = outcome.text();
        let shell = format!(
            "shell         {} ({})\n",
            facts["shell"]["name"].as_str().unwrap(),
            facts["shell"]["path"].as_str().unwrap()
        );
        assert!(text.contains(&shell), "{text}");
        assert!(text.starts_with(&format!("system        {}\n", std::env::consts::OS)), "{text}");
    }
}

#[test]
fn a_place_that_cannot_be_reached_is_an_error() {
    let outcome = run(std::process::Command::new(PROGRAM).args(["info", "--connect", "ws://127.0.0.1:1"]), b"");
    assert_eq!((outcome.code(), outcome.text()), (1, ""));
    assert!(outcome.reason().contains("127.0.0.1:1"), "{outcome:?}");
}
