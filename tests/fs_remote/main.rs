//! The files of this machine behind our own server: all that is tested on this machine itself holds there, too.
#![cfg(target_os = "linux")]
// A trait object needs no trait in scope.
#![allow(unused_imports)]

#[path = "../fs_local/blocks.rs"]
mod blocks;
#[path = "../fs_local/directories.rs"]
mod directories;
#[path = "../fs_local/metadata_kept.rs"]
mod metadata_kept;
#[path = "../common/needs.rs"]
mod needs;
#[path = "../fs_local/paths.rs"]
mod paths;
mod place;
#[path = "../fs_local/races.rs"]
mod races;
#[path = "../common/roles.rs"]
mod roles;
#[path = "../fs_local/sandboxed.rs"]
mod sandboxed;
#[path = "../fs_local/streams.rs"]
mod streams;
#[path = "../fs_local/support.rs"]
mod support;
#[path = "../fs_local/trees.rs"]
mod trees;
#[path = "../fs_local/walk.rs"]
mod walk;
#[path = "../fs_local/walk_oracle.rs"]
mod walk_oracle;
#[path = "../fs_local/watch.rs"]
mod watch;
#[path = "../fs_local/whole.rs"]
mod whole;
