//! Means for tests: a fake place, and the contract that every real one has to keep.
//!
//! - [`fake`] runs async functions in place of programs, for tests of a host's own code without any process.
//! - [`contract`] checks an [`ExecBackend`](crate::backend::ExecBackend) of a host's own making.
//! - [`http_server`] is a small HTTP server on loopback, for tests of requests.

pub mod contract;
pub mod fake;
pub mod http_server;
pub(crate) mod patience;
