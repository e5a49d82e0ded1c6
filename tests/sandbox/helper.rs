//! What rows do that no usual program does: single system calls. Each prints `ok`, or the system's words for its error and
//! ends with 1.

mod attempts;

use std::ffi::{CString, OsString};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// The first argument that makes this program the helper.
pub(crate) const FLAG: &str = "--helper";

/// What it says to who listens.
pub(crate) const GREETING: &str = "hello\n";

pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ! {
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => {
            println!("ok");
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("{}: {error}", args.join(" "));
            std::process::exit(1)
        }
    }
}

fn run(args: &[&str]) -> io::Result<()> {
    match args {
        // Whatever comes of it, it takes no time. A busy machine may take some, but not each time.
        ["at-once", rest @ ..] => {
            let mut taken = Vec::new();
            loop {
                let begin = Instant::now();
                let result = run(rest);
                taken.push(begin.elapsed());
                if taken.last().is_some_and(|time| *time < Duration::from_secs(1)) {
                    return result;
                }
                assert!(taken.len() < 5, "it took {taken:?}");
            }
        }
        ["chmod", file] => check(|| {
            let file = text(file);
            // SAFETY: the path is a C string that lives until the call has ended.
            unsafe { libc::chmod(file.as_ptr(), 0o644) }
        }),
        ["chown", file] => check(|| {
            let file = text(file);
            // SAFETY: as above; the others take nothing.
            unsafe { libc::chown(file.as_ptr(), libc::geteuid(), libc::getegid()) }
        }),
        ["utime", file] => check(|| {
            let file = text(file);
            // SAFETY: as above; without times it is the present.
            unsafe { libc::utimensat(libc::AT_FDCWD, file.as_ptr(), std::ptr::null(), 0) }
        }),
        ["setxattr", file] => check(|| {
            let (file, name) = (text(file), text("user.longarm"));
            // SAFETY: both are C strings that live until the call has ended, and the value has the length that is given.
            unsafe { libc::setxattr(file.as_ptr(), name.as_ptr(), c"x".as_ptr().cast(), 1, 0) }
        }),
        ["truncate", file] => check(|| {
            let file = text(file);
            // SAFETY: as above.
            unsafe { libc::truncate(file.as_ptr(), 0) }
        }),
        ["open-write", file] => std::fs::OpenOptions::new().write(true).open(file).map(drop),
        ["mknod", file] => check(|| {
            let file = text(file);
            // SAFETY: as above.
            unsafe { libc::mknod(file.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) }
        }),
        ["mount"] => check(mount),
        ["rename", from, to] => std::fs::rename(from, to),
        ["userns"] => {
            // SAFETY: the call takes a number; this program has one thread.
            check(|| unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
            check(mount)
        }
        ["tcp", address] => TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5)).map(drop),
        ["udp", address] => UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", address).map(drop),
        // The answer comes from whoever listens at the port of the executor's loopback.
        ["talk", address] => {
            let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5))?;
            stream.write_all(GREETING.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            print!("{answer}");
            Ok(())
        }
        ["loopback"] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut near = TcpStream::connect(listener.local_addr()?)?;
            near.write_all(b"x")?;
            listener.accept()?.0.read_exact(&mut [0])
        }
        ["socket", family, kind, protocol] => {
            let [family, kind, protocol] = [family, kind, protocol].map(|number| number.parse().unwrap());
            // SAFETY: the call takes numbers.
            check(|| unsafe { libc::socket(family, kind, protocol) })
        }
        ["sockets", threads, calls, ..] => sockets(threads.parse().unwrap(), calls.parse().unwrap()),
        ["listener"] => crate::executor::listen_to_calls().map(drop),
        ["datagram-pair"] => {
            let mut pair = [0; 2];
            // SAFETY: the call fills two numbers.
            check(|| unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr()) })
        }
        ["unix", path] => UnixStream::connect(path).map(drop),
        ["abstract", name] => {
            let name = name.strip_prefix('@').unwrap();
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
        }
        ["datagrams", file, name] => attempts::datagrams(file, name.strip_prefix('@').unwrap()),
        ["reach-others"] => attempts::reach_others(),
        ["write-settings"] => attempts::write_settings(),
        ["identity"] => attempts::identity(),
        ["get", proxy, host] => attempts::get(proxy, host),
        ["pair"] => pair(),
        ["sibling"] => check(|| {
            // SAFETY: the child does nothing but end.
            let made = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
            if made == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            i32::try_from(made).unwrap()
        }),
        // As it is: the mode is the same afterwards.
        ["mode-of-stdin"] => {
            // SAFETY: the calls take an open descriptor, and fill a structure.
            check(|| unsafe {
                let mut found: libc::stat = std::mem::zeroed();
                match libc::fstat(0, &raw mut found) {
                    0 => libc::fchmod(0, found.st_mode & 0o7777),
                    failed => failed,
                }
            })
        }
        ["io_uring"] => {
            let mut params = [0_u8; 120];
            check(|| {
                // SAFETY: the call fills a structure of that size, which is zeroed.
                let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
                i32::try_from(made).unwrap_or(0)
            })
        }
        ["ptrace"] => ptrace(),
        ["fds"] => {
            let mut fds: Vec<i32> = (0..1024).filter(|fd| is_open(*fd)).collect();
            fds.sort_unstable();
            println!("{fds:?}");
            Ok(())
        }
        ["tiocsti"] => {
            let stuff = [0, 1_u64 << 32].map(|high| {
                let letter = b'x';
                // SAFETY: the call reads one byte; the number has more bits than the kernel looks at.
                check(|| unsafe { libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI | high, &raw const letter) } as i32)
            });
            // Either way must fail, and by the same error.
            stuff.into_iter().map(|result| result.err()).for_each(|error| println!("{error:?}"));
            Ok(())
        }
        other => panic!("no such action: {other:?}"),
    }
}

fn check(call: impl FnOnce() -> i32) -> io::Result<()> {
    if call() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn text(text: &str) -> CString {
    CString::new(OsString::from(text).into_vec()).unwrap()
}

fn mount() -> i32 {
    // SAFETY: all are C strings, or null where that stands for nothing.
    unsafe { libc::mount(c"none".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) }
}

/// Each of some threads asks for so many sockets, and must get none. A further argument tells this process from others.
fn sockets(threads: usize, calls: usize) -> io::Result<()> {
    let ask = move || {
        (0..calls).try_for_each(|_| {
            // SAFETY: the call takes numbers.
            match check(|| unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) }) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
                Err(error) => Err(error),
                Ok(()) => Err(io::Error::other("there is a socket")),
            }
        })
    };
    let threads: Vec<_> = (0..threads).map(|_| std::thread::spawn(ask)).collect();
    threads.into_iter().try_for_each(|thread| thread.join().unwrap())
}

/// What programs do with a pair of sockets.
fn pair() -> io::Result<()> {
    let (mut near, mut far) = UnixStream::pair()?;
    let fd = near.as_raw_fd();
    // SAFETY: the call reads one byte.
    check(|| unsafe { libc::send(fd, c"a".as_ptr().cast(), 1, 0) } as i32)?;
    let mut byte = [b'b'];
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a message of zeroes is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    // SAFETY: the message names one piece of one byte, which lives until the call has ended.
    check(|| unsafe { libc::sendmsg(fd, &raw const message, 0) } as i32)?;
    near.write_all(b"c")?;
    let (mut value, mut size) = (0_i32, 4);
    // SAFETY: the call fills a number of the size that it is told.
    check(|| unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut value).cast(), &raw mut size) })?;
    near.shutdown(std::net::Shutdown::Write)?;
    let mut text = String::new();
    far.read_to_string(&mut text)?;
    assert_eq!((text.as_str(), value), ("abc", libc::SOCK_STREAM));
    Ok(())
}

fn ptrace() -> io::Result<()> {
    // SAFETY: this program has one thread; the child only waits for its end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: the call takes nothing.
            unsafe { libc::pause() };
        }
    }
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the call takes numbers and null pointers.
    let result = check(|| unsafe { libc::ptrace(libc::PTRACE_ATTACH, child, nothing, nothing) } as i32);
    // SAFETY: the call takes numbers; the child is ours and was not reaped.
    check(|| unsafe { libc::kill(child, libc::SIGKILL) })?;
    result
}

fn is_open(fd: i32) -> bool {
    // SAFETY: the call takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0
}
