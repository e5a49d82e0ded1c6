//! What the contract suite wants to see of a child, done on command.
//!
//! The first argument behind [`MARK`] names what to do; the table in `run` is the list. What a test waits for is flushed at
//! once.

#[cfg(not(unix))]
#[path = "other.rs"]
mod system;
#[cfg(unix)]
#[path = "unix.rs"]
mod system;

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::testing::patience::Patience;

/// Tells this program's calls of itself from those of somebody else.
pub(super) const MARK: &str = "longarm-contract-child";

/// Does what the suite wants of its child, if that has started this program, and then ends the program. To be called
/// first in its `main`: what runs before must neither write, nor start a thread.
pub fn be_child_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|first| first != MARK) {
        return;
    }
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let code = run(&args).unwrap_or_else(|error| {
        eprintln!("{MARK}: {args:?}: {error}");
        99
    });
    std::process::exit(code.into());
}

fn run(args: &[&str]) -> io::Result<u8> {
    match *args {
        ["exit", code] => return parse(code),
        ["say", text] => say(text),
        ["say-and-exit", text, code] => return say(text).and_then(|()| parse(code)),
        ["complain", text] => complain(text),
        ["die", signal] => system::raise(parse(signal)?),
        ["emit", stdout, stderr] => emit(parse(stdout)?, parse(stderr)?),
        ["lines", first, last] => lines(parse(first)?, parse(last)?),
        ["pieces", ref pieces @ ..] => write_pieces(pieces),
        ["turns", turns] => take_turns(parse(turns)?),
        ["cat"] => io::copy(&mut io::stdin(), &mut Unbuffered).map(drop),
        ["count"] => io::copy(&mut io::stdin(), &mut io::sink()).and_then(|count| say(&count.to_string())),
        ["without-directory"] => {
            let removed = std::fs::remove_dir(std::env::current_dir()?).is_ok();
            say(if removed { "removed" } else { "kept" })?;
            read_line().and_then(|line| say(&format!("line {line}")))
        }
        ["line"] => read_line().and_then(|line| say(&format!("line {line}"))),
        ["read-nothing"] | ["sleep"] => say("ready").map(|()| sleep_for_long()),
        ["sleep-silently"] => {
            sleep_for_long();
            Ok(())
        }
        ["close-streams", code] => return close_streams().and_then(|()| parse(code)),
        ["alive", ref command @ ..] => return show_life().and_then(|()| run(command)),
        ["leave-behind", ref command @ ..] => leave_behind(command),
        ["leave-daemon", ref command @ ..] => leave_daemon(command),
        ["leave-daemon-and-sleep", ref command @ ..] => {
            leave_daemon(command).and_then(|()| say("ready")).map(|()| sleep_for_long())
        }
        ["daemon", ref command @ ..] => system::start_session().and_then(|()| leave_behind(command)),
        ["without-streams", ref command @ ..] => return system::close_output().and_then(|()| run(command)),
        ["say-when-told", file, text] => wait_for_file(file).and_then(|()| say(text)),
        ["create-when-told-and-sleep", file, created] => {
            wait_for_file(file).and_then(|()| std::fs::write(created, "")).map(|()| sleep_for_long())
        }
        ["create-when-told", file, created] => wait_for_file(file).and_then(|()| std::fs::write(created, "")),
        ["flood"] => flood(),
        ["flood-until-stopped"] => flood_until_stopped(),
        ["ignoring-stop", ref command @ ..] => return system::ignore_stop().and_then(|()| run(command)),
        ["ignore-stop"] => system::ignore_stop().and_then(|()| say("ready")).map(|()| sleep_for_long()),
        ["ignore-stop-with-descendant"] => ignore_stop_with_descendant(),
        ["on-signal", signal, code] => return on_signal(parse(signal)?, parse(code)?),
        ["clean-up-when-stopped", file] => clean_up_when_stopped(file),
        ["on-signal-with-descendant", signal, code] => {
            leave_behind(&["sleep-silently"])?;
            return on_signal(parse(signal)?, parse(code)?);
        }
        ["on-signal-with-daemon", signal, code] => {
            leave_daemon(&["sleep-silently"])?;
            return on_signal(parse(signal)?, parse(code)?);
        }
        ["raw-on-signal", signal, code] => {
            system::set_raw()?;
            return on_signal(parse(signal)?, parse(code)?);
        }
        ["sizes"] => sizes(),
        ["terminal"] => {
            say(&format!("{} {} {}", io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()))
        }
        ["terminal-lines", count] => terminal_lines(parse(count)?),
        ["env"] => separated(
            std::env::vars_os().map(|(name, value)| [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()),
        ),
        ["argv", ..] => {
            let name = std::env::args_os().next().map(|name| name.as_encoded_bytes().to_vec());
            separated(name.into_iter().chain(args.iter().map(|arg| arg.as_bytes().to_vec())))
        }
        ["cwd"] => std::env::current_dir().and_then(|cwd| say(&cwd.to_string_lossy())),
        ["inherited"] => system::inherited().and_then(|facts| say(&facts)),
        ["wait-gone", life, seconds] => wait_gone(life, parse(seconds)?),
        _ => Err(io::Error::other("no such command")),
    }
    .map(|()| 0)
}

fn parse<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::Error::other(format!("{text:?} is not a number that fits")))
}

/// Standard output without the line buffer of the library, so that a write is a write.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn say(text: &str) -> io::Result<()> {
    Unbuffered.write_all(format!("{text}\n").as_bytes())
}

fn complain(text: &str) -> io::Result<()> {
    io::stderr().write_all(format!("{text}\n").as_bytes())
}

fn sleep_for_long() {
    std::thread::sleep(Duration::from_secs(600));
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).into())
}

/// Writes so many bytes to each stream, alternating; byte *n* of a stream is *n* modulo 251.
fn emit(stdout: usize, stderr: usize) -> io::Result<()> {
    let block: Vec<u8> = (0..251 * 256).map(|index: usize| u8::try_from(index % 251).unwrap_or_default()).collect();
    let (mut out, mut err) = (stdout, stderr);
    while out > 0 || err > 0 {
        let (to_out, to_err) = (out.min(block.len()), err.min(block.len()));
        Unbuffered.write_all(&block[..to_out])?;
        io::stderr().write_all(&block[..to_err])?;
        (out, err) = (out - to_out, err - to_err);
    }
    Ok(())
}

fn lines(first: u64, last: u64) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(64 << 10, Unbuffered);
    for line in first..=last {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Writes pieces given in hexadecimal, each after a line of input; a piece that begins with `!` goes to standard error.
fn write_pieces(pieces: &[&str]) -> io::Result<()> {
    for piece in pieces {
        read_line()?;
        let digits = piece.trim_start_matches('!');
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(io::Error::other))
            .collect::<io::Result<_>>()?;
        if piece.starts_with('!') {
            io::stderr().write_all(&bytes)?;
        } else {
            Unbuffered.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// Writes the numbers of the turns to standard output and standard error by turns, each after a line of input.
fn take_turns(turns: u32) -> io::Result<()> {
    for turn in 0..turns {
        read_line()?;
        if turn % 2 == 0 { say(&turn.to_string())? } else { complain(&turn.to_string())? }
    }
    Ok(())
}

/// Hands both output streams to nobody and goes on until there is a line of input.
fn close_streams() -> io::Result<()> {
    system::close_output()?;
    read_line().map(drop)
}

/// Starts this program once more with the same streams, shows that it lives, and leaves it behind.
fn leave_behind(command: &[&str]) -> io::Result<()> {
    start_again(&["alive"], command)
}

/// The same in a session of its own, as the child of nobody.
fn leave_daemon(command: &[&str]) -> io::Result<()> {
    start_again(&["daemon"], command)
}

fn start_again(how: &[&str], command: &[&str]) -> io::Result<()> {
    let mut again = Command::new(std::env::current_exe()?);
    again.arg(MARK).args(how).args(command).stdin(Stdio::inherit()).spawn().map(drop)
}

/// Says a number that stands for this process: the name of a file in its directory that it holds until its end. Unlike
/// that of the process, the number means the same to everybody.
fn show_life() -> io::Result<()> {
    for number in std::process::id().. {
        match std::fs::File::create_new(life(&number.to_string())) {
            Ok(file) => {
                system::hold(file, &life(&number.to_string()))?;
                return say(&number.to_string());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn life(number: &str) -> String {
    format!("life-{number}")
}

/// Waits until a file exists. The file is the only thing by which a test can tell something to a descendant.
fn wait_for_file(file: &str) -> io::Result<()> {
    while !std::fs::exists(file)? {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn ignore_stop_with_descendant() -> io::Result<()> {
    system::ignore_stop()?;
    leave_behind(&["ignore-stop"])?;
    sleep_for_long();
    Ok(())
}

/// Writes without end.
fn flood() -> io::Result<()> {
    loop {
        Unbuffered.write_all(&[b'x'; 1000])?;
    }
}

/// Writes without end until it is asked to stop, then ends in good order.
fn flood_until_stopped() -> io::Result<()> {
    let stop = system::stop_signal()?;
    system::block(stop)?;
    say("ready")?;
    while !system::is_pending(stop)? {
        Unbuffered.write_all(&[b'x'; 1000])?;
    }
    Unbuffered.write_all(b"\nend\n")
}

/// Says `ready`, then waits for the signal, says `got` and ends with the code.
fn on_signal(signal: i32, code: u8) -> io::Result<u8> {
    system::block(signal)?;
    say("ready")?;
    system::wait_for(signal)?;
    say("got")?;
    Ok(code)
}

/// Says `ready`, waits until it is asked to stop, and then creates the file.
fn clean_up_when_stopped(file: &str) -> io::Result<()> {
    let stop = system::stop_signal()?;
    system::block(stop)?;
    say("ready")?;
    system::wait_for(stop)?;
    std::fs::write(file, "")
}

/// Says the size of the terminal at first and after each change.
fn sizes() -> io::Result<()> {
    system::block_resize()?;
    loop {
        let (rows, cols) = system::terminal_size()?;
        say(&format!("{rows}x{cols}"))?;
        system::wait_for_resize()?;
    }
}

fn terminal_lines(count: u32) -> io::Result<()> {
    for line in 0..count {
        say(&format!("line {line}"))?;
    }
    Unbuffered.write_all(b"END")
}

/// Writes items with a NUL after each.
fn separated(items: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
    let mut all: Vec<Vec<u8>> = items.collect();
    for item in &mut all {
        item.push(0);
    }
    Unbuffered.write_all(&all.concat())
}

/// Fails if the process is still there after so many seconds in which this one could run. Nothing tells of the end of a
/// stranger, so this looks.
fn wait_gone(number: &str, seconds: u64) -> io::Result<()> {
    let mut patience = Patience::new(Duration::from_secs(seconds));
    while system::is_held(&life(number))? {
        if !patience.is_left() {
            return Err(io::Error::other("it is still there"));
        }
        patience.block(Duration::from_millis(5));
    }
    Ok(())
}
