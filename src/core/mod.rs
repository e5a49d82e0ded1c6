//! The decisions of the protocol, without I/O, clocks, threads or locks.
//!
//! Rules of this directory: no tokio, no `Instant::now`, no callback, no channel, no randomness. Inputs are
//! `handle_*(now, …)` and commands; outputs are `poll_*`. A spurious timeout changes nothing.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![warn(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod backoff;
pub(crate) mod body;
mod calls;
mod dedupe;
pub(crate) mod keepalive;
pub(crate) mod pacing;
pub(crate) mod peer;
mod recovery;
mod reorder;
pub(crate) mod replay;
pub(crate) mod session;
pub(crate) mod stdin_queue;
