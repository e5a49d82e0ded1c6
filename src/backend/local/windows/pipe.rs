//! Pipes with overlapped I/O at our end and plain I/O at the other. Unnamed pipes have no overlapped I/O.

use std::io;
use std::os::windows::io::OwnedHandle;

use windows::Win32::Foundation::{
    GENERIC_READ, GENERIC_WRITE, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, SetHandleInformation,
};
use windows::Win32::Storage::FileSystem::{
    CreateFileW, FILE_ATTRIBUTE_NORMAL, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
    FILE_SHARE_MODE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_INBOUND,
    PIPE_ACCESS_OUTBOUND,
};
use windows::Win32::System::Pipes::{CreateNamedPipeW, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_WAIT};
use windows::core::{PCWSTR, w};

use super::system::{check, own, terminated};

/// Both ends of a pipe; neither is inherited by anyone.
pub(super) struct Pair {
    /// With overlapped I/O.
    pub(super) ours: OwnedHandle,
    /// Without.
    pub(super) theirs: OwnedHandle,
}

/// Which way the bytes go.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    ToUs,
    FromUs,
}

/// Makes a pipe that nobody else can connect to: its name is random, and it has one connection, which is taken here.
pub(super) fn pair(direction: Direction) -> io::Result<Pair> {
    let name = format!(r"\\.\pipe\longarm-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
    let name = terminated(&name.encode_utf16().collect::<Vec<u16>>());
    let (ours, theirs) = match direction {
        // Attributes, so that the other end can ask for and set the pipe's state as with an unnamed pipe.
        Direction::ToUs => (PIPE_ACCESS_INBOUND, GENERIC_WRITE.0 | FILE_READ_ATTRIBUTES.0),
        Direction::FromUs => (PIPE_ACCESS_OUTBOUND, GENERIC_READ.0 | FILE_WRITE_ATTRIBUTES.0),
    };
    // SAFETY: the name is terminated and outlives the call.
    let handle = unsafe {
        CreateNamedPipeW(
            PCWSTR(name.as_ptr()),
            ours | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            BUFFER_BYTES,
            BUFFER_BYTES,
            0,
            None,
        )
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new handle.
    let ours = unsafe { own(handle) };
    let theirs = open(PCWSTR(name.as_ptr()), theirs, FILE_SHARE_MODE(0))?;
    Ok(Pair { ours, theirs })
}

/// The null device, for reading.
pub(super) fn open_null() -> io::Result<OwnedHandle> {
    open(w!("NUL"), GENERIC_READ.0, FILE_SHARE_READ | FILE_SHARE_WRITE)
}

/// `name` must be terminated and outlive the call.
fn open(name: PCWSTR, access: u32, share: FILE_SHARE_MODE) -> io::Result<OwnedHandle> {
    // SAFETY: both callers pass a terminated name that outlives the call.
    let handle = check(unsafe { CreateFileW(name, access, share, None, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, None) })?;
    // SAFETY: the call returned a new handle.
    Ok(unsafe { own(handle) })
}

/// Lets a child that is started from now on inherit the handle.
pub(super) fn make_inheritable(handle: &OwnedHandle) -> io::Result<()> {
    // SAFETY: the handle is open; the call touches no memory of ours.
    check(unsafe { SetHandleInformation(super::system::raw(handle), HANDLE_FLAG_INHERIT.0, HANDLE_FLAG_INHERIT) })
}

/// What a pipe holds before its writer waits.
const BUFFER_BYTES: u32 = 64 << 10;
