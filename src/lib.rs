//! Run processes behind one handle, on this machine or on another.

pub mod backend;
pub mod collect;
pub mod config;
pub mod core;
pub mod env_policy;
pub mod error;
pub mod event;
pub mod info;
pub mod path_uri;
pub mod process;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod status;
pub mod text;
mod time;
pub mod transport;
pub mod wire;

pub use crate::backend::remote::Remote;
pub use crate::env_policy::{EnvPolicy, ShellEnvPolicy};
pub use crate::request::ExecRequest;
