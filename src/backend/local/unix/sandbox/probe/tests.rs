//! What is concluded from attempts, whatever this kernel allows.

use super::*;
use crate::backend::local::unix::sandbox::filter::Sockets;

const HOST: plan::Network = plan::Network { private: false, loopback: false, sockets: Sockets::Open };
const NONE: plan::Network = plan::Network { private: true, loopback: false, sockets: Sockets::Pairs };

fn other(errno: i32) -> Refusal {
    Refusal::Other("make a pipe", io::Error::from_raw_os_error(errno))
}

fn step(stage: Stage, errno: i32) -> Refusal {
    Refusal::Step(Failure { stage, index: 0, errno })
}

fn full() -> Kernel {
    Kernel { mode: Mode::User, fresh_proc: true, network: true, landlock: Some(7), ..Kernel::bare(None) }
}

#[test]
fn what_is_short_for_a_moment_decides_nothing() {
    for refusal in [
        || other(libc::EMFILE),
        || other(libc::ENFILE),
        || Refusal::Builder(io::Error::from_raw_os_error(libc::EAGAIN)),
        || step(Stage::PidNamespace, libc::ENOMEM),
        || step(Stage::Make, libc::ENOSPC),
        || step(Stage::Init, libc::EAGAIN),
    ] {
        // At whichever attempt it comes.
        for before in 0..4 {
            let mut attempts = 0;
            let found = search(Kernel::bare(None), |_| {
                attempts += 1;
                Err(if attempts > before { refusal() } else { step(Stage::Proc, libc::EPERM) })
            });
            let Cause { cause, remedy } = found.unwrap_err();
            assert!(
                cause.contains("just now") && remedy.contains("try again") | remedy.contains("free"),
                "{cause}; {remedy}"
            );
        }
    }
}

#[test]
fn what_the_kernel_refuses_is_an_answer() {
    let found =
        search(Kernel::bare(None), |_| Err(Refusal::Builder(io::Error::from_raw_os_error(libc::EPERM)))).unwrap();
    assert!(found.mode == Mode::Bare && found.no_namespaces.is_some(), "{found:?}");
    let covered =
        search(
            Kernel::bare(None),
            |kernel| {
                if kernel.fresh_proc { Err(step(Stage::Proc, libc::EPERM)) } else { Ok(()) }
            },
        );
    let covered = covered.unwrap();
    assert_eq!((covered.mode, covered.fresh_proc, covered.network), (Mode::User, false, true));
    let mounts = search(Kernel::bare(None), |kernel| {
        if kernel.mode == Mode::User { Err(step(Stage::Maps, libc::EPERM)) } else { Ok(()) }
    });
    assert_eq!(mounts.unwrap().mode, Mode::Mount);
}

#[test]
fn an_answer_is_kept_and_a_failure_is_not() {
    let (found, looking) = (OnceLock::new(), Mutex::new(()));
    let failed = once(&found, &looking, || Err::<u8, _>(not_now(&other(libc::EMFILE))));
    assert!(matches!(failed, Err(SandboxError::Unavailable { remedy: Some(_), .. })), "{failed:?}");
    assert_eq!(once(&found, &looking, || Ok(7)).unwrap(), &7);
    assert_eq!(once(&found, &looking, || panic!("it is known")).unwrap(), &7);
}

/// What a refusal of a partial sandbox says.
fn refused(kernel: &Kernel, bound: &Bound, network: plan::Network) -> (String, String) {
    assert!(kernel.assess(bound, network, true).is_ok(), "it can be accepted");
    match kernel.assess(bound, network, false).unwrap_err() {
        SandboxError::Unavailable { cause, remedy } => (cause, remedy.unwrap()),
        error => panic!("{error}"),
    }
}

#[test]
fn each_gap_has_a_remedy_of_its_own() {
    let covered = Kernel { fresh_proc: false, ..full() };
    let (cause, remedy) = refused(&covered, &read_only(), NONE);
    assert!(
        cause.contains("/proc is empty") && remedy.contains("masked paths") && !remedy.contains("kernel"),
        "{remedy}"
    );
    let (_, remedy) = refused(&Kernel { network: false, ..full() }, &read_only(), NONE);
    assert!(remedy.contains("max_net_namespaces"), "{remedy}");
    let (_, remedy) = refused(&Kernel { landlock: None, ..full() }, &read_only(), HOST);
    assert!(remedy.contains("lsm="), "{remedy}");
    let (_, remedy) = refused(&Kernel { landlock: Some(2), ..full() }, &read_only(), HOST);
    assert!(remedy.contains("6.2"), "{remedy}");
    let cause = Cause::new("they are switched off", "switch them on");
    let bare = Kernel { mode: Mode::Bare, no_namespaces: Some(cause), ..full() };
    let (cause, remedy) = refused(&bare, &read_only(), NONE);
    assert!(cause.contains("they are switched off") && remedy.starts_with("switch them on, or"), "{cause}; {remedy}");
    assert_eq!(full().assess(&read_only(), NONE, false).unwrap().level, Level::Full);
}

#[test]
fn settings_of_the_system_are_blamed_only_for_what_they_refuse() {
    let set = |wanted: &'static str, value: &'static str| move |name: &str| (name == wanted).then(|| value.to_owned());
    let app_armor = set("kernel/apparmor_restrict_unprivileged_userns", "1");
    assert!(refused_remedy(&app_armor).contains("AppArmor"));
    assert!(refused_remedy(&set("user/max_user_namespaces", "0")).contains("max_user_namespaces"));
    assert!(refused_remedy(&|_| None).contains("CAP_SYS_ADMIN"));
    for refusal in [
        step(Stage::Memory, libc::ENOSPC),
        step(Stage::Filter, libc::EINVAL),
        other(libc::EMFILE),
        Refusal::Other("build a sandbox", io::Error::other("it was killed")),
    ] {
        let Cause { remedy, .. } = explain(&refusal);
        assert!(!remedy.contains("AppArmor") && !remedy.contains("system setting user"), "{refusal:?}: {remedy}");
    }
}

#[test]
fn without_namespaces_an_older_landlock_will_do_and_a_missing_one_is_named() {
    let cause = Cause::new("they are switched off", "switch them on");
    let bare = |landlock| Kernel { mode: Mode::Bare, no_namespaces: Some(cause.clone()), landlock, ..full() };
    let open = Bound { root: Some(Access::Write), class: Class::FullWrite, ..read_only() };
    for (version, reads, writes) in
        [(None, false, false), (Some(2), false, false), (Some(3), true, false), (Some(4), true, true)]
    {
        for (bound, held) in [(read_only(), reads), (open.clone(), writes)] {
            match bare(version).assess(&bound, NONE, true) {
                Ok(Enforcement { level: Level::Partial(gaps), .. }) if held => {
                    assert!(gaps.iter().any(|gap| gap.contains("signals reach only the process group")), "{gaps:?}");
                }
                Err(SandboxError::Unavailable { cause, remedy: Some(remedy) }) if !held => {
                    assert!(cause.contains("they are switched off") && cause.contains("Landlock of ABI"), "{cause}");
                    assert!(remedy.starts_with("switch them on, or use a kernel from"), "{remedy}");
                }
                other => panic!("{version:?}: {other:?}"),
            }
        }
    }
    let (gap, _) = refused(&bare(Some(6)), &read_only(), NONE);
    assert!(!gap.contains("signals"), "Landlock lets them go within the sandbox: {gap}");
}

#[test]
fn named_pipes_are_part_of_what_mounts_alone_do_not_hold() {
    let (gap, _) = refused(&Kernel { landlock: None, ..full() }, &read_only(), HOST);
    assert!(gap.contains("named pipes"), "{gap}");
}
