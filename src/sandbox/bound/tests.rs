use super::*;

fn entry(path: &str, access: Access, kind: Existing) -> BoundEntry {
    let origin = Origin::Entry;
    BoundEntry { path: path.into(), lexical: path.into(), access, kind, skip_missing: false, origin }
}

fn bound(root: Option<Access>, entries: &[(&str, Access, Existing)]) -> Bound {
    let mut entries: Vec<_> = entries.iter().map(|(path, access, kind)| entry(path, *access, *kind)).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Bound {
        class: Class::RestrictedRead,
        root,
        entries,
        aliases: Vec::new(),
        network: NetworkPolicy::Restricted,
        workspace_roots: Vec::new(),
        cwd: None,
        globs: Vec::new(),
        glob_scan_max_depth: None,
        protected: Vec::new(),
        minimal: false,
    }
}

fn paths<'a>(entries: impl Iterator<Item = &'a BoundEntry>) -> Vec<&'a str> {
    entries.map(|entry| entry.path.to_str().unwrap()).collect()
}

use Access::{Deny, Read, Write};
use Existing::{Directory, File, Missing};

#[test]
fn the_nearest_entry_decides_by_whole_components() {
    let bound = bound(Some(Read), &[("/a", Write, Directory), ("/a/b", Deny, Directory), ("/a/b/c", Write, File)]);
    for (path, access) in [
        ("/", Read),
        ("/ab", Read),
        ("/a", Write),
        ("/a/bc", Write),
        ("/a/b", Deny),
        ("/a/b/x/y", Deny),
        ("/a/b/c", Write),
        ("/a/b/c/d", Write),
    ] {
        assert_eq!(bound.access(Path::new(path)), Some(access), "{path}");
    }
    assert!(bound.can_read(Path::new("/")) && !bound.can_write(Path::new("/")));
    assert!(bound.opens_below(Path::new("/a/b")) && !bound.opens_below(Path::new("/a/b/c")));
}

#[test]
fn a_pattern_denies_unless_an_entry_below_opens_again() {
    let mut bound = bound(Some(Read), &[("/w", Write, Directory), ("/w/x.d/open", Write, Directory)]);
    let pattern =
        crate::sandbox::glob::parse("**/*.d", crate::sandbox::glob::Anchor::Cwd, false).unwrap().remove(0).pattern;
    bound.globs.push(BoundGlob { text: "**/*.d".into(), base: "/w".into(), has_base: true, pattern });
    for (path, access) in [
        ("/w/a", Write),
        ("/w/x.d", Deny),
        ("/w/x.d/f", Deny),
        ("/w/x.d/open", Write),
        ("/w/x.d/open/f", Write),
        ("/w/x.d/open/y.d/f", Deny),
        ("/x.d", Read),
    ] {
        assert_eq!(bound.access(Path::new(path)), Some(access), "{path}");
    }
}

#[test]
fn lists_hold_what_changes_something_from_above_to_below() {
    let bound = bound(
        Some(Read),
        &[
            ("/r", Read, Directory),
            ("/w", Write, Directory),
            ("/w/again", Write, Directory),
            ("/w/.git", Read, Directory),
            ("/w/.git/hooks", Write, Directory),
            ("/w/.codex", Read, Missing),
            ("/w/s", Deny, Directory),
            ("/w/s/r", Read, File),
            ("/w/s/gone", Read, Missing),
            ("/d", Deny, Directory),
        ],
    );
    assert_eq!(paths(bound.write_roots()), ["/w", "/w/.git/hooks"]);
    assert_eq!(paths(bound.carve_outs()), ["/w/.codex", "/w/.git"]);
    assert_eq!(paths(bound.masks()), ["/d", "/w/s"]);
    assert_eq!(paths(bound.visible()), ["/w/s/r"]);
    let above: Vec<_> = bound.changes().map(|change| (change.above, change.opens())).collect();
    assert_eq!(above.len(), 8);
    assert_eq!(above.first(), Some(&(Some(Read), false)));
}

#[test]
fn without_a_readable_root_only_what_is_listed_is_visible() {
    let bound = bound(
        None,
        &[("/usr", Read, Directory), ("/usr/x", Read, Directory), ("/w", Write, Directory), ("/d", Deny, File)],
    );
    assert_eq!(paths(bound.visible()), ["/usr", "/w"]);
    assert_eq!(paths(bound.masks()), [""; 0]);
    assert_eq!(bound.access(Path::new("/etc")), None);
}

#[test]
fn a_process_needs_something_to_execute_and_a_directory_to_be_in() {
    let cwd = Path::new("/w/a");
    assert!(bound(None, &[]).admits_process(cwd).is_err());
    assert!(bound(None, &[("/w", Read, Missing)]).admits_process(cwd).is_err());
    assert!(bound(Some(Deny), &[]).admits_process(cwd).is_err());
    assert!(bound(Some(Read), &[]).admits_process(cwd).is_ok());
    assert!(bound(None, &[("/w", Read, Directory)]).admits_process(cwd).is_ok());
    let hidden = bound(Some(Read), &[("/w", Deny, Directory), ("/w/a/b", Read, Directory)]);
    assert!(hidden.admits_process(cwd).unwrap_err().to_string().contains("/w/a"));
    let above = bound(None, &[("/w/a/b", Read, Directory)]);
    assert!(above.admits_process(cwd).is_ok() && above.admits_process(Path::new("/x")).is_err());
}
