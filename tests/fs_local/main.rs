//! The files of this machine: every rule of the contract, and what a file system can have in store.
#![cfg(target_os = "linux")]

mod blocks;
mod directories;
mod killed;
mod metadata_kept;
#[path = "../common/needs.rs"]
mod needs;
mod own_state;
mod paths;
mod place;
mod races;
#[path = "../common/roles.rs"]
mod roles;
mod sandboxed;
mod streams;
mod support;
mod trees;
mod walk;
mod walk_oracle;
mod watch;
mod whole;
