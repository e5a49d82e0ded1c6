//! Files under an intent: what is allowed, what is refused and how, and that nothing gets around it. The rows of the
//! conformance matrix about files are in `tests/sandbox/rows/calls.rs`.

#[path = "sandboxed/roots.rs"]
mod roots;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, FsError, OpenMode, ReadOptions, RemoveOptions, Symlinks, WalkKind,
    WalkOptions, WriteOptions,
};
use longarm::path_uri::PathUri;
use longarm::sandbox::{Access, Entry, SandboxError, SandboxIntent};

use crate::place::place;
use crate::support::{content, os_code};

/// A workspace root and a directory outside of it, neither of which is for temporary files.
struct Scene {
    _dir: tempfile::TempDir,
    w: PathBuf,
    o: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().canonicalize().unwrap();
        let [w, o] = ["w", "o"].map(|name| at.join(name));
        for directory in [&w, &o] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("f"), "f").unwrap();
        }
        Self { _dir: dir, w, o }
    }

    fn ro(&self) -> SandboxIntent {
        SandboxIntent::read_only().cwd(uri(&self.w))
    }

    fn ww(&self) -> SandboxIntent {
        SandboxIntent::workspace_write([uri(&self.w)]).cwd(uri(&self.w))
    }

    /// With a denied directory `secret` in the root.
    fn deny(&self) -> SandboxIntent {
        let secret = self.w.join("secret");
        fs::create_dir_all(&secret).unwrap();
        fs::write(secret.join("f"), "secret").unwrap();
        self.ww().deny(uri(&secret))
    }
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

fn under(intent: SandboxIntent) -> Arc<dyn FileSystem> {
    place().with_sandbox(intent).unwrap()
}

async fn read(files: &dyn FileSystem, path: impl AsRef<Path>) -> Result<Vec<u8>, FsError> {
    Ok(files.read(path.as_ref().into(), ReadOptions::new()).await?.to_vec())
}

async fn write(files: &dyn FileSystem, path: impl AsRef<Path>, text: &'static str) -> Result<(), FsError> {
    files.write(path.as_ref().into(), text.into(), WriteOptions::new()).await
}

async fn mkdir(files: &dyn FileSystem, path: impl AsRef<Path>, recursive: bool) -> Result<(), FsError> {
    files.create_directory(path.as_ref().into(), CreateDirectoryOptions::new().recursive(recursive)).await
}

async fn remove(files: &dyn FileSystem, path: impl AsRef<Path>) -> Result<(), FsError> {
    files.remove(path.as_ref().into(), RemoveOptions::new().force(false)).await
}

async fn copy(files: &dyn FileSystem, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), FsError> {
    files.copy(from.as_ref().into(), to.as_ref().into(), CopyOptions::new().recursive(true)).await
}

const READ_ONLY: Option<i32> = Some(30);

#[track_caller]
fn read_only<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert_eq!(os_code(&error), READ_ONLY, "{error:?}");
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
}

#[track_caller]
fn hidden<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::NotFound { .. }), "{error:?}");
}

fn names(path: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_intent_that_cannot_be_bound_is_refused_at_the_first_call() {
    let scene = Scene::new();
    for pattern in ["/**", "[", "**/plain/["] {
        let files = under(scene.ww().deny_glob(pattern));
        let error = read(&*files, scene.w.join("f")).await.unwrap_err();
        assert!(matches!(error, FsError::Sandbox(SandboxError::Preparation { .. })), "{pattern}: {error:?}");
    }
    let mxc = scene.ww().to_json().replace("restricted-token", "mxc");
    let files = under(SandboxIntent::from_json(&mxc).unwrap());
    let error = read(&*files, scene.w.join("f")).await.unwrap_err();
    assert!(matches!(error, FsError::Sandbox(SandboxError::Unavailable { .. })), "{error:?}");
}

#[tokio::test]
async fn without_restrictions_all_is_allowed() {
    let scene = Scene::new();
    let disabled = r#"{"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}"#;
    let files = under(SandboxIntent::from_json(disabled).unwrap());
    write(&*files, scene.o.join("f"), "x").await.unwrap();
    assert_eq!(read(&*files, scene.o.join("f")).await.unwrap(), b"x");
}

#[tokio::test]
async fn what_is_reopened_within_what_is_denied_can_be_used() {
    let scene = Scene::new();
    let files = under(scene.deny().write(uri(&{
        let open = scene.w.join("secret/open");
        fs::create_dir_all(&open).unwrap();
        open
    })));
    let secret = scene.w.join("secret");
    write(&*files, secret.join("open/f"), "x").await.unwrap();
    assert_eq!(read(&*files, secret.join("open/f")).await.unwrap(), b"x");
    denied(files.read_directory(secret.as_path().into()).await);
    denied(read(&*files, secret.join("f")).await);
    // The directory that holds it is no place to make or remove names.
    read_only(remove(&*files, secret.join("open")).await);
}

#[tokio::test]
async fn of_what_is_denied_only_its_kind_can_be_seen() {
    let scene = Scene::new();
    let file = scene.w.join("file");
    fs::write(&file, "secret").unwrap();
    let files = under(scene.deny().deny(uri(&file)));
    let found = files.metadata(file.as_path().into(), Symlinks::Follow).await.unwrap();
    assert!(found.is_file && found.size == 0 && found.modified.is_none(), "{found:?}");
    let found = files.metadata(scene.w.join("secret").into(), Symlinks::Follow).await.unwrap();
    assert!(found.is_directory, "{found:?}");
    denied(files.metadata(scene.w.join("secret/f").into(), Symlinks::Follow).await);
    denied(files.metadata(scene.w.join("secret/none").into(), Symlinks::Follow).await);
    denied(files.canonicalize(scene.w.join("secret/f").into()).await);

    symlink(scene.w.join("secret/f"), scene.w.join("in")).unwrap();
    let entries = files.read_directory(scene.w.as_path().into()).await.unwrap();
    let mut entries: Vec<_> = entries.iter().map(|entry| &*entry.file_name).collect();
    entries.sort_unstable();
    assert_eq!(entries, ["f", "file", "secret"], "a link to what cannot be examined is left out");

    let walk = files.walk(scene.w.as_path().into(), WalkOptions::new()).await.unwrap();
    let failed: Vec<_> = walk.errors.iter().map(|failure| failure.path.clone()).collect();
    assert!(failed.contains(&uri(&scene.w.join("secret"))), "{walk:?}");
    let secret = walk.entries.iter().find(|entry| entry.path == uri(&scene.w.join("secret")));
    assert!(secret.is_some_and(|entry| entry.kind == WalkKind::Directory), "{walk:?}");
    assert!(!walk.entries.iter().any(|entry| entry.path.to_string().contains("secret/")), "{walk:?}");
}

/// What a sandboxed process does not see of others, calls about files do not show either: the executor's memory would lead
/// around every denial.
#[tokio::test]
async fn processes_and_the_kernel_are_no_files() {
    let scene = Scene::new();
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    symlink("/proc/self", scene.w.join("self")).unwrap();
    symlink("/proc/self/environ", scene.w.join("environ")).unwrap();
    let open = fs::File::open(scene.w.join("f")).unwrap();
    let all_but = SandboxIntent::no_network().cwd(uri(&scene.w)).deny(uri(&scene.w.join("secret")));
    for intent in [scene.ro(), scene.ww(), scene.deny(), all_but.clone()] {
        let files = under(intent.clone());
        for path in [
            own.join("mem"),
            own.join("environ"),
            own.join("maps"),
            "/proc/self/mem".into(),
            "/proc/self/environ".into(),
            "/proc/thread-self/environ".into(),
            "/proc/self/root/etc/passwd".into(),
            "/proc/1/environ".into(),
            // What the executor has open, whatever it is.
            format!("/proc/self/fd/{}", open.as_raw_fd()).into(),
            format!("/dev/fd/{}", open.as_raw_fd()).into(),
            "/proc/self/exe".into(),
            "/proc/kcore".into(),
            "/proc/kmsg".into(),
            scene.w.join("self/environ"),
            scene.w.join("environ"),
        ] {
            denied(read(&*files, &path).await);
            denied(files.open(path.clone().into(), OpenMode::Read).await);
            let error = files.open(path.clone().into(), OpenMode::Update).await.unwrap_err();
            let read_only = os_code(&error) == READ_ONLY;
            assert!(read_only || matches!(error, FsError::PermissionDenied { .. }), "{}: {error:?}", path.display());
            // A link is copied as one.
            if !path.is_symlink() {
                let copied = copy(&*files, &path, scene.w.join("copied")).await;
                assert!(copied.is_err(), "{}", path.display());
            }
        }
        assert!(!scene.w.join("copied").exists());
        assert!(read(&*files, "/proc/version").await.is_ok());
        for path in [own.join("fd"), "/proc/self/fd".into(), "/dev/fd".into(), scene.w.join("self/fd")] {
            denied(files.read_directory(path.clone().into()).await);
        }
        for path in [own.join("exe"), "/proc/self/cwd".into(), own.join("fd").join(open.as_raw_fd().to_string())] {
            denied(files.metadata(path.clone().into(), Symlinks::Follow).await);
            denied(files.canonicalize(path.into()).await);
        }
        let walk = files.walk("/proc".into(), WalkOptions::new().max_depth(1)).await.unwrap();
        assert!(walk.entries.iter().any(|entry| entry.path == uri(Path::new("/proc/version"))), "{walk:?}");
        let shown = format!("{}/", own.display());
        assert!(!walk.entries.iter().any(|entry| entry.path.to_string().contains(&shown)), "{walk:?}");
    }
    for intent in [scene.ro(), scene.ww(), scene.deny()] {
        let files = under(intent);
        write(&*files, "/dev/null", "gone").await.unwrap();
        read_only(write(&*files, "/dev/tty", "seen").await);
        read_only(remove(&*files, "/dev/null").await);
    }
    let files = under(all_but);
    for path in ["/proc/sys/kernel/domainname", "/sys/power/state", "/dev/ptmx", "/dev/kmsg"] {
        read_only(files.open(path.into(), OpenMode::Update).await);
        read_only(write(&*files, path, "").await);
    }
    read_only(mkdir(&*files, "/dev/new", false).await);
    write(&*files, "/dev/null", "gone").await.unwrap();
    write(&*files, scene.o.join("f"), "x").await.unwrap();
}

#[tokio::test]
async fn a_handle_was_checked_when_it_was_opened() {
    let scene = Scene::new();
    let files = under(scene.deny());
    let handle = files.open(scene.w.join("f").into(), OpenMode::Update).await.unwrap();
    handle.write_block(0, "xyz".into()).await.unwrap();
    handle.close().await.unwrap();
    let handle = files.open(scene.w.join("f").into(), OpenMode::Read).await.unwrap();
    let block = handle.read_block(0, 10).await.unwrap();
    assert_eq!((&block.bytes[..], block.eof), (&b"xyz"[..], true));
}

#[tokio::test]
async fn links_can_be_refused_under_an_intent() {
    let scene = Scene::new();
    symlink("f", scene.w.join("link")).unwrap();
    symlink(".", scene.w.join("here")).unwrap();
    let files = under(scene.deny());
    for (path, at_end) in [("link", true), ("here/f", false)] {
        let options = ReadOptions::new().symlinks(Symlinks::Refuse);
        let error = files.read(scene.w.join(path).into(), options).await.unwrap_err();
        assert!(matches!(error, FsError::SymbolicLink { last, .. } if last == at_end), "{path}: {error:?}");
    }
}

#[tokio::test]
async fn of_what_is_hidden_not_even_that_it_is_a_link_can_be_told() {
    let scene = Scene::new();
    symlink("f", scene.o.join("link")).unwrap();
    let files = under(SandboxIntent::minimal_write([uri(&scene.w)]).cwd(uri(&scene.w)));
    for name in ["link", "f", "none"] {
        hidden(files.metadata(scene.o.join(name).into(), Symlinks::Refuse).await);
        let options = ReadOptions::new().symlinks(Symlinks::Refuse);
        hidden(files.read(scene.o.join(name).into(), options).await);
    }
}

/// Each name of a path is asked about, so that a longer one than the system takes would take long.
#[tokio::test]
async fn a_path_that_is_too_long_is_refused_as_the_system_does() {
    const TOO_LONG: Option<i32> = Some(36);
    let scene = Scene::new();
    let long = scene.w.join("a/".repeat(40_000));
    let files = under(scene.deny());
    for error in [
        mkdir(&*files, &long, true).await.unwrap_err(),
        read(&*files, &long).await.unwrap_err(),
        write(&*files, &long, "x").await.unwrap_err(),
        remove(&*files, &long).await.unwrap_err(),
        copy(&*files, scene.w.join("f"), &long).await.unwrap_err(),
        files.metadata(long.as_path().into(), Symlinks::Follow).await.unwrap_err(),
    ] {
        assert_eq!(os_code(&error), TOO_LONG, "{error:?}");
    }
    assert!(!scene.w.join("a").exists());
}

#[tokio::test]
async fn a_link_that_goes_up_and_down_again_and_again_is_given_up() {
    let scene = Scene::new();
    let deep = scene.w.join("d/".repeat(1000));
    let files = under(scene.deny());
    mkdir(&*files, &deep, true).await.unwrap();
    symlink("x/../".repeat(800), deep.join("long")).unwrap();
    fs::create_dir(deep.join("x")).unwrap();
    assert_eq!(read(&*files, scene.w.join("d/../f")).await.unwrap(), b"f");
    symlink(format!("{}w/f", "../".repeat(1001)), deep.join("out")).unwrap();
    assert_eq!(read(&*files, deep.join("out")).await.unwrap(), b"f");
    let error = read(&*files, deep.join("long/f")).await.unwrap_err();
    assert_eq!(os_code(&error), Some(40), "{error:?}");
}

#[tokio::test]
async fn a_copy_keeps_modes_and_stops_at_what_is_denied() {
    let scene = Scene::new();
    let files = under(scene.deny());
    let tree = scene.o.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/run"), "x").unwrap();
    fs::set_permissions(tree.join("sub/run"), PermissionsExt::from_mode(0o750)).unwrap();
    symlink("sub/run", tree.join("link")).unwrap();
    copy(&*files, &tree, scene.w.join("copied/tree")).await.unwrap();
    assert_eq!(crate::support::mode(scene.w.join("copied/tree/sub/run")), 0o750);
    assert_eq!(fs::read_link(scene.w.join("copied/tree/link")).unwrap(), Path::new("sub/run"));
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    denied(copy(&*files, &scene.w, temporary.path().join("w")).await);
    assert!(!temporary.path().join("w/secret/f").exists());
    copy(&*files, scene.w.join("f"), scene.w.join("f")).await.unwrap();
    assert_eq!(content(scene.w.join("f")), b"f");
}

#[tokio::test]
async fn only_what_may_be_seen_can_be_watched_for() {
    let scene = Scene::new();
    let files = under(scene.deny());
    let watch = |path: PathBuf| files.watch_missing(vec![path.into()], None);
    assert!(watch(scene.w.join("secret/later")).await.unwrap().is_none());
    let watch = watch(scene.w.join("later")).await.unwrap().unwrap();
    fs::write(scene.w.join("later"), "x").unwrap();
    watch.await.unwrap();
}
