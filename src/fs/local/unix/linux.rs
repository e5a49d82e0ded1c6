//! What Linux has beyond other Unix systems.

use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::FileFacts;

/// How a directory is opened that is only a place to start from.
pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How something is opened from which nothing is to be read.
pub(super) const UNREAD: OFlags = OFlags::PATH;

/// Opens a directory if no component of its path is a link. None if the kernel cannot do so in one step: before 5.6, or
/// where a filter of system calls does not know it.
pub(super) fn open_without_symlinks(path: &Path) -> Option<io::Result<OwnedFd>> {
    let open = || rustix::fs::openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    match retry_on_intr(open) {
        Err(Errno::NOSYS | Errno::PERM) => None,
        opened => Some(opened.map_err(Into::into)),
    }
}

/// The metadata of a name itself. It needs no permission on the file.
pub(super) fn metadata_of_itself(dir: &OwnedFd, name: &OsStr, _path: &Path) -> io::Result<Metadata> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    File::from(fd).metadata()
}

pub(super) fn rename_without_replacing(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE)
}

/// Gives a new file the owner, the group, the extended attributes and the access control lists of an old one.
///
/// Attributes that speak of the content are left behind, as by any write: capabilities, and measurements of integrity.
pub(in crate::fs::local) fn carry_metadata(old: &File, new: &File) -> io::Result<()> {
    let [from, to] = [rustix::fs::fstat(old)?, rustix::fs::fstat(new)?];
    let owner = (from.st_uid != to.st_uid).then(|| rustix::fs::Uid::from_raw(from.st_uid));
    let group = (from.st_gid != to.st_gid).then(|| rustix::fs::Gid::from_raw(from.st_gid));
    if owner.is_some() || group.is_some() {
        rustix::fs::fchown(new, owner, group)?;
    }
    let names = match growing(|buffer| rustix::fs::flistxattr(old, spare_capacity(buffer))) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        names => names?,
    };
    // A new file may have got a list from its directory that the old one does not have.
    match rustix::fs::fremovexattr(new, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        if OF_THE_CONTENT.contains(&name) {
            continue;
        }
        let value = growing(|buffer| rustix::fs::fgetxattr(old, name, spare_capacity(buffer)))?;
        // A label that the directory gives is often the right one already, and may not be set.
        let present = growing(|buffer| rustix::fs::fgetxattr(new, name, spare_capacity(buffer)));
        if present.as_ref() != Ok(&value) {
            rustix::fs::fsetxattr(new, name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

const ACCESS_LIST: &CStr = c"system.posix_acl_access";

const OF_THE_CONTENT: &[&CStr] = &[c"security.capability", c"security.ima", c"security.evm"];

/// Calls with a larger and larger buffer until the answer fits.
fn growing(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::with_capacity(1 << 10);
    loop {
        match call(&mut buffer) {
            Err(Errno::RANGE) if buffer.capacity() < LARGEST_ATTRIBUTE => {
                buffer.clear();
                buffer.reserve(buffer.capacity() * 4);
            }
            Err(error) => return Err(error),
            Ok(_) => return Ok(buffer),
        }
    }
}

/// Names and values end at 64 KiB.
const LARGEST_ATTRIBUTE: usize = 64 << 10;

/// Makes sure that there is room for `length` bytes in a file, where the file system can.
pub(in crate::fs::local) fn reserve(file: &File, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Copies the content of one file over that of another, which becomes exactly as long. Holes stay holes; for their sake
/// only, a file that is not empty is emptied first.
pub(in crate::fs::local) fn copy_content(from: &File, to: &File, facts: FileFacts, empty: bool) -> io::Result<()> {
    let FileFacts { size, stored, .. } = facts;
    let sparse = stored < size && matches!(rustix::fs::seek(from, SeekFrom::Hole(0)), Ok(hole) if hole < size);
    rustix::fs::seek(from, SeekFrom::Start(0))?;
    if !sparse {
        let mut target = to;
        let copied = io::copy(&mut &*from, &mut target)?;
        return if empty { Ok(()) } else { to.set_len(copied) };
    }
    if !empty {
        to.set_len(0)?;
    }
    let mut at = 0;
    loop {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            // No data follows.
            Err(Errno::NXIO) => break,
            data => data?,
        };
        at = rustix::fs::seek(from, SeekFrom::Hole(data))?;
        rustix::fs::seek(from, SeekFrom::Start(data))?;
        rustix::fs::seek(to, SeekFrom::Start(data))?;
        let (from, mut to) = (from, to);
        io::copy(&mut io::Read::take(from, at - data), &mut to)?;
    }
    let end = rustix::fs::seek(from, SeekFrom::End(0))?;
    to.set_len(end)
}
