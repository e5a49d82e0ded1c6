//! Waits that the system's thread pool does.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::windows::io::OwnedHandle;
use std::sync::Arc;

use windows::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows::Win32::System::Threading::{
    CreateEventW, INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WORKER_THREAD_FLAGS, WT_EXECUTEDEFAULT,
    WT_EXECUTEONLYONCE,
};

use super::system::{check, own, raw};

/// Has the thread pool call a function when an object is signalled, until it is dropped.
///
/// Dropping waits for a call that is under way, so the function must be short, and must not drop its own wait.
pub(super) struct Wait {
    registration: HANDLE,
    /// What the pool has a pointer to. A box in a box, since a pointer to a function object is a wide one.
    callback: ManuallyDrop<Box<Callback>>,
    /// Waited for, and so kept open.
    _object: Arc<OwnedHandle>,
}

type Callback = Box<dyn Fn() + Send + Sync>;

// SAFETY: a registration may be ended by any thread; the function object is `Send` and `Sync`.
unsafe impl Send for Wait {}
// SAFETY: nothing can be done through a shared reference.
unsafe impl Sync for Wait {}

impl Wait {
    /// Calls once, when `object` is signalled.
    pub(super) fn once(object: Arc<OwnedHandle>, callback: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        Self::register(object, INFINITE, WT_EXECUTEONLYONCE, Box::new(callback))
    }

    /// Calls again and again, in this interval.
    pub(super) fn every(milliseconds: u32, callback: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        // Nobody signals it: the wait for it ends by the clock alone.
        let never = Arc::new(event()?);
        Self::register(never, milliseconds, WT_EXECUTEDEFAULT, Box::new(callback))
    }

    fn register(
        object: Arc<OwnedHandle>,
        milliseconds: u32,
        flags: WORKER_THREAD_FLAGS,
        callback: Callback,
    ) -> io::Result<Self> {
        let callback = Box::new(callback);
        let context: *const Callback = &raw const *callback;
        let mut registration = HANDLE::default();
        // SAFETY: the object is open and stays so until the registration has ended, as `Wait` owns a reference to it.
        // `call` takes its parameter for a `Callback`, which is what `context` points to; the destructor frees that only
        // after the registration has ended, and it does not move, since it has a box of its own.
        check(unsafe {
            RegisterWaitForSingleObject(
                &raw mut registration,
                raw(&*object),
                Some(call),
                Some(context.cast()),
                milliseconds,
                flags,
            )
        })?;
        Ok(Self { registration, callback: ManuallyDrop::new(callback), _object: object })
    }
}

/// A new event, not signalled, which stays signalled once it is.
pub(super) fn event() -> io::Result<OwnedHandle> {
    // SAFETY: the call touches no memory of ours.
    let event = check(unsafe { CreateEventW(None, true, false, None) })?;
    // SAFETY: the call returned a new handle.
    Ok(unsafe { own(event) })
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the registration is ours and was not ended before. The second argument has the call return only when
        // no callback runs any more, nor will.
        let ended = unsafe { UnregisterWaitEx(self.registration, Some(INVALID_HANDLE_VALUE)) };
        debug_assert!(ended.is_ok(), "a registration of ours can be ended: {ended:?}");
        if ended.is_ok() {
            // SAFETY: nobody has a pointer to it any more, and it is not used after this. Where the registration
            // could not be ended it is leaked instead.
            unsafe { ManuallyDrop::drop(&mut self.callback) };
        }
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("registration", &self.registration).finish_non_exhaustive()
    }
}

/// What the thread pool calls. A panic ends the process, as it cannot unwind into the system.
unsafe extern "system" fn call(context: *mut core::ffi::c_void, _timed_out: bool) {
    // SAFETY: `register` passes a pointer to a `Callback` that lives until the registration has ended, and only shared
    // references to it exist.
    let callback = unsafe { &*context.cast::<Callback>().cast_const() };
    callback();
}
