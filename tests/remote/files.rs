//! The files of a place behind a connection to our own server.
#![cfg(unix)]

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longarm::config::ClientConfig;
use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileReader, FileSystem, FileWriter, FsError, InvalidFsRequest, OpenMode,
    ReadOptions, RemoveOptions, Symlinks, WalkKind, WalkOptions, WriteOptions,
};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{ExecBackend as _, Local, LocalConfig, Remote};

/// Generous: it only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    remote: Remote,
    fs: Arc<dyn FileSystem>,
    server: Server,
    dir: tempfile::TempDir,
}

impl Place {
    async fn new() -> Self {
        let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
        let (near, far) = memory::pair();
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(Box::new(far)).await });
        let remote = Remote::connect(Box::new(near), ClientConfig::default()).await.unwrap();
        let fs = remote.fs().unwrap();
        Self { remote, fs, server, dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

#[tokio::test]
async fn whole_files_of_any_size_come_and_go_as_they_are() {
    let place = Place::new().await;
    for length in [0, 1, 65_537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 17 << 20] {
        let content = pattern(length);
        let path = place.path("file");
        in_time(place.fs.write(path.clone().into(), content.clone().into(), WriteOptions::new())).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content, "{length} written");
        let read = in_time(place.fs.read(path.into(), ReadOptions::new())).await.unwrap();
        assert!(read == content, "{length} read");
    }
    let proc = in_time(place.fs.read("/proc/self/status".into(), ReadOptions::new())).await.unwrap();
    assert!(proc.starts_with(b"Name:"), "a file that says it has no bytes");
}

#[tokio::test]
async fn what_is_too_large_for_one_call_says_so_with_size_and_limit() {
    let place = Place::new().await;
    let sparse = place.path("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let error = in_time(place.fs.read(sparse.clone().into(), ReadOptions::new())).await.unwrap_err();
    let FsError::TooLarge { size: Some(size), limit, .. } = error else { panic!("{error:?}") };
    assert_eq!((size, limit), (1 << 40, 48 << 20));
    let small = ReadOptions::new().max_bytes(10);
    let path = place.file("eleven", "hello world");
    let error = in_time(place.fs.read(path.clone().into(), small)).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(11), limit: 10, .. }), "{error:?}");
    assert!(error.to_string().contains("use blocks"), "{error}");
    let refusing = ReadOptions::new().symlinks(Symlinks::Refuse).max_bytes(1 << 50);
    let error = in_time(place.fs.read(sparse.into(), refusing)).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(_), limit: 1.., .. }), "{error:?}");
    let large = Bytes::from(vec![0; (48 << 20) + 1]);
    let error = in_time(place.fs.write(path.clone().into(), large, WriteOptions::new())).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(50_331_649), .. }), "{error:?}");
    assert_eq!(std::fs::read(path).unwrap(), b"hello world");
    assert!(
        in_time(place.fs.metadata("/".into(), Symlinks::Follow)).await.unwrap().is_directory,
        "the connection lives"
    );
}

#[tokio::test]
async fn blocks_are_read_and_written_where_they_belong() {
    let place = Place::new().await;
    let path = place.path("new");
    let file = in_time(place.fs.open(path.clone().into(), OpenMode::Replace)).await.unwrap();
    let both = async { tokio::join!(file.write_block(3, "def".into()), file.write_block(0, "abc".into())) };
    let (one, other) = in_time(both).await;
    one.unwrap();
    other.unwrap();
    let error = in_time(file.read_block(0, 1)).await.unwrap_err();
    assert!(matches!(error, FsError::WrongMode { .. }), "{error:?}");
    let error = in_time(file.read_block(0, 1)).await.unwrap_err();
    assert!(matches!(error, FsError::UnknownHandle { .. }), "a failed read closes the file: {error:?}");

    let file = in_time(place.fs.open(path.clone().into(), OpenMode::Update)).await.unwrap();
    in_time(file.write_block(6, "ghi".into())).await.unwrap();
    in_time(file.close()).await.unwrap();
    in_time(file.close()).await.unwrap();
    let error = in_time(file.write_block(0, "x".into())).await.unwrap_err();
    assert!(matches!(error, FsError::UnknownHandle { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdefghi", "opening it again kept what was there");

    let file = in_time(place.fs.open(path.into(), OpenMode::Read)).await.unwrap();
    let block = in_time(file.read_block(2, 4)).await.unwrap();
    assert_eq!((&block.bytes[..], block.eof), (&b"cdef"[..], false));
    let block = in_time(file.read_block(0, 9)).await.unwrap();
    assert_eq!((block.bytes.len(), block.eof), (9, false));
    let block = in_time(file.read_block(9, 1)).await.unwrap();
    assert_eq!((block.bytes.len(), block.eof), (0, true));
    for length in [0, (1 << 20) + 1] {
        let error = in_time(file.read_block(0, length)).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::BlockLength { .. })), "{error:?}");
    }
    assert!(in_time(file.read_block(0, 1)).await.is_ok(), "a wrong length closes nothing");
}

#[tokio::test]
async fn dropped_files_are_closed_at_the_peer() {
    let place = Place::new().await;
    let path = place.file("file", "x");
    for _ in 0..300 {
        let file = in_time(place.fs.open(path.clone().into(), OpenMode::Read)).await.unwrap();
        drop(file);
    }
    let mut open = Vec::new();
    let refused = loop {
        match in_time(place.fs.open(path.clone().into(), OpenMode::Read)).await {
            Ok(file) => open.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(open.len(), 128);
    assert!(matches!(refused, FsError::TooManyHandles { limit: 128 }), "{refused:?}");
}

#[tokio::test]
async fn a_lost_connection_fails_files_and_watches_at_once() {
    let place = Place::new().await;
    let path = place.file("file", "x");
    let file = in_time(place.fs.open(path.into(), OpenMode::Read)).await.unwrap();
    let watch = in_time(place.fs.watch_missing(vec![place.path("later").into()], None)).await.unwrap().unwrap();
    let fast = place.fs.fail_fast().unwrap();
    assert!(fast.fail_fast().is_none() && in_time(fast.canonicalize("/".into())).await.is_ok());
    place.server.shutdown().await;
    let gone = in_time(watch).await.unwrap_err();
    assert!(matches!(gone, FsError::Disconnected(_)), "{gone:?}");
    let gone = in_time(file.read_block(0, 1)).await.unwrap_err();
    assert!(matches!(gone, FsError::Disconnected(_)), "{gone:?}");
    let gone = in_time(fast.canonicalize("/".into())).await.unwrap_err();
    assert!(matches!(gone, FsError::Disconnected(_)), "{gone:?}");
    drop(place.remote);
}

#[tokio::test]
async fn a_view_that_fails_fast_does_not_wait_for_the_handshake() {
    let (near, _far) = memory::pair();
    let remote = Remote::connect_pipelined(Box::new(near), ClientConfig::default());
    let fast = remote.fs().unwrap().fail_fast().unwrap();
    let error = in_time(fast.metadata("/".into(), Symlinks::Follow)).await.unwrap_err();
    let FsError::Disconnected(error) = error else { panic!("{error:?}") };
    assert_eq!(error.sent, longarm::error::Sent::NotSent);
}

#[tokio::test]
async fn directories_are_made_listed_walked_copied_and_removed() {
    let place = Place::new().await;
    let tree = place.path("tree");
    in_time(place.fs.create_directory(tree.join("a/b").into(), CreateDirectoryOptions::new())).await.unwrap();
    std::fs::write(tree.join("a/file"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("dangling")).unwrap();
    let odd = tree.join(std::ffi::OsString::from_vec(b"odd\xFF\n".to_vec()));
    std::fs::write(&odd, "odd").unwrap();

    let mut entries = in_time(place.fs.read_directory(tree.clone().into())).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    assert_eq!(entries.len(), 2);
    assert!(entries[0].is_directory && entries[0].raw_name.is_none());
    assert_eq!(entries[1].raw_name.as_deref(), Some(&b"odd\xFF\n"[..]));
    let uri = longarm::PathUri::from_host_native_path(&tree).unwrap();
    let odd_uri = entries[1].path_in(&uri).unwrap();
    assert_eq!(in_time(place.fs.read(odd_uri.clone().into(), ReadOptions::new())).await.unwrap(), "odd");
    assert_eq!(in_time(place.fs.read(odd.into(), ReadOptions::new())).await.unwrap(), "odd", "by its native path too");

    let walk = in_time(place.fs.walk(tree.clone().into(), WalkOptions::new())).await.unwrap();
    let found: Vec<_> = walk.entries.iter().map(|entry| (entry.path.clone(), entry.kind)).collect();
    let at = |name: &str| longarm::PathUri::from_host_native_path(tree.join(name)).unwrap();
    let expected = [
        (at("a"), WalkKind::Directory),
        (odd_uri, WalkKind::File),
        (at("a/b"), WalkKind::Directory),
        (at("a/file"), WalkKind::File),
    ];
    assert_eq!(found, expected);
    assert_eq!(walk.skipped.map(|skipped| skipped.len()), Some(1), "the link that leads nowhere");

    let copy = place.path("copy");
    let error = in_time(place.fs.copy(tree.clone().into(), copy.clone().into(), CopyOptions::new())).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyOfDirectory { .. })), "{error:?}");
    let recursive = CopyOptions::new().recursive(true);
    let inside = tree.join("a/inside");
    let error = in_time(place.fs.copy(tree.clone().into(), inside.clone().into(), recursive)).await.unwrap_err();
    let FsError::InvalidRequest(InvalidFsRequest::CopyIntoItself { destination, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*destination, inside.into());
    in_time(place.fs.copy(tree.into(), copy.clone().into(), recursive)).await.unwrap();
    assert_eq!(std::fs::read(copy.join("a/file")).unwrap(), b"x");
    let options = RemoveOptions::new().symlinks(Symlinks::Refuse);
    in_time(place.fs.remove(copy.clone().into(), options)).await.unwrap();
    assert!(!copy.exists());
    let error = in_time(place.fs.remove(copy.clone().into(), options.force(false))).await.unwrap_err();
    assert!(matches!(&error, FsError::NotFound { path } if *path == copy.into()), "{error:?}");
}

#[tokio::test]
async fn watchers_share_the_connections_one_watch() {
    let place = Place::new().await;
    let (one, other) = (place.path("one"), place.path("other"));
    let first = in_time(place.fs.watch_missing(vec![one.clone().into()], None)).await.unwrap().unwrap();
    let second = in_time(place.fs.watch_missing(vec![other.into()], None)).await.unwrap().unwrap();
    std::fs::write(&one, "").unwrap();
    in_time(first).await.unwrap();
    in_time(second).await.unwrap();
    assert!(in_time(place.fs.watch_missing(vec![one.into()], None)).await.unwrap().is_none(), "it is there");
}

#[tokio::test]
async fn private_directories_are_only_their_owners_and_temporary_ones_are_named() {
    let place = Place::new().await;
    let private = in_time(place.fs.private_directory()).await.unwrap().to_host_native_path().unwrap();
    assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o700);
    let temp = in_time(place.fs.temp_dir()).await.unwrap().to_host_native_path().unwrap();
    assert!(private.starts_with(&temp) || private.starts_with(temp.canonicalize().unwrap()));
    std::fs::remove_dir(private).unwrap();
}

#[tokio::test]
async fn errors_are_those_of_the_place_itself() {
    let place = Place::new().await;
    let local = Local::new(LocalConfig::from_host()).fs().unwrap();
    let file = place.file("file", "x");
    let link = place.path("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    let (refuse, read) = (Symlinks::Refuse, ReadOptions::new());
    let nul = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a\0b"));
    for path in [place.path("gone"), file.join("x"), place.dir.path().to_owned(), "relative".into(), nul, link] {
        for fs in [&local, &place.fs] {
            assert!(in_time(fs.read(path.clone().into(), read.symlinks(refuse))).await.is_err(), "{path:?}");
        }
        let here = in_time(local.read(path.clone().into(), read.symlinks(refuse))).await.unwrap_err();
        let there = in_time(place.fs.read(path.clone().into(), read.symlinks(refuse))).await.unwrap_err();
        assert_eq!(format!("{there:?}"), format!("{here:?}"));
    }
    let foreign = longarm::PathUri::parse("file:///C:/x").unwrap();
    let error = in_time(place.fs.canonicalize(foreign.into())).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::ForeignPath { .. })), "{error:?}");
    assert!(Path::new(&file).exists());
}

#[tokio::test]
async fn a_lost_connection_fails_streams_with_what_is_on_its_way_at_once() {
    use futures_util::StreamExt as _;
    use tokio::io::AsyncWriteExt as _;

    let place = Place::new().await;
    let large = place.path("large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let from = in_time(place.fs.open(large.into(), OpenMode::Read)).await.unwrap();
    let to = in_time(place.fs.open(place.path("to").into(), OpenMode::Replace)).await.unwrap();
    let mut reader = FileReader::new(from, 0);
    let mut writer = FileWriter::new(to, 0);
    in_time(reader.next()).await.unwrap().unwrap();
    in_time(writer.write_all(&[7; 1 << 20])).await.unwrap();
    place.server.shutdown().await;
    let lost = in_time(async {
        loop {
            if let Err(error) = reader.next().await.expect("it has no end") {
                break error;
            }
        }
    });
    assert!(matches!(lost.await, FsError::Disconnected(_)));
    assert!(in_time(reader.next()).await.is_none(), "nothing follows an error");
    let lost = in_time(async {
        loop {
            if let Err(error) = writer.write_all(&[7; 1 << 20]).await {
                break error;
            }
        }
    });
    let lost = lost.await.downcast::<FsError>().expect("the error is inside");
    assert!(matches!(lost, FsError::Disconnected(_)), "{lost:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn open_files_end_with_their_connection_and_not_with_the_session() {
    let place = Place::new().await;
    let path = place.file("file", "x");
    let holders = || {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == path).count()
    };
    let mut files = Vec::new();
    for _ in 0..20 {
        files.push(in_time(place.fs.open(path.clone().into(), OpenMode::Read)).await.unwrap());
    }
    assert_eq!(holders(), 20);
    let session = in_time(place.remote.leave()).await.expect("a session");
    in_time(async {
        while holders() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (near, far) = memory::pair();
    let serving = place.server.clone();
    tokio::spawn(async move { serving.serve(Box::new(far)).await });
    let again = in_time(Remote::resume(Box::new(near), ClientConfig::default(), session)).await.unwrap();
    let file = in_time(again.fs().unwrap().open(path.clone().into(), OpenMode::Read)).await.unwrap();
    assert_eq!(in_time(file.read_block(0, 1)).await.unwrap().bytes, "x");
    let gone = in_time(files[0].read_block(0, 1)).await.unwrap_err();
    assert!(matches!(gone, FsError::Disconnected(_)), "{gone:?}");
}
