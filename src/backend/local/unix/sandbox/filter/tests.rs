use std::collections::BTreeSet;

use super::*;

/// A system call, as the filter sees it.
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    kind: u32,
    arguments: [u64; 6],
}

fn call(number: libc::c_long, arguments: &[u64]) -> Call {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    Call { number: number as u32, kind: ARCHITECTURE, arguments: all }
}

/// What the kernel would do with the program, in as many words. Panics on what the kernel would not accept.
fn run(program: &[Instruction], call: Call) -> u32 {
    let word = |offset: u32| match offset {
        NUMBER => call.number,
        KIND => call.kind,
        _ => {
            let (index, upper) = ((offset - 16) / 8, offset % 8 == 4);
            let value = call.arguments[index as usize];
            (if upper { value >> 32 } else { value & 0xffff_ffff }) as u32
        }
    };
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let branch = |condition: bool| usize::from(if condition { jt } else { jf });
        match code {
            LOAD_WORD => accumulator = word(k),
            AND => accumulator &= k,
            JUMP_IF_EQUAL => at += branch(accumulator == k),
            JUMP_IF_AT_LEAST => at += branch(accumulator >= k),
            JUMP_IF_ANY_BIT => at += branch(accumulator & k != 0),
            JUMP => at += usize::try_from(k).unwrap(),
            RETURN => return k,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

/// How many instructions a call takes.
fn path(program: &[Instruction], number: u32) -> usize {
    let mut taken = 0;
    for at in 0..program.len() {
        // A copy that stops there ends early exactly if the way leads by it.
        let mut copy = program.to_vec();
        copy[at] = statement(RETURN, 0xbad);
        taken += usize::from(run(&copy, Call { number, kind: ARCHITECTURE, arguments: [0; 6] }) == 0xbad);
    }
    taken
}

const EPERM: u32 = REFUSE | libc::EPERM as u32;
const KINDS: [Sockets; 4] = [Sockets::Open, Sockets::Pairs, Sockets::Loopback, Sockets::LoopbackAndUnix];

fn programs() -> impl Iterator<Item = (FilterPlan, Vec<Instruction>)> {
    let plans = KINDS.into_iter().flat_map(|sockets| {
        [
            (false, Others::Hidden),
            (true, Others::Hidden),
            (true, Others::InSight),
            (false, Others::InReach),
            (true, Others::InReach),
        ]
        .map(|(refuse_metadata, others)| FilterPlan { sockets, refuse_metadata, others })
    });
    plans.map(|plan| (plan, program(plan)))
}

/// The verdict on a socket of this family and kind, with and without flags beside the kind.
fn socket(sockets: Sockets, number: libc::c_long, family: c_int, kind: c_int) -> u32 {
    let program = program(FilterPlan { sockets, refuse_metadata: false, others: Others::Hidden });
    let verdicts = [0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK].map(|flags| {
        // The upper halves of the arguments mean nothing to the kernel.
        let family = family as u64 | 0xdead_beef_0000_0000;
        run(&program, call(number, &[family, (kind | flags) as u64 | 0x1_0000_0000, 0]))
    });
    assert_eq!(verdicts[0], verdicts[1], "flags make no difference");
    verdicts[0]
}

#[test]
fn every_program_ends_in_a_verdict_for_every_call() {
    for (_, program) in programs() {
        assert!(program.len() < 4096, "the kernel's limit");
        let longest = (0..700).map(|number| path(&program, number)).max().unwrap();
        assert!(longest < 40, "the kernel goes this way for every number: {longest}");
        for number in (0..700).chain([0x3fff_ffff]) {
            for value in [0, 1, 2, 3, 5, 10, 17, 40, 0x5412, 0x541c, 0x1000_0000, u64::MAX] {
                let verdict = run(&program, Call { number, kind: ARCHITECTURE, arguments: [value; 6] });
                assert!(verdict == ALLOW || verdict & 0xffff_0000 == REFUSE, "{number} {value:#x}: {verdict:#x}");
            }
        }
    }
}

#[test]
fn calls_of_other_processors_end_the_process() {
    for (_, program) in programs() {
        for kind in [0, 0x4000_0003, 0x4000_0028, ARCHITECTURE ^ 1, u32::MAX] {
            let foreign = Call { kind, ..call(libc::SYS_getpid, &[]) };
            assert_eq!(run(&program, foreign), KILL_PROCESS, "{kind:#x}");
        }
        if cfg!(target_arch = "x86_64") {
            for number in [0x4000_0000_u32, 0x4000_0000 | 1, 0x4000_0207, u32::MAX] {
                assert_eq!(run(&program, Call { number, ..call(0, &[]) }), KILL_PROCESS, "{number:#x}");
            }
        }
    }
}

#[test]
fn exactly_the_listed_calls_are_refused_whatever_their_arguments() {
    let mut refused: BTreeSet<u32> = REFUSED.iter().map(|number| *number as u32).collect();
    #[cfg(target_arch = "x86_64")]
    refused.extend(REFUSED_X86.iter().map(|number| *number as u32));
    let program = program(FilterPlan { sockets: Sockets::Open, refuse_metadata: false, others: Others::Hidden });
    let looked_into = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_unshare, libc::SYS_ioctl, libc::SYS_socket];
    for number in 0..700_u32 {
        if looked_into.contains(&libc::c_long::from(number)) {
            continue;
        }
        for arguments in [[0; 6], [u64::MAX; 6], [1; 6]] {
            let verdict = run(&program, Call { number, kind: ARCHITECTURE, arguments });
            let expected = if refused.contains(&number) { EPERM } else { ALLOW };
            assert_eq!(verdict, expected, "{number}");
        }
    }
}

#[test]
fn threads_and_processes_can_be_made_but_no_namespaces() {
    let thread = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    for (_, program) in programs() {
        assert_eq!(run(&program, call(libc::SYS_clone3, &[0, 88])), REFUSE | libc::ENOSYS as u32);
        for flags in [thread, libc::SIGCHLD, libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD] {
            assert_eq!(run(&program, call(libc::SYS_clone, &[flags as u64])), ALLOW, "{flags:#x}");
        }
        for flag in [0x2_0000_u64, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
            let flags = flag | libc::SIGCHLD as u64;
            assert_eq!(run(&program, call(libc::SYS_clone, &[flags])), EPERM, "{flag:#x}");
            assert_eq!(run(&program, call(libc::SYS_unshare, &[flag])), EPERM, "{flag:#x}");
        }
        assert_eq!(run(&program, call(libc::SYS_unshare, &[0x80])), EPERM, "a time namespace");
        assert_eq!(run(&program, call(libc::SYS_unshare, &[libc::CLONE_FILES as u64])), ALLOW);
    }
}

#[test]
fn a_command_makes_no_siblings() {
    let run = |number, flags| run(&NO_SIBLINGS, call(number, &[flags]));
    let sibling = libc::CLONE_PARENT as u64;
    for flags in [sibling, sibling | libc::SIGCHLD as u64, u64::MAX] {
        assert_eq!(run(libc::SYS_clone, flags), EPERM, "{flags:#x}");
        assert_eq!(run(libc::SYS_unshare, flags), ALLOW, "{flags:#x}");
    }
    for flags in [libc::SIGCHLD as u64, (libc::CLONE_VM | libc::CLONE_THREAD) as u64, !sibling] {
        assert_eq!(run(libc::SYS_clone, flags), ALLOW, "{flags:#x}");
    }
}

#[test]
fn nobody_types_for_another_whatever_the_upper_half_says() {
    for (plan, program) in programs() {
        for upper in [0_u64, 1 << 32, 0xffff_ffff_0000_0000] {
            for request in [0x5412, 0x541c] {
                assert_eq!(run(&program, call(libc::SYS_ioctl, &[0, upper | request])), EPERM);
            }
            let set_flags = run(&program, call(libc::SYS_ioctl, &[3, upper | 0x4008_6602]));
            assert_eq!(set_flags, if plan.refuse_metadata { EPERM } else { ALLOW });
        }
        for request in [0x5413, 0x5401, 0x540e, 0x541b] {
            assert_eq!(run(&program, call(libc::SYS_ioctl, &[0, request])), ALLOW);
        }
    }
}

#[test]
fn nobody_makes_a_snapshot_or_has_others_wait_for_a_file() {
    for (plan, program) in programs() {
        for upper in [0_u64, 1 << 32] {
            for request in [0x5000_9401, 0x5000_9417, 0x5000_940f, 0x5000_943f] {
                assert_eq!(run(&program, call(libc::SYS_ioctl, &[3, upper | request])), EPERM, "{request:#x}");
            }
            // Copies that share blocks, of what is open.
            for request in [0x4004_9409, 0x4020_940d, 0xc018_9436] {
                let expected = if plan.refuse_metadata { EPERM } else { ALLOW };
                assert_eq!(run(&program, call(libc::SYS_ioctl, &[3, upper | request])), expected, "{request:#x}");
            }
            for (command, expected) in [(1024, EPERM), (1040, EPERM), (1025, ALLOW), (1039, ALLOW), (1026, ALLOW)] {
                assert_eq!(run(&program, call(libc::SYS_fcntl, &[3, upper | command, 1])), expected, "{command}");
            }
        }
    }
}

#[test]
fn metadata_is_left_alone_where_no_mount_protects_it() {
    let mut calls = METADATA.to_vec();
    #[cfg(target_arch = "x86_64")]
    calls.extend_from_slice(METADATA_X86);
    for (plan, program) in programs() {
        for number in &calls {
            let expected = if plan.refuse_metadata { EPERM } else { ALLOW };
            assert_eq!(run(&program, call(*number, &[1, 2, 3])), expected, "{number}");
        }
    }
}

#[test]
fn sockets_are_those_of_the_policy() {
    use Sockets::{Loopback, LoopbackAndUnix, Open, Pairs};
    const STREAM: c_int = libc::SOCK_STREAM;
    const DATAGRAM: c_int = libc::SOCK_DGRAM;
    const RAW: c_int = libc::SOCK_RAW;
    const PACKETS: c_int = libc::SOCK_SEQPACKET;
    let table = [
        (libc::AF_INET, STREAM, [true, false, true, true]),
        (libc::AF_INET, DATAGRAM, [true, false, true, true]),
        (libc::AF_INET, RAW, [true, false, false, false]),
        (libc::AF_INET6, STREAM, [true, false, true, true]),
        (libc::AF_INET6, RAW, [true, false, false, false]),
        (libc::AF_UNIX, STREAM, [true, true, false, true]),
        (libc::AF_UNIX, PACKETS, [true, true, false, true]),
        (libc::AF_UNIX, DATAGRAM, [true, false, false, true]),
        // The kernel takes this one for datagrams.
        (libc::AF_UNIX, RAW, [true, false, false, true]),
        (libc::AF_NETLINK, RAW, [true, false, false, false]),
        (libc::AF_PACKET, RAW, [true, false, false, false]),
        (libc::AF_VSOCK, STREAM, [false, false, false, false]),
        (libc::AF_ALG, PACKETS, [true, false, false, false]),
    ];
    for (family, kind, allowed) in table {
        for (sockets, allowed) in [Open, Pairs, Loopback, LoopbackAndUnix].into_iter().zip(allowed) {
            let verdict = socket(sockets, libc::SYS_socket, family, kind);
            assert_eq!(verdict == ALLOW, allowed, "{sockets:?} family {family} kind {kind}");
        }
    }
    for (kind, allowed) in [(STREAM, true), (PACKETS, true), (DATAGRAM, false), (RAW, false)] {
        for sockets in [Pairs, Loopback] {
            let verdict = socket(sockets, libc::SYS_socketpair, libc::AF_UNIX, kind);
            assert_eq!(verdict == ALLOW, allowed, "{sockets:?} pair of kind {kind}");
        }
    }
    for number in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        for (sockets, allowed) in [Open, Pairs, Loopback, LoopbackAndUnix].into_iter().zip([true, false, true, true]) {
            let program = program(FilterPlan { sockets, refuse_metadata: false, others: Others::Hidden });
            assert_eq!(run(&program, call(number, &[3, 4, 5])) == ALLOW, allowed, "{sockets:?} {number}");
        }
    }
    for number in [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown, libc::SYS_getsockopt] {
        for sockets in KINDS {
            let program = program(FilterPlan { sockets, refuse_metadata: false, others: Others::Hidden });
            assert_eq!(run(&program, call(number, &[3])), ALLOW, "a connected pair is of use");
        }
    }
}

#[test]
fn a_program_that_tells_differs_in_what_makes_sockets_and_allows_no_more() {
    let calls: Vec<u32> = TOLD.iter().map(|(call, _)| *call as u32).collect();
    for (plan, plain) in programs() {
        let telling = telling_program(plan);
        let mut told = BTreeSet::new();
        for number in 0..700_u32 {
            for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_VSOCK] {
                for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
                    let asked = call(number.into(), &[family as u64, kind as u64]);
                    match (run(&plain, asked), run(&telling, asked)) {
                        (EPERM, TELL) => {
                            told.insert(number);
                        }
                        (ALLOW, verdict) if libc::c_long::from(number) == libc::SYS_seccomp => {
                            let listens = kind as libc::c_ulong & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
                            let expected = if listens { REFUSE | libc::EBUSY as u32 } else { ALLOW };
                            assert_eq!(verdict, expected, "another listener: {kind}");
                        }
                        (plain, telling) => assert!(plain == telling && telling != TELL, "{plan:?} {number}"),
                    }
                }
            }
        }
        assert!(told.iter().all(|number| calls.contains(number)), "{plan:?}: {told:?}");
        assert!(told.contains(&(libc::SYS_socket as u32)), "{plan:?}");
        // It has an upper half too, that means nothing.
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_TSYNC;
        let another = call(libc::SYS_seccomp, &[1, flags | 0xffff_ffff_0000_0000]);
        assert_eq!(run(&telling, another), REFUSE | libc::EBUSY as u32);
    }
}

#[test]
fn others_are_left_alone_where_they_are_not_hidden() {
    let user = 2;
    for (plan, program) in programs() {
        let refused = |refuses: bool| if refuses { EPERM } else { ALLOW };
        let seen = refused(plan.others != Others::Hidden);
        for number in others::SHARED {
            assert_eq!(run(&program, call(*number, &[0; 6])), seen, "{number}");
        }
        for number in others::OF_A_PROCESS {
            assert_eq!(run(&program, call(*number, &[4711, 1, 1])), seen, "{number}");
            assert_eq!(run(&program, call(*number, &[1 << 32, 1, 1])), ALLOW, "{number}: of its own");
        }
        for (number, whole_user) in [(libc::SYS_setpriority, user), (libc::SYS_ioprio_set, 3)] {
            for (which, who, expected) in
                [(1, 4711, seen), (whole_user, 0, seen), (whole_user, 1000, seen), (1, 0, ALLOW)]
            {
                assert_eq!(run(&program, call(number, &[which, who, 5])), expected, "{number} {which} {who}");
            }
        }
    }
}

#[test]
fn signals_reach_the_own_group_alone_where_nothing_else_keeps_them() {
    for (plan, program) in programs() {
        let outside = if plan.others == Others::InReach { EPERM } else { ALLOW };
        for pid in [4711, u64::MAX, -4711_i64 as u64, 0xffff_ffff, 1] {
            assert_eq!(run(&program, call(libc::SYS_kill, &[pid, 9])), outside, "{pid:#x}");
            assert_eq!(run(&program, call(libc::SYS_kill, &[pid, 0])), ALLOW, "no signal");
            assert_eq!(run(&program, call(libc::SYS_tkill, &[pid, 9])), outside);
            assert_eq!(run(&program, call(libc::SYS_tgkill, &[pid, pid, 9])), outside);
            assert_eq!(run(&program, call(libc::SYS_rt_sigqueueinfo, &[pid, 9, 1])), outside);
            assert_eq!(run(&program, call(libc::SYS_rt_tgsigqueueinfo, &[pid, pid, 9, 1])), outside);
            assert_eq!(run(&program, call(libc::SYS_pidfd_send_signal, &[pid, 9, 0, 0])), outside);
        }
        assert_eq!(run(&program, call(libc::SYS_kill, &[0xdead_0000_0000, 9])), ALLOW, "the own group");
        // Input that arrives could signal whoever is said to own the descriptor.
        for command in [8, 10, 15] {
            assert_eq!(run(&program, call(libc::SYS_fcntl, &[3, 1 << 32 | command, 4711])), outside, "{command}");
        }
        for request in [0x8901, 0x8902] {
            assert_eq!(run(&program, call(libc::SYS_ioctl, &[3, request, 0])), outside, "{request:#x}");
        }
        for command in [0, 1, 2, 3, 4, 5, 6, 9, 1030, 1033] {
            assert_eq!(run(&program, call(libc::SYS_fcntl, &[3, command, 0])), ALLOW, "{command}");
        }
    }
}

#[test]
fn file_systems_change_nothing_by_requests_on_what_is_open_for_reading() {
    for (plan, program) in programs() {
        let expected = if plan.refuse_metadata { EPERM } else { ALLOW };
        // Subvolumes; a file that is pinned; verity, a policy of encryption and its keys; attributes of FAT.
        for request in [0x5000_940e_u64, 0x4004_f50d, 0x4080_6685, 0x800c_6613, 0x4004_7211] {
            assert_eq!(run(&program, call(libc::SYS_ioctl, &[3, request])), expected, "{request:#x}");
        }
        // The flags and the size of a block are only read.
        for request in [0x8008_6601, 0x2, 0x5421] {
            assert_eq!(run(&program, call(libc::SYS_ioctl, &[3, request])), ALLOW, "{request:#x}");
        }
    }
}
