//! How long journals are, and where they are.

use super::*;

#[test]
fn where_nothing_can_be_made_the_journal_does_not_grow() {
    let scene = Scene::new();
    let executor = scene.executor();
    // In a directory that has gone, whoever tries.
    let gone = scene.root.join("gone");
    let protected = ProtectedName {
        root: scene.root.clone(),
        path: gone.join(".git"),
        state: Existing::Missing,
        access: Access::Read,
        git_dir: None,
        placeholder: true,
        required: false,
    };
    for _ in 0..50 {
        fs::create_dir(&gone).unwrap();
        let spots = executor.shared.spots(std::slice::from_ref(&protected));
        fs::remove_dir(&gone).unwrap();
        let held = executor.hold_at(std::slice::from_ref(&protected), spots, Placeholder);
        assert_eq!(placed(&held), 0);
        assert_eq!(scene.written(), 0);
    }
    assert!(scene.bytes() < 1 << 10, "{}", scene.bytes());
    drop(executor);
    assert_eq!(fs::read_dir(&scene.journals).unwrap().count(), 0);
}

#[test]
fn a_journal_is_no_longer_than_what_it_is_about() {
    let scene = Scene::new();
    let other_root = scene.root.with_file_name("other");
    fs::create_dir(&other_root).unwrap();
    let executor = scene.executor();
    let held = scene.hold(&executor);
    let mut longest = 0;
    for _ in 0..100 {
        drop(hold(&executor, &other_root, Placeholder));
        longest = longest.max(scene.bytes());
    }
    assert!(longest > 15 << 10 && longest < 20 << 10, "{longest}");
    // What lasts is in it all the time, and nobody takes it for that of an executor that is gone.
    scene.executor().recover();
    assert_eq!(scene.names().len(), 2);
    let ids = held.names.iter().map(|name| (name.spot.path.clone(), name.placed.unwrap()));
    for (path, id) in ids {
        assert!(executor.shared.is_written_down(&path, id, None));
    }
    drop(held);
    assert_eq!((scene.names().len(), scene.bytes()), (0, 0));
}

#[test]
fn a_journal_of_which_nothing_matters_is_not_made_shorter_each_time_and_goes_with_its_executor() {
    let scene = Scene::new();
    let executor = scene.executor();
    let (mut longest, mut shortened, mut last) = (0, 0, 0);
    for _ in 0..100 {
        drop(scene.hold(&executor));
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
        let bytes = scene.bytes();
        shortened += u32::from(bytes < last);
        longest = longest.max(bytes);
        last = bytes;
    }
    assert!(longest < 4 << 10 && (5..50).contains(&shortened), "{longest} {shortened}");
    while scene.bytes() == 0 {
        drop(scene.hold(&executor));
    }
    drop(executor);
    assert_eq!(fs::read_dir(&scene.journals).unwrap().count(), 0);
}

#[test]
fn where_the_usual_directory_is_taken_another_one_serves() {
    let scene = Scene::new();
    let taken = scene.root.with_file_name("taken");
    fs::create_dir(&taken).unwrap();
    fs::set_permissions(&taken, fs::Permissions::from_mode(0o777)).unwrap();
    let directories = vec![taken.clone(), scene.journals.clone()];
    let executor = || Placeholders::of(directories.clone(), 100);
    let one = executor();
    let held = scene.hold(&one);
    assert_eq!((placed(&held), held.unheld().count()), (2, 0));
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 0);
    std::mem::forget(held);
    drop(one);
    // Whatever lies where anybody can write is no journal.
    let git = scene.root.join("mine");
    fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
    let record = Record::Held { id: Identity::at(&git).unwrap().unwrap(), temporary: PathBuf::new(), path: git };
    fs::write(taken.join("forged.placeholders"), journal::bytes_of(&[record])).unwrap();
    executor().recover();
    assert_eq!(scene.names(), [".agents", ".git", "mine"], "the first one lives, as far as its lock tells");
    assert!(journal::default_directories().len() > 1);
}

#[test]
fn a_journal_that_was_written_anew_while_it_was_read_is_left_alone() {
    let scene = Scene::new();
    let mut journal = Journal::begin(std::slice::from_ref(&scene.journals)).unwrap();
    let read = journal::all(std::slice::from_ref(&scene.journals));
    let git = scene.root.join(".git");
    fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
    let id = Identity::at(&git).unwrap().unwrap();
    journal.rewrite(&[Record::Held { id, temporary: PathBuf::new(), path: git }]).unwrap();
    let [(path, file, records)] = &read[..] else { panic!("{read:?}") };
    scene.executor().recover_by(path, file, records);
    assert_eq!((scene.names().len(), scene.written()), (1, 1), "its executor lives");
    drop(journal);
    scene.executor().recover();
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}

#[test]
fn what_is_not_a_file_of_this_user_in_a_directory_of_his_is_no_journal() {
    let is_root = rustix::process::geteuid().is_root();
    let give_to_another = |path: &Path| {
        // An ordinary user has nothing that is another one's.
        match is_root {
            true => std::os::unix::fs::chown(path, Some(65_534), None).unwrap(),
            false => eprintln!("SKIPPED: a file of another user, which takes root"),
        }
        is_root
    };
    let replace_by_a_link = |path: &Path| {
        let real = path.with_extension("real");
        fs::rename(path, &real).unwrap();
        std::os::unix::fs::symlink(&real, path).unwrap();
        true
    };
    type Spoil<'a> = &'a dyn Fn(&Path) -> bool;
    let spoils: [Spoil<'_>; 4] =
        [&|_| false, &replace_by_a_link, &give_to_another, &|path| give_to_another(path.parent().unwrap())];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let scene = Scene::new();
        let mine = scene.root.join("mine");
        fs::DirBuilder::new().mode(MODE).create(&mine).unwrap();
        let id = Identity::at(&mine).unwrap().unwrap();
        let record = Record::Held { id, temporary: PathBuf::new(), path: mine.clone() };
        journal::make_private(&scene.journals).unwrap();
        let file = scene.journals.join("one.placeholders");
        fs::write(&file, journal::bytes_of(&[record])).unwrap();
        let is_none = spoil(&file);
        assert_eq!(journal::all(std::slice::from_ref(&scene.journals)).is_empty(), is_none, "{number}");
        scene.executor().recover();
        assert_eq!(mine.exists(), is_none, "{number}");
    }
}

#[test]
fn a_directory_of_another_user_stays_at_the_next_start() {
    let scene = Scene::new();
    let Some(git) = scene.git_of_another() else { return };
    let record =
        Record::Held { id: Identity::at(&git).unwrap().unwrap(), temporary: PathBuf::new(), path: git.clone() };
    Journal::begin(std::slice::from_ref(&scene.journals)).unwrap().write(&[record]).unwrap();
    scene.executor().recover();
    assert_eq!((scene.names(), scene.written()), (vec![".git".into()], 1));
}
