//! The client against peers that are scripted, hostile, recorded, or our own server.

mod files;
mod hostile;
mod http;
mod lifecycle;
mod peer;
mod sandboxed_files;
mod slow_reader;
mod transcripts;
