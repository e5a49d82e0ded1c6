//! What a restricted token enforces, and what it consists of.

use std::fmt;

use crate::sandbox::bound::{Bound, Class};
use crate::sandbox::error::SandboxError;
use crate::sandbox::intent::{Access, NetworkPolicy};

/// What a sandbox for a process lacks, where it can be made.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] for what a restricted token cannot enforce, and for all if the owner does not accept a partial
/// sandbox.
pub(crate) fn admit(bound: &Bound, managed: bool, accept_partial: bool) -> Result<Vec<String>, SandboxError> {
    let refuse = |cause: &str, remedy: &str| Err(SandboxError::unavailable(cause, remedy));
    if managed {
        return refuse(
            "only filters of the network for an account of its own could let a process reach given ports and nothing else, and no \
             elevated set-up has made them",
            "send the intent without a managed network",
        );
    }
    match bound.class {
        Class::Nothing | Class::FullWrite => {
            return refuse(
                "nothing but the network is restricted, and without an elevated set-up that cannot be enforced",
                "restrict the files too, or send the intent with the network enabled",
            );
        }
        Class::RestrictedRead => {
            return refuse(
                "a write-restricted token reads all that its user can read",
                "let everything be read, without denied paths and patterns",
            );
        }
        Class::FullRead => {}
    }
    let writes = bound.entries.iter().any(|entry| entry.access == Access::Write) || bound.root == Some(Access::Write);
    if writes {
        return refuse(
            "a writable directory would need access control entries that stay on it and on all that is in it when the command has \
             ended, and this version makes none",
            "let nothing be written, and write by calls about files that have no intent",
        );
    }
    let mut lacks = vec![
        "what this version enforces on Windows has not been proven on it",
        "what everyone, or whoever is logged on, may write to can be written",
        "other processes of the same user can be read, and services asked to act for it",
    ];
    if bound.network == NetworkPolicy::Restricted {
        lacks.push("the network is not restricted");
    }
    if !accept_partial {
        return Err(SandboxError::unavailable(
            format!("the sandbox would be partial: {}", lacks.join("; ")),
            "the executor's owner can accept that (`SandboxSettings::accept_partial`)",
        ));
    }
    Ok(lacks.into_iter().map(str::to_owned).collect())
}

/// An identity, as the system's access checks know it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sid {
    authority: [u8; 6],
    parts: Vec<u32>,
}

impl Sid {
    /// Everyone: S-1-1-0.
    pub(crate) fn everyone() -> Self {
        Self { authority: [0, 0, 0, 0, 0, 1], parts: vec![0] }
    }

    /// The system itself: S-1-5-18.
    pub(crate) fn system() -> Self {
        Self { authority: NT_AUTHORITY, parts: vec![18] }
    }

    /// One that nobody else has, made of random bits.
    pub(crate) fn of_sandbox(random: u128) -> Self {
        let [.., a, b, c, d] = [random >> 96, random >> 64, random >> 32, random].map(|bits| bits as u32);
        Self { authority: NT_AUTHORITY, parts: vec![NOT_UNIQUE, a, b, c, d] }
    }

    /// One in the system's form, at the beginning of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([revision, count, authority @ ..], rest) = bytes.split_first_chunk::<8>()?;
        let parts = rest.get(..4 * usize::from(*count))?.as_chunks::<4>().0;
        let is_one = *revision == REVISION && *count <= MOST_PARTS;
        is_one.then(|| Self {
            authority: *authority,
            parts: parts.iter().map(|part| u32::from_le_bytes(*part)).collect(),
        })
    }

    /// The system's form.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![REVISION, self.parts.len() as u8];
        bytes.extend(self.authority);
        bytes.extend(self.parts.iter().flat_map(|part| part.to_le_bytes()));
        bytes
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        write!(f, "S-{REVISION}-{authority}")?;
        self.parts.iter().try_for_each(|part| write!(f, "-{part}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a restricted token is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenPlan {
    /// How the executor's own token is restricted.
    pub(crate) flags: u32,
    /// The identities of which one must be let write, in this order.
    pub(crate) restricting: Vec<Sid>,
    /// The access control list of what its processes make, in the system's form.
    pub(crate) default_acl: Vec<u8>,
}

impl TokenPlan {
    /// The token for one process of this user, who is logged on under this identity. A service may have none of the latter.
    pub(crate) fn new(user: &Sid, logon: Option<Sid>, random: u128) -> Self {
        let own = Sid::of_sandbox(random);
        let default_acl = acl(&[(GENERIC_ALL, &own), (GENERIC_ALL, user), (GENERIC_ALL, &Sid::system())]);
        let restricting = std::iter::once(own).chain(logon).chain([Sid::everyone()]).collect();
        Self { flags: DISABLE_MAX_PRIVILEGE | LUA_TOKEN | WRITE_RESTRICTED, restricting, default_acl }
    }
}

/// An access control list that allows this, in the system's form.
fn acl(allowed: &[(u32, &Sid)]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (mask, sid) in allowed {
        let sid = sid.bytes();
        let size = (ENTRY_HEADER_BYTES + sid.len()) as u16;
        entries.extend([ALLOWED, 0]);
        entries.extend(size.to_le_bytes());
        entries.extend(mask.to_le_bytes());
        entries.extend(sid);
    }
    let size = (LIST_HEADER_BYTES + entries.len()) as u16;
    let mut list = vec![LIST_REVISION, 0];
    list.extend(size.to_le_bytes());
    list.extend((allowed.len() as u16).to_le_bytes());
    list.extend([0, 0]);
    list.extend(entries);
    list
}

const REVISION: u8 = 1;
const MOST_PARTS: u8 = 15;
const NT_AUTHORITY: [u8; 6] = [0, 0, 0, 0, 0, 5];
/// The first part of identities that a machine or a domain gives out.
const NOT_UNIQUE: u32 = 21;
/// Takes all privileges away but that to pass through directories.
const DISABLE_MAX_PRIVILEGE: u32 = 0x1;
/// As that of a user without administrators' rights.
const LUA_TOKEN: u32 = 0x4;
/// The restricting identities count for writing only.
const WRITE_RESTRICTED: u32 = 0x8;
const GENERIC_ALL: u32 = 0x1000_0000;
const LIST_REVISION: u8 = 2;
const LIST_HEADER_BYTES: usize = 8;
/// The type of an entry that allows.
const ALLOWED: u8 = 0;
/// The header and the mask.
const ENTRY_HEADER_BYTES: usize = 8;
