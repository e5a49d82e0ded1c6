//! Pseudo-consoles.

use std::io;
use std::os::windows::io::OwnedHandle;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windows::Win32::System::Console::{COORD, ClosePseudoConsole, CreatePseudoConsole, HPCON, ResizePseudoConsole};
use windows::Win32::System::Threading::{CallbackMayRunLong, PTP_CALLBACK_INSTANCE, TrySubmitThreadpoolCallback};

use super::system::{check, raw};
use crate::request::TerminalSize;

/// A pseudo-console, until it is closed.
///
/// Closing asks the processes that are attached to it to end, has the console write what it still holds, and then ends
/// its output. Before recent versions that waits until all is read, so it is done by a thread of the system's pool.
#[derive(Debug)]
pub(super) struct Console {
    open: Mutex<Option<HPCON>>,
}

impl Console {
    /// A console of this size that reads from `input` and writes to `output`, which need plain I/O and are not needed
    /// any more once a process is attached.
    pub(super) fn new(size: TerminalSize, input: &OwnedHandle, output: &OwnedHandle) -> io::Result<Arc<Self>> {
        let size = coordinates(size)?;
        // SAFETY: both handles are open; the console makes its own duplicates of them.
        let console = check(unsafe { CreatePseudoConsole(size, raw(input), raw(output), 0) })?;
        Ok(Arc::new(Self { open: Mutex::new(Some(console)) }))
    }

    /// Sets the size. One that is closed has none.
    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = coordinates(size)?;
        match *self.lock() {
            // SAFETY: the console is open: it is taken out under the lock before it is closed.
            Some(console) => check(unsafe { ResizePseudoConsole(console, size) }),
            None => Ok(()),
        }
    }

    /// Calls `with` while the console is certainly open; none if it is closed.
    pub(super) fn with_open<T>(&self, with: impl FnOnce(HPCON) -> T) -> Option<T> {
        let open = self.lock();
        (*open).map(with)
    }

    /// Closes it, in the background. Later calls have no effect.
    pub(super) fn close(&self) {
        let taken = self.lock().take();
        let Some(console) = taken else { return };
        // SAFETY: `close_in_pool` takes its parameter for the value of an open console that nobody else will use, which
        // it is: it was taken out of its place. It is a value and no pointer, so that nothing has to outlive the call.
        let submitted = unsafe { TrySubmitThreadpoolCallback(Some(close_in_pool), Some(console.0 as *mut _), None) };
        if submitted.is_err() {
            // SAFETY: as above, and the pool did not take it. The reader goes on without us, so that this ends.
            unsafe { ClosePseudoConsole(console) };
        }
    }

    /// Nothing that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Option<HPCON>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.close();
    }
}

unsafe extern "system" fn close_in_pool(instance: PTP_CALLBACK_INSTANCE, console: *mut core::ffi::c_void) {
    // SAFETY: the instance is that of this callback. The result only says whether another thread was free at once.
    let _ = unsafe { CallbackMayRunLong(instance) };
    // SAFETY: `Console::close` passes the value of an open console that nobody else uses.
    unsafe { ClosePseudoConsole(HPCON(console as isize)) };
}

fn coordinates(size: TerminalSize) -> io::Result<COORD> {
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "a console has at most 32767 rows and columns");
    Ok(COORD { X: i16::try_from(size.cols).map_err(too_large)?, Y: i16::try_from(size.rows).map_err(too_large)? })
}
