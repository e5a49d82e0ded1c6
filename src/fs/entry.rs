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
    /// A [`PathUriError`] if `directory` belongs to no convention.
    pub fn path_in(&self, directory: &PathUri) -> Result<PathUri, PathUriError> {
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
