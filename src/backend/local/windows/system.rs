//! Small pieces around the system's interface.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::PathBuf;

use windows::Win32::Foundation::HANDLE;
use windows::Win32::System::SystemInformation::GetSystemDirectoryW;

/// The result of a call as the error of the standard library, which knows plain codes and not `HRESULT`s.
pub(super) fn check<T>(result: windows::core::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        let code = error.code().0;
        // 0x8007 is the facility of plain codes, which are 16 bits.
        if (code as u32) >> 16 == 0x8007 {
            io::Error::from_raw_os_error(code & 0xffff)
        } else {
            io::Error::from_raw_os_error(code)
        }
    })
}

/// The handle, for a call during which `owner` is borrowed.
pub(super) fn raw(owner: &impl AsRawHandle) -> HANDLE {
    HANDLE(owner.as_raw_handle())
}

/// Takes a new handle over.
///
/// # Safety
///
/// The handle is open and valid, and nobody else owns it.
pub(super) unsafe fn own(handle: HANDLE) -> OwnedHandle {
    // SAFETY: the caller's promise.
    unsafe { OwnedHandle::from_raw_handle(handle.0) }
}

/// UTF-16, without a terminator.
pub(super) fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().collect()
}

/// UTF-16 with a terminator. What follows a NUL in the text itself is not seen by the system.
pub(super) fn terminated(units: &[u16]) -> Vec<u16> {
    [units, &[0]].concat()
}

/// The text of these units.
pub(super) fn os_string(units: &[u16]) -> OsString {
    OsString::from_wide(units)
}

/// The directory of the system's own programs.
pub(super) fn system_directory() -> io::Result<PathBuf> {
    // Longer than any path that the system can be installed to.
    let mut buffer = [0; 1 << 10];
    // SAFETY: the call fills the buffer, whose length the slice tells it.
    let length = unsafe { GetSystemDirectoryW(Some(&mut buffer)) };
    if length == 0 {
        return Err(io::Error::last_os_error());
    }
    let units = buffer.get(..length as usize).ok_or(io::ErrorKind::InvalidFilename)?;
    Ok(os_string(units).into())
}
