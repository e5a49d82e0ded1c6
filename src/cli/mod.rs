//! The command line. It uses only what any host can use: the public surface of the library.

mod args;
mod cp;
mod exec;
mod info;
mod names;
mod place;
mod serve;
mod throttle;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use self::unix as os;
#[cfg(windows)]
use self::windows as os;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use longarm::error::explain;

use self::args::{Cli, Command};

/// The exit code of `exec` when longarm itself failed, and not the command.
const FAILED: u8 = 125;
/// The exit code of `exec` when the time limit passed.
const TIMED_OUT: u8 = 124;
/// 128 + `SIGINT`: the exit code of `exec` and `cp` when the user gave up.
const INTERRUPTED: u8 = 130;
/// How long closing the place may take. It ends by itself; a peer that is gone must not keep the program.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// The exit code of a usage error of anything but `exec`.
const USAGE: u8 = 2;

pub(crate) fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Serve(args) }) => serve::run(args),
        Ok(Cli { command: Command::Exec(args) }) => exec::run(args),
        Ok(Cli { command: Command::Cp(args) }) => cp::run(args),
        Ok(Cli { command: Command::Info(args) }) => info::run(args),
        Err(error) => usage(&error),
    }
}

impl os::Signals {
    /// Waits for something for a bounded time, which the user may cut short. None if it did not come.
    async fn bound<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = tokio::time::timeout(limit, work) => done.ok(),
            () = self.stop() => None,
        }
    }
}

/// Prints help, or what is wrong with the arguments.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // There is nobody left to tell if the standard output is gone.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "exec") {
        // One line, so that scripts can tell it from the command's own words.
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let line = lines.join(" ");
        complain(line.strip_prefix("error: ").unwrap_or(&line));
        return ExitCode::from(FAILED);
    }
    let _ = error.print();
    ExitCode::from(USAGE)
}

/// One line on standard error.
fn complain(reason: &str) {
    use std::io::Write as _;
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // There is nobody left to tell if the standard error is gone.
    let _ = writeln!(std::io::stderr(), "longarm: {line}");
}
