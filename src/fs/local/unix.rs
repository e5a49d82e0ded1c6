//! Files of Unix systems, by descriptors of directories, so that nothing that is checked can be exchanged before it is
//! used.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
#[cfg(target_os = "linux")]
use rustix::fs::{CWD, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::fs::Symlinks;

#[cfg(any(target_os = "linux", target_os = "android"))]
#[path = "unix/linux.rs"]
mod system;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "unix/other.rs"]
mod system;

pub(super) use self::system::{carry_metadata, copy_content, reserve};

/// What makes an object of a file system that one and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

/// What kind of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// A character or block device.
    Device,
    /// A FIFO, a socket, or anything else.
    Other,
}

/// What is known of an object without opening it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) kind: Kind,
    pub(super) id: FileId,
    pub(super) mode: u32,
}

/// For what a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// An existing file, as it is.
    Write,
    /// A file that is created if it does not exist.
    WriteOrCreate {
        /// The permission bits of a new file.
        mode: u32,
    },
    /// A file that must not exist.
    Create {
        /// The permission bits.
        mode: u32,
    },
}

impl Access {
    fn flags(self) -> OFlags {
        // Opening never waits for the other end of a FIFO, and makes no terminal the process's own.
        let always = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        always
            | match self {
                Self::Read => OFlags::RDONLY,
                Self::Write => OFlags::WRONLY,
                Self::WriteOrCreate { .. } => OFlags::WRONLY | OFlags::CREATE,
                Self::Create { .. } => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            }
    }

    /// The same for what a look finds. To open a FIFO has whoever waits at its other end go on, whose bytes are lost then, and
    /// some devices do something too: of those that are to be read from it is only opened which they are, where the system can.
    #[allow(trivial_numeric_casts, clippy::unnecessary_cast, reason = "the type differs between systems")]
    fn flags_for(self, look: impl FnOnce() -> Result<Stat, Errno>) -> OFlags {
        let does_more = |found: &Stat| {
            let kind = FileType::from_raw_mode(found.st_mode as RawMode);
            matches!(kind, FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice)
        };
        match self {
            Self::Read if look().is_ok_and(|found| does_more(&found)) => self.flags() | system::UNREAD,
            _ => self.flags(),
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Read | Self::Write => Mode::empty(),
            Self::WriteOrCreate { mode } | Self::Create { mode } => bits(mode),
        }
    }
}

/// Opens a file by its path; links are followed.
pub(super) fn open_file(path: &Path, access: Access) -> io::Result<File> {
    let flags = access.flags_for(|| rustix::fs::stat(path));
    let fd = retry_on_intr(|| rustix::fs::open(path, flags, access.mode()))?;
    Ok(fd.into())
}

/// Opens a file to read if no component of its path is a link, in one step where the kernel can.
#[cfg(target_os = "linux")]
pub(super) fn open_file_without_symlinks(path: &Path) -> io::Result<File> {
    // This call takes no others with that one.
    let flags = match Access::Read.flags_for(|| rustix::fs::lstat(path)) {
        flags if flags.contains(system::UNREAD) => OFlags::PATH | OFlags::CLOEXEC,
        flags => flags,
    };
    let open = || rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    Ok(retry_on_intr(open)?.into())
}

/// The permission bits of a new file, less what the process's mask takes away.
pub(super) const NEW_FILE_MODE: u32 = 0o666;

#[cfg(target_os = "linux")]
impl std::os::fd::AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An open directory. It is only a place to start from: on Linux it needs no permission to read.
#[derive(Debug)]
pub(super) struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by its path.
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<Self> {
        match symlinks {
            Symlinks::Follow => Ok(Self(retry_on_intr(|| rustix::fs::open(path, system::DIRECTORY, Mode::empty()))?)),
            Symlinks::Refuse => match system::open_without_symlinks(path) {
                Some(opened) => Ok(Self(opened?)),
                None => Self::open_by_steps(path),
            },
        }
    }

    /// Opens a directory name by name, none of which may be a link.
    fn open_by_steps(path: &Path) -> io::Result<Self> {
        let mut dir = Self::open(Path::new("/"), Symlinks::Follow)?;
        for component in path.components() {
            if let Component::Normal(name) = component {
                dir = dir.open_directory(name)?;
            }
        }
        Ok(dir)
    }

    /// Opens a directory in it; a link is none.
    pub(super) fn open_directory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = system::DIRECTORY | OFlags::NOFOLLOW;
        Ok(Self(retry_on_intr(|| rustix::fs::openat(&self.0, name, flags, Mode::empty()))?))
    }

    /// The directory above it.
    pub(super) fn parent(&self) -> io::Result<Self> {
        self.open_directory(OsStr::new(".."))
    }

    pub(super) fn id(&self) -> io::Result<FileId> {
        Ok(look_at(&rustix::fs::fstat(&self.0)?).id)
    }

    /// The names in it, without itself and the one above.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(self.open_to_read()?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// The names in it with what each stands for; a link for itself.
    #[cfg(target_os = "linux")]
    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, io::Result<Kind>)>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::new(self.open_to_read()?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            // Most file systems say what an entry is with its name.
            let kind = match entry.file_type() {
                FileType::Unknown => self.look(name).map(|look| look.kind),
                kind => Ok(kind_of_type(kind)),
            };
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }

    /// Creates a directory in it that only its owner may enter.
    #[cfg(target_os = "linux")]
    pub(super) fn create_private_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, bits(0o700))?)
    }

    /// What a name stands for; a link for itself.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Look> {
        Ok(look_at(&rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// The metadata of a name that is no link; `path` is the path of it.
    pub(super) fn metadata(&self, name: &OsStr, path: &Path) -> io::Result<std::fs::Metadata> {
        let metadata = system::metadata_of_itself(&self.0, name, path)?;
        if metadata.is_symlink() { Err(Errno::LOOP.into()) } else { Ok(metadata) }
    }

    /// Opens a file in it; a link is none.
    pub(super) fn open_file(&self, name: &OsStr, access: Access) -> io::Result<File> {
        let look = || rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        let flags = access.flags_for(look) | OFlags::NOFOLLOW;
        Ok(retry_on_intr(|| rustix::fs::openat(&self.0, name, flags, access.mode()))?.into())
    }

    pub(super) fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, bits(0o777))?)
    }

    pub(super) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    pub(super) fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).into())
    }

    /// There is but one kind of links here.
    pub(super) fn is_directory_link(&self, _name: &OsStr) -> bool {
        false
    }

    /// Creates a link in it.
    pub(super) fn create_symlink(&self, name: &OsStr, target: &Path, _to_directory: bool) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Gives a file the name of another one, whose metadata it has already. False if that is not possible, and nothing has
    /// changed.
    #[allow(clippy::unnecessary_wraps, reason = "on other systems, half of it can happen")]
    pub(super) fn replace(&self, temporary: &OsStr, name: &OsStr) -> io::Result<bool> {
        Ok(rustix::fs::renameat(&self.0, temporary, &self.0, name).is_ok())
    }

    /// Gives a file a name that nothing has.
    pub(super) fn rename_new(&self, temporary: &OsStr, name: &OsStr) -> io::Result<()> {
        match system::rename_without_replacing(&self.0, temporary, name) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.link_new(temporary, name),
            result => Ok(result?),
        }
    }

    /// The same where a rename always replaces, as on NFS: a hard link never does.
    fn link_new(&self, temporary: &OsStr, name: &OsStr) -> io::Result<()> {
        rustix::fs::linkat(&self.0, temporary, &self.0, name, AtFlags::empty())?;
        // It has its name. Of the other one, which says what it is, there is nobody to tell.
        drop(self.remove_file(temporary));
        Ok(())
    }

    /// The directory so that it can be waited for until the names in it have reached the storage.
    pub(super) fn open_to_sync(&self) -> io::Result<Option<File>> {
        Ok(Some(self.open_to_read()?.into()))
    }

    fn open_to_read(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(retry_on_intr(|| rustix::fs::openat(&self.0, c".", flags, Mode::empty()))?)
    }
}

/// What an open file is.
pub(super) fn look_at_file(file: &File) -> io::Result<(Look, FileFacts)> {
    let stat = rustix::fs::fstat(file)?;
    #[allow(
        trivial_numeric_casts,
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the types differ between systems"
    )]
    let facts = FileFacts {
        size: stat.st_size as u64,
        links: stat.st_nlink as u64,
        // The number is the file system's, which may be a user's own.
        stored: (stat.st_blocks as u64).saturating_mul(512),
    };
    Ok((look_at(&stat), facts))
}

/// More about an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileFacts {
    /// Its size in bytes.
    pub(super) size: u64,
    /// How many names it has.
    pub(super) links: u64,
    /// Bytes of storage it takes.
    pub(super) stored: u64,
}

#[allow(
    trivial_numeric_casts,
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the types differ between systems"
)]
fn look_at(stat: &Stat) -> Look {
    let kind = kind_of_type(FileType::from_raw_mode(stat.st_mode as RawMode));
    let id = FileId { device: stat.st_dev as u64, inode: stat.st_ino as u64 };
    Look { kind, id, mode: stat.st_mode as u32 & 0o7777 }
}

fn kind_of_type(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        _ => Kind::Other,
    }
}

/// What kind of object an entry of a directory is.
pub(super) fn kind_of(kind: std::fs::FileType) -> Kind {
    if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Symlink
    } else if kind.is_char_device() || kind.is_block_device() {
        Kind::Device
    } else {
        Kind::Other
    }
}

/// The bytes of a name that is not the text.
pub(super) fn raw_name(name: &OsStr, text: &str) -> Option<Vec<u8>> {
    (name.as_bytes() != text.as_bytes()).then(|| name.as_bytes().to_vec())
}

/// Whether no more files can be opened.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether a link leads to itself.
pub(super) fn is_link_loop(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Gives an open file these permission bits.
pub(super) fn set_mode(file: &File, look: &Look) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, bits(look.mode))?)
}

/// Gives a copy the permission bits of what it was copied from. Those that lend the rights of the owner or the group stay
/// behind where these differ: they would lend the rights of somebody who did not say so.
pub(super) fn set_mode_of_copy(from: &File, to: &File) -> io::Result<()> {
    let (from, to_stat) = (rustix::fs::fstat(from)?, rustix::fs::fstat(to)?);
    let mut mode = look_at(&from).mode;
    if from.st_uid != to_stat.st_uid {
        mode &= !(SET_USER_ID | SET_GROUP_ID);
    }
    if from.st_gid != to_stat.st_gid {
        mode &= !SET_GROUP_ID;
    }
    Ok(rustix::fs::fchmod(to, bits(mode))?)
}

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// Closes a file. Some file systems, such as those of networks, say only now that what was written found no room.
pub(super) fn close(file: File) -> io::Result<()> {
    let fd = file.into_raw_fd();
    // SAFETY: the descriptor was owned by the file, which gave it up, and nothing uses it after this.
    Ok(unsafe { rustix::io::try_close(fd) }?)
}

/// The same for a file that others have open still: each end of a descriptor waits for what was written.
pub(super) fn flush(file: &File) -> io::Result<()> {
    close(file.try_clone()?)
}

fn bits(mode: u32) -> Mode {
    #[allow(trivial_numeric_casts, clippy::unnecessary_cast, reason = "the type differs between systems")]
    Mode::from_raw_mode(mode as RawMode)
}

/// What a path is, with links followed.
pub(super) fn id_of(path: &Path) -> io::Result<FileId> {
    let metadata = std::fs::metadata(path)?;
    Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
}

/// The owner-only fresh directory of this path.
pub(super) fn create_private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Reads at `offset` until `length` bytes came or the file ends.
pub(super) fn read_block(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more than was asked for.
    bytes.truncate(length);
    Ok(bytes)
}

/// Writes all bytes at `offset`.
pub(super) fn write_block(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}
