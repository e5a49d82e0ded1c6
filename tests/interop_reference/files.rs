//! Files on the reference's own server.

use std::sync::Arc;

use longarm::ExecBackend as _;
use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, FsError, InvalidFsRequest, OpenMode, ReadOptions, RemoveOptions,
    Symlinks, WalkKind, WalkOptions, WriteOptions,
};

use super::{PATIENCE, Reference, within};

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await.expect("in time")
}

async fn files(reference: &Reference) -> Arc<dyn FileSystem> {
    reference.connect().await.fs().expect("files")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

#[tokio::test]
async fn whole_files_come_and_go_in_one_message_or_in_blocks() {
    let Some(reference) = Reference::start() else { return };
    let (fs, dir) = (files(&reference).await, tempfile::tempdir().unwrap());
    let path = dir.path().join("file");
    for length in [0, 1, 100_000, (4 << 20) + 1, 16 << 20] {
        let content = pattern(length);
        in_time(fs.write(path.clone().into(), content.clone().into(), WriteOptions::new())).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content, "{length} written");
        let read = in_time(fs.read(path.clone().into(), ReadOptions::new())).await.unwrap();
        assert!(read == content, "{length} read");
    }
    let error = in_time(fs.read(path.into(), ReadOptions::new().max_bytes(1 << 20))).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(0x0100_0000), limit: 0x0010_0000, .. }), "{error:?}");
}

#[tokio::test]
async fn blocks_are_read_and_written_and_what_it_lacks_is_refused_here() {
    let Some(reference) = Reference::start() else { return };
    let (fs, dir) = (files(&reference).await, tempfile::tempdir().unwrap());
    let path = dir.path().join("file");
    let file = in_time(fs.open(path.clone().into(), OpenMode::Replace)).await.unwrap();
    in_time(file.write_block(0, "abc".into())).await.unwrap();
    in_time(file.write_block(5, "xyz".into())).await.unwrap();
    in_time(file.close()).await.unwrap();
    let file = in_time(fs.open(path.clone().into(), OpenMode::Read)).await.unwrap();
    let block = in_time(file.read_block(0, 100)).await.unwrap();
    assert_eq!((&block.bytes[..], block.eof), (&b"abc\0\0xyz"[..], true));
    let error = in_time(file.write_block(0, "x".into())).await.unwrap_err();
    assert!(matches!(error, FsError::WrongMode { .. }), "{error:?}");
    assert!(in_time(fs.open(path.clone().into(), OpenMode::Update)).await.is_err_and(is_unsupported));
    assert!(in_time(fs.private_directory()).await.is_err_and(is_unsupported));
    assert!(in_time(fs.temp_dir()).await.is_ok());
    drop(file);
    for _ in 0..200 {
        drop(in_time(fs.open(path.clone().into(), OpenMode::Read)).await.expect("dropped files are closed"));
    }
}

fn is_unsupported(error: FsError) -> bool {
    matches!(error, FsError::Unsupported(_))
}

#[tokio::test]
async fn trees_are_walked_copied_and_removed_and_errors_are_told_apart() {
    let Some(reference) = Reference::start() else { return };
    let (fs, dir) = (files(&reference).await, tempfile::tempdir().unwrap());
    let tree = dir.path().join("tree");
    in_time(fs.create_directory(tree.join("a/b").into(), CreateDirectoryOptions::new())).await.unwrap();
    std::fs::write(tree.join("a/file"), "x").unwrap();
    std::os::unix::fs::symlink("a", tree.join("link")).unwrap();
    let walk = in_time(fs.walk(tree.clone().into(), WalkOptions::new())).await.unwrap();
    let kinds: Vec<_> = walk.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [WalkKind::Directory, WalkKind::Directory, WalkKind::File]);
    assert_eq!(in_time(fs.read_directory(tree.clone().into())).await.unwrap().len(), 2);
    let metadata = in_time(fs.metadata(tree.join("link").into(), Symlinks::Follow)).await.unwrap();
    assert!(metadata.is_directory && metadata.is_symlink && metadata.modified.is_some());
    let error = in_time(fs.metadata(tree.join("link").into(), Symlinks::Refuse)).await.unwrap_err();
    assert!(matches!(error, FsError::SymbolicLink { last: true, .. }), "{error:?}");
    let copy = dir.path().join("copy");
    let error = in_time(fs.copy(tree.clone().into(), copy.clone().into(), CopyOptions::new())).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyOfDirectory { .. })), "{error:?}");
    in_time(fs.copy(tree.clone().into(), copy.clone().into(), CopyOptions::new().recursive(true))).await.unwrap();
    assert_eq!(std::fs::read(copy.join("a/file")).unwrap(), b"x");
    let error = in_time(fs.remove(copy.clone().into(), RemoveOptions::new().recursive(false))).await.unwrap_err();
    assert!(matches!(error, FsError::NotEmpty { .. }), "{error:?}");
    in_time(fs.remove(copy.clone().into(), RemoveOptions::new())).await.unwrap();
    assert!(!copy.exists());
    let gone = in_time(fs.canonicalize(copy.into())).await.unwrap_err();
    assert!(matches!(gone, FsError::NotFound { .. }), "{gone:?}");
    let error = in_time(fs.read(tree.into(), ReadOptions::new())).await.unwrap_err();
    assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
}

#[tokio::test]
async fn watchers_share_its_one_watch() {
    let Some(reference) = Reference::start() else { return };
    let (fs, dir) = (files(&reference).await, tempfile::tempdir().unwrap());
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let first = in_time(fs.watch_missing(vec![one.clone().into()], None)).await.unwrap().expect("a watch");
    let second = in_time(fs.watch_missing(vec![other.into()], None)).await.unwrap().expect("another");
    std::fs::write(&one, "").unwrap();
    in_time(first).await.unwrap();
    in_time(second).await.unwrap();
    assert!(in_time(fs.watch_missing(vec![one.into()], None)).await.unwrap().is_none(), "it is there");
}

#[tokio::test]
async fn as_many_entries_are_listed_as_it_allows() {
    let Some(reference) = Reference::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    for index in 0..50_000 {
        std::fs::File::create(dir.path().join(format!("entry-{index}"))).unwrap();
    }
    // Not before: while a thread makes files, it answers nobody.
    let fs = files(&reference).await;
    let entries = in_time(fs.read_directory(dir.path().into())).await.unwrap();
    assert_eq!(entries.len(), 50_000);
    std::fs::File::create(dir.path().join("one more")).unwrap();
    let error = in_time(fs.read_directory(dir.path().into())).await.unwrap_err();
    assert!(error.to_string().contains("limit is 50000"), "{error:?}");
    let walk = in_time(fs.walk(dir.path().into(), WalkOptions::new())).await.unwrap();
    // It also bounds the bytes of a walk.
    assert!(walk.entries.len() > 10_000 && walk.errors.is_empty() && walk.truncated, "{}", walk.entries.len());
}
