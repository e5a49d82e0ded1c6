//! Processes in sandboxes of Windows: they run with a token that may write nothing but what its own identities may.
//!
//! What this decides it decides by [`crate::sandbox::token`], which is the same on every system. Nothing is changed on the
//! machine: no access control entry, no account, no state file. It has not been run on the system that it is for, and so every
//! sandbox counts as partial, which the executor's owner has to accept.

use std::io;
use std::os::windows::io::OwnedHandle;
use std::sync::Arc;

use windows::Win32::Foundation::{HANDLE, LUID};
use windows::Win32::Security::{
    ACL, AdjustTokenPrivileges, CREATE_RESTRICTED_TOKEN_FLAGS, CreateRestrictedToken, GetLengthSid,
    GetTokenInformation, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, PSID, SE_CHANGE_NOTIFY_NAME, SE_PRIVILEGE_ENABLED,
    SID_AND_ATTRIBUTES, SetTokenInformation, TOKEN_ADJUST_DEFAULT, TOKEN_ADJUST_PRIVILEGES, TOKEN_ASSIGN_PRIMARY,
    TOKEN_DEFAULT_DACL, TOKEN_DUPLICATE, TOKEN_GROUPS, TOKEN_INFORMATION_CLASS, TOKEN_PRIVILEGES, TOKEN_QUERY,
    TOKEN_USER, TokenDefaultDacl, TokenGroups, TokenRestrictedSids, TokenUser,
};
use windows::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::system::{check, own, raw};
use crate::sandbox::token::{Sid, TokenPlan, admit};
use crate::sandbox::{Bound, Enforcement, Level, ManagedNetworkFacts, SandboxError, SandboxSettings};

pub(in crate::backend::local) use crate::backend::local::watched::{Held, Placeholders};

/// That a process runs with a restricted token.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct SandboxPlan {
    enforcement: Arc<Enforcement>,
}

impl SandboxPlan {
    /// What will be enforced.
    pub(in crate::backend::local) fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// A token for one process.
    #[allow(clippy::unused_self, reason = "who has a plan may have one")]
    pub(super) fn token(&self) -> io::Result<OwnedHandle> {
        restricted_token()
    }
}

/// Decides whether a process can be in such a sandbox, and tries to make the token. Blocks.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] for what a restricted token cannot enforce, where none can be made, or if the owner does not
/// accept partial sandboxes.
pub(in crate::backend::local) fn prepare(
    bound: &Arc<Bound>,
    settings: &SandboxSettings,
    managed: Option<&ManagedNetworkFacts>,
) -> Result<SandboxPlan, SandboxError> {
    let lacks = admit(bound, managed.is_some(), settings.accept_partial)?;
    restricted_token().map_err(|error| {
        SandboxError::unavailable(
            format!("the system makes no restricted token: {error}"),
            "run the executor as an ordinary user, outside of any other sandbox",
        )
    })?;
    let mechanisms = vec!["restricted token".into(), "job object".into()];
    let enforcement = Arc::new(Enforcement::new(Level::Partial(lacks), mechanisms, Vec::new()));
    Ok(SandboxPlan { enforcement })
}

/// A restricted form of our own token, with an identity of its own.
fn restricted_token() -> io::Result<OwnedHandle> {
    let mut token = HANDLE::default();
    let access = TOKEN_DUPLICATE | TOKEN_QUERY | TOKEN_ASSIGN_PRIMARY | TOKEN_ADJUST_DEFAULT | TOKEN_ADJUST_PRIVILEGES;
    // SAFETY: the first handle always means this process; the call writes a handle.
    check(unsafe { OpenProcessToken(GetCurrentProcess(), access, &raw mut token) })?;
    // SAFETY: the call returned a new handle.
    let token = unsafe { own(token) };
    let user = user(&token)?;
    let logon = groups(&token, TokenGroups)?.into_iter().find(|(_, is_logon)| *is_logon).map(|(sid, _)| sid);
    let plan = TokenPlan::new(&user, logon, uuid::Uuid::new_v4().as_u128());
    let restricted = restrict(&token, &plan)?;
    set_default_acl(&restricted, &plan)?;
    enable_change_notify(&restricted)?;
    // Nothing of it was proven: what came of it is looked at.
    let held: Vec<Sid> = groups(&restricted, TokenRestrictedSids)?.into_iter().map(|(sid, _)| sid).collect();
    let is_restricted = held.len() == plan.restricting.len() && plan.restricting.iter().all(|sid| held.contains(sid));
    if is_restricted { Ok(restricted) } else { Err(io::Error::other("the token is not as restricted as it was to be")) }
}

fn restrict(token: &OwnedHandle, plan: &TokenPlan) -> io::Result<OwnedHandle> {
    let mut sids: Vec<Aligned> = plan.restricting.iter().map(|sid| Aligned::new(&sid.bytes())).collect();
    let sids: Vec<_> =
        sids.iter_mut().map(|sid| SID_AND_ATTRIBUTES { Sid: PSID(sid.pointer()), Attributes: 0 }).collect();
    let mut restricted = HANDLE::default();
    let flags = CREATE_RESTRICTED_TOKEN_FLAGS(plan.flags);
    // SAFETY: the token is open with the right to be duplicated; the identities are in the system's form and outlive the
    // call, which writes a handle.
    check(unsafe { CreateRestrictedToken(raw(token), flags, None, None, Some(&sids), &raw mut restricted) })?;
    // SAFETY: the call returned a new handle.
    Ok(unsafe { own(restricted) })
}

/// What its processes make is open to themselves, which it would not be by the user's rights alone.
fn set_default_acl(token: &OwnedHandle, plan: &TokenPlan) -> io::Result<()> {
    let mut list = Aligned::new(&plan.default_acl);
    let value = TOKEN_DEFAULT_DACL { DefaultDacl: list.pointer().cast::<ACL>() };
    // SAFETY: the token is open with the right to have its defaults changed; the pointer and the length are those of a structure
    // of the type that this class of information has, which outlives the call, as does the list in the system's form.
    check(unsafe {
        SetTokenInformation(raw(token), TokenDefaultDacl, (&raw const value).cast(), size_of_val(&value) as u32)
    })
}

/// The one privilege that is left, by which directories are passed through.
fn enable_change_notify(token: &OwnedHandle) -> io::Result<()> {
    let mut luid = LUID::default();
    // SAFETY: the name is a terminated constant; the call writes a number.
    check(unsafe { LookupPrivilegeValueW(None, SE_CHANGE_NOTIFY_NAME, &raw mut luid) })?;
    let privilege = LUID_AND_ATTRIBUTES { Luid: luid, Attributes: SE_PRIVILEGE_ENABLED };
    let privileges = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [privilege] };
    // SAFETY: the token is open with the right to have its privileges adjusted; the structure holds as many as it says.
    check(unsafe { AdjustTokenPrivileges(raw(token), false, Some(&raw const privileges), 0, None, None) })
}

fn user(token: &OwnedHandle) -> io::Result<Sid> {
    let buffer = information(token, TokenUser)?;
    if buffer.bytes < size_of::<TOKEN_USER>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the buffer is aligned, and begins with the structure of this class of information.
    let user = unsafe { &*buffer.memory.as_ptr().cast::<TOKEN_USER>() };
    // SAFETY: the system wrote an identity to which the structure points, within the buffer.
    unsafe { copy_sid(user.User.Sid) }
}

/// The identities of a list of a token, and whether each is that of the logon.
fn groups(token: &OwnedHandle, class: TOKEN_INFORMATION_CLASS) -> io::Result<Vec<(Sid, bool)>> {
    let buffer = information(token, class)?;
    let offset = std::mem::offset_of!(TOKEN_GROUPS, Groups);
    if buffer.bytes < offset {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let start = buffer.memory.as_ptr().cast::<u8>();
    // SAFETY: the buffer is aligned, and begins with the number of the identities.
    let count = unsafe { start.cast::<u32>().read() } as usize;
    if (buffer.bytes - offset) / size_of::<SID_AND_ATTRIBUTES>() < count {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the array follows at its place in the structure, with as many elements as fit, as was checked.
    let groups = unsafe { std::slice::from_raw_parts(start.add(offset).cast::<SID_AND_ATTRIBUTES>(), count) };
    let one = |group: &SID_AND_ATTRIBUTES| {
        // SAFETY: the system wrote an identity to which the element points, within the buffer.
        let sid = unsafe { copy_sid(group.Sid) }?;
        Ok((sid, group.Attributes & LOGON_ID == LOGON_ID))
    };
    groups.iter().map(one).collect()
}

/// # Safety
///
/// The pointer is to a valid identity.
unsafe fn copy_sid(sid: PSID) -> io::Result<Sid> {
    // SAFETY: the caller's promise.
    let length = unsafe { GetLengthSid(sid) } as usize;
    // SAFETY: an identity has the length that the call says.
    let bytes = unsafe { std::slice::from_raw_parts(sid.0.cast::<u8>(), length) };
    Sid::from_bytes(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the system says about a token, aligned as its structures are.
struct Information {
    memory: Vec<u128>,
    bytes: usize,
}

fn information(token: &OwnedHandle, class: TOKEN_INFORMATION_CLASS) -> io::Result<Information> {
    let mut needed = 0;
    // SAFETY: without a buffer the call only tells the length that one needs. That it does so by an error is expected; whether it
    // did shows in the length.
    let _ = unsafe { GetTokenInformation(raw(token), class, None, 0, &raw mut needed) };
    if needed == 0 {
        return Err(io::Error::last_os_error());
    }
    let mut memory = vec![0_u128; (needed as usize).div_ceil(size_of::<u128>())];
    let mut written = needed;
    // SAFETY: the token is open with the right to be queried; the pointer and the length are those of the buffer.
    check(unsafe {
        GetTokenInformation(raw(token), class, Some(memory.as_mut_ptr().cast()), needed, &raw mut written)
    })?;
    Ok(Information { memory, bytes: written.min(needed) as usize })
}

/// Bytes at a place where any structure of the system may be.
struct Aligned(Vec<u128>);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let words = bytes.chunks(size_of::<u128>()).map(|chunk| {
            let mut word = [0; size_of::<u128>()];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        Self(words.collect())
    }

    fn pointer(&mut self) -> *mut core::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// The attributes of the group that stands for the logon.
const LOGON_ID: u32 = 0xc000_0000;
