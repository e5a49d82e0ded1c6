//! What this kernel lets this process build, found out by building it once.

use std::ffi::CString;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use super::child::{Failure, Report, Stage};
use super::filter;
use super::landlock::{LEAST_FOR_FILES, LEAST_FOR_SIGNALS};
use super::plan::{self, Settings, Walls};
use super::raw;
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
    /// Devices of the host that sandboxes get, and where they have them.
    pub(super) devices: Vec<(CString, CString)>,
    /// What in `/proc` the system's root could write to without a capability.
    pub(super) proc_names: Vec<String>,
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
pub(super) fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        // A thread of its own, since trying takes one that blocks all signals.
        let thread = std::thread::Builder::new().name("longarm-probe".into());
        let found = thread.spawn(find_out).map(std::thread::JoinHandle::join);
        match found {
            Ok(Ok(kernel)) => kernel,
            _ => Kernel::bare(Cause {
                cause: "no thread could be made to try what the kernel allows".into(),
                remedy: "raise the limit of threads and start the executor again".into(),
            }),
        }
    })
}

/// Tries the ways from the best to the worst.
fn find_out() -> Kernel {
    let mut kernel = Kernel::bare(Cause { cause: String::new(), remedy: String::new() });
    let Ok(mut launcher) = platform::Launcher::new() else { return kernel };
    let mut first = None;
    for mode in [Mode::User, Mode::Mount] {
        for (fresh_proc, network) in [(true, true), (false, true), (true, false), (false, false)] {
            let candidate = Kernel { mode, fresh_proc, network, no_namespaces: None, ..kernel.clone() };
            match candidate.attempt(&mut launcher) {
                Ok(()) => return candidate,
                Err(Refusal::Step(Failure { stage: Stage::Landlock, errno, .. })) => {
                    // It is reported when a process is to be started: the executor itself is behind too many walls.
                    return Kernel { landlock: kernel.landlock.filter(|_| errno == libc::E2BIG), ..candidate };
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
    kernel
}

impl Kernel {
    fn bare(cause: Cause) -> Self {
        // SAFETY: neither call has arguments, and neither can fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Self {
            mode: Mode::Bare,
            no_namespaces: Some(cause),
            network: false,
            fresh_proc: false,
            landlock: raw::landlock_version(),
            devices: devices(),
            proc_names: proc_names(),
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
        let shape = plan::shape(&bound, &settings, self)
            .map_err(|error| Refusal::Other("plan a sandbox", std::io::Error::other(error)))?;
        let report = Report::default();
        launcher.with_stacks(|stacks| {
            // SAFETY: the launcher's thread blocks all signals, and lends its stacks to nobody else.
            unsafe { run(&shape, stacks, None, &report) }.map(drop)
        })
    }

    /// What is enforced of an intent, or why it is refused.
    pub(super) fn assess(&self, bound: &Bound, network: plan::Network) -> Result<Enforcement, SandboxError> {
        let mut gaps = Vec::new();
        let mut mechanisms = vec!["seccomp".to_owned()];
        if !filter::SUPPORTED || !filter_available() {
            return Err(Cause {
                cause: "this kernel has no filters for system calls on this kind of processor".into(),
                remedy: "use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or 64-bit ARM".into(),
            }
            .into());
        }
        let files = self.landlock.filter(|version| *version >= LEAST_FOR_FILES);
        let restricts_files = bound.root != Some(Access::Write) || bound.changes().next().is_some();
        match (self.mode, &self.no_namespaces) {
            (Mode::User, _) => mechanisms.push("user namespace".into()),
            (Mode::Mount, _) => {}
            (Mode::Bare, cause) => {
                let cause = cause.clone().unwrap_or_else(|| Cause {
                    cause: "namespaces cannot be made".into(),
                    remedy: "allow this user to make user namespaces".into(),
                });
                let only_reads = bound.root == Some(Access::Read) && bound.changes().next().is_none();
                let signals = self.landlock.is_some_and(|version| version >= LEAST_FOR_SIGNALS);
                let no_ports =
                    network.sockets != filter::Sockets::Loopback && network.sockets != filter::Sockets::LoopbackAndUnix;
                // Without the mounts nothing can be taken back within what is allowed, and no process be hidden.
                let files_held = !restricts_files || only_reads && files.is_some();
                if !(files_held && signals && no_ports) {
                    return Err(cause.into());
                }
                gaps.push(format!(
                    "no namespaces ({}): processes of the same user can be seen, and one that leaves its \
                                   session outlives the command",
                    cause.cause
                ));
                if network.private {
                    gaps.push("the network stands behind the filter alone".into());
                }
            }
        }
        if self.mode != Mode::Bare {
            mechanisms.extend(["mount namespace", "PID namespace", "IPC namespace"].map(String::from));
            if network.private && self.network {
                mechanisms.push("network namespace".into());
            } else if network.private {
                if network.loopback {
                    return Err(Cause {
                        cause: "this kernel lets this process make no network namespace".into(),
                        remedy: "use a kernel with CONFIG_NET_NS, and let the executor make namespaces".into(),
                    }
                    .into());
                }
                gaps.push("the network stands behind the filter alone: no network namespace can be made".into());
            }
            if !self.fresh_proc {
                gaps.push("/proc is empty: a new one cannot be mounted where parts of the old one are covered".into());
            }
        }
        match self.landlock {
            Some(_) => mechanisms.push("landlock".into()),
            None if restricts_files => gaps.push("files stand behind mounts alone: there is no Landlock".into()),
            None => {}
        }
        if self.landlock.is_some() && files.is_none() && restricts_files {
            gaps.push("files stand behind mounts alone: Landlock is too old".into());
        }
        let landlock = self.landlock.map_or_else(|| "no landlock".into(), |version| format!("landlock abi {version}"));
        let level = if gaps.is_empty() { Level::Full } else { Level::Partial(gaps) };
        Ok(Enforcement::new(level, mechanisms, vec![landlock]))
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

/// What in `/proc` a user with the number of the system's root can open for writing without a capability.
fn proc_names() -> Vec<String> {
    const DIRECTORIES: &[&str] = &["sys", "irq", "bus", "fs", "acpi", "scsi", "driver", "asound", "dynamic_debug"];
    let mut names: Vec<String> = DIRECTORIES
        .iter()
        .filter(|name| Path::new("/proc").join(name).is_dir())
        .map(|name| (*name).to_owned())
        .collect();
    let files =
        std::fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| {
            entry.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o222 != 0)
        });
    names.extend(files.filter_map(|entry| entry.file_name().into_string().ok()));
    // A writer needs no permission to read, and its mode does not show it.
    if Path::new("/proc/sysrq-trigger").exists() && !names.iter().any(|name| name == "sysrq-trigger") {
        names.push("sysrq-trigger".into());
    }
    names
}

/// Why namespaces cannot be had, for whoever can change it.
pub(super) fn explain(refusal: &Refusal) -> Cause {
    let setting = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let (what, errno) = match refusal {
        Refusal::Builder(error) => (format!("namespaces cannot be made: {error}"), error.raw_os_error()),
        Refusal::Step(failure) => {
            let error = std::io::Error::from_raw_os_error(failure.errno);
            (format!("{}: {error}", super::step_name(failure.stage)), Some(failure.errno))
        }
        Refusal::Other(what, error) => (format!("cannot {what}: {error}"), error.raw_os_error()),
    };
    let remedy = if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        "raise the system setting user.max_user_namespaces".into()
    } else if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        "set the system setting kernel.unprivileged_userns_clone to 1".into()
    } else if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        "allow user namespaces to the executor by an AppArmor profile, or set the system setting \
         kernel.apparmor_restrict_unprivileged_userns to 0"
            .into()
    } else {
        match errno {
            Some(libc::ENOSPC | libc::EUSERS) => "raise the system setting user.max_user_namespaces".into(),
            Some(libc::EPERM | libc::EACCES) => {
                "let the container or the security module that the executor runs under allow user namespaces and mounts, \
                 or give it CAP_SYS_ADMIN"
                    .into()
            }
            Some(libc::ENOSYS | libc::EINVAL) => "use a kernel from 5.12 on with user namespaces".into(),
            _ => "let the executor make user namespaces".to_owned(),
        }
    };
    Cause { cause: what, remedy }
}
