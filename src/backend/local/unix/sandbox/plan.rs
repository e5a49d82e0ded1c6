//! From a bound intent to the shape of its sandbox.
//!
//! Two functions make the two walls from the same intent, independently: [`mounts`] and [`rules`].

mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::filter::{self, FilterPlan, Others, Sockets};
use super::kernel_mounts::Limit;
use super::landlock::{Rights, Taken};
use super::looks::{Found, Looks};
use super::probe::{Kernel, Mode};
use super::shape::{
    At, Base, Hold, Identity, Kept, Landlock, Make, Namespaces, Proc, Rule, Shape, Source, Step, Target,
};
use crate::sandbox::{
    Access, Bound, Change, Existing, ManagedNetworkFacts, NetworkPolicy, Origin, SandboxError, SandboxSettings, Wall,
};

/// What is decided besides the intent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings<'a> {
    pub(super) private_loopback: bool,
    pub(super) managed: Option<&'a ManagedNetworkFacts>,
    /// Walls that tests leave out.
    pub(super) without: Walls,
}

/// Walls that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::backend::local) struct Walls {
    pub(in crate::backend::local) mounts: bool,
    pub(in crate::backend::local) landlock: bool,
    pub(in crate::backend::local) network: bool,
    pub(in crate::backend::local) sockets: bool,
}

impl Walls {
    /// Those that the settings leave out, which only tests can have them do.
    pub(super) fn left_out(settings: &SandboxSettings) -> Self {
        Self {
            mounts: settings.is_without(Wall::Mounts),
            landlock: settings.is_without(Wall::Landlock),
            network: settings.is_without(Wall::NetworkNamespace),
            sockets: settings.is_without(Wall::Filter),
        }
    }
}

/// What a process may do with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) private: bool,
    pub(super) loopback: bool,
    pub(super) sockets: Sockets,
}

impl Network {
    pub(super) fn of(bound: &Bound, settings: &Settings<'_>) -> Self {
        if let Some(managed) = settings.managed {
            let unix = managed.dangerously_allow_all_unix_sockets;
            let sockets = if unix { Sockets::LoopbackAndUnix } else { Sockets::Loopback };
            return Self { private: true, loopback: true, sockets };
        }
        match bound.network {
            NetworkPolicy::Enabled => Self { private: false, loopback: false, sockets: Sockets::Open },
            NetworkPolicy::Restricted if settings.private_loopback => {
                Self { private: true, loopback: true, sockets: Sockets::Loopback }
            }
            NetworkPolicy::Restricted => Self { private: true, loopback: false, sockets: Sockets::Pairs },
        }
    }
}

/// The shape of the sandbox for `bound` on this kernel.
pub(super) fn shape(
    bound: &Bound,
    settings: &Settings<'_>,
    kernel: &Kernel,
    looks: &Looks,
) -> Result<Shape, SandboxError> {
    let network = Network::of(bound, settings);
    let namespaces = match kernel.mode {
        Mode::Bare => None,
        Mode::User | Mode::Mount => Some(mounts(bound, settings, network, kernel, looks)?),
    };
    let landlock = match kernel.landlock {
        Some(version) if !settings.without.landlock => {
            rules(bound, network, Rights::new(version), namespaces.as_ref(), (kernel, looks))?
        }
        _ => None,
    };
    let sockets = if settings.without.sockets { Sockets::Open } else { network.sockets };
    // Where all may be written there is nothing to keep.
    let refuse_metadata = namespaces.is_none() && bound.root != Some(Access::Write);
    let others = match (&namespaces, &landlock) {
        (Some(_), _) => Others::Hidden,
        (None, Some(landlock)) if landlock.keeps_signals() => Others::InSight,
        (None, _) => Others::InReach,
    };
    let filter_plan = FilterPlan { sockets, refuse_metadata, others };
    let (filter, telling) = filter::programs(filter_plan);
    let telling_filter = if kernel.no_notices.is_none() { telling } else { Arc::default() };
    Ok(Shape { namespaces: namespaces.map(Box::new), filter, telling_filter, landlock })
}

/// The first wall: what is mounted where.
fn mounts(
    bound: &Bound,
    settings: &Settings<'_>,
    network: Network,
    kernel: &Kernel,
    looks: &Looks,
) -> Result<Namespaces, SandboxError> {
    let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    let mut maps = None;
    if kernel.mode == Mode::User {
        flags |= libc::CLONE_NEWUSER;
        maps = Some(kernel.maps());
    }
    if network.private && kernel.network && !settings.without.network {
        flags |= libc::CLONE_NEWNET;
    }
    let ports = settings.managed.map(|managed| unique(&managed.loopback_ports)).unwrap_or_default();
    if ports.len() > MAX_PORTS {
        let reason = format!("more than {MAX_PORTS} loopback ports are to answer, each of which takes a descriptor");
        return Err(SandboxError::preparation(reason));
    }
    let base = match bound.root {
        _ if settings.without.mounts => Base::Writable,
        Some(Access::Write) => Base::Writable,
        Some(Access::Read) => Base::ReadOnly,
        Some(Access::Deny) | None => Base::Empty,
    };
    // Who may write everything may write to all of /proc too.
    let guarded = base != Base::Writable || bound.changes().next().is_some();
    // It is the owner of what is there, and could change the modes of it, for whoever comes next, as well as what it can write to.
    let all_read_only = guarded && kernel.is_root;
    let kept = kept(flags, network, all_read_only || !kernel.is_root, settings.without);
    let mut tree = Tree::new(base, kernel, looks);
    if !settings.without.mounts {
        if base == Base::Empty {
            tree.add_root(bound)?;
        }
        if base == Base::Writable && bound.changes().next().is_some() {
            tree.guard(Path::new("/sys"))?;
        }
        tree.share(bound)?;
        for change in bound.changes() {
            tree.limit(bound, guarded, |path| change.entry.path.starts_with(path))?;
            tree.add(bound, change)?;
        }
        tree.limit(bound, guarded, |_| true)?;
        // What will match later is looked for there by the next process.
        let has_own = |path: &Path| is_own(path) || looks.mounts().limit(path) == Some(Limit::Hidden);
        for glob in bound.globs.iter().filter(|glob| bound.can_write(&glob.base) && !has_own(&glob.base)) {
            tree.hold(&glob.base, glob.has_base)?;
        }
        // Nor is it the next process that finds another directory at a root.
        for root in bound.workspace_roots.iter().filter(|root| guarded && !has_own(root) && bound.can_write(root)) {
            if root.parent().is_some_and(|parent| bound.can_write(parent)) {
                tree.hold(root, false)?;
            }
        }
    }
    Ok(Namespaces {
        flags,
        maps,
        kept,
        base,
        sources: tree.sources,
        is_common: tree.makes.len() == tree.common,
        makes: tree.makes,
        steps: tree.steps,
        held: holds(tree.held)?,
        devices: kernel.devices.clone(),
        proc: if kernel.fresh_proc {
            let prefix = if base == Base::Empty { "/dev/root" } else { "" };
            let names = if guarded && !all_read_only { looks.writable_in_proc() } else { Ok(Vec::new()) };
            let names = names.map_err(|error| {
                SandboxError::unavailable(
                    format!("/proc cannot be listed: {error}"),
                    "mount it where the executor runs",
                )
            })?;
            let read_only = names.iter().map(|name| c_string(format!("{prefix}/proc/{name}").as_ref()));
            Proc::Fresh { read_only: read_only.collect::<Result<_, _>>()?, all_read_only }
        } else {
            Proc::Masked
        },
        loopback: network.loopback,
        ports,
    })
}

/// Which of these namespaces need not be made anew. `owned_by_none` says that nobody in them can change what `/proc` has of
/// them.
fn kept(flags: c_int, network: Network, owned_by_none: bool, without: Walls) -> Kept {
    let has = |flag| flags & flag != 0;
    if without != Walls::default() {
        return Kept::Nothing;
    }
    match has(libc::CLONE_NEWNET) {
        // Without sockets that have addresses nothing of it can be changed.
        true if owned_by_none && network.sockets == Sockets::Pairs => Kept::Again { network: true },
        true => Kept::New,
        false if owned_by_none && has(libc::CLONE_NEWUSER) => Kept::Again { network: false },
        false => Kept::Nothing,
    }
}

/// In the order in which they are held.
fn holds(held: BTreeMap<PathBuf, (PathBuf, Identity)>) -> Result<Vec<Hold>, SandboxError> {
    let hold = |(path, (top, identity)): (PathBuf, (PathBuf, Identity))| {
        let below = c_string(path.strip_prefix(&top).unwrap_or(&path).as_os_str())?;
        Ok(Hold { top: relative(&top)?, path: below, identity })
    };
    let mut holds: Vec<Hold> = held.into_iter().rev().map(hold).collect::<Result<_, SandboxError>>()?;
    // Which leaves those of one top in their order: what is in a directory is out of reach once that is held.
    holds.sort_by(|one, other| one.top.cmp(&other.top));
    Ok(holds)
}

/// Each port once, in order.
pub(super) fn unique(ports: &[u16]) -> Vec<u16> {
    ports.iter().copied().filter(|port| *port != 0).collect::<BTreeSet<_>>().into_iter().collect()
}

/// More than any proxy has.
const MAX_PORTS: usize = 64;

/// The tree while it is planned.
struct Tree<'a> {
    base: Base,
    looks: &'a Looks,
    sources: Vec<Source>,
    makes: Vec<Make>,
    /// How many of those every sandbox has.
    common: usize,
    steps: Vec<Step>,
    /// What was made in the memory file system, by its path there.
    made: BTreeSet<PathBuf>,
    /// Where something is put, and whether that is a mask: by the path there.
    put: BTreeMap<PathBuf, Put>,
    /// Directories that must stay where they are, each with the place above it that does so by itself.
    held: BTreeMap<PathBuf, (PathBuf, Identity)>,
}

/// What is put over a place.
#[derive(Clone, Debug)]
enum Put {
    Source,
    /// The path of the mask in the memory file system.
    Mask(PathBuf),
}

const CLOSED_DIRECTORY: &str = "closed";
const CLOSED_FILE: &str = "closed-file";
/// As many as a pattern may match, twice.
const MAX_HELD: usize = 16_384;

impl<'a> Tree<'a> {
    fn new(base: Base, kernel: &Kernel, looks: &'a Looks) -> Self {
        let mut tree = Self {
            base,
            looks,
            sources: vec![],
            makes: vec![],
            common: 0,
            steps: vec![],
            made: BTreeSet::new(),
            put: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        for path in ["dev", "dev/pts", "dev/shm"] {
            tree.make_directory(Path::new(path), 0o755);
        }
        for (_, at) in &kernel.devices {
            tree.makes.push(Make::File(at.clone(), 0o666));
        }
        for (at, to) in [
            (c"dev/ptmx", c"pts/ptmx"),
            (c"dev/fd", c"/proc/self/fd"),
            (c"dev/stdin", c"/proc/self/fd/0"),
            (c"dev/stdout", c"/proc/self/fd/1"),
            (c"dev/stderr", c"/proc/self/fd/2"),
        ] {
            tree.makes.push(Make::Link { at: at.into(), to: to.into() });
        }
        tree.make_directory(Path::new("proc"), 0o555);
        tree.make_directory(Path::new("shm"), 0o1777);
        tree.make_directory(Path::new(CLOSED_DIRECTORY), 0);
        tree.make_file(Path::new(CLOSED_FILE), 0);
        tree.common = tree.makes.len();
        tree
    }

    /// What leads to the places that are attached, where nothing is there by itself.
    fn add_root(&mut self, bound: &Bound) -> Result<(), SandboxError> {
        for path in ["root", "root/dev", "root/proc"] {
            self.make_directory(Path::new(path), 0o755);
        }
        for alias in &bound.aliases {
            // Within something visible the link itself is seen.
            let Some(parent) = alias.link.parent().filter(|parent| bound.access(parent).is_none()) else { continue };
            if is_made_anew(&alias.link) || bound.entry(&alias.link).is_some() {
                continue;
            }
            let parent = in_memory(Path::new("root"), parent);
            self.make_path(&parent, 0o755);
            let at = in_memory(Path::new("root"), &alias.link);
            if self.made.insert(at.clone()) {
                self.makes.push(Make::Link { at: c_string(at.as_os_str())?, to: c_string(alias.target.as_os_str())? });
            }
        }
        Ok(())
    }

    fn add(&mut self, bound: &Bound, change: Change<'_>) -> Result<(), SandboxError> {
        let entry = change.entry;
        if is_own(&entry.path) {
            // It is not the host's, and the same for every process.
            return match entry.access {
                Access::Deny => Err(SandboxError::preparation(format!(
                    "{} cannot be denied to a process: it is made anew for each one; leave it out",
                    entry.path.display()
                ))),
                _ => Ok(()),
            };
        }
        if is_shared(&entry.path) && !self.is_put(&entry.path) {
            // It is not there.
            return Ok(());
        }
        let limit = self.looks.mounts().limit(&entry.path);
        if limit == Some(Limit::Hidden) {
            // Nor is that.
            return Ok(());
        }
        let Some(found) = self.looks.look(&entry.path)? else {
            // What is away for a moment would come back as if nothing had been said about it.
            let may_be_gone = !change.exists() || entry.origin == Origin::Glob && entry.skip_missing;
            return if may_be_gone { Ok(()) } else { Err(changed(&entry.path)) };
        };
        if self.put.contains_key(&entry.path) && entry.access != Access::Deny {
            return Ok(());
        }
        // What names are protected in it, if it is a directory, was decided when it was bound.
        if entry.access == Access::Write && change.exists() && (entry.kind == Existing::Directory) != found.directory {
            return Err(changed(&entry.path));
        }
        if change.above == Some(Access::Write)
            && let Some(parent) = entry.path.parent()
        {
            self.hold(parent, true)?;
        }
        match entry.access {
            Access::Deny => self.mask(bound, &entry.path, found),
            access => self.attach(&entry.path, found, access == Access::Write && limit.is_none()),
        }
    }

    /// Has the directories from a writable place down to this one stay where they are, so that what is in it stays where the
    /// intent names it, also for the next process. `is_there` says that it was found to be a directory; else it may be missing, and
    /// those above it.
    fn hold(&mut self, path: &Path, mut is_there: bool) -> Result<(), SandboxError> {
        if is_shared(path) && !self.is_put(path) {
            return Ok(());
        }
        let mut new = Vec::new();
        let mut top = Path::new("/");
        for directory in path.ancestors() {
            if let Some((above, _)) = self.held.get(directory) {
                top = above;
                break;
            }
            // One that something is mounted on cannot be moved.
            if self.put.contains_key(directory) || directory.parent().is_none() {
                top = directory;
                break;
            }
            new.push(directory);
        }
        let top = top.to_path_buf();
        for directory in new {
            let found = match self.looks.look(directory)?.filter(|found| found.directory) {
                Some(found) => found,
                None if is_there => return Err(changed(directory)),
                None => continue,
            };
            is_there = true;
            if self.held.len() == MAX_HELD {
                return Err(SandboxError::preparation(format!(
                    "what is denied lies in more than {MAX_HELD} directories that could be moved; deny some of these instead"
                )));
            }
            self.held.insert(directory.to_path_buf(), (top.clone(), found.identity));
        }
        Ok(())
    }

    fn attach(&mut self, path: &Path, found: Found, writable: bool) -> Result<(), SandboxError> {
        let target = match self.above(path) {
            // Nothing lies over it yet.
            None if self.base != Base::Empty => Target::Source,
            None => self.made_target(path, found)?,
            Some((above, Put::Mask(mask))) => {
                let below = path.strip_prefix(&above).unwrap_or(path);
                let at = mask.join(below);
                self.make_way(&at, found, 0o111);
                Target::Path(relative(path)?, None)
            }
            Some((_, Put::Source)) => Target::Path(relative(path)?, Some(found.identity)),
        };
        self.put_source(path, found, writable, target)
    }

    fn put_source(&mut self, path: &Path, found: Found, writable: bool, target: Target) -> Result<(), SandboxError> {
        self.steps.push(Step::Attach { source: self.sources.len(), target });
        self.sources.push(Source { path: relative(path)?, identity: found.identity, writable });
        self.put.insert(path.to_path_buf(), Put::Source);
        Ok(())
    }

    fn mask(&mut self, bound: &Bound, path: &Path, found: Found) -> Result<(), SandboxError> {
        if self.base == Base::Empty && self.above(path).is_none() {
            // What is not attached is not there.
            return Ok(());
        }
        let with = if !found.directory {
            PathBuf::from(CLOSED_FILE)
        } else if bound.opens_below(path) {
            let own = PathBuf::from(format!("closed-{}", self.put.len()));
            // It can be passed through, and not be listed.
            self.make_directory(&own, 0o111);
            own
        } else {
            PathBuf::from(CLOSED_DIRECTORY)
        };
        let target = match self.above(path) {
            // It is gone behind another mask.
            Some((_, Put::Mask(_))) => return Ok(()),
            _ => Target::Path(relative(path)?, Some(found.identity)),
        };
        self.steps.push(Step::Mask { with: c_string(with.as_os_str())?, target });
        self.put.insert(path.to_path_buf(), Put::Mask(with));
        Ok(())
    }

    /// The nearest place at or above `path` that something is put over.
    fn above(&self, path: &Path) -> Option<(PathBuf, Put)> {
        path.ancestors().skip(1).find_map(|above| Some((above.to_path_buf(), self.put.get(above)?.clone())))
    }

    /// Whether something is put at or above `path`.
    fn is_put(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.put.contains_key(above))
    }

    fn made_target(&mut self, path: &Path, found: Found) -> Result<Target, SandboxError> {
        let at = in_memory(Path::new("root"), path);
        self.make_way(&at, found, 0o755);
        Ok(Target::Path(relative(path)?, None))
    }

    /// Makes something to put a place over, and the directories that lead there.
    fn make_way(&mut self, at: &Path, found: Found, mode: libc::mode_t) {
        if let Some(parent) = at.parent() {
            self.make_path(parent, mode);
        }
        if found.directory { self.make_directory(at, mode) } else { self.make_file(at, 0) }
    }

    fn make_path(&mut self, path: &Path, mode: libc::mode_t) {
        let mut way: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        way.reverse();
        for part in way {
            self.make_directory(part, mode);
        }
    }

    fn make_directory(&mut self, at: &Path, mode: libc::mode_t) {
        if self.made.insert(at.to_path_buf())
            && let Ok(path) = CString::new(at.as_os_str().as_bytes())
        {
            self.makes.push(Make::Directory(path, mode));
        }
    }

    fn make_file(&mut self, at: &Path, mode: libc::mode_t) {
        if self.made.insert(at.to_path_buf())
            && let Ok(path) = CString::new(at.as_os_str().as_bytes())
        {
            self.makes.push(Make::File(path, mode));
        }
    }
}

/// The second wall: what Landlock allows. Only the coarse shape: rights that a rule gives cannot be taken back below.
fn rules(
    bound: &Bound,
    network: Network,
    rights: Rights,
    namespaces: Option<&Namespaces>,
    (kernel, looks): (&Kernel, &Looks),
) -> Result<Option<Landlock>, SandboxError> {
    let files = bound.root != Some(Access::Write);
    let taken =
        Taken { files, network: network.sockets == Sockets::Pairs, abstract_sockets: network.sockets != Sockets::Open };
    let Some((handled, bytes)) = rights.handled(taken) else { return Ok(None) };
    let mut rules = Vec::new();
    if files {
        let at = |path: &str| c_string(path.as_ref()).map(At::Path);
        // Of directories that only lead to others nothing can be seen but that.
        let root = if bound.root == Some(Access::Read) { rights.read(true) } else { rights.list() };
        rules.push(Rule { at: at(".")?, access: root });
        if namespaces.is_some() {
            rules.push(Rule { at: at("dev")?, access: rights.use_devices(true) });
            rules.push(Rule { at: at("dev/shm")?, access: rights.write(true) });
            rules.push(Rule { at: at("proc")?, access: rights.use_files() });
        } else {
            // They are the host's.
            for (path, _) in &kernel.devices {
                let path = path.to_str().unwrap_or_default().trim_start_matches('/');
                rules.push(Rule { at: at(path)?, access: rights.use_devices(false) });
            }
        }
        for entry in bound.changes().filter(Change::opens).map(|change| change.entry) {
            let limit = looks.mounts().limit(&entry.path);
            let found = match is_own(&entry.path) || limit == Some(Limit::Hidden) {
                true => None,
                false => looks.look(&entry.path)?,
            };
            let Some(found) = found else { continue };
            let access = match entry.access {
                Access::Write if limit.is_none() => rights.write(found.directory),
                _ => rights.read(found.directory),
            };
            let path = relative(&entry.path)?;
            // The place that the first wall has opened and checked, if there is one.
            let source =
                namespaces.and_then(|namespaces| namespaces.sources.iter().position(|source| source.path == path));
            rules.push(Rule { at: source.map_or(At::Path(path), At::Source), access });
        }
    }
    Ok(Some(Landlock { handled, first: rights.first(), bytes, rules }))
}

/// Whether every process gets its own one there, whatever the intent says.
pub(super) fn is_own(path: &Path) -> bool {
    is_made_anew(path) && !is_shared(path)
}

/// Whether what a process has there is not the host's by itself.
pub(super) fn is_made_anew(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

/// Whether it is in the host's shared memory: what the intent names there is attached to that of the process.
fn is_shared(path: &Path) -> bool {
    path.starts_with("/dev/shm") && path != Path::new("/dev/shm")
}

fn changed(path: &Path) -> SandboxError {
    SandboxError::changed(format!("{} has changed while the sandbox was prepared", path.display()))
}

/// Where the memory file system has what is to be at an absolute path.
fn in_memory(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A path relative to the root.
fn relative(path: &Path) -> Result<CString, SandboxError> {
    let relative = path.strip_prefix("/").unwrap_or(path).as_os_str();
    c_string(if relative.is_empty() { OsStr::new(".") } else { relative })
}

fn c_string(text: &OsStr) -> Result<CString, SandboxError> {
    CString::new(text.as_bytes()).map_err(|_| SandboxError::preparation("a path holds a NUL"))
}

#[cfg(test)]
mod tests;
