//! What keeps a process from others of its user, where no namespace does.

use super::{ALLOW, Instruction, RETURN};
use super::{JUMP_IF_EQUAL, LOAD_WORD, Rules, argument, jump, refuse, statement};

impl Rules {
    /// Refuses what changes other processes, and what is shared with them besides files. Zero is the caller.
    pub(super) fn leave_others_alone(&mut self) {
        self.refuse_all(SHARED);
        for call in OF_A_PROCESS {
            self.on(*call, unless_zero(&[0]));
        }
        for (call, whole_user) in [(libc::SYS_setpriority, PRIO_USER), (libc::SYS_ioprio_set, IOPRIO_USER)] {
            let mut block =
                vec![statement(LOAD_WORD, argument(0)), jump(JUMP_IF_EQUAL, whole_user, 0, 1), refuse(libc::EPERM)];
            block.extend(unless_zero(&[1]));
            self.on(call, block);
        }
    }

    /// Refuses signals but those to the caller's own process group: a filter knows no other process as its own. Signal 0 is
    /// none.
    pub(super) fn keep_signals(&mut self) {
        self.on(libc::SYS_kill, unless_zero(&[0, 1]));
        self.on(libc::SYS_tkill, unless_zero(&[1]));
        self.on(libc::SYS_tgkill, unless_zero(&[2]));
        self.refuse_all(&[libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_pidfd_send_signal]);
    }
}

/// Refuses a call unless one of these arguments is zero. Of each the kernel takes the lower half.
fn unless_zero(arguments: &[u32]) -> Vec<Instruction> {
    let mut block = Vec::new();
    for index in arguments {
        block.extend([statement(LOAD_WORD, argument(*index)), jump(JUMP_IF_EQUAL, 0, 0, 1), statement(RETURN, ALLOW)]);
    }
    block.push(refuse(libc::EPERM));
    block
}

const PRIO_USER: u32 = 2;
/// `IOPRIO_WHO_USER`.
const IOPRIO_USER: u32 = 3;
/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX`.
pub(super) const SIGNALS_OF_FILES: &[u32] = &[8, 10, 15];

/// System V's shared memory, semaphores and queues, and the queues of POSIX.
pub(super) const SHARED: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Their first argument says of which one.
pub(super) const OF_A_PROCESS: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];
