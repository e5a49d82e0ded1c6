//! The program as its users see it: bytes, exit codes, signals, terminals; here and behind a server.
#![cfg(unix)]

mod cp;
mod exec;
mod info;
mod reference;
mod serve;
mod support;
mod terminal;
