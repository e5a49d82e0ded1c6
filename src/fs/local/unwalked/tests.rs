use super::*;
use crate::fs::LocalFileSystemConfig;

#[test]
fn only_what_is_left_to_the_system_as_a_whole_is() {
    for class in [Class::Nothing, Class::FullWrite] {
        decide(class, Purpose::Read).unwrap();
        decide(class, Purpose::Change).unwrap();
    }
    decide(Class::FullRead, Purpose::Read).unwrap();
    for (class, purpose) in [
        (Class::FullRead, Purpose::Change),
        (Class::RestrictedRead, Purpose::Read),
        (Class::RestrictedRead, Purpose::Change),
    ] {
        let error = decide(class, purpose).unwrap_err();
        assert!(matches!(error, SandboxError::Unavailable { remedy: Some(_), .. }), "{class:?} {purpose:?}");
    }
}

#[tokio::test]
async fn each_call_is_read_or_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let uri = |path: &Path| PathUri::from_host_native_path(path).unwrap();
    let native = |name: &str| RequestPath::from(root.join(name));
    std::fs::write(root.join("f"), "f").unwrap();
    let fs = LocalFileSystem::new(LocalFileSystemConfig::default().temp_dir(root.clone()));
    let view = |intent: SandboxIntent| {
        // The level counts on Windows only.
        let intent = intent.cwd(uri(&root)).windows_level(crate::sandbox::WindowsSandboxLevel::RestrictedToken);
        Unwalked::new(fs.clone(), intent)
    };
    let writable = view(SandboxIntent::workspace_write([uri(&root)]));
    assert_eq!(writable.read(native("f"), ReadOptions::new()).await.unwrap(), "f");
    assert!(writable.metadata(native("f"), Symlinks::Follow).await.unwrap().is_file);
    assert_eq!(writable.read_directory(native("")).await.unwrap().len(), 1);
    writable.open(native("f"), OpenMode::Read).await.unwrap();
    writable.canonicalize(native("f")).await.unwrap();
    writable.walk(native(""), WalkOptions::new()).await.unwrap();
    writable.watch_missing(vec![native("missing")], None).await.unwrap();
    let refused =
        |error: FsError| assert!(matches!(error, FsError::Sandbox(SandboxError::Unavailable { .. })), "{error}");
    refused(writable.write(native("f"), "x".into(), WriteOptions::new()).await.unwrap_err());
    refused(writable.open(native("f"), OpenMode::Replace).await.map(drop).unwrap_err());
    refused(writable.open(native("f"), OpenMode::Update).await.map(drop).unwrap_err());
    refused(writable.create_directory(native("d"), CreateDirectoryOptions::new()).await.unwrap_err());
    refused(writable.remove(native("f"), RemoveOptions::new()).await.unwrap_err());
    refused(writable.copy(native("f"), native("g"), CopyOptions::new()).await.unwrap_err());
    refused(writable.private_directory().await.unwrap_err());
    let denied = view(SandboxIntent::read_only().deny(uri(&root.join("f"))));
    refused(denied.read(native("f"), ReadOptions::new()).await.unwrap_err());
    refused(denied.read_directory(native("")).await.unwrap_err());
    let open = view(SandboxIntent::no_network());
    open.write(native("f"), "g".into(), WriteOptions::new()).await.unwrap();
    assert_eq!(std::fs::read(root.join("f")).unwrap(), b"g");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1, "nothing was made");
    let unrooted = view(SandboxIntent::read_only().read(uri(&root)));
    assert_eq!(unrooted.read(native("f"), ReadOptions::new()).await.unwrap(), "g");
}
