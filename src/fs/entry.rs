//! What a path is, and what a directory holds.

use std::time::SystemTime;

use crate::path_uri::{NativePath, PathConvention, PathUri, PathUriError};

/// What a path is. A FIFO or a device is neither a directory nor a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Whether it is, or a link leads to, a directory.
    pub is_directory: bool,
    /// Whether it is, or a link leads to, a regular file.
    pub is_file: bool,
    /// Whether the path itself is a symbolic link.
    pub is_symlink: bool,
    /// The size in bytes.
    pub size: u64,
    /// When it was created, if the place says.
    pub created: Option<SystemTime>,
    /// When its content was last changed, if the place says.
    pub modified: Option<SystemTime>,
}

/// An entry of a directory. What it is, is said of the target of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryEntry {
    /// The name, with U+FFFD in place of what is not Unicode.
    pub file_name: String,
    /// The bytes of the name, if they are not Unicode and the place can say. On Windows always absent.
    pub raw_name: Option<Vec<u8>>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is a regular file.
    pub is_file: bool,
}

impl DirectoryEntry {
    /// An entry with a Unicode name.
    pub fn new(file_name: impl Into<String>, is_directory: bool, is_file: bool) -> Self {
        Self { file_name: file_name.into(), raw_name: None, is_directory, is_file }
    }

    /// Whether [`file_name`](Self::file_name) may not be the real name, and that is not known.
    pub fn is_lossy(&self) -> bool {
        self.raw_name.is_none() && self.file_name.contains(char::REPLACEMENT_CHARACTER)
    }

    /// The entry's own path, if `directory` is the path of the directory that was read.
    ///
    /// # Errors
    ///
    /// A [`PathUriError`] if `directory` belongs to no convention, or if there the name of the entry would lead somewhere
    /// else, as one with `\\` does below a directory of Windows.
    pub fn path_in(&self, directory: &PathUri) -> Result<PathUri, PathUriError> {
        let convention = directory.convention().unwrap_or(PathConvention::Posix);
        if !is_name(self.raw_name.as_deref().unwrap_or(self.file_name.as_bytes()), convention) {
            let (base, text) = (directory.to_string(), self.file_name.clone());
            return Err(PathUriError::Join { base, text, reason: "it is not the name of an entry there" });
        }
        match directory.to_native(directory.convention().map_or("", PathConvention::an_os))? {
            NativePath::Posix(mut path) => {
                path.push(b'/');
                path.extend_from_slice(self.raw_name.as_deref().unwrap_or(self.file_name.as_bytes()));
                PathUri::from_native(&NativePath::Posix(path))
            }
            NativePath::Windows(mut path) => {
                path.push(b'\\'.into());
                path.extend(self.file_name.encode_utf16());
                PathUri::from_native(&NativePath::Windows(path))
            }
        }
    }
}

/// Whether this can be the name of an entry of a directory in such a place. Any other leads out of the directory.
pub(crate) fn is_name(name: &[u8], convention: PathConvention) -> bool {
    let forbidden: &[u8] = match convention {
        PathConvention::Posix => b"/\0",
        PathConvention::Windows => b"/\\:\0",
    };
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| forbidden.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrys_path_lies_in_the_directory_or_there_is_none() {
        let [posix, windows] = ["file:///a", "file:///C:/a"].map(|text| PathUri::parse(text).unwrap());
        let path = |name: &str, directory| DirectoryEntry::new(name, false, true).path_in(directory);
        assert_eq!(path("b", &posix).unwrap().as_str(), "file:///a/b");
        assert!(path("..\\b", &posix).is_ok() && path("C:", &posix).is_ok());
        for name in ["", ".", "..", "../b", "/b"] {
            assert!(matches!(path(name, &posix), Err(PathUriError::Join { .. })), "{name:?}");
        }
        assert_eq!(path("b", &windows).unwrap().as_str(), "file:///C:/a/b");
        for name in ["..", "..\\b", "../b", "D:b", "b:stream"] {
            assert!(matches!(path(name, &windows), Err(PathUriError::Join { .. })), "{name:?}");
        }
        let mut entry = DirectoryEntry::new("\u{FFFD}", false, true);
        entry.raw_name = Some(b"/\xFF".to_vec());
        assert!(entry.path_in(&posix).is_err());
    }
}
