//! Absolute paths of some host as `file:` URIs that keep their meaning across operating systems.

/// An absolute path of some host, as a canonical `file:` URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathUri(String);

impl PathUri {
    /// Reads a `file:` URI.
    ///
    /// # Errors
    ///
    /// A [`PathUriError`].
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        let url = url::Url::parse(text).map_err(|error| PathUriError(format!("invalid URI: {error}")))?;
        if url.scheme() != "file" {
            return Err(PathUriError(format!("unsupported path URI scheme `{}`", url.scheme())));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(PathUriError("a path URI has no query and no fragment".into()));
        }
        Ok(Self(url.into()))
    }

    /// The URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no path URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathUriError(String);
