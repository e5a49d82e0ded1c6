//! This program as an executor on its standard streams, of whatever user and with whatever crutches it was started.

use std::io::Write as _;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use longarm::sandbox::{FileViolation, SandboxBackend, Violation, ViolationReason, ViolationSink};
use longarm::server::{Server, serve_stdio};
use longarm::{Local, LocalConfig};

use crate::place::{Cripple, Settings};

/// The first argument that makes this program an executor.
pub(crate) const FLAG: &str = "--executor";

pub(crate) fn main() -> ! {
    let settings = Settings::from_text(&std::env::var(SETTINGS).unwrap());
    match settings.cripple {
        None => {}
        Some(Cripple::UserNamespaces) => refuse_user_namespaces(),
        Some(Cripple::MoreLayers) => use_up_layers(),
        Some(Cripple::Processes) => refuse_processes(),
        // Open until this program ends.
        Some(Cripple::Listeners) => drop(listen_to_calls().unwrap().into_raw_fd()),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let mut config = LocalConfig::from_host().end_with_executor(true);
        for own in [SETTINGS, VIOLATIONS, STATE, crate::mounts::BASE] {
            config.base_env.remove(std::ffi::OsStr::new(own));
        }
        let [violations, state] = [VIOLATIONS, STATE].map(|name| std::env::var_os(name).unwrap().into());
        config.sandbox = settings.sandbox(state).violations(Arc::new(Scribe(violations)));
        let server = Server::new(Arc::new(Local::new(config)));
        serve_stdio(&server, tokio::io::stdin(), tokio::io::stdout(), std::future::pending()).await
    });
    runtime.shutdown_background();
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0)
}

/// The variable with the settings.
pub(crate) const SETTINGS: &str = "LONGARM_SANDBOX_TEST_SETTINGS";

/// The variable with the file in which it writes violations down.
pub(crate) const VIOLATIONS: &str = "LONGARM_SANDBOX_TEST_VIOLATIONS";

/// The variable with the directory for its state, if its settings say that it has one of its own.
pub(crate) const STATE: &str = "LONGARM_SANDBOX_TEST_STATE";

/// Writes down what it is told, one line for each.
#[derive(Debug)]
struct Scribe(PathBuf);

impl ViolationSink for Scribe {
    fn violation(&self, violation: Violation) {
        let Violation::File(file) = violation else { panic!("{violation:?}") };
        let [path, snippet] = [file.path, file.output_snippet].map(Option::unwrap_or_default);
        // In one piece, for whoever reads meanwhile.
        let line = format!("{}\t{path}\t{snippet:?}\n", file.reason.as_str());
        let mut to = std::fs::File::options().append(true).create(true).open(&self.0).unwrap();
        to.write_all(line.as_bytes()).unwrap();
    }
}

/// What such a line says.
pub(crate) fn violation_from_line(line: &str) -> Violation {
    let fields: Vec<&str> = line.split('\t').collect();
    let [reason, path, snippet] = fields[..] else { panic!("{line}") };
    let reasons = [
        ViolationReason::OperationNotPermitted,
        ViolationReason::PermissionDenied,
        ViolationReason::ReadOnlyFileSystem,
        ViolationReason::PolicyDenied,
        ViolationReason::FailedToWriteFile,
        ViolationReason::Sigsys,
    ];
    let reason = reasons.into_iter().find(|known| known.as_str() == reason).unwrap();
    let mut file = FileViolation::new(SandboxBackend::Linux, reason);
    file.path = Some(path.to_owned()).filter(|path| !path.is_empty());
    file.output_snippet = Some(snippet.to_owned()).filter(|snippet| snippet != "\"\"");
    Violation::File(file)
}

/// Stands for a machine on which users may make no namespaces: nor may root, which has not the right to.
fn refuse_user_namespaces() {
    let new_user = libc::CLONE_NEWUSER.cast_unsigned();
    install(&[
        load(0),
        equal(libc::SYS_clone3, 1),
        refuse(libc::ENOSYS),
        // Both have their flags first.
        jump(libc::BPF_JEQ, u32::try_from(libc::SYS_unshare).unwrap(), 1, 0),
        equal(libc::SYS_clone, 3),
        load(16),
        jump(libc::BPF_JSET, new_user, 0, 1),
        refuse(libc::EPERM),
        allow(),
    ]);
    const CAP_SYS_ADMIN: usize = 21;
    // SAFETY: the call takes numbers. Only who has rights can give them up.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) };
    let header = [0x2008_0522_u32, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the calls read a header and fill, and read, two sets of three numbers.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0].iter_mut().for_each(|set| *set &= !(1 << CAP_SYS_ADMIN));
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

/// Only threads can be made.
fn refuse_processes() {
    install(&[
        load(0),
        equal(libc::SYS_clone3, 1),
        refuse(libc::ENOSYS),
        equal(libc::SYS_clone, 3),
        load(16),
        jump(libc::BPF_JSET, libc::CLONE_THREAD.cast_unsigned(), 1, 0),
        refuse(libc::EPERM),
        allow(),
    ]);
}

fn install(filter: &[libc::sock_filter]) {
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_ptr().cast_mut() };
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program has the length that it says, and the kernel copies it.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }, 0);
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn refuse(errno: i32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned())
}

fn allow() -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)
}

/// Skips if what was loaded is not this number.
fn equal(number: libc::c_long, skip: u8) -> libc::sock_filter {
    jump(libc::BPF_JEQ, u32::try_from(number).unwrap(), 0, skip)
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k }
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { jt, jf, ..statement(libc::BPF_JMP | test | libc::BPF_K, k) }
}

/// Restricts this process as often as the kernel lets it.
fn use_up_layers() {
    #[repr(C)]
    struct Attributes {
        handled_access_fs: u64,
    }
    // The right to make block devices, which nobody here misses.
    let attributes = Attributes { handled_access_fs: 1 << 11 };
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    for _ in 0..16 {
        // SAFETY: the call reads a structure of the size that it is told, and the other takes numbers.
        unsafe {
            let size = size_of::<Attributes>();
            let ruleset = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0);
            assert!(ruleset >= 0, "{}", std::io::Error::last_os_error());
            assert_eq!(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0), 0);
            libc::close(i32::try_from(ruleset).unwrap());
        }
    }
}

/// Puts a filter in force that allows everything, and returns its listener, of which a process has one at most.
pub(crate) fn listen_to_calls() -> std::io::Result<OwnedFd> {
    let filter = [allow()];
    let program = libc::sock_fprog { len: 1, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program has the length that it says, and the kernel copies it.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) })
}
