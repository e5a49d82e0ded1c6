//! Files of Windows systems, by their paths: what [`unix`](super) does by descriptors is checked here before it is used.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};

use windows::Win32::Foundation::{
    ERROR_CANT_RESOLVE_FILENAME, ERROR_TOO_MANY_OPEN_FILES, ERROR_UNABLE_TO_MOVE_REPLACEMENT, HANDLE, HLOCAL, LocalFree,
};
use windows::Win32::Security::Authorization::{ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1};
use windows::Win32::Security::{PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES};
use windows::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, CreateDirectoryW, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    GetFileInformationByHandle, REPLACE_FILE_FLAGS, ReplaceFileW,
};
use windows::core::{HSTRING, PCWSTR, w};

use crate::fs::Symlinks;

/// What makes an object of a file system that one and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    volume: u32,
    index: u64,
}

/// What kind of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// Not to be found by a path here.
    #[allow(dead_code, reason = "the names are those of the other systems")]
    Device,
    /// Anything else.
    Other,
}

/// What is known of an object without opening it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) kind: Kind,
    pub(super) id: FileId,
    /// Only whether it may be written to.
    pub(super) mode: u32,
}

/// For what a file is opened. Modes have no meaning here.
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
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        match self {
            Self::Read => options.read(true),
            Self::Write => options.write(true),
            Self::WriteOrCreate { .. } => options.write(true).create(true).truncate(false),
            Self::Create { .. } => options.write(true).create_new(true),
        };
        options
    }
}

/// Opens a file by its path; links are followed.
pub(super) fn open_file(path: &Path, access: Access) -> io::Result<File> {
    open(path, access, 0)
}

fn open(path: &Path, access: Access, flags: u32) -> io::Result<File> {
    // A directory opens only to be looked at.
    let directory = if access == Access::Read { FILE_FLAG_BACKUP_SEMANTICS.0 } else { 0 };
    let opened = access.options().custom_flags(flags | directory).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.is_dir() => {
            Err(io::ErrorKind::IsADirectory.into())
        }
        opened => opened,
    }
}

/// Modes have no meaning here.
pub(super) const NEW_FILE_MODE: u32 = WRITABLE | READABLE;

const READABLE: u32 = 0o444;
const WRITABLE: u32 = 0o222;

/// A directory, by its path.
#[derive(Debug)]
pub(super) struct Dir(PathBuf);

impl Dir {
    /// Takes a directory by its path.
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<Self> {
        if symlinks == Symlinks::Refuse && path.ancestors().any(Path::is_symlink) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Self::checked(path.into(), &fs::metadata(path)?)
    }

    fn checked(path: PathBuf, found: &Metadata) -> io::Result<Self> {
        if found.is_dir() { Ok(Self(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Takes a directory in it; a link is none.
    pub(super) fn open_directory(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.0.join(name);
        let found = fs::symlink_metadata(&path)?;
        Self::checked(path, &found)
    }

    /// The directory above it.
    pub(super) fn parent(&self) -> io::Result<Self> {
        Ok(Self(self.0.parent().unwrap_or(&self.0).into()))
    }

    pub(super) fn id(&self) -> io::Result<FileId> {
        id_of(&self.0)
    }

    /// The names in it.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// What a name stands for; a link for itself.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Look> {
        let file = open_to_look(&self.0.join(name), FILE_FLAG_OPEN_REPARSE_POINT.0)?;
        Ok(look_at_file(&file)?.0)
    }

    /// The metadata of a name that is no link; `path` is the path of it.
    pub(super) fn metadata(&self, _name: &OsStr, path: &Path) -> io::Result<Metadata> {
        let found = fs::symlink_metadata(path)?;
        if found.is_symlink() { Err(is_a_link()) } else { Ok(found) }
    }

    /// Opens a file in it; a link is none.
    pub(super) fn open_file(&self, name: &OsStr, access: Access) -> io::Result<File> {
        let file = open(&self.0.join(name), access, FILE_FLAG_OPEN_REPARSE_POINT.0)?;
        if file.metadata()?.is_symlink() { Err(is_a_link()) } else { Ok(file) }
    }

    pub(super) fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    pub(super) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        if self.is_directory_link(name) {
            return self.remove_directory(name);
        }
        fs::remove_file(self.0.join(name))
    }

    pub(super) fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }

    pub(super) fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        fs::read_link(self.0.join(name))
    }

    /// Whether a name is a link of the kind that leads to directories.
    pub(super) fn is_directory_link(&self, name: &OsStr) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok_and(|found| found.file_type().is_symlink_dir())
    }

    /// Creates a link in it.
    pub(super) fn create_symlink(&self, name: &OsStr, target: &Path, to_directory: bool) -> io::Result<()> {
        let path = self.0.join(name);
        if to_directory {
            std::os::windows::fs::symlink_dir(target, path)
        } else {
            std::os::windows::fs::symlink_file(target, path)
        }
    }

    /// Puts a file, which nobody has open, into the place of another one, whose access control lists, attributes and time of
    /// creation it gets. False if that is not possible, and nothing has changed.
    ///
    /// # Errors
    ///
    /// That of the system, if the old file is gone and the new one has still its own name.
    pub(super) fn replace(&self, temporary: &OsStr, name: &OsStr) -> io::Result<bool> {
        let paths = [name, temporary].map(|name| self.0.join(name));
        let [old, new] = paths.each_ref().map(|path| HSTRING::from(path.as_os_str()));
        // SAFETY: both names are terminated strings that outlive the call; there is no backup, and the last two arguments
        // are reserved.
        let replaced = unsafe { ReplaceFileW(&old, &new, PCWSTR::null(), REPLACE_FILE_FLAGS(0), None, None) };
        match replaced {
            Ok(()) => Ok(true),
            // The only failure that leaves nothing under the old name.
            Err(error) if error.code() == ERROR_UNABLE_TO_MOVE_REPLACEMENT.to_hresult() => {
                let [old, new] = paths;
                fs::rename(new, old).map(|()| true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Gives a file a name that nothing has.
    pub(super) fn rename_new(&self, temporary: &OsStr, name: &OsStr) -> io::Result<()> {
        // A hard link, unlike a rename, fails if there is something.
        let path = self.0.join(temporary);
        fs::hard_link(&path, self.0.join(name))?;
        fs::remove_file(path)
    }

    /// Names cannot be waited for here.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "on other systems they can")]
    pub(super) fn open_to_sync(&self) -> io::Result<Option<File>> {
        Ok(None)
    }
}

fn is_a_link() -> io::Error {
    io::Error::other("it is a symbolic link")
}

fn open_to_look(path: &Path, flags: u32) -> io::Result<File> {
    let flags = flags | FILE_FLAG_BACKUP_SEMANTICS.0;
    // No access at all is asked for: facts need none.
    OpenOptions::new().access_mode(0).custom_flags(flags).open(path)
}

/// What an open file is.
pub(super) fn look_at_file(file: &File) -> io::Result<(Look, FileFacts)> {
    let metadata = file.metadata()?;
    let mut facts = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the structure outlives the call.
    unsafe { GetFileInformationByHandle(HANDLE(file.as_raw_handle()), &raw mut facts) }?;
    let join = |high, low| u64::from(high) << 32 | u64::from(low);
    let size = join(facts.nFileSizeHigh, facts.nFileSizeLow);
    let id = FileId { volume: facts.dwVolumeSerialNumber, index: join(facts.nFileIndexHigh, facts.nFileIndexLow) };
    let mode = if metadata.permissions().readonly() { READABLE } else { READABLE | WRITABLE };
    let look = Look { kind: kind_of(metadata.file_type()), id, mode };
    Ok((look, FileFacts { size, links: facts.nNumberOfLinks.into(), stored: size }))
}

/// More about an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileFacts {
    /// Its size in bytes.
    pub(super) size: u64,
    /// How many names it has.
    pub(super) links: u64,
    /// Bytes of storage it takes, as far as it matters here.
    pub(super) stored: u64,
}

/// What kind of object an entry of a directory is.
pub(super) fn kind_of(kind: fs::FileType) -> Kind {
    if kind.is_symlink() {
        Kind::Symlink
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_file() {
        Kind::File
    } else {
        Kind::Other
    }
}

/// Names that are not Unicode have no bytes of their own here.
pub(super) fn raw_name(_name: &OsStr, _text: &str) -> Option<Vec<u8>> {
    None
}

/// Whether no more files can be opened.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == i32::try_from(ERROR_TOO_MANY_OPEN_FILES.0).ok()
}

/// Whether a link leads to itself.
pub(super) fn is_link_loop(error: &io::Error) -> bool {
    error.raw_os_error() == i32::try_from(ERROR_CANT_RESOLVE_FILENAME.0).ok()
}

/// Lets an open file be written to, or not.
pub(super) fn set_mode(file: &File, look: &Look) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    let readonly = look.mode & WRITABLE == 0;
    if permissions.readonly() == readonly {
        return Ok(());
    }
    permissions.set_readonly(readonly);
    file.set_permissions(permissions)
}

/// Lets a copy be written to, or not, as what it was copied from.
pub(super) fn set_mode_of_copy(from: &File, to: &File) -> io::Result<()> {
    let (look, _) = look_at_file(from)?;
    set_mode(to, &look)
}

/// Closes a file. What fails then is not told here.
#[allow(clippy::unnecessary_wraps, clippy::needless_pass_by_value, reason = "on other systems it is told")]
pub(super) fn close(file: File) -> io::Result<()> {
    drop(file);
    Ok(())
}

/// The same for a file that others have open still.
#[allow(clippy::unnecessary_wraps, reason = "on other systems it is told")]
pub(super) fn flush(_file: &File) -> io::Result<()> {
    Ok(())
}

/// What a path is, with links followed.
pub(super) fn id_of(path: &Path) -> io::Result<FileId> {
    Ok(look_at_file(&open_to_look(path, 0)?)?.0.id)
}

/// What a file has beyond its content is carried over when it is replaced.
pub(super) fn carry_metadata(_old: &File, _new: &File) -> io::Result<()> {
    Ok(())
}

/// Nothing says here beforehand whether there is room.
pub(super) fn reserve(_file: &File, _length: u64) -> io::Result<()> {
    Ok(())
}

/// Copies the content of one file over that of another, which becomes exactly as long.
pub(super) fn copy_content(from: &File, to: &File, _facts: FileFacts, empty: bool) -> io::Result<()> {
    let (mut source, mut target) = (from, to);
    io::Seek::rewind(&mut source)?;
    let copied = io::copy(&mut source, &mut target)?;
    if empty { Ok(()) } else { to.set_len(copied) }
}

/// The owner-only fresh directory of this path.
pub(super) fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut descriptor = PSECURITY_DESCRIPTOR::default();
    // SAFETY: the text is a terminated string, and the place for the descriptor outlives the call.
    unsafe {
        // All rights for the owner, also on what is in it, and nothing inherited from above.
        let text = w!("D:P(A;OICI;FA;;;OW)");
        ConvertStringSecurityDescriptorToSecurityDescriptorW(text, SDDL_REVISION_1, &raw mut descriptor, None)
    }?;
    let attributes = SECURITY_ATTRIBUTES {
        nLength: u32::try_from(size_of::<SECURITY_ATTRIBUTES>()).map_err(io::Error::other)?,
        lpSecurityDescriptor: descriptor.0,
        bInheritHandle: false.into(),
    };
    // SAFETY: the name and the attributes with their descriptor outlive the call.
    let created = unsafe { CreateDirectoryW(&HSTRING::from(path.as_os_str()), Some(&raw const attributes)) };
    // SAFETY: the descriptor was allocated by the conversion, and nothing uses it any more.
    unsafe { LocalFree(Some(HLOCAL(descriptor.0))) };
    created.map_err(Into::into)
}

/// Reads at `offset` until `length` bytes came or the file ends.
pub(super) fn read_block(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.seek_read(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Writes all bytes at `offset`.
pub(super) fn write_block(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match file.seek_write(rest, offset + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
