//! Directories that are exchanged for links while something is done in them, or of which the mode is changed.

use std::os::unix::fs::symlink;

use super::*;
use crate::backend::local::names::Unheld;
use crate::backend::local::unix::sandbox::tests::{NOBODY, by_an_ordinary_user};

/// A root that somebody exchanges, where it is then, and what its path leads to then.
struct Exchange {
    scene: Scene,
    moved: PathBuf,
    other: PathBuf,
}

impl Exchange {
    fn new() -> Self {
        let scene = Scene::new();
        let [moved, other] = ["moved", "other"].map(|name| scene.root.with_file_name(name));
        fs::create_dir(&other).unwrap();
        Self { scene, moved, other }
    }

    fn there(&self) {
        fs::rename(&self.scene.root, &self.moved).unwrap();
        symlink(&self.other, &self.scene.root).unwrap();
    }

    fn back(&self) {
        fs::remove_file(&self.scene.root).unwrap();
        fs::rename(&self.moved, &self.scene.root).unwrap();
    }

    fn protected(&self) -> [ProtectedName; 2] {
        NAMES.map(|name| ProtectedName {
            root: self.scene.root.clone(),
            path: self.scene.root.join(name),
            state: Existing::Missing,
            access: Access::Read,
            git_dir: None,
            placeholder: true,
            required: false,
        })
    }
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

/// How many directories are open that names are in.
fn open_parents(executor: &Placeholders) -> usize {
    executor.shared.state().parents.values().filter(|parent| parent.strong_count() > 0).count()
}

#[test]
fn nothing_is_made_where_only_a_link_leads() {
    let at = Exchange::new();
    at.there();
    let executor = at.scene.executor();
    let held = at.scene.hold(&executor);
    let unheld: Vec<_> = held.unheld().map(|(_, why)| why).collect();
    assert!(unheld.len() == 2, "{unheld:?}");
    let is_told = |why: &&Unheld| matches!(why, Unheld::Failed(why) if why.contains("exchanged for a symbolic link"));
    assert!(unheld.iter().all(is_told), "{unheld:?}");
    drop(held);
    assert_eq!((entries(&at.other), entries(&at.moved), at.scene.written()), (0, 0, 0));
}

#[test]
fn names_are_held_in_the_directory_that_was_opened_and_let_go_there() {
    for made_ahead in [false, true] {
        for back in [false, true] {
            let at = Exchange::new();
            let executor = at.scene.executor();
            let mut runs = 0;
            while made_ahead && executor.shared.state().stock.ready.is_empty() {
                let mut held = at.scene.hold(&executor);
                assert_eq!(held.part(), []);
                runs += 1;
                assert!(runs < 5, "none are made ahead");
            }
            let names = at.protected();
            let spots = executor.shared.spots(&names);
            at.there();
            let held = executor.hold_at(&names, spots, Placeholder);
            assert_eq!((placed(&held), held.unheld().count()), (2, 0), "{held:?}");
            assert_eq!((entries(&at.other), entries(&at.moved)), (0, 2));
            if back {
                at.back();
            }
            drop(held);
            let root = if back { &at.scene.root } else { &at.moved };
            assert_eq!((entries(&at.other), entries(root)), (0, 0));
            executor.close();
            assert_eq!(at.scene.written(), 0);
        }
    }
}

#[test]
fn what_comes_to_nothing_goes_from_the_directory_that_was_opened() {
    let at = Exchange::new();
    let executor = at.scene.executor();
    let names = at.protected();
    let spots = executor.shared.spots(&names);
    at.there();
    // What has the names now is nobody's to replace.
    NAMES.iter().for_each(|name| fs::write(at.moved.join(name), "mine").unwrap());
    let held = executor.hold_at(&names, spots, Placeholder);
    assert_eq!(placed(&held), 0);
    assert_eq!((entries(&at.other), entries(&at.moved)), (0, 2));
    drop(held);
    assert_eq!((entries(&at.other), entries(&at.moved), at.scene.written()), (0, 2, 0));
}

#[test]
fn what_is_behind_a_link_stays_at_the_end() {
    let at = Exchange::new();
    let held = at.scene.hold(&at.scene.executor());
    at.there();
    for name in NAMES {
        fs::DirBuilder::new().mode(MODE).create(at.other.join(name)).unwrap();
    }
    drop(held);
    assert_eq!((entries(&at.other), entries(&at.moved), at.scene.written()), (2, 0, 0));
}

#[test]
fn the_next_executor_follows_no_link_and_finds_what_is_left_when_it_is_there_again() {
    let at = Exchange::new();
    let temporary = at.scene.root.join(".longarm-0.placeholder");
    let git = at.scene.root.join(".git");
    for path in [&temporary, &git] {
        fs::DirBuilder::new().mode(MODE).create(path).unwrap();
    }
    let id = Identity::at(&git).unwrap().unwrap();
    let held = Record::Held { id, temporary: PathBuf::new(), path: git };
    let records = [Record::Making { temporary }, held];
    Journal::begin(std::slice::from_ref(&at.scene.journals)).unwrap().write(&records).unwrap();
    at.there();
    fs::create_dir(at.other.join(".longarm-0.placeholder")).unwrap();
    at.scene.executor().recover();
    assert_eq!((entries(&at.other), entries(&at.moved)), (1, 2));
    assert!(at.scene.written() > 0, "it is still to be looked for");
    at.back();
    at.scene.executor().recover();
    assert_eq!((entries(&at.other), entries(&at.scene.root), at.scene.written()), (1, 0, 0));
}

#[test]
fn what_is_left_goes_also_where_its_user_has_moved_it_and_left_a_link() {
    let at = Exchange::new();
    let git = at.scene.root.join(".git");
    let leave = || {
        fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
        Identity::at(&git).unwrap().unwrap()
    };
    let move_it = || {
        fs::rename(&at.scene.root, &at.moved).unwrap();
        symlink(&at.moved, &at.scene.root).unwrap();
    };
    let held = Record::Held { id: leave(), temporary: PathBuf::new(), path: git.clone() };
    Journal::begin(std::slice::from_ref(&at.scene.journals)).unwrap().write(&[held]).unwrap();
    move_it();
    at.scene.executor().recover();
    assert_eq!((entries(&at.moved), at.scene.written()), (0, 0));
    at.back();
    let executor = at.scene.executor();
    let id = leave();
    executor.shared.state().left.insert(id, git.clone());
    move_it();
    executor.shared.try_again();
    assert_eq!((entries(&at.moved), executor.shared.state().left.len()), (0, 0));
}

#[test]
fn what_links_lead_to_by_now_is_not_taken_for_what_was_left() {
    let at = Exchange::new();
    let git = at.scene.root.join(".git");
    // Somebody else's, just like it.
    for path in [&git, &at.other.join(".git")] {
        fs::DirBuilder::new().mode(MODE).create(path).unwrap();
    }
    let id = Identity::at(&git).unwrap().unwrap();
    let held = Record::Held { id, temporary: PathBuf::new(), path: git.clone() };
    Journal::begin(std::slice::from_ref(&at.scene.journals)).unwrap().write(&[held]).unwrap();
    at.there();
    at.scene.executor().recover();
    assert_eq!((entries(&at.other), entries(&at.moved), at.scene.written()), (1, 1, 1));
    let executor = at.scene.executor();
    executor.shared.state().left.insert(id, git);
    executor.shared.try_again();
    assert_eq!((entries(&at.other), entries(&at.moved), executor.shared.state().left.len()), (1, 1, 1));
    at.back();
    at.scene.executor().recover();
    assert_eq!((entries(&at.other), entries(&at.scene.root), at.scene.written()), (1, 0, 0));
}

#[test]
fn what_cannot_be_looked_at_any_more_is_told_if_it_was_there() {
    let at = Exchange::new();
    let scene = &at.scene;
    as_ordinary_user(scene, || {
        let git = scene.root.join(".git");
        fs::create_dir(&git).unwrap();
        let held = hold(&scene.executor(), &scene.root, MissingProtected::Check);
        fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o000)).unwrap();
        let changed = held.changed();
        fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(changed, [(git.as_path(), NameChange::Unknown)]);
        assert_eq!(held.changed(), []);
    });
}

#[test]
fn what_appeared_is_moved_also_where_a_process_has_taken_the_right_to_write_from_the_root() {
    let at = Exchange::new();
    let scene = &at.scene;
    as_ordinary_user(scene, || {
        let held = hold(&scene.executor(), &scene.root, MissingProtected::SetAside);
        fs::create_dir_all(scene.root.join(".git/hooks")).unwrap();
        fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o555)).unwrap();
        let aside = held.set_aside();
        let [(_, to)] = aside.as_slice() else { panic!("{aside:?}") };
        assert!(to.join("hooks").is_dir(), "{to:?}");
        assert_eq!(fs::metadata(&scene.root).unwrap().mode() & 0o7777, 0o555);
        assert!(!scene.root.join(".git").exists());
        fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o755)).unwrap();
    });
}

#[test]
fn what_was_made_ahead_is_found_also_where_the_executors_directory_is_named_by_a_link() {
    let at = Exchange::new();
    let real = at.scene.journals.with_file_name("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
    let above = at.scene.journals.with_file_name("above");
    symlink(at.scene.journals.parent().unwrap(), &above).unwrap();
    let directory = above.join("real");
    let temporary = directory.join(".longarm-0.placeholder");
    fs::DirBuilder::new().mode(MODE).create(&temporary).unwrap();
    Journal::begin(std::slice::from_ref(&directory)).unwrap().write(&[Record::Making { temporary }]).unwrap();
    Placeholders::new(Some(directory)).recover();
    assert_eq!(entries(&real), 0);
}

#[test]
fn what_is_behind_a_link_is_told_and_not_moved_and_what_appeared_is_moved_from_where_it_is() {
    let at = Exchange::new();
    let held = hold(&at.scene.executor(), &at.scene.root, MissingProtected::SetAside);
    let [git, agents] = NAMES.map(|name| at.scene.root.join(name));
    at.there();
    // Somebody else's.
    fs::create_dir_all(at.other.join(".git/hooks")).unwrap();
    fs::create_dir_all(at.moved.join(".agents/skills")).unwrap();
    let mut changed = held.changed();
    changed.sort_by_key(|(path, _)| path.to_path_buf());
    assert_eq!(changed, [(agents.as_path(), NameChange::Appeared), (git.as_path(), NameChange::Appeared)]);
    let aside = held.set_aside();
    let [(from, to)] = aside.as_slice() else { panic!("{aside:?}") };
    assert_eq!(*from, agents);
    assert!(to.join("skills").is_dir() && to.starts_with(&at.scene.journals), "{to:?}");
    assert!(at.other.join(".git/hooks").is_dir());
    assert_eq!(entries(&at.moved), 0);
}

#[test]
fn without_a_directory_of_its_own_the_executor_moves_what_appeared_to_beside_it() {
    let at = Exchange::new();
    fs::write(&at.scene.journals, "no directory").unwrap();
    let held = hold(&at.scene.executor(), &at.scene.root, MissingProtected::SetAside);
    at.there();
    fs::create_dir_all(at.moved.join(".git/hooks")).unwrap();
    let aside = held.set_aside();
    let [(_, to)] = aside.as_slice() else { panic!("{aside:?}") };
    assert!(to.starts_with(&at.moved) && to.join("hooks").is_dir(), "{to:?}");
    assert!(!at.moved.join(".git").exists() && entries(&at.other) == 0);
}

#[test]
fn a_directory_is_open_once_for_all_names_and_processes_and_for_no_longer() {
    let at = Exchange::new();
    let executor = Placeholders::of(vec![at.scene.journals.clone()], 2);
    let (one, two) = (at.scene.hold(&executor), at.scene.hold(&executor));
    assert_eq!((placed(&one), placed(&two), open_parents(&executor)), (2, 2, 1));
    drop(one);
    assert_eq!(open_parents(&executor), 1);
    let watching = hold(&executor, &at.other, MissingProtected::Check);
    assert_eq!(open_parents(&executor), 2);
    // What is only watched needs none.
    let third = at.other.join("third");
    fs::create_dir(&third).unwrap();
    let unheld = |missing| {
        let held = hold(&executor, &third, missing);
        held.unheld().map(|(_, why)| why.clone()).collect::<Vec<_>>()
    };
    assert!(unheld(MissingProtected::Check).iter().all(|why| *why == Unheld::Chosen));
    let refused = unheld(Placeholder);
    let is_told = |why: &Unheld| matches!(why, Unheld::Failed(why) if why.contains("2 directories open"));
    assert!(refused.len() == 2 && refused.iter().all(is_told), "{refused:?}");
    drop((two, watching));
    assert_eq!(open_parents(&executor), 0);
}

#[test]
fn a_directory_is_opened_name_by_name_where_the_kernel_cannot_do_it_at_once() {
    let at = Exchange::new();
    let inside = at.scene.root.join("inside");
    fs::create_dir(&inside).unwrap();
    let opened = spot::open_by_steps(&inside).unwrap();
    assert_eq!(Some(Identity::of_open(&opened).unwrap()), Identity::behind(&inside));
    at.there();
    fs::create_dir(at.other.join("inside")).unwrap();
    for path in [&inside, &at.scene.root] {
        assert_eq!(spot::open_by_steps(path).unwrap_err(), Errno::LOOP);
    }
    assert_eq!(spot::open_by_steps(&at.other.join("missing")).unwrap_err(), Errno::NOENT);
}

#[test]
fn a_name_is_the_same_thing_by_its_directory_and_by_its_path() {
    let at = Exchange::new();
    let file = at.scene.root.join("file");
    fs::write(&file, "").unwrap();
    for path in [&file, &at.scene.root] {
        let thing = Thing::at(path).unwrap();
        assert!(thing.is_some_and(|thing| Thing::of(&fs::metadata(path).unwrap()) == thing));
        assert_eq!(
            (Spot::of(path).unwrap().thing().unwrap(), Spot::by_path(path.clone()).thing().unwrap()),
            (thing, thing)
        );
    }
}

/// Does something as an ordinary user, to whom all of a scene is given.
fn as_ordinary_user<T: Send>(scene: &Scene, act: impl FnOnce() -> T + Send) -> T {
    if rustix::process::geteuid().is_root() {
        for path in [scene.root.parent().unwrap(), &scene.root] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    by_an_ordinary_user(act)
}

#[test]
fn names_are_let_go_where_a_process_has_taken_the_right_to_write_from_the_root() {
    for taken in [0o555, 0o444, 0] {
        let at = Exchange::new();
        let scene = &at.scene;
        as_ordinary_user(scene, || {
            let mut held = scene.hold(&scene.executor());
            assert_eq!(placed(&held), 2);
            fs::set_permissions(&scene.root, fs::Permissions::from_mode(taken)).unwrap();
            held.part();
            drop(held);
            assert_eq!(fs::metadata(&scene.root).unwrap().mode() & 0o7777, taken);
            fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!((scene.names().len(), scene.written()), (0, 0), "{taken:o}");
        });
    }
}

#[test]
fn the_mode_of_a_directory_is_changed_for_its_owner_only_and_not_for_long() {
    let at = Exchange::new();
    let root = &at.scene.root;
    let spot = Spot::of(&root.join(".git")).unwrap();
    let mode = || fs::metadata(root).unwrap().mode() & 0o7777;
    let set = |mode| fs::set_permissions(root, fs::Permissions::from_mode(mode)).unwrap();
    set(0o1555);
    assert_eq!((spot.as_owner(|| Ok(mode())).unwrap(), mode()), (0o1755, 0o1555));
    spot.as_owner(|| Err::<(), _>(io::ErrorKind::NotFound.into())).unwrap_err();
    assert_eq!(mode(), 0o1555, "also where it was in vain");
    let changed = || {
        set(0o700);
        Ok(())
    };
    spot.as_owner(changed).unwrap();
    assert_eq!(mode(), 0o700, "as somebody else wants it");
    for refused in [0o2555, 0o755] {
        set(refused);
        spot.as_owner(|| -> io::Result<()> { panic!("it is not to be done") }).unwrap_err();
        assert_eq!(mode(), refused);
    }
    if rustix::process::geteuid().is_root() {
        set(0o555);
        std::os::unix::fs::chown(root, Some(65_534), None).unwrap();
        spot.as_owner(|| -> io::Result<()> { panic!("it is not ours") }).unwrap_err();
    }
}
