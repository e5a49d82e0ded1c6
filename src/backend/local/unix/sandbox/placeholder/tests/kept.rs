//! What is watched instead of held, what is lent, and what directories inherit.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::backend::local::names::Unheld;
use crate::path_uri::PathUri;
use crate::sandbox::{Facts, SandboxIntent, SandboxSettings};

const SET_GROUP_ID: u32 = 0o2000;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// What an intent comes to that lets all of a scene be written, and the top of its root, too.
fn free(scene: &Scene) -> Bound {
    let root = PathUri::from_host_native_path(&scene.root).unwrap();
    let settings = SandboxSettings::default();
    SandboxIntent::workspace_write([root])
        .write_below_roots(".git")
        .bind(&Facts::host(&settings, Path::new("/nowhere")))
        .unwrap()
}

/// A scene in which directories inherit a bit.
fn inheriting() -> Scene {
    let scene = Scene::new();
    fs::set_permissions(&scene.root, fs::Permissions::from_mode(0o755 | SET_GROUP_ID)).unwrap();
    fs::create_dir(scene.root.join("new")).unwrap();
    assert_eq!(mode(&scene.root.join("new")) & SET_GROUP_ID, SET_GROUP_ID);
    fs::remove_dir(scene.root.join("new")).unwrap();
    scene
}

#[test]
fn in_a_directory_that_gives_its_group_placeholders_are_shared_and_found_again() {
    let scene = inheriting();
    let (one, other) = (scene.executor(), scene.executor());
    let (held, shared) = (scene.hold(&one), scene.hold(&other));
    assert_eq!((placed(&held), placed(&shared)), (2, 2));
    drop(held);
    assert_eq!(scene.names().len(), 2, "the other one needs them");
    drop(shared);
    assert_eq!(scene.names(), [""; 0]);
    let child = Executor::start(&scene, Does::Hold);
    while scene.names().len() != 2 {
        std::thread::yield_now();
    }
    child.kill();
    scene.executor().recover();
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}

#[test]
fn what_cannot_be_looked_at_now_is_not_forgotten() {
    let scene = Scene::new();
    let git = scene.root.join(".git");
    fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
    let id = Identity::at(&git).unwrap().unwrap();
    let too_long = scene.root.join("x".repeat(300));
    for path in [git.clone(), too_long] {
        // As long as it has a mode that is none of ours, or its name leads nowhere for another reason than that it is gone.
        fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
        let record = Record::Held { id, temporary: PathBuf::new(), path };
        Journal::begin(std::slice::from_ref(&scene.journals)).unwrap().write(&[record]).unwrap();
        scene.executor().recover();
        assert!(git.is_dir() && scene.written() == 1);
        drop(fs::remove_dir_all(&scene.journals));
    }
}

#[test]
fn what_the_owner_wants_only_checked_is_told_and_stays() {
    let scene = Scene::new();
    let held = hold(&scene.executor(), &scene.root, MissingProtected::Check);
    assert_eq!((placed(&held), scene.names().len()), (0, 0));
    let unheld: Vec<_> = held.unheld().collect();
    let [git, agents] = NAMES.map(|name| scene.root.join(name));
    assert_eq!(unheld, [(git.as_path(), &Unheld::Chosen), (agents.as_path(), &Unheld::Chosen)]);
    fs::create_dir_all(git.join("hooks")).unwrap();
    assert_eq!((held.changed(), held.set_aside().len()), (vec![(git.as_path(), NameChange::Appeared)], 0));
    drop(held);
    assert!(git.join("hooks").is_dir());
}

#[test]
fn what_appeared_is_moved_to_the_executors_directory_where_the_owner_wants_that() {
    let scene = Scene::new();
    assert!(!scene.journals.exists());
    let held = hold(&scene.executor(), &scene.root, MissingProtected::SetAside);
    assert!(journal::is_private(&scene.journals), "it is made for that");
    let git = scene.root.join(".git");
    fs::create_dir_all(git.join("hooks")).unwrap();
    assert_eq!(held.changed(), [(git.as_path(), NameChange::Appeared)]);
    let aside = held.set_aside();
    let [(from, to)] = aside.as_slice() else { panic!("{aside:?}") };
    assert_eq!(*from, git);
    assert!(to.join("hooks").is_dir() && to.starts_with(&scene.journals));
    assert!(scene.names().is_empty());
}

#[test]
fn what_an_entry_asks_for_is_held_also_where_the_rest_is_only_checked() {
    for missing in [MissingProtected::Check, MissingProtected::SetAside] {
        let scene = Scene::new();
        let names = [(".git", true), (".agents", false)].map(|(name, required)| ProtectedName {
            root: scene.root.clone(),
            path: scene.root.join(name),
            state: Existing::Missing,
            access: Access::Deny,
            git_dir: None,
            placeholder: true,
            required,
        });
        let held = scene.executor().hold(&names, missing);
        assert_eq!(held.placeholders().collect::<Vec<_>>(), [scene.root.join(".git")]);
        assert_eq!(held.unheld().map(|(path, _)| path).collect::<Vec<_>>(), [scene.root.join(".agents")]);
    }
}

#[test]
fn why_a_name_that_could_be_made_is_not_held_is_told() {
    let scene = Scene::new();
    fs::write(&scene.journals, "no directory").unwrap();
    let held = hold_but(&scene.executor(), &scene.root, Placeholder, Some(".agents"));
    let unheld: Vec<_> = held.unheld().collect();
    let [(git, Unheld::Failed(why)), (agents, Unheld::LargerRepository)] = unheld.as_slice() else {
        panic!("{unheld:?}")
    };
    assert_eq!((*git, *agents), (scene.root.join(".git").as_path(), scene.root.join(".agents").as_path()));
    assert!(why.contains("journal"), "{why}");
    // Nobody makes these.
    let held = hold(&scene.executor(), &scene.root.join("missing"), MissingProtected::Check);
    assert_eq!(held.unheld().count(), 0, "{held:?}");
}

#[test]
fn what_a_user_makes_in_the_place_of_a_placeholder_is_not_moved() {
    let scene = Scene::new();
    let held = scene.hold(&scene.executor());
    let git = scene.root.join(".git");
    fs::remove_dir(&git).unwrap();
    fs::create_dir_all(git.join("hooks")).unwrap();
    assert_eq!((held.changed(), held.set_aside().len()), (vec![(git.as_path(), NameChange::Appeared)], 0));
    assert_eq!(held.unheld().count(), 0);
}

#[test]
fn what_is_held_for_one_process_is_lent_to_another_one_that_may_write_there() {
    for writer_first in [true, false] {
        for of_another_executor in [true, false] {
            let scene = Scene::new();
            let (one, two) = (scene.executor(), scene.executor());
            let other = if of_another_executor { &two } else { &one };
            let writer = || {
                let mut writer = other.hold(&[], Placeholder);
                writer.lend_to(&Arc::new(free(&scene))).unwrap();
                writer
            };
            if writer_first && of_another_executor {
                // It knows of none that comes to stand there later.
                continue;
            }
            let early = writer_first.then(&writer);
            let held = scene.hold(&one);
            let writer = early.unwrap_or_else(writer);
            let [git, agents] = NAMES.map(|name| scene.root.join(name));
            assert_eq!(mode(&git) & 0o700, 0o700, "it may be filled");
            assert_eq!(mode(&agents) & 0o222, 0, "and that one not");
            fs::write(git.join("config"), "mine").unwrap();
            assert!(held.changed().is_empty(), "by somebody who may");
            drop(writer);
            drop(held);
            assert_eq!((scene.names(), mode(&git)), (vec![".git".into()], 0o755));
            assert_eq!(scene.written(), 0);
        }
    }
}

#[test]
fn what_was_lent_and_is_still_empty_is_held_again_or_goes_with_the_last_who_needs_it() {
    for writer_goes_first in [true, false] {
        let scene = Scene::new();
        let executor = scene.executor();
        let held = scene.hold(&executor);
        let mut writer = executor.hold(&[], Placeholder);
        writer.lend_to(&Arc::new(free(&scene))).unwrap();
        let git = scene.root.join(".git");
        if writer_goes_first {
            drop(writer);
            assert_eq!(mode(&git) & 0o1222, 0, "nobody else may fill it");
            drop(held);
        } else {
            drop(held);
            assert_eq!(scene.names(), [".git"], "it may be about to fill it");
            drop(writer);
        }
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn what_a_killed_executor_has_lent_goes_too_or_is_given_away() {
    for filled in [false, true] {
        let scene = Scene::new();
        let git = scene.root.join(".git");
        fs::create_dir(&git).unwrap();
        if filled {
            fs::write(git.join("config"), "mine").unwrap();
        }
        fs::set_permissions(&git, fs::Permissions::from_mode(directory::LENT)).unwrap();
        let id = Identity::at(&git).unwrap().unwrap();
        let record = Record::Held { id, temporary: PathBuf::new(), path: git.clone() };
        Journal::begin(std::slice::from_ref(&scene.journals)).unwrap().write(&[record]).unwrap();
        scene.executor().recover();
        assert_eq!((git.exists(), scene.written()), (filled, 0));
        assert!(!filled || mode(&git) == 0o755);
    }
}

#[test]
fn what_stands_for_a_name_of_another_process_has_not_appeared_and_stays() {
    for other in [true, false] {
        for missing in [MissingProtected::Check, MissingProtected::SetAside] {
            let scene = Scene::new();
            let executor = scene.executor();
            let holder = if other { scene.executor() } else { executor.clone() };
            let git = scene.root.join(".git");
            let watching = hold(&executor, &scene.root, missing);
            let holding = scene.hold(&holder);
            assert_eq!(placed(&holding), 2);
            assert_eq!((watching.changed(), watching.set_aside().len(), scene.names().len()), (vec![], 0, 2));

            // One that comes later does not rely on it, since it goes with the other one.
            let later = hold(&executor, &scene.root, missing);
            assert_eq!(later.unheld().count(), 2);
            drop(holding);
            assert!(scene.names().is_empty());
            fs::create_dir(&git).unwrap();
            for held in [watching, later] {
                assert_eq!(held.changed(), [(git.as_path(), NameChange::Appeared)]);
            }
        }
    }
}

#[test]
fn where_the_file_system_has_no_call_for_it_names_are_watched() {
    for code in [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
        assert!(is_unsupported(&io::Error::from_raw_os_error(code)));
    }
    assert!(!is_unsupported(&io::Error::from_raw_os_error(libc::ENOSPC)));
    assert!(!Unheld::Unsupported.is_failure(), "nobody has to consent to it");
}

#[test]
fn what_is_bound_is_the_same_as_if_it_were_bound_again_when_its_names_are_held() {
    let scene = Scene::new();
    let root = PathUri::from_host_native_path(&scene.root).unwrap();
    let settings = SandboxSettings::default();
    let deny = |intent: SandboxIntent, below: &str| {
        intent.deny(PathUri::from_host_native_path(scene.root.join(below)).unwrap())
    };
    let usual = SandboxIntent::workspace_write([root]);
    let intents = [
        usual.clone(),
        deny(usual.clone(), "secret"),
        deny(deny(usual.clone(), ".agents"), ".codex/below"),
        usual.write_below_roots(".agents").write_below_roots(".aws/below"),
    ];
    for intent in intents {
        let bind = || intent.bind(&Facts::host(&settings, Path::new("/nowhere"))).unwrap();
        let mut bound = bind();
        let before = bound.clone();
        let held = scene.executor().hold(&bound.protected, Placeholder);
        // Whether that of `.git` is one depends on what is above.
        assert!(placed(&held) >= 2, "{held:?}");
        held.placeholders().for_each(|path| bound.come_to_exist(path));
        let mut again = bind();
        // Which names were to be held is known by now.
        again.protected.clone_from(&bound.protected);
        assert_eq!(bound, again);
        assert_ne!(bound, before);
    }
    assert_eq!(scene.names(), [""; 0]);
}

#[test]
fn names_are_free_before_what_stood_for_them_is_given_back() {
    let scene = Scene::new();
    let mut held = scene.hold(&scene.executor());
    assert_eq!(placed(&held), 2);
    assert_eq!(held.part(), []);
    assert_eq!((scene.names().len(), held.remains.gone.len(), held.remains.open.len()), (0, 2, 2));
    assert_eq!(scene.written(), 2, "as long as they are open");
    let links = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_nlink;
    assert!(held.remains.open.iter().all(|fd| links(fd) == 0), "they are no other directories");
    assert_eq!(held.part(), []);
    drop(held);
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}

#[test]
fn at_the_parting_what_is_filled_stays_and_is_told_once_unless_it_was_lent() {
    for (mode, shared, told) in
        [(MODE, false, 1), (MODE, true, 1), (directory::LENT, false, 0), (directory::LENT, true, 0)]
    {
        let scene = Scene::new();
        let executor = scene.executor();
        let (mut held, other) = (scene.hold(&executor), shared.then(|| scene.hold(&executor)));
        let git = scene.root.join(".git");
        fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(git.join("config"), "mine").unwrap();
        fs::set_permissions(&git, fs::Permissions::from_mode(mode)).unwrap();
        let changed = held.part();
        assert_eq!(changed.len(), told, "{mode:o} {shared} {changed:?}");
        assert!(changed.iter().all(|name| name.path == git && name.change == NameChange::Appeared), "{changed:?}");
        assert_eq!(held.part(), [], "once");
        drop((held, other, executor));
        assert_eq!(fs::read(git.join("config")).unwrap(), b"mine");
        assert_eq!((scene.names(), scene.written()), (vec![".git".into()], 0));
    }
}

#[test]
fn several_names_are_held_where_one_of_them_has_appeared_meanwhile() {
    let scene = Scene::new();
    // Whoever bound the intent has not seen it.
    let agents = scene.root.join(".agents");
    fs::write(&agents, "mine").unwrap();
    let executor = scene.executor();
    let held = scene.hold(&executor);
    assert_eq!(held.placeholders().collect::<Vec<_>>(), [scene.root.join(".git")]);
    assert!(held.changed().is_empty() && held.unheld().count() == 0, "{held:?}");
    assert_eq!(scene.names(), [".agents", ".git"]);
    fs::remove_file(&agents).unwrap();
    fs::create_dir(&agents).unwrap();
    assert_eq!(held.changed(), [(agents.as_path(), NameChange::Replaced)]);
    drop(held);
    assert_eq!((scene.names(), scene.written()), (vec![".agents".into()], 0));
}

#[test]
fn what_is_filled_is_given_away_also_where_something_else_is_put_into_its_place() {
    let scene = Scene::new();
    let executor = scene.executor();
    let held = scene.hold(&executor);
    let [git, secret] = [".git", "secret"].map(|name| scene.root.join(name));
    fs::write(&secret, "mine").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let open = open(&git).unwrap();
    let moved = scene.root.join("moved");
    fs::rename(&git, &moved).unwrap();
    std::os::unix::fs::symlink(&secret, &git).unwrap();
    directory::hand_over(&open);
    assert_eq!((mode(&moved), mode(&secret)), (0o755, 0o600));
    fs::remove_file(&git).unwrap();
    drop(held);
    assert_eq!(scene.names(), ["secret"], "wherever it is now");
}

#[test]
fn what_was_there_at_the_start_is_not_moved_if_it_is_another_one() {
    let scene = Scene::new();
    let git = scene.root.join(".git");
    fs::create_dir(&git).unwrap();
    let held = hold(&scene.executor(), &scene.root, MissingProtected::SetAside);
    fs::rename(&git, scene.root.join("moved")).unwrap();
    fs::create_dir_all(git.join("hooks")).unwrap();
    assert_eq!((held.changed(), held.set_aside().len()), (vec![(git.as_path(), NameChange::Replaced)], 0));
    assert!(git.join("hooks").is_dir());
}

#[test]
fn what_appeared_is_moved_to_no_directory_that_others_may_write_to() {
    let scene = Scene::new();
    fs::create_dir(&scene.journals).unwrap();
    fs::set_permissions(&scene.journals, fs::Permissions::from_mode(0o777)).unwrap();
    let held = hold(&scene.executor(), &scene.root, MissingProtected::SetAside);
    fs::create_dir_all(scene.root.join(".git/hooks")).unwrap();
    let aside = held.set_aside();
    let [(_, to)] = aside.as_slice() else { panic!("{aside:?}") };
    assert!(to.starts_with(&scene.root) && to.join("hooks").is_dir(), "{to:?}");
}
