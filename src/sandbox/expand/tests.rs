use std::path::Path;

use super::*;
use crate::path_uri::PathUri;
use crate::sandbox::facts::{Facts, Platform};
use crate::sandbox::fake::FakePaths;
use crate::sandbox::intent::SandboxIntent;

fn uri(path: &str) -> PathUri {
    PathUri::parse(&format!("file://{path}")).unwrap()
}

fn expanded(fake: &FakePaths, intent: &SandboxIntent) -> Result<Vec<String>, SandboxError> {
    let mut bound = intent.bind(&Facts::new(Platform::Linux, fake)).unwrap();
    bound.expand_globs(fake)?;
    assert!(bound.entries.is_sorted_by(|a, b| a.path < b.path));
    let matches = bound.entries.iter().filter(|entry| entry.origin == Origin::Glob);
    Ok(matches.map(|entry| entry.path.to_str().unwrap().to_owned()).collect())
}

fn denying(pattern: &str) -> SandboxIntent {
    SandboxIntent::read_only().write(uri("/w")).deny_glob(pattern)
}

#[test]
fn every_match_is_denied_with_all_below_it() {
    let fake = FakePaths::new(&[
        "/w/a.pem",
        "/w/d/b.pem",
        "/w/d/e/c.pem",
        "/w/k.pem/in/x.pem",
        "/w/l.pem -> /etc",
        "/v/a.pem",
    ]);
    assert_eq!(
        expanded(&fake, &denying("/w/**/*.pem")).unwrap(),
        ["/w/a.pem", "/w/d/b.pem", "/w/d/e/c.pem", "/w/k.pem",]
    );
    assert_eq!(expanded(&fake, &denying("/w/*.pem")).unwrap(), ["/w/a.pem", "/w/k.pem"]);
    assert_eq!(expanded(&fake, &denying("/none/**/*.pem")).unwrap(), [""; 0]);
    let depth = denying("/w/**/*.pem").glob_scan_max_depth(2.try_into().unwrap());
    assert_eq!(expanded(&fake, &depth).unwrap(), ["/w/a.pem", "/w/d/b.pem", "/w/k.pem"]);
}

#[test]
fn what_is_open_again_below_a_match_is_looked_into() {
    let fake = FakePaths::new(&["/w/k.d/open/x.d/f", "/w/k.d/shut/x.d/f"]);
    let intent = denying("/w/**/*.d").write(uri("/w/k.d/open"));
    assert_eq!(expanded(&fake, &intent).unwrap(), ["/w/k.d", "/w/k.d/open/x.d"]);
}

#[test]
fn a_match_goes_before_an_entry_for_the_same_path() {
    let fake = FakePaths::new(&["/w/a.pem"]);
    let intent = denying("/w/*.pem").write(uri("/w/a.pem"));
    let mut bound = intent.bind(&Facts::new(Platform::Linux, &fake)).unwrap();
    bound.expand_globs(&fake).unwrap();
    assert_eq!(bound.entry(Path::new("/w/a.pem")).unwrap().access, Access::Deny);
    assert_eq!(bound.entries.len(), 2);
}

#[test]
fn what_cannot_be_looked_at_or_is_too_much_is_refused() {
    let fake = FakePaths::new(&["/w/d/x.pem"]).blocked("/w/d");
    assert!(expanded(&fake, &denying("/w/**/*.pem")).unwrap_err().to_string().contains("/w/d"));
    // Where no match could be, nobody looks.
    assert_eq!(expanded(&fake, &denying("/w/*.pem")).unwrap(), [""; 0]);
    let mut many = FakePaths::default();
    for number in 0..=MAX_MATCHES {
        many = many.with(&format!("/w/{number}.pem"));
    }
    let error = expanded(&many, &denying("/w/*.pem")).unwrap_err().to_string();
    assert!(error.contains("8192") && error.contains("/w/*.pem"), "{error}");
}
