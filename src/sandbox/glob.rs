//! Patterns of paths: how they are written, and what they match.
//!
//! A pattern is matched name by name, so that a match of a directory is a match of all below it, and the same parsed form
//! yields both the matcher and the regular expression that a policy of macOS needs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A denied pattern on this executor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoundGlob {
    /// The pattern as it was sent.
    pub text: String,
    /// The canonical directory below which it matches. Never the root of the file system.
    pub base: PathBuf,
    /// Whether that was found to be a directory.
    pub(crate) has_base: bool,
    pub(super) pattern: Pattern,
}

impl BoundGlob {
    /// How many components the longest beginning of `path` has that matches.
    pub(super) fn matched(&self, path: &Path) -> Option<usize> {
        let below = path.strip_prefix(&self.base).ok()?;
        let names = below.components().map(std::path::Component::as_os_str);
        self.pattern.longest_match(names).map(|names| self.base.components().count() + names)
    }
}

/// What a pattern is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Absolute,
    Home,
    Roots,
    Cwd,
}

/// Splits what a pattern is relative to from its beginning.
pub(super) fn anchor(pattern: &str, windows: bool) -> (Anchor, &str) {
    if let Some(rest) = pattern.strip_prefix(ROOTS_PREFIX) {
        (Anchor::Roots, rest)
    } else if let Some(rest) = pattern.strip_prefix("~/") {
        (Anchor::Home, rest)
    } else if pattern.starts_with('/') || windows && (pattern.starts_with('\\') || has_drive(pattern)) {
        (Anchor::Absolute, pattern)
    } else {
        (Anchor::Cwd, pattern)
    }
}

/// Whether a pattern depends on the intent's directory or roots, on the system that this runs on.
pub(super) fn is_relative(pattern: &str) -> bool {
    matches!(anchor(pattern, cfg!(windows)).0, Anchor::Cwd | Anchor::Roots)
}

/// Whether a pattern begins with a drive of Windows.
pub(super) fn has_drive(pattern: &str) -> bool {
    matches!(pattern.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic())
}

/// One alternative of a pattern: names that are meant literally, and then the pattern below them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alternative {
    /// Resolved against what the pattern is relative to; may hold `..`.
    pub(super) fixed: Vec<String>,
    pub(super) pattern: Pattern,
}

/// Parses the part of a pattern after its [`anchor`], which is this one.
///
/// # Errors
///
/// What is wrong with it, among that that it matches one path only.
pub(super) fn parse(text: &str, at: Anchor, windows: bool) -> Result<Vec<Alternative>, String> {
    if text.len() > MAX_PATTERN_BYTES {
        return Err(format!("it is longer than {MAX_PATTERN_BYTES} bytes"));
    }
    if text.contains('\0') {
        return Err("it holds a NUL".into());
    }
    let text = if windows { text.replace('\\', "/") } else { text.into() };
    let mut alternatives = Vec::new();
    expand_braces(&text, 0, &mut alternatives)?;
    // To a shell they would be absolute, or below the home directory: nobody can tell what is meant.
    let begins_anew = |text: &&String| anchor(text, windows).0 != Anchor::Cwd || has_drive(text);
    if at == Anchor::Cwd
        && let Some(other) = alternatives.iter().find(begins_anew)
    {
        return Err(format!("its braces come to `{other}`, which begins elsewhere: make it a pattern of its own"));
    }
    let many = alternatives.len() > 1;
    alternatives.iter().map(|text| alternative(text, many)).collect()
}

fn alternative(text: &str, many: bool) -> Result<Alternative, String> {
    let mut fixed = Vec::new();
    let mut segments = Vec::new();
    for name in text.split('/') {
        if matches!(name, "" | ".") {
            continue;
        }
        let segment = segment(name)?;
        match (&segment, segments.is_empty()) {
            (Segment::Name(pieces), true) if pieces.iter().all(|piece| matches!(piece, Piece::Unit(_))) => {
                fixed.push(unescaped(pieces));
            }
            // What the name before it is, nobody knows.
            _ if name == ".." => return Err("`..` comes after a wildcard".into()),
            _ => segments.push(segment),
        }
    }
    // Of several alternatives, each may be one path only.
    if segments.is_empty() && many {
        let name = fixed.pop().filter(|name| name != "..");
        segments.extend(name.map(|name| Segment::Name(name.chars().map(|char| Piece::Unit(char.into())).collect())));
    }
    match segments.last() {
        None => return Err("it has no wildcard: a path is an entry of its own".into()),
        Some(Segment::AnyDepth) => segments.push(Segment::Name(vec![Piece::Any])),
        Some(Segment::Name(_)) => {}
    }
    segments.dedup_by(|second, first| *first == Segment::AnyDepth && *second == Segment::AnyDepth);
    Ok(Alternative { fixed, pattern: Pattern { segments: segments.into() } })
}

fn unescaped(pieces: &[Piece]) -> String {
    pieces.iter().filter_map(|piece| if let Piece::Unit(unit) = piece { char::from_u32(*unit) } else { None }).collect()
}

fn segment(name: &str) -> Result<Segment, String> {
    if name == "**" {
        return Ok(Segment::AnyDepth);
    }
    if name.contains("**") {
        return Err(format!("`**` is part of the name `{name}`: it must stand alone"));
    }
    let mut pieces = Vec::new();
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        pieces.push(match char {
            '*' => Piece::Any,
            '?' => Piece::One,
            '\\' => Piece::Unit(chars.next().ok_or("it ends with a backslash")?.into()),
            '[' => {
                let (class, rest) = class(chars.as_str()).ok_or(NO_CLASS)?;
                chars = rest.chars();
                class
            }
            other => Piece::Unit(other.into()),
        });
    }
    Ok(Segment::Name(pieces))
}

/// A class, from behind its bracket, and what comes after it.
fn class(text: &str) -> Option<(Piece, &str)> {
    let negated = text.starts_with(['!', '^']);
    let mut chars = text.get(usize::from(negated)..)?.chars();
    let mut ranges = Vec::new();
    loop {
        let first = match chars.next()? {
            ']' if !ranges.is_empty() => return Some((Piece::Class { negated, ranges }, chars.as_str())),
            // A named class, or something that was meant to be one.
            '[' if chars.as_str().starts_with([':', '.', '=']) => return None,
            '\\' => chars.next()?,
            other => other,
        };
        let mut ahead = chars.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                chars = ahead;
                if last == '\\' { chars.next()? } else { last }
            }
            _ => first,
        };
        if first > last {
            return None;
        }
        ranges.push((first.into(), last.into()));
    }
}

/// The texts that a text with `{a,b}` stands for.
fn expand_braces(text: &str, within: usize, out: &mut Vec<String>) -> Result<(), String> {
    let Some((before, choices, after)) = first_braces(text)? else {
        if out.len() == MAX_ALTERNATIVES {
            return Err(format!("it has more than {MAX_ALTERNATIVES} alternatives"));
        }
        out.push(text.into());
        return Ok(());
    };
    // Each may stand for one choice only, and so add nothing to what is counted.
    if within == MAX_BRACES {
        return Err(format!("it has more than {MAX_BRACES} braces within or behind each other"));
    }
    for choice in choices {
        expand_braces(&format!("{before}{choice}{after}"), within + 1, out)?;
    }
    Ok(())
}

/// What is before braces, in them between commas, and after them.
type Braces<'a> = (&'a str, Vec<&'a str>, &'a str);

/// The first braces that are not inside others, a class or behind a backslash.
fn first_braces(text: &str) -> Result<Option<Braces<'_>>, String> {
    let (mut depth, mut open, mut from) = (0_usize, 0, 0);
    let mut choices = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => {
                chars.next();
            }
            '[' => {
                // To go on behind one that is none would be to look for its end again and again.
                let (_, rest) = class(text.get(at + 1..).unwrap_or_default()).ok_or(NO_CLASS)?;
                while chars.as_str().len() > rest.len() {
                    chars.next();
                }
            }
            '{' => {
                if depth == 0 {
                    (open, from) = (at, at + 1);
                }
                depth += 1;
            }
            ',' if depth == 1 => {
                choices.push(text.get(from..at).unwrap_or_default());
                from = at + 1;
            }
            '}' => {
                depth = depth.checked_sub(1).ok_or("a `}` has no `{`")?;
                if depth == 0 {
                    choices.push(text.get(from..at).unwrap_or_default());
                    let (before, after) = (text.get(..open), text.get(at + 1..));
                    return Ok(Some((before.unwrap_or_default(), choices, after.unwrap_or_default())));
                }
            }
            _ => {}
        }
    }
    if depth > 0 { Err("a `{` has no `}`".into()) } else { Ok(None) }
}

/// A pattern below a directory: one or more segments, the last of which is a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    segments: Arc<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    /// Any number of names, also none.
    AnyDepth,
    Name(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Piece {
    /// One character, or one byte that is not part of any, as [`units`] counts them.
    Unit(u32),
    One,
    Any,
    Class {
        negated: bool,
        ranges: Vec<(u32, u32)>,
    },
}

impl Pattern {
    /// How much of it there is to compare with a path.
    pub(super) fn size(&self) -> usize {
        let size = |segment: &Segment| match segment {
            Segment::AnyDepth => 1,
            Segment::Name(pieces) => 1 + pieces.len(),
        };
        self.segments.iter().map(size).sum()
    }

    /// How many names the longest beginning of `names` has that matches the whole pattern.
    pub(super) fn longest_match<'a>(&self, names: impl Iterator<Item = &'a OsStr>) -> Option<usize> {
        let mut states = self.start();
        let mut longest = None;
        for (at, name) in names.enumerate() {
            states = self.step(&states, name, &mut 0);
            if self.accepts(&states) {
                longest = Some(at + 1);
            }
            if !states.contains(&true) {
                break;
            }
        }
        longest
    }

    /// Where a walk begins: which segments may come next.
    pub(super) fn start(&self) -> Vec<bool> {
        let mut states = vec![false; self.segments.len() + 1];
        self.enter(0, &mut states);
        states
    }

    /// Which segments may come next after one more name. What was compared is added to `work`.
    pub(super) fn step(&self, states: &[bool], name: &OsStr, work: &mut u64) -> Vec<bool> {
        let units = units(name);
        let mut next = vec![false; self.segments.len() + 1];
        for (at, segment) in self.segments.iter().enumerate().filter(|(at, _)| states.get(*at) == Some(&true)) {
            match segment {
                Segment::AnyDepth => self.enter(at, &mut next),
                Segment::Name(pieces) if matches(pieces, &units, work) => self.enter(at + 1, &mut next),
                Segment::Name(_) => {}
            }
        }
        next
    }

    /// Whether the names so far match.
    pub(super) fn accepts(&self, states: &[bool]) -> bool {
        states.last() == Some(&true)
    }

    /// Marks a state, and those that it leads to without a name.
    fn enter(&self, from: usize, states: &mut [bool]) {
        for at in from.. {
            if let Some(state) = states.get_mut(at) {
                *state = true;
            }
            if self.segments.get(at) != Some(&Segment::AnyDepth) {
                break;
            }
        }
    }

    /// The pattern as a POSIX regular expression of what comes after the base and a slash, all below a match included.
    pub(super) fn to_regex(&self) -> String {
        let mut regex = String::new();
        for (at, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::AnyDepth => regex.push_str("(.*/)?"),
                Segment::Name(pieces) => {
                    pieces.iter().for_each(|piece| piece.to_regex(&mut regex));
                    if at + 1 < self.segments.len() {
                        regex.push('/');
                    }
                }
            }
        }
        regex.push_str("(/.*)?$");
        regex
    }
}

impl Piece {
    fn to_regex(&self, regex: &mut String) {
        match self {
            Self::Any => regex.push_str("[^/]*"),
            Self::One => regex.push_str("[^/]"),
            Self::Unit(unit) => char::from_u32(*unit).into_iter().for_each(|char| push_escaped(char, regex)),
            Self::Class { negated, ranges } => class_to_regex(*negated, ranges, regex),
        }
    }

    fn takes(&self, unit: u32) -> bool {
        match self {
            Self::Unit(literal) => *literal == unit,
            Self::One | Self::Any => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&unit)) != *negated
            }
        }
    }
}

/// Writes a class; within brackets, only the places of `]`, `^` and `-` mean something.
fn class_to_regex(negated: bool, ranges: &[(u32, u32)], regex: &mut String) {
    let mut items = String::new();
    let (mut bracket, mut caret, mut dash) = (false, false, false);
    for &(first, last) in ranges {
        let [Some(first), Some(last)] = [first, last].map(char::from_u32) else { continue };
        // A range that begins or ends with one of these is written as its ends and what is between them.
        let special = |char: char| matches!(char, ']' | '^' | '-' | '[' | '\\');
        let (mut from, mut to) = (u32::from(first), u32::from(last));
        for end in [first, last] {
            bracket |= end == ']';
            caret |= end == '^';
            dash |= end == '-';
            if matches!(end, '[' | '\\') {
                items.push(end);
            }
        }
        from += u32::from(special(first));
        to = if special(last) { to.saturating_sub(1) } else { to };
        let [Some(from), Some(to)] = [from, to].map(char::from_u32) else { continue };
        if from < to {
            items.extend([from, '-', to]);
        } else if from == to {
            items.push(from);
        }
    }
    if negated {
        regex.push_str("[^");
        regex.extend(bracket.then_some(']'));
        regex.push('/');
    } else if caret && !bracket && items.is_empty() {
        // At the beginning it would mean the opposite.
        regex.push_str(if dash { "[-^]" } else { "\\^" });
        return;
    } else {
        regex.push('[');
        regex.extend(bracket.then_some(']'));
    }
    regex.push_str(&items);
    regex.extend(caret.then_some('^'));
    regex.extend(dash.then_some('-'));
    regex.push(']');
}

/// Writes a character that stands for itself.
pub(super) fn push_escaped(char: char, regex: &mut String) {
    if matches!(char, '.' | '[' | ']' | '(' | ')' | '{' | '}' | '*' | '+' | '?' | '|' | '^' | '$' | '\\') {
        regex.push('\\');
    }
    regex.push(char);
}

/// Whether a whole name matches.
fn matches(pieces: &[Piece], name: &[u32], work: &mut u64) -> bool {
    let (mut piece, mut at) = (0, 0);
    // Where to go on when what followed the last `*` did not fit: it takes one more.
    let mut retry = None;
    loop {
        *work += 1;
        match (pieces.get(piece), name.get(at)) {
            (Some(Piece::Any), _) => {
                retry = Some((piece, at));
                piece += 1;
            }
            (Some(wanted), Some(unit)) if wanted.takes(*unit) => {
                piece += 1;
                at += 1;
            }
            (None, None) => return true,
            _ => match retry {
                Some((any, from)) if from < name.len() => {
                    retry = Some((any, from + 1));
                    (piece, at) = (any + 1, from + 1);
                }
                _ => return false,
            },
        }
    }
}

/// The characters of a name, and the bytes that belong to none as numbers that no character has.
fn units(name: &OsStr) -> Vec<u32> {
    let mut units = Vec::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        units.extend(chunk.valid().chars().map(u32::from));
        units.extend(chunk.invalid().iter().map(|byte| NO_CHARACTER + u32::from(*byte)));
    }
    units
}

const ROOTS_PREFIX: &str = "codex-project-roots://";
const MAX_PATTERN_BYTES: usize = 4096;
const MAX_ALTERNATIVES: usize = 64;
const MAX_BRACES: usize = 64;
const NO_CLASS: &str = "it has no valid `[…]` where it has a `[`";
const NO_CHARACTER: u32 = 0x11_0000;

#[cfg(test)]
mod tests;
