//! Parent, name, join and prefix, by the text alone. Nothing here looks at a file system.
//!
//! A URI with an encoded separator (`%2F`, and on Windows `%5C`) names more levels than it shows. These functions fail
//! closed on it: no parent, no name, no join, a prefix of nothing.

use std::borrow::Cow;

use super::native::{percent_decode, plain, resolve};
use super::{NativePath, PathConvention, PathForm, PathUri, PathUriError};

impl PathUri {
    /// The directory that holds the path. None at the root, the drive or the share, and for an opaque URI.
    pub fn parent(&self) -> Option<Self> {
        let names = self.names()?;
        let (_, above) = names.split_last().filter(|(_, above)| above.len() >= self.fixed_names())?;
        self.with_names(above.iter().map(AsRef::as_ref))
    }

    /// The last name of the path, decoded. None at the root, the drive or the share, and for an opaque URI.
    pub fn file_name(&self) -> Option<Cow<'_, [u8]>> {
        let names = self.names()?;
        if names.len() <= self.fixed_names() {
            return None;
        }
        names.into_iter().next_back()
    }

    /// Appends native text of the URI's own convention. An absolute text replaces the path; `..` never passes the root,
    /// the drive or the share. Characters that have a meaning in URIs are characters of names here.
    ///
    /// # Errors
    ///
    /// [`PathUriError::Join`] for an opaque base, a base with an encoded separator, a text that is relative to a drive
    /// (`C:x`), and a result that no plain URI expresses.
    pub fn join(&self, text: &str) -> Result<Self, PathUriError> {
        let failed = |reason| PathUriError::Join { base: self.to_string(), text: text.into(), reason };
        let base = self.names().ok_or_else(|| failed("the base is opaque or has an encoded separator"))?;
        let fixed = self.fixed_names();
        let convention = self.convention().ok_or_else(|| failed("the base belongs to no convention"))?;
        let mut kept = base.len();
        let mut text = text;
        if let Ok(absolute) = Self::from_native(&NativePath::from_text(text, convention)) {
            return Ok(absolute);
        }
        let separators: &[char] = match convention {
            PathConvention::Posix => &['/'],
            PathConvention::Windows => &['\\', '/'],
        };
        if convention == PathConvention::Windows {
            if text.as_bytes().get(1) == Some(&b':') {
                return Err(failed("it is relative to a drive"));
            }
            if let Some(rooted) = text.strip_prefix(separators) {
                text = rooted;
                kept = fixed;
            }
        }
        let names = base.iter().take(kept).map(AsRef::as_ref).chain(text.split(separators).map(str::as_bytes));
        self.with_names(resolve(names, fixed).into_iter()).ok_or_else(|| failed("the result has no plain URI"))
    }

    /// Whether `base` is this path or lies above it: the same authority, and the same names one by one, compared exactly.
    pub fn starts_with(&self, base: &Self) -> bool {
        if matches!(self.form(), PathForm::Opaque(_)) {
            return self == base;
        }
        let (Some(names), Some(base_names)) = (self.names(), base.names()) else {
            return false;
        };
        self.form() == base.form() && self.server() == base.server() && names.starts_with(&base_names)
    }

    /// Whether a name holds a separator once it is decoded, so that the URI means another path than it shows.
    pub(crate) fn has_encoded_separator(&self) -> bool {
        !matches!(self.form(), PathForm::Opaque(_)) && self.names().is_none()
    }

    /// The decoded names. None if the URI is opaque or a name holds a separator.
    fn names(&self) -> Option<Vec<Cow<'_, [u8]>>> {
        let windows = match self.form() {
            PathForm::Opaque(_) => return None,
            PathForm::Posix => false,
            PathForm::WindowsDrive | PathForm::WindowsUnc => true,
        };
        self.raw_segments()
            .map(|segment| {
                let name = percent_decode(segment);
                let separated = name.contains(&b'/') || windows && name.contains(&b'\\');
                (!separated).then_some(name)
            })
            .collect()
    }

    /// How many names belong to the root: the drive, or the share.
    fn fixed_names(&self) -> usize {
        match self.form() {
            PathForm::WindowsDrive | PathForm::WindowsUnc => 1,
            PathForm::Posix | PathForm::Opaque(_) => 0,
        }
    }

    fn with_names<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let uri = plain(self.server().unwrap_or_default().into(), names)?;
        (uri.form() == self.form()).then_some(uri)
    }
}
