//! Writing whole files so that a failure leaves the former content, where the system allows it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::os::{self, Access, Dir, FileFacts, FileId, Kind, Look, NEW_FILE_MODE};
use super::path::{split, temporary_name};
use super::read::{failure, failure_inside, open_with};
use crate::fs::{FsError, Symlinks, WriteOptions};

/// Creates a file, or replaces its content.
pub(super) fn write(path: &Path, data: &[u8], options: WriteOptions) -> Result<(), FsError> {
    let WriteOptions { symlinks, fsync, .. } = options;
    (Writer { path, content: Content::Bytes(data), at: At::Path, symlinks, fsync }).run()
}

/// The same where it is known already what the path leads to.
#[cfg(target_os = "linux")]
pub(super) fn write_at(site: Site<'_>, path: &Path, data: &[u8], options: WriteOptions) -> Result<(), FsError> {
    let WriteOptions { symlinks, fsync, .. } = options;
    (Writer { path, content: Content::Bytes(data), at: At::Site(site), symlinks, fsync }).run()
}

/// What a path leads to, as it was found: a name in a directory that is no link.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) dir: &'a Dir,
    pub(super) name: &'a OsStr,
    /// Whether other files may be made beside it.
    pub(super) beside: bool,
}

/// Where a file is.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    /// Where its path leads.
    Path,
    /// At a name within a tree, where no link is ever gone through, since it could lead out of it.
    Tree(&'a Dir, &'a OsStr),
    /// At what its path was found to lead to.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only calls under a sandbox know it before"))]
    Site(Site<'a>),
}

/// Copies the content and the permission bits of a regular file.
pub(super) fn copy(from: &File, look: Look, facts: FileFacts, path: &Path, at: At<'_>) -> Result<(), FsError> {
    let content = Content::File { from, look, facts };
    (Writer { path, content, at, symlinks: Symlinks::Follow, fsync: false }).run()
}

/// A file that appears and vanishes, or has another place, whenever it is looked at is given up after so many times.
const ATTEMPTS: usize = 8;

/// What became of a try to put a new file into the place of an old one.
enum Replaced {
    Yes,
    /// It cannot be done without losing something, and nothing has changed.
    No,
    /// The old file has another place now, and nothing has changed.
    Moved(Moved),
}

/// A file that was opened by a name, and what the name stood for right afterwards.
#[derive(Clone, Copy)]
struct Moved {
    file: FileId,
    name: Option<FileId>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Bytes(&'a [u8]),
    /// That of a file, together with its permission bits.
    File {
        from: &'a File,
        look: Look,
        facts: FileFacts,
    },
}

impl Content<'_> {
    /// The permission bits that a new file has from the start; the rest follows when it has its content.
    fn new_file_mode(self) -> u32 {
        match self {
            Self::Bytes(_) => NEW_FILE_MODE,
            Self::File { look, .. } => look.mode & 0o777,
        }
    }

    /// About how much storage it takes.
    fn stored(self) -> u64 {
        match self {
            Self::Bytes(data) => data.len() as u64,
            Self::File { facts, .. } => facts.size.min(facts.stored),
        }
    }
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    path: &'a Path,
    content: Content<'a>,
    at: At<'a>,
    symlinks: Symlinks,
    fsync: bool,
}

impl Writer<'_> {
    fn run(self) -> Result<(), FsError> {
        let mut moves = Vec::new();
        for _ in 0..ATTEMPTS {
            match self.open_old() {
                Ok(old) => match self.over(old)? {
                    None => return Ok(()),
                    Some(moved) => moves.push(moved),
                },
                Err(FsError::NotFound { .. }) => match self.new_file() {
                    Err(FsError::AlreadyExists { .. }) => {}
                    done => return done,
                },
                Err(error) => return Err(error),
            }
        }
        // What is exchanged with others is found again under the name. Where no file ever is, the system has other numbers
        // for open files than for names, and knows nothing of places.
        let is_found = |moved: &Moved| moves.iter().any(|other| other.name == Some(moved.file));
        if moves.is_empty() || moves.iter().any(is_found) {
            let text = "others exchange it again and again";
            return Err(self.failed("write to", io::Error::new(io::ErrorKind::ResourceBusy, text)));
        }
        let old = self.open_old()?;
        let (_, facts) = os::look_at_file(&old).map_err(|error| self.failed("examine", error))?;
        self.in_place(old, facts)
    }

    fn open_old(self) -> Result<File, FsError> {
        match self.at {
            At::Tree(dir, name) | At::Site(Site { dir, name, .. }) => {
                dir.open_file(name, Access::Write).map_err(|error| self.failed("open", error))
            }
            At::Path => open_with(self.path, self.symlinks, Access::Write),
        }
    }

    /// Writes over a file, which is open for writing; or says where it went, and nothing has changed.
    fn over(self, old: File) -> Result<Option<Moved>, FsError> {
        let (look, facts) = os::look_at_file(&old).map_err(|error| self.failed("examine", error))?;
        match look.kind {
            Kind::File => {}
            Kind::Device if self.symlinks == Symlinks::Follow => {
                self.pour(&old).map_err(|error| self.failed("write to", error))?;
                return self.close(old).map(|()| None);
            }
            _ => return Err(FsError::NotAFile { path: self.path.into() }),
        }
        if matches!(self.content, Content::File { look: from, .. } if from.id == look.id) {
            return Ok(None);
        }
        // All names of a file show the new content: it must remain the same file.
        if facts.links == 1 {
            let replaced = match self.at {
                At::Site(Site { beside: false, .. }) => Replaced::No,
                At::Tree(dir, name) | At::Site(Site { dir, name, .. }) => self.replace(dir, name, &old, &look)?,
                At::Path => match self.target() {
                    Ok(Target { dir, name, followed }) => match self.replace(&dir, &name, &old, &look)? {
                        // A file that is reached by other means than names, as through a link of procfs, has no place.
                        Replaced::Moved(_) if followed && os::id_of(self.path).is_ok_and(|id| id == look.id) => {
                            Replaced::No
                        }
                        replaced => replaced,
                    },
                    Err(_) => Replaced::No,
                },
            };
            match replaced {
                Replaced::Yes => return Ok(None),
                Replaced::No => {}
                Replaced::Moved(moved) => return Ok(Some(moved)),
            }
        }
        self.in_place(old, facts).map(|()| None)
    }

    /// Puts a file with the new content into the place of the old one.
    fn replace(self, dir: &Dir, name: &OsStr, old: &File, look: &Look) -> Result<Replaced, FsError> {
        let found = dir.look(name).ok().map(|found| found.id);
        if found != Some(look.id) {
            return Ok(Replaced::Moved(Moved { file: look.id, name: found }));
        }
        let Ok(names) = self.names_to_sync(dir) else { return Ok(Replaced::No) };
        let (temporary, file) = match Temporary::create(dir, OWNER_ONLY) {
            Ok(created) => created,
            Err(error) if is_shortage(&error) => return Err(self.failed("create a file beside", error)),
            Err(_) => return Ok(Replaced::No),
        };
        if let Err(error) = os::carry_metadata(old, &file) {
            return if is_shortage(&error) {
                Err(self.failed("carry the metadata of", error))
            } else {
                Ok(Replaced::No)
            };
        }
        self.fill(&file)?;
        if let Content::Bytes(_) = self.content {
            // After the content: a write takes the bits away that lend the owner's rights.
            os::set_mode(&file, look).map_err(|error| self.failed("set the mode of", error))?;
        }
        self.sync(&file)?;
        self.close(file)?;
        match dir.replace(&temporary.name, name) {
            Ok(true) => temporary.keep(),
            Ok(false) => return Ok(Replaced::No),
            Err(error) => {
                let text =
                    format!("the new content is in {:?} beside it, and the old is gone: {error}", temporary.name);
                temporary.keep();
                return Err(self.failed("replace", io::Error::new(error.kind(), text)));
            }
        }
        self.sync_names(names.as_ref())?;
        Ok(Replaced::Yes)
    }

    /// Creates a file. `AlreadyExists` if one appeared meanwhile.
    fn new_file(self) -> Result<(), FsError> {
        match self.at {
            At::Tree(dir, name) | At::Site(Site { dir, name, beside: false }) => self.directly(dir, name),
            At::Site(Site { dir, name, beside: true }) => self.beside(dir, name),
            At::Path => match self.target()? {
                Target { followed: true, .. } => self.through_link(),
                Target { dir, name, .. } => self.beside(&dir, &name),
            },
        }
    }

    /// Creates a file under another name in its directory, so that it has its content when it has its name.
    fn beside(self, dir: &Dir, name: &OsStr) -> Result<(), FsError> {
        let names = self.names_to_sync(dir)?;
        // The system adds what its mask and the directory's default lists say.
        let (temporary, file) = match Temporary::create(dir, self.content.new_file_mode()) {
            Ok(created) => created,
            Err(error) if is_shortage(&error) => return Err(self.failed("create", error)),
            // It may be allowed for this very name.
            Err(_) => return self.directly(dir, name),
        };
        self.fill(&file)?;
        self.sync(&file)?;
        self.close(file)?;
        match dir.rename_new(&temporary.name, name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(self.failed("create", error)),
            Err(_) => {
                drop(temporary);
                return self.directly(dir, name);
            }
        }
        temporary.keep();
        self.sync_names(names.as_ref())
    }

    /// Creates a file under its own name.
    fn directly(self, dir: &Dir, name: &OsStr) -> Result<(), FsError> {
        let names = self.names_to_sync(dir)?;
        let file = dir.open_file(name, Access::Create { mode: self.content.new_file_mode() });
        let file = file.map_err(|error| self.failed("create", error))?;
        if let Err(error) = self.fill(&file).and_then(|()| self.sync(&file)).and_then(|()| self.close(file)) {
            // There was nothing before, and the first error is the one to report.
            drop(dir.remove_file(name));
            return Err(error);
        }
        self.sync_names(names.as_ref())
    }

    /// Creates a file where a link leads. The system follows it, since it knows which links of others it must not follow.
    fn through_link(self) -> Result<(), FsError> {
        let file = os::open_file(self.path, Access::WriteOrCreate { mode: self.content.new_file_mode() });
        let file = file.map_err(|error| self.failed("create", error))?;
        let (look, facts) = os::look_at_file(&file).map_err(|error| self.failed("examine", error))?;
        if look.kind != Kind::File || facts.size > 0 {
            // It appeared meanwhile.
            return Err(FsError::AlreadyExists { path: self.path.into() });
        }
        self.fill(&file).and_then(|()| self.sync(&file)).inspect_err(|_| {
            // It was empty before, and the first error is the one to report.
            drop(file.set_len(0));
        })?;
        self.close(file)
    }

    /// Writes into the file itself. Room is made first, so that a full disk is noticed while the content is whole, as far
    /// as the file system can tell.
    fn in_place(self, file: File, facts: FileFacts) -> Result<(), FsError> {
        let written = os::reserve(&file, self.content.stored()).and_then(|()| match self.content {
            Content::Bytes(data) => {
                (&file).write_all(data)?;
                let length = data.len() as u64;
                if facts.size > length { file.set_len(length) } else { Ok(()) }
            }
            Content::File { from, facts: source, .. } => {
                os::copy_content(from, &file, source, false)?;
                os::set_mode_of_copy(from, &file)
            }
        });
        if let Err(error) = written {
            // What was set aside behind the end goes; the first error is the one to report.
            drop(file.set_len(facts.size));
            return Err(self.failed("write to", error));
        }
        self.sync(&file)?;
        self.close(file)
    }

    /// Writes all to an empty file. A copy gets its mode, too.
    fn fill(self, file: &File) -> Result<(), FsError> {
        let filled = self.pour(file).and_then(|()| match self.content {
            Content::Bytes(_) => Ok(()),
            // After the content: a write takes the bits away that lend the owner's rights.
            Content::File { from, .. } => os::set_mode_of_copy(from, file),
        });
        filled.map_err(|error| self.failed("write to", error))
    }

    fn pour(self, mut file: &File) -> io::Result<()> {
        match self.content {
            Content::Bytes(data) => file.write_all(data),
            Content::File { from, facts, .. } => os::copy_content(from, file, facts, true),
        }
    }

    fn sync(self, file: &File) -> Result<(), FsError> {
        if self.fsync { file.sync_all().map_err(|error| self.failed("sync", error)) } else { Ok(()) }
    }

    /// Some file systems say only now that the content found no room.
    fn close(self, file: File) -> Result<(), FsError> {
        os::close(file).map_err(|error| self.failed("write to", error))
    }

    /// What to wait for when a name in a directory is to reach the storage. It is opened before anything is written, so
    /// that one that may not be read is noticed then.
    fn names_to_sync(self, dir: &Dir) -> Result<Option<File>, FsError> {
        if !self.fsync {
            return Ok(None);
        }
        dir.open_to_sync().map_err(|error| self.failed("open the directory of", error))
    }

    fn sync_names(self, names: Option<&File>) -> Result<(), FsError> {
        names.map_or(Ok(()), File::sync_all).map_err(|error| self.failed("sync the directory of", error))
    }

    /// The directory in which the file is or will be, and its name there, behind all links at the end of the path.
    fn target(self) -> Result<Target, FsError> {
        let mut path = PathBuf::from(self.path);
        for links in 0..LINKS {
            let (parent, name) = split(&path);
            let dir = Dir::open(parent, self.symlinks).map_err(|error| self.failed("open", error))?;
            match dir.look(name) {
                Ok(look) if look.kind == Kind::Symlink && self.symlinks == Symlinks::Follow => {
                    let target = dir.read_link(name).map_err(|error| self.failed("follow", error))?;
                    path = parent.join(target);
                }
                _ => return Ok(Target { name: name.into(), dir, followed: links > 0 }),
            }
        }
        Err(self.failed("follow", io::Error::other("too many levels of symbolic links")))
    }

    fn failed(self, op: &'static str, error: io::Error) -> FsError {
        match self.at {
            At::Tree(..) => failure_inside(op, self.path, error),
            At::Site(_) => FsError::from_io(op, self.path, error),
            At::Path => failure(op, self.path, self.symlinks, error),
        }
    }
}

/// Where a file is or will be.
struct Target {
    dir: Dir,
    name: OsString,
    /// Whether there was a link at the end of the path.
    followed: bool,
}

/// As many links in a row as Linux follows.
const LINKS: usize = 40;

/// Nobody else may look into a file before it has its final owner and mode.
const OWNER_ONLY: u32 = 0o600;

/// Whether the system lacks something that writing in place would need as well.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory) || os::is_out_of_descriptors(error)
}

/// A file that is removed unless it gets another name.
struct Temporary<'a> {
    dir: &'a Dir,
    name: OsString,
    kept: bool,
}

impl<'a> Temporary<'a> {
    fn create(dir: &'a Dir, mode: u32) -> io::Result<(Self, File)> {
        let name = temporary_name();
        let file = dir.open_file(&name, Access::Create { mode })?;
        Ok((Self { dir, name, kept: false }, file))
    }

    /// It has its final name now.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // There is nobody to tell; the name says what it is.
            drop(self.dir.remove_file(&self.name));
        }
    }
}
