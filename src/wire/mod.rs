//! The JSON messages of the wire: types and codec.
//!
//! One module per family of messages holds the parameters and results, [`method`] ties them to their names, and
//! [`codec`] turns bytes into messages and back. Nothing here does I/O or knows of time.
//!
//! Members of objects that are not known are ignored. Members that extend the plain wire stand in an object `longarm`
//! of a known message, and methods that extend it begin with `longarm/`; both are in [`extension`].

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![warn(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod bytes;
pub mod codec;
mod convert;
pub mod environment;
pub mod error_code;
pub mod extension;
pub mod fs;
mod fs_convert;
pub mod fs_error;
pub mod http;
pub mod http_error;
pub mod initialize;
pub mod method;
pub mod process;
pub mod request_id;
pub mod sandbox;
mod scalars;
mod scan;
pub mod spawn_error;
pub(crate) mod trace;

pub use self::bytes::Base64;
pub use self::error_code::ErrorCode;
pub(crate) use self::fs_convert::{follow_symlinks, symlinks};
pub use self::method::{Method, Notification};
pub use self::request_id::RequestId;
pub use self::trace::TraceMember;
