//! Plans that are used again, against ones that are made anew.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::kernel_mounts::{Cover, Limit};
use super::super::probe;
use super::*;
use crate::sandbox::scene::{Scene, seeds};
use crate::sandbox::{Access, HostPaths, NetworkPolicy};

/// A root with what most have in it, below a directory of its own.
struct Root {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

const DIRECTORIES: [&str; 4] = [".agents", ".git", "deep/secret", "state"];
const FILES: [&str; 1] = ["key"];

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("root");
        DIRECTORIES.iter().for_each(|name| fs::create_dir_all(path.join(name)).unwrap());
        FILES.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
        Self { _dir: dir, path }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// It may be written, but for some of what is in it.
    fn bound(&self) -> Arc<Bound> {
        let entries = [
            ("", Access::Write),
            (".agents", Access::Read),
            (".codex", Access::Read),
            (".git", Access::Read),
            ("deep/secret", Access::Deny),
            ("key", Access::Deny),
            ("state", Access::Deny),
        ];
        let entries =
            entries.map(|(name, access)| (if name.is_empty() { self.path.clone() } else { self.at(name) }, access));
        bound(entries)
    }
}

/// All may be read, but for these entries.
fn bound(entries: impl IntoIterator<Item = (PathBuf, Access)>) -> Arc<Bound> {
    let entries: Vec<_> = entries.into_iter().collect();
    super::super::tests::bound(Some(Access::Read), NetworkPolicy::Restricted, &entries)
}

/// A kernel that lets everybody make everything, and has Landlock.
fn kernel() -> Kernel {
    let found = probe::kernel().unwrap().clone();
    Kernel { mode: Mode::User, fresh_proc: true, network: true, landlock: Some(7), ..found }
}

fn usual(bound: &Arc<Bound>) -> For<'_> {
    let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
    For { bound, settings, accept_partial: true }
}

/// Plans it in both ways, which come to the same. Whether a plan was used again, or why there is none.
fn is_again(plans: &Plans, kernel: &Kernel, what: For<'_>) -> Result<bool, String> {
    let before = plans.find(what);
    let (plan, anew) = (plans.prepare(kernel, what), Plans::new().prepare(kernel, what));
    match (plan, anew) {
        (Ok(plan), Ok(anew)) => {
            assert_eq!(format!("{:?}", plan.shape), format!("{:?}", anew.shape));
            assert_eq!((&plan.enforcement, &plan.bound), (&anew.enforcement, what.bound));
            Ok(before.is_some_and(|before| Arc::ptr_eq(&before.enforcement, &plan.enforcement)))
        }
        (Err(error), Err(anew)) => {
            assert_eq!(error.to_string(), anew.to_string());
            Err(error.to_string())
        }
        (plan, anew) => panic!("{plan:?} {anew:?}"),
    }
}

fn known(plans: &Plans) -> usize {
    plans.last.lock().unwrap().len()
}

#[test]
fn a_plan_is_used_again_with_the_directories_that_are_there_now() {
    let (plans, kernel, root) = (Plans::new(), kernel(), Root::new());
    let bound = root.bound();
    assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(false));
    assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(true));
    // Each has another one as its neighbour was.
    let mut names = DIRECTORIES.map(|name| root.at(name));
    for _ in 0..DIRECTORIES.len() {
        let last = plans.prepare(&kernel, usual(&bound)).unwrap();
        let as_it_was = format!("{:?}", last.shape);
        let aside = root.path.with_file_name("aside");
        names.rotate_left(1);
        fs::rename(&names[0], &aside).unwrap();
        names.windows(2).for_each(|two| fs::rename(&two[1], &two[0]).unwrap());
        fs::rename(&aside, &names[names.len() - 1]).unwrap();
        // Bound anew, it is the same.
        assert_eq!(is_again(&plans, &kernel, usual(&root.bound())), Ok(true));
        assert_eq!(format!("{:?}", last.shape), as_it_was, "whoever starts by it still has it");
        assert_ne!(format!("{:?}", plans.prepare(&kernel, usual(&bound)).unwrap().shape), as_it_was);
    }
    assert_eq!(known(&plans), 1);
}

#[test]
fn what_is_found_to_be_something_else_is_planned_anew() {
    type Change = fn(&Root);
    let changes: [(Change, bool); 8] = [
        (|root| fs::create_dir(root.at(".codex")).unwrap(), true),
        (|root| fs::write(root.at(".codex"), "").unwrap(), true),
        (|root| fs::remove_dir(root.at(".git")).unwrap(), false),
        (|root| fs::remove_file(root.at("key")).unwrap(), false),
        (
            |root| {
                fs::remove_dir(root.at(".agents")).unwrap();
                fs::write(root.at(".agents"), "").unwrap();
            },
            true,
        ),
        (
            |root| {
                fs::remove_file(root.at("key")).unwrap();
                fs::create_dir(root.at("key")).unwrap();
            },
            true,
        ),
        (|root| fs::remove_dir_all(&root.path).unwrap(), false),
        (
            |root| {
                fs::remove_dir(root.at("state")).unwrap();
                std::os::unix::fs::symlink("deep", root.at("state")).unwrap();
            },
            false,
        ),
    ];
    for (number, (change, is_possible)) in changes.into_iter().enumerate() {
        let (plans, kernel, root) = (Plans::new(), kernel(), Root::new());
        let bound = root.bound();
        assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(false));
        assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(true));
        change(&root);
        match is_again(&plans, &kernel, usual(&bound)) {
            Ok(again) => assert!(!again && is_possible, "{number}"),
            Err(error) => {
                let says = ["become a link", "has changed"].iter().any(|text| error.contains(text));
                assert!(!is_possible && says, "{number} {error}");
            }
        }
        assert_eq!(is_again(&plans, &kernel, usual(&bound)).is_ok_and(|again| again), is_possible, "{number}");
        assert_eq!(known(&plans), 1, "in the place of the one before");
    }
}

#[test]
fn other_intents_and_other_decisions_are_others_and_the_last_few_are_kept() {
    let (plans, kernel, root) = (Plans::new(), kernel(), Root::new());
    let (bound, ports) = (root.bound(), [1, 2].map(|count| ManagedNetworkFacts::ports(1..=count)));
    let open = Arc::new(Bound { network: NetworkPolicy::Enabled, ..Bound::clone(&bound) });
    let usual = usual(&bound);
    let with = |change: fn(&mut Settings<'_>)| {
        let mut settings = usual.settings;
        change(&mut settings);
        For { settings, ..usual }
    };
    let managed = |ports| For { settings: Settings { managed: Some(ports), ..usual.settings }, ..usual };
    let others = [
        usual,
        For { accept_partial: false, ..usual },
        For { bound: &open, ..usual },
        with(|settings| settings.private_loopback = true),
        with(|settings| settings.without.mounts = true),
        with(|settings| settings.without.landlock = true),
        with(|settings| settings.without.network = true),
        managed(&ports[0]),
        managed(&ports[1]),
    ];
    for other in others {
        assert_eq!(is_again(&plans, &kernel, other), Ok(false), "{other:?}");
        assert_eq!(is_again(&plans, &kernel, other), Ok(true), "{other:?}");
    }
    assert_eq!(known(&plans), MOST);
    assert_eq!(is_again(&plans, &kernel, others[0]), Ok(false), "it was kept the longest");
    assert_eq!(is_again(&plans, &kernel, others[8]), Ok(true));
}

#[test]
fn with_other_mounts_of_the_kernels_it_is_planned_anew() {
    let (plans, kernel, root) = (Plans::new(), kernel(), Root::new());
    let bound = root.bound();
    let mounts = |limit| {
        let found = Looks::default().look(&root.at("deep")).unwrap().unwrap();
        Arc::new(KernelMounts::with([Cover { path: root.at("deep"), limit, found }]))
    };
    let plan = |mounts| plans.prepare_where(mounts, &kernel, usual(&bound)).unwrap();
    let is_same = |one: &SandboxPlan, other: &SandboxPlan| Arc::ptr_eq(&one.shape, &other.shape);
    let mut before = plan(Arc::default());
    assert!(is_same(&before, &plan(Arc::default())));
    for limit in [Limit::Hidden, Limit::ReadOnly] {
        let now = plan(mounts(limit));
        assert!(!is_same(&before, &now) && is_same(&now, &plan(mounts(limit))));
        assert_eq!(known(&plans), 1);
        before = now;
    }
    // A directory of the same name is no reason to leave out what it stood for.
    let limits = mounts(Limit::ReadOnly);
    fs::rename(root.at("deep"), root.at("moved")).unwrap();
    fs::create_dir_all(root.at("deep/secret")).unwrap();
    let refused = plans.prepare_where(limits, &kernel, usual(&bound));
    assert!(refused.unwrap_err().to_string().contains("has changed"));
    assert!(!is_same(&before, &plan(Arc::default())));
}

#[test]
fn where_two_names_are_one_file_or_there_are_very_many_it_is_planned_each_time() {
    let (kernel, root) = (kernel(), Root::new());
    fs::hard_link(root.at("key"), root.at("other")).unwrap();
    let entries = |names: &[String]| {
        let names = names.iter().map(|name| (root.at(name), Access::Deny));
        bound([(root.path.clone(), Access::Write)].into_iter().chain(names))
    };
    let many: Vec<String> = (100..300).map(|number| number.to_string()).collect();
    many.iter().for_each(|name| fs::write(root.at(name), "").unwrap());
    let plans = Plans::new();
    for bound in [entries(&["key".into(), "other".into()]), entries(&many)] {
        for _ in 0..2 {
            assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(false));
            assert_eq!(known(&plans), 0);
        }
    }
    assert_eq!(is_again(&plans, &kernel, usual(&entries(&many[..50]))), Ok(false));
    assert_eq!(is_again(&plans, &kernel, usual(&entries(&many[..50]))), Ok(true));
}

#[test]
fn whatever_happens_to_a_tree_a_plan_that_is_used_again_is_the_one_that_would_be_made() {
    let (kernel, plans) = (kernel(), Plans::new());
    let (mut again, mut anew) = (0, 0);
    for seed in seeds(12) {
        let scene = Scene::new(seed, false);
        let Ok(mut bound) = scene.bind() else { continue };
        bound.expand_globs(&HostPaths).unwrap();
        let bound = Arc::new(bound);
        let mut plan = || match is_again(&plans, &kernel, usual(&bound)) {
            Ok(true) => again += 1,
            Ok(false) | Err(_) => anew += 1,
        };
        plan();
        // Some lead out of it, to what is the system's: nothing there may be touched.
        let is_ours = |path: &PathBuf| path.starts_with(&scene.top) && path.exists();
        let paths: Vec<PathBuf> = scene.canonical_paths().into_iter().filter(is_ours).collect();
        for (number, path) in paths.iter().enumerate() {
            let is_directory = path.is_dir();
            swap(path, number);
            plan();
            // Nothing is planned as long as something is gone.
            match path.symlink_metadata() {
                Ok(_) => {}
                Err(_) if is_directory => fs::create_dir(path).unwrap(),
                Err(_) => fs::write(path, "").unwrap(),
            }
        }
    }
    assert!(std::env::var_os("LONGARM_SEED").is_some() || again > 0 && anew > 0, "{again} {anew}");
}

/// Puts something else, or nothing, in the place of a path, if it is there and empty.
fn swap(path: &Path, number: usize) {
    let is_directory = path.is_dir();
    let removed = if is_directory { fs::remove_dir(path) } else { fs::remove_file(path) };
    match number % 3 {
        _ if removed.is_err() => {}
        0 if is_directory => fs::create_dir(path).unwrap(),
        0 => fs::write(path, "").unwrap(),
        1 if is_directory => fs::write(path, "").unwrap(),
        1 => fs::create_dir(path).unwrap(),
        _ => {}
    }
}

#[test]
fn a_plan_that_is_known_is_not_one_for_a_tree_in_which_something_is_away() {
    let (plans, kernel, root) = (Plans::new(), kernel(), Root::new());
    let bound = root.bound();
    assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(false));
    for name in ["key", ".git", "deep"] {
        let aside = root.path.with_file_name("aside");
        fs::rename(root.at(name), &aside).unwrap();
        let refused = is_again(&plans, &kernel, usual(&bound)).unwrap_err();
        assert!(refused.contains(root.at(name).to_str().unwrap()) && refused.contains("has changed"), "{refused}");
        // Bound while it is away, it is a name that is missing.
        assert_eq!(is_again(&plans, &kernel, usual(&root.bound())), Ok(false));
        fs::rename(&aside, root.at(name)).unwrap();
        assert_eq!(is_again(&plans, &kernel, usual(&bound)), Ok(true));
    }
}
