use super::*;
use crate::sandbox::{Access, Existing};

fn names(root: &Path, names: &[&str]) -> Vec<ProtectedName> {
    let name = |name: &&str| {
        let path = root.join(name);
        let state = if path.exists() { Existing::Directory } else { Existing::Missing };
        ProtectedName {
            root: root.into(),
            path,
            state,
            access: Access::Read,
            git_dir: None,
            placeholder: true,
            required: false,
        }
    };
    names.iter().map(name).collect()
}

#[test]
fn what_appeared_or_was_exchanged_is_told_and_what_stayed_or_went_is_not() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for existing in [".git", ".aws", ".agents"] {
        fs::create_dir(root.join(existing)).unwrap();
    }
    let names = names(root, &[".git", ".aws", ".agents", ".codex", ".missing"]);
    let held = Placeholders::new(None).hold(&names, MissingProtected::Placeholder);
    assert!(held.changed().is_empty());
    assert!(!root.join(".codex").exists(), "nothing is made");
    // Content is no matter of the name.
    fs::write(root.join(".git/config"), "").unwrap();
    fs::rename(root.join(".aws"), root.join("gone")).unwrap();
    fs::create_dir(root.join("other")).unwrap();
    fs::rename(root.join(".agents"), root.join("old")).unwrap();
    fs::rename(root.join("other"), root.join(".agents")).unwrap();
    fs::write(root.join(".codex"), "x").unwrap();
    let [agents, codex] = [root.join(".agents"), root.join(".codex")];
    assert_eq!(held.changed(), [(agents.as_path(), NameChange::Replaced), (codex.as_path(), NameChange::Appeared)]);
    assert!(held.set_aside().is_empty() && codex.exists());
}

#[test]
fn what_appeared_stays_unless_the_owner_wants_it_moved() {
    let root = tempfile::tempdir().unwrap();
    let names = names(root.path(), &[".codex"]);
    let held = Placeholders::new(None).hold(&names, MissingProtected::Check);
    fs::create_dir(root.path().join(".codex")).unwrap();
    assert_eq!((held.changed().len(), held.set_aside().len()), (1, 0));
    assert!(root.path().join(".codex").is_dir());
}

#[test]
fn what_appeared_is_moved_to_the_executors_directory_or_beside_its_name() {
    let [root, own] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    fs::write(own.path().join("file"), "").unwrap();
    for directory in [Some(own.path().join("made")), Some(own.path().join("file")), None] {
        let is_own = directory.as_ref().is_some_and(|directory| directory.ends_with("made"));
        let names = names(root.path(), &[".codex", ".git"]);
        let held = Placeholders::new(directory).hold(&names, MissingProtected::SetAside);
        fs::create_dir(root.path().join(".codex")).unwrap();
        let moved = held.set_aside();
        let [(from, to)] = &*moved else { panic!("one: {moved:?}") };
        assert_eq!(*from, root.path().join(".codex"));
        assert_eq!(to.starts_with(own.path()), is_own, "{to:?}");
        assert!(to.is_dir() && !from.exists());
        assert!(held.changed().is_empty() && held.set_aside().is_empty());
    }
}
