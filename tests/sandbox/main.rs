//! The conformance matrix of the sandbox: what a process may do under each policy, in every place.
//!
//! Each row is a policy, an action and what is expected of it. It runs on this machine, behind a connection, and behind
//! a server that is another, ordinary user. A row that this machine cannot run is listed as ignored, with the reason; what
//! the machine has is asked of the kernel, not of the library, so that a library that wrongly refuses fails here.
//!
//! A row's number is that of the matrix; one that stands for a case of the public reports has the case's number (S01 and so on)
//! in its name. What must always hold, and where it is tested:
//!
//!  1. Nothing is started without the whole plan: rows 102, 104, `refused.rs`; failing steps in the unit tests of
//!     `src/backend/local/unix/sandbox`.
//!  2. Only the owner lowers the level: rows 102 and 103.
//!  3. A command widens nothing, now or later: row 21, and a directory that a command has exchanged for a link, row 26.
//!  4. The longest match, the same for processes and files: row 55 in every order (`orders.rs`), and the oracle of
//!     `src/sandbox/bind/tests`.
//!  5. Two walls: `walls.rs`, and row 88 in `others.rs`.
//!  6. Nothing outside is reached: rows 70 to 75 and 82 (the host's sockets have heard nothing), 88 to 91, 97.
//!  7. Nothing is left: `ends.rs`, also of executors that were killed; descriptors in row 93.
//!  8. Nothing is made but placeholders: `ends.rs` compares the directories before and after.
//!  9. All else is as without a sandbox: rows 10 to 16, 24, 94 to 96 and 98.
//! 10. Every request is answered: rows 51 to 69; intents are fuzzed by `fuzz/fuzz_targets/intent.rs`.
//! 11. A denial is a report: rows 11 to 16, 83 and 87.
//! 12. The policy is not told: row 99.
//! 13. The same for root and for an ordinary user: every row runs as both.
//! 14. A refusal is an error at the start, with its kind: `refused.rs`.

#[cfg(target_os = "linux")]
mod dirs;
#[cfg(target_os = "linux")]
mod executor;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod policy;
#[cfg(target_os = "linux")]
mod row;
#[cfg(target_os = "linux")]
mod rows;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the rows are those of Linux");
}

#[cfg(target_os = "linux")]
fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(helper::FLAG) => helper::main(args),
        Some(machine::FLAG) => machine::main(),
        Some(executor::FLAG) => executor::main(),
        Some(network::FLAG) => network::main(),
        Some(mounts::FLAG) => mounts::main(),
        _ => {}
    }
    let arguments = libtest_mimic::Arguments::from_args();
    let helper = dirs::Helper::install();
    let machine = machine::Machine::look();
    let trials = rows::all().into_iter().flat_map(|row| row.trials(&machine)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    helper.remove();
    conclusion.exit();
}
