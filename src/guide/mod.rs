//! Pages to read, without code of their own.

pub mod drop_and_cancel;
pub mod executor;
pub mod extension;
pub mod files;
pub mod recovery;
pub mod sandbox;
