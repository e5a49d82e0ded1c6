use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::super::bound::Bound;
use super::super::facts::{Facts, Found, PathIdentity, Platform, Seen};
use super::super::fake::FakePaths;
use super::super::intent::{
    Access, Entry, EntryPath, FileSystemPolicy, NetworkPolicy, PermissionProfile, SandboxIntent, Special,
};
use super::*;
use crate::path_uri::PathUri;

fn uri(path: &str) -> PathUri {
    PathUri::parse(&format!("file://{path}")).unwrap()
}

fn intent(entries: Vec<Entry>, roots: usize) -> SandboxIntent {
    let file_system = FileSystemPolicy::Restricted { entries, glob_scan_max_depth: None };
    let intent = SandboxIntent::new(PermissionProfile::Managed { file_system, network: NetworkPolicy::Restricted });
    (0..roots).fold(intent, |intent, root| intent.workspace_root(uri(&format!("/r/{root}"))))
}

fn read(path: &str) -> Entry {
    Entry::path(uri(path), Access::Read)
}

fn glob(pattern: impl Into<String>) -> Entry {
    Entry::new(EntryPath::Glob { pattern: pattern.into() }, Access::Deny)
}

fn bind(identity: &dyn PathIdentity, intent: &SandboxIntent) -> Result<Bound, SandboxError> {
    intent.bind(&Facts::new(Platform::Linux, identity))
}

/// A path of this length.
fn long(first: &str, bytes: usize) -> String {
    let mut path = format!("/{first}");
    while path.len() + 201 <= bytes {
        path.push('/');
        path.push_str(&"n".repeat(200));
    }
    path
}

#[test]
fn whatever_is_more_than_anybody_needs_is_refused_by_the_name_of_its_limit() {
    let fake = FakePaths::new(&["/r/"]);
    let roots = || Entry::special(Special::ProjectRoots { subpath: None }, Access::Read);
    let many = |count: usize, entry: &dyn Fn(usize) -> Entry| intent((0..count).map(entry).collect(), 0);
    let temporary = |count| {
        let mut intent = intent(Vec::new(), 0);
        intent.temporary_directories = Some(vec![uri("/t"); count]);
        intent
    };
    let long_link = |length: usize| {
        let target = long("there", length);
        FakePaths::new(&[&format!("/link -> {target}")])
    };
    for (limit, within, beyond) in [
        ("4096 entries", many(4096, &|_| read("/a")), many(4097, &|_| read("/a"))),
        ("4096 paths", intent(vec![roots(); 16], 256), intent(vec![roots(); 17], 256)),
        ("256 workspace roots", intent(vec![roots()], 256), intent(vec![roots()], 257)),
        ("256 directories for temporary files", temporary(256), temporary(257)),
        ("4095 bytes in one path", many(1, &|_| read(&long("a", 4095))), many(1, &|_| read(&long("a", 4297)))),
        (
            "bytes of paths",
            many(100, &|number| read(&long(&number.to_string(), 4000))),
            many(600, &|number| read(&long(&number.to_string(), 4000))),
        ),
        (
            "1024 patterns",
            intent(vec![glob("codex-project-roots://*.pem"); 4], 256),
            intent(vec![glob("codex-project-roots://*.pem"); 5], 256),
        ),
        (
            "characters of patterns",
            many(4, &|_| glob(format!("/r/{}*", "n".repeat(4000)))),
            many(5, &|_| glob(format!("/r/{}*", "n".repeat(4000)))),
        ),
        (
            "64 braces",
            many(1, &|_| glob(format!("/r/{}*{}", "{".repeat(64), "}".repeat(64)))),
            many(1, &|_| glob(format!("/r/{}*{}", "{".repeat(65), "}".repeat(65)))),
        ),
        ("64 braces", many(1, &|_| glob("/r/{a}*")), many(1, &|_| glob(format!("/r/{}", "{a}".repeat(65))))),
        ("64 alternatives", many(1, &|_| glob("/r/{a,b}*")), many(1, &|_| glob(format!("/r/{}*", "{a,b}".repeat(7))))),
        (
            "no valid",
            many(1, &|_| glob("/r/[[]*")),
            many(1, &|_| glob(format!("/r/{}{}*{}", "[".repeat(2000), "{".repeat(60), "}".repeat(60)))),
        ),
    ] {
        if let Err(error) = bind(&fake, &within) {
            panic!("{limit}: {error}");
        }
        match bind(&fake, &beyond) {
            Err(SandboxError::Preparation { reason }) => assert!(reason.contains(limit), "{limit}: {reason}"),
            other => panic!("{limit}: {other:?}"),
        }
    }
    let through_link = many(600, &|number| read(&format!("/link/{number}")));
    assert!(bind(&long_link(20), &through_link).is_ok());
    let refused = bind(&long_link(3900), &through_link).unwrap_err().to_string();
    assert!(refused.contains("bytes of paths"), "{refused}");
}

/// Directories that hold each other, as deep as a path can be.
struct Deep;

impl PathIdentity for Deep {
    fn look(&self, _: &Path) -> io::Result<Seen> {
        Ok(Seen { found: Found::Directory, owner: None })
    }

    fn list(&self, _: &Path) -> io::Result<Vec<(OsString, Found)>> {
        Ok(Vec::new())
    }

    fn read_start(&self, _: &Path, _: usize) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.into())
    }
}

/// Not only is there a limit: what is within it costs little.
#[test]
fn as_much_as_is_allowed_is_bound_and_asked_about_in_time() {
    let started = std::time::Instant::now();
    let wide = (0..4000).map(|number| Entry::path(uri(&format!("/r/{number}")), Access::Write));
    let wide = intent(wide.collect(), 256).entry(Entry::special(Special::Root, Access::Read));
    let bound = bind(&Deep, &wide).unwrap();
    assert_eq!(bound.entries.len(), 4000 + 4 * 256);
    eprintln!("4000 entries, 256 roots: {:?}", started.elapsed());

    let started = std::time::Instant::now();
    // Each is beside the way to the deepest.
    let way = |depth: usize, last: &str| format!("{}/{last}", "/d".repeat(depth));
    let deep = (0..300)
        .map(|depth| Entry::path(uri(&way(depth, "x")), if depth % 2 == 0 { Access::Write } else { Access::Deny }));
    let bound = bind(&Deep, &intent(deep.collect(), 0)).unwrap();
    let deepest = PathBuf::from(way(2000, "f"));
    assert_eq!(bound.access(&deepest), None);
    assert_eq!(bound.access(&PathBuf::from(way(288, "x/y"))), Some(Access::Write));
    eprintln!("300 entries on one way, some deep: {:?}", started.elapsed());

    let started = std::time::Instant::now();
    let slow = glob(format!("/d/**/{}x", "*n".repeat(500)));
    let bound = bind(&Deep, &intent(vec![slow], 0).entry(Entry::special(Special::Root, Access::Read))).unwrap();
    let path: PathBuf = format!("/d{}", format!("/{}", "n".repeat(250)).repeat(15)).into();
    assert_eq!(bound.access(&path), Some(Access::Read));
    eprintln!("a slow pattern: {:?}", started.elapsed());
}

#[test]
fn the_nearest_of_many_entries_is_that_of_the_longest_path_above() {
    let names = ["a", "b", "aa"];
    let mut paths = vec![String::new()];
    for _ in 0..4 {
        let below: Vec<_> = paths.iter().flat_map(|path| names.map(|name| format!("{path}/{name}"))).collect();
        paths.extend(below);
    }
    paths.remove(0);
    paths.sort();
    paths.dedup();
    for step in [2, 3, 5, 7, 11] {
        let entries: HashMap<PathBuf, Access> =
            paths.iter().step_by(step).map(|path| (PathBuf::from(path), Access::Read)).collect();
        let bound = bind(&Deep, &intent(paths.iter().step_by(step).map(|path| read(path)).collect(), 0)).unwrap();
        for path in &paths {
            let simple = Path::new(path).ancestors().find(|above| entries.contains_key(*above));
            assert_eq!(bound.nearest(Path::new(path)).map(|entry| entry.path.as_path()), simple, "{path}");
        }
    }
}
