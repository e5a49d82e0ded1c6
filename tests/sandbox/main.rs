//! The conformance matrix of the sandbox: what a process may do under each policy, in every place.
//!
//! Each row is a policy, an action and what is expected of it. It runs on this machine, behind a connection, and behind
//! a server that is another, ordinary user. A row that this machine cannot run is listed as ignored, with the reason; what
//! the machine has is asked of the kernel, not of the library, so that a library that wrongly refuses fails here.

#[cfg(target_os = "linux")]
mod dirs;
#[cfg(target_os = "linux")]
mod executor;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod machine;
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
