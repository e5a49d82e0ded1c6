//! Terminals, signals, limits and standard streams of Windows.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, OwnedHandle};
use std::time::Duration;

use longarm::TerminalSize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};
use tokio::time::{Interval, interval};
use windows::Win32::Foundation::HANDLE;
use windows::Win32::System::Console::{
    CONSOLE_MODE, CONSOLE_SCREEN_BUFFER_INFO, ENABLE_ECHO_INPUT, ENABLE_LINE_INPUT, ENABLE_PROCESSED_INPUT,
    ENABLE_VIRTUAL_TERMINAL_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetConsoleScreenBufferInfo,
    SetConsoleCtrlHandler, SetConsoleMode,
};

/// How long to wait before a stream is tried again that somebody made non-blocking.
pub(super) const RETRY_TIME: Duration = Duration::from_millis(5);

/// What longarm is told by the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A request to end.
    Terminate,
    /// The console may have another size.
    Resize,
}

pub(super) struct Signals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    close: CtrlClose,
    /// A console says nothing about its size unless its input events are read, which would take them from the command.
    size_check: Interval,
    size: Option<TerminalSize>,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        // Whoever started this program in a console process group of its own has made it ignore Ctrl-C, and with it the
        // commands on its terminals.
        // SAFETY: without a handler the call only changes that attribute of this process.
        unsafe { SetConsoleCtrlHandler(None, false)? };
        Ok(Self {
            interrupt: ctrl_c()?,
            terminate: ctrl_break()?,
            close: ctrl_close()?,
            size_check: interval(Duration::from_millis(500)),
            size: terminal_size(),
        })
    }

    /// The next signal of any kind.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                Some(()) = self.interrupt.recv() => return Signal::Interrupt,
                Some(()) = self.terminate.recv() => return Signal::Terminate,
                Some(()) = self.close.recv() => return Signal::Terminate,
                _ = self.size_check.tick() => {
                    let size = terminal_size();
                    if std::mem::replace(&mut self.size, size) != size {
                        return Signal::Resize;
                    }
                }
            }
        }
    }

    /// The next signal that asks this program to end.
    pub(super) async fn stop(&mut self) {
        while self.next().await == Signal::Resize {}
    }
}

/// The console in raw mode; as it was before once this is dropped.
pub(super) struct RawMode {
    saved: Vec<(OwnedHandle, CONSOLE_MODE)>,
}

impl RawMode {
    /// Makes the console raw, if there is one. With `keep_signals` Ctrl-C still interrupts.
    pub(super) fn enter(keep_signals: bool) -> io::Result<Option<Self>> {
        if !stdin_is_terminal() {
            return Ok(None);
        }
        let mut mode = Self { saved: Vec::new() };
        let mut off = ENABLE_ECHO_INPUT | ENABLE_LINE_INPUT;
        if !keep_signals {
            off |= ENABLE_PROCESSED_INPUT;
        }
        let stdin = io::stdin().as_handle().try_clone_to_owned()?;
        mode.change(stdin, |old| (old & !off) | ENABLE_VIRTUAL_TERMINAL_INPUT)?;
        if io::stdout().is_terminal() {
            let stdout = io::stdout().as_handle().try_clone_to_owned()?;
            mode.change(stdout, |old| old | ENABLE_VIRTUAL_TERMINAL_PROCESSING)?;
        }
        Ok(Some(mode))
    }

    fn change(&mut self, handle: OwnedHandle, change: impl FnOnce(CONSOLE_MODE) -> CONSOLE_MODE) -> io::Result<()> {
        let mut old = CONSOLE_MODE::default();
        // SAFETY: the handle is open, and `old` outlives the call.
        unsafe { GetConsoleMode(HANDLE(handle.as_raw_handle()), &raw mut old)? };
        // SAFETY: the handle is open.
        unsafe { SetConsoleMode(HANDLE(handle.as_raw_handle()), change(old))? };
        self.saved.push((handle, old));
        Ok(())
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        for (handle, mode) in &self.saved {
            // SAFETY: the handle is open. A console that is gone needs no restoring.
            let _ = unsafe { SetConsoleMode(HANDLE(handle.as_raw_handle()), *mode) };
        }
    }
}

pub(super) fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The size of the console's window.
pub(super) fn terminal_size() -> Option<TerminalSize> {
    let stdout = io::stdout();
    let mut info = CONSOLE_SCREEN_BUFFER_INFO::default();
    // SAFETY: the handle is that of standard output, and `info` outlives the call. What is no console is an error.
    unsafe { GetConsoleScreenBufferInfo(HANDLE(stdout.as_raw_handle()), &raw mut info).ok()? };
    let extent = |first: i16, last: i16| u16::try_from(i32::from(last) - i32::from(first) + 1).ok();
    let rows = extent(info.srWindow.Top, info.srWindow.Bottom)?;
    let cols = extent(info.srWindow.Left, info.srWindow.Right)?;
    (rows > 0 && cols > 0).then_some(TerminalSize { rows, cols })
}

/// There is no such limit.
pub(super) fn raise_descriptor_limit() -> Option<(u64, u64)> {
    None
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input and output for a server.
#[allow(clippy::unnecessary_wraps, reason = "the same signature on every system")]
pub(super) fn standard_streams() -> io::Result<(Reader, Writer)> {
    Ok((Box::new(tokio::io::stdin()), Box::new(tokio::io::stdout())))
}

/// Standard input without a buffer.
pub(super) fn raw_stdin() -> io::Result<File> {
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

/// Standard output without a buffer.
pub(super) fn raw_stdout() -> io::Result<File> {
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

/// Standard error without a buffer.
pub(super) fn raw_stderr() -> io::Result<File> {
    Ok(io::stderr().as_handle().try_clone_to_owned()?.into())
}

/// `K=V`, split at the first sign.
pub(super) fn split_variable(pair: &OsStr) -> Option<(OsString, OsString)> {
    let units: Vec<u16> = pair.encode_wide().collect();
    let at = units.iter().position(|unit| *unit == u16::from(b'='))?;
    let (name, value) = (units.get(..at)?, units.get(at + 1..)?);
    Some((OsString::from_wide(name), OsString::from_wide(value)))
}

/// The bytes of a path, if it is Unicode.
pub(super) fn path_bytes(path: &OsStr) -> Option<Vec<u8>> {
    path.to_str().map(|text| text.as_bytes().to_vec())
}
