//! `longarm exec`.

mod drain;
mod input;
mod json;
mod output;
mod sandbox;
mod stop;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longarm::backend::Terminate;
use longarm::error::{SpawnError, WaitError};
use longarm::event::Gap;
use longarm::sandbox::SandboxSettings;
use longarm::{Environment, Event, ExecRequest, ExitStatus, Process, ShellEnvPolicy, Stdin};
use tokio::runtime::Builder;

use self::drain::Drain;
use self::output::{Output, OutputError};
use self::stop::Stopper;
use super::args::{ExecArgs, Inherit};
use super::throttle::Gate;
use super::{CLOSE_TIME, FAILED, INTERRUPTED, TIMED_OUT, complain, explain, os, place};

/// 128 + `SIGPIPE`: what a program whose reader is gone ends with.
const BROKEN_PIPE: u8 = 141;

/// How long what a contained command left behind may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Why there is no exit code of the command.
enum Failure {
    /// A reason for the user.
    Reason(String),
    /// The user gave up.
    Interrupted,
    /// Whoever reads our output has gone, which is no fault.
    BrokenPipe,
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        Self::Reason(explain(&error))
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Self {
        Self::Reason(explain(&error))
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::BrokenPipe => Self::BrokenPipe,
            OutputError::Io(error) => Self::Reason(format!("cannot write the output: {error}")),
        }
    }
}

pub(super) fn run(args: ExecArgs) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&explain(&error));
            return ExitCode::from(FAILED);
        }
    };
    let time_limit = args.timeout;
    let result = runtime.block_on(exec(args));
    // A read of standard input that never returns must not keep the program.
    runtime.shutdown_background();
    ExitCode::from(match result {
        Ok(status) => exit_code(status, time_limit),
        Err(Failure::Interrupted) => INTERRUPTED,
        Err(Failure::BrokenPipe) => BROKEN_PIPE,
        Err(Failure::Reason(reason)) => {
            complain(&reason);
            FAILED
        }
    })
}

fn exit_code(status: ExitStatus, time_limit: Option<Duration>) -> u8 {
    if status.timed_out() {
        complain(&format!("the time limit of {:?} passed", time_limit.unwrap_or_default()));
        return TIMED_OUT;
    }
    match status.wire_code() {
        -1 if status.code().is_none() => {
            complain("nobody can say how the command ended");
            FAILED
        }
        // The system keeps the low byte of an exit code, and so do we.
        code => code.to_le_bytes()[0],
    }
}

async fn exec(args: ExecArgs) -> Result<ExitStatus, Failure> {
    let mut signals = os::Signals::new().map_err(|error| Failure::Reason(explain(&error)))?;
    let mut sandboxes = SandboxSettings::default().accept_partial(args.sandbox_accept_partial);
    sandboxes.state_dir.clone_from(&args.sandbox_state_dir);
    let (environment, gate) = tokio::select! {
        connected = place::connect_with(&args.place, sandboxes) => connected.map_err(Failure::Reason)?,
        () = signals.stop() => return Err(Failure::Interrupted),
    };
    if !environment.features().credits {
        gate.activate();
    }
    let result = run_in(&environment, &gate, &args, &mut signals).await;
    // What still runs belongs to nobody after this; an error has the last word.
    let closed = signals.bound(CLOSE_TIME, environment.close()).await;
    if closed.is_none() && result.is_ok() {
        complain("the place did not close in time");
    }
    result
}

async fn run_in(
    environment: &Environment,
    gate: &Gate,
    args: &ExecArgs,
    signals: &mut os::Signals,
) -> Result<ExitStatus, Failure> {
    let features = environment.features();
    if args.interactive && !args.tty && !features.close_stdin && !os::stdin_is_terminal() {
        let reason = "the server cannot pass on the end of standard input (-i); use -it or a longarm server";
        return Err(Failure::Reason(reason.into()));
    }
    let mut request = request(args, features.resize)?;
    if let Some(policy) = &args.sandbox {
        request = request.sandbox(sandbox::intent(environment, policy, &args.root, args.cwd.as_deref()).await?);
    }
    let mut output = Output::start(args.json);
    let mut process = tokio::select! {
        process = environment.spawn(request) => process?,
        () = signals.stop() => return Err(Failure::Interrupted),
    };
    output.started(process.id()).await?;
    let raw_mode = match args.tty {
        true => os::RawMode::enter(!args.interactive).map_err(|error| Failure::Reason(explain(&error)))?,
        false => None,
    };
    let follows_size = args.tty && features.resize;
    let result = attend(&mut process, gate, args, follows_size, &mut output, signals).await;
    gate.deactivate();
    // Before anything is said, and whatever happened.
    drop(raw_mode);
    let result = match result {
        Ok(ended) => {
            if args.contain {
                let how = Terminate::graceful(STOP_GRACE).with_descendants();
                if !matches!(signals.bound(CLOSE_TIME, process.terminate_with(how)).await, Some(Ok(_))) {
                    complain("what the command left behind could not be ended");
                }
            } else if ended.still_open {
                // Someone whom the command left behind holds its streams. As under a shell, he may live.
                let detached = signals.bound(CLOSE_TIME, process.detach()).await;
                if !matches!(detached, Some(Ok(()))) {
                    complain("what the command left behind could not be kept");
                }
            }
            output.finish(signals).await?;
            ended
        }
        Err(failure) => {
            // The cause is known; a second error would hide it.
            let _ = signals.bound(CLOSE_TIME, process.kill()).await;
            if matches!(failure, Failure::Reason(_)) {
                // What has come was seen by us, and is nobody's to send again.
                let _ = output.finish(signals).await;
            }
            return Err(failure);
        }
    };
    let denial = process.denial();
    sandbox::changed_names(denial.as_ref()).for_each(|line| complain(&line));
    if result.sandbox_denied {
        complain(&sandbox::report(denial.as_ref()));
    }
    match result.lost {
        None => Ok(result.status),
        Some(Lost { bytes: Some(bytes) }) => Err(Failure::Reason(format!("{bytes} bytes of output were lost"))),
        Some(Lost { bytes: None }) => Err(Failure::Reason("an unknown amount of output was lost".into())),
    }
}

fn request(args: &ExecArgs, has_sizes: bool) -> Result<ExecRequest, Failure> {
    let policy = match args.env_inherit {
        Inherit::All => ShellEnvPolicy::inherit_all(),
        Inherit::Core => ShellEnvPolicy::inherit_core(),
        Inherit::None => ShellEnvPolicy::inherit_none(),
    };
    let mut request = ExecRequest::new(args.argv.clone()).env_policy(policy).contain(args.contain);
    if args.tty {
        // A plain peer has terminals of one size only.
        let size = if has_sizes { os::terminal_size() } else { None };
        request = request.terminal(size.unwrap_or_default());
        if let Some(term) = std::env::var_os("TERM").filter(|_| os::stdin_is_terminal()) {
            request = request.env("TERM", term);
        }
    } else if args.interactive {
        request = request.stdin(Stdin::Piped);
    }
    for pair in &args.env {
        let Some((name, value)) = os::split_variable(pair) else {
            return Err(Failure::Reason(format!("--env {pair:?} is not of the form K=V")));
        };
        request = request.env(name, value);
    }
    if let Some(cwd) = &args.cwd {
        request = request.cwd(cwd);
    }
    if let Some(limit) = args.timeout {
        request = request.time_limit(limit);
    }
    Ok(request)
}

/// Output that did not arrive.
struct Lost {
    bytes: Option<u64>,
}

struct Ended {
    status: ExitStatus,
    lost: Option<Lost>,
    still_open: bool,
    sandbox_denied: bool,
}

/// Carries output, input and signals until the end of the command.
async fn attend(
    process: &mut Process,
    gate: &Gate,
    args: &ExecArgs,
    follows_size: bool,
    output: &mut Output,
    signals: &mut os::Signals,
) -> Result<Ended, Failure> {
    let handle = process.handle();
    let mut stopper = Stopper::default();
    let mut actions: FuturesUnordered<stop::Action> = FuturesUnordered::new();
    let mut input = pin!(input::forward(handle.clone(), args.tty));
    let mut input_open = args.interactive;
    let mut pump = pin!(pump(process, gate, output));
    loop {
        tokio::select! {
            ended = &mut pump => return ended,
            result = &mut input, if input_open => {
                input_open = false;
                result.map_err(Failure::Reason)?;
            }
            Some(result) = actions.next(), if !actions.is_empty() => {
                if let Err(error) = result {
                    complain(&error);
                }
            }
            signal = signals.next() => match signal {
                os::Signal::Resize => if let Some(size) = os::terminal_size().filter(|_| follows_size) {
                    actions.push(stop::resize(handle.clone(), size));
                },
                stop => match stopper.next(stop, tokio::time::Instant::now()) {
                    Some(step) => actions.push(step.take(handle.clone())),
                    None => return Err(Failure::Interrupted),
                },
            },
        }
    }
}

/// Carries the events until the streams have ended, or it has waited for that long enough after the exit.
async fn pump(process: &mut Process, gate: &Gate, output: &mut Output) -> Result<Ended, Failure> {
    let mut status = None;
    let mut lost: Option<Lost> = None;
    let mut drain: Option<Drain> = None;
    let mut still_open = false;
    loop {
        let next = next_event(process, gate);
        let event = match &mut drain {
            None => Some(next.await),
            Some(drain) => drain.wait(next).await,
        };
        let Some(event) = event else {
            still_open = true;
            break;
        };
        let Some(event) = event? else { break };
        match &event {
            Event::Exited(exited) => {
                status = Some((exited.status, exited.sandbox_denied));
                drain = Some(Drain::new());
            }
            Event::Output(output) => {
                if let Some(drain) = &mut drain {
                    drain.came(output.bytes.len());
                }
            }
            Event::Gap(Gap { bytes, .. }) => {
                let before = lost.map_or(Some(0), |lost| lost.bytes);
                lost = Some(Lost { bytes: before.zip(*bytes).map(|(before, bytes)| before.saturating_add(bytes)) });
            }
            _ => {}
        }
        output.event(event).await?;
    }
    match status {
        Some((status, sandbox_denied)) => Ok(Ended { status, lost, still_open, sandbox_denied }),
        None => Err(Failure::Reason("the events ended before the command did".into())),
    }
}

/// The next event. While there is none, all that has come was taken.
async fn next_event(process: &mut Process, gate: &Gate) -> Result<Option<Event>, WaitError> {
    // Else there could be none for want of this task's share of a turn.
    let mut next = pin!(tokio::task::unconstrained(process.next_event()));
    poll_fn(|cx| {
        let polled = next.as_mut().poll(cx);
        match polled {
            Poll::Pending => gate.open(),
            Poll::Ready(_) => gate.close(),
        }
        polled
    })
    .await
}
