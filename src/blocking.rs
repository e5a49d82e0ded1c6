//! Calls that block, on the threads that the runtime has for them.
//!
//! Where the system gives no thread, and the runtime has none, tokio panics, but keeps the call for a thread that comes
//! later. Here that is an error, and the call is not made any more.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotRun {
    /// Nothing was done.
    #[error("the system gives no more threads")]
    NoThread,
    #[error("the call panicked")]
    Panicked,
    #[error("the runtime ends")]
    RuntimeEnds,
}

impl From<NotRun> for io::Error {
    fn from(why: NotRun) -> Self {
        let kind = match why {
            NotRun::NoThread => io::ErrorKind::WouldBlock,
            NotRun::Panicked | NotRun::RuntimeEnds => io::ErrorKind::Other,
        };
        Self::new(kind, why)
    }
}

/// Makes a call. Once the future was polled the call is made to its end, also if the future is dropped. Must be called within a
/// runtime.
pub(crate) async fn run<T, F>(call: F) -> Result<T, NotRun>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (tell, told) = oneshot::channel();
    // Whoever has given it up does not need to know.
    let call = move || drop(tell.send(catch_unwind(AssertUnwindSafe(call))));
    spawn(call).map_err(|_| NotRun::NoThread)?;
    match told.await {
        Ok(Ok(result)) => Ok(result),
        // It was reported where it happened.
        Ok(Err(_)) => Err(NotRun::Panicked),
        Err(_) => Err(NotRun::RuntimeEnds),
    }
}

/// Has a call made that nobody waits for, or gives it back if there is no thread for it. Must be called within a runtime.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(call: F) -> Result<(), F> {
    let runtime = Handle::current();
    let kept = Arc::new(Mutex::new(Some(call)));
    let theirs = Arc::clone(&kept);
    let task = move || {
        if let Some(call) = take(&theirs) {
            call();
        }
    };
    match catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(task))) {
        Ok(_) => Ok(()),
        // The task is left in the queue. A thread that comes to it finds nothing, unless one has come already.
        Err(_) => take(&kept).map_or(Ok(()), Err),
    }
}

fn take<F>(kept: &Mutex<Option<F>>) -> Option<F> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The addresses of a host by its name, which the system may take a while to tell.
#[cfg(any(feature = "websocket", feature = "http"))]
pub(crate) async fn lookup(host: &str, port: u16) -> io::Result<Vec<std::net::SocketAddr>> {
    use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    run(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

/// A runtime that no thread can be made for: none has room for its stack.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn runtime_without_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().thread_stack_size(1 << 56).build().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn without_a_thread_a_call_is_given_back() {
        runtime_without_threads().block_on(async {
            let kept = Arc::new(());
            let held = Arc::clone(&kept);
            assert_eq!(run(move || drop(held)).await, Err(NotRun::NoThread));
            assert_eq!(Arc::strong_count(&kept), 1, "what it held is free");

            let (tell, told) = std::sync::mpsc::channel();
            let call = spawn(move || tell.send(()).unwrap()).err().unwrap();
            assert!(told.try_recv().is_err());
            call();
            told.recv().unwrap();
        });
    }

    #[tokio::test]
    async fn a_call_that_panics_is_told_apart_from_the_end_of_the_runtime() {
        assert_eq!(run(|| 1).await, Ok(1));
        assert_eq!(run(|| panic!("on purpose")).await, Err::<(), _>(NotRun::Panicked));
    }

    #[test]
    #[should_panic(expected = "no reactor running")]
    fn outside_of_a_runtime_it_is_a_mistake() {
        let _ = spawn(|| ());
    }
}
