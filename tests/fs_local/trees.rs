//! Removing and copying, files and trees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use longarm::fs::{CopyOptions, FileSystem, FsError, InvalidFsRequest, RemoveOptions, RequestPath, Symlinks};

use crate::roles::{as_user, with_mounts};
use crate::support::{Scratch, assert_not_found, content, files, inode, mode, names_path, os_code};

fn remove() -> RemoveOptions {
    RemoveOptions::new()
}

async fn copy(from: impl Into<RequestPath>, to: impl Into<RequestPath>) -> Result<(), FsError> {
    files().copy(from.into(), to.into(), CopyOptions::new()).await
}

async fn copy_tree(from: impl Into<RequestPath>, to: impl Into<RequestPath>) -> Result<(), FsError> {
    files().copy(from.into(), to.into(), CopyOptions::new().recursive(true)).await
}

/// A tree deeper than the longest path and than the number of files that may be open, made step by step.
fn deep(scratch: &Scratch, name: &str, levels: usize) -> PathBuf {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    let root = scratch.directory(name);
    let mut dir = rustix::fs::open(&root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&dir, c"level", Mode::RWXU).unwrap();
        dir = openat(&dir, c"level", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    openat(&dir, c"leaf", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU).unwrap();
    root
}

/// How deep a tree of directories `level` is, and whether there is a leaf at its end.
fn depth(root: &Path) -> (usize, bool) {
    use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

    let mut dir = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut levels = 0;
    while let Ok(below) = openat(&dir, c"level", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        dir = below;
        levels += 1;
    }
    (levels, statat(&dir, c"leaf", AtFlags::empty()).is_ok())
}

#[tokio::test]
async fn what_is_there_is_removed_and_what_is_not_is_forgiven_or_not() {
    let scratch = Scratch::new();
    for options in [remove(), remove().recursive(false), remove().recursive(false).symlinks(Symlinks::Refuse)] {
        scratch.file("file", "");
        scratch.directory("empty");
        scratch.fifo("fifo");
        for name in ["file", "empty", "fifo"] {
            files().remove(scratch.at(name), options).await.unwrap();
        }
        assert!(scratch.names("").is_empty());
        files().remove(scratch.at("file"), options).await.unwrap();
        files().remove(scratch.at("file/below"), options).await.unwrap();
        let unforgiving = options.force(false);
        assert_not_found(files().remove(scratch.at("file"), unforgiving).await, scratch.path("file"));
    }
    scratch.directory("dir/sub");
    for options in [remove().recursive(false), remove().recursive(false).symlinks(Symlinks::Refuse)] {
        let error = files().remove(scratch.at("dir"), options).await.unwrap_err();
        assert!(matches!(error, FsError::NotEmpty { .. }) && names_path(&error, scratch.path("dir")), "{error:?}");
    }
    scratch.file("file", "");
    for options in [remove(), remove().recursive(false)] {
        let error = files().remove(scratch.at("file/below"), options).await.unwrap_err();
        assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
    }
    let error = files().remove("/".into(), remove()).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::Other(_))), "{error:?}");
}

#[tokio::test]
async fn a_link_is_removed_and_never_what_it_leads_to() {
    let scratch = Scratch::new();
    scratch.directory("outside");
    scratch.file("outside/file", "");
    scratch.link("link", "outside/file");
    scratch.link("dlink", "outside");
    scratch.link("loop", "loop");
    for name in ["link", "dlink", "loop"] {
        let refusing = remove().recursive(false).symlinks(Symlinks::Refuse);
        let error = files().remove(scratch.at(name), refusing).await.unwrap_err();
        assert!(matches!(error, FsError::SymbolicLink { last: true, .. }), "{error:?}");
        files().remove(scratch.at(name), remove()).await.unwrap();
    }
    scratch.directory("dir/sub");
    scratch.link("dir/link", "../outside/file");
    scratch.link("dir/sub/dlink", "../../outside");
    scratch.link("dir/sub/up", "..");
    scratch.link("dlink", "outside");
    let through = remove().recursive(false).symlinks(Symlinks::Refuse);
    let error = files().remove(scratch.at("dlink/file"), through).await.unwrap_err();
    assert!(matches!(error, FsError::SymbolicLink { last: false, .. }), "{error:?}");
    files().remove(scratch.at("dir"), remove()).await.unwrap();
    assert_eq!(scratch.names(""), ["dlink", "outside"]);
    assert_eq!(scratch.names("outside"), ["file"]);
    files().remove(scratch.at("dlink/file"), remove()).await.unwrap();
    assert!(scratch.names("outside").is_empty());
}

#[tokio::test]
async fn trees_may_be_deeper_than_paths_and_open_files_allow() {
    let scratch = Scratch::new();
    let root = deep(&scratch, "deep", 3000);
    copy_tree(root.as_path(), scratch.path("copied")).await.unwrap();
    assert_eq!(depth(&scratch.path("copied")), (3000, true));
    for name in ["deep", "copied"] {
        files().remove(scratch.at(name), remove().symlinks(Symlinks::Refuse)).await.unwrap();
    }
    assert!(scratch.names("").is_empty());
}

#[test]
fn what_cannot_be_removed_or_copied_is_named() {
    as_user("trees::what_cannot_be_removed_or_copied_is_named", || {
        let scratch = Scratch::new();
        scratch.directory("dir/inner");
        scratch.file("dir/inner/kept", "");
        scratch.file("dir/inner/secret", "");
        fs::set_permissions(scratch.path("dir/inner/secret"), PermissionsExt::from_mode(0o000)).unwrap();
        fs::set_permissions(scratch.path("dir/inner"), PermissionsExt::from_mode(0o555)).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let error = files().remove(scratch.at("dir"), remove()).await.unwrap_err();
            assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
            let named = [scratch.path("dir/inner/kept"), scratch.path("dir/inner/secret")];
            assert!(named.iter().any(|path| names_path(&error, path)), "{error:?}");
            let error = copy_tree(scratch.at("dir"), scratch.at("copied")).await.unwrap_err();
            assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
            assert!(names_path(&error, scratch.path("dir/inner/secret")), "{error:?}");
            assert!(error.to_string().contains("dir/inner/secret"), "{error}");
            // A file that may not be written to is still itself.
            let own = scratch.file("own", "x");
            fs::set_permissions(&own, PermissionsExt::from_mode(0o444)).unwrap();
            copy(own.as_path(), own.as_path()).await.unwrap();
        });
        fs::set_permissions(scratch.path("dir/inner"), PermissionsExt::from_mode(0o755)).unwrap();
    });
}

#[tokio::test]
async fn a_tree_that_vanishes_meanwhile_is_no_failure() {
    let scratch = Scratch::new();
    for _ in 0..20 {
        for number in 0..200 {
            scratch.directory(format!("dir/{}/{number}", number % 7));
            scratch.file(format!("dir/{}/{number}/file", number % 7), "");
        }
        let (fs, other) = (files(), files());
        let (one, other) = futures_util::future::join(
            fs.remove(scratch.at("dir"), remove()),
            other.remove(scratch.at("dir"), remove()),
        )
        .await;
        // Each may find a directory in which the other has not finished, which is told; none fails for what is gone.
        for result in [one, other] {
            assert!(matches!(result, Ok(()) | Err(FsError::NotEmpty { .. })), "{result:?}");
        }
        files().remove(scratch.at("dir"), remove()).await.unwrap();
    }
}

#[tokio::test]
async fn a_copied_file_has_the_content_and_the_permission_bits() {
    let scratch = Scratch::new();
    let from = scratch.file("from", "content");
    scratch.file("to", "a longer old content");
    scratch.link("link", "target");
    for (bits, to, written) in [(0o640, "new", "new"), (0o4751, "to", "to"), (0o444, "link", "target")] {
        fs::set_permissions(&from, PermissionsExt::from_mode(bits)).unwrap();
        copy(from.as_path(), scratch.path(to)).await.unwrap();
        assert_eq!(content(scratch.path(written)), b"content");
        assert_eq!(mode(scratch.path(written)), bits, "{to}");
    }
    assert!(scratch.path("link").is_symlink(), "a link at the destination is followed");
    copy("/proc/self/status", scratch.path("status")).await.unwrap();
    assert!(content(scratch.path("status")).starts_with(b"Name:"));
    copy(from.as_path(), "/dev/null").await.unwrap();
}

#[tokio::test]
async fn holes_stay_holes() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    let file = File::create(&from).unwrap();
    file.set_len(1 << 36).unwrap();
    file.write_all_at(b"middle", 1 << 30).unwrap();
    copy(from.as_path(), scratch.path("to")).await.unwrap();
    let to = File::open(scratch.path("to")).unwrap();
    let metadata = to.metadata().unwrap();
    assert_eq!(metadata.len(), 1 << 36);
    assert!(metadata.blocks() * 512 < 1 << 20, "it takes {} blocks", metadata.blocks());
    let mut middle = [0; 8];
    to.read_exact_at(&mut middle, 1 << 30).unwrap();
    assert_eq!(&middle, b"middle\0\0");
}

#[tokio::test]
async fn a_copy_onto_itself_changes_nothing() {
    let scratch = Scratch::new();
    let path = scratch.file("file", "content");
    fs::hard_link(&path, scratch.path("hard")).unwrap();
    scratch.link("soft", "file");
    scratch.directory("dir");
    scratch.link("dlink", "dir");
    for to in ["file", "hard", "soft", "dir/../file"] {
        copy(path.as_path(), scratch.path(to)).await.unwrap();
        assert_eq!(content(&path), b"content", "{to}");
    }
    copy(scratch.path("soft"), scratch.path("soft")).await.unwrap();
    assert_eq!(fs::read_link(scratch.path("soft")).unwrap(), Path::new("file"));
    for to in ["dir", "dir/below", "dir/a/b", "dlink", "dlink/below"] {
        let error = copy_tree(scratch.path("dir"), scratch.path(to)).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyIntoItself { .. })), "{to}: {error:?}");
    }
    assert!(scratch.names("dir").is_empty());
}

#[tokio::test]
async fn links_are_copied_as_such() {
    let scratch = Scratch::new();
    scratch.link("link", OsStr::from_bytes(b"no\xffwhere"));
    scratch.file("there", "");
    copy(scratch.path("link"), scratch.path("copied")).await.unwrap();
    assert_eq!(fs::read_link(scratch.path("copied")).unwrap().as_os_str().as_bytes(), b"no\xffwhere");
    for to in ["there", "copied"] {
        let error = copy(scratch.path("link"), scratch.path(to)).await.unwrap_err();
        assert!(matches!(error, FsError::AlreadyExists { .. }) && names_path(&error, scratch.path(to)), "{error:?}");
    }
    assert_not_found(copy(scratch.path("link"), scratch.path("no/x")).await, scratch.path("no/x"));
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused() {
    let scratch = Scratch::new();
    scratch.directory("dir");
    scratch.file("file", "content");
    scratch.fifo("fifo");
    let socket = UnixListener::bind(scratch.path("socket")).unwrap();
    for from in [scratch.at("fifo"), scratch.at("socket"), "/dev/null".into()] {
        let error = copy(from, scratch.at("new")).await.unwrap_err();
        assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyOfSpecial { .. })), "{error:?}");
    }
    let error = copy(scratch.path("dir"), scratch.path("new")).await.unwrap_err();
    assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyOfDirectory { .. })), "{error:?}");
    assert_not_found(copy(scratch.path("nothing"), scratch.path("new")).await, scratch.path("nothing"));
    assert_not_found(copy(scratch.path("file"), scratch.path("no/new")).await, scratch.path("no/new"));
    let error = copy(scratch.path("file"), scratch.path("dir")).await.unwrap_err();
    assert!(matches!(error, FsError::IsADirectory { .. }), "{error:?}");
    for to in ["fifo", "socket"] {
        const ENXIO: i32 = 6;
        assert_eq!(os_code(&copy(scratch.path("file"), scratch.path(to)).await.unwrap_err()), Some(ENXIO));
    }
    let error = copy_tree(scratch.path("dir"), scratch.path("file")).await.unwrap_err();
    assert!(matches!(error, FsError::AlreadyExists { .. }), "{error:?}");
    drop(socket);
}

#[tokio::test]
async fn a_tree_is_copied_into_another_one_without_what_is_special() {
    let scratch = Scratch::new();
    scratch.directory("from/sub/empty");
    scratch.file("from/file", "content");
    scratch.file(OsStr::from_bytes(b"from/sub/odd\xff"), "odd");
    scratch.link("from/up", "..");
    scratch.link("from/dangling", "nothing");
    scratch.fifo("from/fifo");
    fs::set_permissions(scratch.path("from/file"), PermissionsExt::from_mode(0o600)).unwrap();
    copy_tree(scratch.path("from"), scratch.path("new/to")).await.unwrap();
    assert_eq!(scratch.names("new/to"), ["dangling", "file", "sub", "up"]);
    assert_eq!(scratch.names("new/to/sub"), ["empty", "odd\u{fffd}"]);
    assert_eq!(mode(scratch.path("new/to/file")), 0o600);
    assert_eq!(fs::read_link(scratch.path("new/to/up")).unwrap(), Path::new(".."));
    // Merged into one that exists, up to a link that is there already.
    scratch.directory("into/sub");
    scratch.file("into/sub/other", "");
    scratch.file("into/file", "old");
    copy_tree(scratch.path("from"), scratch.path("into")).await.unwrap();
    assert_eq!(content(scratch.path("into/file")), b"content");
    assert_eq!(scratch.names("into/sub"), ["empty", "odd\u{fffd}", "other"]);
    let error = copy_tree(scratch.path("from"), scratch.path("into")).await.unwrap_err();
    assert!(matches!(error, FsError::AlreadyExists { .. }), "{error:?}");
}

#[tokio::test]
async fn a_tree_is_not_copied_through_links_out_of_its_destination() {
    let scratch = Scratch::new();
    scratch.directory("outside");
    let outside = scratch.file("outside/file", "untouched");
    let old = inode(&outside);
    scratch.directory("from/sub");
    scratch.file("from/sub/new", "");
    scratch.directory("one");
    scratch.link("one/sub", "../outside");
    let error = copy_tree(scratch.path("from"), scratch.path("one")).await.unwrap_err();
    assert!(matches!(error, FsError::SymbolicLink { .. }) && names_path(&error, scratch.path("one/sub")), "{error:?}");
    scratch.file("from/sub/file", "evil");
    scratch.directory("other/sub");
    scratch.link("other/sub/file", "../../outside/file");
    let error = copy_tree(scratch.path("from"), scratch.path("other")).await.unwrap_err();
    assert!(matches!(error, FsError::SymbolicLink { .. }), "{error:?}");
    assert!(names_path(&error, scratch.path("other/sub/file")), "{error:?}");
    assert_eq!(
        (scratch.names("outside"), content(&outside), inode(&outside)),
        (vec!["file".into()], b"untouched".into(), old)
    );
    // The destination itself may be a link.
    scratch.link("link", "outside");
    copy_tree(scratch.path("from"), scratch.path("link")).await.unwrap();
    assert_eq!(scratch.names("outside"), ["file", "sub"]);
}

fn mount(arguments: &[&str], at: &Path) {
    assert!(std::process::Command::new("mount").args(arguments).arg(at).status().unwrap().success());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_tree_that_contains_its_destination_under_another_name_is_not_copied_for_ever() {
    with_mounts("trees::a_tree_that_contains_its_destination_under_another_name_is_not_copied_for_ever", || {
        let scratch = Scratch::new();
        scratch.directory("from/sub");
        let to = scratch.directory("to");
        mount(&["--bind", scratch.path("from/sub").to_str().unwrap()], &to);
        for inside in [to.clone(), to.join("new")] {
            let error = block_on(copy_tree(scratch.path("from"), inside)).unwrap_err();
            assert!(matches!(error, FsError::InvalidRequest(InvalidFsRequest::CopyIntoItself { .. })), "{error:?}");
        }
        assert_eq!(depth(&scratch.path("from/sub")).0, 0);
        assert!(!scratch.path("from/sub/sub/sub").exists() && !scratch.path("from/sub/new/sub/new/sub").exists());
    });
}

#[test]
fn a_copy_that_fails_leaves_the_old_content_and_nothing_else() {
    with_mounts("trees::a_copy_that_fails_leaves_the_old_content_and_nothing_else", || {
        let scratch = Scratch::new();
        let disk = scratch.directory("disk");
        mount(&["-t", "tmpfs", "-o", "size=256k", "none"], &disk);
        scratch.directory("from");
        scratch.file("from/file", vec![b'x'; 1 << 20]);
        for name in ["alone", "linked", "tree/file"] {
            scratch.directory("disk/tree");
            scratch.file(Path::new("disk").join(name), "old");
        }
        fs::hard_link(scratch.path("disk/linked"), scratch.path("disk/other")).unwrap();
        block_on(async {
            for (from, to) in [("from/file", "disk/alone"), ("from/file", "disk/linked"), ("from", "disk/tree")] {
                let error = copy_tree(scratch.path(from), scratch.path(to)).await.unwrap_err();
                assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull, "{to}");
            }
            copy(scratch.path("from/file"), scratch.path("disk/new")).await.unwrap_err();
            copy_tree(scratch.path("from"), scratch.path("disk/grown")).await.unwrap_err();
        });
        for name in ["disk/alone", "disk/linked", "disk/tree/file"] {
            assert_eq!(content(scratch.path(name)), b"old", "{name}");
        }
        assert_eq!(scratch.names("disk"), ["alone", "grown", "linked", "other", "tree"]);
        assert_eq!(scratch.names("disk/tree"), ["file"]);
        assert!(scratch.names("disk/grown").is_empty());
    });
}

#[tokio::test]
async fn a_copy_lends_nobodys_rights_but_those_of_who_gave_them() {
    let scratch = Scratch::new();
    let from = scratch.file("from", "content");
    if std::os::unix::fs::chown(&from, Some(1001), Some(1002)).is_err() {
        // Only root can have somebody else's file here; the bits of one's own are kept, as another test shows.
        return;
    }
    fs::set_permissions(&from, PermissionsExt::from_mode(0o6755)).unwrap();
    copy(from.as_path(), scratch.path("new")).await.unwrap();
    assert_eq!(mode(scratch.path("new")), 0o755);
    let same_group = scratch.file("same", "");
    std::os::unix::fs::chown(&same_group, Some(1001), Some(1002)).unwrap();
    copy(from.as_path(), same_group.as_path()).await.unwrap();
    assert_eq!(mode(&same_group), 0o6755);
}
