//! Run processes behind one handle, on this machine or on another.

pub mod backend;
pub mod config;
pub mod core;
pub mod env_policy;
pub mod error;
pub mod event;
pub mod info;
pub mod path_uri;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod status;
mod time;
pub mod transport;
pub mod wire;

pub use crate::backend::remote::Remote;
pub use crate::env_policy::{EnvPolicy, ShellEnvPolicy};
pub use crate::request::ExecRequest;
