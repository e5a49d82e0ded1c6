//! What a path is, and directories one by one.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use longarm::fs::{
    CreateDirectoryOptions, FileSystem, FsError, LocalFileSystem, LocalFileSystemConfig, Metadata, ReadOptions,
    Symlinks,
};
use longarm::path_uri::PathUri;

use crate::roles::as_user;
use crate::support::{Scratch, assert_not_found, files, mode, os_code};

fn create() -> CreateDirectoryOptions {
    CreateDirectoryOptions::new()
}

#[tokio::test]
async fn directories_are_created_with_those_above_or_alone() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    scratch.directory("dir");
    scratch.link("dangling", "nothing");
    scratch.link("dlink", "dir");
    let [alone, refusing] = [create().recursive(false), create().symlinks(Symlinks::Refuse)];
    for options in [create(), refusing] {
        files().create_directory(scratch.at("a/b/c"), options).await.unwrap();
        files().create_directory(scratch.at("a/b/c"), options).await.unwrap();
        fs::remove_dir_all(scratch.path("a")).unwrap();
    }
    files().create_directory("/".into(), create()).await.unwrap();
    for options in [alone, alone.symlinks(Symlinks::Refuse)] {
        let error = files().create_directory(scratch.at("dir"), options).await.unwrap_err();
        assert!(matches!(error, FsError::AlreadyExists { .. }), "{error:?}");
        assert_not_found(files().create_directory(scratch.at("x/y"), options).await, scratch.path("x/y"));
        files().create_directory(scratch.at("dir/new"), options).await.unwrap();
        fs::remove_dir(scratch.path("dir/new")).unwrap();
    }
    for name in ["file", "dangling"] {
        let error = files().create_directory(scratch.at(name), create()).await.unwrap_err();
        assert!(matches!(error, FsError::AlreadyExists { .. }), "{name}: {error:?}");
    }
    files().create_directory(scratch.at("dlink"), create()).await.unwrap();
    files().create_directory(scratch.at("dlink/through"), create()).await.unwrap();
    assert!(scratch.path("dir/through").is_dir());
    let error = files().create_directory(scratch.at("file/x"), create()).await.unwrap_err();
    assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
}

#[tokio::test]
async fn no_directory_is_created_through_a_link_that_is_refused() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    scratch.directory("dir");
    scratch.link("dlink", "dir");
    scratch.link("dangling", "nothing");
    let refusing = create().symlinks(Symlinks::Refuse);
    for options in [refusing, refusing.recursive(false)] {
        let error = files().create_directory(scratch.at("dlink/new"), options).await.unwrap_err();
        assert!(matches!(error, FsError::SymbolicLink { last: false, .. }), "{error:?}");
    }
    for name in ["dlink", "dangling"] {
        let error = files().create_directory(scratch.at(name), refusing).await.unwrap_err();
        assert!(matches!(error, FsError::SymbolicLink { last: true, .. }), "{error:?}");
    }
    let error = files().create_directory(scratch.at("file"), refusing).await.unwrap_err();
    assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
    assert!(scratch.names("dir").is_empty() && !scratch.path("nothing").exists());
}

/// What it is: a directory, a file, a link.
fn kinds(metadata: &Metadata) -> [bool; 3] {
    [metadata.is_directory, metadata.is_file, metadata.is_symlink]
}

#[tokio::test]
async fn metadata_is_that_of_the_target_and_says_whether_there_is_a_link() {
    let scratch = Scratch::new();
    scratch.file("file", "hello world");
    scratch.directory("dir");
    scratch.fifo("fifo");
    scratch.link("link", "file");
    scratch.link("dlink", "dir");
    scratch.link("dangling", "nothing");
    scratch.link("loop", "loop");
    let look = async |name: &str, symlinks| files().metadata(scratch.at(name), symlinks).await;
    for (name, expected) in [
        ("file", [false, true, false]),
        ("dir", [true, false, false]),
        ("fifo", [false, false, false]),
        ("link", [false, true, true]),
        ("dlink", [true, false, true]),
    ] {
        let metadata = look(name, Symlinks::Follow).await.unwrap();
        assert_eq!(kinds(&metadata), expected, "{name}");
        let age = SystemTime::now().duration_since(metadata.modified.unwrap()).unwrap_or_default();
        assert!(age < Duration::from_secs(600), "{name} is new");
        let [_, _, is_symlink] = expected;
        let refusing = look(name, Symlinks::Refuse).await;
        if is_symlink {
            assert!(matches!(refusing, Err(FsError::SymbolicLink { last: true, .. })), "{name}: {refusing:?}");
        } else {
            assert_eq!(refusing.unwrap(), metadata);
        }
    }
    assert_eq!(look("link", Symlinks::Follow).await.unwrap().size, 11);
    for symlinks in [Symlinks::Follow, Symlinks::Refuse] {
        assert_not_found(look("nothing", symlinks).await, scratch.path("nothing"));
        let error = look("file/x", symlinks).await.unwrap_err();
        assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
        assert!(files().metadata("/".into(), symlinks).await.unwrap().is_directory);
    }
    assert_not_found(look("dangling", Symlinks::Follow).await, scratch.path("dangling"));
    let through = look("dlink/x", Symlinks::Refuse).await;
    assert!(matches!(through, Err(FsError::SymbolicLink { last: false, .. })), "{through:?}");
    assert!(os_code(&look("loop", Symlinks::Follow).await.unwrap_err()).is_some());
}

#[tokio::test]
async fn the_time_of_creation_is_filled_in() {
    let scratch = Scratch::new();
    let path = scratch.file("file", "");
    if fs::metadata(&path).unwrap().created().is_err() {
        return crate::needs::skipped("times of creation", "the temporary directory's file system does not keep them");
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    File::open(&path).unwrap().set_modified(long_ago).unwrap();
    let metadata = files().metadata(scratch.at("file"), Symlinks::Follow).await.unwrap();
    assert_eq!(metadata.modified, Some(long_ago));
    assert!(metadata.created.unwrap() > long_ago);
}

#[tokio::test]
async fn a_canonical_path_has_no_links() {
    let scratch = Scratch::new();
    scratch.directory("dir/sub");
    let odd = scratch.directory(OsStr::from_bytes(b"od d\xff"));
    scratch.link("dlink", "dir");
    scratch.link("loop", "loop");
    let expected = |path| PathUri::from_host_native_path(path).unwrap();
    assert_eq!(files().canonicalize(scratch.at("dlink/sub/")).await.unwrap(), expected(scratch.path("dir/sub")));
    assert_eq!(files().canonicalize(odd.clone().into()).await.unwrap(), expected(odd));
    // By the text, as in a URI, and so not where the link leads.
    assert_eq!(files().canonicalize(scratch.at("dlink/../dir")).await.unwrap(), expected(scratch.path("dir")));
    assert_not_found(files().canonicalize(scratch.at("nothing")).await, scratch.path("nothing"));
    assert!(os_code(&files().canonicalize(scratch.at("loop")).await.unwrap_err()).is_some());
}

#[tokio::test]
async fn entries_say_what_their_targets_are_and_lead_to_themselves() {
    let scratch = Scratch::new();
    scratch.directory("dir/sub");
    scratch.file("dir/file", "file");
    scratch.file(OsStr::from_bytes(b"dir/odd\xff\n"), "odd");
    scratch.fifo("dir/fifo");
    scratch.link("dir/link", "file");
    scratch.link("dir/dlink", "sub");
    scratch.link("dir/dangling", "nothing");
    scratch.link("dir/loop", "loop");
    scratch.link("link", "dir");
    let mut entries = files().read_directory(scratch.at("link")).await.unwrap();
    entries.sort_by(|one, other| one.file_name.cmp(&other.file_name));
    let shown: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    let expected = [
        ("dlink", true, false),
        ("fifo", false, false),
        ("file", false, true),
        ("link", false, true),
        ("odd\u{fffd}\n", false, true),
        ("sub", true, false),
    ];
    assert_eq!(shown, expected, "what leads nowhere is left out");
    let directory = PathUri::from_host_native_path(scratch.path("dir")).unwrap();
    for entry in entries.iter().filter(|entry| entry.is_file) {
        let path = entry.path_in(&directory).unwrap();
        let content = files().read(path.into(), ReadOptions::new()).await.unwrap();
        assert_eq!(content, if entry.raw_name.is_some() { "odd" } else { "file" });
        assert!(!entry.is_lossy());
    }
    assert_eq!(entries[4].raw_name.as_deref(), Some(&b"odd\xff\n"[..]));
    let error = files().read_directory(scratch.at("dir/file")).await.unwrap_err();
    assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
    assert_not_found(files().read_directory(scratch.at("nothing")).await, scratch.path("nothing"));
}

#[tokio::test]
async fn a_hundred_thousand_entries_are_listed() {
    const ENTRIES: usize = 100_000;
    let scratch = Scratch::in_memory();
    let first = scratch.file("first", "");
    // Names are cheaper than files, as long as one file can have so many.
    let mut target = first;
    for number in 0..ENTRIES - 1 {
        let name = scratch.path(format!("entry-{number}"));
        if fs::hard_link(&target, &name).is_err() {
            File::create(&name).unwrap();
            target = name;
        }
    }
    let entries = files().read_directory(scratch.root().into()).await.unwrap();
    assert_eq!(entries.len(), ENTRIES);
    assert!(entries.iter().all(|entry| entry.is_file && !entry.is_directory));
    let names: HashSet<_> = entries.into_iter().map(|entry| entry.file_name).collect();
    assert_eq!(names.len(), ENTRIES);
    let walk = files().walk(scratch.root().into(), longarm::fs::WalkOptions::new()).await.unwrap();
    assert_eq!((walk.entries.len(), walk.truncated), (50_000, true));
}

#[tokio::test]
async fn private_directories_are_fresh_and_for_their_owner_only() {
    let scratch = Scratch::new();
    let place = LocalFileSystem::new(LocalFileSystemConfig::default().temp_dir(scratch.root()));
    assert_eq!(place.temp_dir().await.unwrap(), PathUri::from_host_native_path(scratch.root()).unwrap());
    let one = place.private_directory().await.unwrap();
    let other = place.private_directory().await.unwrap();
    assert_ne!(one, other);
    for uri in [one, other] {
        let path = uri.to_host_native_path().unwrap();
        assert!(path.is_dir() && path.starts_with(scratch.root()));
        assert_eq!(mode(path), 0o700);
    }
    let without = LocalFileSystem::new(LocalFileSystemConfig::default());
    assert!(matches!(without.temp_dir().await, Err(FsError::Unsupported(_))));
    assert!(matches!(without.private_directory().await, Err(FsError::Unsupported(_))));
}

#[test]
fn a_user_may_look_at_what_may_not_be_read() {
    as_user("directories::a_user_may_look_at_what_may_not_be_read", || {
        use std::os::unix::fs::PermissionsExt;

        let scratch = Scratch::new();
        let secret = scratch.file("secret", "four");
        let closed = scratch.directory("closed");
        for path in [&secret, &closed] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap();
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            for symlinks in [Symlinks::Follow, Symlinks::Refuse] {
                assert_eq!(files().metadata(scratch.at("secret"), symlinks).await.unwrap().size, 4);
                let error = files().metadata(scratch.at("closed/x"), symlinks).await.unwrap_err();
                assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
            }
            let error = files().read_directory(scratch.at("closed")).await.unwrap_err();
            assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
        });
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    });
}
