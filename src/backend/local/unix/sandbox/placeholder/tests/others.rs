//! Directories that are in no journal which is read here.

use super::*;

/// An executor that reads none of the journals of the others.
fn stranger(scene: &Scene) -> (Placeholders, PathBuf) {
    let journals = scene.root.with_file_name("other journals");
    (Placeholders::new(Some(journals.clone())), journals)
}

fn is_locked(path: &Path) -> bool {
    let open = open(path).unwrap();
    rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[test]
fn what_an_executor_with_another_journal_has_made_stays_while_it_is_needed() {
    for by_the_next_start in [false, true] {
        let scene = Scene::new();
        let owner = scene.executor();
        let (stranger, journals) = stranger(&scene);
        let mut held = scene.hold(&owner);
        let beside = scene.hold(&stranger);
        assert_eq!((placed(&beside), beside.unheld().count()), (0, 0));

        assert_eq!(held.part(), []);
        drop(held);
        assert_eq!((scene.names().len(), scene.written()), (2, 2), "they are needed");
        assert!(beside.changed().is_empty());
        let written = journal::all(&[journals]);
        assert_eq!(written.iter().map(|(_, _, records)| in_force(records)).sum::<usize>(), 0);

        let mut owner = Some(owner);
        let mut try_again = || match by_the_next_start {
            true => {
                owner = None;
                scene.executor().recover();
            }
            false => owner.iter().for_each(|owner| owner.shared.try_again()),
        };
        try_again();
        assert_eq!((scene.names().len(), scene.written()), (2, 2), "they are still needed");
        assert!(beside.changed().is_empty());
        drop(beside);
        assert_eq!(scene.names().len(), 2, "they are not its own to remove");
        try_again();
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn what_stays_for_somebody_else_stands_for_the_next_process_too() {
    let scene = Scene::new();
    let owner = scene.executor();
    let (stranger, _) = stranger(&scene);
    let held = scene.hold(&owner);
    let mut beside = scene.hold(&stranger);
    drop(held);
    let again = scene.hold(&owner);
    assert_eq!(placed(&again), 2);
    assert_eq!(beside.part(), []);
    assert!(again.changed().is_empty());
    drop(again);
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}

#[test]
fn processes_of_one_executor_share_the_lock_of_what_is_somebody_elses() {
    let scene = Scene::new();
    let git = scene.root.join(".git");
    fs::create_dir(&git).unwrap();
    let executor = scene.executor();
    let (first, second) = (scene.hold(&executor), scene.hold(&executor));
    assert_eq!(executor.shared.state().others.len(), 1);
    drop(first);
    assert!(is_locked(&git));
    drop(second);
    assert!(!is_locked(&git));
    assert_eq!(scene.names(), [".git"]);
}

#[test]
fn an_empty_directory_of_another_user_stays_while_it_is_needed() {
    let scene = Scene::new();
    let Some(git) = scene.git_of_another() else { return };
    let held = scene.hold(&scene.executor());
    assert_eq!(held.placeholders().collect::<Vec<_>>(), [scene.root.join(".agents")]);
    assert!(is_locked(&git));
    drop(held);
    assert!(!is_locked(&git));
    assert_eq!(scene.names(), [".git"]);
}

#[test]
fn what_is_filled_is_not_locked() {
    let scene = Scene::new();
    let (git, agents) = (scene.root.join(".git"), scene.root.join(".agents"));
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(&agents, "").unwrap();
    let held = scene.hold(&scene.executor());
    assert_eq!((placed(&held), held.unheld().count()), (0, 0));
    assert!(!is_locked(&git));
    assert!(held.names.iter().all(|name| name.others.is_none()));
}

#[test]
fn more_than_there_is_room_for_is_watched_without_a_lock() {
    let scene = Scene::new();
    let paths = NAMES.map(|name| scene.root.join(name));
    paths.iter().for_each(|path| fs::create_dir(path).unwrap());
    let held = scene.hold(&Placeholders::of(vec![scene.journals.clone()], 2));
    assert_eq!(held.unheld().count(), 0);
    assert_eq!(paths.iter().filter(|path| is_locked(path)).count(), 1);
    assert!(held.changed().is_empty());
}

#[test]
fn what_somebody_else_is_removing_is_waited_for() {
    let scene = Scene::new();
    let git = scene.root.join(".git");
    fs::create_dir(&git).unwrap();
    let removing = open(&git).unwrap();
    rustix::fs::flock(&removing, FlockOperation::NonBlockingLockExclusive).unwrap();
    let executor = scene.executor();
    std::thread::scope(|threads| {
        let holding = threads.spawn(|| scene.hold(&executor));
        // It makes this one first.
        while scene.names().len() != 2 {
            std::thread::yield_now();
        }
        fs::remove_dir(&git).unwrap();
        unlock(&removing);
        let held = holding.join().unwrap();
        assert_eq!((placed(&held), held.unheld().count()), (2, 0));
    });
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}
