//! Open files, block by block.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use longarm::fs::{FileHandle, FileSystem, FsError, InvalidFsRequest, MAX_BLOCK_BYTES, OpenMode};

use crate::support::{Scratch, assert_not_found, content, files, mode, os_code};

async fn open(scratch: &Scratch, name: &str, mode: OpenMode) -> Box<dyn FileHandle> {
    files().open(scratch.at(name), mode).await.unwrap()
}

#[tokio::test]
async fn the_end_is_told_exactly_when_fewer_bytes_come_than_were_asked_for() {
    let scratch = Scratch::new();
    scratch.file("file", "hello world");
    let file = open(&scratch, "file", OpenMode::Read).await;
    for (offset, length, bytes, eof) in [
        (0, 5, "hello", false),
        (5, 100, " world", true),
        (0, 11, "hello world", false),
        (11, 1, "", true),
        (1 << 40, 1, "", true),
    ] {
        let block = file.read_block(offset, length).await.unwrap();
        assert_eq!((block.bytes.as_ref(), block.eof), (bytes.as_bytes(), eof), "{offset}+{length}");
    }
    // It is read as it is now.
    fs::write(scratch.path("file"), "changed").unwrap();
    assert_eq!(file.read_block(0, 100).await.unwrap().bytes, "changed");
    fs::remove_file(scratch.path("file")).unwrap();
    assert_eq!(file.read_block(0, 100).await.unwrap().bytes, "changed", "an open file outlives its name");
}

#[tokio::test]
async fn lengths_out_of_range_leave_the_handle_as_it_is() {
    let scratch = Scratch::new();
    scratch.file("file", "x");
    let read = open(&scratch, "file", OpenMode::Read).await;
    for length in [0, MAX_BLOCK_BYTES + 1] {
        let expected = InvalidFsRequest::BlockLength { length, max: MAX_BLOCK_BYTES };
        let error = read.read_block(0, length).await.unwrap_err();
        assert!(matches!(&error, FsError::InvalidRequest(found) if *found == expected), "{error:?}");
    }
    assert_eq!(read.read_block(0, MAX_BLOCK_BYTES).await.unwrap().bytes, "x");
    let write = open(&scratch, "new", OpenMode::Replace).await;
    for length in [0, MAX_BLOCK_BYTES + 1] {
        let error = write.write_block(0, vec![0; length].into()).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::BlockLength { .. })), "{error:?}");
    }
    write.write_block(0, vec![1; MAX_BLOCK_BYTES].into()).await.unwrap();
    assert_eq!(content(scratch.path("new")), vec![1; MAX_BLOCK_BYTES]);
}

#[tokio::test]
async fn a_failed_read_closes_the_handle_and_a_failed_write_does_not() {
    let scratch = Scratch::new();
    scratch.file("file", "x");
    let write = open(&scratch, "new", OpenMode::Replace).await;
    let error = write.read_block(0, 1).await.unwrap_err();
    assert!(matches!(error, FsError::WrongMode { wanted: "reading", .. }), "{error:?}");
    let error = write.write_block(0, "x".into()).await.unwrap_err();
    assert!(matches!(error, FsError::UnknownHandle { .. }), "{error:?}");

    let read = open(&scratch, "file", OpenMode::Read).await;
    let error = read.write_block(0, "y".into()).await.unwrap_err();
    assert!(matches!(error, FsError::WrongMode { wanted: "writing", .. }), "{error:?}");
    assert_eq!(read.read_block(0, 1).await.unwrap().bytes, "x");
    for offset in [i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX] {
        let block = read.read_block(offset, 2).await.unwrap();
        assert_eq!((block.bytes.len(), block.eof), (0, true), "{offset}: as anywhere behind the end");
    }
    assert_eq!(read.read_block(0, 1).await.unwrap().bytes, "x");

    let write = open(&scratch, "other", OpenMode::Replace).await;
    for offset in [i64::MAX as u64, u64::MAX] {
        let error = write.write_block(offset, "x".into()).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::BlockRange { .. })), "{error:?}");
    }
    let error = write.write_block(i64::MAX as u64 - 2, "x".into()).await.unwrap_err();
    assert_eq!(os_code(&error), Some(27), "the file system has a lower limit: {error:?}");
    write.write_block(0, "x".into()).await.unwrap();
}

#[tokio::test]
async fn gaps_become_zeros_and_blocks_may_come_in_any_order() {
    let scratch = Scratch::new();
    let file = open(&scratch, "new", OpenMode::Replace).await;
    file.write_block(5, "xyz".into()).await.unwrap();
    file.write_block(0, "abc".into()).await.unwrap();
    assert_eq!(content(scratch.path("new")), b"abc\0\0xyz");
    let (one, other) = (file.write_block(0, "1".into()), file.write_block(1, "2".into()));
    let (one, other) = futures_util::future::join(one, other).await;
    one.and(other).unwrap();
    assert_eq!(content(scratch.path("new")), b"12c\0\0xyz");
}

#[tokio::test]
async fn a_file_to_replace_is_emptied_at_once_and_keeps_its_mode() {
    let scratch = Scratch::new();
    let path = scratch.file("file", "old content");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    scratch.link("link", "file");
    scratch.link("dangling", "target");
    File::create(scratch.path("plain")).unwrap();
    let file = open(&scratch, "link", OpenMode::Replace).await;
    assert_eq!(content(&path), b"");
    file.write_block(0, "new".into()).await.unwrap();
    assert_eq!((content(&path), mode(&path)), (b"new".to_vec(), 0o640));
    open(&scratch, "dangling", OpenMode::Replace).await;
    assert_eq!(mode(scratch.path("target")), mode(scratch.path("plain")));
}

#[tokio::test]
async fn a_file_to_update_keeps_what_it_has() {
    let scratch = Scratch::new();
    scratch.file("file", "hello");
    let file = open(&scratch, "file", OpenMode::Update).await;
    file.write_block(5, " world".into()).await.unwrap();
    assert_eq!(content(scratch.path("file")), b"hello world");
    open(&scratch, "new", OpenMode::Update).await.write_block(0, "x".into()).await.unwrap();
    assert_eq!(content(scratch.path("new")), b"x");
}

#[tokio::test]
async fn only_files_are_opened_and_nothing_is_waited_for() {
    let scratch = Scratch::new();
    scratch.directory("dir");
    scratch.fifo("fifo");
    for path in [scratch.at("dir"), scratch.at("fifo"), "/dev/null".into()] {
        let error = files().open(path, OpenMode::Read).await.unwrap_err();
        assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
    }
    for mode in [OpenMode::Replace, OpenMode::Update] {
        let error = files().open(scratch.at("dir"), mode).await.unwrap_err();
        assert!(matches!(error, FsError::IsADirectory { .. }), "{error:?}");
        let error = files().open("/dev/null".into(), mode).await.unwrap_err();
        assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
        const ENXIO: i32 = 6;
        assert_eq!(os_code(&files().open(scratch.at("fifo"), mode).await.unwrap_err()), Some(ENXIO));
        assert_not_found(files().open(scratch.at("no/new"), mode).await, scratch.path("no/new"));
    }
    assert_not_found(files().open(scratch.at("no"), OpenMode::Read).await, scratch.path("no"));
}

#[tokio::test]
async fn a_closed_file_is_unknown_and_may_be_closed_again() {
    let scratch = Scratch::new();
    scratch.file("file", "x");
    let file = open(&scratch, "file", OpenMode::Read).await;
    file.close().await.unwrap();
    file.close().await.unwrap();
    let error = file.read_block(0, 1).await.unwrap_err();
    assert!(matches!(error, FsError::UnknownHandle { .. }), "{error:?}");
    let path = scratch.path("file").to_string_lossy().into_owned();
    assert!(error.to_string().contains(&path), "{error}");
}
