//! The decisions of the protocol, without I/O, clocks, threads or locks.
//!
//! Rules of this directory: no tokio, no `Instant::now`, no callback, no channel, no randomness. Inputs are
//! `handle_*(now, …)` and commands; outputs are `poll_*`. A spurious timeout changes nothing.

pub(crate) mod session;
