//! Every case of the contract, in every place.

#[cfg(target_os = "linux")]
mod contained;
#[cfg(unix)]
#[path = "../../examples/custom_executor.rs"]
#[expect(dead_code, reason = "its main function is for the example")]
mod custom_executor;
#[cfg(target_os = "linux")]
#[path = "../common/needs.rs"]
mod needs;
mod places;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    longarm::testing::contract::be_child_if_asked();
    forget_the_caller();
    #[cfg(unix)]
    hear_signals();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (place, suite) in places::all() {
        for case in suite.cases() {
            let suite = suite.clone();
            let name = format!("{place}::{}", case.name());
            trials.push(Trial::test(name, move || {
                suite.run_blocking(case);
                Ok::<_, Failed>(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Removes the variables by which the caller would change what is tested: its proxies, and the reference's settings.
fn forget_the_caller() {
    let is_meant = |name: &str| name.to_ascii_lowercase().ends_with("_proxy") || name.starts_with("CODEX_");
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| is_meant(name)).collect::<Vec<_>>() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::remove_var(name) };
    }
}

/// Takes back what whoever started this program made it ignore, as shells do for their background jobs: the custom
/// executor's children inherit it, for tokio's `Command` resets nothing.
#[cfg(unix)]
fn hear_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the call takes two numbers; no other thread runs yet.
        let former = unsafe { libc::signal(signal, libc::SIG_DFL) };
        assert_ne!(former, libc::SIG_ERR, "signal {signal} keeps its disposition");
    }
}
