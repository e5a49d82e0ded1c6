//! Sandboxes that the reference's own server enforces for our client: what it says of them reaches the host.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longarm::collect::CollectLimits;
use longarm::error::{SpawnError, Unsupported};
use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, FsError, InvalidFsRequest, OpenMode, ReadOptions, RemoveOptions,
    Symlinks, WalkOptions, WriteOptions,
};
use longarm::path_uri::PathUri;
use longarm::request::{RequestPath, Signal};
use longarm::sandbox::{NetworkPolicy, SandboxError, SandboxIntent, WindowsSandboxLevel};
use longarm::status::ExitStatus;
use longarm::{Environment, ExecRequest};

use super::{PATIENCE, Reference, within};

/// A workspace root and a directory outside of it, neither of which is for temporary files.
struct Scene {
    _reference: Reference,
    environment: Environment,
    _dir: tempfile::TempDir,
    w: PathBuf,
    o: PathBuf,
}

impl Scene {
    async fn new() -> Option<Self> {
        let reference = Reference::start()?;
        let environment = Environment::with_backend(Arc::new(reference.connect().await));
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().canonicalize().unwrap();
        let [w, o] = ["w", "o"].map(|name| at.join(name));
        for directory in [&w, &o] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("f"), "content\n").unwrap();
        }
        Some(Self { _reference: reference, environment, _dir: dir, w, o })
    }

    fn workspace_write(&self) -> SandboxIntent {
        SandboxIntent::workspace_write([uri(&self.w)]).cwd(uri(&self.w))
    }

    fn request(&self, intent: SandboxIntent, script: &str) -> ExecRequest {
        ExecRequest::new(["bash", "-c", script]).cwd(&self.w).sandbox(intent)
    }

    /// Runs a script in the root. Whatever becomes of it, the sandbox's type is told.
    async fn run(&self, intent: SandboxIntent, script: &str) -> Ran {
        self.run_request(self.request(intent, script)).await
    }

    async fn run_request(&self, request: ExecRequest) -> Ran {
        let run = async {
            let process = self.environment.spawn(request).await.unwrap();
            assert_eq!(process.sandbox_type(), Some("linuxSeccomp"));
            let handle = process.handle();
            let output = process.output(CollectLimits::default()).await.unwrap();
            // The plain wire has no evidence and no report of what is enforced.
            assert_eq!((handle.denial(), handle.enforcement()), (None, None));
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let code = output.status.code().unwrap();
            Ran {
                code,
                denied: output.sandbox_denied,
                stdout: text(output.stdout.head),
                stderr: text(output.stderr.head),
            }
        };
        within(PATIENCE, run).await.expect("it ends")
    }

    async fn refused(&self, request: ExecRequest) -> SpawnError {
        let start = self.environment.spawn(request);
        within(PATIENCE, start).await.expect("in time").expect_err("refused")
    }

    /// The files of the place under an intent.
    fn files(&self, intent: SandboxIntent) -> Arc<dyn FileSystem> {
        self.environment.fs().with_sandbox(intent).unwrap()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Ran {
    code: i32,
    denied: bool,
    stdout: String,
    stderr: String,
}

fn allowed(stdout: &str) -> Ran {
    Ran { code: 0, denied: false, stdout: stdout.into(), stderr: String::new() }
}

fn denied(stderr: impl Into<String>) -> Ran {
    Ran { code: 1, denied: true, stdout: String::new(), stderr: stderr.into() }
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

#[tokio::test]
async fn a_process_under_read_only_reads_and_writes_nowhere() {
    let Some(scene) = Scene::new().await else { return };
    let run = |script| scene.run(SandboxIntent::read_only(), script);
    assert_eq!(run("cat f; head -c 4 /etc/passwd; echo x >/dev/null").await, allowed("content\nroot"));
    assert_eq!(run("echo x >new").await, denied("bash: line 1: new: Read-only file system\n"));
    let temporary = "/tmp/longarm-interop-denied";
    let expected = denied(format!("bash: line 1: {temporary}: Read-only file system\n"));
    let script = format!("echo x >{temporary}");
    assert_eq!(run(&script).await, expected);
    assert!(!scene.w.join("new").exists() && !Path::new(temporary).exists());
    // A guess from the text, and none without a failure.
    assert_eq!(run("echo permission denied").await, allowed("permission denied\n"));
    assert_eq!(run("exit 3").await, Ran { code: 3, ..allowed("") });
    assert_eq!(
        run("echo permission denied; exit 3").await,
        Ran { code: 3, denied: true, ..allowed("permission denied\n") }
    );
    assert_eq!(run("kill -SYS $$").await, Ran { code: 159, ..denied("") });
}

#[tokio::test]
async fn a_process_under_workspace_write_writes_in_its_root_and_not_outside() {
    let Some(scene) = Scene::new().await else { return };
    let run = |script| scene.run(scene.workspace_write(), script);
    assert_eq!(run("echo x >new && mkdir d && mv new d && cat d/new").await, allowed("x\n"));
    assert_eq!(std::fs::read(scene.w.join("d/new")).unwrap(), b"x\n");
    assert_eq!(run("t=$(mktemp /tmp/longarm.XXXXXX) && rm $t && echo made").await, allowed("made\n"));
    let outside = scene.o.join("new");
    let expected = denied(format!("bash: line 1: {}: Read-only file system\n", outside.display()));
    let script = format!("echo x >{}", outside.display());
    assert_eq!(run(&script).await, expected);
    assert_eq!(run("rm ../o/f").await, denied("rm: cannot remove '../o/f': Read-only file system\n"));
    assert_eq!(std::fs::read_dir(&scene.o).unwrap().count(), 1);
    // It holds the names of repositories; its text has no word that it takes for a denial.
    let held = Ran { denied: false, ..denied("mkdir: cannot create directory '.git': File exists\n") };
    assert_eq!(run("mkdir .git").await, held);
    let freed = scene.workspace_write().write_below_roots(".git");
    assert_eq!(scene.run(freed, "mkdir .git && echo made").await, allowed("made\n"));
}

#[tokio::test]
async fn a_process_reaches_no_network_unless_it_may() {
    let Some(scene) = Scene::new().await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3");
    let no_socket = format!(
        "bash: socket: Operation not permitted\nbash: line 1: /dev/tcp/127.0.0.1/{port}: Operation not permitted\n"
    );
    for intent in [SandboxIntent::read_only(), scene.workspace_write(), SandboxIntent::no_network()] {
        assert_eq!(scene.run(intent, &script).await, denied(no_socket.as_str()));
    }
    let serving = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"hello\n").unwrap());
    let enabled = scene.workspace_write().network(NetworkPolicy::Enabled);
    assert_eq!(scene.run(enabled.clone(), &script).await, allowed("hello\n"));
    serving.join().unwrap();
    let still = denied("bash: line 1: ../o/new: Read-only file system\n");
    assert_eq!(scene.run(enabled, "echo x >../o/new").await, still);
}

#[tokio::test]
async fn a_process_does_not_see_what_is_denied() {
    let Some(scene) = Scene::new().await else { return };
    let secret = scene.w.join("secret");
    std::fs::create_dir_all(secret.join("open")).unwrap();
    std::fs::write(secret.join("f"), "secret\n").unwrap();
    std::fs::write(scene.w.join("key.pem"), "secret\n").unwrap();
    let deny = || scene.workspace_write().deny(uri(&secret));
    for intent in [deny(), scene.workspace_write().deny_below_roots("secret")] {
        assert_eq!(scene.run(intent.clone(), "cat secret/f").await, denied("cat: secret/f: Permission denied\n"));
        assert_eq!(scene.run(intent, "cat f").await, allowed("content\n"));
    }
    let cannot_list = "ls: cannot open directory 'secret': Permission denied\n";
    assert_eq!(scene.run(deny(), "ls secret").await, Ran { code: 2, ..denied(cannot_list) });
    let reopened = deny().write(uri(&secret.join("open")));
    assert_eq!(scene.run(reopened.clone(), "echo x >secret/open/n && cat secret/open/n").await, allowed("x\n"));
    assert_eq!(scene.run(reopened, "ls secret").await, Ran { code: 2, ..denied(cannot_list) });
    let pattern = scene.workspace_write().deny_glob("**/*.pem");
    assert_eq!(scene.run(pattern, "cat key.pem").await, denied("cat: key.pem: Permission denied\n"));
    let minimal = SandboxIntent::minimal_read([uri(&scene.w)]);
    let hidden = Ran { denied: false, ..denied("cat: ../o/f: No such file or directory\n") };
    assert_eq!(scene.run(minimal.clone(), "cat f").await, allowed("content\n"));
    assert_eq!(scene.run(minimal, "cat ../o/f").await, hidden);
}

#[tokio::test]
async fn a_sandboxed_process_is_stopped_as_any_other() {
    let Some(scene) = Scene::new().await else { return };
    let run = async {
        let mut process =
            scene.environment.spawn(scene.request(SandboxIntent::read_only(), "sleep 600")).await.unwrap();
        process.signal(Signal::Interrupt).await.unwrap();
        assert_eq!(process.wait().await.unwrap(), ExitStatus::exited(130));
        let mut process =
            scene.environment.spawn(scene.request(SandboxIntent::read_only(), "sleep 600")).await.unwrap();
        assert!(process.kill().await.unwrap());
        assert_eq!(process.wait().await.unwrap(), ExitStatus::exited(137));
    };
    within(PATIENCE, run).await.expect("it ends");
}

#[tokio::test]
async fn a_sandbox_that_it_refuses_is_a_typed_error() {
    let Some(scene) = Scene::new().await else { return };
    let foreign = scene.workspace_write().write(PathUri::parse("file://host/share").unwrap());
    let error = scene.refused(scene.request(foreign, "true")).await;
    assert!(
        matches!(&error, SpawnError::Sandbox(SandboxError::Preparation { reason }) if reason.contains("'file://host/share'")),
        "{error:?}"
    );
    let foreign = SandboxIntent::read_only().windows_level(WindowsSandboxLevel::Mxc);
    let error = scene.refused(scene.request(foreign, "true")).await;
    let expected =
        SandboxError::Unavailable { cause: "native MXC is unavailable on this executor".into(), remedy: None };
    assert!(matches!(&error, SpawnError::Sandbox(refusal) if *refusal == expected), "{error:?}");
    let gone = scene.request(SandboxIntent::read_only(), "true").cwd(scene.w.join("gone"));
    let error = scene.refused(gone).await;
    assert!(matches!(error, SpawnError::ProgramOrCwdNotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn a_sandbox_that_it_cannot_set_up_ends_as_the_command_would() {
    let Some(scene) = Scene::new().await else { return };
    // On its wire this is told by an exit only; the command never runs.
    let missing = ExecRequest::new(["/nonexistent"]).cwd(&scene.w).sandbox(SandboxIntent::read_only());
    let unmanaged = scene.request(SandboxIntent::read_only(), "echo ran").enforce_managed_network(true);
    for (request, why) in [(missing, "Failed to execvp /nonexistent"), (unmanaged, "managed proxy mode requires")] {
        let ran = scene.run_request(request).await;
        assert_eq!((ran.code, ran.denied, &*ran.stdout), (101, true, ""), "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

#[tokio::test]
async fn files_under_an_intent_are_read_and_written_as_it_says() {
    let Some(scene) = Scene::new().await else { return };
    let run = async {
        let files = scene.files(scene.workspace_write());
        let read = |path: PathBuf| files.read(path.into(), ReadOptions::new());
        let write = |path: PathBuf| files.write(path.into(), "new".into(), WriteOptions::new());
        assert_eq!(read(scene.o.join("f")).await.unwrap(), "content\n");
        write(scene.w.join("new")).await.unwrap();
        assert_eq!(std::fs::read(scene.w.join("new")).unwrap(), b"new");
        let outside = scene.o.join("new");
        read_only(write(outside.clone()).await, &outside);
        let options = CreateDirectoryOptions::new();
        read_only(files.create_directory(outside.clone().into(), options).await, &outside);
        read_only(files.remove(scene.o.join("f").into(), RemoveOptions::new()).await, &scene.o.join("f"));
        read_only(files.open(outside.clone().into(), OpenMode::Replace).await.map(drop), &outside);
        // Of a copy, it does not say which of the two paths it means.
        let (from, options) = (scene.w.join("f"), CopyOptions::new());
        read_only(files.copy(from.clone().into(), outside.clone().into(), options).await, &from);
        files.copy(scene.o.join("f").into(), scene.w.join("copy").into(), CopyOptions::new()).await.unwrap();
        assert_eq!(std::fs::read(scene.w.join("copy")).unwrap(), b"content\n");
        let file = files.open(scene.w.join("blocks").into(), OpenMode::Replace).await.unwrap();
        file.write_block(0, "block".into()).await.unwrap();
        file.close().await.unwrap();
        let file = files.open(scene.o.join("f").into(), OpenMode::Read).await.unwrap();
        assert_eq!(file.read_block(0, 100).await.unwrap().bytes, "content\n");
        assert_eq!(std::fs::read(scene.w.join("blocks")).unwrap(), b"block");
        let metadata = files.metadata(scene.o.join("f").into(), Symlinks::Follow).await.unwrap();
        assert_eq!((metadata.is_file, metadata.size), (true, 8));
        assert_eq!(files.canonicalize(scene.o.join("../o").into()).await.unwrap(), uri(&scene.o));
        let entries = files.read_directory(scene.o.clone().into()).await.unwrap();
        assert_eq!(entries.iter().map(|entry| &*entry.file_name).collect::<Vec<_>>(), ["f"]);
        let walk = files.walk(scene.o.clone().into(), WalkOptions::new()).await.unwrap();
        assert_eq!(walk.entries.iter().map(|entry| &entry.path).collect::<Vec<_>>(), [&uri(&scene.o.join("f"))]);
        let awaited = scene.w.join("awaited");
        let watch = files.watch_missing(vec![awaited.clone().into()], None).await.unwrap().expect("a watch");
        files.write(awaited.into(), "here".into(), WriteOptions::new()).await.unwrap();
        watch.await.unwrap();
        let there: Vec<_> = std::fs::read_dir(&scene.o).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(there, ["f"]);
    };
    within(PATIENCE, run).await.expect("it ends");
}

#[track_caller]
fn read_only<T: std::fmt::Debug>(result: Result<T, FsError>, path: &Path) {
    let error = result.unwrap_err();
    let FsError::Os { path: named, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!((named, source.kind()), (&RequestPath::from(path), std::io::ErrorKind::ReadOnlyFilesystem), "{error:?}");
    assert_eq!(source.to_string(), "Read-only file system (os error 30)");
}

#[tokio::test]
async fn files_that_an_intent_denies_are_not_read() {
    let Some(scene) = Scene::new().await else { return };
    let secret = scene.w.join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("f"), "secret").unwrap();
    let run = async {
        let files = scene.files(scene.workspace_write().deny(uri(&secret)));
        let path = secret.join("f");
        permission_denied(files.read(path.clone().into(), ReadOptions::new()).await, &path);
        permission_denied(files.write(path.clone().into(), "x".into(), WriteOptions::new()).await, &path);
        permission_denied(files.open(path.clone().into(), OpenMode::Read).await.map(drop), &path);
        permission_denied(files.metadata(path.clone().into(), Symlinks::Follow).await, &path);
        permission_denied(files.read_directory(secret.clone().into()).await, &secret);
        permission_denied(
            files.copy(path.clone().into(), scene.w.join("copy").into(), CopyOptions::new()).await,
            &path,
        );
        assert_eq!(files.read(scene.w.join("f").into(), ReadOptions::new()).await.unwrap(), "content\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        // What is not named is not there.
        let files = scene.files(SandboxIntent::minimal_read([uri(&scene.w)]).cwd(uri(&scene.w)));
        let outside = RequestPath::from(scene.o.join("f"));
        let error = files.read(outside.clone(), ReadOptions::new()).await.unwrap_err();
        assert!(matches!(&error, FsError::NotFound { path } if *path == outside), "{error:?}");
        assert_eq!(files.read(scene.w.join("f").into(), ReadOptions::new()).await.unwrap(), "content\n");
        // Roots alone do not do for calls about files.
        let files = scene.files(SandboxIntent::workspace_write([uri(&scene.w)]));
        let error = files.read(scene.w.join("f").into(), ReadOptions::new()).await.unwrap_err();
        let FsError::InvalidRequest(InvalidFsRequest::Other(reason)) = &error else { panic!("{error:?}") };
        assert_eq!(reason, "file system sandbox context with dynamic permissions requires cwd");
    };
    within(PATIENCE, run).await.expect("it ends");
}

#[track_caller]
fn permission_denied<T: std::fmt::Debug>(result: Result<T, FsError>, path: &Path) {
    let error = result.unwrap_err();
    let FsError::PermissionDenied { path: named, code } = &error else { panic!("{error:?}") };
    assert_eq!((named, *code), (&RequestPath::from(path), Some(13)));
}

#[tokio::test]
async fn what_it_cannot_do_under_an_intent_is_refused_before_it_is_asked() {
    let Some(scene) = Scene::new().await else { return };
    let run = async {
        let contained = scene.request(SandboxIntent::read_only(), "true").contain(true);
        let error = scene.refused(contained).await;
        assert!(
            matches!(&error, SpawnError::Unsupported(error) if error.feature == "containing a process"),
            "{error:?}"
        );
        let files = scene.files(scene.workspace_write());
        let path = || RequestPath::from(scene.w.join("f"));
        unsupported(files.open(path(), OpenMode::Update).await.map(drop));
        unsupported(files.private_directory().await);
        unsupported(files.write(path(), "x".into(), WriteOptions::new().fsync(true)).await);
        let links = RemoveOptions::new().symlinks(Symlinks::Refuse);
        unsupported(files.remove(path(), links).await);
        assert_eq!(std::fs::read(scene.w.join("f")).unwrap(), b"content\n");
        // One intent cannot be narrowed by another.
        let error = files.with_sandbox(SandboxIntent::read_only()).unwrap_err();
        assert!(matches!(error, FsError::Sandbox(SandboxError::Invalid { .. })), "{error:?}");
    };
    within(PATIENCE, run).await.expect("it ends");
}

#[track_caller]
fn unsupported<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(&error, FsError::Unsupported(Unsupported { place, .. }) if place == "the peer"), "{error:?}");
}
