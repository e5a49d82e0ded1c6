//! What a file has beyond its content survives that it is written.

use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use longarm::fs::{FileSystem, WriteOptions};
use rustix::fs::XattrFlags;

use crate::needs::skipped;
use crate::support::{Scratch, content, files, inode, mode};

fn attribute(path: &std::path::Path, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0; 1 << 10];
    let length = rustix::fs::getxattr(path, name, &mut *value).ok()?;
    value.truncate(length);
    Some(value)
}

/// An access control list in the form in which the kernel keeps it: the owner, user 1234, the group, the mask, others.
fn access_list() -> Vec<u8> {
    let none = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [(1, 6, none), (2, 4, 1234), (4, 4, none), (0x10, 4, none), (0x20, 0, none)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[tokio::test]
async fn owner_mode_attributes_and_lists_are_kept() {
    let scratch = Scratch::new();
    let path = scratch.file("file", "old");
    let is_root = fs::metadata(&path).unwrap().uid() == 0;
    if is_root {
        chown(&path, Some(1001), Some(1002)).unwrap();
    } else {
        skipped("a part", "owners can only be given away by root");
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4751)).unwrap();
    let large = vec![b'v'; 3000];
    let supported = rustix::fs::setxattr(&path, c"user.longarm", &large, XattrFlags::empty()).is_ok();
    if !supported {
        skipped("a part", "no extended attributes in the temporary directory");
    }
    let list = access_list();
    let lists = rustix::fs::setxattr(&path, c"system.posix_acl_access", &list, XattrFlags::empty()).is_ok();
    if !lists {
        skipped("a part", "no access control lists in the temporary directory");
    }
    let (before, old) = (fs::metadata(&path).unwrap(), inode(&path));
    files().write(scratch.at("file"), "new".into(), WriteOptions::new()).await.unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(content(&path), b"new");
    assert_ne!(inode(&path), old);
    assert_eq!((after.uid(), after.gid(), after.mode()), (before.uid(), before.gid(), before.mode()));
    if supported {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(&path, c"user.longarm", &mut *value).unwrap();
        assert_eq!(value[..length], large);
    }
    if lists {
        assert_eq!(attribute(&path, c"system.posix_acl_access"), Some(list));
    }
}

#[tokio::test]
async fn default_lists_of_a_directory_reach_new_files_and_do_not_stick_to_old_ones() {
    let scratch = Scratch::new();
    let old = scratch.file("old", "old");
    fs::set_permissions(&old, PermissionsExt::from_mode(0o600)).unwrap();
    let list = access_list();
    if rustix::fs::setxattr(scratch.root(), c"system.posix_acl_default", &list, XattrFlags::empty()).is_err() {
        return skipped("default lists", "no access control lists in the temporary directory");
    }
    fs::write(scratch.path("plain"), "x").unwrap();
    files().write(scratch.at("new"), "x".into(), WriteOptions::new()).await.unwrap();
    let name = c"system.posix_acl_access";
    assert!(attribute(&scratch.path("plain"), name).is_some());
    assert_eq!(attribute(&scratch.path("new"), name), attribute(&scratch.path("plain"), name));
    files().write(scratch.at("old"), "new".into(), WriteOptions::new()).await.unwrap();
    assert_eq!(attribute(&old, name), None, "the file had no list");
    assert_eq!(mode(&old), 0o600);
}

#[tokio::test]
async fn a_file_that_cannot_be_changed_stays_as_it_is() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    let scratch = Scratch::new();
    let path = scratch.file("file", "old");
    let file = fs::File::open(&path).unwrap();
    let changed = ioctl_getflags(&file).and_then(|flags| {
        ioctl_setflags(&file, flags | IFlags::IMMUTABLE)?;
        Ok(flags)
    });
    let Ok(flags) = changed else {
        return skipped("immutable files", "neither the file system of the temporary directory nor the user has them");
    };
    let written = files().write(scratch.at("file"), "new".into(), WriteOptions::new()).await;
    ioctl_setflags(&file, flags).unwrap();
    written.unwrap_err();
    assert_eq!(content(&path), b"old");
    assert_eq!(scratch.names(""), ["file"]);
}
