//! The bounded walk, rule by rule.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use longarm::fs::{FileSystem, FsError, InvalidFsRequest, ReadOptions, SkipReason, Walk, WalkKind, WalkOptions};
use longarm::path_uri::PathUri;

use crate::roles::as_user;
use crate::support::{Scratch, assert_not_found, files, os_code};

async fn walk(scratch: &Scratch, name: &str, options: WalkOptions) -> Walk {
    files().walk(scratch.at(name), options).await.unwrap()
}

/// The paths of entries below the scratch directory; directories end with a slash.
fn entries(scratch: &Scratch, walk: &Walk) -> Vec<String> {
    let root = format!("{}/", PathUri::from_host_native_path(scratch.root()).unwrap());
    let shown = walk.entries.iter().map(|entry| {
        let path = entry.path.as_str().strip_prefix(&root).unwrap();
        format!("{path}{}", if entry.kind == WalkKind::Directory { "/" } else { "" })
    });
    shown.collect()
}

fn skipped(walk: &Walk) -> Vec<(String, SkipReason)> {
    let skipped = walk.skipped.as_ref().unwrap().iter();
    skipped.map(|entry| (String::from_utf8(entry.path.file_name().unwrap().to_vec()).unwrap(), entry.reason)).collect()
}

/// The tree of the recorded examples.
fn recorded() -> Scratch {
    let scratch = Scratch::new();
    scratch.directory("dir/sub");
    for name in ["a.txt", "dir/b.txt", "sp ace%#.txt"] {
        scratch.file(name, "");
    }
    scratch.link("dangling", "nope");
    scratch.link("link", "a.txt");
    scratch.link("dlink", "dir");
    scratch.fifo("fifo");
    scratch
}

#[tokio::test]
async fn a_tree_is_walked_breadth_first_by_the_bytes_of_names() {
    let scratch = recorded();
    let found = walk(&scratch, "", WalkOptions::new()).await;
    let expected = ["a.txt", "dir/", "sp%20ace%25%23.txt", "dir/b.txt", "dir/sub/"];
    assert_eq!(entries(&scratch, &found), expected);
    assert!(found.errors.is_empty() && !found.truncated);
    let expected = [
        ("dangling", SkipReason::DanglingSymlink),
        ("dlink", SkipReason::Symlink),
        ("fifo", SkipReason::Special),
        ("link", SkipReason::Symlink),
    ];
    assert_eq!(skipped(&found), expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[tokio::test]
async fn directories_behind_links_are_entered_once_if_asked() {
    let scratch = recorded();
    let following = WalkOptions::new().follow_directory_symlinks(true);
    let found = walk(&scratch, "", following).await;
    let expected = ["a.txt", "dir/", "dlink/", "sp%20ace%25%23.txt", "dir/b.txt", "dir/sub/"];
    assert_eq!(entries(&scratch, &found), expected);
    assert!(skipped(&found).contains(&("dlink".into(), SkipReason::AlreadyEntered)));
    // The root given as a link is the root, and is in the paths.
    let found = walk(&scratch, "dlink", following).await;
    assert_eq!(entries(&scratch, &found), ["dlink/b.txt", "dlink/sub/"]);
    assert!(walk(&scratch, "dlink", WalkOptions::new()).await.entries.is_empty());
    // Loops end.
    scratch.link("dir/sub/up", "..");
    scratch.link("dir/sub/root", scratch.root());
    scratch.link("dir/sub/self", "self");
    let found = walk(&scratch, "", following).await;
    let expected = ["dir/sub/root/", "dir/sub/up/"];
    assert_eq!(entries(&scratch, &found)[6..], expected);
    assert!(!found.truncated);
}

#[tokio::test]
async fn bounds_cut_a_walk_and_the_depth_does_not() {
    let scratch = recorded();
    let found = walk(&scratch, "", WalkOptions::new().max_depth(0)).await;
    assert_eq!((entries(&scratch, &found).len(), found.truncated), (3, false));
    let found = walk(&scratch, "", WalkOptions::new().max_directories(1)).await;
    assert_eq!((entries(&scratch, &found).len(), found.truncated), (3, true));
    // Skipped links count, those that lead nowhere do not.
    let found = walk(&scratch, "", WalkOptions::new().max_entries(2)).await;
    assert_eq!((entries(&scratch, &found), found.truncated), (vec!["a.txt".into(), "dir/".into()], true));
    // What is exactly enough is not cut.
    let found = walk(&scratch, "", WalkOptions::new().max_entries(8).max_directories(3)).await;
    assert_eq!((entries(&scratch, &found).len(), found.truncated), (5, false));
    for (options, expected) in [
        (WalkOptions::new().max_entries(0).max_depth(65), InvalidFsRequest::WalkLimitZero),
        (WalkOptions::new().max_directories(0), InvalidFsRequest::WalkLimitZero),
        (WalkOptions::new().max_depth(65), too_large()),
        (WalkOptions::new().max_directories(10_001), too_large()),
        (WalkOptions::new().max_entries(50_001), too_large()),
    ] {
        let error = files().walk(scratch.at("nothing"), options).await.unwrap_err();
        assert!(matches!(&error, FsError::InvalidRequest(found) if *found == expected), "{error:?}");
    }
}

fn too_large() -> InvalidFsRequest {
    InvalidFsRequest::WalkLimitTooLarge { depth: 64, directories: 10_000, entries: 50_000 }
}

#[tokio::test]
async fn hidden_directories_are_reported_and_not_entered_if_asked() {
    let scratch = Scratch::new();
    scratch.directory(".root/.hidden/below");
    scratch.directory(".root/shown/below");
    scratch.file(".root/.file", "");
    let found = walk(&scratch, ".root", WalkOptions::new().prune_hidden_directories(true)).await;
    let expected = [".root/.file", ".root/.hidden/", ".root/shown/", ".root/shown/below/"];
    assert_eq!(entries(&scratch, &found), expected, "the root's own name does not matter");
    let found = walk(&scratch, ".root", WalkOptions::new()).await;
    assert_eq!(entries(&scratch, &found).len(), 5);
}

#[tokio::test]
async fn a_root_that_is_no_directory_has_nothing_below() {
    let scratch = recorded();
    for name in ["a.txt", "fifo", "link"] {
        assert_eq!(walk(&scratch, name, WalkOptions::new()).await.entries, []);
    }
    for name in ["nope", "dangling"] {
        assert_not_found(files().walk(scratch.at(name), WalkOptions::new()).await, scratch.path(name));
    }
    scratch.link("loop", "loop");
    assert!(os_code(&files().walk(scratch.at("loop"), WalkOptions::new()).await.unwrap_err()).is_some());
    let error = files().walk(scratch.at("a.txt/x"), WalkOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::NotADirectory { .. }), "{error:?}");
}

#[tokio::test]
async fn odd_names_have_uris_that_lead_back_to_them() {
    let scratch = Scratch::new();
    let long = "n".repeat(255);
    let names: [&[u8]; 8] =
        [b"tab\t", b"new\nline", b"return\r", b"\xff\xfe", b" lead and trail ", b"a%2Fb", b"\x01", long.as_bytes()];
    for name in names {
        scratch.directory("dir");
        scratch.file(scratch.path("dir").join(OsStr::from_bytes(name)), name);
    }
    let found = walk(&scratch, "dir", WalkOptions::new()).await;
    assert!(found.errors.is_empty() && found.entries.len() == names.len(), "{found:?}");
    for entry in found.entries {
        let name = entry.path.file_name().unwrap().into_owned();
        assert!(names.contains(&name.as_slice()));
        assert_eq!(files().read(entry.path.into(), ReadOptions::new()).await.unwrap(), name);
    }
}

#[test]
fn what_cannot_be_read_is_an_error_of_the_walk_that_goes_on() {
    as_user("walk::what_cannot_be_read_is_an_error_of_the_walk_that_goes_on", || {
        use std::os::unix::fs::PermissionsExt;

        let scratch = Scratch::new();
        let closed = scratch.directory("a-closed");
        scratch.directory("b/c");
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
        let found = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let root = walk(&scratch, "a-closed", WalkOptions::new()).await;
            assert_eq!((root.entries.len(), root.errors.len()), (0, 1));
            walk(&scratch, "", WalkOptions::new()).await
        });
        assert_eq!(entries(&scratch, &found), ["a-closed/", "b/", "b/c/"]);
        let [error] = found.errors.as_slice() else { panic!("{found:?}") };
        assert_eq!(error.path, PathUri::from_host_native_path(&closed).unwrap());
        assert_eq!(error.message, "Permission denied (os error 13)");
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    });
}
