//! From the path of a request to a native one.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use crate::fs::{InvalidFsRequest, RequestPath};

/// The native path. As in a URI, dots are resolved by the text, and separators at the end have no meaning.
pub(super) fn resolve(path: &RequestPath) -> Result<PathBuf, InvalidFsRequest> {
    let native = match path {
        RequestPath::Uri(uri) => uri.to_host_native_path()?,
        RequestPath::Native(native) => native.clone(),
    };
    let bytes = native.as_os_str().len();
    if bytes > MAX_PATH_BYTES {
        return Err(InvalidFsRequest::Other(format!("a path of {bytes} bytes is longer than {MAX_PATH_BYTES}")));
    }
    if native.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(InvalidFsRequest::Nul { path: path.clone() });
    }
    if !native.is_absolute() {
        return Err(InvalidFsRequest::RelativePath { path: path.clone() });
    }
    let mut resolved = PathBuf::with_capacity(native.as_os_str().len());
    for component in native.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => resolved.push(component),
        }
    }
    Ok(resolved)
}

/// Bytes of the longest path that is looked at. Longer than any system takes, and short enough that nothing takes long.
const MAX_PATH_BYTES: usize = 128 << 10;

/// The directory of a path, and its name there. The root is `.` in itself.
pub(super) fn split(path: &Path) -> (&Path, &OsStr) {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => (path, OsStr::new(".")),
    }
}

/// A name for a file beside another one that nobody else will use. Short, since names may be as long as a system allows.
pub(super) fn temporary_name() -> OsString {
    format!(".longarm-{}.tmp", uuid::Uuid::new_v4().simple()).into()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::path_uri::PathUri;

    #[test]
    fn native_paths_mean_what_their_uris_mean() {
        for (native, expected) in [("/a/b/../c/", "/a/c"), ("/../a//./b", "/a/b"), ("/", "/"), ("//", "/")] {
            assert_eq!(resolve(&native.into()), Ok(expected.into()), "{native}");
            let uri = PathUri::from_host_native_path(native).unwrap();
            assert_eq!(resolve(&uri.into()), Ok(expected.into()), "{native}");
        }
    }

    #[test]
    fn unusable_paths_are_named() {
        assert_eq!(resolve(&"a".into()), Err(InvalidFsRequest::RelativePath { path: "a".into() }));
        assert_eq!(resolve(&"/a\0b".into()), Err(InvalidFsRequest::Nul { path: "/a\0b".into() }));
        let foreign = PathUri::parse("file:///C:/x").unwrap();
        assert_eq!(
            resolve(&foreign.into()),
            Err(InvalidFsRequest::ForeignPath { uri: "file:///C:/x".into(), os: std::env::consts::OS.into() })
        );
        let long = format!("/{}", "a/".repeat(MAX_PATH_BYTES / 2));
        assert!(matches!(resolve(&long.into()), Err(InvalidFsRequest::Other(_))));
        // The opaque form carries what a plain one cannot: here a NUL.
        let opaque = PathUri::from_host_native_path("/a\0b").unwrap();
        assert_eq!(resolve(&opaque.clone().into()), Err(InvalidFsRequest::Nul { path: opaque.into() }));
    }

    #[test]
    fn the_root_is_a_name_in_itself() {
        assert_eq!(split(Path::new("/a/b")), (Path::new("/a"), OsStr::new("b")));
        assert_eq!(split(Path::new("/")), (Path::new("/"), OsStr::new(".")));
    }
}
