//! `longarm serve`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use longarm::ExecBackend as _;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::{OutputLimits, ServerConfig};
use longarm::sandbox::{MissingProtected, SandboxSettings};
use longarm::server::{Server, serve_stdio, serve_websocket};
use longarm::transport::websocket::{CapabilityToken, ListenOptions, Listener, parse_listen_url};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::args::{SandboxSettingsArgs, ServeArgs};
use super::{complain, explain, names, os};

/// A few large chunks of a process: enough for it to go on while a session is busy with others.
const QUEUED_BYTES: usize = 256 << 10;

pub(super) fn run(args: ServeArgs) -> ExitCode {
    // Everything that a session does happens on one thread; processes have their own time.
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&explain(&error)),
    };
    let result = runtime.block_on(serve_until_second_signal(args));
    // A read of standard input that never returns must not keep the program.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => fail(&reason),
    }
}

fn fail(reason: &str) -> ExitCode {
    complain(reason);
    ExitCode::FAILURE
}

/// The first signal ends everything in good order, which may take a while; the second one ends it at once.
async fn serve_until_second_signal(args: ServeArgs) -> Result<(), String> {
    // Before anything is announced: who reads the first line may send a signal at once.
    let mut signals = os::Signals::new().map_err(|error| explain(&error))?;
    let (first, shutdown) = oneshot::channel::<()>();
    let second = async move {
        signals.stop().await;
        // Dropping it tells it.
        drop(first);
        signals.stop().await;
    };
    let shutdown = async move { drop(shutdown.await) };
    tokio::select! {
        result = serve(args, shutdown) => result,
        () = second => Err("ended at once by a second signal".into()),
    }
}

async fn serve(args: ServeArgs, shutdown: impl Future<Output = ()> + Send) -> Result<(), String> {
    let mut config = ServerConfig::default();
    if let Some(ttl) = args.session_ttl {
        config.session_ttl = ttl;
    }
    if let Some(count) = args.max_sessions {
        (config.max_sessions, config.max_connections) = (count, count);
    }
    if let Some(count) = args.max_processes {
        (config.max_processes, config.max_closed_processes) = (count, count);
    }
    let report = Arc::new(names::Report::start());
    let sandbox = sandbox_settings(&args.sandbox).violations(Arc::clone(&report) as _);
    let local = Arc::new(Local::new(local_config().sandbox(sandbox)));
    let server = Server::builder(Arc::clone(&local) as _).config(config.clone()).build();
    let result = if args.listen == "stdio" {
        if args.auth_token_file.is_some() {
            return Err("--auth-token-file has no meaning with --listen stdio".into());
        }
        let (stdin, stdout) = os::standard_streams().map_err(|error| explain(&error))?;
        // The connection is over either way, as it is for the reference, which ends with success.
        if let Err(error) = serve_stdio(&server, stdin, stdout, shutdown).await {
            complain(&explain(&error));
        }
        Ok(())
    } else {
        let listener = listen(&args, &config).await?;
        announce(&listener)?;
        serve_websocket(&server, listener, shutdown).await.map_err(|error| explain(&error))
    };
    local.close().await;
    report.finish().await;
    result
}

/// Children end with this program, and get the limit of descriptors that it was started with. Their output is retained by
/// the session, so that little is held before it comes there.
fn local_config() -> LocalConfig {
    let mut output = OutputLimits::default();
    output.retained_bytes = QUEUED_BYTES;
    let config = LocalConfig::from_host().end_with_executor(true).output(output);
    match os::raise_descriptor_limit() {
        Some((soft, hard)) => config.child_descriptor_limit(soft, hard),
        None => config,
    }
}

fn sandbox_settings(args: &SandboxSettingsArgs) -> SandboxSettings {
    let mut settings = SandboxSettings::default()
        .accept_partial(args.sandbox_accept_partial)
        .private_loopback(args.sandbox_private_loopback);
    for name in &args.sandbox_protect {
        settings = settings.protect_name(name);
    }
    if args.sandbox_check_names {
        settings = settings.missing_protected(MissingProtected::Check);
    }
    if args.sandbox_move_names {
        settings = settings.missing_protected(MissingProtected::SetAside);
    }
    match &args.sandbox_state_dir {
        Some(directory) => settings.state_dir(directory),
        None => settings,
    }
}

async fn listen(args: &ServeArgs, config: &ServerConfig) -> Result<Listener, String> {
    let addr = parse_listen_url(&args.listen).map_err(|error| explain(&error))?;
    let mut options = ListenOptions::new().limits(config.messages);
    match &args.auth_token_file {
        Some(path) => {
            options = options.token(CapabilityToken::from_file(path).map_err(|error| explain(&error))?);
        }
        None if !addr.ip().to_canonical().is_loopback() => {
            return Err(format!(
                "refusing to listen on {addr} without --auth-token-file: anybody there could run commands"
            ));
        }
        None => {}
    }
    Listener::bind(addr, options).await.map_err(|error| format!("cannot listen on {addr}: {error}"))
}

/// The first line on standard output is where to connect to.
fn announce(listener: &Listener) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", listener.local_url())
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot write the address to standard output: {error}"))
}
