//! From the public types of files to those of the wire and back.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fs;
use crate::fs::{
    DirectoryEntry, Metadata, SkipReason, Skipped, Symlinks, Walk, WalkEntry, WalkFailure, WalkKind, WalkOptions,
    is_name,
};
use crate::path_uri::{NativePath, PathConvention, PathUri};

/// What a member `followSymlinks` says.
pub(crate) fn symlinks(follow: Option<bool>) -> Symlinks {
    if follow.unwrap_or(true) { Symlinks::Follow } else { Symlinks::Refuse }
}

/// The member `followSymlinks`, which is left out where it says what its absence means.
pub(crate) fn follow_symlinks(symlinks: Symlinks) -> Option<bool> {
    (symlinks == Symlinks::Refuse).then_some(false)
}

impl From<Metadata> for fs::Metadata {
    fn from(metadata: Metadata) -> Self {
        Self {
            is_directory: metadata.is_directory,
            is_file: metadata.is_file,
            is_symlink: metadata.is_symlink,
            size: metadata.size,
            created_at_ms: metadata.created.map_or(0, to_millis),
            modified_at_ms: metadata.modified.map_or(0, to_millis),
        }
    }
}

impl From<fs::Metadata> for Metadata {
    fn from(wire: fs::Metadata) -> Self {
        Self {
            is_directory: wire.is_directory,
            is_file: wire.is_file,
            is_symlink: wire.is_symlink,
            size: wire.size,
            created: from_millis(wire.created_at_ms),
            modified: from_millis(wire.modified_at_ms),
        }
    }
}

/// Milliseconds since the epoch, rounded towards it.
fn to_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |before| -before),
    }
}

/// 0 stands for an unknown time.
fn from_millis(millis: i64) -> Option<SystemTime> {
    let distance = Duration::from_millis(millis.unsigned_abs());
    match millis {
        0 => None,
        1.. => UNIX_EPOCH.checked_add(distance),
        _ => UNIX_EPOCH.checked_sub(distance),
    }
}

impl fs::DirectoryEntry {
    /// The wire form of an entry; with the bytes of a name that is not Unicode, if the peer is to have them.
    pub(crate) fn of(entry: DirectoryEntry, detailed: bool) -> Self {
        let raw_name = entry.raw_name.filter(|_| detailed);
        Self {
            file_name: entry.file_name,
            is_directory: entry.is_directory,
            is_file: entry.is_file,
            longarm: raw_name.map(|name| fs::EntryExtension { encoded_name: Some(encode_name(&name)) }),
        }
    }
}

impl fs::DirectoryEntry {
    /// The entry, if its name can be one in a directory of such a place. Any other would lead out of the directory who makes
    /// a path of it.
    pub(crate) fn into_entry(self, convention: PathConvention) -> Result<DirectoryEntry, String> {
        let Self { file_name, is_directory, is_file, longarm } = self;
        let raw_name = match longarm.and_then(|extension| extension.encoded_name) {
            Some(encoded) => match decode_name(&encoded) {
                Some(name) if String::from_utf8_lossy(&name) == file_name => Some(name),
                _ => return Err(format!("{encoded:?} is not an encoded form of the name {file_name:?}")),
            },
            None => None,
        };
        if !is_name(raw_name.as_deref().unwrap_or(file_name.as_bytes()), convention) {
            return Err(format!("{file_name:?} is not the name of an entry"));
        }
        let mut entry = DirectoryEntry::new(file_name, is_directory, is_file);
        entry.raw_name = raw_name;
        Ok(entry)
    }
}

/// Whether `path` lies below `root` in such a place, and is no detour.
fn is_below(root: &PathUri, path: &PathUri, convention: PathConvention) -> bool {
    fn rest<'a, T: PartialEq>(root: &'a [T], path: &'a [T], separator: &T) -> Option<&'a [T]> {
        let root = root.strip_suffix(std::slice::from_ref(separator)).unwrap_or(root);
        path.strip_prefix(root)?.strip_prefix(std::slice::from_ref(separator))
    }
    let os = convention.an_os();
    match (root.to_native(os), path.to_native(os)) {
        (Ok(NativePath::Posix(root)), Ok(NativePath::Posix(path))) => rest(&root, &path, &b'/')
            .is_some_and(|rest| rest.split(|byte| *byte == b'/').all(|name| is_name(name, convention))),
        (Ok(NativePath::Windows(root)), Ok(NativePath::Windows(path))) => rest(&root, &path, &u16::from(b'\\'))
            .is_some_and(|rest| {
                let name = |name: &[u16]| is_name(String::from_utf16_lossy(name).as_bytes(), convention);
                rest.split(|unit| *unit == u16::from(b'\\')).all(name)
            }),
        _ => false,
    }
}

/// Percent-encodes everything but ASCII letters and digits.
fn encode_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() * 3);
    for byte in name {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(*byte));
        } else {
            // Writing to a string succeeds.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn decode_name(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        name.push((digit()? << 4) | digit()?);
    }
    Some(name)
}

impl From<WalkOptions> for fs::WalkOptions {
    fn from(options: WalkOptions) -> Self {
        Self {
            max_depth: options.max_depth,
            max_directories: options.max_directories,
            max_entries: options.max_entries,
            follow_directory_symlinks: options.follow_directory_symlinks,
            prune_hidden_directories: options.prune_hidden_directories,
        }
    }
}

impl From<fs::WalkOptions> for WalkOptions {
    fn from(options: fs::WalkOptions) -> Self {
        Self::new()
            .max_depth(options.max_depth)
            .max_directories(options.max_directories)
            .max_entries(options.max_entries)
            .follow_directory_symlinks(options.follow_directory_symlinks)
            .prune_hidden_directories(options.prune_hidden_directories)
    }
}

impl fs::WalkResult {
    /// The wire form of a walk; with what was skipped, if the peer is to have that.
    pub(crate) fn of(walk: Walk, detailed: bool) -> Self {
        let skipped = walk.skipped.filter(|_| detailed);
        Self {
            entries: walk
                .entries
                .into_iter()
                .map(|entry| fs::WalkEntry {
                    path: entry.path,
                    kind: match entry.kind {
                        WalkKind::File => fs::WalkKind::File,
                        WalkKind::Directory => fs::WalkKind::Directory,
                    },
                })
                .collect(),
            errors: walk
                .errors
                .into_iter()
                .map(|failure| fs::WalkFailure { path: failure.path, message: failure.message })
                .collect(),
            truncated: walk.truncated,
            longarm: skipped.map(|skipped| fs::WalkExtension {
                skipped: skipped
                    .into_iter()
                    .map(|skipped| fs::WalkSkipped { path: skipped.path, reason: skipped.reason.into() })
                    .collect(),
            }),
        }
    }
}

impl fs::WalkResult {
    /// The walk, if all that it found lies below where it began in such a place.
    pub(crate) fn into_walk(self, root: &PathUri, convention: PathConvention) -> Result<Walk, String> {
        let wire = self;
        let skipped = wire.longarm.iter().flat_map(|extension| &extension.skipped).map(|skipped| &skipped.path);
        let found = wire.entries.iter().map(|entry| &entry.path).chain(skipped);
        if let Some(outside) = found.into_iter().find(|path| !is_below(root, path, convention)) {
            return Err(format!("{outside} is not below {root}"));
        }
        let mut walk = Walk::default();
        let kind = |kind| match kind {
            fs::WalkKind::File => WalkKind::File,
            fs::WalkKind::Directory => WalkKind::Directory,
        };
        walk.entries = wire.entries.into_iter().map(|entry| WalkEntry::new(entry.path, kind(entry.kind))).collect();
        walk.errors = wire.errors.into_iter().map(|failure| WalkFailure::new(failure.path, failure.message)).collect();
        walk.truncated = wire.truncated;
        walk.skipped = wire.longarm.map(|extension| {
            let known = |skipped: fs::WalkSkipped| Some(Skipped::new(skipped.path, skipped.reason.known()?));
            extension.skipped.into_iter().filter_map(known).collect()
        });
        Ok(walk)
    }
}

impl From<SkipReason> for fs::WalkSkipReason {
    fn from(reason: SkipReason) -> Self {
        match reason {
            SkipReason::Symlink => Self::Symlink,
            SkipReason::DanglingSymlink => Self::DanglingSymlink,
            SkipReason::Special => Self::Special,
            SkipReason::AlreadyEntered => Self::AlreadyEntered,
        }
    }
}

impl fs::WalkSkipReason {
    fn known(self) -> Option<SkipReason> {
        Some(match self {
            Self::Symlink => SkipReason::Symlink,
            Self::DanglingSymlink => SkipReason::DanglingSymlink,
            Self::Special => SkipReason::Special,
            Self::AlreadyEntered => SkipReason::AlreadyEntered,
            Self::Other => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_to_the_millisecond() {
        for millis in [1, -1, 1_700_000_000_123, i64::MAX / 1_000_000, -86_400_000] {
            assert_eq!(to_millis(from_millis(millis).unwrap()), millis);
        }
        assert_eq!(from_millis(0), None);
        assert_eq!(to_millis(UNIX_EPOCH + Duration::from_nanos(1_999_999)), 1);
    }

    #[test]
    fn names_of_any_bytes_round_trip_and_are_left_out_for_a_plain_peer() {
        let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        assert_eq!(decode_name(&encode_name(&name)), Some(name.clone()));
        for broken in ["%", "%4", "%zz", "%4é"] {
            assert_eq!(decode_name(broken), None, "{broken}");
        }
        let mut entry = DirectoryEntry::new("a\u{FFFD}", false, true);
        entry.raw_name = Some(b"a\xFF".to_vec());
        let wire = fs::DirectoryEntry::of(entry.clone(), true);
        assert_eq!(wire.into_entry(PathConvention::Posix), Ok(entry.clone()));
        assert_eq!(fs::DirectoryEntry::of(entry, false).longarm, None);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let entry = |name: &str, encoded: Option<&str>| fs::DirectoryEntry {
            file_name: name.into(),
            is_directory: false,
            is_file: true,
            longarm: encoded.map(|encoded| fs::EntryExtension { encoded_name: Some(encoded.into()) }),
        };
        use PathConvention::{Posix, Windows};
        for bad in ["", ".", "..", "/", "/etc/x", "../../.ssh/authorized_keys", "a/", "a\0"] {
            assert!(entry(bad, None).into_entry(Posix).is_err(), "{bad:?}");
            assert!(entry(bad, None).into_entry(Windows).is_err(), "{bad:?}");
        }
        for bad in ["..\\x", "C:", "C:x", "a:stream"] {
            assert!(entry(bad, None).into_entry(Posix).is_ok(), "{bad:?}");
            assert!(entry(bad, None).into_entry(Windows).is_err(), "{bad:?}");
        }
        assert!(entry("...", None).into_entry(Windows).is_ok());
        for (shown, encoded) in [
            ("\u{FFFD}/x", "%FF%2Fx"),
            ("a\u{FFFD}", "b%FF"),
            ("a", ""),
            ("a", "%2E%2E"),
            ("..", "%2E%2E"),
            ("a\u{FFFD}", "a%F"),
        ] {
            assert!(entry(shown, Some(encoded)).into_entry(Posix).is_err(), "{shown:?} {encoded:?}");
        }
        assert!(entry("a\u{FFFD}", Some("a%FF")).into_entry(Posix).is_ok());
    }

    #[test]
    fn a_walk_that_leaves_its_root_is_refused() {
        use PathConvention::{Posix, Windows};
        let uri = |text: &str| PathUri::parse(text).unwrap();
        for (root, inside, outside) in [
            ("file:///a/b", "file:///a/b/c/d%2525", "file:///a/bc"),
            ("file:///a/b/", "file:///a/b/C%3A", "file:///a/b/"),
            ("file:///a/b", "file:///a/b/%FF", "file:///a/b/..%2F..%2Fetc%2Fpasswd"),
            ("file:///", "file:///etc", "file:///a%2F%2Fb"),
            ("file:///a", "file:///a/b", "file://server/a/b"),
        ] {
            assert!(is_below(&uri(root), &uri(inside), Posix), "{inside} {root}");
            assert!(!is_below(&uri(root), &uri(outside), Posix), "{outside} {root}");
        }
        let drive_named = PathUri::from_native(&NativePath::Posix(b"/C:".to_vec())).unwrap();
        assert!(is_below(&uri("file:///"), &drive_named, Posix), "what looks like a drive is a name like any other");
        assert!(is_below(&uri("file:///C:/a"), &uri("file:///C:/a/b"), Windows));
        assert!(!is_below(&uri("file:///C:/a"), &uri("file:///D:/a/b"), Windows));
        let walk = |entry: &str, skipped: &str| fs::WalkResult {
            entries: vec![fs::WalkEntry { path: uri(entry), kind: fs::WalkKind::File }],
            longarm: Some(fs::WalkExtension {
                skipped: vec![fs::WalkSkipped { path: uri(skipped), reason: fs::WalkSkipReason::Symlink }],
            }),
            ..fs::WalkResult::default()
        };
        let root = uri("file:///a");
        assert!(walk("file:///a/b", "file:///a/c").into_walk(&root, Posix).is_ok());
        assert!(walk("file:///b", "file:///a/c").into_walk(&root, Posix).is_err());
        assert!(walk("file:///a/b", "file:///c").into_walk(&root, Posix).is_err());
    }
}
