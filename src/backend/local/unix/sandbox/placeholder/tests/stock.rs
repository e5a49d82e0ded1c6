//! What is made ahead: who uses it, who does not, and that nothing stays of it.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::XattrFlags;

use super::*;

/// A process that holds names and ends.
fn run(scene: &Scene, executor: &Placeholders) {
    let mut held = scene.hold(executor);
    assert_eq!((placed(&held), held.part()), (2, vec![]));
}

/// An executor that has made some ahead.
fn stocked(scene: &Scene) -> Placeholders {
    let executor = scene.executor();
    run(scene, &executor);
    assert!(ahead(scene).is_empty(), "a single process may be the only one");
    run(scene, &executor);
    assert_eq!(ahead(scene).len(), 4);
    assert_eq!((scene.names().len(), scene.written()), (0, 4));
    executor
}

/// What lies beside the journals.
fn ahead(scene: &Scene) -> Vec<PathBuf> {
    let paths = fs::read_dir(&scene.journals).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| is_our_temporary(path)).collect()
}

fn ids(paths: &[PathBuf]) -> Vec<Identity> {
    paths.iter().map(|path| Identity::at(path).unwrap().unwrap()).collect()
}

fn placed_ids(held: &Held) -> Vec<Identity> {
    held.names.iter().filter_map(|name| name.placed).collect()
}

fn is_empty(journals: &Path) -> bool {
    fs::read_dir(journals).unwrap().next().is_none()
}

#[test]
fn names_are_held_by_what_was_made_ahead_which_is_made_anew_at_the_end() {
    let scene = Scene::new();
    let executor = stocked(&scene);
    let before = ids(&ahead(&scene));
    let mut held = scene.hold(&executor);
    assert!(placed_ids(&held).iter().all(|id| before.contains(id)), "{held:?}");
    assert_eq!((ahead(&scene).len(), scene.written()), (2, 4));
    for name in NAMES {
        let found = fs::symlink_metadata(scene.root.join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777 & !MODE, found.uid()), (0, journal::own_uid()));
        let open = open(&scene.root.join(name)).unwrap();
        let lock = rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock, Err(Errno::WOULDBLOCK), "it is locked as any other");
    }
    // Another executor shares them as any other.
    let other = scene.executor();
    let shared = scene.hold(&other);
    assert_eq!(placed_ids(&shared), placed_ids(&held));
    drop(shared);
    assert_eq!(held.part(), []);
    assert_eq!((scene.names().len(), ahead(&scene).len()), (0, 2), "that is for when nobody waits");
    drop(held);
    assert_eq!((scene.names().len(), ahead(&scene).len(), scene.written()), (0, 4, 4));
    drop((executor, other));
    assert!(is_empty(&scene.journals));
}

#[test]
fn an_executor_that_closes_removes_what_it_made_ahead_and_makes_no_more() {
    let scene = Scene::new();
    let executor = stocked(&scene);
    let mut held = scene.hold(&executor);
    executor.close();
    assert_eq!((ahead(&scene).len(), scene.written()), (0, 2));
    assert_eq!(held.part(), []);
    drop(held);
    run(&scene, &executor);
    assert_eq!((ahead(&scene).len(), scene.names().len(), scene.written()), (0, 0, 0));
    drop(executor);
    assert!(is_empty(&scene.journals));
}

#[test]
fn what_somebody_has_changed_is_not_used() {
    let changes: [fn(&Path); 8] = [
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap(),
        |path| {
            // Back to what it was.
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(directory::LENT)).unwrap();
        },
        |path| {
            fs::write(path.join("file"), "mine").unwrap();
        },
        |path| {
            // Empty again.
            fs::create_dir(path.join("directory")).unwrap();
            fs::remove_dir(path.join("directory")).unwrap();
        },
        |path| fs::File::open(path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(),
        |path| {
            match rustix::fs::setxattr(path, "user.mine", b"mine", XattrFlags::empty()) {
                Ok(()) => {}
                // There is nothing of the kind to be changed.
                Err(Errno::NOTSUP) => fs::remove_dir(path).unwrap(),
                Err(error) => panic!("{error}"),
            }
        },
        |path| {
            fs::rename(path, path.with_file_name("moved")).unwrap();
            fs::DirBuilder::new().mode(directory::LENT).create(path).unwrap();
        },
        |path| fs::remove_dir(path).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let scene = Scene::new();
        let executor = stocked(&scene);
        let before = ids(&ahead(&scene));
        // So that no other one can be the same inode.
        let _open: Vec<OwnedFd> = ahead(&scene).iter().map(|path| open(path).unwrap()).collect();
        later_than(&scene, ahead(&scene).iter().map(|path| fs::metadata(path).unwrap().ctime_nsec()).collect());
        ahead(&scene).iter().for_each(|path| change(path));
        let mut held = scene.hold(&executor);
        assert_eq!((placed(&held), held.unheld().count()), (2, 0), "{number}");
        assert!(placed_ids(&held).iter().all(|id| !before.contains(id)), "{number}");
        for name in NAMES {
            let at = scene.root.join(name);
            assert_eq!((fs::metadata(&at).unwrap().mode() & 0o7777 & !MODE, is_empty_directory(&at)), (0, true));
        }
        assert_eq!(held.part(), [], "{number}");
        drop(held);
        assert_eq!(scene.names(), [""; 0], "{number}");
    }
}

/// Waits until the file system's clock, which can be a coarse one, has gone on from these times.
fn later_than(scene: &Scene, times: Vec<i64>) {
    let probe = scene.root.with_file_name("probe");
    let now = || {
        fs::write(&probe, "").unwrap();
        fs::metadata(&probe).unwrap().ctime_nsec()
    };
    while times.contains(&now()) {
        std::thread::yield_now();
    }
}

#[test]
fn nobody_waits_for_one_who_has_locked_what_was_made_ahead() {
    let mut taken = Vec::new();
    // As long as one waits for a lock on anything else. A busy machine may take some time, but not each time.
    while taken.iter().all(|time| *time >= Duration::from_secs(5)) {
        assert!(taken.len() < 3, "{taken:?}");
        let scene = Scene::new();
        let executor = stocked(&scene);
        let before = ids(&ahead(&scene));
        let locks: Vec<OwnedFd> =
            ahead(&scene).iter().map(|path| locked(path, FlockOperation::NonBlockingLockExclusive)).collect();
        let begun = std::time::Instant::now();
        let mut held = scene.hold(&executor);
        taken.push(begun.elapsed());
        assert_eq!((placed(&held), held.unheld().count()), (2, 0));
        assert!(placed_ids(&held).iter().all(|id| !before.contains(id)));
        assert_eq!(held.part(), []);
        assert_eq!(scene.names(), [""; 0]);
        locks.into_iter().for_each(give_up);
    }
}

#[test]
fn where_directories_inherit_something_they_are_made_in_place() {
    let inherits: [fn(&Path) -> bool; 2] = [
        |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o2755)).unwrap();
            true
        },
        |path| rustix::fs::setxattr(path, "user.mine", b"mine", XattrFlags::empty()) != Err(Errno::NOTSUP),
    ];
    for inherits in inherits {
        let scene = Scene::new();
        if !inherits(&scene.root) {
            continue;
        }
        let executor = scene.executor();
        for _ in 0..3 {
            run(&scene, &executor);
            assert_eq!((ahead(&scene).len(), scene.written()), (0, 0));
        }
        // Nor is what others have made ahead.
        let plain = scene.root.with_file_name("plain");
        fs::create_dir(&plain).unwrap();
        for _ in 0..2 {
            let mut held = hold(&executor, &plain, Placeholder);
            assert_eq!(held.part(), []);
        }
        let before = ids(&ahead(&scene));
        let held = scene.hold(&executor);
        assert_eq!((before.len(), placed(&held)), (4, 2));
        assert!(placed_ids(&held).iter().all(|id| !before.contains(id)));
    }
}

/// A root on another file system than the journals. None if there is none to be had.
fn apart(scene: &Scene) -> Option<tempfile::TempDir> {
    let shm = tempfile::tempdir_in("/dev/shm").ok()?;
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    (device(shm.path()) != device(scene.root.parent().unwrap())).then_some(shm)
}

#[test]
fn on_another_file_system_they_are_made_in_place() {
    let scene = Scene::new();
    let Some(shm) = apart(&scene) else { return };
    let executor = scene.executor();
    for _ in 0..3 {
        let mut held = hold(&executor, shm.path(), Placeholder);
        assert_eq!((placed(&held), held.part(), ahead(&scene).len()), (2, vec![], 0));
    }
    assert!(is_empty(shm.path()));
}

#[test]
fn what_cannot_be_moved_after_all_is_given_up_and_names_are_held_all_the_same() {
    let scene = Scene::new();
    let Some(shm) = apart(&scene) else { return };
    let executor = stocked(&scene);
    executor.shared.state().stock.pretend_to_be_in(shm.path());
    let mut held = hold(&executor, shm.path(), Placeholder);
    assert_eq!((placed(&held), held.unheld().count(), held.part()), (2, 0, vec![]));
    drop(held);
    assert_eq!((ahead(&scene).len(), scene.written()), (0, 0));
    run(&scene, &executor);
    assert!(is_empty(shm.path()) && scene.names().is_empty() && ahead(&scene).is_empty());
}

#[test]
fn what_cannot_be_made_ahead_is_given_up_and_names_are_held_all_the_same() {
    let scene = Scene::new();
    let executor = scene.executor();
    run(&scene, &executor);
    // As on a file system that is full: nothing can be made there, and the journal is open.
    let away = scene.journals.with_file_name("away");
    fs::rename(&scene.journals, &away).unwrap();
    run(&scene, &executor);
    fs::rename(&away, &scene.journals).unwrap();
    assert!(executor.shared.state().under_way.is_empty());
    for _ in 0..3 {
        run(&scene, &executor);
        assert_eq!((ahead(&scene).len(), scene.names().len(), scene.written()), (0, 0, 0));
    }
    drop(executor);
    assert!(is_empty(&scene.journals));
}

#[test]
fn executors_do_not_touch_what_others_have_made_ahead() {
    let scene = Scene::new();
    let (one, other) = (stocked(&scene), scene.executor());
    let before = ids(&ahead(&scene));
    other.recover();
    run(&scene, &other);
    run(&scene, &other);
    other.recover();
    assert_eq!(ahead(&scene).len(), 8);
    drop(other);
    let mut after = ids(&ahead(&scene));
    after.sort_by_key(|id| id.1);
    let mut before = before;
    before.sort_by_key(|id| id.1);
    assert_eq!(before, after);
    drop(one);
    assert!(is_empty(&scene.journals));
}

#[test]
fn what_a_killed_executor_has_made_ahead_goes_at_the_next_start() {
    let scene = Scene::new();
    let child = Executor::start(&scene, Does::Stock);
    assert_eq!((ahead(&scene).len(), scene.names().len()), (2, 2));
    scene.executor().recover();
    assert_eq!((ahead(&scene).len(), scene.names().len()), (2, 2), "it lives");
    child.kill();
    scene.executor().recover();
    assert!(is_empty(&scene.journals) && scene.names().is_empty());
}

#[test]
fn an_ordinary_user_can_use_what_he_has_made_ahead() {
    // If it is one that runs this, the other tests show it.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    let nobody = 65_534;
    for path in [scene.root.parent().unwrap(), &scene.root] {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).unwrap();
    }
    let child = Executor::start_as(&scene, Does::Stock, Some(nobody));
    let files = fs::read_dir(&scene.journals).unwrap().map(|entry| entry.unwrap().path());
    let journal = files.filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()).next().unwrap();
    let records = journal::parse(&journal);
    for name in NAMES {
        let at = scene.root.join(name);
        let found = fs::symlink_metadata(&at).unwrap();
        assert_eq!((found.mode() & 0o7777 & !MODE, found.uid()), (0, nobody));
        let id = Identity::of(&found);
        let held = records.iter().rev().find_map(|record| match record {
            Record::Held { id: of, temporary, path } if *of == id => Some((temporary, path)),
            _ => None,
        });
        let was_ready = held.is_some_and(|(from, to)| from.starts_with(&scene.journals) && *to == at);
        assert!(was_ready, "{records:?}");
    }
    child.kill();
}

#[test]
fn what_is_made_ahead_stays_written_down_for_as_long_as_it_is_there() {
    let scene = Scene::new();
    let executor = stocked(&scene);
    let mut longest = 0;
    for _ in 0..60 {
        run(&scene, &executor);
        assert_eq!(scene.written(), 4);
        longest = longest.max(scene.bytes());
    }
    assert!(longest > 15 << 10 && longest < 20 << 10, "it was written anew meanwhile: {longest}");
    let journals = journal::all(std::slice::from_ref(&scene.journals));
    for path in ahead(&scene) {
        let making = Record::Making { temporary: path };
        assert!(journals.iter().any(|(_, _, records)| records.contains(&making)));
    }
}

#[test]
fn processes_that_run_side_by_side_have_no_more_made_ahead_than_two_starts_need() {
    let scene = Scene::new();
    let executor = stocked(&scene);
    let roots = [0, 1, 2, 3].map(|number| scene.root.with_file_name(format!("root{number}")));
    std::thread::scope(|threads| {
        for root in &roots {
            let (executor, scene, roots) = (&executor, &scene, &roots);
            threads.spawn(move || {
                fs::create_dir(root).unwrap();
                for _ in 0..100 {
                    let mut held = hold(executor, root, Placeholder);
                    assert_eq!((placed(&held), held.part()), (2, vec![]));
                    drop(held);
                    assert!(ahead(scene).len() <= 4 + 2 * roots.len(), "and those on their way");
                }
            });
        }
    });
    assert!(roots.iter().all(|root| is_empty(root)));
    assert_eq!((ahead(&scene).len(), scene.written()), (4, 4));
    drop(executor);
    assert!(is_empty(&scene.journals));
}
