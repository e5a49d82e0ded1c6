//! Writing whole files so that a failure leaves the former content, where the system allows it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::os::{self, Access, Dir, FileFacts, Kind, Look, NEW_FILE_MODE};
use super::path::{split, temporary_name};
use super::read::{failure, open_with};
use crate::fs::{FsError, Symlinks, WriteOptions};

/// Creates a file, or replaces its content.
pub(super) fn write(path: &Path, data: &[u8], options: WriteOptions) -> Result<(), FsError> {
    for _ in 0..ATTEMPTS {
        match open_with(path, options.symlinks, Access::Write) {
            Ok(old) => return (Writer { path, data, options }).over(&old),
            Err(FsError::NotFound { .. }) => match (Writer { path, data, options }).new_file() {
                Err(FsError::AlreadyExists { .. }) => {}
                done => return done,
            },
            Err(error) => return Err(error),
        }
    }
    Err(FsError::AlreadyExists { path: path.into() })
}

/// A file that appears and vanishes whenever it is looked at is given up after so many times.
const ATTEMPTS: usize = 8;

#[derive(Clone, Copy)]
struct Writer<'a> {
    path: &'a Path,
    data: &'a [u8],
    options: WriteOptions,
}

impl Writer<'_> {
    /// Writes over a file, which is open for writing.
    fn over(self, old: &File) -> Result<(), FsError> {
        let (look, facts) = os::look_at_file(old).map_err(|error| self.failed("examine", error))?;
        match look.kind {
            Kind::File => {}
            Kind::Device if self.options.symlinks == Symlinks::Follow => {
                let mut device = old;
                return device.write_all(self.data).map_err(|error| self.failed("write to", error));
            }
            _ => return Err(FsError::NotAFile { path: self.path.into() }),
        }
        // All names of a file show the new content: it must remain the same file.
        if facts.links == 1 && self.replace(old, &look)? {
            return Ok(());
        }
        self.in_place(old, facts)
    }

    /// Puts a file with the new content into the place of the old one. False if that cannot be done without losing
    /// something, and nothing has changed.
    fn replace(self, old: &File, look: &Look) -> Result<bool, FsError> {
        let Ok((dir, name)) = self.target() else { return Ok(false) };
        // A file that is reached in another way than by a name in a directory, as through procfs, has no place.
        if !dir.look(&name).is_ok_and(|found| found.id == look.id) {
            return Ok(false);
        }
        let temporary = match Temporary::create(&dir, OWNER_ONLY) {
            Ok(temporary) => temporary,
            Err(error) if is_shortage(&error) => return Err(self.failed("create a file beside", error)),
            Err(_) => return Ok(false),
        };
        if let Err(error) = os::carry_metadata(old, &temporary.file) {
            return if is_shortage(&error) { Err(self.failed("carry the metadata of", error)) } else { Ok(false) };
        }
        self.fill(&temporary.file)?;
        // After the content: a write takes the bits away that lend the owner's rights.
        os::set_mode(&temporary.file, look).map_err(|error| self.failed("set the mode of", error))?;
        self.sync(&temporary.file)?;
        if dir.replace(&temporary.name, &name).is_err() {
            return Ok(false);
        }
        temporary.keep();
        self.sync_directory(&dir)?;
        Ok(true)
    }

    /// Creates a file. `AlreadyExists` if one appeared meanwhile.
    fn new_file(self) -> Result<(), FsError> {
        let (dir, name) = self.target()?;
        // The system adds what its mask and the directory's default lists say.
        let temporary = match Temporary::create(&dir, NEW_FILE_MODE) {
            Ok(temporary) => temporary,
            Err(error) if is_shortage(&error) => return Err(self.failed("create", error)),
            // It may be allowed for this very name.
            Err(_) => return self.directly(&dir, &name),
        };
        self.fill(&temporary.file)?;
        self.sync(&temporary.file)?;
        match dir.rename_new(&temporary.name, &name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(self.failed("create", error)),
            Err(_) => {
                drop(temporary);
                return self.directly(&dir, &name);
            }
        }
        temporary.keep();
        self.sync_directory(&dir)
    }

    /// Creates a file under its own name.
    fn directly(self, dir: &Dir, name: &OsStr) -> Result<(), FsError> {
        let file = dir.open_file(name, Access::Create { mode: NEW_FILE_MODE });
        let file = file.map_err(|error| self.failed("create", error))?;
        if let Err(error) = self.fill(&file).and_then(|()| self.sync(&file)) {
            // There was nothing before, and the first error is the one to report.
            drop(dir.remove_file(name));
            return Err(error);
        }
        self.sync_directory(dir)
    }

    /// Writes into the file itself. Room is made first, so that a full disk is noticed while the content is whole.
    fn in_place(self, file: &File, facts: FileFacts) -> Result<(), FsError> {
        let length = self.data.len() as u64;
        if length > facts.size {
            os::reserve(file, length).map_err(|error| self.failed("write to", error))?;
        }
        self.fill(file)?;
        if facts.size > length {
            file.set_len(length).map_err(|error| self.failed("shorten", error))?;
        }
        self.sync(file)
    }

    fn fill(self, mut file: &File) -> Result<(), FsError> {
        file.write_all(self.data).map_err(|error| self.failed("write to", error))
    }

    fn sync(self, file: &File) -> Result<(), FsError> {
        if self.options.fsync { file.sync_all().map_err(|error| self.failed("sync", error)) } else { Ok(()) }
    }

    fn sync_directory(self, dir: &Dir) -> Result<(), FsError> {
        if self.options.fsync {
            dir.sync().map_err(|error| self.failed("sync the directory of", error))
        } else {
            Ok(())
        }
    }

    /// The directory in which the file is or will be, and its name there, behind all links at the end of the path.
    fn target(self) -> Result<(Dir, OsString), FsError> {
        let mut path = PathBuf::from(self.path);
        for _ in 0..LINKS {
            let (parent, name) = split(&path);
            let dir = Dir::open(parent, self.options.symlinks).map_err(|error| self.failed("open", error))?;
            match dir.look(name) {
                Ok(look) if look.kind == Kind::Symlink && self.options.symlinks == Symlinks::Follow => {
                    let target = dir.read_link(name).map_err(|error| self.failed("follow", error))?;
                    path = parent.join(target);
                }
                _ => return Ok((dir, name.into())),
            }
        }
        Err(self.failed("follow", io::Error::other("too many levels of symbolic links")))
    }

    fn failed(self, op: &'static str, error: io::Error) -> FsError {
        failure(op, self.path, self.options.symlinks, error)
    }
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
    file: File,
    kept: bool,
}

impl<'a> Temporary<'a> {
    fn create(dir: &'a Dir, mode: u32) -> io::Result<Self> {
        let name = temporary_name();
        let file = dir.open_file(&name, Access::Create { mode })?;
        Ok(Self { dir, name, file, kept: false })
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
