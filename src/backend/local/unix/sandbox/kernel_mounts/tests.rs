//! The list as the kernel writes it, and what is found by it.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::null;

use super::*;
use crate::backend::local::unix::sandbox::tests::by_an_ordinary_user;

fn line(text: &str) -> Option<Line> {
    parse_line(text.as_bytes())
}

#[test]
fn a_line_is_read_whatever_optional_fields_it_has() {
    for optional in ["", "shared:5 ", "master:1 propagate_from:2 unbindable ", "later:x - "] {
        let text = format!("36 35 254:3 /sub /srv/a rw,noatime {optional}- proc proc rw,hidepid=2");
        let expected = Line {
            id: 36,
            parent: 35,
            device: libc::makedev(254, 3),
            path: "/srv/a".into(),
            limit: (!optional.contains("later")).then_some(Limit::Hidden),
        };
        assert_eq!(line(&text), Some(expected), "{text}");
    }
    assert_eq!(line("36 35 0:3 / /srv/a rw - ext4 /dev/sda").unwrap().limit, None);
    assert_eq!(line("36 35 0:3 / /srv/a rw - cgroup2").unwrap().limit, Some(Limit::ReadOnly));
}

#[test]
fn paths_are_bytes_some_of_which_are_written_as_digits() {
    let path = |text: &[u8]| path(text).map(|path| path.into_os_string().into_vec());
    assert_eq!(path(br"/a\040b\011c\012d\134e").as_deref(), Some(b"/a b\tc\nd\\e".as_slice()));
    assert_eq!(path(b"/\xff\\377\xc3").as_deref(), Some(b"/\xff\xff\xc3".as_slice()));
    assert_eq!(path(br"/\134040").as_deref(), Some(br"/\040".as_slice()), "once");
    for malformed in [br"".as_slice(), b"a", br"/\", br"/\04", br"/\049", br"/\400", br"/\ 40", b"(unreachable)/a"] {
        assert_eq!(path(malformed), None, "{}", String::from_utf8_lossy(malformed));
    }
}

#[test]
fn what_is_no_line_is_an_error() {
    let whole = "36 35 0:3 / /srv/a rw shared:1 - proc proc rw";
    let end = whole.find(" proc rw").unwrap();
    for length in 1..whole.len() {
        let known = line(&whole[..length]);
        // From there on it is about what is not asked for; before it, a part of the type is another type.
        assert_eq!(known.is_some(), length > end - "proc".len(), "{}", &whole[..length]);
        for byte in [b' ', b'\\', b':', b'-', 0xff, 0] {
            let mut changed = whole.as_bytes().to_vec();
            changed[length] = byte;
            // Whatever it is, it is no reason to panic.
            drop(parse(&changed));
        }
    }
    for malformed in [
        "x 35 0:3 / /srv/a rw - proc",
        "36 -1 0:3 / /srv/a rw - proc",
        "36 35 0 / /srv/a rw - proc",
        "36 35 0:3:4 / /srv/a rw - proc",
        "36 35 0:4294967296 / /srv/a rw - proc",
        "36 35 0:3 / srv/a rw - proc",
        "36 35 0:3 / /srv/a rw proc",
    ] {
        let text = format!("{whole}\n{malformed}\n");
        assert_eq!(parse(text.as_bytes()).unwrap_err().kind(), io::ErrorKind::InvalidData, "{malformed}");
    }
    assert_eq!(parse(format!("{whole}\n{whole}\n").as_bytes()).unwrap().len(), 2);
    assert_eq!(parse(b"").unwrap(), []);
}

#[test]
fn what_every_sandbox_knows_by_itself_is_not_among_them() {
    let listed = [
        ("/", "devtmpfs", false),
        ("/proc", "proc", false),
        ("/proc/sys/fs/binfmt_misc", "binfmt_misc", false),
        ("/sys/fs/cgroup", "cgroup2", false),
        ("/sys/kernel/debug", "proc", true),
        ("/dev/pts", "devpts", false),
        ("/dev/mqueue", "mqueue", false),
        ("/dev/shm", "tmpfs", false),
        ("/dev/shm/root/proc", "proc", true),
        ("/srv/proc", "proc", true),
        ("/srv/proc/sys", "proc", true),
        ("/srv/sys", "sysfs", true),
        ("/srv/home", "fuse.procfs", false),
    ];
    for (path, kind, is_meant) in listed {
        let found = parse(format!("36 35 0:3 / {path} rw - {kind} x rw").as_bytes()).unwrap();
        assert_eq!(found.len(), usize::from(is_meant), "{path}");
    }
}

#[test]
fn a_mount_is_covered_by_one_that_lies_over_it_or_over_a_directory_on_the_way() {
    let covered = |others: &str| {
        let text =
            format!("1 0 0:1 / / rw - ext4 x\n2 1 0:2 / /srv rw - ext4 x\n3 2 0:3 / /srv/a/proc rw - proc x\n{others}");
        parse(text.as_bytes()).unwrap()[0].is_covered
    };
    for (others, is_covered) in [
        ("", false),
        ("4 3 0:4 / /srv/a/proc rw - tmpfs x", true),
        ("4 3 0:4 / /srv/a/proc/sys rw - tmpfs x", false),
        ("4 2 0:4 / /srv/a rw - tmpfs x", true),
        ("4 2 0:4 / /srv/a/pro rw - tmpfs x", false),
        ("4 2 0:4 / /srv/b rw - tmpfs x", false),
        ("4 2 0:4 / /srv rw - tmpfs x", true),
        ("4 1 0:4 / /srv/a rw - tmpfs x", false),
        // Those go round in a circle, as none do.
        ("0 3 0:4 / /x rw - tmpfs x", false),
    ] {
        assert_eq!(covered(others), is_covered, "{others}");
    }
}

#[test]
fn what_is_not_where_the_list_says_is_looked_for_again_unless_nobody_can_reach_it() {
    // Where an ordinary user comes to.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let top = directory.path().canonicalize().unwrap();
    let (device, found) = look(&top).unwrap();
    let mount = Mount { path: top.clone(), limit: Limit::ReadOnly, device, is_covered: false };
    let at = |path: PathBuf| Mount { path, ..mount.clone() };
    assert_eq!(mount.cover().unwrap(), Some(Cover { path: top.clone(), limit: Limit::ReadOnly, found }));
    assert!(matches!(Mount { device: device + 1, ..mount.clone() }.cover(), Err(Moved)));
    assert!(matches!(at(top.join("missing")).cover(), Err(Moved)));
    assert!(matches!(Mount { is_covered: true, ..at(top.join("missing")) }.cover(), Ok(None)));
    // No path leads there, which whoever moves it can change: so nothing does from here on.
    let too_long = top.join("a".repeat(300)).join("proc");
    assert_eq!(at(too_long).cover().unwrap(), Some(Cover { path: top.clone(), limit: Limit::Hidden, found }));
    // Nor one for whoever may not enter, or could not without the rights that nobody has in a sandbox.
    let shut = top.join("shut");
    std::fs::create_dir_all(shut.join("in")).unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    set(&top, 0o755).unwrap();
    set(&shut, 0o000).unwrap();
    let closed = Cover { path: shut.clone(), limit: Limit::Hidden, found: look(&shut).unwrap().1 };
    assert_eq!(by_an_ordinary_user(|| at(shut.join("in/proc")).cover().unwrap()), Some(closed.clone()));
    if rustix::process::geteuid().is_root() {
        assert_eq!(at(shut.join("in")).cover().unwrap(), Some(closed));
    }
    set(&shut, 0o700).unwrap();
}

#[test]
fn the_list_of_this_system_is_understood() {
    let (file, _) = list().unwrap();
    assert!(!has_changed(&file).unwrap());
    current().unwrap();
}

#[test]
fn limits_hold_below_and_the_narrowest_counts() {
    let found = Found { identity: (1, 2), directory: true };
    let cover = |path: &str, limit| Cover { path: path.into(), limit, found };
    let mounts = KernelMounts::with([
        cover("/srv/sys", Limit::ReadOnly),
        cover("/srv/sys/proc", Limit::Hidden),
        cover("/srv/sys/proc/sys", Limit::ReadOnly),
    ]);
    for (path, limit) in [
        ("/srv", None),
        ("/srv/sys2", None),
        ("/sys/kernel", Some(Limit::ReadOnly)),
        ("/system", None),
        ("/srv/sys/x", Some(Limit::ReadOnly)),
        ("/srv/sys/proc", Some(Limit::Hidden)),
        ("/srv/sys/proc/sys/x", Some(Limit::Hidden)),
    ] {
        assert_eq!(mounts.limit(Path::new(path)), limit, "{path}");
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(OsStr::as_bytes(path.as_os_str())).unwrap()
}

/// Mounts something for this thread.
fn mount(kind: &CStr, path: &Path) {
    // SAFETY: terminated strings, and nothing where that stands for nothing.
    let mounted = unsafe { libc::mount(kind.as_ptr(), c_path(path).as_ptr(), kind.as_ptr(), 0, null()) };
    check(mounted).unwrap();
}

fn unmount(path: &Path) {
    // SAFETY: a terminated string.
    check(unsafe { libc::umount2(c_path(path).as_ptr(), libc::MNT_DETACH) }).unwrap();
}

#[test]
fn what_is_mounted_and_moved_and_taken_away_is_noticed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().canonicalize().unwrap();
    ["one/proc", "two"].iter().for_each(|name| std::fs::create_dir_all(top.join(name)).unwrap());
    // Of a thread of its own, since it has other mounts from then on.
    let look = move || {
        // SAFETY: the calls take numbers, a terminated string, and nothing where that stands for nothing; they concern this
        // thread.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS)).unwrap();
            check(libc::mount(null(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_PRIVATE, null())).unwrap();
        }
        let watch = Watch::new();
        let covers = || {
            let mounts = watch.current().unwrap();
            assert!(Arc::ptr_eq(&mounts, &watch.current().unwrap()), "nothing has changed");
            let ours = mounts.covers().filter(|cover| cover.path.starts_with(&top));
            ours.map(|cover| (cover.path.strip_prefix(&top).unwrap().to_owned(), cover.limit)).collect::<Vec<_>>()
        };
        let hidden = |path: &str| (PathBuf::from(path), Limit::Hidden);
        assert_eq!(covers(), []);
        mount(c"proc", &top.join("one/proc"));
        assert_eq!(covers(), [hidden("one/proc")]);
        mount(c"sysfs", &top.join("two"));
        assert_eq!(covers(), [hidden("one/proc"), ("two".into(), Limit::ReadOnly)]);
        unmount(&top.join("two"));
        assert_eq!(covers(), [hidden("one/proc")]);
        // Nobody tells of that.
        std::fs::rename(top.join("one"), top.join("three")).unwrap();
        assert_eq!(covers(), [hidden("three/proc")]);
        std::fs::create_dir_all(top.join("one/proc")).unwrap();
        std::fs::rename(top.join("three"), top.join("four")).unwrap();
        std::fs::rename(top.join("one"), top.join("three")).unwrap();
        assert_eq!(covers(), [hidden("four/proc")], "another directory in its place");
        mount(c"tmpfs", &top.join("four"));
        assert_eq!(covers(), [], "it lies below that");
        unmount(&top.join("four"));
        mount(c"tmpfs", &top.join("four/proc"));
        assert_eq!(covers(), [], "that lies over it");
        unmount(&top.join("four/proc"));
        assert_eq!(covers(), [hidden("four/proc")]);
        unmount(&top.join("four/proc"));
        assert_eq!(covers(), []);
    };
    std::thread::spawn(look).join().unwrap();
}
