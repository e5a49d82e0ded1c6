//! The capability token that lets a client in.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// A token that a client must show. Only its digest is kept, and digests are compared in constant time.
#[derive(Clone)]
pub struct CapabilityToken {
    digest: [u8; 32],
}

/// A token cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read token file {path:?}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Arc<io::Error>,
    },
    /// The file holds nothing but white space.
    #[error("token file {path:?} is empty")]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The token is empty.
    #[error("the token is empty")]
    Empty,
    /// A digest is not 64 hexadecimal digits.
    #[error("a SHA-256 digest has 64 hexadecimal digits")]
    BadDigest,
}

impl CapabilityToken {
    /// The token itself.
    ///
    /// # Errors
    ///
    /// [`TokenError::Empty`].
    pub fn new(token: &str) -> Result<Self, TokenError> {
        if token.is_empty() {
            return Err(TokenError::Empty);
        }
        Ok(Self { digest: Sha256::digest(token).into() })
    }

    /// The content of a file, without white space around it.
    ///
    /// # Errors
    ///
    /// [`TokenError::Unreadable`] or [`TokenError::EmptyFile`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenError> {
        let path = path.as_ref();
        Self::new(&read_token_file(path)?).map_err(|_| TokenError::EmptyFile { path: path.into() })
    }

    /// The SHA-256 digest of the token, as 64 hexadecimal digits: the token itself need not be known here.
    ///
    /// # Errors
    ///
    /// [`TokenError::BadDigest`].
    pub fn from_sha256_hex(hex: &str) -> Result<Self, TokenError> {
        let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(TokenError::BadDigest)?;
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Ok(Self { digest })
    }

    /// Whether `candidate` is the token. The time it takes says nothing about the token.
    pub fn matches(&self, candidate: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(candidate).into();
        let difference = self.digest.iter().zip(digest).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

/// Shows nothing.
impl fmt::Debug for CapabilityToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapabilityToken(..)")
    }
}

/// The trimmed content of a token file.
fn read_token_file(path: &Path) -> Result<String, TokenError> {
    let unreadable = |source| TokenError::Unreadable { path: path.into(), source: Arc::new(source) };
    Ok(std::fs::read_to_string(path).map_err(unreadable)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_itself_only_in_each_of_its_forms() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, " \tabc\r\n").unwrap();
        // The digest of `abc`, from the standard's examples.
        let hex = "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for token in [
            CapabilityToken::new("abc").unwrap(),
            CapabilityToken::from_file(&path).unwrap(),
            CapabilityToken::from_sha256_hex(hex).unwrap(),
        ] {
            assert!(token.matches("abc"));
            for other in ["", "ab", "abcd", "ABC", " abc"] {
                assert!(!token.matches(other), "{other:?}");
            }
            assert_eq!(format!("{token:?}"), "CapabilityToken(..)");
        }
    }

    #[test]
    fn unusable_tokens_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(matches!(CapabilityToken::from_file(&path), Err(TokenError::Unreadable { .. })));
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(CapabilityToken::from_file(&path), Err(TokenError::EmptyFile { .. })));
        assert!(matches!(CapabilityToken::new(""), Err(TokenError::Empty)));
        for hex in ["", "ab", &"g".repeat(64), &"0".repeat(63), &"0".repeat(65)] {
            assert!(matches!(CapabilityToken::from_sha256_hex(hex), Err(TokenError::BadDigest)));
        }
    }
}
