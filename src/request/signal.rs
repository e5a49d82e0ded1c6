//! Signals, by their names.

use std::fmt;

/// A signal, by its POSIX name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// `SIGHUP`
    Hangup,
    /// `SIGINT`; with a terminal it goes to the foreground process group.
    Interrupt,
    /// `SIGQUIT`
    Quit,
    /// `SIGABRT`
    Abort,
    /// `SIGKILL`
    Kill,
    /// `SIGALRM`
    Alarm,
    /// `SIGTERM`
    Terminate,
    /// `SIGUSR1`
    User1,
    /// `SIGUSR2`
    User2,
    /// `SIGCONT`
    Continue,
    /// `SIGSTOP`
    Stop,
    /// `SIGTSTP`
    TerminalStop,
    /// `SIGWINCH`
    WindowChange,
    /// Any other, by its number on the executor. A status may hold it; it cannot be sent.
    Other(i32),
}

const SIGNAL_NAMES: &[(Signal, &str)] = &[
    (Signal::Hangup, "HUP"),
    (Signal::Interrupt, "INT"),
    (Signal::Quit, "QUIT"),
    (Signal::Abort, "ABRT"),
    (Signal::Kill, "KILL"),
    (Signal::Alarm, "ALRM"),
    (Signal::Terminate, "TERM"),
    (Signal::User1, "USR1"),
    (Signal::User2, "USR2"),
    (Signal::Continue, "CONT"),
    (Signal::Stop, "STOP"),
    (Signal::TerminalStop, "TSTP"),
    (Signal::WindowChange, "WINCH"),
];

impl Signal {
    /// Every named signal.
    pub fn named() -> impl Iterator<Item = Self> {
        SIGNAL_NAMES.iter().map(|(signal, _)| *signal)
    }

    /// The POSIX name without `SIG`, if it is a named signal.
    pub fn name(self) -> Option<&'static str> {
        SIGNAL_NAMES.iter().find(|(signal, _)| *signal == self).map(|(_, name)| *name)
    }

    /// The signal of this name, with or without `SIG`, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        SIGNAL_NAMES.iter().find(|(_, known)| *known == bare).map(|(signal, _)| *signal)
    }

    /// The number: that of this operating system on Unix, that of Linux elsewhere.
    pub const fn number(self) -> i32 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Abort => 6,
            Self::Kill => 9,
            Self::Alarm => 14,
            Self::Terminate => 15,
            Self::User1 => numbers::USER1,
            Self::User2 => numbers::USER2,
            Self::Continue => numbers::CONTINUE,
            Self::Stop => numbers::STOP,
            Self::TerminalStop => numbers::TERMINAL_STOP,
            Self::WindowChange => 28,
            Self::Other(number) => number,
        }
    }

    /// The signal of this number on this operating system.
    pub fn from_number(number: i32) -> Self {
        Self::named().find(|signal| signal.number() == number).unwrap_or(Self::Other(number))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.number()),
        }
    }
}

/// Signal numbers are part of each system's binary interface; these five differ between Linux and the BSDs.
#[cfg(unix)]
mod numbers {
    pub(super) const USER1: i32 = libc::SIGUSR1;
    pub(super) const USER2: i32 = libc::SIGUSR2;
    pub(super) const CONTINUE: i32 = libc::SIGCONT;
    pub(super) const STOP: i32 = libc::SIGSTOP;
    pub(super) const TERMINAL_STOP: i32 = libc::SIGTSTP;
}

#[cfg(not(unix))]
mod numbers {
    pub(super) const USER1: i32 = 10;
    pub(super) const USER2: i32 = 12;
    pub(super) const CONTINUE: i32 = 18;
    pub(super) const STOP: i32 = 19;
    pub(super) const TERMINAL_STOP: i32 = 20;
}
