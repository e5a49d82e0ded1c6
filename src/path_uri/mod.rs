//! Absolute paths of some host as `file:` URIs that keep their meaning across operating systems.
//!
//! A [`PathUri`] does not depend on the host that parses it: a Linux host parses the path of a Windows machine and the
//! other way round. Whether a path can be *used* is decided later, by [`PathUri::to_native`] and
//! [`PathUri::to_host_native_path`], which refuse the paths of another convention.
//!
//! A native path that no plain `file:` URI can express (one that holds a NUL, a POSIX directory named like a drive, a
//! Windows device path) travels in an *opaque form*, `file:///%00/bad/path/…`, that carries its bytes.

mod host;
mod lexical;
mod native;
mod opaque;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::error::InvalidRequest;

pub use self::native::NativePath;

/// An absolute path of some host, as a canonical `file:` URI.
///
/// ```
/// use longarm::path_uri::{PathConvention, PathUri};
///
/// let uri = PathUri::parse("FILE:/srv/./data/../my files").unwrap();
/// assert_eq!(uri.as_str(), "file:///srv/my%20files");
/// assert_eq!(uri.convention(), Some(PathConvention::Posix));
///
/// let foreign = PathUri::parse("file:///c:/Windows").unwrap();
/// let error = foreign.to_native("linux").unwrap_err();
/// assert_eq!(error.to_string(), "'file:///C:/Windows' is invalid on 'linux'");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathUri(String);

impl PathUri {
    /// Parses a `file:` URI by the rules of WHATWG URLs and brings it into its canonical form.
    ///
    /// # Errors
    ///
    /// A [`PathUriError`] if the text is no URI, or one that is not a path: another scheme, a query, a fragment, a port,
    /// credentials, or an encoded NUL outside the opaque form.
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        let url = Url::parse(text).map_err(|error| PathUriError::NotAUri(error.to_string()))?;
        if url.scheme() != "file" {
            return Err(PathUriError::Scheme(url.scheme().into()));
        }
        if url.query().is_some() {
            return Err(PathUriError::Query);
        }
        if url.fragment().is_some() {
            return Err(PathUriError::Fragment);
        }
        let mut uri = Self(url.into());
        if uri.raw_path().contains("%00") && opaque::payload(uri.as_str()).is_none() {
            return Err(uri.invalid_on(host::OS));
        }
        // Whoever reads it next would take the drive and forget the server.
        if uri.server().is_some() && uri.raw_segments().next().is_some_and(is_drive_segment) {
            return Err(PathUriError::NotAUri("it has a server and a drive".into()));
        }
        uri.uppercase_drive_letter();
        Ok(uri)
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How the URI is to be read.
    pub fn form(&self) -> PathForm {
        if let Some(payload) = opaque::payload(self.as_str()) {
            return PathForm::Opaque(opaque::convention(&payload));
        }
        if self.server().is_some() {
            return PathForm::WindowsUnc;
        }
        match self.raw_segments().next() {
            Some(first) if is_drive_segment(first) => PathForm::WindowsDrive,
            _ => PathForm::Posix,
        }
    }

    /// The path convention that the URI belongs to; absent for an opaque form that denotes no absolute path of either.
    pub fn convention(&self) -> Option<PathConvention> {
        match self.form() {
            PathForm::Posix => Some(PathConvention::Posix),
            PathForm::WindowsDrive | PathForm::WindowsUnc => Some(PathConvention::Windows),
            PathForm::Opaque(convention) => convention,
        }
    }

    /// The path as this host's native path.
    ///
    /// # Errors
    ///
    /// [`PathUriError::Foreign`] if it belongs to another convention or cannot be converted.
    pub fn to_host_native_path(&self) -> Result<PathBuf, PathUriError> {
        host::to_path(&self.to_native(host::OS)?).ok_or_else(|| self.invalid_on(host::OS))
    }

    /// The path as native bytes or code units of the operating system `os` (`linux`, `macos`, `windows`, …).
    ///
    /// # Errors
    ///
    /// [`PathUriError::Foreign`] if it belongs to another convention or cannot be converted.
    pub fn to_native(&self, os: &str) -> Result<NativePath, PathUriError> {
        let native = match PathConvention::of_os(os) {
            PathConvention::Posix => native::to_posix(self).map(NativePath::Posix),
            PathConvention::Windows => native::to_windows(self).map(NativePath::Windows),
        };
        native.ok_or_else(|| self.invalid_on(os))
    }

    /// The URI of an absolute path of this host. `.` and `..` are resolved by their text.
    ///
    /// # Errors
    ///
    /// [`PathUriError::NotAbsolute`].
    pub fn from_host_native_path(path: impl AsRef<Path>) -> Result<Self, PathUriError> {
        Self::from_native(&host::from_path(path.as_ref()))
    }

    /// The URI of an absolute native path of any host. `.` and `..` are resolved by their text.
    ///
    /// # Errors
    ///
    /// [`PathUriError::NotAbsolute`].
    pub fn from_native(path: &NativePath) -> Result<Self, PathUriError> {
        let uri = match path {
            NativePath::Posix(bytes) => native::from_posix(bytes),
            NativePath::Windows(units) => native::from_windows(units),
        };
        uri.ok_or_else(|| PathUriError::NotAbsolute(path.to_string()))
    }

    /// The URI of an absolute native path of any host, given as text.
    ///
    /// # Errors
    ///
    /// [`PathUriError::NotAbsolute`].
    pub fn from_native_text(text: &str, convention: PathConvention) -> Result<Self, PathUriError> {
        Self::from_native(&NativePath::from_text(text, convention))
    }

    fn invalid_on(&self, os: &str) -> PathUriError {
        PathUriError::Foreign { uri: self.0.clone(), os: os.into() }
    }

    /// Everything after the authority; begins with a slash.
    fn raw_path(&self) -> &str {
        let rest = self.after_scheme();
        rest.find('/').map_or("", |slash| rest.get(slash..).unwrap_or_default())
    }

    /// The host, if there is one.
    fn server(&self) -> Option<&str> {
        let rest = self.after_scheme();
        rest.split('/').next().filter(|host| !host.is_empty())
    }

    fn after_scheme(&self) -> &str {
        self.0.strip_prefix(SCHEME).unwrap_or_default()
    }

    /// The segments of the path that are not empty, still percent-encoded.
    fn raw_segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.raw_path().split('/').filter(|segment| !segment.is_empty())
    }

    fn uppercase_drive_letter(&mut self) {
        if self.form() != PathForm::WindowsDrive {
            return;
        }
        let letter = self.raw_path().bytes().position(|byte| byte != b'/');
        if let Some(at) = letter.map(|offset| self.0.len() - self.raw_path().len() + offset)
            && let Some(letter) = self.0.get_mut(at..=at)
        {
            letter.make_ascii_uppercase();
        }
    }
}

/// A literal ASCII letter followed by a colon, which may be encoded.
fn is_drive_segment(segment: &str) -> bool {
    let mut chars = segment.chars();
    chars.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && matches!(chars.as_str(), ":" | "%3A" | "%3a")
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PathUri").field(&self.0).finish()
    }
}

impl FromStr for PathUri {
    type Err = PathUriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// How a path is written natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathConvention {
    /// Bytes, separated by `/`.
    Posix,
    /// UTF-16 code units, separated by `\`, with a drive or a server and share.
    Windows,
}

impl PathConvention {
    /// The convention of this host.
    pub const HOST: Self = host::CONVENTION;

    /// The convention of an operating system, by its name: `windows`, or any other for POSIX.
    pub fn of_os(os: &str) -> Self {
        if os.eq_ignore_ascii_case("windows") { Self::Windows } else { Self::Posix }
    }

    /// The name of an operating system that has this convention.
    pub(crate) fn an_os(self) -> &'static str {
        match self {
            Self::Posix => "linux",
            Self::Windows => "windows",
        }
    }
}

/// The form of a [`PathUri`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathForm {
    /// `file:///a/b`
    Posix,
    /// `file:///C:/a`
    WindowsDrive,
    /// `file://server/share/a`
    WindowsUnc,
    /// `file:///%00/bad/path/…`: the bytes of a path that no other form expresses, with its convention if they denote an
    /// absolute path of one.
    Opaque(Option<PathConvention>),
}

/// A text that is no path URI, or a path URI that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathUriError {
    /// Not an absolute URI.
    #[error("invalid URI: {0}")]
    NotAUri(String),
    /// A URI of another scheme.
    #[error("unsupported path URI scheme `{0}`")]
    Scheme(String),
    /// There is a query, if only an empty one.
    #[error("query parameters are not allowed in path URIs")]
    Query,
    /// There is a fragment, if only an empty one.
    #[error("fragments are not allowed in path URIs")]
    Fragment,
    /// A path that the operating system cannot use: of another convention, or not convertible.
    #[error("'{uri}' is invalid on '{os}'")]
    Foreign {
        /// The canonical URI.
        uri: String,
        /// The operating system.
        os: String,
    },
    /// A native path that is not absolute.
    #[error("path '{0}' is not absolute")]
    NotAbsolute(String),
    /// A text that cannot be joined to the base.
    #[error("'{text}' cannot be joined to '{base}': {reason}")]
    Join {
        /// The base.
        base: String,
        /// The text.
        text: String,
        /// Why not.
        reason: &'static str,
    },
}

impl From<PathUriError> for InvalidRequest {
    fn from(error: PathUriError) -> Self {
        match error {
            PathUriError::Foreign { uri, os } => Self::ForeignPath { uri, os },
            PathUriError::NotAbsolute(path) => Self::RelativeCwd { path: path.into() },
            other => Self::Other(other.to_string()),
        }
    }
}

const SCHEME: &str = "file://";
