//! An executor in a network of its own, where it has an address that is not loopback: as one has on a LAN, but that nobody
//! else reaches what listens there.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::executor;

/// The first argument that makes this program make a network, and an executor in it.
pub(crate) const FLAG: &str = "--network";

/// The variable with the user that the executor is to be, if it is another one.
pub(crate) const USER: &str = "LONGARM_SANDBOX_TEST_USER";

/// The address besides loopback.
pub(crate) const LAN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// Somebody listens there, on both addresses, and says which one it was.
pub(crate) const PORT: u16 = 18_080;

pub(crate) fn main() -> ! {
    // SAFETY: the call takes a number; this program has one thread.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
    raise(b"lo", None);
    raise(b"lo:1", Some(LAN));
    for (address, word) in [(Ipv4Addr::LOCALHOST, "proxy\n"), (LAN, "lan\n")] {
        let listener = TcpListener::bind((address, PORT)).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // Who only looks whether somebody listens has gone again.
                if stream.read_exact(&mut [0; crate::helper::GREETING.len()]).is_ok() {
                    drop(stream.write_all(word.as_bytes()));
                }
            }
        });
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg(executor::FLAG).env_remove(USER);
    if let Ok(user) = std::env::var(USER) {
        let user = user.parse().unwrap();
        command.uid(user).gid(user);
    }
    let status = command.status().unwrap();
    std::process::exit(status.code().unwrap_or(1))
}

/// Brings an interface up, with an address if need be.
fn raise(name: &[u8], address: Option<Ipv4Addr>) {
    // SAFETY: structures of the kernel's, which it reads and fills, and a descriptor of our own.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        if let Some(address) = address {
            let mut inet: libc::sockaddr_in = std::mem::zeroed();
            inet.sin_family = libc::AF_INET as _;
            inet.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
            request.ifr_ifru.ifru_addr = std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet);
            assert_eq!(libc::ioctl(socket, libc::SIOCSIFADDR, &raw const request), 0);
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request), 0);
        libc::close(socket);
    }
}

/// An address of this machine that is not loopback, where there is one.
pub(crate) fn address_of_this_machine() -> Option<Ipv4Addr> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call makes a list, which is freed below and read before.
    unsafe {
        assert_eq!(libc::getifaddrs(&raw mut first), 0);
        let mut found = None;
        let mut next = first;
        while let Some(entry) = next.as_ref() {
            if let Some(address) = entry.ifa_addr.as_ref()
                && i32::from(address.sa_family) == libc::AF_INET
            {
                let inet = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                let address = Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr));
                found = found.or_else(|| Some(address).filter(|address| !address.is_loopback()));
            }
            next = entry.ifa_next;
        }
        libc::freeifaddrs(first);
        found
    }
}
