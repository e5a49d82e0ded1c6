//! Between URIs and native paths of either convention.

use std::borrow::Cow;
use std::fmt;

use super::{PathConvention, PathForm, PathUri, SCHEME, opaque};

/// An absolute path in the native form of some host, not necessarily of this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NativePath {
    /// Bytes of a POSIX path.
    Posix(Vec<u8>),
    /// UTF-16 code units of a Windows path.
    Windows(Vec<u16>),
}

impl NativePath {
    /// Whether it holds a NUL, which would cut it short.
    pub fn contains_nul(&self) -> bool {
        match self {
            Self::Posix(bytes) => bytes.contains(&0),
            Self::Windows(units) => units.contains(&0),
        }
    }

    /// The native form of a text.
    pub fn from_text(text: &str, convention: PathConvention) -> Self {
        match convention {
            PathConvention::Posix => Self::Posix(text.into()),
            PathConvention::Windows => Self::Windows(text.encode_utf16().collect()),
        }
    }
}

/// Shows the path as text, with marks in place of what is not Unicode.
impl fmt::Display for NativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posix(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Windows(units) => f.write_str(&String::from_utf16_lossy(units)),
        }
    }
}

/// The POSIX path of a URI. Every segment is decoded to bytes; a trailing slash is dropped.
pub(super) fn to_posix(uri: &PathUri) -> Option<Vec<u8>> {
    match uri.form() {
        PathForm::Opaque(Some(PathConvention::Posix)) => {
            opaque::payload(uri.as_str()).filter(|path| plain_posix(path).is_none())
        }
        PathForm::Posix => {
            let mut path = Vec::new();
            for segment in uri.raw_segments() {
                path.push(b'/');
                path.extend_from_slice(&percent_decode(segment));
            }
            if path.is_empty() {
                path.push(b'/');
            }
            Some(path)
        }
        _ => None,
    }
}

/// The Windows path of a URI. None if a segment does not decode to a Unicode name without separators.
pub(super) fn to_windows(uri: &PathUri) -> Option<Vec<u16>> {
    match uri.form() {
        PathForm::Opaque(Some(PathConvention::Windows)) => {
            let units = opaque::units(&opaque::payload(uri.as_str())?)?;
            plain_windows(&units).is_none().then_some(units)
        }
        PathForm::WindowsDrive => {
            let mut names = windows_names(uri)?.into_iter();
            let mut path = names.next()?;
            path.push('\\');
            path.push_str(&names.collect::<Vec<_>>().join("\\"));
            Some(path.encode_utf16().collect())
        }
        PathForm::WindowsUnc => {
            let names = windows_names(uri)?;
            if names.is_empty() {
                return None;
            }
            Some(format!("\\\\{}\\{}", uri.server()?, names.join("\\")).encode_utf16().collect())
        }
        _ => None,
    }
}

fn windows_names(uri: &PathUri) -> Option<Vec<String>> {
    uri.raw_segments()
        .map(|segment| {
            let name = String::from_utf8(percent_decode(segment).into_owned()).ok()?;
            (!name.contains(['/', '\\'])).then_some(name)
        })
        .collect()
}

/// The URI of a POSIX path; opaque where no plain one gives the path back. None if it is not absolute.
pub(super) fn from_posix(path: &[u8]) -> Option<PathUri> {
    if path.first() != Some(&b'/') {
        return None;
    }
    Some(plain_posix(path).unwrap_or_else(|| PathUri(opaque::encode(path))))
}

/// The plain URI of an absolute POSIX path, if there is one.
fn plain_posix(path: &[u8]) -> Option<PathUri> {
    let names = resolve(path.split(|byte| *byte == b'/'), 0);
    let uri = plain(String::new(), names.iter().copied())?;
    (uri.form() == PathForm::Posix).then_some(uri)
}

/// The URI of a Windows path; opaque where no plain one gives the path back. None if it is not absolute.
pub(super) fn from_windows(path: &[u16]) -> Option<PathUri> {
    if !is_windows_absolute(path) {
        return None;
    }
    Some(plain_windows(path).unwrap_or_else(|| PathUri(opaque::from_units(path))))
}

/// Whether code units begin with a drive and a root, or with two separators.
pub(super) fn is_windows_absolute(path: &[u16]) -> bool {
    match *path {
        [drive, colon, separator, ..] if colon == u16::from(b':') => is_letter(drive) && is_separator(separator),
        [first, second, ..] => is_separator(first) && is_separator(second),
        _ => false,
    }
}

/// The plain URI of an absolute Windows path, if there is one: of a drive path or a share, verbatim or not.
fn plain_windows(path: &[u16]) -> Option<PathUri> {
    let text = String::from_utf16(path).ok()?;
    let (text, verbatim) = match text.strip_prefix(r"\\?\") {
        Some(rest) => (rest.strip_prefix(r"UNC\").map_or_else(|| rest.into(), |share| format!(r"\\{share}")), true),
        None => (text, false),
    };
    // In a verbatim path nothing but a backslash separates, and dots are names.
    let separators: &[char] = if verbatim { &['\\'] } else { &['\\', '/'] };
    let (authority, path) = match text.strip_prefix(separators).and_then(|rest| rest.strip_prefix(separators)) {
        Some(share) => {
            let (server, rest) = share.split_once(separators)?;
            if matches!(server, "" | "." | "?") {
                return None;
            }
            (server.to_ascii_lowercase(), rest.to_owned())
        }
        // The volume itself (`\\?\C:`) is not its root directory.
        None if text.as_bytes().get(2).is_some_and(|byte| is_separator((*byte).into())) => (String::new(), text),
        None => return None,
    };
    let mut names: Vec<&[u8]> = path.split(separators).map(str::as_bytes).collect();
    if verbatim {
        if names.last().is_some_and(|last| last.is_empty()) {
            names.pop();
        }
        if names.iter().any(|name| matches!(*name, b"" | b"." | b"..") || name.contains(&b'/')) {
            return None;
        }
    } else {
        names = resolve(names.into_iter(), 1);
    }
    if names.is_empty() {
        return None;
    }
    let form = if authority.is_empty() { PathForm::WindowsDrive } else { PathForm::WindowsUnc };
    let uri = plain(authority, names.into_iter())?;
    (uri.form() == form).then_some(uri)
}

/// Resolves dots by their text; the first `fixed` names are never removed.
pub(super) fn resolve<'a>(names: impl Iterator<Item = &'a [u8]>, fixed: usize) -> Vec<&'a [u8]> {
    let mut resolved = Vec::new();
    for name in names {
        match name {
            b"" | b"." => {}
            b".." => {
                if resolved.len() > fixed {
                    resolved.pop();
                }
            }
            name => resolved.push(name),
        }
    }
    resolved
}

/// The plain URI of these names, if it stays what it is when it is parsed: a NUL, a name like a drive or a server that is
/// no host would change its meaning.
pub(super) fn plain<'a>(authority: String, names: impl Iterator<Item = &'a [u8]>) -> Option<PathUri> {
    let mut text = format!("{SCHEME}{authority}");
    let bare = text.len();
    for name in names {
        text.push('/');
        percent_encode(name, &mut text);
    }
    if text.len() == bare {
        text.push('/');
    }
    let uri = PathUri::parse(&text).ok()?;
    let same = match uri.form() {
        PathForm::WindowsDrive => uri.as_str().eq_ignore_ascii_case(&text),
        _ => uri.as_str() == text,
    };
    same.then_some(uri)
}

pub(super) fn percent_encode(name: &[u8], out: &mut String) {
    for &byte in name {
        let literal = byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'#' | b'%' | b'<' | b'>' | b'?' | b'\\' | b'`' | b'{' | b'}');
        if literal && byte != b'/' {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
    }
}

/// Decodes `%XX`; what is not followed by two digits is literal text.
pub(super) fn percent_decode(segment: &str) -> Cow<'_, [u8]> {
    let bytes = segment.as_bytes();
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match *tail {
            [high, low, ref after @ ..] if first == b'%' => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => first,
            },
            _ => first,
        });
    }
    Cow::Owned(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn is_letter(unit: u16) -> bool {
    u8::try_from(unit).is_ok_and(|byte| byte.is_ascii_alphabetic())
}

fn is_separator(unit: u16) -> bool {
    unit == u16::from(b'\\') || unit == u16::from(b'/')
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";
