//! Run processes behind one handle, on this machine or on another.

pub mod backend;
pub mod collect;
pub mod config;
pub mod core;
pub mod env_policy;
pub mod environment;
pub mod error;
pub mod event;
pub mod fs;
pub mod info;
pub mod path_uri;
pub mod process;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod time;
pub mod transport;
pub mod wire;

pub use crate::backend::ExecBackend;
pub use crate::backend::local::{Local, LocalConfig};
pub use crate::backend::remote::Remote;
pub use crate::collect::{CollectLimits, CollectedOutput};
pub use crate::env_policy::{EnvPolicy, ShellEnvPolicy};
pub use crate::environment::Environment;
pub use crate::event::{Event, OutputStream};
pub use crate::path_uri::PathUri;
pub use crate::process::{Process, ProcessHandle};
pub use crate::request::{ExecRequest, Signal, Stdin, TerminalSize};
pub use crate::status::ExitStatus;
pub use crate::transport::Transport;
