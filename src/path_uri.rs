//! Absolute paths of some host as `file:` URIs that keep their meaning across operating systems.

/// An absolute path of some host, as a canonical `file:` URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathUri(String);
