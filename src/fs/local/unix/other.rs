//! What other Unix systems have where Linux has something of its own.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::FileFacts;

/// How a directory is opened that is only a place to start from.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How something is opened from which nothing is to be read: there is but one way here.
pub(super) const UNREAD: OFlags = OFlags::empty();

/// There is no such call here.
pub(super) fn open_without_symlinks(_path: &Path) -> Option<io::Result<OwnedFd>> {
    None
}

/// The metadata of a name itself. It is looked up by its path, which was found to have no links a moment ago.
pub(super) fn metadata_of_itself(_dir: &OwnedFd, _name: &OsStr, path: &Path) -> io::Result<Metadata> {
    std::fs::symlink_metadata(path)
}

#[cfg(target_vendor = "apple")]
pub(super) fn rename_without_replacing(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE)
}

#[cfg(not(target_vendor = "apple"))]
pub(super) fn rename_without_replacing(_dir: &OwnedFd, _from: &OsStr, _to: &OsStr) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Gives a new file the owner, the group, the extended attributes and the access control lists of an old one.
pub(in crate::fs::local) fn carry_metadata(old: &File, new: &File) -> io::Result<()> {
    carry(old, new)
}

#[cfg(target_vendor = "apple")]
fn carry(old: &File, new: &File) -> io::Result<()> {
    let [from, to] = [rustix::fs::fstat(old)?, rustix::fs::fstat(new)?];
    let owner = (from.st_uid != to.st_uid).then(|| rustix::fs::Uid::from_raw(from.st_uid));
    let group = (from.st_gid != to.st_gid).then(|| rustix::fs::Gid::from_raw(from.st_gid));
    if owner.is_some() || group.is_some() {
        rustix::fs::fchown(new, owner, group)?;
    }
    // The old one is open for writing, which is not enough to have its attributes and lists copied: a file that has any, or
    // other flags than a new one, is written in place.
    if from.st_flags != to.st_flags || has_attributes(old)? || has_access_list(old)? {
        return Err(Errno::NOTSUP.into());
    }
    Ok(())
}

/// Whether it has extended attributes but the one that the system gives to what programs make.
#[cfg(target_vendor = "apple")]
fn has_attributes(file: &File) -> io::Result<bool> {
    let mut names = Vec::with_capacity(1 << 16);
    match rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut names)) {
        // More than fit.
        Err(Errno::RANGE) => return Ok(true),
        listed => listed?,
    };
    Ok(names.split(|byte| *byte == 0).any(|name| !name.is_empty() && name != b"com.apple.provenance"))
}

/// Whether it has an access control list, which is not among the attributes that are listed.
#[cfg(target_vendor = "apple")]
fn has_access_list(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd as _;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Answer {
        length: u32,
        list: libc::attrreference_t,
        content: [u8; 64],
    }

    let mut asked = libc::attrlist {
        bitmapcount: libc::ATTR_BIT_MAP_COUNT,
        reserved: 0,
        commonattr: libc::ATTR_CMN_EXTENDED_SECURITY,
        volattr: 0,
        dirattr: 0,
        fileattr: 0,
        forkattr: 0,
    };
    let list = libc::attrreference_t { attr_dataoffset: 0, attr_length: 0 };
    let mut answer = Answer { length: 0, list, content: [0; 64] };
    // SAFETY: both structures have the layout that the call knows, they outlive it, and the size is that of the second one,
    // beyond which nothing is written: a longer list is cut.
    let result = unsafe {
        libc::fgetattrlist(file.as_raw_fd(), (&raw mut asked).cast(), (&raw mut answer).cast(), size_of::<Answer>(), 0)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer.list.attr_length > 0)
}

/// What a file has beyond its owner and mode cannot be known.
#[cfg(not(target_vendor = "apple"))]
fn carry(_old: &File, _new: &File) -> io::Result<()> {
    Err(Errno::NOTSUP.into())
}

/// Nothing says here beforehand whether there is room.
pub(in crate::fs::local) fn reserve(_file: &File, _length: u64) -> io::Result<()> {
    Ok(())
}

/// Copies the content of one file over that of another, which becomes exactly as long.
pub(in crate::fs::local) fn copy_content(from: &File, to: &File, _facts: FileFacts, empty: bool) -> io::Result<()> {
    let (mut source, mut target) = (from, to);
    io::Seek::rewind(&mut source)?;
    let copied = io::copy(&mut source, &mut target)?;
    if empty { Ok(()) } else { to.set_len(copied) }
}
