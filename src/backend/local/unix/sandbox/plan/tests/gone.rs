//! What was there when the intent was bound, and is gone when the sandbox is planned.

use std::fs;

use super::*;
use crate::path_uri::PathUri;
use crate::sandbox::{Facts, HostPaths, SandboxIntent};

struct Root {
    path: PathBuf,
    kernel: Kernel,
    _directory: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(path.join(".git")).unwrap();
        fs::create_dir_all(path.join("deep/er")).unwrap();
        for name in ["deep/er/secret.key", "secret"] {
            fs::write(path.join(name), "").unwrap();
        }
        let kernel = Kernel { mode: Mode::User, landlock: Some(7), ..probe::kernel().unwrap().clone() };
        Self { path, kernel, _directory: directory }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn uri(&self, name: &str) -> PathUri {
        PathUri::from_host_native_path(self.at(name)).unwrap()
    }

    fn bind(&self, intent: &SandboxIntent) -> Bound {
        let settings = SandboxSettings::default();
        intent.bind(&Facts::host(&settings, &self.path.with_file_name("none"))).unwrap()
    }

    fn plan(&self, bound: &Bound) -> Result<Shape, SandboxError> {
        let settings = Settings { private_loopback: false, managed: None, without: Walls::default() };
        shape(bound, &settings, &self.kernel, &Looks::default())
    }

    /// While `name` is away.
    fn without<T>(&self, name: &str, act: impl FnOnce() -> T) -> T {
        let aside = self.path.with_file_name("aside");
        fs::rename(self.at(name), &aside).unwrap();
        let acted = act();
        fs::rename(&aside, self.at(name)).unwrap();
        acted
    }
}

fn says_changed(refused: Result<Shape, SandboxError>, path: &Path) -> bool {
    let Err(SandboxError::Changed { reason }) = refused else { return false };
    reason.contains(&format!("{} has changed", path.display()))
}

#[test]
fn what_is_gone_since_the_intent_was_bound_refuses_the_plan_and_what_was_missing_does_not() {
    let root = Root::new();
    let (read, write) = (SandboxIntent::read_only(), SandboxIntent::read_only().write(root.uri("")));
    let workspace = SandboxIntent::workspace_write([root.uri("")]);
    let minimal = SandboxIntent::minimal_write([root.uri("deep")]).read(root.uri("secret"));
    let cases = [
        (read.clone().deny(root.uri("secret")), "secret"),
        (read.clone().deny(root.uri("deep/er")), "deep/er"),
        (read.deny(root.uri("deep/er")), "deep"),
        (write.clone().deny(root.uri("secret")), "secret"),
        (write.clone().read(root.uri("secret")), "secret"),
        (write.clone().read(root.uri("deep/er/secret.key")), "deep/er/secret.key"),
        (write.read(root.uri("deep/er/secret.key")), "deep/er"),
        (workspace, ".git"),
        (SandboxIntent::disabled().deny(root.uri("secret")), "secret"),
        (minimal.clone(), "deep"),
        (minimal, "secret"),
    ];
    for (intent, away) in cases {
        let bound = root.bind(&intent);
        assert!(root.plan(&bound).is_ok(), "{intent:?}");
        let named = bound.entries.iter().map(|entry| &entry.path).find(|path| path.starts_with(root.at(away))).unwrap();
        assert!(says_changed(root.without(away, || root.plan(&bound)), named), "{away} {intent:?}");
        let missing = root.without(away, || root.bind(&intent));
        assert!(root.without(away, || root.plan(&missing)).is_ok(), "{away} {intent:?}");
    }
}

#[test]
fn a_name_for_which_something_was_placed_must_have_it_still() {
    let root = Root::new();
    let intent = SandboxIntent::workspace_write([root.uri("")]).deny(root.uri("new"));
    let mut bound = root.bind(&intent);
    assert!(root.plan(&bound).is_ok());
    let new = root.at("new");
    fs::create_dir(&new).unwrap();
    bound.come_to_exist(&new);
    assert!(root.plan(&bound).is_ok());
    assert!(says_changed(root.without("new", || root.plan(&bound)), &new));
}

#[test]
fn a_directory_that_is_to_be_held_must_be_there_where_it_was() {
    let root = Root::new();
    let hold = |name: &str, is_there| {
        let looks = Looks::default();
        let mut tree = Tree::new(Base::ReadOnly, &root.kernel, &looks);
        tree.hold(&root.at(name), is_there).map(|()| tree.held.len())
    };
    let depth = root.at("deep/er").components().count() - 1;
    for is_there in [false, true] {
        assert_eq!(hold("deep/er", is_there), Ok(depth));
    }
    // Of a file there is nothing to hold but what it is in.
    assert_eq!(hold("deep/er/secret.key", false), Ok(depth));
    assert!(hold("deep/er/secret.key", true).is_err());
    assert_eq!(root.without("deep", || hold("deep/er", false)), Ok(depth - 2));
    let refused = root.without("deep", || hold("deep/er", true)).unwrap_err();
    assert!(refused.to_string().contains(&format!("{} has changed", root.at("deep/er").display())), "{refused}");
}

#[test]
fn a_root_is_held_where_the_directory_that_it_is_in_is_writable() {
    let root = Root::new();
    let held = |bound: &Bound| {
        let shape = root.plan(bound).unwrap();
        let held = &shape.namespaces().unwrap().held;
        held.iter().map(|hold| absolute(&hold.top).join(OsStr::from_bytes(hold.path.to_bytes()))).collect::<Vec<_>>()
    };
    let within = |roots: &[&str]| {
        let intent = SandboxIntent::read_only().write(root.uri(""));
        roots.iter().fold(intent, |intent, name| intent.workspace_root(root.uri(name)))
    };
    let free = |intent: SandboxIntent| {
        [".git", ".agents", ".codex", ".aws"].into_iter().fold(intent, |intent, name| intent.write_below_roots(name))
    };
    assert_eq!(held(&root.bind(&free(within(&["deep/er"])))), [root.at("deep/er"), root.at("deep")]);
    assert_eq!(held(&root.bind(&free(within(&["deep"])))), [root.at("deep")]);
    // One that is a file stays a file, and one that is mounted stays where it is.
    assert_eq!(held(&root.bind(&free(within(&["secret", ""])))), Vec::<PathBuf>::new());
    // Where all may be written there is nothing to keep.
    let all = SandboxIntent::no_network().workspace_root(root.uri("deep"));
    assert_eq!(held(&root.bind(&all)), Vec::<PathBuf>::new());
}

#[test]
fn the_beginning_of_a_pattern_must_be_there_where_it_was() {
    let root = Root::new();
    let pattern = |base: &str| {
        let intent = SandboxIntent::read_only().write(root.uri(""));
        intent.deny_glob(format!("{}/**/*.key", root.at(base).display()))
    };
    let expanded = |bound: &Bound| {
        let mut bound = bound.clone();
        bound.expand_globs(&HostPaths).map(|()| bound)
    };
    for (base, away) in [("deep/er", "deep/er"), ("deep", "deep")] {
        let bound = root.bind(&pattern(base));
        let refused = root.without(away, || expanded(&bound)).unwrap_err().to_string();
        assert!(refused.contains(&format!("{} has changed", root.at(base).display())), "{refused}");
        let all = expanded(&bound).unwrap();
        assert!(root.plan(&all).is_ok());
        assert!(says_changed(root.without(away, || root.plan(&all)), &root.at("deep/er/secret.key")));
        // In the end what is gone may be, but not what it was in.
        let mut matched = all.clone();
        matched.let_matches_go();
        assert!(root.without("deep/er/secret.key", || root.plan(&matched)).is_ok());
        assert!(says_changed(root.without("deep/er/secret.key", || root.plan(&all)), &root.at("deep/er/secret.key")));
        // Nothing matches, and something may later.
        assert!(says_changed(root.without(away, || root.plan(&bound)), &root.at(base)));
    }
    let bound = root.bind(&pattern("none/yet"));
    assert!(root.plan(&expanded(&bound).unwrap()).is_ok());
}
