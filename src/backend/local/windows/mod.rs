//! What the logic of this backend needs of Windows. `unix/mod.rs` has the same names.
//!
//! - A *process group* is a job object: descendants are members of it and cannot leave. Its leader is also the head of a
//!   console process group of the same number, which a Ctrl-Break reaches.
//! - Streams are named pipes with overlapped I/O on our side, made for one child each.
//! - A terminal is a pseudo-console. It has an end only when we close it, which we do once its last process has ended.
//!
//! Those parts that only compute, [`command_line`], [`environment`] and [`search`], compile for the tests of every
//! system.
//!
//! # Signals
//!
//! | | with a terminal | without |
//! | --- | --- | --- |
//! | interrupt | the character Ctrl-C | Ctrl-Break |
//! | quit | – | Ctrl-Break |
//! | hang-up | closes the console | – |
//! | terminate | closes the console | Ctrl-Break, else as kill |
//! | kill | ends all processes of the job | ends all processes of the job |
//!
//! A Ctrl-Break reaches a child only through a console that it shares with us. A child shares ours if we have one; else
//! it gets one without a window, and is out of reach. Everything else is unsupported. Whoever does not handle what asks
//! it to end has the exit code that the system gives it then, 0xC000013A.
//!
//! # Limits
//!
//! Windows 10, version 1809, is the oldest that has pseudo-consoles.
//!
//! Whether Ctrl-C is ignored is inherited, and nothing but the process itself can change it: if this process ignores it,
//! which one does that was started as the head of a console process group, those on its terminals do so too.
//!
//! The handles that a child inherits are listed, so that it gets no others; but for the moment of its start its own ends
//! of the streams are inheritable, and a host that starts a process then by other means, without such a list, passes
//! them on to it. A detached process that has a terminal loses it, and so ends, when this process does.

#![allow(clippy::needless_pass_by_ref_mut, reason = "the signatures are those of the Unix layer")]

mod command_line;
mod environment;
mod search;

#[cfg(windows)]
mod classify;
#[cfg(windows)]
mod create;
#[cfg(windows)]
mod host;
#[cfg(windows)]
mod job;
#[cfg(windows)]
mod launch;
#[cfg(windows)]
mod pipe;
#[cfg(windows)]
mod process;
#[cfg(windows)]
pub(super) mod sandbox;
#[cfg(windows)]
mod stream;
#[cfg(windows)]
mod system;
#[cfg(windows)]
mod terminal;
#[cfg(windows)]
mod wait;

#[cfg(windows)]
pub(super) use self::{
    classify::{classify, no_thread},
    host::{home_dir, host_shell, hostname, login_shell, temporary_directories},
    launch::{Common, Launched, Launcher},
    process::{Child, ExitWatch},
    stream::{InputWriter, OutputReader},
};
