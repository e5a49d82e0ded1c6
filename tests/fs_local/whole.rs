//! Reading and writing whole files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use longarm::fs::{
    FileSystem, FsError, InvalidFsRequest, LocalFileSystem, LocalFileSystemConfig, OpenMode, ReadOptions, RequestPath,
    Symlinks, WriteOptions,
};
use longarm::path_uri::PathUri;
use longarm::sandbox::SandboxIntent;

use crate::place::place;
use crate::roles::{as_user, with_mounts};
use crate::support::{Scratch, assert_not_found, content, files, inode, mode, names_path, os_code};

fn refusing() -> ReadOptions {
    ReadOptions::new().symlinks(Symlinks::Refuse)
}

fn write_refusing() -> WriteOptions {
    WriteOptions::new().symlinks(Symlinks::Refuse)
}

#[tokio::test]
async fn a_file_is_read_by_path_and_by_uri_whatever_its_name() {
    let scratch = Scratch::new();
    let long = "n".repeat(255);
    let names: [&[u8]; 6] = [b"plain", b"sp ace%#?.txt", b"tab\tnew\nline\r", b"\xff\xfe", b"C:", long.as_bytes()];
    for name in names {
        let path = scratch.path(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        let read = files().read(path.as_path().into(), ReadOptions::new()).await.unwrap();
        assert_eq!(read, name);
        let uri = PathUri::from_host_native_path(&path).unwrap();
        assert_eq!(files().read(uri.clone().into(), ReadOptions::new()).await.unwrap(), name, "{uri}");
        files().write(uri.into(), "new".into(), WriteOptions::new()).await.unwrap();
        assert_eq!(content(&path), b"new");
    }
    assert_eq!(scratch.names("").len(), names.len(), "nothing else is left behind");
}

#[tokio::test]
async fn links_are_followed_unless_refused_in_any_component() {
    let scratch = Scratch::new();
    scratch.directory("dir");
    scratch.file("dir/file", "content");
    scratch.link("link", "dir/file");
    scratch.link("dlink", "dir");
    scratch.link("loop", "loop");
    for name in ["link", "dlink/file", "dir/file"] {
        assert_eq!(files().read(scratch.at(name), ReadOptions::new()).await.unwrap(), "content");
    }
    assert_eq!(files().read(scratch.at("dir/file"), refusing()).await.unwrap(), "content");
    for (name, is_last) in [("link", true), ("dlink/file", false), ("loop", true), ("dlink/nothing", false)] {
        for result in [
            files().read(scratch.at(name), refusing()).await.map(drop),
            files().write(scratch.at(name), "x".into(), write_refusing()).await,
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, FsError::SymbolicLink { last, .. } if last == is_last), "{name}: {error:?}");
            assert!(names_path(&error, scratch.path(name)));
        }
    }
    let error = files().read(scratch.at("loop"), ReadOptions::new()).await.unwrap_err();
    assert!(os_code(&error).is_some(), "{error:?}");
    assert_eq!(content(scratch.path("dir/file")), b"content");
}

#[tokio::test]
async fn what_is_no_file_is_refused_without_waiting_for_it() {
    let scratch = Scratch::new();
    scratch.directory("dir");
    scratch.fifo("fifo");
    let _socket = UnixListener::bind(scratch.path("socket")).unwrap();
    for symlinks in [Symlinks::Follow, Symlinks::Refuse] {
        let (read, write) = (ReadOptions::new().symlinks(symlinks), WriteOptions::new().symlinks(symlinks));
        for path in [scratch.at("dir"), scratch.at("fifo"), "/dev/null".into(), "/".into()] {
            let error = files().read(path.clone(), read).await.unwrap_err();
            assert!(matches!(error, FsError::NotAFile { .. }) && error.path() == Some(&path), "{error:?}");
        }
        for path in [scratch.at("dir"), "/".into()] {
            let error = files().write(path.clone(), "x".into(), write).await.unwrap_err();
            assert!(matches!(error, FsError::IsADirectory { .. }) && error.path() == Some(&path), "{error:?}");
        }
        const ENXIO: i32 = 6;
        assert_eq!(os_code(&files().read(scratch.at("socket"), read).await.unwrap_err()), Some(ENXIO));
        for name in ["fifo", "socket"] {
            let error = files().write(scratch.at(name), "x".into(), write).await.unwrap_err();
            assert_eq!(os_code(&error), Some(ENXIO), "{name}: {error:?}");
        }
    }
    files().write("/dev/null".into(), "x".into(), WriteOptions::new()).await.unwrap();
    let error = files().write("/dev/null".into(), "x".into(), write_refusing()).await.unwrap_err();
    assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
    // With a reader at the other end it opens, and is still no file.
    let reader = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let _reader = rustix::fs::open(scratch.path("fifo"), reader, rustix::fs::Mode::empty()).unwrap();
    let error = files().write(scratch.at("fifo"), "x".into(), WriteOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
}

/// Whoever waits at the other end of a FIFO would go on, and what he writes be lost.
#[tokio::test]
async fn a_fifo_that_is_to_be_read_is_not_even_opened() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let scratch = Scratch::new();
    let fifo = scratch.fifo("fifo");
    scratch.link("link", "fifo");
    let opened = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    add_watch(&opened, &fifo, WatchFlags::OPEN).unwrap();
    let is_opened = || rustix::io::read(&opened, &mut [0_u8; 256]) != Err(rustix::io::Errno::AGAIN);
    for files in [place(), place().with_sandbox(SandboxIntent::read_only()).unwrap()] {
        for name in ["fifo", "link"] {
            let error = files.read(scratch.at(name), ReadOptions::new()).await.unwrap_err();
            assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
            let error = files.open(scratch.at(name), OpenMode::Read).await.unwrap_err();
            assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
        }
        let error = files.read(scratch.at("fifo"), refusing()).await.unwrap_err();
        assert!(matches!(error, FsError::NotAFile { .. }), "{error:?}");
        assert!(!is_opened(), "{files:?}");
    }
    drop(rustix::fs::open(&fifo, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap());
    assert!(is_opened(), "it would be seen");
}

#[tokio::test]
async fn a_path_that_leads_nowhere_says_why() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    scratch.link("dangling", "nothing");
    for name in ["nothing", "nothing/below", "dangling"] {
        assert_not_found(files().read(scratch.at(name), ReadOptions::new()).await, scratch.path(name));
    }
    assert_not_found(
        files().write(scratch.at("no/new"), "x".into(), WriteOptions::new()).await,
        scratch.path("no/new"),
    );
    for result in [
        files().read(scratch.at("file/below"), ReadOptions::new()).await.map(drop),
        files().write(scratch.at("file/below"), "x".into(), WriteOptions::new()).await,
    ] {
        assert!(matches!(result, Err(FsError::NotADirectory { .. })), "{result:?}");
    }
    let too_long = scratch.at("n".repeat(256));
    assert!(os_code(&files().read(too_long, ReadOptions::new()).await.unwrap_err()).is_some());
    let foreign = PathUri::parse("file:///C:/x").unwrap();
    for (path, expected) in [
        ("relative".into(), InvalidFsRequest::RelativePath { path: "relative".into() }),
        ("/a\0".into(), InvalidFsRequest::Nul { path: "/a\0".into() }),
        (
            RequestPath::from(foreign.clone()),
            InvalidFsRequest::ForeignPath { uri: foreign.to_string(), os: std::env::consts::OS.into() },
        ),
    ] {
        let error = files().read(path, ReadOptions::new()).await.unwrap_err();
        assert!(matches!(&error, FsError::InvalidRequest(found) if *found == expected), "{error:?}");
    }
}

#[tokio::test]
async fn a_file_above_the_limit_is_refused_with_size_limit_and_a_way_out() {
    let scratch = Scratch::new();
    scratch.file("eight", "12345678");
    let limited = LocalFileSystem::new(LocalFileSystemConfig::default().max_read_bytes(8));
    assert_eq!(limited.read(scratch.at("eight"), ReadOptions::new()).await.unwrap(), "12345678");
    scratch.file("nine", "123456789");
    let error = limited.read(scratch.at("nine"), ReadOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(9), limit: 8, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("9 bytes") && text.contains("8 bytes") && text.contains("blocks"), "{text}");
    assert_eq!(limited.read(scratch.at("nine"), ReadOptions::new().max_bytes(9)).await.unwrap().len(), 9);
    // The storage that a file takes does not matter.
    File::create(scratch.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    let error = files().read(scratch.at("sparse"), ReadOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(size), .. } if size == 1 << 40), "{error:?}");
    File::options().write(true).open(scratch.path("sparse")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(files().read(scratch.at("sparse"), ReadOptions::new()).await.unwrap(), vec![0; 1 << 20]);
}

#[tokio::test]
async fn files_that_say_they_are_empty_are_read_to_their_end() {
    let status = files().read("/proc/self/status".into(), ReadOptions::new()).await.unwrap();
    assert!(status.starts_with(b"Name:"));
    let error = files().read("/proc/self/status".into(), ReadOptions::new().max_bytes(4)).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: None, limit: 4, .. }), "{error:?}");
    assert!(error.to_string().contains("4 bytes"));
}

#[tokio::test]
async fn a_written_file_replaces_the_old_one_at_once_and_keeps_links() {
    let scratch = Scratch::new();
    let path = scratch.file("file", "old content");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    scratch.link("link", "file");
    let mut before = File::open(&path).unwrap();
    let old = inode(&path);
    files().write(scratch.at("link"), "new".into(), WriteOptions::new().fsync(true)).await.unwrap();
    assert_eq!(content(&path), b"new");
    assert!(scratch.path("link").is_symlink());
    assert_ne!(inode(&path), old, "it is another file");
    assert_eq!(mode(&path), 0o640);
    let mut seen = String::new();
    before.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "old content", "a reader never sees a part of the new content");
    files().write(scratch.at("file"), "".into(), write_refusing()).await.unwrap();
    assert_eq!(content(&path), b"");
    assert_eq!(scratch.names(""), ["file", "link"]);
}

#[tokio::test]
async fn a_new_file_gets_the_mode_of_any_new_file_and_a_dangling_link_is_filled() {
    let scratch = Scratch::new();
    File::create(scratch.path("plain")).unwrap();
    scratch.directory("dir");
    scratch.link("dangling", "hop");
    scratch.link("hop", "dir/../dir/target");
    for (name, created) in [("new", "new"), ("dangling", "dir/target")] {
        files().write(scratch.at(name), "x".into(), WriteOptions::new().fsync(true)).await.unwrap();
        assert_eq!(content(scratch.path(created)), b"x");
        assert_eq!(mode(scratch.path(created)), mode(scratch.path("plain")));
    }
    files().write(scratch.at("refused"), "x".into(), write_refusing()).await.unwrap();
    assert!(scratch.path("dangling").is_symlink() && scratch.path("hop").is_symlink());
    assert_eq!(scratch.names(""), ["dangling", "dir", "hop", "new", "plain", "refused"]);
}

#[tokio::test]
async fn all_names_of_a_file_show_what_was_written() {
    let scratch = Scratch::new();
    let path = scratch.file("one", "old content");
    fs::hard_link(&path, scratch.path("other")).unwrap();
    let old = inode(&path);
    for new in ["new", "longer than the old content"] {
        files().write(scratch.at("one"), new.into(), WriteOptions::new().fsync(true)).await.unwrap();
        assert_eq!(content(scratch.path("other")), new.as_bytes());
    }
    assert_eq!(inode(&path), old);
}

#[tokio::test]
async fn files_that_the_kernel_makes_up_are_written_in_place() {
    let path = "/proc/self/comm";
    let before = fs::read(path).unwrap();
    files().write(path.into(), "renamed".into(), WriteOptions::new()).await.unwrap();
    assert_eq!(content(path), b"renamed\n");
    files().write(path.into(), before.into(), WriteOptions::new()).await.unwrap();
    let path = "/proc/self/oom_score_adj";
    let value = fs::read(path).unwrap();
    files().write(path.into(), value.clone().into(), WriteOptions::new()).await.unwrap();
    assert_eq!(content(path), value);
}

#[test]
fn a_user_writes_where_only_the_file_is_writable_and_nowhere_else() {
    as_user("whole::a_user_writes_where_only_the_file_is_writable_and_nowhere_else", || {
        let scratch = Scratch::new();
        let dir = scratch.directory("dir");
        let path = scratch.file("dir/file", "old");
        let read_only = scratch.file("dir/read-only", "old");
        let secret = scratch.file("dir/secret", "old");
        fs::set_permissions(&read_only, PermissionsExt::from_mode(0o444)).unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o000)).unwrap();
        let old = inode(&path);
        run(async {
            // The directory would allow it to be replaced, the file does not.
            for name in ["dir/read-only", "dir/secret"] {
                let error = files().write(scratch.at(name), "new".into(), WriteOptions::new()).await.unwrap_err();
                assert!(matches!(error, FsError::PermissionDenied { code: Some(13), .. }), "{error:?}");
            }
            let error = files().read(scratch.at("dir/secret"), ReadOptions::new()).await.unwrap_err();
            assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
            fs::set_permissions(&dir, PermissionsExt::from_mode(0o555)).unwrap();
            files().write(scratch.at("dir/file"), "new".into(), WriteOptions::new()).await.unwrap();
            let error = files().write(scratch.at("dir/new"), "x".into(), WriteOptions::new()).await.unwrap_err();
            assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
            fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        });
        assert_eq!((content(&path), inode(&path)), (b"new".to_vec(), old), "it was written in place");
        assert_eq!(content(&read_only), b"old");
        assert_eq!(scratch.names("dir"), ["file", "read-only", "secret"]);
    });
}

#[test]
fn a_full_disk_leaves_the_old_content_and_nothing_else() {
    with_mounts("whole::a_full_disk_leaves_the_old_content_and_nothing_else", || {
        let scratch = Scratch::new();
        let disk = scratch.directory("disk");
        let mounted =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&disk).status();
        assert!(mounted.unwrap().success());
        scratch.file("disk/file", "old");
        scratch.file("disk/linked", "old");
        fs::hard_link(scratch.path("disk/linked"), scratch.path("disk/other")).unwrap();
        let large = vec![b'x'; 1 << 20];
        run(async {
            for name in ["disk/file", "disk/linked", "disk/new"] {
                let written = files().write(scratch.at(name), large.clone().into(), WriteOptions::new()).await;
                let error = written.unwrap_err();
                assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull, "{name}");
            }
        });
        for name in ["disk/file", "disk/linked"] {
            assert_eq!(content(scratch.path(name)), b"old", "{name}");
        }
        assert_eq!(scratch.names("disk"), ["file", "linked", "other"]);
    });
}

#[test]
fn a_mount_point_is_written_in_place() {
    with_mounts("whole::a_mount_point_is_written_in_place", || {
        let scratch = Scratch::new();
        let (source, target) = (scratch.file("source", "old"), scratch.file("target", "hidden"));
        let mounted = std::process::Command::new("mount").arg("--bind").args([&source, &target]).status();
        assert!(mounted.unwrap().success());
        run(async {
            files().write(scratch.at("target"), "new".into(), WriteOptions::new()).await.unwrap();
        });
        assert_eq!(content(&source), b"new");
        assert_eq!(scratch.names(""), ["source", "target"]);
    });
}

/// Runs a part of a test that is no async function itself.
fn run(part: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(part);
}
