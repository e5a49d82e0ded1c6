//! What an executor has made outside of its sandboxes, written down before it is made, so that it can be found when the
//! executor is gone.
//!
//! Each executor has a file of its own, and a lock on it while it lives. A record is a word and its members, each ended by a
//! NUL; half a record at the end is one that nobody acted upon.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::Identity;

/// The journal of this executor.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Locked for as long as it is open.
    file: File,
}

/// Something that was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A directory of this name, which is nobody else's, is about to be made.
    Making { temporary: PathBuf },
    /// It is this one, and is about to get its name; or one of another executor is shared.
    Held { id: Identity, temporary: PathBuf, path: PathBuf },
    /// It needs no more attention.
    Gone { id: Identity },
}

impl Journal {
    /// Begins a journal in a directory, which it makes if need be.
    pub(super) fn begin(directory: &Path) -> io::Result<Self> {
        make_private(directory)?;
        let path = directory.join(format!("{}.{EXTENSION}", uuid::Uuid::new_v4().simple()));
        // Nobody takes it for that of an executor that is gone: it has its name when it is locked.
        let unlocked = path.with_extension("new");
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&unlocked)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, &path)?;
        Ok(Self { path, file })
    }

    /// Writes all records, or an error.
    pub(super) fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            record.append_to(&mut bytes);
        }
        self.file.write_all(&bytes)
    }

    /// Nothing of what was written down matters any more.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A child that is being made may have the descriptor for a moment, and with it the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingUnlock);
        // Whoever drops it with something still written down leaves that to the next start.
        if self.file.metadata().is_ok_and(|found| found.len() == 0) {
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Record {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        let mut member = |member: &[u8]| {
            bytes.extend_from_slice(member);
            bytes.push(0);
        };
        match self {
            Self::Making { temporary } => {
                member(b"making");
                member(temporary.as_os_str().as_bytes());
            }
            Self::Held { id, temporary, path } => {
                member(b"held");
                member(id.0.to_string().as_bytes());
                member(id.1.to_string().as_bytes());
                member(temporary.as_os_str().as_bytes());
                member(path.as_os_str().as_bytes());
            }
            Self::Gone { id } => {
                member(b"gone");
                member(id.0.to_string().as_bytes());
                member(id.1.to_string().as_bytes());
            }
        }
    }
}

/// The records in some bytes, up to the first that makes no sense.
pub(super) fn parse(bytes: &[u8]) -> Vec<Record> {
    let whole = bytes.iter().rposition(|byte| *byte == 0).and_then(|end| bytes.get(..end)).unwrap_or_default();
    let mut members = whole.split(|byte| *byte == 0);
    let mut records = Vec::new();
    while let Some(record) = parse_one(&mut members) {
        records.push(record);
    }
    records
}

fn parse_one<'a>(members: &mut impl Iterator<Item = &'a [u8]>) -> Option<Record> {
    let word = members.next()?;
    let mut path = || members.next().map(|member| PathBuf::from(OsStr::from_bytes(member)));
    if word == b"making" {
        return Some(Record::Making { temporary: path()? });
    }
    let mut number = || std::str::from_utf8(members.next()?).ok()?.parse().ok();
    let id = Identity(number()?, number()?);
    match word {
        b"held" => {
            let mut path = || members.next().map(|member| PathBuf::from(OsStr::from_bytes(member)));
            Some(Record::Held { id, temporary: path()?, path: path()? })
        }
        b"gone" => Some(Record::Gone { id }),
        _ => None,
    }
}

/// The journals in a directory, with what is written in them.
pub(super) fn all(directory: &Path) -> Vec<(PathBuf, File, Vec<Record>)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let journals = paths.filter(|path| path.extension() == Some(OsStr::new(EXTENSION)));
    journals
        .filter_map(|path| {
            // Whatever somebody else puts there is no journal.
            let options = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
            let file = options.ok()?;
            let found = file.metadata().ok()?;
            if !found.is_file() || found.uid() != own_uid() {
                return None;
            }
            let mut bytes = Vec::new();
            (&file).take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
            Some((path, file, parse(&bytes)))
        })
        .collect()
}

/// Where journals are kept unless the executor's owner says otherwise: a directory of the user's own that outlives a start
/// of the machine, as what is written down does.
pub(super) fn default_directory() -> PathBuf {
    PathBuf::from(format!("/var/tmp/longarm-{}", own_uid()))
}

/// Makes a directory that nobody else may write to, or checks that it is one.
fn make_private(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = format!("{} is no directory that only its owner, this user, may write to", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

const EXTENSION: &str = "placeholders";

/// More than any journal has: a record is some hundred bytes, and it is cleared whenever nothing is held.
const MOST_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_half_a_one_is_none() {
        let records = [
            Record::Making { temporary: "/a/\n b".into() },
            Record::Held { id: Identity(1, u64::MAX), temporary: "/a/t".into(), path: "/a/.git".into() },
            Record::Gone { id: Identity(1, u64::MAX) },
        ];
        let mut bytes = Vec::new();
        for record in &records {
            record.append_to(&mut bytes);
        }
        assert_eq!(parse(&bytes), records);
        for cut in 0..bytes.len() {
            let read = parse(&bytes[..cut]);
            assert!(read.len() < records.len() && records.starts_with(&read), "{cut}: {read:?}");
        }
        assert_eq!(parse(b"what\0is\0this\0"), []);
    }
}
