//! What this kernel lets this process build, found out by building it once.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::child::{Failure, Report, Stage};
use super::filter;
use super::landlock::{LEAST_FOR_FILES, LEAST_FOR_NETWORK, LEAST_FOR_SIGNALS};
use super::looks::Looks;
use super::notice;
use super::plan::{self, Settings, Walls};
use super::raw::{self, Errno};
use super::start::{Refusal, run};
use crate::backend::local::unix::platform;
use crate::sandbox::{Access, Bound, Class, Enforcement, Level, NetworkPolicy, SandboxError};

/// How processes are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Namespaces within a user namespace.
    User,
    /// Namespaces, by the right to make them.
    Mount,
    /// No namespaces: only Landlock and the filter.
    Bare,
}

/// What there is.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) mode: Mode,
    /// Why there are no namespaces.
    pub(super) no_namespaces: Option<Cause>,
    /// Whether a network namespace can be made.
    pub(super) network: bool,
    /// Whether a new `/proc` can be mounted.
    pub(super) fresh_proc: bool,
    /// The version of Landlock.
    pub(super) landlock: Option<u32>,
    /// Why a filter can tell nobody of what it refuses.
    pub(super) no_notices: Option<Errno>,
    /// Devices of the host that sandboxes get, and where they have them.
    pub(super) devices: Vec<(CString, CString)>,
    pub(super) is_root: bool,
    pub(super) user: u32,
    pub(super) group: u32,
}

/// Why something cannot be had, and what can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) cause: String,
    pub(super) remedy: String,
}

impl From<Cause> for SandboxError {
    fn from(Cause { cause, remedy }: Cause) -> Self {
        Self::unavailable(cause, remedy)
    }
}

/// What this kernel lets this process build. Found out once, which takes some milliseconds; it may block.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] if it could not be found out for want of something that may be there a moment later. The
/// next call tries again: what happens to be missing must not decide for as long as this process lives.
pub(super) fn kernel() -> Result<&'static Kernel, SandboxError> {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    static LOOKING: Mutex<()> = Mutex::new(());
    once(&KERNEL, &LOOKING, || {
        // A thread of its own, since trying takes one that blocks all signals.
        let thread = std::thread::Builder::new().name("longarm-probe".into()).spawn(find_out);
        let thread = thread.map_err(|error| not_now(&Refusal::Other("make a thread", error)))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(not_now(&Refusal::Other("try it", io::Error::other("the thread panicked")))))
    })
}

/// What was found before, or is now: by one caller at a time, and kept only if it is an answer.
fn once<'a, T>(
    found: &'a OnceLock<T>,
    looking: &Mutex<()>,
    look: impl FnOnce() -> Result<T, Cause>,
) -> Result<&'a T, SandboxError> {
    if let Some(found) = found.get() {
        return Ok(found);
    }
    let _looking = looking.lock().unwrap_or_else(PoisonError::into_inner);
    match found.get() {
        Some(found) => Ok(found),
        None => {
            let new = look()?;
            Ok(found.get_or_init(|| new))
        }
    }
}

/// Tries what there is.
fn find_out() -> Result<Kernel, Cause> {
    let launcher = platform::Launcher::new();
    let mut launcher = launcher.map_err(|error| not_now(&Refusal::Other("prepare a thread", error)))?;
    let found = search(Kernel::bare(None), |candidate| candidate.attempt(&mut launcher))?;
    Ok(Kernel { no_notices: no_notices(), ..found })
}

/// Why a filter can tell nobody of what it refuses, if that is so. The calling thread has one from then on that allows
/// everything, and can gain no privileges: it has to be one that ends.
fn no_notices() -> Option<Errno> {
    // SAFETY: the calls take numbers, and concern this thread only.
    let listener =
        unsafe { raw::forgo_privileges().and_then(|()| raw::install_telling_filter(&filter::allowing_program())) };
    match listener {
        Ok(listener) => {
            // SAFETY: the call returned a new descriptor that nobody else owns.
            drop(unsafe { OwnedFd::from_raw_fd(listener) });
            None
        }
        // That says nothing of the next time.
        Err(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM) => None,
        Err(errno) => Some(errno),
    }
}

/// Tries the ways from the best to the worst.
fn search(mut kernel: Kernel, mut attempt: impl FnMut(&Kernel) -> Result<(), Refusal>) -> Result<Kernel, Cause> {
    let mut first = None;
    for mode in [Mode::User, Mode::Mount] {
        for (fresh_proc, network) in [(true, true), (false, true), (true, false), (false, false)] {
            let candidate = Kernel { mode, fresh_proc, network, no_namespaces: None, ..kernel.clone() };
            match attempt(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(refusal) if is_momentary(&refusal) => return Err(not_now(&refusal)),
                Err(Refusal::Step(Failure { stage: Stage::Landlock, errno, .. })) => {
                    // It is reported when a process is to be started: the executor itself is behind too many walls.
                    return Ok(Kernel { landlock: kernel.landlock.filter(|_| errno == libc::E2BIG), ..candidate });
                }
                Err(refusal) => {
                    let decided = match &refusal {
                        // Another way to the same would fail alike.
                        Refusal::Step(failure) => !matches!(failure.stage, Stage::Proc | Stage::Network),
                        _ => !network,
                    };
                    first.get_or_insert(refusal);
                    if decided {
                        break;
                    }
                }
            }
        }
    }
    kernel.no_namespaces = first.map(|refusal| explain(&refusal));
    Ok(kernel)
}

/// Whether it says nothing of what the kernel allows: descriptors, processes or memory were short.
pub(super) fn is_momentary(refusal: &Refusal) -> bool {
    let (errno, room) = match refusal {
        Refusal::Builder(error) | Refusal::Other(_, error) => (error.raw_os_error(), false),
        Refusal::Step(Failure { stage, errno, .. }) => {
            (Some(*errno), matches!(stage, Stage::Memory | Stage::Make | Stage::InitImage))
        }
    };
    match errno {
        Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM | libc::EINTR) => true,
        Some(libc::ENOSPC) => room,
        _ => false,
    }
}

/// The start fails, and the next one may not.
fn not_now(refusal: &Refusal) -> Cause {
    let Cause { cause, remedy } = explain(refusal);
    Cause { cause: format!("what the kernel allows cannot be tried just now: {cause}"), remedy }
}

impl Kernel {
    fn bare(cause: Option<Cause>) -> Self {
        // SAFETY: neither call has arguments, and neither can fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Self {
            mode: Mode::Bare,
            no_namespaces: cause,
            network: false,
            fresh_proc: false,
            landlock: raw::landlock_version(),
            no_notices: None,
            devices: devices(),
            is_root: user == 0,
            user,
            group,
        }
    }

    /// The lines that map this user and this group to themselves.
    pub(super) fn maps(&self) -> (CString, CString) {
        let line = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
        (line(self.user), line(self.group))
    }

    fn attempt(&self, launcher: &mut platform::Launcher) -> Result<(), Refusal> {
        let settings = Settings { private_loopback: true, managed: None, without: Walls::default() };
        let bound = read_only();
        let shape = plan::shape(&bound, &settings, self, &Looks::default())
            .map_err(|error| Refusal::Other("plan a sandbox", io::Error::other(error)))?;
        let report = Report::default();
        launcher.with_stacks(|stacks, spares| {
            // SAFETY: the launcher's thread blocks all signals, and lends its stacks to nobody else.
            unsafe { run(&shape, stacks, spares, None, &report) }.map(drop)
        })
    }

    /// What is enforced of an intent, or why it is refused; `accept_partial` is whether a part of it will do.
    pub(super) fn assess(
        &self,
        bound: &Bound,
        network: plan::Network,
        accept_partial: bool,
    ) -> Result<Enforcement, SandboxError> {
        let mut gaps: Vec<Cause> = Vec::new();
        let mut mechanisms = vec!["seccomp".to_owned()];
        if !filter::SUPPORTED || !filter_available() {
            return Err(Cause::new(
                "this kernel has no filters for system calls on this kind of processor",
                "use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or 64-bit ARM",
            )
            .into());
        }
        let files = self.landlock.filter(|version| *version >= LEAST_FOR_FILES);
        let restricts_files = bound.root != Some(Access::Write) || bound.changes().next().is_some();
        match (self.mode, &self.no_namespaces) {
            (Mode::User, _) => mechanisms.push("user namespace".into()),
            (Mode::Mount, _) => {}
            (Mode::Bare, cause) => {
                let cause = cause.clone().unwrap_or_else(|| {
                    Cause::new("namespaces cannot be made", "allow this user to make user namespaces")
                });
                let only_reads = bound.root == Some(Access::Read) && bound.changes().next().is_none();
                let is_at_least = |least| self.landlock.is_some_and(|version| version >= least);
                let no_ports =
                    network.sockets != filter::Sockets::Loopback && network.sockets != filter::Sockets::LoopbackAndUnix;
                // Without the mounts nothing can be taken back within what is allowed, and no process be hidden.
                if !(no_ports && (only_reads || !restricts_files)) {
                    return Err(cause.into());
                }
                // A ruleset about anything also keeps it from the memory of others.
                let (least, kernel) =
                    if restricts_files { (LEAST_FOR_FILES, "6.2") } else { (LEAST_FOR_NETWORK, "6.7") };
                if !is_at_least(least) {
                    return Err(SandboxError::unavailable(
                        format!(
                            "{}; and without namespaces it takes Landlock of ABI {least}, which is not there",
                            cause.cause
                        ),
                        format!("{}, or use a kernel from {kernel} on, with Landlock enabled", cause.remedy),
                    ));
                }
                let gap = format!(
                    "no namespaces ({}): processes of the same user can be seen, and one that leaves its session outlives \
                     the command{}",
                    cause.cause,
                    if is_at_least(LEAST_FOR_SIGNALS) {
                        ""
                    } else {
                        "; signals reach only the process group that they come from, since Landlock is too old to let them go \
                         further within the sandbox alone"
                    }
                );
                gaps.push(Cause::new(gap, cause.remedy.clone()));
                if network.private {
                    gaps.push(Cause::new("the network stands behind the filter alone", cause.remedy));
                }
            }
        }
        if self.mode != Mode::Bare {
            mechanisms.extend(["mount namespace", "PID namespace", "IPC namespace"].map(String::from));
            if network.private && self.network {
                mechanisms.push("network namespace".into());
            } else if network.private {
                let no_network = Cause::new(
                    "this kernel lets this process make no network namespace",
                    "use a kernel with CONFIG_NET_NS, and let the executor make namespaces (user.max_net_namespaces)",
                );
                if network.loopback {
                    return Err(no_network.into());
                }
                let gap = "the network stands behind the filter alone: no network namespace can be made";
                gaps.push(Cause::new(gap, no_network.remedy));
            }
            if !self.fresh_proc {
                gaps.push(Cause::new(
                    "/proc is empty: a new one cannot be mounted where parts of the old one are covered",
                    "run the executor where nothing is mounted over parts of /proc: in a container, without its masked paths",
                ));
            }
        }
        match self.landlock {
            Some(_) => mechanisms.push("landlock".into()),
            None if restricts_files => {
                gaps.push(Cause::new(
                    "files stand behind mounts alone: there is no Landlock; the host's named pipes can be written to",
                    "use a kernel with CONFIG_SECURITY_LANDLOCK, and with landlock in its list of security modules (lsm=), \
                     and let an outer filter of system calls pass it",
                ));
            }
            None => {}
        }
        if self.landlock.is_some() && files.is_none() && restricts_files {
            let gap = "files stand behind mounts alone: Landlock is too old";
            gaps.push(Cause::new(gap, "use a kernel from 6.2 on"));
        }
        if !gaps.is_empty() && !accept_partial {
            return Err(partial(&gaps));
        }
        let landlock = self.landlock.map_or_else(|| "no landlock".into(), |version| format!("landlock abi {version}"));
        let mut facts = vec![landlock];
        match self.no_notices {
            Some(errno) => facts.push(notice::lack(&io::Error::from_raw_os_error(errno))),
            None => mechanisms.push(notice::MECHANISM.into()),
        }
        let level =
            if gaps.is_empty() { Level::Full } else { Level::Partial(gaps.into_iter().map(|gap| gap.cause).collect()) };
        Ok(Enforcement::new(level, mechanisms, facts))
    }
}

/// The owner wants all or nothing.
fn partial(gaps: &[Cause]) -> SandboxError {
    let causes: Vec<&str> = gaps.iter().map(|gap| gap.cause.as_str()).collect();
    let mut remedies: Vec<&str> = gaps.iter().map(|gap| gap.remedy.as_str()).collect();
    remedies.dedup();
    SandboxError::unavailable(
        format!("only a part can be enforced: {}", causes.join("; ")),
        format!("{}, or let the executor's settings accept a partial sandbox", remedies.join("; ")),
    )
}

impl Cause {
    fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into() }
    }
}

/// Everything may be read and nothing written.
fn read_only() -> Bound {
    Bound {
        class: Class::FullRead,
        root: Some(Access::Read),
        entries: Vec::new(),
        aliases: Vec::new(),
        network: NetworkPolicy::Restricted,
        workspace_roots: Vec::new(),
        cwd: None,
        globs: Vec::new(),
        glob_scan_max_depth: None,
        protected: Vec::new(),
        minimal: false,
    }
}

fn filter_available() -> bool {
    const GET_ACTION_AVAILABLE: libc::c_uint = 2;
    let action: u32 = 0x8000_0000;
    // SAFETY: the call reads one number.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0, &raw const action) == 0 }
}

/// The devices of the host that sandboxes get.
fn devices() -> Vec<(CString, CString)> {
    let names = ["null", "zero", "full", "random", "urandom", "tty"];
    let there = |name: &&str| {
        std::fs::symlink_metadata(format!("/dev/{name}")).is_ok_and(|found| found.file_type().is_char_device())
    };
    let paths = names
        .into_iter()
        .filter(there)
        .map(|name| Some((CString::new(format!("/dev/{name}")).ok()?, CString::new(format!("dev/{name}")).ok()?)));
    paths.flatten().collect()
}

/// Why namespaces cannot be had, for whoever can change it.
pub(super) fn explain(refusal: &Refusal) -> Cause {
    let (what, errno) = match refusal {
        Refusal::Builder(error) => (format!("namespaces cannot be made: {error}"), error.raw_os_error()),
        Refusal::Step(failure) => {
            let error = io::Error::from_raw_os_error(failure.errno);
            (format!("{}: {error}", super::step_name(failure.stage)), Some(failure.errno))
        }
        Refusal::Other(what, error) => (format!("cannot {what}: {error}"), error.raw_os_error()),
    };
    let makes = matches!(refusal, Refusal::Builder(_))
        || matches!(refusal, Refusal::Step(step) if step.stage == Stage::PidNamespace);
    let remedy = match errno {
        Some(libc::EPERM | libc::EACCES | libc::EUSERS) => refused_remedy(&setting),
        Some(libc::ENOSPC) if makes => refused_remedy(&setting),
        Some(libc::ENOSPC) => "free memory, or raise the system setting fs.mount-max",
        Some(libc::EMFILE | libc::ENFILE) => "raise the executor's limit of open files, and try again",
        Some(libc::EAGAIN) => "raise the limit of processes of the executor's user, and try again",
        Some(libc::ENOMEM) => "give the executor more memory, and try again",
        Some(libc::EINTR) => "try again",
        Some(libc::ENOSYS | libc::EINVAL) => "use a kernel from 5.12 on with user namespaces",
        // It was killed, most likely by a filter around the executor; or it is another kind of processor.
        None => {
            "run the executor on x86-64 or 64-bit ARM, where no outer filter of system calls ends it for making namespaces"
        }
        Some(_) => "let the executor make user namespaces, and mounts in them",
    };
    Cause::new(what, remedy)
}

/// What a setting of the system is.
fn setting(name: &str) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().to_owned())
}

/// What to do where namespaces are not allowed, or no more of them.
fn refused_remedy(setting: &dyn Fn(&str) -> Option<String>) -> &'static str {
    if setting("user/max_user_namespaces").as_deref() == Some("0") {
        "raise the system setting user.max_user_namespaces"
    } else if setting("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        "set the system setting kernel.unprivileged_userns_clone to 1"
    } else if setting("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        "allow user namespaces to the executor by an AppArmor profile, or set the system setting \
         kernel.apparmor_restrict_unprivileged_userns to 0"
    } else {
        "let the container or the security module that the executor runs under allow user namespaces and mounts, raise the \
         system setting user.max_user_namespaces, or give the executor CAP_SYS_ADMIN"
    }
}

#[cfg(test)]
mod tests;
