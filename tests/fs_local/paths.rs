//! Paths: whatever bytes a name has, it comes back as it went.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, FsError, ReadOptions, RemoveOptions, Symlinks, WalkOptions,
    WriteOptions,
};
use longarm::path_uri::PathUri;
use proptest::prelude::*;

use crate::support::{Scratch, content, files, names_path, os_code};

/// What a name may not have in it, or be.
fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.contains(&0) && !bytes.contains(&b'/') && bytes != b"." && bytes != b".."
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let odd =
        prop::sample::select(&[b'%', b'.', b' ', b'\n', b'\\', b'#', b'?', b':', b'~', 0x7F, 0x80, 0xC3, 0xFF][..]);
    prop::collection::vec(prop_oneof![2 => any::<u8>(), 2 => odd, 1 => Just(b'a')], 1..40)
        .prop_filter("a name", |name| is_name(name))
}

fn block_on<T>(part: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(part)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_name_of_any_bytes_comes_back_from_every_call(directory in names(), name in names()) {
        let scratch = Scratch::new();
        let dir = scratch.path(OsStr::from_bytes(&directory));
        let path = dir.join(OsStr::from_bytes(&name));
        let uri = PathUri::from_host_native_path(&path).unwrap();
        prop_assert_eq!(&uri.to_host_native_path().unwrap(), &path);
        block_on(async {
            let fs = files();
            fs.create_directory(dir.clone().into(), CreateDirectoryOptions::new()).await.unwrap();
            fs.write(path.clone().into(), "by native path".into(), WriteOptions::new()).await.unwrap();
            prop_assert_eq!(content(&path), b"by native path");
            prop_assert_eq!(fs.read(uri.clone().into(), ReadOptions::new()).await.unwrap(), "by native path");
            fs.write(uri.clone().into(), "by URI".into(), WriteOptions::new()).await.unwrap();
            prop_assert_eq!(content(&path), b"by URI");
            prop_assert_eq!(fs.canonicalize(path.clone().into()).await.unwrap(), uri.clone());

            let above = PathUri::from_host_native_path(&dir).unwrap();
            let entries = fs.read_directory(above.clone().into()).await.unwrap();
            prop_assert_eq!(entries.len(), 1);
            prop_assert_eq!(entries[0].path_in(&above).unwrap(), uri.clone());
            prop_assert_eq!(entries[0].raw_name.is_some(), std::str::from_utf8(&name).is_err());
            let walk = fs.walk(scratch.root().into(), WalkOptions::new()).await.unwrap();
            let found: Vec<_> = walk.entries.into_iter().map(|entry| entry.path).collect();
            prop_assert_eq!(found, vec![above, uri.clone()]);

            fs.remove(uri.into(), RemoveOptions::new().force(false)).await.unwrap();
            prop_assert!(!path.exists());
            Ok(())
        })?;
    }

    #[test]
    fn dots_and_separators_mean_the_same_by_either_kind_of_path(
        parts in prop::collection::vec(prop::sample::select(&["a", "b", ".", "..", "", "a/"][..]), 0..8),
    ) {
        let scratch = Scratch::new();
        // So deep that nothing leads above the scratch directory: what is there changes with whatever else runs.
        let deep = scratch.root().join("1/2/3/4/5/6/7/8");
        std::fs::create_dir_all(&deep).unwrap();
        let mut native = deep.into_os_string();
        for part in &parts {
            native.push("/");
            native.push(part);
        }
        let uri = PathUri::from_host_native_path(&native).unwrap();
        block_on(async {
            let fs = files();
            let by_native = fs.metadata(PathBuf::from(&native).into(), Symlinks::Follow).await;
            let by_uri = fs.metadata(uri.into(), Symlinks::Follow).await;
            prop_assert_eq!(by_native.ok(), by_uri.ok());
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn names_are_as_long_as_the_system_allows_and_no_longer() {
    let scratch = Scratch::new();
    let fs = files();
    for name in ["n".repeat(255), "\u{20ac}".repeat(85)] {
        for text in ["first", "second"] {
            fs.write(scratch.at(&name), text.into(), WriteOptions::new()).await.unwrap();
            assert_eq!(fs.read(scratch.at(&name), ReadOptions::new()).await.unwrap(), text);
        }
        assert_eq!(scratch.names(""), std::slice::from_ref(&name), "nothing else is left behind");
        fs.copy(scratch.at(&name), scratch.at("copy"), CopyOptions::new()).await.unwrap();
        fs.remove(scratch.at(&name), RemoveOptions::new()).await.unwrap();
        fs.remove(scratch.at("copy"), RemoveOptions::new()).await.unwrap();
    }
    let longer = scratch.path("n".repeat(256));
    let error = fs.write(longer.clone().into(), "x".into(), WriteOptions::new()).await.unwrap_err();
    assert!(os_code(&error) == Some(libc::ENAMETOOLONG) && names_path(&error, &longer), "{error:?}");
    let error = fs.read(longer.clone().into(), ReadOptions::new()).await.unwrap_err();
    assert!(matches!(error, FsError::Os { .. }) && names_path(&error, &longer), "{error:?}");
    // A path that is too long altogether, of names that are not.
    let mut deep = OsString::from_vec(b"/".to_vec());
    for _ in 0..3000 {
        deep.push("ab/");
    }
    let error = fs.metadata(PathBuf::from(deep).into(), Symlinks::Follow).await.unwrap_err();
    assert_eq!(os_code(&error), Some(libc::ENAMETOOLONG), "{error:?}");
}
