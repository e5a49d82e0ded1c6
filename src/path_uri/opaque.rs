//! The opaque form: native bytes, as unpadded URL-safe base64, behind a prefix that no real path has.

use super::PathConvention;
use super::native;

/// The payload of a URI in opaque form. None if it has another form, or if the payload is not canonical base64.
pub(super) fn payload(uri: &str) -> Option<Vec<u8>> {
    let encoded = uri.strip_prefix(PREFIX).filter(|encoded| !encoded.is_empty())?;
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(encoded).ok()?;
    // Trailing bits that mean nothing would give one path two spellings.
    (encode(&bytes) == uri).then_some(bytes)
}

pub(super) fn encode(payload: &[u8]) -> String {
    format!("{PREFIX}{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(payload))
}

/// The convention of which a payload denotes an absolute path.
pub(super) fn convention(payload: &[u8]) -> Option<PathConvention> {
    if payload.first() == Some(&b'/') {
        return Some(PathConvention::Posix);
    }
    units(payload).filter(|units| native::is_windows_absolute(units)).map(|_| PathConvention::Windows)
}

/// The code units of a Windows payload.
pub(super) fn units(payload: &[u8]) -> Option<Vec<u16>> {
    let (pairs, rest) = payload.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect())
}

pub(super) fn from_units(units: &[u16]) -> String {
    let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    encode(&bytes)
}

const PREFIX: &str = "file:///%00/bad/path/";
