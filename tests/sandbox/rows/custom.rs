//! Rows that take more than one command, or a look from outside.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use longarm::collect::CollectLimits;
use longarm::error::SpawnError;
use longarm::event::Event;
use longarm::request::{Signal, TerminalSize};
use longarm::sandbox::{Evidence, Level, ManagedNetworkFacts, Violation, ViolationReason};
use longarm::{ExecRequest, Process};

use crate::place::{Cripple, Kind, Settings};
use crate::policy::{dis, full, minr, minw, ro, unr, ww};
use crate::row::Action::Custom;
use crate::row::Expect::Looked;
use crate::row::{PATIENCE, Refusal, Row, Stage, is_running};

/// Those whose executor is this process.
const HERE: &[Kind] = &[Kind::Local, Kind::Remote];

macro_rules! custom {
    ($number:literal, $what:literal, $policy:expr, $action:path) => {
        Row::new($number, $what, $policy, Custom(|stage| Box::pin($action(stage))), Looked)
    };
}

pub(super) fn rows() -> Vec<Row> {
    let crippled = Settings { cripple: Some(Cripple::NoUserNamespaces), accept_partial: true, ..Settings::default() };
    vec![
        custom!(2, "the report of a full sandbox", ro, reports_full),
        custom!(87, "the report of none", dis, reports_none),
        custom!(86, "the report of none where everything is allowed", |dirs| unr(dirs).enabled(), reports_none),
        custom!(103, "the report of a partial sandbox", ro, reports_partial).settings(crippled).at(&[Kind::Ordinary]),
        custom!(12, "words are evidence, and a guess", ro, text_evidence),
        custom!(16, "the signal is evidence", ro, signal_evidence),
        custom!(16, "its exit code is none", ro, code_is_no_evidence),
        custom!(4, "one event for a command", ro, one_event).at(HERE),
        custom!(14, "the program does not exist", ro, no_program),
        custom!(14, "the working directory does not exist", ro, no_directory),
        custom!(14, "the program is hidden", minr, hidden_program)
            .setup("printf 'secret\n' >$O/program; chmod 755 $O/program"),
        custom!(14, "the script is hidden", minr, hidden_program)
            .setup("printf '#!/longarm/secret\n' >$O/program; chmod 755 $O/program"),
        custom!(24, "the working directory, by a link that is hidden", minw, by_a_hidden_link).setup("ln -s $W $O/way"),
        custom!(34, "no placeholder is left", ww, no_leftovers).setup("rm -r $W/.git"),
        custom!(42, "a placeholder is taken away from outside", ww, placeholder_removed).at(HERE),
        custom!(81, "managed ports", ro, managed_ports),
        custom!(82, "managed ports, and a datagram", ro, managed_datagrams),
        custom!(84, "a managed network without details", ro, managed_without_details),
        custom!(84, "a managed network without a port", ro, managed_without_ports),
        custom!(84, "a managed network, and a sandbox of nothing", dis, managed_by_port),
        custom!(84, "a managed network, and all allowed", |dirs| unr(dirs).enabled(), managed_by_port),
        custom!(84, "a managed network, and all allowed by an entry", |dirs| full(dirs).enabled(), managed_by_port),
        custom!(92, "a process in the background", ro, background),
        custom!(93, "everything ends by a stop", ro, terminated),
        custom!(93, "everything ends with the executor", ro, executor_killed).at(&[Kind::Ordinary]),
        custom!(95, "the interrupt key, handled", ro, interrupt_key_trapped),
        custom!(95, "the interrupt key, not handled", ro, interrupt_key),
        custom!(96, "an interrupt without a terminal, handled", ro, interrupted_trapped),
        custom!(96, "an interrupt without a terminal, not handled", ro, interrupted),
        custom!(101, "two commands on one root", ww, two_at_once).setup("rm -r $W/.git"),
    ]
}

type Outcome = Result<(), String>;

fn ensure(condition: bool, what: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(what()) }
}

async fn begin(stage: &Stage<'_>, script: &str) -> Result<Process, String> {
    stage.start(stage.sh(script)).await.map_err(|refused| format!("{refused:?}"))
}

async fn begin_on_terminal(stage: &Stage<'_>, script: &str) -> Result<Process, String> {
    let request = stage.sh(script).terminal(TerminalSize::default());
    stage.start(request).await.map_err(|refused| format!("{refused:?}"))
}

/// Reads until the output holds a text.
async fn read_until(process: &mut Process, text: &str) -> Outcome {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        match process.next_event().await.map_err(|error| error.to_string())? {
            Some(Event::Output(output)) => all.extend_from_slice(&output.bytes),
            other => return Err(format!("{other:?} before {text:?}, after {:?}", String::from_utf8_lossy(&all))),
        }
    }
    Ok(())
}

/// Waits for something that is about to happen on the host.
async fn until(what: &str, mut happened: impl FnMut() -> bool) -> Outcome {
    let deadline = tokio::time::Instant::now() + PATIENCE / 2;
    while !happened() {
        ensure(tokio::time::Instant::now() < deadline, || format!("not in time: {what}"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn reports_full(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "true").await?;
    let enforcement = process.enforcement();
    process.wait().await.map_err(|error| error.to_string())?;
    match enforcement {
        Some(enforcement) if enforcement.level == Level::Full && !enforcement.mechanisms.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn reports_partial(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "true").await?;
    let enforcement = process.enforcement();
    process.wait().await.map_err(|error| error.to_string())?;
    match enforcement.as_ref().map(|enforcement| &enforcement.level) {
        Some(Level::Partial(reasons)) if !reasons.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn reports_none(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo permission denied; exit 1").await?;
    let (enforcement, kind) = (process.enforcement(), process.sandbox_type().map(str::to_owned));
    process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial();
    ensure(enforcement.as_ref().is_some_and(|enforcement| enforcement.level == Level::None), || {
        format!("{enforcement:?}")
    })?;
    ensure(kind.as_deref() == Some("none"), || format!("{kind:?}"))?;
    ensure(denial.is_none(), || format!("{denial:?}"))
}

async fn text_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo Permission denied >&2; exit 1").await?;
    process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial().ok_or("no denial")?;
    let guess = denial.evidence.iter().any(|evidence| matches!(evidence, Evidence::Text { .. }));
    ensure(denial.denied && guess, || format!("{denial:?}"))?;
    ensure(denial.evidence.iter().all(Evidence::is_guess), || format!("{denial:?}"))
}

async fn signal_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "kill -SYS $$").await?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    ensure(status.signal() == Some(Signal::from_number(libc::SIGSYS)), || format!("{status}"))?;
    let denial = process.denial().ok_or("no denial")?;
    let sure = denial.evidence.iter().any(|evidence| !evidence.is_guess());
    ensure(denial.denied && sure, || format!("{denial:?}"))
}

async fn code_is_no_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "exit 159").await?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial();
    let sure = denial.iter().flat_map(|denial| &denial.evidence).any(|evidence| !evidence.is_guess());
    ensure(status.code() == Some(159) && !sure, || format!("{status}, {denial:?}"))
}

async fn one_event(stage: &Stage<'_>) -> Outcome {
    let ran = stage.run(stage.sh("for name in a b c; do (echo x >$W/$name); done; exit 1")).await;
    let ran = ran.map_err(|refused| format!("{refused:?}"))?;
    ensure(ran.output.sandbox_denied, || format!("{ran:?}"))?;
    let events = stage.place.violations.all();
    match events.as_slice() {
        [Violation::File(violation)] if violation.reason == ViolationReason::ReadOnlyFileSystem => {
            ensure(violation.output_snippet.is_none(), || format!("{violation:?}"))
        }
        other => Err(format!("{other:?}")),
    }
}

async fn no_program(stage: &Stage<'_>) -> Outcome {
    let intent = longarm::sandbox::SandboxIntent::from_json(&stage.policy.json().unwrap_or_default());
    let request = stage.request(["/longarm/no/such/program"]).sandbox(intent.map_err(|error| error.to_string())?);
    match stage.place.environment.spawn(request).await {
        Err(SpawnError::ProgramNotFound { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn hidden_program(stage: &Stage<'_>) -> Outcome {
    let program = stage.dirs.o.join("program");
    let intent = longarm::sandbox::SandboxIntent::from_json(&stage.policy.json().unwrap_or_default());
    let request = stage.request([&program.to_string_lossy()]);
    match stage.place.environment.spawn(request.sandbox(intent.map_err(|error| error.to_string())?)).await {
        Err(SpawnError::ProgramNotFound { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn by_a_hidden_link(stage: &Stage<'_>) -> Outcome {
    let request = stage.sh("echo x >new; pwd -P").cwd(stage.dirs.o.join("way"));
    let ran = stage.run(request).await.map_err(|refused| format!("{refused:?}"))?;
    ensure(ran.text().trim() == stage.dirs.w.to_string_lossy(), || format!("{ran:?}"))?;
    ensure(stage.dirs.w.join("new").is_file(), || "it was not there".into())
}

async fn no_directory(stage: &Stage<'_>) -> Outcome {
    let intent = longarm::sandbox::SandboxIntent::from_json(&stage.policy.json().unwrap_or_default());
    let request = stage.request(["true"]).cwd("/longarm/no/such/directory");
    match stage.place.environment.spawn(request.sandbox(intent.map_err(|error| error.to_string())?)).await {
        Err(SpawnError::CwdNotFound { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn leftovers(stage: &Stage<'_>) -> Vec<&'static str> {
    [".git", ".agents", ".codex", ".aws"].into_iter().filter(|name| stage.dirs.w.join(name).exists()).collect()
}

async fn no_leftovers(stage: &Stage<'_>) -> Outcome {
    for script in ["true", "kill -9 $$", "kill -9 0", "mkdir $W/.agents"] {
        stage.run(stage.sh(script)).await.map_err(|refused| format!("{refused:?}"))?;
        until("nothing is left", || leftovers(stage).is_empty())
            .await
            .map_err(|_| format!("{script}: {:?}", leftovers(stage)))?;
    }
    let mut process = begin(stage, "echo ready; sleep 600").await?;
    read_until(&mut process, "ready").await?;
    process.kill().await.map_err(|error| error.to_string())?;
    process.wait().await.map_err(|error| error.to_string())?;
    until("nothing is left after a kill", || leftovers(stage).is_empty()).await
}

async fn placeholder_removed(stage: &Stage<'_>) -> Outcome {
    let name = stage.dirs.w.join(".agents");
    let mut process = begin(stage, "echo ready; until mkdir $W/.agents 2>/dev/null; do sleep 0.02; done").await?;
    read_until(&mut process, "ready").await?;
    std::fs::remove_dir(&name).map_err(|error| error.to_string())?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    ensure(status.success(), || format!("{status}"))?;
    let about = |violation: &Violation| {
        matches!(violation, Violation::File(file) if file.reason == ViolationReason::PolicyDenied
            && file.path.as_deref() == name.to_str())
    };
    until("an event", || stage.place.violations.all().iter().any(about)).await?;
    ensure(name.is_dir(), || "what was made is not taken away".into())
}

async fn managed_ports(stage: &Stage<'_>) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    // Ends with the first client, or with this program.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = [0; 6];
        stream.read_exact(&mut text).unwrap();
        stream.write_all(b"proxy\n").unwrap();
    });
    let run = async |script: String| {
        let request = stage.sh(&script).managed_network(ManagedNetworkFacts::ports([port]));
        stage.run(request).await.map_err(|refused| format!("{refused:?}"))
    };
    let ran = run(format!("$PROBE talk 127.0.0.1:{port}")).await?;
    ensure(ran.text().contains("proxy"), || format!("the port: {ran:?}"))?;
    for address in [format!("127.0.0.1:{}", stage.dirs.port()), "192.0.2.1:80".into()] {
        let ran = run(format!("$PROBE tcp {address}")).await?;
        ensure(ran.output.status.wire_code() == 1, || format!("{address}: {ran:?}"))?;
    }
    Ok(())
}

async fn managed_datagrams(stage: &Stage<'_>) -> Outcome {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = receiver.local_addr().map_err(|error| error.to_string())?.port();
    let request = stage.sh(&format!("$PROBE udp 127.0.0.1:{port}")).managed_network(ManagedNetworkFacts::ports([port]));
    stage.run(request).await.map_err(|refused| format!("{refused:?}"))?;
    receiver.set_nonblocking(true).map_err(|error| error.to_string())?;
    // The sender has ended: on loopback, what it sent is there.
    ensure(receiver.recv(&mut [0]).is_err(), || "the datagram arrived".into())
}

async fn managed_without_details(stage: &Stage<'_>) -> Outcome {
    not_managed(stage, stage.sh("true")).await
}

async fn managed_without_ports(stage: &Stage<'_>) -> Outcome {
    for facts in [ManagedNetworkFacts::default(), ManagedNetworkFacts::ports([0, 0])] {
        not_managed(stage, stage.sh("true").managed_network(facts)).await?;
    }
    Ok(())
}

async fn managed_by_port(stage: &Stage<'_>) -> Outcome {
    not_managed(stage, stage.sh("true").managed_network(ManagedNetworkFacts::ports([stage.dirs.port()]))).await
}

async fn not_managed(stage: &Stage<'_>, request: ExecRequest) -> Outcome {
    match stage.start(request.enforce_managed_network(true)).await {
        Err(refused) if refused.refusal == Refusal::Unavailable => Ok(()),
        Err(refused) => Err(format!("{refused:?}")),
        Ok(_) => Err("it was started".into()),
    }
}

/// An argument of `sleep` that no other process has.
fn unique(stage: &Stage<'_>) -> String {
    format!("1{:05}.{}", stage.dirs.port(), std::process::id())
}

async fn background(stage: &Stage<'_>) -> Outcome {
    let time = unique(stage);
    let mut process = begin(stage, &format!("sleep {time} & setsid sleep {time} & echo $!")).await?;
    while !matches!(process.next_event().await, Ok(Some(Event::Exited(_)))) {}
    ensure(!is_running(&time), || "a process lives on".into())
}

async fn terminated(stage: &Stage<'_>) -> Outcome {
    let time = unique(stage);
    let mut process = begin(stage, &format!("sleep {time} & setsid sleep {time} & echo ready; wait")).await?;
    read_until(&mut process, "ready").await?;
    until("they run", || is_running(&time)).await?;
    process.terminate().await.map_err(|error| error.to_string())?;
    process.wait().await.map_err(|error| error.to_string())?;
    until("they end", || !is_running(&time)).await
}

async fn executor_killed(stage: &Stage<'_>) -> Outcome {
    let time = unique(stage);
    let mut process = begin(stage, &format!("sleep {time} & setsid sleep {time} & echo ready; wait")).await?;
    read_until(&mut process, "ready").await?;
    let executor = stage.place.executor_pid().ok_or("no executor")?;
    // SAFETY: the call takes numbers; the process is a child of this one that was not reaped.
    let killed = unsafe { libc::kill(executor.cast_signed(), libc::SIGKILL) };
    ensure(killed == 0, || std::io::Error::last_os_error().to_string())?;
    until("they end", || !is_running(&time)).await
}

const TRAP: &str = "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done";

async fn ended(process: Process) -> Result<longarm::ExitStatus, String> {
    Ok(process.output(CollectLimits::default()).await.map_err(|error| error.to_string())?.status)
}

async fn interrupt_key_trapped(stage: &Stage<'_>) -> Outcome {
    let mut process = begin_on_terminal(stage, TRAP).await?;
    read_until(&mut process, "ready").await?;
    process.write("\x03").await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.code() == Some(7), || status.to_string())
}

async fn interrupt_key(stage: &Stage<'_>) -> Outcome {
    let mut process = begin_on_terminal(stage, "echo ready; exec sleep 600").await?;
    read_until(&mut process, "ready").await?;
    process.write("\x03").await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.signal() == Some(Signal::Interrupt), || status.to_string())
}

async fn interrupted_trapped(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, TRAP).await?;
    read_until(&mut process, "ready").await?;
    process.interrupt().await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.code() == Some(7), || status.to_string())
}

async fn interrupted(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo ready; exec sleep 600").await?;
    read_until(&mut process, "ready").await?;
    process.signal(Signal::Interrupt).await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.signal() == Some(Signal::Interrupt), || status.to_string())
}

async fn two_at_once(stage: &Stage<'_>) -> Outcome {
    let mut long = begin(stage, "echo ready; until test -e $W/go; do sleep 0.02; done; mkdir $W/.agents").await?;
    read_until(&mut long, "ready").await?;
    stage.must("! mkdir $W/.agents 2>/dev/null").await?;
    std::fs::write(stage.dirs.w.join("go"), "").map_err(|error| error.to_string())?;
    let status = long.wait().await.map_err(|error| error.to_string())?;
    ensure(status.code() == Some(1), || format!("the other one: {status}"))?;
    until("nothing is left", || leftovers(stage).is_empty()).await
}
