use super::*;

#[test]
fn only_an_unusable_socket_ends_the_listening() {
    let of = |code| Refusal::of(&io::Error::from_raw_os_error(code));
    for code in [libc::EBADF, libc::ENOTSOCK, libc::EINVAL] {
        assert_eq!(of(code), Refusal::Socket, "{code}");
    }
    for code in [libc::ECONNABORTED, libc::EINTR] {
        assert_eq!(of(code), Refusal::Connection, "{code}");
    }
    for code in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
        assert_eq!(of(code), Refusal::ForNow, "{code}");
    }
    // What the manual page of accept names as errors that are pending on the new socket, or a firewall's.
    for code in [
        libc::EPERM,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::EOPNOTSUPP,
        libc::ETIMEDOUT,
    ] {
        assert_eq!(of(code), Refusal::ForNow, "{code}");
    }
    assert_eq!(Refusal::of(&io::Error::other("what?")), Refusal::ForNow);
}
