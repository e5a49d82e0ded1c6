//! Attempts by all ways that there are.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::FromRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use super::check;

/// Sends a datagram to a socket file and to an abstract name, by every kind of local socket and every call. Succeeds if
/// anything was sent.
pub(super) fn datagrams(file: &str, name: &str) -> io::Result<()> {
    let addresses = [SocketAddr::from_pathname(file)?, SocketAddr::from_abstract_name(name)?];
    let mut sockets = Vec::new();
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET, libc::SOCK_STREAM] {
        for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
            let mut pair = [-1; 2];
            // SAFETY: the calls take numbers, and fill two.
            unsafe {
                sockets.push((kind, libc::socket(libc::AF_UNIX, kind | flags, 0)));
                libc::socketpair(libc::AF_UNIX, kind | flags, 0, pair.as_mut_ptr());
            }
            sockets.extend(pair.map(|socket| (kind, socket)));
        }
    }
    let mut outcome = Err(io::Error::other("no socket, os error"));
    for (kind, socket) in sockets.into_iter().filter(|(_, socket)| *socket >= 0) {
        // What kind it is does not matter to the calls. SAFETY: nobody else owns the descriptor.
        let socket = unsafe { UnixDatagram::from_raw_fd(socket) };
        // Where it arrives nobody takes it.
        socket.set_nonblocking(true)?;
        for address in &addresses {
            let mut sent = socket.send_to_addr(b"x", address).map(drop);
            if kind == libc::SOCK_SEQPACKET {
                // The address is not looked at, and it goes to the other end of the pair.
                sent = Err(io::Error::other("os error"));
            }
            let connected = socket.connect_addr(address).and_then(|()| socket.send(b"x").map(drop));
            outcome = outcome.or(sent).or(connected);
        }
    }
    outcome
}

/// Calls that reach other processes, or the kernel, around every other rule: each is to be refused.
pub(super) fn reach_others() -> io::Result<()> {
    let calls = [
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("kcmp", libc::SYS_kcmp),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("init_module", libc::SYS_init_module),
        ("finit_module", libc::SYS_finit_module),
        ("delete_module", libc::SYS_delete_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("swapon", libc::SYS_swapon),
        ("swapoff", libc::SYS_swapoff),
        ("clock_settime", libc::SYS_clock_settime),
        ("settimeofday", libc::SYS_settimeofday),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("fsopen", libc::SYS_fsopen),
        ("fsconfig", libc::SYS_fsconfig),
        ("fsmount", libc::SYS_fsmount),
        ("fspick", libc::SYS_fspick),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ];
    let mut others = Vec::new();
    for (name, number) in calls {
        // SAFETY: without arguments none of them does anything.
        let result = unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) };
        let error = io::Error::last_os_error();
        if result >= 0 || error.raw_os_error() != Some(libc::EPERM) {
            others.push(format!("{name}: {result}, {error}"));
        }
    }
    if others.is_empty() { Ok(()) } else { Err(io::Error::other(others.join("; "))) }
}

/// Opens all settings of the kernel for writing. Fails, and names those that could be, if any could.
pub(super) fn write_settings() -> io::Result<()> {
    let mut tried = 0;
    let mut opened = Vec::new();
    let mut directories = vec![Path::new("/sys").to_owned()];
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Those of processes are their own.
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            directories.push(entry.path());
        }
    }
    while let Some(path) = directories.pop() {
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten();
            directories.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else if found.is_file() {
            tried += 1;
            let mut options = std::fs::File::options();
            if options.write(true).custom_flags(libc::O_NONBLOCK).open(&path).is_ok() {
                opened.push(path.display().to_string());
            }
        }
    }
    if !opened.is_empty() {
        return Err(io::Error::other(opened.join(" ")));
    }
    // There are hundreds on every kernel.
    if tried < 100 { Err(io::Error::other(format!("{tried} were there"))) } else { Ok(()) }
}

/// Says who it is.
pub(super) fn identity() -> io::Result<()> {
    // SAFETY: the calls take nothing.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    let mut real_in_kernel = [0; 3];
    let [first, second, third] = &mut real_in_kernel;
    // SAFETY: the call fills three numbers.
    check(|| unsafe { libc::getresuid(first, second, third) })?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default().trim();
    println!("real {real} effective {effective} saved {} rights {rights}", real_in_kernel[2]);
    Ok(())
}

/// Asks a proxy for a page; fails with what it says if that is not the page.
pub(super) fn get(proxy: &str, host: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(proxy)?;
    write!(stream, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    print!("{answer}");
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(()) } else { Err(io::Error::other(format!("status {status}"))) }
}
