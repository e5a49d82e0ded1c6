//! Files: the same through every place.

use crate::fs::{
    CopyOptions, CreateDirectoryOptions, FileReader, FileSystem, FileWriter, FsError, InvalidFsRequest,
    MAX_BLOCK_BYTES, OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, WalkKind, WalkOptions, WriteOptions,
};
use crate::path_uri::PathUri;
use crate::sandbox::SandboxIntent;

use super::context::Context;

cases! {"files":
    what_is_written_is_read_back_whole [Files],
    sixteen_mebibytes_are_written_and_read_whole [Files],
    a_missing_file_is_not_found_by_any_call [Files],
    a_directory_is_no_file [Files],
    a_path_of_another_system_is_refused [Files],
    links_are_followed_unless_refused [Files, Symlinks],
    blocks_say_where_the_file_ends [Files],
    a_failed_read_closes_its_handle [Files],
    blocks_are_written_at_their_offsets [Files],
    a_stream_carries_a_file_from_end_to_end [Files],
    an_update_goes_on_where_an_upload_stopped [Files, FileExtensions],
    directories_are_created_listed_and_removed [Files],
    a_walk_goes_breadth_first_and_is_cut_by_its_bounds [Files],
    a_tree_is_copied [Files],
    a_file_copied_onto_itself_is_kept [Files, SafeFiles],
    a_canonical_path_has_no_links [Files, Symlinks],
    a_watch_fires_when_a_missing_path_appears [Files, FileWatches],
    a_private_directory_is_fresh [Files, FileExtensions],
    what_an_intent_does_not_allow_is_left_alone [Files, SandboxedFiles],
    what_an_intent_denies_is_read_by_no_call [Files, SandboxedFiles],
}

fn files(cx: &Context) -> std::sync::Arc<dyn FileSystem> {
    cx.environment().fs()
}

fn at(cx: &Context, name: &str) -> RequestPath {
    cx.dir().join(name).into()
}

fn uri(cx: &Context, name: &str) -> PathUri {
    PathUri::from_host_native_path(cx.dir().join(name)).unwrap()
}

async fn what_is_written_is_read_back_whole(cx: Context) {
    let fs = files(&cx);
    for name in ["plain", "sp ace%", "\u{20ac}"] {
        for content in ["", "first", "2"] {
            fs.write(at(&cx, name), content.into(), WriteOptions::new()).await.unwrap();
            assert_eq!(fs.read(uri(&cx, name).into(), ReadOptions::new()).await.unwrap(), content);
            assert_eq!(std::fs::read(cx.dir().join(name)).unwrap(), content.as_bytes());
        }
    }
    let metadata = fs.metadata(at(&cx, "plain"), Symlinks::Follow).await.unwrap();
    assert!(metadata.is_file && !metadata.is_directory && !metadata.is_symlink && metadata.modified.is_some());
    assert_eq!(metadata.size, 1);
}

async fn sixteen_mebibytes_are_written_and_read_whole(cx: Context) {
    let fs = files(&cx);
    let content: Vec<u8> = (0..16_usize << 20).map(|number| (number % 253) as u8).collect();
    fs.write(at(&cx, "file"), content.clone().into(), WriteOptions::new()).await.unwrap();
    let read = fs.read(at(&cx, "file"), ReadOptions::new()).await.unwrap();
    assert!(read == content, "all bytes come back");
}

async fn a_missing_file_is_not_found_by_any_call(cx: Context) {
    let fs = files(&cx);
    let path = || at(&cx, "missing/file");
    let results = [
        fs.read(path(), ReadOptions::new()).await.map(drop),
        fs.write(path(), "x".into(), WriteOptions::new()).await,
        fs.open(path(), OpenMode::Read).await.map(drop),
        fs.open(path(), OpenMode::Replace).await.map(drop),
        fs.create_directory(path(), CreateDirectoryOptions::new().recursive(false)).await,
        fs.metadata(path(), Symlinks::Follow).await.map(drop),
        fs.metadata(path(), Symlinks::Refuse).await.map(drop),
        fs.canonicalize(path()).await.map(drop),
        fs.read_directory(path()).await.map(drop),
        fs.walk(path(), WalkOptions::new()).await.map(drop),
        fs.remove(path(), RemoveOptions::new().force(false)).await,
        fs.copy(path(), at(&cx, "new"), CopyOptions::new()).await,
    ];
    for (call, result) in results.into_iter().enumerate() {
        let Err(FsError::NotFound { path }) = result else { panic!("call {call}: {result:?}") };
        let shown = format!("{path:?}");
        assert!(shown.contains("missing"), "call {call} names {shown}");
    }
    fs.remove(path(), RemoveOptions::new()).await.unwrap();
}

async fn a_directory_is_no_file(cx: Context) {
    let fs = files(&cx);
    let dir = || RequestPath::from(cx.dir());
    let read = fs.read(dir(), ReadOptions::new()).await;
    assert!(matches!(read, Err(FsError::NotAFile { .. })), "{read:?}");
    let opened = fs.open(dir(), OpenMode::Read).await;
    assert!(matches!(opened, Err(FsError::NotAFile { .. })), "{opened:?}");
    let written = fs.write(dir(), "x".into(), WriteOptions::new()).await;
    assert!(matches!(written, Err(FsError::IsADirectory { .. })), "{written:?}");
    fs.write(at(&cx, "file"), "x".into(), WriteOptions::new()).await.unwrap();
    let listed = fs.read_directory(at(&cx, "file")).await;
    assert!(matches!(listed, Err(FsError::NotADirectory { .. })), "{listed:?}");
}

async fn a_path_of_another_system_is_refused(cx: Context) {
    let foreign = if cfg!(windows) { "file:///tmp/x" } else { "file:///C:/x" };
    let read = files(&cx).read(PathUri::parse(foreign).unwrap().into(), ReadOptions::new()).await;
    match read {
        Err(FsError::InvalidRequest(InvalidFsRequest::ForeignPath { uri, .. })) => assert_eq!(uri, foreign),
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
fn link(cx: &Context, target: &str, name: &str) {
    std::os::unix::fs::symlink(target, cx.dir().join(name)).unwrap();
}

/// Such cases need [`Need::Symlinks`](super::Need::Symlinks).
#[cfg(not(unix))]
fn link(_cx: &Context, _target: &str, _name: &str) {
    panic!("links take rights here");
}

async fn links_are_followed_unless_refused(cx: Context) {
    let fs = files(&cx);
    fs.create_directory(at(&cx, "dir"), CreateDirectoryOptions::new()).await.unwrap();
    fs.write(at(&cx, "dir/file"), "content".into(), WriteOptions::new()).await.unwrap();
    link(&cx, "dir/file", "link");
    link(&cx, "dir", "dlink");
    for name in ["link", "dlink/file"] {
        assert_eq!(fs.read(at(&cx, name), ReadOptions::new()).await.unwrap(), "content");
        let refused = fs.read(at(&cx, name), ReadOptions::new().symlinks(Symlinks::Refuse)).await;
        assert!(refused.is_err(), "{name}: {refused:?}");
    }
    let plain = ReadOptions::new().symlinks(Symlinks::Refuse);
    assert_eq!(fs.read(at(&cx, "dir/file"), plain).await.unwrap(), "content");
    let metadata = fs.metadata(at(&cx, "link"), Symlinks::Follow).await.unwrap();
    assert!(metadata.is_file && metadata.is_symlink);
    let refused = fs.metadata(at(&cx, "link"), Symlinks::Refuse).await;
    assert!(matches!(refused, Err(FsError::SymbolicLink { .. })), "{refused:?}");
    fs.remove(at(&cx, "dlink"), RemoveOptions::new()).await.unwrap();
    assert_eq!(fs.read(at(&cx, "dir/file"), ReadOptions::new()).await.unwrap(), "content");
}

async fn blocks_say_where_the_file_ends(cx: Context) {
    let fs = files(&cx);
    fs.write(at(&cx, "file"), "hello world".into(), WriteOptions::new()).await.unwrap();
    let file = fs.open(at(&cx, "file"), OpenMode::Read).await.unwrap();
    for (offset, length, bytes, eof) in
        [(0, 5, "hello", false), (5, 100, " world", true), (0, 11, "hello world", false), (11, 1, "", true)]
    {
        let block = file.read_block(offset, length).await.unwrap();
        assert_eq!((block.bytes.as_ref(), block.eof), (bytes.as_bytes(), eof));
    }
    for length in [0, MAX_BLOCK_BYTES + 1] {
        let error = file.read_block(0, length).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::BlockLength { .. })), "{error:?}");
    }
    assert_eq!(file.read_block(0, MAX_BLOCK_BYTES).await.unwrap().bytes, "hello world");
    file.close().await.unwrap();
    file.close().await.unwrap();
    let error = file.read_block(0, 1).await.unwrap_err();
    assert!(matches!(error, FsError::UnknownHandle { .. }), "{error:?}");
}

async fn a_failed_read_closes_its_handle(cx: Context) {
    let fs = files(&cx);
    let file = fs.open(at(&cx, "new"), OpenMode::Replace).await.unwrap();
    let error = file.read_block(0, 1).await.unwrap_err();
    assert!(!matches!(error, FsError::UnknownHandle { .. }), "{error:?}");
    for error in [file.read_block(0, 1).await.unwrap_err(), file.write_block(0, "x".into()).await.unwrap_err()] {
        assert!(matches!(error, FsError::UnknownHandle { .. }), "{error:?}");
    }
}

async fn blocks_are_written_at_their_offsets(cx: Context) {
    let fs = files(&cx);
    fs.write(at(&cx, "file"), "old content".into(), WriteOptions::new()).await.unwrap();
    let file = fs.open(at(&cx, "file"), OpenMode::Replace).await.unwrap();
    assert_eq!(fs.metadata(at(&cx, "file"), Symlinks::Follow).await.unwrap().size, 0, "it is emptied at once");
    file.write_block(5, "xyz".into()).await.unwrap();
    file.write_block(0, "abc".into()).await.unwrap();
    let error = file.write_block(i64::MAX as u64, "x".into()).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(_)), "{error:?}");
    file.close().await.unwrap();
    assert_eq!(fs.read(at(&cx, "file"), ReadOptions::new()).await.unwrap(), &b"abc\0\0xyz"[..]);
}

async fn a_stream_carries_a_file_from_end_to_end(cx: Context) {
    use tokio::io::AsyncWriteExt;

    let fs = files(&cx);
    let content: Vec<u8> = (0..3_000_001_usize).map(|number| (number % 251) as u8).collect();
    std::fs::write(cx.dir().join("from"), &content).unwrap();
    let mut reader = FileReader::new(fs.open(at(&cx, "from"), OpenMode::Read).await.unwrap(), 0);
    let mut writer = FileWriter::new(fs.open(at(&cx, "to"), OpenMode::Replace).await.unwrap(), 0);
    let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    writer.shutdown().await.unwrap();
    assert_eq!(copied, content.len() as u64);
    assert!(std::fs::read(cx.dir().join("to")).unwrap() == content, "all bytes arrive");
}

async fn an_update_goes_on_where_an_upload_stopped(cx: Context) {
    let fs = files(&cx);
    fs.write(at(&cx, "file"), "hello".into(), WriteOptions::new()).await.unwrap();
    let file = fs.open(at(&cx, "file"), OpenMode::Update).await.unwrap();
    file.write_block(5, " world".into()).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(fs.read(at(&cx, "file"), ReadOptions::new()).await.unwrap(), "hello world");
}

async fn directories_are_created_listed_and_removed(cx: Context) {
    let fs = files(&cx);
    fs.create_directory(at(&cx, "a/b"), CreateDirectoryOptions::new()).await.unwrap();
    fs.create_directory(at(&cx, "a/b"), CreateDirectoryOptions::new()).await.unwrap();
    let again = fs.create_directory(at(&cx, "a/b"), CreateDirectoryOptions::new().recursive(false)).await;
    assert!(matches!(again, Err(FsError::AlreadyExists { .. })), "{again:?}");
    fs.write(at(&cx, "a/file"), "x".into(), WriteOptions::new()).await.unwrap();
    let mut entries = fs.read_directory(at(&cx, "a")).await.unwrap();
    entries.sort_by(|one, other| one.file_name.cmp(&other.file_name));
    let shown: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    assert_eq!(shown, [("b", true, false), ("file", false, true)]);
    let path = entries[1].path_in(&uri(&cx, "a")).unwrap();
    assert_eq!(fs.read(path.into(), ReadOptions::new()).await.unwrap(), "x");
    let full = fs.remove(at(&cx, "a"), RemoveOptions::new().recursive(false)).await;
    assert!(matches!(full, Err(FsError::NotEmpty { .. })), "{full:?}");
    fs.remove(at(&cx, "a"), RemoveOptions::new()).await.unwrap();
    assert!(!cx.dir().join("a").exists());
}

async fn a_walk_goes_breadth_first_and_is_cut_by_its_bounds(cx: Context) {
    let fs = files(&cx);
    for name in ["dir/sub/deep", ".hidden/below"] {
        fs.create_directory(at(&cx, &format!("root/{name}")), CreateDirectoryOptions::new()).await.unwrap();
    }
    fs.write(at(&cx, "root/z 1"), "x".into(), WriteOptions::new()).await.unwrap();
    let walk = async |options: WalkOptions| {
        let walk = fs.walk(at(&cx, "root"), options).await.unwrap();
        assert!(walk.errors.is_empty(), "{walk:?}");
        let paths: Vec<_> = walk.entries.into_iter().map(|entry| (entry.path, entry.kind)).collect();
        (paths, walk.truncated)
    };
    let expected = |entries: &[(&str, WalkKind)]| -> Vec<_> {
        entries.iter().map(|(name, kind)| (uri(&cx, &format!("root/{name}")), *kind)).collect()
    };
    use WalkKind::{Directory, File};
    let all = [
        (".hidden", Directory),
        ("dir", Directory),
        ("z 1", File),
        (".hidden/below", Directory),
        ("dir/sub", Directory),
        ("dir/sub/deep", Directory),
    ];
    assert_eq!(walk(WalkOptions::new()).await, (expected(&all), false));
    assert_eq!(walk(WalkOptions::new().max_depth(0)).await, (expected(&all[..3]), false));
    assert_eq!(walk(WalkOptions::new().max_directories(1)).await, (expected(&all[..3]), true));
    assert_eq!(walk(WalkOptions::new().max_entries(2)).await, (expected(&all[..2]), true));
    let pruned = walk(WalkOptions::new().prune_hidden_directories(true)).await;
    assert_eq!(pruned.0, expected(&[all[0], all[1], all[2], all[4], all[5]]));
    let refused = fs.walk(at(&cx, "root"), WalkOptions::new().max_entries(0)).await;
    assert!(matches!(refused, Err(FsError::InvalidRequest(_))), "{refused:?}");
}

async fn a_tree_is_copied(cx: Context) {
    let fs = files(&cx);
    fs.create_directory(at(&cx, "from/sub"), CreateDirectoryOptions::new()).await.unwrap();
    fs.write(at(&cx, "from/sub/file"), "content".into(), WriteOptions::new()).await.unwrap();
    let all = CopyOptions::new().recursive(true);
    let alone = fs.copy(at(&cx, "from"), at(&cx, "to"), CopyOptions::new()).await;
    assert!(matches!(alone, Err(FsError::InvalidRequest(_))), "{alone:?}");
    fs.copy(at(&cx, "from"), at(&cx, "new/to"), all).await.unwrap();
    assert_eq!(fs.read(at(&cx, "new/to/sub/file"), ReadOptions::new()).await.unwrap(), "content");
    let inside = fs.copy(at(&cx, "from"), at(&cx, "from/sub/x"), all).await;
    assert!(matches!(inside, Err(FsError::InvalidRequest(_))), "{inside:?}");
}

async fn a_file_copied_onto_itself_is_kept(cx: Context) {
    let fs = files(&cx);
    fs.write(at(&cx, "file"), "content".into(), WriteOptions::new()).await.unwrap();
    std::fs::hard_link(cx.dir().join("file"), cx.dir().join("other name")).unwrap();
    for destination in ["file", "other name"] {
        fs.copy(at(&cx, "file"), at(&cx, destination), CopyOptions::new()).await.unwrap();
        assert_eq!(fs.read(at(&cx, "file"), ReadOptions::new()).await.unwrap(), "content", "{destination}");
    }
}

async fn a_canonical_path_has_no_links(cx: Context) {
    let fs = files(&cx);
    fs.create_directory(at(&cx, "dir/sub"), CreateDirectoryOptions::new()).await.unwrap();
    link(&cx, "dir", "dlink");
    let root = PathUri::from_host_native_path(cx.dir().canonicalize().unwrap()).unwrap();
    let found = fs.canonicalize(at(&cx, "dlink/sub")).await.unwrap();
    assert_eq!(found, root.join("dir/sub").unwrap());
}

async fn a_watch_fires_when_a_missing_path_appears(cx: Context) {
    let fs = files(&cx);
    fs.write(at(&cx, "present"), "x".into(), WriteOptions::new()).await.unwrap();
    let present = fs.watch_missing(vec![at(&cx, "present")], None).await.unwrap();
    assert!(present.is_none(), "it exists");
    let watch = fs.watch_missing(vec![at(&cx, "later/below")], Some(at(&cx, "present"))).await.unwrap();
    let watch = watch.unwrap_or_else(|| panic!("it can be watched"));
    fs.create_directory(at(&cx, "later"), CreateDirectoryOptions::new()).await.unwrap();
    watch.await.unwrap();
}

async fn a_private_directory_is_fresh(cx: Context) {
    let fs = files(&cx);
    let (one, other) = (fs.private_directory().await.unwrap(), fs.private_directory().await.unwrap());
    assert_ne!(one, other);
    for uri in [one, other] {
        assert_eq!(fs.read_directory(uri.clone().into()).await.unwrap(), []);
        assert!(uri.starts_with(&fs.temp_dir().await.unwrap()));
        fs.remove(uri.into(), RemoveOptions::new().recursive(false).force(false)).await.unwrap();
    }
}

async fn what_an_intent_does_not_allow_is_left_alone(cx: Context) {
    let free = files(&cx);
    for name in ["root", "other"] {
        free.create_directory(at(&cx, name), CreateDirectoryOptions::new()).await.unwrap();
        free.write(at(&cx, &format!("{name}/file")), "kept".into(), WriteOptions::new()).await.unwrap();
    }
    let canonical = free.canonicalize(at(&cx, "root")).await.unwrap();
    let fs = std::sync::Arc::clone(&free).with_sandbox(SandboxIntent::read_only().write(canonical)).unwrap();
    let read = |name: &str| fs.read(at(&cx, name), ReadOptions::new());
    let write = |name: &str| fs.write(at(&cx, name), "new".into(), WriteOptions::new());
    assert_eq!(read("other/file").await.unwrap(), "kept");
    write("root/file").await.unwrap();
    write("root/new").await.unwrap();
    assert_eq!(read("root/file").await.unwrap(), "new");
    let refused = [
        write("other/file").await,
        write("other/new").await,
        fs.create_directory(at(&cx, "other/new"), CreateDirectoryOptions::new()).await,
        fs.remove(at(&cx, "other/file"), RemoveOptions::new()).await,
        fs.remove(at(&cx, "other"), RemoveOptions::new()).await,
        fs.copy(at(&cx, "root/file"), at(&cx, "other/new"), CopyOptions::new()).await,
    ];
    for (call, result) in refused.into_iter().enumerate() {
        assert!(
            matches!(result, Err(FsError::Os { .. } | FsError::PermissionDenied { .. })),
            "call {call}: {result:?}"
        );
    }
    assert_eq!(std::fs::read(cx.dir().join("other/file")).unwrap(), b"kept");
    assert_eq!(std::fs::read_dir(cx.dir().join("other")).unwrap().count(), 1);
    // The other view is as free as before.
    free.write(at(&cx, "other/new"), "new".into(), WriteOptions::new()).await.unwrap();
}

async fn what_an_intent_denies_is_read_by_no_call(cx: Context) {
    let free = files(&cx);
    free.create_directory(at(&cx, "secret"), CreateDirectoryOptions::new()).await.unwrap();
    free.write(at(&cx, "secret/file"), "secret".into(), WriteOptions::new()).await.unwrap();
    let root = free.canonicalize(cx.dir().into()).await.unwrap();
    let secret = free.canonicalize(at(&cx, "secret")).await.unwrap();
    let fs = std::sync::Arc::clone(&free).with_sandbox(SandboxIntent::read_only().write(root).deny(secret)).unwrap();
    let refused = [
        fs.read(at(&cx, "secret/file"), ReadOptions::new()).await.map(drop),
        fs.read_directory(at(&cx, "secret")).await.map(drop),
        fs.write(at(&cx, "secret/file"), "new".into(), WriteOptions::new()).await,
        fs.copy(at(&cx, "secret/file"), at(&cx, "copied"), CopyOptions::new()).await,
        fs.copy(at(&cx, "secret"), at(&cx, "copied"), CopyOptions::new().recursive(true)).await,
    ];
    for (call, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(FsError::PermissionDenied { .. })), "call {call}: {result:?}");
    }
    assert!(!cx.dir().join("copied").exists());
    assert_eq!(std::fs::read(cx.dir().join("secret/file")).unwrap(), b"secret");
}
