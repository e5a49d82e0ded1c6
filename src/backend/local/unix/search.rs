//! Where a program may be: the candidates of a `PATH` lookup, in order.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The paths to try, and the `PATH` that yielded them if the name was looked up.
#[derive(Debug)]
pub(super) struct Candidates {
    pub(super) paths: Vec<CString>,
    pub(super) searched: Option<OsString>,
}

/// The candidates for `program`, where `path` is the child's own `PATH`.
///
/// They are used after the change of directory, so that relative ones are relative to the working directory. An empty
/// `PATH` finds nothing; an empty element of another one is the working directory, as POSIX has it.
pub(super) fn candidates(program: &OsStr, path: Option<&OsStr>) -> Candidates {
    let name = program.as_bytes();
    if name.contains(&b'/') {
        return Candidates { paths: CString::new(name).into_iter().collect(), searched: None };
    }
    let path = path.unwrap_or_else(|| OsStr::new(super::platform::DEFAULT_PATH));
    let mut paths = Vec::new();
    if !path.is_empty() {
        for directory in path.as_bytes().split(|byte| *byte == b':') {
            let directory = if directory.is_empty() { b"." } else { directory };
            let mut candidate = Vec::with_capacity(directory.len() + 1 + name.len());
            candidate.extend_from_slice(directory);
            if !directory.ends_with(b"/") {
                candidate.push(b'/');
            }
            candidate.extend_from_slice(name);
            // A NUL was refused before; an element that cannot be a path is not a place to look at.
            paths.extend(CString::new(candidate));
        }
    }
    Candidates { paths, searched: Some(path.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(program: &str, path: Option<&str>) -> Vec<String> {
        let candidates = candidates(OsStr::new(program), path.map(OsStr::new));
        candidates.paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_name_with_a_slash_is_used_as_it_is() {
        assert_eq!(paths("sub/tool", Some("/bin")), ["sub/tool"]);
        assert_eq!(paths("/bin/sh", None), ["/bin/sh"]);
        assert!(candidates(OsStr::new("./x"), None).searched.is_none());
    }

    #[test]
    fn a_bare_name_is_looked_up_in_order() {
        assert_eq!(paths("sh", Some("/a:b/:/c")), ["/a/sh", "b/sh", "/c/sh"]);
    }

    #[test]
    fn an_empty_path_finds_nothing_and_an_empty_element_is_the_working_directory() {
        assert!(paths("sh", Some("")).is_empty());
        assert_eq!(paths("sh", Some("/a::/b")), ["/a/sh", "./sh", "/b/sh"]);
    }

    #[test]
    fn without_a_path_the_default_of_the_system_is_used() {
        assert!(paths("sh", None).contains(&"/bin/sh".to_owned()));
    }
}
