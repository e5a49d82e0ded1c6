//! The program as its users see it: bytes, exit codes, signals, terminals; here and behind a server.
#![cfg(unix)]

mod cp;
#[cfg(feature = "toml")]
mod environments;
mod exec;
mod info;
#[cfg(target_os = "linux")]
#[path = "../common/needs.rs"]
mod needs;
#[path = "../../src/testing/patience.rs"]
mod patience;
mod reference;
#[cfg(target_os = "linux")]
mod sandbox;
mod serve;
mod support;
mod terminal;
