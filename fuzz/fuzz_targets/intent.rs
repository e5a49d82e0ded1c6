//! Any text as a sandbox intent, on a file system of the fuzzer's choice: an answer, the same after a way over the wire, and
//! never more than was asked for.

#![no_main]

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Component, Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use longarm::path_uri::PathUri;
use longarm::sandbox::{
    Access, Bound, EntryPath, Facts, Found, PathIdentity, Platform, SandboxError, SandboxIntent, Seen, Special,
};

/// A file system in which every path is something, as its name and a number say, so that nothing depends on the host.
struct Everything(u8);

impl PathIdentity for Everything {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (self.0, path).hash(&mut hasher);
        let found = match (name.as_str(), hasher.finish() % 32) {
            ("", _) => Found::Directory,
            ("loop", _) => Found::Link("loop".into()),
            ("link", 0..=7) | (_, 0) => Found::Link("../linked".into()),
            ("link", 8..=15) | (_, 1) => Found::Link("/tmp/x".into()),
            ("link", _) | (_, 2) => Found::Link("gone/../file".into()),
            ("gone", _) | (_, 3..=5) => Found::Missing,
            ("file", _) | (_, 6..=9) => Found::File,
            (_, 10) => Found::Other,
            (_, 11) => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => Found::Directory,
        };
        Ok(Seen { found, owner: Some(0) })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        // Not for ever deeper.
        let names: &[&str] = if directory.components().count() > 6 { &[] } else { &["a", "file", "gone", "link"] };
        names
            .iter()
            .map(|name| Ok(((*name).into(), self.look(&directory.join(name)).map_or(Found::Other, |seen| seen.found))))
            .collect()
    }

    fn read_start(&self, _: &Path, _: usize) -> io::Result<Vec<u8>> {
        Ok(b"gitdir: ../link".to_vec())
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.into())
    }
}

impl Everything {
    fn is_directory(&self, path: &Path) -> bool {
        self.look(path).is_ok_and(|seen| seen.found == Found::Directory)
    }

    /// Where a path leads, whether something is there, and whether something could be. None if links lead in a circle.
    fn lead(&self, path: &Path) -> Option<(PathBuf, bool, bool)> {
        let (mut at, mut exists, mut is_directory, mut links) = (PathBuf::from("/"), true, true, 0);
        let mut could = true;
        let mut rest: Vec<PathBuf> = path.components().rev().map(|part| part.as_os_str().into()).collect();
        while let Some(name) = rest.pop() {
            match name.components().next() {
                Some(Component::RootDir) => at = "/".into(),
                Some(Component::ParentDir) => {
                    // What is missing has nothing above it.
                    exists &= is_directory;
                    could &= exists;
                    at.pop();
                }
                Some(Component::Normal(_)) => {
                    let next = at.join(&name);
                    exists &= is_directory;
                    let found = self.look(&next).map_or(Found::Missing, |seen| seen.found);
                    match found {
                        Found::Link(target) if exists => {
                            links += 1;
                            if links > 40 {
                                return None;
                            }
                            rest.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
                            continue;
                        }
                        Found::Missing => exists = false,
                        found => is_directory = found == Found::Directory,
                    }
                    at = next;
                }
                _ => {}
            }
        }
        Some((at, exists, could))
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((number, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(intent) = SandboxIntent::from_json(text) else { return };
    assert_eq!(SandboxIntent::from_json(&intent.to_json()).as_ref(), Ok(&intent), "it comes back as it went");
    let files = Everything(*number);
    let facts = Facts::new(Platform::Linux, &files).temp_dir(Path::new("/tmp")).uid(Some(0));
    match intent.bind(&facts) {
        Ok(mut bound) => {
            check(&bound);
            check_asked(&files, &intent, &bound);
            if bound.expand_globs(&files).is_ok() {
                check(&bound);
                check_asked(&files, &intent, &bound);
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
        let simple = entry.path.parent().and_then(|parent| parent.ancestors().find_map(|above| bound.entry(above)));
        assert_eq!(bound.nearest(entry.path.parent().unwrap()), simple);
    }
    for name in &bound.protected {
        assert!(!bound.can_write(&name.path), "{name:?}");
    }
}

/// For every path that an entry is about, and what is around it: no more than the entry says that counts.
fn check_asked(files: &Everything, intent: &SandboxIntent, bound: &Bound) {
    if bound.root == Some(Access::Write) && bound.entries.is_empty() && bound.globs.is_empty() {
        // All of it may be unrestricted.
        let may = intent.permissions.entries().iter().any(|entry| entry.access == Access::Write);
        assert!(may || !intent.restricts_files());
        return;
    }
    let native = |uri: &PathUri| uri.to_host_native_path().ok().map(|path| clean(&path));
    let roots: Vec<PathBuf> = intent.effective_roots().iter().filter_map(native).collect();
    let mut claims: Vec<(PathBuf, Access)> = Vec::new();
    for entry in intent.permissions.entries() {
        let paths: Vec<PathBuf> = match &entry.path {
            EntryPath::Path { path } => native(path).into_iter().collect(),
            EntryPath::Special { value: Special::Root } => vec!["/".into()],
            EntryPath::Special { value: Special::ProjectRoots { subpath: None } } => roots.clone(),
            EntryPath::Special { value: Special::ProjectRoots { subpath: Some(subpath) } } => roots
                .iter()
                .map(|root| clean(&root.join(subpath)))
                .filter(|path| roots.iter().any(|root| path.starts_with(root)))
                .collect(),
            EntryPath::Special { value: Special::SlashTmp } => {
                // Only a directory is one; to deny it, whatever is there.
                let led = files.lead(Path::new("/tmp"));
                let is_one = led.is_some_and(|(path, exists, _)| exists && files.is_directory(&path));
                if is_one || entry.access == Access::Deny { vec!["/tmp".into()] } else { Vec::new() }
            }
            // Which directories these are is not asked here.
            EntryPath::Special { value: Special::Tmpdir | Special::Minimal } => return,
            _ => Vec::new(),
        };
        for path in paths {
            let Some((path, exists, could)) = files.lead(&path) else { continue };
            if entry.access == Access::Deny || exists || (entry.access == Access::Read && could && !entry.skip_missing)
            {
                claims.push((path, entry.access));
            }
        }
    }
    let rank = |access: Access| match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Deny => 2,
    };
    for (path, _) in &claims {
        for probe in [path.clone(), path.join("a"), path.join("a/b"), path.with_file_name("beside")] {
            let above = claims.iter().filter(|(claim, _)| probe.starts_with(claim));
            let asked = above.max_by_key(|(claim, access)| (claim.components().count(), rank(*access)));
            let asked = asked.map_or(Access::Deny, |(_, access)| *access);
            let got = bound.access(&probe).unwrap_or(Access::Deny);
            assert!(got <= asked, "{}: {got:?} instead of {asked:?}", probe.display());
        }
    }
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}
