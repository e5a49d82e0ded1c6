//! What a sandbox costs: each policy beside a plain start of the same place, and beside the reference where it is installed,
//! in one run, while this process holds 500 MB.
//!
//! `cargo bench --bench sandbox`. It fails on ratios, not on times: a sandboxed `true` takes at most 2.5 times as long as a
//! plain one, and the reference at least 15 times as long as this. The end of a sandboxed command is told sooner after it than
//! the plain start of one takes. `LONGARM_REFERENCE` names the reference's program. Without `--bench` everything runs briefly,
//! to see that it works. What calls about files cost under an intent is in the bench `files`.
#![allow(missing_docs, reason = "a program")]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("sandboxes are measured on Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use longarm::error::SpawnError;
    use longarm::event::Event;
    use longarm::sandbox::{NetworkPolicy, SandboxIntent};
    use longarm::{Environment, ExecRequest, PathUri};

    /// As much as a large host holds.
    const RESIDENT_BYTES: usize = 500 << 20;
    const MOST_TIMES_PLAIN: f64 = 2.5;
    const LEAST_TIMES_FASTER: f64 = 15.0;

    type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

    /// With this argument the program says what the monotonic clock shows, in nanoseconds, and ends at once.
    const STAMP: &str = "--stamp";

    pub(super) fn main() {
        if std::env::args().nth(1).is_some_and(|arg| arg == STAMP) {
            println!("{}", monotonic_nanoseconds());
            return;
        }
        let brief = !std::env::args().any(|arg| arg == "--bench");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let times = if brief { 3 } else { 200 };
        match runtime.block_on(measure(times)) {
            Ok(failures) if failures.is_empty() || brief => {}
            Ok(failures) => {
                failures.iter().for_each(|failure| eprintln!("{failure}"));
                std::process::exit(1);
            }
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }

    async fn measure(times: usize) -> Result<Vec<String>> {
        // Every page is there: what a copy of the page tables costs shows.
        let ballast = vec![1_u8; if times > 10 { RESIDENT_BYTES } else { 1 << 20 }];
        let base = tempfile::tempdir_in("/var/tmp")?;
        let base_path = base.path().canonicalize()?;
        let (workspace, secret) = (base_path.join("workspace"), base_path.join("workspace/secret"));
        std::fs::create_dir_all(workspace.join(".git"))?;
        std::fs::create_dir_all(&secret)?;
        let root = || PathUri::from_host_native_path(&workspace);
        let policies = [
            ("read-only", SandboxIntent::read_only()),
            ("workspace-write", SandboxIntent::workspace_write([root()?])),
            ("the same, with the network", SandboxIntent::workspace_write([root()?]).network(NetworkPolicy::Enabled)),
            ("the same, with a deny entry", SandboxIntent::workspace_write([root()?]).deny_below_roots("secret")),
            ("only the network", SandboxIntent::no_network()),
        ];
        let local = Environment::local();
        if let Err(SpawnError::Sandbox(refusal)) = run(&local, &workspace, Some(&policies[1].1)).await {
            println!("not measured: {refusal}");
            return Ok(Vec::new());
        }
        let reference = Reference::start().await?;
        let mut failures = Vec::new();
        for (name, intent) in policies {
            let (mut plain, mut sandboxed, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
            // In turn, so that a busy machine slows all of them.
            for index in 0..times {
                plain.push(run(&local, &workspace, None).await?);
                sandboxed.push(run(&local, &workspace, Some(&intent)).await?);
                if let Some(reference) = &reference
                    && index % 10 == 0
                {
                    theirs.push(run(&reference.environment, &workspace, Some(&intent)).await?);
                }
            }
            let (plain, sandboxed) = (median(plain), median(sandboxed));
            let mut late = Vec::new();
            for _ in 0..times {
                late.push(told_after_exit(&local, &workspace, &intent).await?);
            }
            let late = median(late);
            let ratio = sandboxed.as_secs_f64() / plain.as_secs_f64();
            print!(
                "{name:28} {sandboxed:>10.2?}   plain {plain:>10.2?}   {ratio:>5.2} times   exit told after {late:>8.2?}"
            );
            if late > plain {
                failures
                    .push(format!("{name}: its end is told {late:.2?} after it, and a plain start takes {plain:.2?}"));
            }
            if ratio > MOST_TIMES_PLAIN {
                failures.push(format!("{name}: {ratio:.2} times a plain start, and {MOST_TIMES_PLAIN} are allowed"));
            }
            if theirs.is_empty() {
                println!();
                continue;
            }
            let theirs = median(theirs);
            let faster = theirs.as_secs_f64() / sandboxed.as_secs_f64();
            println!("   reference {theirs:>10.2?}   {faster:>5.1} times that");
            if faster < LEAST_TIMES_FASTER {
                failures
                    .push(format!("{name}: the reference takes {faster:.1} times as long, not {LEAST_TIMES_FASTER}"));
            }
        }
        local.close().await;
        if let Some(reference) = reference {
            reference.stop().await?;
        }
        drop(ballast);
        Ok(failures)
    }

    /// From the call to the end of the output.
    async fn run(
        place: &Environment,
        cwd: &Path,
        intent: Option<&SandboxIntent>,
    ) -> std::result::Result<Duration, SpawnError> {
        let request = ExecRequest::new(["/bin/true"]).cwd(cwd);
        let request = match intent {
            Some(intent) => request.sandbox(intent.clone()),
            None => request,
        };
        let begun = Instant::now();
        let mut process = place.spawn(request).await?;
        while matches!(process.next_event().await, Ok(Some(_))) {}
        Ok(begun.elapsed())
    }

    /// From just before the command ends, by its own clock, to the event that says so.
    async fn told_after_exit(place: &Environment, cwd: &Path, intent: &SandboxIntent) -> Result<Duration> {
        let program =
            std::env::current_exe()?.into_os_string().into_string().map_err(|_| "a path that is not UTF-8")?;
        let mut process =
            place.spawn(ExecRequest::new([program.as_str(), STAMP]).cwd(cwd).sandbox(intent.clone())).await?;
        let (mut stamp, mut told) = (Vec::new(), None);
        while let Some(event) = process.next_event().await? {
            match event {
                Event::Output(output) => stamp.extend_from_slice(&output.bytes),
                Event::Exited(_) => told = Some(monotonic_nanoseconds()),
                _ => {}
            }
        }
        let stamp: u64 = std::str::from_utf8(&stamp)?.trim().parse()?;
        Ok(Duration::from_nanos(told.ok_or("no end was told")? - stamp))
    }

    /// The same in all processes of this machine.
    fn monotonic_nanoseconds() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// The reference's server.
    struct Reference {
        environment: Environment,
        server: tokio::process::Child,
        /// Its home folder, which goes with it.
        _home: tempfile::TempDir,
    }

    impl Reference {
        #[cfg(feature = "websocket")]
        async fn start() -> Result<Option<Self>> {
            use longarm::config::ClientConfig;
            use longarm::transport::websocket::{ConnectOptions, connect};
            use tokio::io::{AsyncBufReadExt, BufReader};

            let Some(program) = std::env::var_os("LONGARM_REFERENCE") else {
                println!("without the reference: LONGARM_REFERENCE does not name its program");
                return Ok(None);
            };
            let home = tempfile::tempdir_in("/var/tmp")?;
            let mut server = tokio::process::Command::new(program)
                .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
                .env("HOME", home.path())
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            let mut lines = BufReader::new(server.stdout.take().ok_or("it has no output")?).lines();
            let url = lines.next_line().await?.ok_or("the reference names no URL")?;
            let transport = connect(&url, &ConnectOptions::new()).await?;
            let environment = Environment::connect(transport, ClientConfig::default()).await?;
            Ok(Some(Self { environment, server, _home: home }))
        }

        #[cfg(not(feature = "websocket"))]
        async fn start() -> Result<Option<Self>> {
            Ok(None)
        }

        async fn stop(mut self) -> Result<()> {
            self.environment.close().await;
            Ok(self.server.kill().await?)
        }
    }
}
