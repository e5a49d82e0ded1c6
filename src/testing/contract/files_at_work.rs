//! Files: odd ones, and those that are used while other things go on.

use std::path::Path;

use futures_util::StreamExt;

use crate::fs::{
    CopyOptions, CreateDirectoryOptions, FileReader, FsError, InvalidFsRequest, MAX_BLOCK_BYTES, OpenMode, ReadOptions,
    RemoveOptions, RequestPath, Symlinks, WalkOptions, WriteOptions,
};

use super::context::Context;

cases! {"files_at_work":
    names_may_be_as_long_as_the_system_allows [Files],
    sparse_files_are_refused_whole_and_read_in_blocks [Files],
    what_is_no_file_is_refused_without_waiting [Files, Symlinks],
    writing_to_a_fifo_waits_for_nobody [Files, Symlinks, SafeFiles],
    loops_of_links_end [Files, Symlinks],
    an_open_file_outlives_its_name [Files, Symlinks],
    calls_go_on_side_by_side [Files],
    a_reader_that_stops_holds_nothing_up [Files, CloseStdin],
    closed_files_leave_room_for_others [Files],
}

fn at(cx: &Context, name: &str) -> RequestPath {
    cx.dir().join(name).into()
}

async fn names_may_be_as_long_as_the_system_allows(cx: Context) {
    let fs = cx.environment().fs();
    let name = "n".repeat(255);
    for text in ["first", "second"] {
        fs.write(at(&cx, &name), text.into(), WriteOptions::new()).await.unwrap();
        assert_eq!(fs.read(at(&cx, &name), ReadOptions::new()).await.unwrap(), text);
    }
    let entries = fs.read_directory(cx.dir().into()).await.unwrap();
    assert_eq!(entries.iter().map(|entry| &entry.file_name).collect::<Vec<_>>(), [&name]);
    let error = fs.write(at(&cx, &"n".repeat(256)), "x".into(), WriteOptions::new()).await.unwrap_err();
    assert!(!matches!(error, FsError::Disconnected(_) | FsError::Peer(_)), "{error:?}");
    fs.remove(at(&cx, &name), RemoveOptions::new().force(false)).await.unwrap();
}

async fn sparse_files_are_refused_whole_and_read_in_blocks(cx: Context) {
    const END: u64 = 1 << 40;
    let fs = cx.environment().fs();
    std::fs::File::create(cx.dir().join("sparse")).unwrap().set_len(END).unwrap();
    let error = fs.read(at(&cx, "sparse"), ReadOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(END), .. }), "{error:?}");
    let file = fs.open(at(&cx, "sparse"), OpenMode::Read).await.unwrap();
    let block = file.read_block(END - 10, 100).await.unwrap();
    assert_eq!((block.bytes.as_ref(), block.eof), (&[0; 10][..], true));
    assert_eq!(file.read_block(END / 2, MAX_BLOCK_BYTES).await.unwrap().bytes.len(), MAX_BLOCK_BYTES);
    assert_eq!(fs.metadata(at(&cx, "sparse"), Symlinks::Follow).await.unwrap().size, END);
}

#[cfg(unix)]
fn link(target: &str, path: &Path) {
    std::os::unix::fs::symlink(target, path).unwrap();
}

#[cfg(unix)]
fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "{made}");
}

/// Such cases need [`Need::Symlinks`](super::Need::Symlinks).
#[cfg(not(unix))]
fn link(_target: &str, _path: &Path) {
    panic!("links take rights here");
}

#[cfg(not(unix))]
fn fifo(_path: &Path) {
    panic!("there are none here");
}

async fn what_is_no_file_is_refused_without_waiting(cx: Context) {
    let fs = cx.environment().fs();
    fs.create_directory(at(&cx, "dir"), CreateDirectoryOptions::new()).await.unwrap();
    fifo(&cx.dir().join("dir/fifo"));
    let path = || at(&cx, "dir/fifo");
    let error = fs.read(path(), ReadOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
    let error = fs.open(path(), OpenMode::Read).await.unwrap_err();
    assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
    let error = fs.copy(path(), at(&cx, "new"), CopyOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyOfSpecial { .. })), "{error:?}");
    let metadata = fs.metadata(path(), Symlinks::Follow).await.unwrap();
    assert!(!metadata.is_file && !metadata.is_directory);
    assert!(fs.walk(at(&cx, "dir"), WalkOptions::new()).await.unwrap().entries.is_empty());
    fs.copy(at(&cx, "dir"), at(&cx, "copy"), CopyOptions::new().recursive(true)).await.unwrap();
    assert!(fs.read_directory(at(&cx, "copy")).await.unwrap().is_empty(), "it is left out");
    fs.remove(at(&cx, "dir"), RemoveOptions::new()).await.unwrap();
}

async fn writing_to_a_fifo_waits_for_nobody(cx: Context) {
    let fs = cx.environment().fs();
    fifo(&cx.dir().join("fifo"));
    fs.write(at(&cx, "fifo"), "x".into(), WriteOptions::new()).await.unwrap_err();
    assert!(fs.open(at(&cx, "fifo"), OpenMode::Replace).await.is_err());
}

async fn loops_of_links_end(cx: Context) {
    let fs = cx.environment().fs();
    fs.create_directory(at(&cx, "tree/sub"), CreateDirectoryOptions::new()).await.unwrap();
    fs.write(at(&cx, "tree/sub/file"), "content".into(), WriteOptions::new()).await.unwrap();
    link("..", &cx.dir().join("tree/sub/up"));
    link("itself", &cx.dir().join("tree/itself"));
    for error in [
        fs.read(at(&cx, "tree/itself"), ReadOptions::new()).await.map(drop).unwrap_err(),
        fs.metadata(at(&cx, "tree/itself"), Symlinks::Follow).await.map(drop).unwrap_err(),
        fs.canonicalize(at(&cx, "tree/itself/below")).await.map(drop).unwrap_err(),
    ] {
        assert!(!matches!(error, FsError::Disconnected(_) | FsError::Peer(_)), "{error:?}");
    }
    let follow = WalkOptions::new().follow_directory_symlinks(true);
    let walk = fs.walk(at(&cx, "tree"), follow).await.unwrap();
    // The link up is reported, and leads to what was entered before.
    assert_eq!((walk.entries.len(), walk.truncated), (3, false), "{walk:?}");
    fs.copy(at(&cx, "tree"), at(&cx, "copy"), CopyOptions::new().recursive(true)).await.unwrap();
    assert_eq!(fs.read(at(&cx, "copy/sub/up/sub/file"), ReadOptions::new()).await.unwrap(), "content");
    fs.remove(at(&cx, "tree"), RemoveOptions::new()).await.unwrap();
    assert_eq!(fs.read(at(&cx, "copy/sub/file"), ReadOptions::new()).await.unwrap(), "content");
}

/// On Unix, where links are: elsewhere an open file cannot be removed.
async fn an_open_file_outlives_its_name(cx: Context) {
    let fs = cx.environment().fs();
    fs.write(at(&cx, "file"), "content".into(), WriteOptions::new()).await.unwrap();
    let file = fs.open(at(&cx, "file"), OpenMode::Read).await.unwrap();
    fs.remove(at(&cx, "file"), RemoveOptions::new().force(false)).await.unwrap();
    assert_eq!(file.read_block(3, 100).await.unwrap().bytes, "tent");
    file.close().await.unwrap();
    let error = fs.open(at(&cx, "file"), OpenMode::Read).await.unwrap_err();
    assert!(matches!(error, FsError::NotFound { .. }), "{error:?}");
}

async fn calls_go_on_side_by_side(cx: Context) {
    let fs = cx.environment().fs();
    let files = futures_util::stream::iter(0..200).map(|number| {
        let (fs, path) = (&fs, cx.dir().join(format!("file {number}")));
        async move {
            let text = format!("content {number}").repeat(number);
            fs.write((&path).into(), text.clone().into(), WriteOptions::new()).await.unwrap();
            assert_eq!(fs.read((&path).into(), ReadOptions::new()).await.unwrap(), text);
            fs.remove((&path).into(), RemoveOptions::new().force(false)).await.unwrap();
        }
    });
    files.buffer_unordered(32).collect::<Vec<()>>().await;
    assert!(fs.read_directory(cx.dir().into()).await.unwrap().is_empty());
}

async fn a_reader_that_stops_holds_nothing_up(cx: Context) {
    let fs = cx.environment().fs();
    std::fs::File::create(cx.dir().join("large")).unwrap().set_len(8 << 20).unwrap();
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut reader = FileReader::new(fs.open(at(&cx, "large"), OpenMode::Read).await.unwrap(), 0);
        let first = reader.next().await.unwrap().unwrap();
        readers.push((reader, first.len()));
    }
    // None of them is polled any more.
    let mut cat = cx.watch_piped(&["cat"]).await;
    for text in ["one", "two", "three"] {
        cat.write(format!("{text}\n")).await;
        cat.until_stdout(text).await;
    }
    fs.write(at(&cx, "small"), "x".into(), WriteOptions::new()).await.unwrap();
    cat.process.close_stdin().await.unwrap();
    assert!(cat.read_to_end().await.success());
    for (mut reader, mut bytes) in readers {
        while let Some(block) = reader.next().await {
            bytes += block.unwrap().len();
        }
        assert_eq!(bytes, 8 << 20);
    }
}

async fn closed_files_leave_room_for_others(cx: Context) {
    let fs = cx.environment().fs();
    fs.write(at(&cx, "file"), "content".into(), WriteOptions::new()).await.unwrap();
    for number in 0..300 {
        let file = fs.open(at(&cx, "file"), OpenMode::Read).await.unwrap();
        assert_eq!(file.read_block(0, 7).await.unwrap().bytes, "content");
        // Closed, or only dropped.
        if number % 2 == 0 {
            file.close().await.unwrap();
        }
    }
}
