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

use super::directory::Identity;

/// The journal of this executor.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Locked for as long as it is open.
    file: File,
    /// How much was written, and how much of that when it was last written anew.
    bytes: u64,
    least: u64,
    /// Nothing of what was written down matters any more.
    is_needless: bool,
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
    /// Begins a journal in the first of these directories that will do, and makes it if need be.
    pub(super) fn begin(directories: &[PathBuf]) -> io::Result<Self> {
        let mut first = None;
        for directory in directories {
            match Self::begin_in(directory) {
                Ok(journal) => return Ok(journal),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn begin_in(directory: &Path) -> io::Result<Self> {
        let named_in = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
        make_private(directory).map_err(named_in)?;
        let path = directory.join(format!("{}.{EXTENSION}", uuid::Uuid::new_v4().simple()));
        let file = named(&path, &[]).map_err(named_in)?;
        Ok(Self { path, file, bytes: 0, least: 0, is_needless: false })
    }

    /// Writes all records, or an error.
    pub(super) fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let bytes = bytes_of(records);
        self.is_needless = false;
        let written = self.file.write_all(&bytes);
        match written {
            Ok(()) => self.bytes += bytes.len() as u64,
            // Half a record would make nonsense of the next one.
            Err(_) => self.file.set_len(self.bytes)?,
        }
        written
    }

    /// Nothing of what was written down matters any more, once this is written too. To make the file shorter takes a file system
    /// far longer, and so does the first record after that: it is done now and then.
    pub(super) fn write_off(&mut self, records: &[Record]) -> io::Result<()> {
        if self.bytes > LONG_BYTES / 8 {
            return self.clear();
        }
        self.write(records)?;
        self.is_needless = true;
        Ok(())
    }

    /// Nothing of what was written down matters any more.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if self.bytes > 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
        }
        Ok(())
    }

    /// Only these still matter. At each moment there is a whole journal.
    pub(super) fn rewrite(&mut self, records: &[Record]) -> io::Result<()> {
        let bytes = bytes_of(records);
        let file = named(&self.path, &bytes)?;
        // Whoever has opened the old one sees that it is not the one of that name any more.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingUnlock);
        self.file = file;
        self.bytes = bytes.len() as u64;
        self.least = self.bytes;
        Ok(())
    }

    /// Whether much in it may not matter any more.
    pub(super) fn is_long(&self) -> bool {
        self.bytes > LONG_BYTES.max(2 * self.least)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A new file of this name with this content, locked. Nobody takes it for that of an executor that is gone: it has its name
/// when it is locked.
fn named(path: &Path, content: &[u8]) -> io::Result<File> {
    let unlocked = path.with_extension("new");
    // Left by a failure of the same kind; the name is nobody else's.
    drop(fs::remove_file(&unlocked));
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&unlocked)?;
    let placed = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(io::Error::from)
        .and_then(|()| file.write_all(content))
        .and_then(|()| fs::rename(&unlocked, path));
    if placed.is_err() {
        drop(fs::remove_file(&unlocked));
    }
    placed.map(|()| file)
}

pub(super) fn bytes_of(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        record.append_to(&mut bytes);
    }
    bytes
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A child that is being made may have the descriptor for a moment, and with it the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingUnlock);
        // Whoever drops it with something still written down leaves that to the next start.
        if self.is_needless || self.file.metadata().is_ok_and(|found| found.len() == 0) {
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

/// The journals in these directories, with what is written in them. What lies where somebody else can write is none.
pub(super) fn all(directories: &[PathBuf]) -> Vec<(PathBuf, File, Vec<Record>)> {
    let entries = directories.iter().filter(|directory| is_private(directory)).filter_map(|at| fs::read_dir(at).ok());
    let paths = entries.flatten().filter_map(|entry| Some(entry.ok()?.path()));
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

/// Where journals are kept unless the executor's owner says otherwise: directories of the user's own, best first. The best
/// outlives a start of the machine, as what is written down does. Somebody else can have taken its name.
pub(super) fn default_directories() -> Vec<PathBuf> {
    let uid = own_uid();
    let first = PathBuf::from(format!("/var/tmp/longarm-{uid}"));
    let of_session = PathBuf::from(format!("/run/user/{uid}"));
    let of_session = is_private(&of_session).then(|| of_session.join("longarm"));
    let others = (1..=3).map(|number| PathBuf::from(format!("/var/tmp/longarm-{uid}-{number}")));
    [first].into_iter().chain(of_session).chain(others).collect()
}

/// Makes a directory that nobody else may write to, or checks that it is one.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_private(directory) {
        return Ok(());
    }
    let text = "it is no directory that only its owner, this user, may write to";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether it is a directory of ours to which nobody else may write.
pub(super) fn is_private(directory: &Path) -> bool {
    fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0)
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

const EXTENSION: &str = "placeholders";

/// A journal of this size is written anew with what still matters. Of a shorter one tests need less time to see that.
const LONG_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 256 << 10 };

/// More than any journal has: it is written anew long before.
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
