//! Calls that the filter refuses, told.

use std::ffi::c_int;

use super::*;
use crate::backend::local::unix::child::errno;
use crate::backend::local::unix::sandbox::filter::{FilterPlan, Others, Sockets, telling_program};

#[tokio::test]
async fn refused_sockets_are_counted_however_the_sandbox_is_built() {
    for kernel in kernels() {
        let plan = prepared(&kernel, &read_only(), Walls::default());
        let mut enforcement = plan.enforcement().clone();
        assert!(enforcement.mechanisms.iter().any(|mechanism| mechanism == notice::MECHANISM), "{enforcement:?}");
        let script = "exec 2>/dev/null; for try in 1 2 3; do bash -c ': > /dev/tcp/127.0.0.1/1' && echo open; done; echo end; \
                      exec sleep 300";
        let mut running = Running::start(launch_plan(script, Path::new("/tmp"), plan)).await.unwrap();
        running.read_until("end\n").await;
        assert_eq!(running.output, "end\n", "{kernel:?}");
        assert_eq!(running.child().refused_calls(), [("socket", 3)], "{kernel:?}");
        running.child().correct(&mut enforcement);
        assert_eq!(&enforcement, prepared(&kernel, &read_only(), Walls::default()).enforcement(), "as it was planned");
        running.child().signal_tree(Signal::Kill).unwrap();
        running.end().await;
    }
}

/// What a child of this process, which shares none of its memory, ends with.
fn in_child(run: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1);
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(run()) };
    }
    let mut status = 0;
    // SAFETY: fills a number; the child is ours and was not reaped.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn once_a_listener_is_closed_nobody_can_take_its_part_and_all_is_refused() {
    let filter =
        telling_program(FilterPlan { sockets: Sockets::Pairs, refuse_metadata: false, others: Others::Hidden });
    let tell_all = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF }];
    let behind = |run: &dyn Fn() -> c_int| {
        in_child(|| {
            // SAFETY: this is a child; the calls take numbers.
            let listener = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                raw::install_telling_filter(&filter)
            };
            let Ok(listener) = listener else { return -1 };
            // SAFETY: a descriptor of the child's own.
            unsafe { libc::close(listener) };
            run()
        })
    };
    let socket = || {
        // SAFETY: takes numbers.
        match unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) } {
            -1 => errno(),
            _ => 0,
        }
    };
    // SAFETY: this is a child.
    let listen = || unsafe { raw::install_telling_filter(&tell_all) }.err().unwrap_or(0);
    assert_eq!((behind(&socket), behind(&listen)), (libc::ENOSYS, libc::EBUSY));
}

#[tokio::test]
async fn a_start_that_cannot_be_listened_to_goes_on_and_says_so() {
    let best = probe::kernel().unwrap();
    let script = "exec 2>&1; bash -c ': > /dev/tcp/127.0.0.1/1'";
    // It could have a listener, as the plan has it, and the kernel does not take the program that would tell.
    let mut plan = prepared(best, &read_only(), Walls::default());
    let shape = Arc::get_mut(&mut plan.shape).unwrap();
    shape.telling_filter = shape.telling_filter[..1].into();
    let mut enforcement = plan.enforcement().clone();
    let running = Running::start(launch_plan(script, Path::new("/tmp"), plan)).await.unwrap();
    running.child().correct(&mut enforcement);
    assert!(!enforcement.mechanisms.iter().any(|mechanism| mechanism == notice::MECHANISM), "{enforcement:?}");
    assert!(enforcement.kernel_facts.iter().any(|fact| fact.contains("Invalid argument")), "{enforcement:?}");
    assert_eq!(running.child().refused_calls(), []);
    let (_, output) = running.end().await;
    assert!(output.contains("Operation not permitted"), "{output}");

    // It was known before that it cannot.
    let deaf = Kernel { no_notices: Some(libc::EBUSY), ..best.clone() };
    let plan = prepared(&deaf, &read_only(), Walls::default());
    let planned = plan.enforcement().clone();
    assert!(planned.kernel_facts.iter().any(|fact| fact.contains("no seccomp notification")), "{planned:?}");
    let running = Running::start(launch_plan(script, Path::new("/tmp"), plan)).await.unwrap();
    let mut enforcement = planned.clone();
    running.child().correct(&mut enforcement);
    assert_eq!(enforcement, planned);
    assert!(running.end().await.1.contains("Operation not permitted"));
}
