//! Names that are held for a process, or watched, or neither, and what is told of them.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::*;
use crate::path_uri::PathUri;
use crate::request::Stdin;
use crate::sandbox::{
    Denial, Evidence, Level, MissingProtected, NameChange, SandboxError, SandboxIntent, SandboxSettings, Violation,
    ViolationSink,
};

/// What was told of a name.
type Told = (String, Option<NameChange>, Option<String>);

/// Keeps what it is told of names.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Told>>);

impl Recorder {
    fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }
}

impl ViolationSink for Recorder {
    fn violation(&self, violation: Violation) {
        if let Violation::File(file) = violation
            && file.name_change.is_some()
        {
            self.0.lock().unwrap().push((file.path.unwrap(), file.name_change, file.moved_to));
        }
    }
}

/// A place, and a workspace root below a directory of its own.
struct Scene {
    local: Local,
    told: Arc<Recorder>,
    root: PathBuf,
    state: PathBuf,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new(set: impl FnOnce(SandboxSettings) -> SandboxSettings) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = directory.path().canonicalize().unwrap();
        let (root, state, told) = (at.join("root"), at.join("state"), Arc::<Recorder>::default());
        std::fs::create_dir(&root).unwrap();
        let settings = SandboxSettings::default().state_dir(&state).violations(Arc::clone(&told) as _);
        let local = Local::new(LocalConfig::from_host().sandbox(set(settings)));
        Self { local, told, root, state, _directory: directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn intent(&self) -> SandboxIntent {
        SandboxIntent::workspace_write([uri(&self.root)])
    }

    fn request(&self, script: &str, intent: SandboxIntent) -> ExecRequest {
        ExecRequest::new(["sh", "-c", script]).cwd(&self.root).sandbox(intent)
    }

    /// None if no sandbox can be had here.
    async fn spawn(&self, request: ExecRequest) -> Option<Spawned> {
        match self.local.spawn(request).await {
            Ok(spawned) => Some(spawned),
            Err(SpawnError::Sandbox(error @ SandboxError::Unavailable { .. })) => {
                needs::skipped("a sandbox", &error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The code, the level and the evidence of a script.
    async fn run(&self, script: &str, intent: SandboxIntent) -> Option<(i32, Level, Vec<Evidence>)> {
        let foreseen = self.local.assess_sandbox(&self.request(script, intent.clone())).await;
        let Spawned { control, events, .. } = self.spawn(self.request(script, intent)).await?;
        let level = control.enforcement().unwrap().level;
        assert_eq!(foreseen.unwrap().level, level, "as it was foreseen");
        let (status, _) = collect(events).await;
        let evidence = control.denial().map(|denial| denial.evidence).unwrap_or_default();
        Some((status.wire_code(), level, evidence))
    }
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

fn appeared(path: &Path) -> Evidence {
    Evidence::ProtectedName { path: path.into(), change: NameChange::Appeared, moved_to: None }
}

/// Whether it is a part, in which this name is missing.
fn lacks(level: &Level, path: &Path) -> bool {
    matches!(level, Level::Partial(reasons) if reasons.iter().any(|reason| reason.contains(path.to_str().unwrap())))
}

#[tokio::test]
async fn in_a_larger_repository_a_command_can_make_one_of_its_own_which_is_told() {
    let scene = Scene::new(|settings| settings);
    let larger = scene.root.with_file_name(".git");
    std::fs::create_dir(&larger).unwrap();
    std::fs::write(larger.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let git = scene.path(".git");
    let Some((code, level, evidence)) = scene.run("mkdir .git .git/hooks", scene.intent()).await else { return };
    assert_eq!((code, evidence), (0, vec![appeared(&git)]));
    assert!(lacks(&level, &git), "{level:?}");
    let told = (git.to_str().unwrap().to_owned(), Some(NameChange::Appeared), None);
    assert_eq!(scene.told.all(), [told]);
    assert!(git.join("hooks").is_dir(), "a user may have made it");
    std::fs::remove_dir_all(&git).unwrap();
    for intent in [scene.intent().deny(uri(&git)), scene.intent().read(uri(&git))] {
        let (code, level, evidence) = scene.run("mkdir .git/hooks || mkdir .git", intent).await.unwrap();
        assert!(code != 0 && !lacks(&level, &git) && !evidence.contains(&appeared(&git)), "{level:?}");
        assert!(!git.exists());
    }
    scene.local.close().await;
}

#[tokio::test]
async fn names_that_are_only_checked_are_a_part_and_what_an_entry_denies_is_held_all_the_same() {
    let scene = Scene::new(|settings| settings.missing_protected(MissingProtected::Check));
    let [git, denied] = [".git", "denied"].map(|name| scene.path(name));
    let script = "mkdir .git && ! mkdir denied/x && ! mkdir denied";
    let Some((code, level, evidence)) = scene.run(script, scene.intent().deny(uri(&denied))).await else { return };
    assert_eq!((code, evidence), (0, vec![appeared(&git)]));
    assert!(lacks(&level, &git) && !lacks(&level, &denied), "{level:?}");
    assert!(git.is_dir() && !denied.exists());
    scene.local.close().await;
}

#[tokio::test]
async fn what_is_moved_is_told_with_its_new_place() {
    let scene = Scene::new(|settings| settings.missing_protected(MissingProtected::SetAside));
    let git = scene.path(".git");
    let Some((code, _, evidence)) = scene.run("mkdir .git .git/hooks", scene.intent()).await else { return };
    let [Evidence::ProtectedName { path, change: NameChange::Appeared, moved_to: Some(to) }] = evidence.as_slice()
    else {
        panic!("{evidence:?}")
    };
    assert!(code == 0 && *path == git && !git.exists());
    assert!(to.starts_with(&scene.state) && to.join("hooks").is_dir(), "{to:?}");
    assert_eq!(scene.told.all()[0].2.as_deref(), to.to_str());
    scene.local.close().await;
}

#[tokio::test]
async fn where_a_name_cannot_be_held_the_owner_has_to_accept_that() {
    for accepted in [false, true] {
        let scene = Scene::new(|settings| settings.accept_partial(accepted));
        std::fs::write(&scene.state, "no directory").unwrap();
        let started = scene.local.spawn(scene.request("true", scene.intent())).await;
        match started {
            Err(SpawnError::Sandbox(error)) if !accepted => {
                let text = error.to_string();
                assert!(matches!(error, SandboxError::Unavailable { .. }) && text.contains("journal"), "{text}");
            }
            Ok(spawned) if accepted => {
                let enforcement = spawned.control.enforcement().unwrap();
                assert!(lacks(&enforcement.level, &scene.path(".git")), "{enforcement:?}");
                assert!(collect(spawned.events).await.0.success());
            }
            Err(error) => return needs::skipped("a sandbox", &error.to_string()),
            Ok(_) => panic!("it is not held"),
        }
        // What an entry asks for is no matter of the owner's.
        let denied = scene.intent().deny(uri(&scene.path("denied")));
        let Err(error) = scene.local.spawn(scene.request("true", denied)).await else { panic!("it is not held") };
        assert!(matches!(error, SpawnError::Sandbox(_)), "{error}");
        scene.local.close().await;
    }
}

#[tokio::test]
async fn an_exit_does_not_wait_for_ever_for_the_look_at_names() {
    let scene = Scene::new(|settings| settings);
    let request = scene.request("read line; exit 3", scene.intent()).stdin(Stdin::Piped);
    let Some(mut spawned) = scene.spawn(request).await else { return };
    let agents = scene.path(".agents");
    std::fs::remove_dir(&agents).unwrap();
    std::fs::create_dir_all(agents.join("mine")).unwrap();
    // Stands for a file system that does not answer.
    let stalled = scene.local.placeholders.stall();
    spawned.control.write(bytes::Bytes::from_static(b"go\n")).await.unwrap();
    tokio::time::pause();
    let exited = async {
        loop {
            if let Event::Exited(exited) = spawned.events.next().await.unwrap().unwrap() {
                return exited;
            }
        }
    };
    let time = async {
        for _ in 0..60_000 {
            tokio::time::advance(Duration::from_millis(100)).await;
            // The process needs real time.
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let exited = tokio::select! {
        exited = exited => exited,
        () = time => panic!("it waits"),
    };
    tokio::time::resume();
    assert_eq!(exited.status.code(), Some(3));
    assert_eq!(spawned.control.denial(), Some(Denial::new(false, vec![Evidence::NamesUnchecked])));
    assert_eq!(scene.told.all(), []);
    drop(stalled);
    wait_until("it is told later", || !scene.told.all().is_empty()).await;
    assert_eq!(scene.told.all()[0].0, agents.to_str().unwrap());
    wait_until("the others are let go", || !scene.path(".git").exists()).await;
    assert!(agents.join("mine").is_dir());
    scene.local.close().await;
}

#[tokio::test]
async fn two_commands_on_one_root_do_not_disturb_each_other() {
    let scene = Scene::new(|settings| settings);
    let script = "read line; mkdir .git/evil 2>/dev/null && exit 1; cat .git/config";
    let held = scene.request(script, scene.intent()).stdin(Stdin::Piped);
    let Some(held) = scene.spawn(held).await else { return };
    assert!(scene.path(".git").is_dir());
    let free = scene.intent().write_below_roots(".git");
    let make = "mkdir -p .git && echo mine >.git/config";
    let (code, _, evidence) = scene.run(make, free).await.unwrap();
    assert_eq!((code, evidence), (0, vec![]));
    held.control.write(bytes::Bytes::from_static(b"go\n")).await.unwrap();
    let (status, bytes) = collect(held.events).await;
    assert!(status.success(), "{status}");
    assert_eq!(bytes, b"mine\n");
    assert_eq!((scene.told.all(), held.control.denial()), (vec![], None), "somebody has made it who may");
    assert_eq!(std::fs::read(scene.path(".git/config")).unwrap(), b"mine\n");
    assert!(!scene.path(".agents").exists());
    scene.local.close().await;
}

/// Starts a command, and does something after its intent was bound, before anything is held.
async fn change_meanwhile(scene: &Scene, request: ExecRequest, change: impl FnOnce()) -> Option<Spawned> {
    let stalled = scene.local.placeholders.stall();
    let go_on = || {
        change();
        drop(stalled);
    };
    let changed = async {
        wait_until("it is bound", || scene.local.bindings.known() == 1).await;
        go_on();
    };
    tokio::join!(scene.spawn(request), changed).0
}

#[tokio::test]
async fn what_goes_after_the_intent_was_bound_is_held_as_a_name_that_is_missing() {
    let scene = Scene::new(|settings| settings);
    let secret = scene.path("secret");
    std::fs::write(&secret, "secret").unwrap();
    let request = scene.request("mkdir secret; echo x > secret", scene.intent().deny(uri(&secret)));
    let gone = || std::fs::remove_file(&secret).unwrap();
    let Some(Spawned { control, events, .. }) = change_meanwhile(&scene, request, gone).await else { return };
    assert_eq!(control.enforcement().unwrap().level, Level::Full);
    assert!(!collect(events).await.0.success());
    assert_eq!(scene.told.all(), []);
    scene.local.close().await;
    assert_eq!(std::fs::read_dir(&scene.root).unwrap().count(), 0);
}

#[tokio::test]
async fn a_protected_name_that_appears_after_the_intent_was_bound_is_looked_at_again() {
    let scene = Scene::new(|settings| settings);
    std::fs::create_dir(scene.path("real")).unwrap();
    let request = scene.request("echo x > real/config; echo y > .git; echo z > made", scene.intent());
    let appears = || std::fs::write(scene.path(".git"), "gitdir: real").unwrap();
    let Some(Spawned { events, .. }) = change_meanwhile(&scene, request, appears).await else { return };
    assert!(collect(events).await.0.success());
    assert!(scene.path("made").exists() && !scene.path("real/config").exists());
    assert_eq!(std::fs::read_to_string(scene.path(".git")).unwrap(), "gitdir: real");
    scene.local.close().await;
}

#[test]
fn what_a_detached_command_has_started_ends_with_it_also_when_the_runtime_has_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = Scene::new(|settings| settings);
    let fifo = scene.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = "exec 3>fifo; sleep 300 & echo ready >&3; exec 3>&-; until [ -e go ]; do sleep 0.01; done";
    let started = runtime.block_on(async {
        let spawned = scene.spawn(scene.request(script, scene.intent())).await?;
        spawned.control.detach().await.unwrap();
        Some(spawned)
    });
    if started.is_none() {
        return;
    }
    let mut fifo = std::fs::File::open(fifo).unwrap();
    let mut ready = [0; 6];
    fifo.read_exact(&mut ready).unwrap();
    drop((started, runtime));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(fifo.read(&mut [0])));
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it lives");
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).expect("nobody is left").unwrap(), 0);
}

#[tokio::test]
async fn a_place_that_is_closed_keeps_nothing_that_was_made_ahead() {
    let scene = Scene::new(|settings| settings);
    let ahead = || {
        let names = std::fs::read_dir(&scene.state).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(".longarm-")).count()
    };
    for _ in 0..3 {
        let Some((0, ..)) = scene.run("true", scene.intent()).await else { return };
    }
    wait_until("some are made ahead", || ahead() > 0).await;
    scene.local.close().await;
    assert_eq!((ahead(), std::fs::read_dir(&scene.root).unwrap().count()), (0, 0));
}
