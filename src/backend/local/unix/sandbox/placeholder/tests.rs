use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::directory::{MODE, open};
use super::*;
use crate::sandbox::MissingProtected::Placeholder;
use crate::sandbox::{Access, Existing, NameChange};

mod exchanged;
mod journals;
mod kept;
mod others;
mod stock;

/// A workspace root, and a directory for journals.
struct Scene {
    _dir: tempfile::TempDir,
    root: PathBuf,
    journals: PathBuf,
}

const NAMES: [&str; 2] = [".git", ".agents"];

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let (root, journals) = (at.join("root"), at.join("journals"));
        fs::create_dir(&root).unwrap();
        Self { _dir: dir, root, journals }
    }

    fn executor(&self) -> Placeholders {
        Placeholders::new(Some(self.journals.clone()))
    }

    fn hold(&self, executor: &Placeholders) -> Held {
        hold(executor, &self.root, Placeholder)
    }

    /// A directory just like a placeholder, of another user. None, and it is said, where there is nobody who can make one.
    fn git_of_another(&self) -> Option<PathBuf> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: a directory of another user, which takes root");
            return None;
        }
        let git = self.root.join(".git");
        fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
        std::os::unix::fs::chown(&git, Some(65_534), None).unwrap();
        Some(git)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.root).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// How many records still matter.
    fn written(&self) -> usize {
        let journals = journal::all(std::slice::from_ref(&self.journals));
        journals.iter().map(|(_, _, records)| in_force(records)).sum()
    }

    /// The sizes of all journals.
    fn bytes(&self) -> u64 {
        let entries = fs::read_dir(&self.journals).unwrap();
        entries
            .map(|entry| entry.unwrap().metadata().unwrap())
            .filter(fs::Metadata::is_file)
            .map(|file| file.len())
            .sum()
    }
}

fn in_force(records: &[Record]) -> usize {
    let matters = |at: usize, record: &Record| {
        let mut later = records[at..].iter();
        match record {
            Record::Making { temporary } => {
                temporary.exists()
                    && !later.any(|later| matches!(later, Record::Held { temporary: at, .. } if at == temporary))
            }
            Record::Held { id, .. } => !later.any(|later| *later == Record::Gone { id: *id }),
            Record::Gone { .. } => false,
        }
    };
    records.iter().enumerate().filter(|(at, record)| matters(*at, record)).count()
}

fn hold(executor: &Placeholders, root: &Path, missing: MissingProtected) -> Held {
    hold_but(executor, root, missing, None)
}

/// One name is not to have a placeholder.
fn hold_but(executor: &Placeholders, root: &Path, missing: MissingProtected, watched: Option<&str>) -> Held {
    let protected = NAMES.map(|name| ProtectedName {
        root: root.into(),
        path: root.join(name),
        state: Existing::Missing,
        access: Access::Read,
        git_dir: None,
        placeholder: Some(name) != watched,
        required: false,
    });
    executor.hold(&protected, missing)
}

#[test]
fn nothing_is_held_in_what_every_process_has_of_its_own() {
    let scene = Scene::new();
    let held = hold(&scene.executor(), Path::new("/proc"), Placeholder);
    assert!(held.is_idle() && held.unheld().next().is_none(), "{held:?}");
    assert!(!scene.journals.exists());
}

fn is_empty_directory(path: &Path) -> bool {
    Spot::by_path(path.into()).is_empty()
}

fn placed(held: &Held) -> usize {
    held.placeholders().count()
}

#[test]
fn missing_names_are_held_by_empty_directories_which_go_with_their_last_user() {
    let scene = Scene::new();
    let executor = scene.executor();
    let first = scene.hold(&executor);
    assert_eq!((placed(&first), scene.names()), (2, vec![".agents".into(), ".git".into()]));
    let mode = fs::metadata(scene.root.join(".git")).unwrap().mode();
    assert_eq!(mode & 0o7777 & !MODE, 0, "{mode:o}");
    assert!(scene.written() >= 2);

    let second = scene.hold(&executor);
    assert_eq!(placed(&second), 2);
    drop(first);
    assert_eq!(scene.names().len(), 2, "the second one needs them");
    assert!(second.changed().is_empty());
    drop(second);
    assert_eq!(scene.names(), [""; 0]);
    assert_eq!(scene.written(), 0);
}

#[test]
fn what_exists_is_watched_and_never_touched() {
    let scene = Scene::new();
    fs::create_dir(scene.root.join(".git")).unwrap();
    std::os::unix::fs::symlink("nowhere", scene.root.join(".agents")).unwrap();
    let held = scene.hold(&scene.executor());
    assert_eq!(placed(&held), 0);
    assert!(held.changed().is_empty());
    fs::remove_dir(scene.root.join(".git")).unwrap();
    assert!(held.changed().is_empty(), "that it went harms nobody");
    fs::create_dir(scene.root.join("new")).unwrap();
    fs::remove_file(scene.root.join(".agents")).unwrap();
    fs::rename(scene.root.join("new"), scene.root.join(".agents")).unwrap();
    assert_eq!(held.changed(), [(scene.root.join(".agents").as_path(), NameChange::Replaced)]);
    drop(held);
    assert_eq!(scene.names(), [".agents"]);
}

#[test]
fn an_empty_directory_of_the_users_own_is_no_placeholder() {
    let scene = Scene::new();
    fs::DirBuilder::new().mode(MODE).create(scene.root.join(".git")).unwrap();
    let held = scene.hold(&scene.executor());
    assert_eq!(held.placeholders().collect::<Vec<_>>(), [scene.root.join(".agents")]);
    drop(held);
    assert_eq!(scene.names(), [".git"]);
}

#[test]
fn two_executors_share_and_the_last_one_removes() {
    for first_goes_first in [true, false] {
        let scene = Scene::new();
        let (one, other) = (scene.executor(), scene.executor());
        let (held, shared) = (scene.hold(&one), scene.hold(&other));
        assert_eq!((placed(&held), placed(&shared)), (2, 2));
        let (early, late) = if first_goes_first { (held, shared) } else { (shared, held) };
        drop(early);
        assert_eq!(scene.names().len(), 2);
        assert!(late.changed().is_empty());
        drop(late);
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn what_somebody_puts_into_it_stays_and_is_told() {
    let scene = Scene::new();
    let held = scene.hold(&scene.executor());
    let git = scene.root.join(".git");
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(git.join("config"), "mine").unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(held.changed(), [(git.as_path(), NameChange::Appeared)]);
    drop(held);
    assert_eq!(fs::read(git.join("config")).unwrap(), b"mine");
    assert_eq!(fs::metadata(&git).unwrap().mode() & 0o777, 0o755, "its new owner can use it");
    assert_eq!(scene.written(), 0);
}

#[test]
fn another_directory_in_its_place_stays_and_is_told() {
    let scene = Scene::new();
    let held = scene.hold(&scene.executor());
    let git = scene.root.join(".git");
    // So that the new one cannot be the same inode again.
    fs::rename(&git, scene.root.join("moved")).unwrap();
    fs::create_dir(&git).unwrap();
    assert_eq!(held.changed(), [(git.as_path(), NameChange::Appeared)]);
    drop(held);
    assert_eq!(scene.names(), [".git"]);
}

#[test]
fn a_root_that_was_moved_is_found() {
    let scene = Scene::new();
    let held = scene.hold(&scene.executor());
    let moved = scene.root.with_file_name("moved");
    fs::rename(&scene.root, &moved).unwrap();
    drop(held);
    assert!(is_empty_directory(&moved));
}

#[test]
fn a_name_that_must_not_be_held_is_watched() {
    let scene = Scene::new();
    let held = hold_but(&scene.executor(), &scene.root, Placeholder, Some(".git"));
    assert_eq!(held.placeholders().collect::<Vec<_>>(), [scene.root.join(".agents")]);
    fs::create_dir(scene.root.join(".git")).unwrap();
    assert_eq!(held.changed(), [(scene.root.join(".git").as_path(), NameChange::Appeared)]);
    drop(held);
    assert_eq!(scene.names(), [".git"]);
}

#[test]
fn a_place_that_cannot_be_written_to_is_only_watched() {
    let held = hold(&Scene::new().executor(), Path::new("/proc"), Placeholder);
    assert_eq!(placed(&held), 0);
    assert!(held.changed().is_empty());
    let scene = Scene::new();
    fs::write(&scene.journals, "no directory").unwrap();
    let held = scene.hold(&scene.executor());
    assert_eq!((placed(&held), scene.names().len()), (0, 0), "nothing is made that is not written down");
}

#[test]
fn a_directory_without_its_name_yet_goes_at_the_next_start() {
    for with_identity in [false, true] {
        let scene = Scene::new();
        let temporary = scene.root.join(".longarm-0.placeholder");
        fs::DirBuilder::new().mode(MODE).create(&temporary).unwrap();
        let id = Identity::at(&temporary).unwrap().unwrap();
        let making = Record::Making { temporary: temporary.clone() };
        let held = Record::Held { id, temporary, path: scene.root.join(".git") };
        let mut journal = Journal::begin(std::slice::from_ref(&scene.journals)).unwrap();
        let records = [making, held];
        journal.write(&records[..=usize::from(with_identity)]).unwrap();
        scene.executor().recover();
        assert_eq!(scene.names().len(), 1, "its executor lives");
        drop(journal);
        scene.executor().recover();
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn nothing_but_placeholders_goes_at_the_next_start() {
    let scene = Scene::new();
    let [empty, full, other] = ["empty", "full", "other"].map(|name| scene.root.join(name));
    for path in [&empty, &full, &other] {
        fs::DirBuilder::new().mode(0o755).create(path).unwrap();
    }
    fs::write(full.join("file"), "mine").unwrap();
    for path in [&full, &other] {
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).unwrap();
    }
    let id = |path: &Path| Identity::at(path).unwrap().unwrap();
    let none = PathBuf::new();
    let records = [
        Record::Making { temporary: other.clone() },
        Record::Held { id: id(&empty), temporary: none.clone(), path: empty },
        Record::Held { id: id(&full), temporary: none.clone(), path: full },
        Record::Held { id: Identity(0, 0), temporary: none, path: other },
    ];
    Journal::begin(std::slice::from_ref(&scene.journals)).unwrap().write(&records).unwrap();
    scene.executor().recover();
    assert_eq!(scene.names(), ["empty", "full", "other"]);
    // That one may be ours, with another mode: it is looked at again until it has gone.
    assert!(scene.written() > 0);
    fs::remove_dir(scene.root.join("empty")).unwrap();
    scene.executor().recover();
    assert_eq!((scene.names(), scene.written()), (vec!["full".into(), "other".into()], 0));
}

/// Somebody else's lock on a directory.
fn locked(path: &Path, how: FlockOperation) -> OwnedFd {
    let file = open(path).unwrap();
    rustix::fs::flock(&file, how).unwrap();
    file
}

/// A child that some other test makes may have the descriptor for a moment, and with it the lock.
fn give_up(locked: OwnedFd) {
    unlock(&locked);
    drop(locked);
}

#[test]
fn a_lock_of_somebody_else_does_not_make_a_placeholder_be_forgotten() {
    for restarted in [false, true] {
        let scene = Scene::new();
        let other_root = scene.root.with_file_name("other");
        fs::create_dir(&other_root).unwrap();
        let executor = scene.executor();
        let held = scene.hold(&executor);
        let reader = locked(&scene.root.join(".git"), FlockOperation::NonBlockingLockShared);
        drop(held);
        assert_eq!(scene.names(), [".git"], "it cannot be removed now");
        // What others do meanwhile changes nothing.
        drop(hold(&executor, &other_root, Placeholder));
        assert!(scene.names() == [".git"] && scene.written() > 0);
        scene.executor().recover();
        assert!(scene.names() == [".git"] && scene.written() > 0);
        if restarted {
            drop(executor);
            scene.executor().recover();
            assert!(scene.names() == [".git"] && scene.written() > 0, "a start while it is locked does not forget it");
            give_up(reader);
            scene.executor().recover();
        } else {
            give_up(reader);
            drop(hold(&executor, &other_root, Placeholder));
        }
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn waiting_for_a_lock_holds_nobody_else_up() {
    let scene = Scene::new();
    // Left by an executor that was killed, and locked by somebody.
    let git = scene.root.join(".git");
    fs::DirBuilder::new().mode(MODE).create(&git).unwrap();
    let id = Identity::at(&git).unwrap().unwrap();
    let record = Record::Held { id, temporary: PathBuf::new(), path: git.clone() };
    Journal::begin(std::slice::from_ref(&scene.journals)).unwrap().write(&[record]).unwrap();
    let other_root = scene.root.with_file_name("other");
    fs::create_dir(&other_root).unwrap();
    let lock = locked(&git, FlockOperation::NonBlockingLockExclusive);
    let executor = scene.executor();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| scene.hold(&executor));
        while executor.shared.state().under_way.is_empty() {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            assert_eq!(placed(&hold(&executor, &other_root, Placeholder)), 2);
        }
        assert!(!waiting.is_finished());
        give_up(lock);
        let held = waiting.join().unwrap();
        assert_eq!(placed(&held), 2);
        assert!(scene.written() > 0);
    });
    assert_eq!(scene.names(), [""; 0]);
}

#[test]
fn the_executor_s_own_directory_is_out_of_reach_where_all_around_may_be_written() {
    use crate::path_uri::PathUri;
    use crate::sandbox::{Facts, MissingOwn, SandboxIntent, SandboxSettings};
    let scene = Scene::new();
    let top = scene.root.parent().unwrap();
    let uri = |path: &Path| PathUri::from_host_native_path(path).unwrap();
    let bind = |root: &Path| {
        let settings = SandboxSettings::default();
        let intent = SandboxIntent::read_only().write(uri(root));
        intent.bind(&Facts::host(&settings, Path::new("/nowhere"))).unwrap()
    };
    let executor = scene.executor();
    let mut bound = bind(top);
    assert!(bound.can_write(&scene.journals));
    executor.keep_own(&mut bound, MissingOwn::Make).unwrap();
    assert_eq!(bound.access(&scene.journals), Some(Access::Deny));
    assert!(journal::is_private(&scene.journals), "it is there, so that nobody makes another one");
    assert!(bound.can_write(&scene.root));

    // Where something is denied, it could come to stand there.
    let intent = SandboxIntent::read_only().deny(uri(&scene.root));
    let mut denied = intent.bind(&Facts::host(&SandboxSettings::default(), Path::new("/nowhere"))).unwrap();
    assert!(denied.can_read(&scene.journals));
    executor.keep_own(&mut denied, MissingOwn::Make).unwrap();
    assert_eq!(denied.access(&scene.journals), Some(Access::Deny));

    let mut apart = bind(&scene.root);
    let before = apart.clone();
    executor.keep_own(&mut apart, MissingOwn::Make).unwrap();
    assert_eq!(apart, before, "nothing has to be done");

    // Not even the way there may be made by somebody else.
    let deep = top.join("not/yet/there");
    let executor_below = Placeholders::new(Some(deep.clone()));
    let mut around = bind(top);
    executor_below.keep_own(&mut around, MissingOwn::Make).unwrap();
    assert_eq!(around.access(&deep), Some(Access::Deny));
    assert!(journal::is_private(&deep));

    // Whoever only asks what would be makes nothing.
    let missing = top.join("missing");
    let nobody_yet = Placeholders::new(Some(missing.clone()));
    let mut bound = bind(top);
    nobody_yet.keep_own(&mut bound, MissingOwn::Leave).unwrap();
    assert_eq!((bound.access(&missing), missing.exists()), (Some(Access::Write), false));
    // Where we cannot make it, nobody can who has no more rights.
    let mut system = bind(Path::new("/sys/kernel"));
    let before = system.clone();
    Placeholders::new(Some("/sys/kernel/longarm".into())).keep_own(&mut system, MissingOwn::Make).unwrap();
    assert_eq!(system, before);

    let inside = scene.journals.join("inside");
    fs::create_dir(&inside).unwrap();
    for root in [&scene.journals, &inside] {
        let refused = executor.keep_own(&mut bind(root), MissingOwn::Make);
        assert!(matches!(refused, Err(SandboxError::Preparation { .. })), "{refused:?}");
    }
}

#[test]
fn names_are_held_up_to_a_bound_and_then_it_is_said_why_not() {
    let scene = Scene::new();
    let executor = Placeholders::of(vec![scene.journals.clone()], 1);
    let held = scene.hold(&executor);
    let unheld: Vec<_> = held.unheld().map(|(_, why)| why.to_string()).collect();
    assert_eq!(placed(&held), 1);
    assert!(matches!(&unheld[..], [why] if why.contains("holds 1 names")), "{unheld:?}");
    // One that stands there already takes no more.
    let again = scene.hold(&executor);
    assert_eq!(placed(&again), 1);
    drop((held, again));
    assert_eq!(scene.names(), [""; 0]);
    assert_eq!(placed(&scene.hold(&executor)), 1, "there is room again");
}

const CHILD: &str = "LONGARM_PLACEHOLDER_TEST";
const MODULE: &str = "backend::local::unix::sandbox::placeholder::tests";

/// What an executor of its own does that a test starts; otherwise nothing.
#[test]
fn child_executor() {
    let Some(scene) = std::env::var_os(CHILD) else { return };
    let (root, journals) = (Path::new(&scene).join("root"), Path::new(&scene).join("journals"));
    let executor = Placeholders::new(Some(journals));
    let does = std::env::var("LONGARM_PLACEHOLDER_DOES").unwrap();
    let mut held = hold(&executor, &root, Placeholder);
    while does == "Stock" && executor.shared.state().stock.ready.is_empty() {
        held.part();
        drop(held);
        held = hold(&executor, &root, Placeholder);
    }
    let mut out = io::stdout();
    writeln!(out, "holding").unwrap();
    out.flush().unwrap();
    // Until it is killed.
    loop {
        if does != "Loop" {
            std::thread::park();
            continue;
        }
        held.part();
        drop(held);
        held = hold(&executor, &root, Placeholder);
    }
}

/// What it does until it is killed.
#[derive(Debug)]
enum Does {
    /// Holds names.
    Hold,
    /// The same, and has made some ahead.
    Stock,
    /// Holds them and lets them go over and over.
    Loop,
}

struct Executor(Child);

impl Executor {
    fn start(scene: &Scene, does: Does) -> Self {
        Self::start_as(scene, does, None)
    }

    fn start_as(scene: &Scene, does: Does, user: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("{MODULE}::child_executor"), "--nocapture"]);
        command.env(CHILD, scene.root.parent().unwrap()).stdout(Stdio::piped());
        command.env("LONGARM_PLACEHOLDER_DOES", format!("{does:?}"));
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")), "it ended");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_a_killed_executor_leaves_goes_at_the_next_start() {
    let scene = Scene::new();
    let child = Executor::start(&scene, Does::Hold);
    while scene.names().len() != 2 {
        std::thread::yield_now();
    }
    scene.executor().recover();
    assert_eq!(scene.names().len(), 2, "it lives");
    child.kill();
    assert_eq!(scene.names().len(), 2);
    scene.executor().recover();
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}

#[test]
fn what_a_killed_executor_leaves_is_taken_over_by_the_next_process_on_that_root() {
    for killed_first in [true, false] {
        let scene = Scene::new();
        let executor = scene.executor();
        let child = Executor::start(&scene, Does::Hold);
        while scene.names().len() != 2 {
            std::thread::yield_now();
        }
        let held;
        if killed_first {
            child.kill();
            held = scene.hold(&executor);
        } else {
            held = scene.hold(&executor);
            child.kill();
        }
        assert_eq!(placed(&held), 2);
        scene.executor().recover();
        assert_eq!(scene.names().len(), 2, "they are needed");
        drop(held);
        assert_eq!((scene.names().len(), scene.written()), (0, 0));
    }
}

#[test]
fn an_executor_killed_at_any_moment_leaves_nothing_behind() {
    for pause in 0..40 {
        let scene = Scene::new();
        let child = Executor::start(&scene, Does::Loop);
        // Somewhere within what it does over and over.
        std::thread::sleep(Duration::from_micros(37 * pause));
        child.kill();
        scene.executor().recover();
        assert_eq!((scene.names().len(), scene.written()), (0, 0), "{:?}", scene.names());
        assert_eq!(fs::read_dir(&scene.journals).unwrap().count(), 0);
    }
}

#[test]
fn executors_that_come_and_go_on_one_root_leave_nothing_behind() {
    let scene = Scene::new();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let executor = scene.executor();
                for _ in 0..200 {
                    let mut held = scene.hold(&executor);
                    assert_eq!(placed(&held), 2, "{held:?}");
                    assert!(held.changed().is_empty());
                    assert_eq!(held.part(), []);
                }
            });
        }
    });
    assert_eq!((scene.names().len(), scene.written()), (0, 0));
}
