//! Both walls against what the intent says, for every path of a small tree.

mod gone;
mod scenes;

use proptest::prelude::*;

use super::*;
use crate::backend::local::tests::needs;
use crate::backend::local::unix::sandbox::kernel_mounts::{Cover, KernelMounts};
use crate::backend::local::unix::sandbox::probe;
use crate::sandbox::{BoundEntry, Class, Existing, Origin};

const NAMES: [&str; 2] = ["a", "b"];

/// All paths of three levels below `root`, and `root`.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_path_buf()];
    let mut level = all.clone();
    for _ in 0..3 {
        level = level.iter().flat_map(|path| NAMES.map(|name| path.join(name))).collect();
        all.extend(level.iter().cloned());
    }
    all
}

fn bound(root: Option<Access>, entries: &[(PathBuf, Access)]) -> Bound {
    let entries: BTreeMap<PathBuf, Access> = entries.iter().cloned().collect();
    Bound {
        class: Class::RestrictedRead,
        root,
        entries: entries
            .into_iter()
            .map(|(path, access)| BoundEntry {
                lexical: path.clone(),
                path,
                access,
                kind: Existing::Directory,
                skip_missing: false,
                origin: Origin::Entry,
            })
            .collect(),
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

fn absolute(path: &std::ffi::CStr) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(path.to_bytes()))
}

/// Where each step puts something, and what can be done with that.
fn put(namespaces: &Namespaces) -> Vec<(PathBuf, Access)> {
    let place = |source: usize| absolute(&namespaces.sources[source].path);
    let puts = namespaces.steps.iter().map(|step| match step {
        Step::Attach { source, target } => {
            let at = match target {
                Target::Source => place(*source),
                Target::Path(path, _) => absolute(path),
            };
            assert_eq!(at, place(*source), "a place is attached to itself");
            (at, if namespaces.sources[*source].writable { Access::Write } else { Access::Read })
        }
        Step::Mask { target: Target::Path(path, _), .. } => (absolute(path), Access::Deny),
        Step::Mask { .. } => panic!("a mask has no source"),
    });
    puts.collect()
}

/// What the mounts allow: whatever was put nearest above the path.
fn mounted(namespaces: &Namespaces, puts: &[(PathBuf, Access)], path: &Path) -> Option<Access> {
    let nearest = puts.iter().filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    nearest.map(|(_, access)| *access).or(match namespaces.base {
        Base::Writable => Some(Access::Write),
        Base::ReadOnly => Some(Access::Read),
        Base::Empty => None,
    })
}

/// What Landlock allows: the sum of all rules above the path.
fn ruled(landlock: &Landlock, namespaces: &Namespaces, path: &Path) -> u64 {
    let at = |rule: &Rule| match &rule.at {
        At::Source(index) => absolute(&namespaces.sources[*index].path),
        At::Path(at) if at.as_bytes() == b"." => PathBuf::from("/"),
        At::Path(at) => absolute(at),
    };
    landlock
        .rules
        .iter()
        .filter(|rule| path.starts_with(at(rule)))
        .map(|rule| rule.access)
        .fold(0, |all, one| all | one)
}

fn check(bound: &Bound, paths: &[PathBuf], kernel: &Kernel) {
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    let shape = shape(bound, &settings, kernel, &Looks::default()).unwrap();
    let namespaces = shape.namespaces().unwrap();
    let puts = put(namespaces);
    for (index, (later, _)) in puts.iter().enumerate() {
        assert!(puts[..index].iter().all(|(earlier, _)| !earlier.starts_with(later)), "nothing is covered: {puts:?}");
    }
    let rights = Rights::new(kernel.landlock.unwrap());
    for path in paths {
        let allowed = bound.access(path);
        let mounted = mounted(namespaces, &puts, path);
        let nothing = |access: Option<Access>| access.unwrap_or(Access::Deny);
        assert_eq!(nothing(mounted), nothing(allowed), "{} by {bound:?}: {shape:?}", path.display());
        let Some(landlock) = &shape.landlock else { continue };
        if landlock.handled.files == 0 {
            assert_eq!(bound.root, Some(Access::Write));
            continue;
        }
        let ruled = ruled(landlock, namespaces, path);
        let (read, write) = (rights.read(path.is_dir()), rights.write(path.is_dir()));
        if allowed >= Some(Access::Read) {
            assert_eq!(ruled & read, read, "{} can be read", path.display());
        }
        if allowed == Some(Access::Write) {
            assert_eq!(ruled & write, write, "{} can be written", path.display());
        }
        // No wider than the roots: what is taken back below is the mounts' part alone.
        let in_root = path.ancestors().any(|above| bound.access(above) == Some(Access::Write));
        let changes = rights.write(true) & !rights.read(true);
        assert!(in_root || ruled & changes == 0, "{} is in no root", path.display());
        let visible = path.ancestors().any(|above| bound.access(above) >= Some(Access::Read));
        assert!(visible || ruled & !rights.list() == 0, "{} is not visible", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn both_walls_are_what_the_intent_says(
        root in prop::sample::select(vec![None, Some(Access::Read), Some(Access::Write)]),
        chosen in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(vec![Access::Deny, Access::Read, Access::Write])),
            0..6,
        ),
    ) {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let top = directory.path().canonicalize().unwrap();
        let paths = paths(&top);
        for path in &paths {
            std::fs::create_dir_all(path).unwrap();
        }
        let entries: Vec<(PathBuf, Access)> =
            chosen.iter().map(|(index, access)| (index.get(&paths).clone(), *access)).collect();
        let kernel = Kernel {
            mode: Mode::User,
            fresh_proc: true,
            network: true,
            landlock: Some(7),
            ..probe::kernel().unwrap().clone()
        };
        check(&bound(root, &entries), &paths, &kernel);
    }
}

#[test]
fn what_is_made_anew_for_each_process_cannot_be_denied() {
    let kernel = Kernel { mode: Mode::User, ..probe::kernel().unwrap().clone() };
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    for path in ["/proc/cpuinfo", "/dev"] {
        let denied = bound(Some(Access::Read), &[(path.into(), Access::Deny)]);
        let refused = shape(&denied, &settings, &kernel, &Looks::default());
        assert!(matches!(refused, Err(SandboxError::Preparation { reason }) if reason.contains(path)));
        let written = bound(Some(Access::Read), &[(path.into(), Access::Write)]);
        let shape = shape(&written, &settings, &kernel, &Looks::default()).unwrap();
        assert!(shape.namespaces().unwrap().steps.is_empty(), "it is not the host's");
    }
}

#[test]
fn ports_are_listened_on_once_and_never_on_none() {
    assert_eq!(unique(&[80, 0, 8080, 80]), [80, 8080]);
    let kernel = Kernel { mode: Mode::User, ..probe::kernel().unwrap().clone() };
    let with = |ports| {
        let managed = ManagedNetworkFacts::ports(1..=ports);
        let settings = Settings { private_loopback: false, managed: Some(&managed), without: Walls::default() };
        shape(&bound(Some(Access::Read), &[]), &settings, &kernel, &Looks::default())
    };
    assert!(with(64).is_ok());
    assert!(matches!(with(65), Err(SandboxError::Preparation { reason }) if reason.contains("64 loopback ports")));
}

#[test]
fn what_of_the_kernels_is_mounted_elsewhere_has_its_limits() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let top = directory.path().canonicalize().unwrap();
    let at = |path: &str| top.join(path);
    for path in ["o/proc/1", "w/proc/sys", "w/secret", "w/sys/bus", "w/sys/proc"] {
        std::fs::create_dir_all(at(path)).unwrap();
    }
    let looks = Looks::default();
    let cover = |(path, limit)| Cover { path: at(path), limit, found: looks.look(&at(path)).unwrap().unwrap() };
    let mounts = [
        ("o/proc", Limit::Hidden),
        ("w/proc", Limit::Hidden),
        ("w/sys", Limit::ReadOnly),
        ("w/sys/proc", Limit::Hidden),
    ];
    let mounts = Arc::new(KernelMounts::with(mounts.map(cover)));
    let kernel = Kernel {
        mode: Mode::User,
        fresh_proc: true,
        network: true,
        landlock: Some(7),
        ..probe::kernel().unwrap().clone()
    };
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    let (denied, read, written) = (Some(Access::Deny), Some(Access::Read), Some(Access::Write));
    let named =
        [("w", Access::Write), ("w/sys/bus", Access::Write), ("w/proc/sys", Access::Read), ("o/proc/1", Access::Deny)];
    let seen = [("w", Access::Write), ("o/proc/1", Access::Read)];
    let secret = [("w/secret", Access::Deny)];
    type Case<'a> = (Option<Access>, &'a [(&'a str, Access)], [Option<Access>; 6]);
    let cases: [Case<'_>; 7] = [
        (read, &[], [denied, denied, denied, read, read, denied]),
        (read, &named, [denied, denied, denied, read, read, denied]),
        (written, &[], [denied, denied, denied, written, written, denied]),
        (written, &secret, [denied, denied, denied, read, read, denied]),
        (None, &[("w", Access::Write)], [None, denied, denied, read, read, denied]),
        (None, &seen, [None, denied, denied, read, read, denied]),
        (read, &[("o", Access::Deny), ("w", Access::Deny)], [denied; 6]),
    ];
    for (root, entries, expected) in cases {
        let entries: Vec<_> = entries.iter().map(|(path, access)| (at(path), *access)).collect();
        let bound = bound(root, &entries);
        let shape = shape(&bound, &settings, &kernel, &Looks::with(Arc::clone(&mounts))).unwrap();
        let namespaces = shape.namespaces().unwrap();
        let puts = put(namespaces);
        let paths = ["o/proc/1", "w/proc", "w/proc/sys", "w/sys", "w/sys/bus", "w/sys/proc"];
        assert_eq!(paths.map(|path| mounted(namespaces, &puts, &at(path))), expected, "{bound:?}: {puts:?}");
        for (index, (later, _)) in puts.iter().enumerate() {
            assert!(
                puts[..index].iter().all(|(earlier, _)| !earlier.starts_with(later)),
                "nothing is covered: {puts:?}"
            );
        }
        let landlock = shape.landlock.as_ref().unwrap();
        let writes = Rights::new(7).write(true) & !Rights::new(7).read(true);
        let is_about = |rule: &&Rule, path: &str| match &rule.at {
            At::Source(index) => absolute(&namespaces.sources[*index].path).starts_with(at(path)),
            At::Path(found) => absolute(found).starts_with(at(path)),
        };
        assert!(!landlock.rules.iter().any(|rule| is_about(&rule, "w/proc") || is_about(&rule, "o/proc")));
        assert!(!landlock.rules.iter().any(|rule| is_about(&rule, "w/sys") && rule.access & writes != 0));
    }
    // Another one is there by now.
    std::fs::rename(at("o/proc"), at("moved")).unwrap();
    std::fs::create_dir(at("o/proc")).unwrap();
    let refused = shape(&bound(read, &[]), &settings, &kernel, &Looks::with(mounts));
    assert!(matches!(refused, Err(SandboxError::Changed { reason }) if reason.contains("o/proc has changed")));
}

/// A kernel that has both walls.
fn kernel() -> Kernel {
    let found = probe::kernel().unwrap().clone();
    Kernel { mode: Mode::User, fresh_proc: true, network: true, landlock: Some(7), ..found }
}

/// Whether a rule lets something at or below this path be written to.
fn is_writable_by_rules(shape: &Shape, path: &Path) -> bool {
    let writes = Rights::new(7).write(true) & !Rights::new(7).read(true);
    let at = |rule: &Rule| match &rule.at {
        At::Source(index) => absolute(&shape.namespaces().unwrap().sources[*index].path),
        At::Path(found) => absolute(found),
    };
    shape.landlock.as_ref().unwrap().rules.iter().any(|rule| at(rule).starts_with(path) && rule.access & writes != 0)
}

#[test]
fn settings_of_the_machine_are_not_written_by_an_entry_for_them_either() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let secret = directory.path().canonicalize().unwrap();
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    for root in [None, Some(Access::Read), Some(Access::Write)] {
        for named in ["/sys", "/sys/kernel"] {
            let bound = bound(root, &[(named.into(), Access::Write), (secret.clone(), Access::Deny)]);
            let shape = shape(&bound, &settings, &kernel(), &Looks::default()).unwrap();
            let namespaces = shape.namespaces().unwrap();
            let puts = put(namespaces);
            for path in [named, "/sys/kernel/mm"] {
                let mounted = mounted(namespaces, &puts, Path::new(path));
                assert_eq!(mounted, Some(Access::Read), "{path} by {bound:?}: {puts:?}");
            }
            assert!(!is_writable_by_rules(&shape, Path::new("/sys")), "{bound:?}: {shape:?}");
        }
    }
}

#[test]
fn what_of_the_kernels_is_mounted_in_shared_memory_has_its_limits() {
    let directory = match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => directory,
        Err(error) => return needs::skipped("what is mounted in /dev/shm", &error.to_string()),
    };
    let top = directory.path().canonicalize().unwrap();
    let [system, processes] = ["sys", "proc"].map(|name| top.join(name));
    for path in [&system, &processes] {
        std::fs::create_dir(path).unwrap();
    }
    let looks = Looks::default();
    let cover = |path: &PathBuf, limit| Cover { path: path.clone(), limit, found: looks.look(path).unwrap().unwrap() };
    let mounts = KernelMounts::with([cover(&processes, Limit::Hidden), cover(&system, Limit::ReadOnly)]);
    let bound = bound(Some(Access::Read), &[(system.clone(), Access::Write), (processes, Access::Read)]);
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    let shape = shape(&bound, &settings, &kernel(), &Looks::with(Arc::new(mounts))).unwrap();
    let sources = &shape.namespaces().unwrap().sources;
    let sources: Vec<_> = sources.iter().map(|source| (absolute(&source.path), source.writable)).collect();
    assert_eq!(sources, [(system, false)]);
    assert!(!is_writable_by_rules(&shape, &top), "{shape:?}");
}
