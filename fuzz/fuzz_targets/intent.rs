//! Any text as a sandbox intent: an answer, the same after a way over the wire, and never more than was asked for.

#![no_main]

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use longarm::sandbox::{Access, Bound, Facts, Found, PathIdentity, Platform, SandboxError, SandboxIntent, Seen};

/// A file system in which every path exists, so that nothing depends on the host.
struct Everything;

impl PathIdentity for Everything {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let found = match name.as_str() {
            "link" => Found::Link(PathBuf::from("../linked")),
            "loop" => Found::Link(PathBuf::from("loop")),
            "gone" => Found::Missing,
            "file" => Found::File,
            _ => Found::Directory,
        };
        Ok(Seen { found, owner: Some(0) })
    }

    fn list(&self, _: &Path) -> io::Result<Vec<(OsString, Found)>> {
        Ok(["file", "gone", "link"].map(|name| (name.into(), Found::File)).into())
    }

    fn read_start(&self, _: &Path, _: usize) -> io::Result<Vec<u8>> {
        Ok(b"gitdir: ../link".to_vec())
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.into())
    }
}

fuzz_target!(|text: &str| {
    let Ok(intent) = SandboxIntent::from_json(text) else { return };
    assert_eq!(SandboxIntent::from_json(&intent.to_json()).as_ref(), Ok(&intent), "it comes back as it went");
    let facts = Facts::new(Platform::Linux, &Everything).temp_dir(Path::new("/tmp")).uid(Some(0));
    match intent.bind(&facts) {
        Ok(mut bound) => {
            check(&bound);
            if bound.expand_globs(&Everything).is_ok() {
                check(&bound);
            }
        }
        Err(SandboxError::Invalid { .. } | SandboxError::Preparation { .. } | SandboxError::Unavailable { .. }) => {}
        Err(other) => panic!("{other:?} is no answer of a binding"),
    }
});

/// What holds of every bound intent.
fn check(bound: &Bound) {
    assert!(bound.entries.is_sorted_by(|a, b| a.path < b.path), "one entry for each path, in order");
    for entry in &bound.entries {
        assert!(entry.path.is_absolute() && entry.path.parent().is_some());
        let access = bound.access(&entry.path);
        assert!(access == Some(entry.access) || access == Some(Access::Deny), "{entry:?}");
    }
    for name in &bound.protected {
        assert!(!bound.can_write(&name.path), "{name:?}");
    }
}
