//! The executor's own state lies in a directory that an intent lets be written: nobody under it writes there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, OpenMode, ReadOptions, RemoveOptions, WriteOptions,
};
use longarm::path_uri::PathUri;
use longarm::sandbox::{SandboxIntent, SandboxSettings};
use longarm::{ExecBackend as _, Local, LocalConfig};

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

struct Scene {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("forged"), "x").unwrap();
        Self { _dir: dir, root }
    }

    /// Files under an intent, of an executor that keeps its state here.
    fn files(&self, state: &Path, intent: SandboxIntent) -> (Local, Arc<dyn FileSystem>) {
        let settings = SandboxSettings::default().state_dir(state);
        let local = Local::new(LocalConfig::default().sandbox(settings));
        let files = local.fs().unwrap().with_sandbox(intent.cwd(uri(&self.root))).unwrap();
        (local, files)
    }

    fn workspace(&self) -> SandboxIntent {
        SandboxIntent::workspace_write([uri(&self.root)])
    }
}

#[tokio::test]
async fn calls_about_files_do_not_reach_it() {
    for state in ["state", "missing/as/well"] {
        let scene = Scene::new();
        let state = scene.root.join(state);
        let journal = state.join("forged.placeholders");
        let (_local, files) = scene.files(&state, scene.workspace());
        files.write(scene.root.join("f").into(), "x".into(), WriteOptions::new()).await.unwrap();
        let recursive = CreateDirectoryOptions::new().recursive(true);
        let refused = [
            files.create_directory(state.clone().into(), recursive).await.err(),
            files.create_directory(state.join("more").into(), recursive).await.err(),
            files.write(journal.clone().into(), "x".into(), WriteOptions::new()).await.err(),
            files.open(journal.clone().into(), OpenMode::Replace).await.err(),
            files.copy(scene.root.join("forged").into(), journal.into(), CopyOptions::new()).await.err(),
            files.remove(state.clone().into(), RemoveOptions::new().recursive(true)).await.err(),
            files.read_directory(state.clone().into()).await.err(),
        ];
        for (number, error) in refused.into_iter().enumerate() {
            assert!(error.is_some(), "{number} in {}", state.display());
        }
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "it is there, and empty");
        // Nor by another name.
        std::os::unix::fs::symlink(&state, scene.root.join("link")).unwrap();
        let by_link = scene.root.join("link/forged.placeholders");
        files.write(by_link.into(), "x".into(), WriteOptions::new()).await.unwrap_err();
        let above = scene.root.join("missing");
        if above.exists() {
            files.remove(above.into(), RemoveOptions::new().recursive(true)).await.unwrap_err();
        }
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn what_is_in_it_is_not_read_where_all_around_may_be_written() {
    let scene = Scene::new();
    let state = scene.root.join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(state.join("secret"), "x").unwrap();
    let (_local, files) = scene.files(&state, scene.workspace());
    files.read(scene.root.join("forged").into(), ReadOptions::new()).await.unwrap();
    files.read(state.join("secret").into(), ReadOptions::new()).await.unwrap_err();
}

#[tokio::test]
async fn an_intent_that_asks_for_it_is_refused() {
    let scene = Scene::new();
    let state = scene.root.join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let (_local, files) = scene.files(&state, scene.workspace().write(uri(&state)));
    let error = files.write(scene.root.join("f").into(), "x".into(), WriteOptions::new()).await.unwrap_err();
    assert!(error.to_string().contains("its own state"), "{error}");
}
