//! Which system calls a sandboxed process may make, as a program for the kernel's filter.
//!
//! The program looks for the number of the call in a tree, whose leaves are short lists of rules: `if the call is not this
//! one, skip the block`, where a block ends in a verdict. A tree since the kernel runs the program for every number there is
//! when it is put in force. Calls of another kind of processor than ours end the process: they have other numbers.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use libc::sock_filter as Instruction;

/// What a process may do with sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sockets {
    /// As the host.
    Open,
    /// Connected pairs only, and Unix sockets that reach nobody.
    Pairs,
    /// Internet sockets, in a network namespace of its own, and connected pairs.
    Loopback,
    /// As before, and Unix sockets.
    LoopbackAndUnix,
}

/// What the filter is to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FilterPlan {
    pub(super) sockets: Sockets,
    /// No file may change its mode, owner, times or attributes, since no mount stands in the way of it.
    pub(super) refuse_metadata: bool,
    pub(super) others: Others,
}

/// What stands between the process and others of the same user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Others {
    /// Namespaces.
    Hidden,
    /// Nothing, but that no signal gets there.
    InSight,
    /// Nothing.
    InReach,
}

/// Whether there is a filter for this kind of processor.
pub(super) const SUPPORTED: bool = ARCHITECTURE != 0;

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
const ARCHITECTURE: u32 = 0;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;
const TELL: u32 = 0x7fc0_0000;

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where the kernel puts the number of the call, and the kind of processor.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
/// The lower half of an argument. The upper one is ignored on purpose where the kernel itself ignores it.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

const fn refuse(errno: c_int) -> Instruction {
    statement(RETURN, REFUSE | errno.unsigned_abs())
}

/// A program, which many sandboxes share.
pub(super) type Program = Arc<[Instruction]>;

/// The two programs of a plan: the one that refuses by itself, and the one that tells. There are few plans, so that each is
/// assembled once.
pub(super) fn programs(plan: FilterPlan) -> (Program, Program) {
    static ASSEMBLED: Mutex<BTreeMap<FilterPlan, (Program, Program)>> = Mutex::new(BTreeMap::new());
    // One that has panicked has added nothing.
    let mut assembled = ASSEMBLED.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = assembled.entry(plan).or_insert_with(|| (program(plan).into(), telling_program(plan).into()));
    programs.clone()
}

/// The program, which refuses by itself.
pub(super) fn program(plan: FilterPlan) -> Vec<Instruction> {
    assemble(Rules::new(plan, refuse(libc::EPERM)))
}

/// The same, but for the calls that would make a socket: those that it refuses wait until whoever holds its listener has
/// refused them.
pub(super) fn telling_program(plan: FilterPlan) -> Vec<Instruction> {
    let mut rules = Rules::new(plan, statement(RETURN, TELL));
    // Of two filters that want to ask, the newer one does, whose listener could allow the call. So there is to be no other
    // one, also when ours is closed. This is what the kernel says as long as it is open.
    let new_listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;
    rules.on_bits(libc::SYS_seccomp, 1, new_listener, libc::EBUSY);
    assemble(rules)
}

/// A program that refuses nothing.
pub(super) fn allowing_program() -> [Instruction; 1] {
    [statement(RETURN, ALLOW)]
}

/// A program that is in force besides, for the command alone: it makes no siblings, as the builder does. They would be children
/// of the executor, which knows nothing of them. Until somebody has reaped them, their namespace does not end, and nor does its
/// first process. The kind of processor was looked at by the other program.
pub(super) const NO_SIBLINGS: [Instruction; 6] = [
    statement(LOAD_WORD, NUMBER),
    jump(JUMP_IF_EQUAL, libc::SYS_clone as u32, 0, 3),
    statement(LOAD_WORD, argument(0)),
    jump(JUMP_IF_ANY_BIT, libc::CLONE_PARENT as u32, 0, 1),
    refuse(libc::EPERM),
    statement(RETURN, ALLOW),
];

/// The calls of which such a program tells, and their names.
pub(super) const TOLD: [(libc::c_long, &str); 2] = [(libc::SYS_socket, "socket"), (libc::SYS_socketpair, "socketpair")];

fn assemble(rules: Rules) -> Vec<Instruction> {
    let mut program = vec![
        statement(LOAD_WORD, KIND),
        jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
        statement(RETURN, KILL_PROCESS),
        statement(LOAD_WORD, NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        // The same kind of processor with pointers of 32 bits: other numbers for the same calls.
        program.push(jump(JUMP_IF_AT_LEAST, 0x4000_0000, 0, 1));
        program.push(statement(RETURN, KILL_PROCESS));
    }
    program.extend(tree(&rules.0.into_iter().collect::<Vec<_>>()));
    program
}

/// Finds the block of a call among these, which are in the order of their numbers.
fn tree(rules: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    let mut program = Vec::new();
    if rules.len() > LEAF {
        let (lower, upper) = rules.split_at(rules.len() / 2);
        let (lower, from) = (tree(lower), upper[0].0);
        match u8::try_from(lower.len()) {
            Ok(length) => program.push(jump(JUMP_IF_AT_LEAST, from, length, 0)),
            // Farther than a condition reaches.
            Err(_) => {
                program.push(jump(JUMP_IF_AT_LEAST, from, 0, 1));
                program.push(statement(JUMP, lower.len() as u32));
            }
        }
        program.extend(lower);
        program.extend(tree(upper));
        return program;
    }
    // Those that are just refused share the verdict, which comes last.
    let is_refusal =
        |block: &[Instruction]| matches!(block, [only] if only.code == RETURN && only.k == refuse(libc::EPERM).k);
    let (refused, others): (Vec<_>, Vec<_>) = rules.iter().partition(|(_, block)| is_refusal(block));
    for (call, block) in others {
        // Blocks are shorter than what a jump reaches.
        program.push(jump(JUMP_IF_EQUAL, *call, 0, block.len() as u8));
        program.extend_from_slice(block);
    }
    for (index, (call, _)) in refused.iter().enumerate() {
        let to_verdict = refused.len() - index;
        program.push(jump(JUMP_IF_EQUAL, *call, to_verdict as u8, 0));
    }
    program.push(statement(RETURN, ALLOW));
    if !refused.is_empty() {
        program.push(refuse(libc::EPERM));
    }
    program
}

/// Rules that are looked at one after the other.
const LEAF: usize = 3;

/// The block of each call that is not simply allowed. Each ends in a verdict.
#[derive(Default)]
struct Rules(BTreeMap<u32, Vec<Instruction>>);

impl Rules {
    /// Those of a plan; `socket` is the verdict on a socket that is not allowed.
    fn new(plan: FilterPlan, socket: Instruction) -> Self {
        let mut rules = Self::default();
        rules.refuse_all(REFUSED);
        #[cfg(target_arch = "x86_64")]
        rules.refuse_all(REFUSED_X86);
        // The C library then makes threads by the older call, which can be looked into.
        rules.on(libc::SYS_clone3, vec![refuse(libc::ENOSYS)]);
        rules.on_bits(libc::SYS_clone, 0, NEW_NAMESPACES, libc::EPERM);
        rules.on_bits(libc::SYS_unshare, 0, NEW_NAMESPACES | NEW_TIME, libc::EPERM);
        rules.ioctl(plan);
        rules.fcntl(plan);
        if plan.refuse_metadata {
            rules.refuse_all(METADATA);
            #[cfg(target_arch = "x86_64")]
            rules.refuse_all(METADATA_X86);
        }
        rules.sockets(plan.sockets, socket);
        if plan.others != Others::Hidden {
            rules.leave_others_alone();
        }
        if plan.others == Others::InReach {
            rules.keep_signals();
        }
        rules
    }

    fn on(&mut self, call: libc::c_long, block: Vec<Instruction>) {
        self.0.insert(call as u32, block);
    }

    fn refuse_all(&mut self, calls: &[libc::c_long]) {
        for call in calls {
            self.on(*call, vec![refuse(libc::EPERM)]);
        }
    }

    /// Refuses a call by this error if an argument has one of these bits.
    fn on_bits(&mut self, call: libc::c_long, index: u32, bits: u32, errno: c_int) {
        let block = vec![
            statement(LOAD_WORD, argument(index)),
            jump(JUMP_IF_ANY_BIT, bits, 0, 1),
            refuse(errno),
            statement(RETURN, ALLOW),
        ];
        self.on(call, block);
    }

    fn ioctl(&mut self, plan: FilterPlan) {
        let mut block = vec![statement(LOAD_WORD, argument(1))];
        let attributes: &[u32] = if plan.refuse_metadata { SET_ATTRIBUTES } else { &[] };
        let owners: &[u32] = if plan.others == Others::InReach { SET_OWNER } else { &[] };
        for request in TERMINAL_INPUT.iter().chain(SUBVOLUMES).chain(attributes).chain(owners) {
            block.push(jump(JUMP_IF_EQUAL, *request, 0, 1));
            block.push(refuse(libc::EPERM));
        }
        if plan.refuse_metadata {
            block.push(statement(AND, 0xff00));
            for kind in CHANGES_WITHOUT_WRITING {
                block.push(jump(JUMP_IF_EQUAL, *kind, 0, 1));
                block.push(refuse(libc::EPERM));
            }
        }
        block.push(statement(RETURN, ALLOW));
        self.on(libc::SYS_ioctl, block);
    }

    fn fcntl(&mut self, plan: FilterPlan) {
        let mut block = vec![statement(LOAD_WORD, argument(1))];
        let owners = if plan.others == Others::InReach { others::SIGNALS_OF_FILES } else { &[] };
        for command in LEASES.iter().chain(owners) {
            block.push(jump(JUMP_IF_EQUAL, *command, 0, 1));
            block.push(refuse(libc::EPERM));
        }
        block.push(statement(RETURN, ALLOW));
        self.on(libc::SYS_fcntl, block);
    }

    /// `refusal` is the verdict on one that is not allowed.
    fn sockets(&mut self, sockets: Sockets, refusal: Instruction) {
        match sockets {
            Sockets::Open => {
                let block = vec![
                    statement(LOAD_WORD, argument(0)),
                    jump(JUMP_IF_EQUAL, libc::AF_VSOCK as u32, 0, 1),
                    refusal,
                    statement(RETURN, ALLOW),
                ];
                self.on(libc::SYS_socket, block);
            }
            Sockets::Pairs => {
                self.on(libc::SYS_socket, unix_without_addresses(refusal));
                self.on(libc::SYS_socketpair, unix_without_addresses(refusal));
                self.refuse_all(&[
                    libc::SYS_connect,
                    libc::SYS_bind,
                    libc::SYS_listen,
                    libc::SYS_accept,
                    libc::SYS_accept4,
                ]);
            }
            Sockets::Loopback => {
                self.on(libc::SYS_socket, internet(false, refusal));
                self.on(libc::SYS_socketpair, unix_without_addresses(refusal));
            }
            Sockets::LoopbackAndUnix => self.on(libc::SYS_socket, internet(true, refusal)),
        }
    }
}

/// Unix sockets of the kinds that never name their receiver in a message: a filter cannot look into messages.
fn unix_without_addresses(refusal: Instruction) -> Vec<Instruction> {
    vec![
        statement(LOAD_WORD, argument(0)),
        jump(JUMP_IF_EQUAL, libc::AF_UNIX as u32, 0, 5),
        statement(LOAD_WORD, argument(1)),
        statement(AND, SOCKET_KIND),
        jump(JUMP_IF_EQUAL, libc::SOCK_STREAM as u32, 1, 0),
        jump(JUMP_IF_EQUAL, libc::SOCK_SEQPACKET as u32, 0, 1),
        statement(RETURN, ALLOW),
        refusal,
    ]
}

/// Streams and datagrams of the two internet families, and any Unix socket if those are allowed.
fn internet(unix: bool, refusal: Instruction) -> Vec<Instruction> {
    let mut block = vec![statement(LOAD_WORD, argument(0))];
    if unix {
        block.push(jump(JUMP_IF_EQUAL, libc::AF_UNIX as u32, 0, 1));
        block.push(statement(RETURN, ALLOW));
    }
    block.extend_from_slice(&[
        jump(JUMP_IF_EQUAL, libc::AF_INET as u32, 1, 0),
        jump(JUMP_IF_EQUAL, libc::AF_INET6 as u32, 0, 5),
        statement(LOAD_WORD, argument(1)),
        statement(AND, SOCKET_KIND),
        jump(JUMP_IF_EQUAL, libc::SOCK_STREAM as u32, 1, 0),
        jump(JUMP_IF_EQUAL, libc::SOCK_DGRAM as u32, 0, 1),
        statement(RETURN, ALLOW),
        refusal,
    ]);
    block
}

/// The kind of a socket without the flags beside it.
const SOCKET_KIND: u32 = 0xf;
const NEW_TIME: u32 = 0x80;
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// `TIOCSTI` and `TIOCLINUX`: they put words into the mouth of whoever types.
const TERMINAL_INPUT: &[u32] = &[0x5412, 0x541c];
/// `BTRFS_IOC_SNAP_CREATE`, `BTRFS_IOC_SNAP_DESTROY`, and the second version of each. A snapshot has all that is in a subvolume,
/// also what no mount shows, for whoever owns that and has any of it open.
const SUBVOLUMES: &[u32] = &[0x5000_9401, 0x5000_9417, 0x5000_940f, 0x5000_943f];
/// `FIOSETOWN`, `SIOCSPGRP`: who gets the signals of a descriptor.
const SET_OWNER: &[u32] = &[0x8901, 0x8902];
/// `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION`, `EXT4_IOC_SETVERSION`,
/// `FS_IOC_ENABLE_VERITY`, `FS_IOC_SET_ENCRYPTION_POLICY`, `FS_IOC_ADD_ENCRYPTION_KEY`, `FS_IOC_REMOVE_ENCRYPTION_KEY` and
/// that of all users, `FAT_IOCTL_SET_ATTRIBUTES`.
const SET_ATTRIBUTES: &[u32] = &[
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x4008_6604,
    0x4080_6685,
    0x800c_6613,
    0xc050_6617,
    0xc040_6618,
    0xc040_6619,
    0x4004_7211,
];
/// The kinds of requests of Btrfs and F2FS, among them some that make subvolumes or change files by a descriptor that was
/// opened for reading.
const CHANGES_WITHOUT_WRITING: &[u32] = &[0x9400, 0xf500];

/// `F_SETLEASE`, and `F_SETDELEG` of Linux 6.19: whoever owns a file, and has it open to be read, could have everybody wait for
/// seconds who opens it, among them the executor.
const LEASES: &[u32] = &[1024, 1040];

/// Numbers that are the same for every kind of processor, and newer than the C library's list.
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const OPEN_TREE_ATTR: libc::c_long = 467;
const FILE_SETATTR: libc::c_long = 469;
const FCHMODAT2: libc::c_long = 452;

const REFUSED: &[libc::c_long] = &[
    // Other processes' memory, descriptors and secrets.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Parts of the kernel that the filter cannot see into, or that much can be done with.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    // Mounts and namespaces.
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_X86: &[libc::c_long] = &[libc::SYS_iopl, libc::SYS_ioperm];

const METADATA: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

#[cfg(target_arch = "x86_64")]
const METADATA_X86: &[libc::c_long] =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];

mod others;
#[cfg(test)]
mod tests;
