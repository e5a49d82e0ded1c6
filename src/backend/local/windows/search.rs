//! Where a program may be: the files that a name stands for, in order, and what a path means in a directory.

use super::environment::equal_ignoring_ascii_case;

/// The absolute paths to try, and the `PATH` that yielded them if the name was looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) paths: Vec<Vec<u16>>,
    pub(super) searched: Option<Vec<u16>>,
}

/// The candidates for `program` in the directory `cwd`, where `path` and `extensions` are the child's own `PATH` and
/// `PATHEXT`.
///
/// A name with a separator or a drive is relative to `cwd`. Another one is looked up on `path`; unlike `cmd.exe`, and
/// like every other system, not in `cwd` before it. Without a `PATH` it is looked up in `default_path`; an empty one
/// finds nothing.
///
/// A name that has an extension is tried as it is first. Then each of `extensions` is added to it. A name without an
/// extension is a program of its own only if it was not looked up, and none of the others exists.
pub(super) fn candidates(
    program: &[u16],
    cwd: &[u16],
    path: Option<&[u16]>,
    extensions: Option<&[u16]>,
    default_path: &[u16],
) -> Candidates {
    let extensions = split_extensions(extensions);
    let mut paths = Vec::new();
    if program.iter().any(|unit| is_separator(*unit)) || drive(program).is_some() {
        push_with_extensions(&mut paths, &resolve(cwd, program), &extensions, true);
        return Candidates { paths, searched: None };
    }
    let path = path.unwrap_or(default_path);
    for directory in split_path(path) {
        let mut file = resolve(cwd, &directory);
        if !file.last().is_some_and(|unit| is_separator(*unit)) {
            file.push(BACKSLASH);
        }
        file.extend_from_slice(program);
        push_with_extensions(&mut paths, &file, &extensions, false);
    }
    Candidates { paths, searched: Some(path.to_vec()) }
}

fn push_with_extensions(paths: &mut Vec<Vec<u16>>, file: &[u16], extensions: &[Vec<u16>], bare: bool) {
    let has_extension = file_name(file).contains(&DOT);
    if has_extension {
        paths.push(file.to_vec());
    }
    paths.extend(extensions.iter().map(|extension| [file, extension].concat()));
    if bare && !has_extension {
        paths.push(file.to_vec());
    }
}

/// The absolute path that `path` means in the directory `cwd`, which is absolute.
pub(super) fn resolve(cwd: &[u16], path: &[u16]) -> Vec<u16> {
    let joined = |base: &[u16], rest: &[u16]| {
        let separator: &[u16] = if base.last().is_some_and(|unit| is_separator(*unit)) { &[] } else { &[BACKSLASH] };
        [base, separator, rest].concat()
    };
    match path {
        [a, b, ..] if is_separator(*a) && is_separator(*b) => path.to_vec(),
        [a, rest @ ..] if is_separator(*a) => joined(root(cwd), rest),
        [letter, colon, rest @ ..] if drive(path).is_some() => match rest {
            [a, ..] if is_separator(*a) => path.to_vec(),
            // Relative to a drive's own current directory. Only that of the child's drive is known: `cwd`.
            _ if drive(cwd).is_some_and(|own| equal_ignoring_ascii_case(&[own], &[*letter])) => joined(cwd, rest),
            _ => joined(&[*letter, *colon], rest),
        },
        _ => joined(cwd, path),
    }
}

/// The same directory without the prefix `\\?\`, which the system does not take for a working directory. A path that
/// needs the prefix keeps it.
pub(super) fn plain_directory(path: &[u16]) -> Vec<u16> {
    if let Some(rest) = strip(path, VERBATIM_UNC) {
        let plain = [&[BACKSLASH, BACKSLASH], rest].concat();
        if is_plain(rest) {
            return plain;
        }
    } else if let Some(rest) = strip(path, VERBATIM)
        && drive(rest).is_some()
        && rest.get(2) == Some(&BACKSLASH)
        && is_plain(&rest[2..])
    {
        return rest.to_vec();
    }
    path.to_vec()
}

/// The path in the form that has no bound on its length, if it is long. It has to be absolute, without `.` and `..`.
pub(super) fn extended(path: &[u16]) -> Vec<u16> {
    if path.len() < LONG_PATH_UNITS {
        return path.to_vec();
    }
    match path {
        [BACKSLASH, BACKSLASH, QUESTION | DOT, BACKSLASH, ..] => path.to_vec(),
        [BACKSLASH, BACKSLASH, rest @ ..] => VERBATIM_UNC.encode_utf16().chain(rest.iter().copied()).collect(),
        _ if drive(path).is_some() => VERBATIM.encode_utf16().chain(path.iter().copied()).collect(),
        _ => path.to_vec(),
    }
}

/// Whether the system hands the file to `cmd.exe`. It ignores dots and blanks at the end of a name.
pub(super) fn is_batch_file(path: &[u16]) -> bool {
    let end = path.iter().rposition(|unit| !matches!(*unit, DOT | SPACE)).map_or(0, |last| last + 1);
    let trimmed = &path[..end];
    [".bat", ".cmd"].into_iter().any(|extension| {
        let extension: Vec<u16> = extension.encode_utf16().collect();
        let start = trimmed.len().saturating_sub(extension.len());
        equal_ignoring_ascii_case(&trimmed[start..], &extension)
    })
}

/// The directories of a `PATH`. Marks group what holds a semicolon and are no part of a directory. Empty ones mean
/// nothing on this system.
fn split_path(path: &[u16]) -> Vec<Vec<u16>> {
    let mut directories = vec![Vec::new()];
    let mut quoted = false;
    for unit in path {
        match *unit {
            QUOTE => quoted = !quoted,
            SEMICOLON if !quoted => directories.push(Vec::new()),
            other => {
                if let Some(last) = directories.last_mut() {
                    last.push(other);
                }
            }
        }
    }
    directories.retain(|directory| !directory.is_empty());
    directories
}

fn split_extensions(extensions: Option<&[u16]>) -> Vec<Vec<u16>> {
    let default: Vec<u16> = DEFAULT_EXTENSIONS.encode_utf16().collect();
    let given = extensions.filter(|given| !given.is_empty()).unwrap_or(&default);
    given
        .split(|unit| *unit == SEMICOLON)
        .filter(|extension| extension.first() == Some(&DOT))
        .map(<[_]>::to_vec)
        .collect()
}

fn file_name(path: &[u16]) -> &[u16] {
    path.rsplit(|unit| is_separator(*unit) || *unit == COLON).next().unwrap_or(path)
}

/// What stands before the first directory: a drive, a share, or the like.
fn root(path: &[u16]) -> &[u16] {
    if drive(path).is_some() {
        return &path[..2];
    }
    let components = if strip(path, VERBATIM_UNC).is_some() { 4 } else { 2 };
    let separators = path.iter().enumerate().skip(2).filter(|(_, unit)| is_separator(**unit));
    match separators.map(|(at, _)| at).nth(components - 1) {
        Some(end) => &path[..end],
        None => path,
    }
}

/// The letter of the drive that the path names.
fn drive(path: &[u16]) -> Option<u16> {
    match path {
        [letter, COLON, ..] if u8::try_from(*letter).is_ok_and(|letter| letter.is_ascii_alphabetic()) => Some(*letter),
        _ => None,
    }
}

/// Whether the system takes what follows the prefix for the same without it: short, no `.` and `..`, no `/`, no
/// component that ends in a dot or a blank.
fn is_plain(rest: &[u16]) -> bool {
    rest.len() < LONG_PATH_UNITS
        && !rest.contains(&SLASH)
        && rest
            .split(|unit| *unit == BACKSLASH)
            .all(|part| !part.last().is_some_and(|unit| matches!(*unit, DOT | SPACE)))
}

fn strip<'a>(path: &'a [u16], prefix: &str) -> Option<&'a [u16]> {
    let prefix: Vec<u16> = prefix.encode_utf16().collect();
    let (start, rest) = path.split_at_checked(prefix.len())?;
    equal_ignoring_ascii_case(start, &prefix).then_some(rest)
}

fn is_separator(unit: u16) -> bool {
    matches!(unit, BACKSLASH | SLASH)
}

const BACKSLASH: u16 = b'\\' as u16;
const SLASH: u16 = b'/' as u16;
const COLON: u16 = b':' as u16;
const DOT: u16 = b'.' as u16;
const SPACE: u16 = b' ' as u16;
const SEMICOLON: u16 = b';' as u16;
const QUESTION: u16 = b'?' as u16;
const QUOTE: u16 = b'"' as u16;
const VERBATIM: &str = r"\\?\";
const VERBATIM_UNC: &str = r"\\?\UNC\";
/// What can be started without an interpreter of its own.
const DEFAULT_EXTENSIONS: &str = ".COM;.EXE;.BAT;.CMD";
/// From here on a path may be too long in its plain form: 260 with the terminator, of a directory 12 less.
const LONG_PATH_UNITS: usize = 248;

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn text(units: &[u16]) -> String {
        String::from_utf16(units).unwrap()
    }

    fn paths(program: &str, path: Option<&str>, extensions: Option<&str>) -> Vec<String> {
        let (path, extensions) = (path.map(wide), extensions.map(wide));
        let default = wide(r"C:\Windows\System32");
        candidates(&wide(program), &wide(r"C:\work"), path.as_deref(), extensions.as_deref(), &default)
            .paths
            .iter()
            .map(|path| text(path))
            .collect()
    }

    fn resolved(cwd: &str, path: &str) -> String {
        text(&resolve(&wide(cwd), &wide(path)))
    }

    #[test]
    fn a_bare_name_is_looked_up_with_each_extension_in_order() {
        assert_eq!(
            paths("git", Some(r"C:\a;C:\b\"), Some(".EXE;.CMD")),
            [r"C:\a\git.EXE", r"C:\a\git.CMD", r"C:\b\git.EXE", r"C:\b\git.CMD"]
        );
    }

    #[test]
    fn a_name_with_an_extension_is_tried_as_it_is_first() {
        assert_eq!(paths("git.exe", Some(r"C:\a"), Some(".EXE")), [r"C:\a\git.exe", r"C:\a\git.exe.EXE"]);
        assert_eq!(paths("python3.11", Some(r"C:\a"), Some(".EXE")), [r"C:\a\python3.11", r"C:\a\python3.11.EXE"]);
    }

    #[test]
    fn a_name_with_a_separator_is_relative_to_the_working_directory() {
        assert_eq!(paths(r".\gradlew", Some(r"C:\a"), Some(".BAT")), [r"C:\work\.\gradlew.BAT", r"C:\work\.\gradlew"]);
        assert_eq!(paths("bin/x.exe", None, Some(".COM")), [r"C:\work\bin/x.exe", r"C:\work\bin/x.exe.COM"]);
        assert_eq!(paths(r"D:\t\x.exe", None, Some(".COM"))[0], r"D:\t\x.exe");
        assert_eq!(
            paths(r"a.b\x", None, Some(".COM")),
            [r"C:\work\a.b\x.COM", r"C:\work\a.b\x"],
            "a dot in a directory is no extension"
        );
    }

    #[test]
    fn the_working_directory_is_not_searched_for_bare_names() {
        assert!(paths("x", Some(""), None).is_empty());
        assert!(paths("x", Some(";;"), None).is_empty());
    }

    #[test]
    fn relative_and_quoted_elements_are_understood() {
        assert_eq!(paths("x", Some(r#"bin;"C:\a;b\c""#), Some(".EXE")), [r"C:\work\bin\x.EXE", r"C:\a;b\c\x.EXE"]);
    }

    #[test]
    fn without_the_variables_the_defaults_are_used() {
        assert_eq!(paths("x", None, None)[1], r"C:\Windows\System32\x.EXE");
        assert_eq!(paths("x", Some(r"C:\a"), Some("")).len(), 4);
        assert_eq!(paths("x", Some(r"C:\a"), Some("EXE;.PS1")), [r"C:\a\x.PS1"], "an extension begins with a dot");
    }

    #[test]
    fn paths_of_every_kind_are_resolved() {
        for (cwd, path, expected) in [
            (r"C:\w", "x", r"C:\w\x"),
            (r"C:\", "x", r"C:\x"),
            (r"C:\w", r"\x", r"C:\x"),
            (r"C:\w", "/x", r"C:\x"),
            (r"C:\w", r"D:\x", r"D:\x"),
            (r"C:\w", "c:x", r"C:\w\x"),
            (r"C:\w", "D:x", r"D:\x"),
            (r"C:\w", r"\\s\h\x", r"\\s\h\x"),
            (r"\\s\h\w", r"\x", r"\\s\h\x"),
            (r"\\s\h", r"\x", r"\\s\h\x"),
            (r"\\?\UNC\s\h\w", r"\x", r"\\?\UNC\s\h\x"),
            (r"\\?\C:\w", r"\x", r"\\?\C:\x"),
        ] {
            assert_eq!(resolved(cwd, path), expected, "{path} in {cwd}");
        }
    }

    #[test]
    fn a_canonical_directory_loses_its_prefix_if_it_means_the_same_without() {
        let plain = |path: &str| text(&plain_directory(&wide(path)));
        assert_eq!(plain(r"\\?\C:\a\b"), r"C:\a\b");
        assert_eq!(plain(r"\\?\C:\"), r"C:\");
        assert_eq!(plain(r"\\?\UNC\s\h\a"), r"\\s\h\a");
        for kept in [r"C:\a", r"\\s\h", r"\\?\C:\a.\b", r"\\?\C:\a\..", r"\\?\C:\a ", r"\\?\C:\a/b", r"\\?\Volume{1}\a"]
        {
            assert_eq!(plain(kept), kept);
        }
        let long = format!(r"\\?\C:\{}", "x".repeat(300));
        assert_eq!(plain(&long), long);
    }

    #[test]
    fn long_paths_are_extended_and_short_ones_are_not() {
        let long = "x".repeat(300);
        for (path, expected) in [
            (r"C:\a".to_owned(), r"C:\a".to_owned()),
            (format!(r"C:\{long}"), format!(r"\\?\C:\{long}")),
            (format!(r"\\s\h\{long}"), format!(r"\\?\UNC\s\h\{long}")),
            (format!(r"\\?\C:\{long}"), format!(r"\\?\C:\{long}")),
        ] {
            assert_eq!(text(&extended(&wide(&path))), expected);
        }
    }

    #[test]
    fn batch_files_are_known_by_their_extension_as_the_system_sees_it() {
        for batch in ["x.bat", r"C:\a\X.BAT", "x.Cmd", "x.bat.", "x.bat ", "x.cmd. .", "x:y.bat", ".bat"] {
            assert!(is_batch_file(&wide(batch)), "{batch:?}");
        }
        for other in ["x.exe", "x.bat.exe", "bat", "xbat", "x.bats", "", "..", r"x.bat\y"] {
            assert!(!is_batch_file(&wide(other)), "{other:?}");
        }
    }
}
