//! The files of this machine: every rule of the contract, and what a file system can have in store.
#![cfg(target_os = "linux")]

mod blocks;
mod directories;
mod killed;
mod metadata_kept;
mod paths;
mod place;
mod races;
mod roles;
mod streams;
mod support;
mod trees;
mod walk;
mod walk_oracle;
mod watch;
mod whole;
