//! This program as an executor on its standard streams, of whatever user and with whatever crutches it was started.

use std::sync::Arc;

use longarm::server::{Server, serve_stdio};
use longarm::{Local, LocalConfig};

use crate::place::{Cripple, Settings};

/// The first argument that makes this program an executor.
pub(crate) const FLAG: &str = "--executor";

pub(crate) fn main() -> ! {
    let settings = Settings::from_text(&std::env::var(SETTINGS).unwrap());
    match settings.cripple {
        None => {}
        Some(Cripple::NoUserNamespaces) => refuse_user_namespaces(),
        Some(Cripple::NoMoreLayers) => use_up_layers(),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let mut config = LocalConfig::from_host().end_with_executor(true);
        config.base_env.remove(std::ffi::OsStr::new(SETTINGS));
        config.sandbox = settings.sandbox();
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

/// Stands for a machine on which users may make no namespaces of their own.
fn refuse_user_namespaces() {
    let data = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let refuse = |errno: i32| statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    let equal = |number: libc::c_long, skip| jump(libc::BPF_JEQ, u32::try_from(number).unwrap(), 0, skip);
    let new_user = libc::CLONE_NEWUSER.cast_unsigned();
    let filter = [
        data(0),
        equal(libc::SYS_clone3, 1),
        refuse(libc::ENOSYS),
        // Both have their flags first.
        jump(libc::BPF_JEQ, u32::try_from(libc::SYS_unshare).unwrap(), 1, 0),
        equal(libc::SYS_clone, 3),
        data(16),
        jump(libc::BPF_JSET, new_user, 0, 1),
        refuse(libc::EPERM),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_ptr().cast_mut() };
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program has the length that it says, and the kernel copies it.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }, 0);
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
