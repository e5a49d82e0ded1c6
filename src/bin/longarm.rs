//! The `longarm` program: `serve` and `exec`, a thin face on the library.

#[path = "../cli/mod.rs"]
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
