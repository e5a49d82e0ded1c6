//! Our ends of a child's streams, never blocking.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{check, platform, read, terminal, watch, write};
use crate::request::TerminalSize;

/// The reading end of an output pipe, or a terminal.
#[derive(Debug)]
pub(in crate::backend::local) struct OutputReader {
    // First, so that it leaves the selector before the descriptor can be closed.
    wake: Wake,
    fd: Arc<OwnedFd>,
    is_terminal: bool,
    /// Kept open until the output is drained, where the system would else discard it.
    held_slave: Option<Arc<OwnedFd>>,
    /// There may be more than the runtime has heard of.
    look: bool,
    /// What was read already, and comes first.
    peeked: Vec<u8>,
}

/// What wakes a reader.
#[derive(Debug)]
enum Wake {
    /// Nothing: it is read by who wants to.
    Nothing,
    /// The stream itself.
    Stream(AsyncFd<Arc<OwnedFd>>),
    /// The clock, some time after there was nothing left to read.
    Clock { pacer: platform::Pacer, period: Duration, due: bool },
}

impl OutputReader {
    pub(super) fn pipe(fd: OwnedFd) -> Self {
        Self {
            wake: Wake::Nothing,
            fd: Arc::new(fd),
            is_terminal: false,
            held_slave: None,
            look: false,
            peeked: Vec::new(),
        }
    }

    pub(super) fn terminal(fd: OwnedFd, held_slave: Option<Arc<OwnedFd>>) -> Self {
        Self { wake: Wake::Nothing, fd: Arc::new(fd), is_terminal: true, held_slave, look: false, peeked: Vec::new() }
    }

    /// What there is, up to `max` bytes; the reads that follow find it first.
    #[cfg(any(not(target_os = "linux"), test))]
    pub(super) fn peek(&mut self, max: usize) -> io::Result<&[u8]> {
        let mut buffer = Vec::with_capacity(max);
        while self.peeked.len() < max {
            buffer.clear();
            match read_now(&self.fd, self.is_terminal, &mut buffer)? {
                None | Some(0) => break,
                Some(_) => self.peeked.append(&mut buffer),
            }
        }
        Ok(&self.peeked)
    }

    /// Has the next reads look at the stream itself, not only at what the runtime has heard of it: what a process wrote
    /// before its exit is there when the exit is noticed, while the news of either may come in any order.
    pub(in crate::backend::local) fn look_again(&mut self) {
        self.look = true;
    }

    /// Lets the stream come to its end once the process has exited and nothing more is there.
    pub(in crate::backend::local) fn let_end(&mut self) {
        self.held_slave = None;
    }

    /// Has the stream itself wake who reads it. Must be called within a runtime.
    pub(in crate::backend::local) fn watch(&mut self) -> io::Result<()> {
        if !matches!(self.wake, Wake::Stream(_)) {
            self.wake = Wake::Stream(watch(&self.fd, Interest::READABLE)?);
        }
        Ok(())
    }

    /// Has the clock wake who reads it, `period` after there was nothing left. A stream that is watched costs its writer
    /// a wake-up of the selector for each piece. Must be called within a runtime.
    pub(in crate::backend::local) fn pace(&mut self, period: Duration) -> io::Result<()> {
        let pacer = platform::Pacer::new()?;
        pacer.start(period)?;
        self.wake = Wake::Clock { pacer, period, due: false };
        Ok(())
    }

    /// Whether the stream can hold more than it does by default, and so be paced.
    pub(in crate::backend::local) fn can_be_enlarged(&self) -> bool {
        platform::ENLARGES_PIPES && !self.is_terminal
    }

    /// Lets the stream hold as much as the system allows; returns how much that is.
    pub(in crate::backend::local) fn enlarge(&self) -> usize {
        platform::enlarge_pipe(self.fd.as_raw_fd())
    }

    /// Appends what there is to `buffer`, up to its capacity; zero bytes are the end of the stream.
    ///
    /// When it is paced, [`io::ErrorKind::WouldBlock`] says that all there was at the last tick has been read. Unless it
    /// is watched or paced it never wakes.
    pub(in crate::backend::local) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if !self.peeked.is_empty() {
            let count = self.peeked.len().min(buffer.capacity() - buffer.len());
            buffer.extend(self.peeked.drain(..count));
            return Poll::Ready(Ok(count));
        }
        if self.look {
            if let Some(count) = read_now(&self.fd, self.is_terminal, buffer)? {
                return Poll::Ready(Ok(count));
            }
            self.look = false;
        }
        loop {
            match &mut self.wake {
                Wake::Nothing => {
                    return match read_now(&self.fd, self.is_terminal, buffer)? {
                        Some(count) => Poll::Ready(Ok(count)),
                        None => Poll::Pending,
                    };
                }
                Wake::Stream(watched) => {
                    let mut guard = ready!(watched.poll_read_ready(cx))?;
                    let room = buffer.capacity() - buffer.len();
                    match read_now(&self.fd, self.is_terminal, buffer)? {
                        Some(count) => {
                            // Less than there was room for means that the stream is empty now: its next byte wakes
                            // the selector again, and one more call that says so is saved. The end stays ready for
                            // ever.
                            if count > 0 && count < room {
                                guard.clear_ready();
                            }
                            return Poll::Ready(Ok(count));
                        }
                        None => guard.clear_ready(),
                    }
                }
                Wake::Clock { pacer, period, due } => {
                    if !*due {
                        ready!(pacer.poll_elapsed(cx))?;
                        *due = true;
                    }
                    if let Some(count) = read_now(&self.fd, self.is_terminal, buffer)? {
                        return Poll::Ready(Ok(count));
                    }
                    *due = false;
                    pacer.start(*period)?;
                    return Poll::Ready(Err(io::ErrorKind::WouldBlock.into()));
                }
            }
        }
    }
}

/// Reads what there is: none if there is nothing now, zero bytes at the end.
fn read_now(fd: &OwnedFd, is_terminal: bool, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let before = buffer.len();
    loop {
        match read(fd.as_raw_fd(), buffer) {
            Ok(0) => break,
            Ok(_) if !is_terminal || buffer.len() == buffer.capacity() => break,
            // A terminal yields a line or a page at a time, however much there is.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if buffer.len() == before {
                    return Ok(None);
                }
                break;
            }
            // The last descriptor of the terminal's other side was closed.
            Err(error) if is_terminal && error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Some(buffer.len() - before))
}

/// The writing end of the input pipe, or a terminal.
#[derive(Debug)]
pub(in crate::backend::local) struct InputWriter {
    // First, so that it leaves the selector before the descriptor can be closed.
    watch: Option<AsyncFd<Arc<OwnedFd>>>,
    fd: Arc<OwnedFd>,
    is_terminal: bool,
}

impl InputWriter {
    pub(in crate::backend::local) fn pipe(fd: OwnedFd) -> Self {
        Self { watch: None, fd: Arc::new(fd), is_terminal: false }
    }

    pub(super) fn terminal(fd: OwnedFd) -> Self {
        Self { watch: None, fd: Arc::new(fd), is_terminal: true }
    }

    /// Whether it is a terminal.
    pub(in crate::backend::local) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes what fits now; none if nothing does. A reader that is gone is [`io::ErrorKind::BrokenPipe`].
    pub(in crate::backend::local) fn write_now(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match write(self.fd.as_raw_fd(), bytes) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if self.is_terminal && error.raw_os_error() == Some(libc::EIO) => {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Err(error) => Err(error),
        }
    }

    /// The same, waking when more fits. Must be called within a runtime.
    pub(in crate::backend::local) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.watch.is_none() {
            // Most inputs take all that is ever written at once, and need no watch.
            self.watch = Some(watch(&self.fd, Interest::WRITABLE)?);
        }
        loop {
            let Some(watched) = &self.watch else { return Poll::Pending };
            let mut guard = ready!(watched.poll_write_ready(cx))?;
            match self.write_now(bytes)? {
                Some(count) => return Poll::Ready(Ok(count)),
                None => guard.clear_ready(),
            }
        }
    }

    /// Sets the size of the terminal.
    pub(in crate::backend::local) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        terminal::resize(self.fd.as_fd(), size)
    }

    /// Interrupts the foreground process group, which was `group` a moment ago.
    pub(super) fn interrupt_foreground(&self, group: libc::pid_t) -> io::Result<()> {
        // In one step where the system has one: the number may be given to another group before it is used.
        match platform::interrupt_foreground(self.fd.as_fd()) {
            Ok(()) => Ok(()),
            // SAFETY: the call touches no memory.
            Err(_) => check(unsafe { libc::kill(-group, libc::SIGINT) }).map(drop),
        }
    }

    /// The foreground process group of the terminal.
    pub(super) fn foreground_group(&self) -> io::Result<Option<libc::pid_t>> {
        terminal::foreground_group(self.fd.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_was_peeked_at_is_read_first() {
        let (read, write_end) = crate::backend::local::unix::pipe().unwrap();
        crate::backend::local::unix::set_nonblocking(read.as_fd()).unwrap();
        let mut reader = OutputReader::pipe(read);
        assert_eq!(reader.peek(4).unwrap(), b"");
        write(write_end.as_raw_fd(), b"abcdef").unwrap();
        assert_eq!(reader.peek(4).unwrap(), b"abcd");
        assert_eq!(reader.peek(4).unwrap(), b"abcd");
        drop(write_end);
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        loop {
            let mut buffer = Vec::with_capacity(3);
            match reader.poll_read(&mut cx, &mut buffer) {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(count)) => assert_eq!(count, buffer.len()),
                other => panic!("{other:?}"),
            }
            all.push(String::from_utf8(buffer).unwrap());
        }
        assert_eq!(all, ["abc", "d", "ef"]);
    }
}
