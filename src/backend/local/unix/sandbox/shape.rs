//! What a sandbox is made of, in the form that the child needs: nothing is computed or allocated there.

use std::ffi::{CStr, CString, c_int};

use super::filter;
use super::landlock;
use super::raw::RulesetAttributes;

/// Everything that the child sets up before the command runs.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// What stands between the command and the machine, besides the filter and Landlock: namespaces of its own, or nothing.
    pub(super) namespaces: Option<Box<Namespaces>>,
    /// The filter of system calls.
    pub(super) filter: filter::Program,
    /// The same, but that it tells of what it refuses; empty where nobody can be told.
    pub(super) telling_filter: filter::Program,
    pub(super) landlock: Option<Landlock>,
}

/// Namespaces, and what is in them.
#[derive(Clone, Debug)]
pub(super) struct Namespaces {
    /// `CLONE_NEW…`, all but the PID namespace.
    pub(super) flags: c_int,
    /// With a user namespace: the lines that map this user and this group to themselves.
    pub(super) maps: Option<(CString, CString)>,
    /// Which of them need not be made for this very sandbox.
    pub(super) kept: Kept,
    pub(super) base: Base,
    /// What is copied from the tree as it was: the writable places first.
    pub(super) sources: Vec<Source>,
    /// What is made in the memory file system.
    pub(super) makes: Vec<Make>,
    /// Whether that is what most sandboxes have in it, and nothing else.
    pub(super) is_common: bool,
    /// What is put where, from shallow to deep.
    pub(super) steps: Vec<Step>,
    /// Directories that stay where they are: those below one top after the other, each from deep to shallow.
    pub(super) held: Vec<Hold>,
    /// The devices of the host that there are, by their absolute paths and by where they are attached in the memory file
    /// system.
    pub(super) devices: Vec<(CString, CString)>,
    pub(super) proc: Proc,
    /// Whether the loopback interface works.
    pub(super) loopback: bool,
    /// Where the executor listens inside.
    pub(super) ports: Vec<u16>,
}

/// Which namespaces a sandbox does not have to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It makes all of them.
    Nothing,
    /// Those that others were in before, and others will be in afterwards, since nothing of them can be changed: the user
    /// namespace, if it has one, and with `network` the network namespace too.
    Again { network: bool },
    /// The same two, which nobody was in before, nor will be afterwards.
    New,
}

/// What the tree is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// All of the host's, as it is.
    Writable,
    /// All of the host's, read-only.
    ReadOnly,
    /// Nothing but what is attached.
    Empty,
}

/// A place that is attached again, with other rights.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Relative to the root.
    pub(super) path: CString,
    pub(super) identity: Identity,
    pub(super) writable: bool,
}

/// The device and the number of a file.
pub(super) type Identity = (u64, u64);

/// Something in the memory file system, by its path there.
#[derive(Clone, Debug)]
pub(super) enum Make {
    Directory(CString, libc::mode_t),
    File(CString, libc::mode_t),
    Link { at: CString, to: CString },
}

/// Something put over a place.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A source, by its index.
    Attach { source: usize, target: Target },
    /// Something of the memory file system, by its path there, so that what was there cannot be reached.
    Mask { with: CString, target: Target },
}

/// A directory that can be neither moved nor removed, though what is in it can be changed.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// A place at or above which nothing can be moved anyway, relative to the root.
    pub(super) top: CString,
    /// Relative to that.
    pub(super) path: CString,
    pub(super) identity: Identity,
}

/// Where it is put.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Where the source was copied from.
    Source,
    /// A path relative to the root, and what has to be there. Without an identity it is something that was made.
    Path(CString, Option<Identity>),
}

/// What `/proc` is.
#[derive(Clone, Debug)]
pub(super) enum Proc {
    /// That of the new PID namespace, with these parts read-only, or all of it.
    Fresh { read_only: Vec<CString>, all_read_only: bool },
    /// An empty directory.
    Masked,
}

/// A ruleset, and what it is made from.
#[derive(Clone, Debug)]
pub(super) struct Landlock {
    pub(super) handled: RulesetAttributes,
    /// What is handled for the first process of a PID namespace: never nothing.
    pub(super) first: RulesetAttributes,
    /// How much of that this kernel knows.
    pub(super) bytes: usize,
    pub(super) rules: Vec<Rule>,
}

/// Rights at and below a place.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) at: At,
    pub(super) access: u64,
}

/// A place, as the child has it.
#[derive(Clone, Debug)]
pub(super) enum At {
    /// A source, by its index.
    Source(usize),
    /// A path relative to the new root.
    Path(CString),
}

impl Landlock {
    /// Whether signals reach nobody outside.
    pub(super) fn keeps_signals(&self) -> bool {
        self.handled.scopes & landlock::SIGNALS != 0
    }
}

impl Shape {
    /// The namespaces, if there are any.
    pub(super) fn namespaces(&self) -> Option<&Namespaces> {
        self.namespaces.as_deref()
    }

    /// Which files it says that there are.
    pub(super) fn identities(&self) -> impl Iterator<Item = &Identity> {
        let namespaces = self.namespaces.iter();
        namespaces.flat_map(|namespaces| {
            let sources = namespaces.sources.iter().map(|source| &source.identity);
            let held = namespaces.held.iter().map(|hold| &hold.identity);
            sources.chain(held).chain(namespaces.steps.iter().filter_map(|step| step.target().identity()))
        })
    }

    /// The same, in the same order.
    pub(super) fn identities_mut(&mut self) -> impl Iterator<Item = &mut Identity> {
        let namespaces = self.namespaces.iter_mut();
        namespaces.flat_map(|namespaces| {
            let sources = namespaces.sources.iter_mut().map(|source| &mut source.identity);
            let held = namespaces.held.iter_mut().map(|hold| &mut hold.identity);
            sources.chain(held).chain(namespaces.steps.iter_mut().filter_map(|step| step.target_mut().identity_mut()))
        })
    }
}

impl Step {
    fn target(&self) -> &Target {
        match self {
            Self::Attach { target, .. } | Self::Mask { target, .. } => target,
        }
    }

    fn target_mut(&mut self) -> &mut Target {
        match self {
            Self::Attach { target, .. } | Self::Mask { target, .. } => target,
        }
    }
}

impl Target {
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Source => None,
            Self::Path(_, identity) => identity.as_ref(),
        }
    }

    fn identity_mut(&mut self) -> Option<&mut Identity> {
        match self {
            Self::Source => None,
            Self::Path(_, identity) => identity.as_mut(),
        }
    }
}

impl Base {
    /// Where the new root is seen while the old one is still there.
    pub(super) fn proc_path(self) -> &'static CStr {
        if self == Self::Empty { c"/dev/root/proc" } else { c"/proc" }
    }

    pub(super) fn pts_path(self) -> &'static CStr {
        if self == Self::Empty { c"/dev/root/dev/pts" } else { c"/dev/pts" }
    }
}
