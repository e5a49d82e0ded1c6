//! The local backend against plain `tokio::process` in the same run: what supervision costs.
//!
//! `cargo bench --bench spawn`; without `--bench` each row runs briefly, to see that it works. Both sides alternate, so that a
//! busy machine slows both; the ratio is what counts.
#![allow(missing_docs, reason = "a program")]

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {
    eprintln!("the programs that this runs are those of Unix systems");
}

#[cfg(unix)]
mod unix {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use futures_util::StreamExt;
    use longarm::backend::ExecBackend;
    use longarm::event::Event;
    use longarm::request::Stdin;
    use longarm::{ExecRequest, Local, LocalConfig};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::process::Command;

    pub(super) fn main() {
        let quick = !std::env::args().any(|arg| arg == "--bench");
        let scale = if quick { 1 } else { 10 };
        for (name, runtime) in [
            ("one thread", tokio::runtime::Builder::new_current_thread().enable_all().build()),
            ("two threads", tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()),
        ] {
            let runtime = runtime.expect("a runtime");
            println!("{name}:");
            let run = async move {
                let local = Local::new(LocalConfig::from_host());
                one_shot(&local, 50 * scale).await;
                echo(&local, 500 * scale).await;
                stream(&local, "256 MiB of zeroes", "head -c 256M /dev/zero", scale.min(5)).await;
                let writes = "exec dd if=/dev/zero bs=64 count=400000 status=none";
                stream(&local, "writes of 64 bytes", writes, scale.min(5)).await;
                local.close().await;
            };
            // On a worker, as the work of a server would be.
            runtime.block_on(async { tokio::spawn(run).await }).expect("no panic");
        }
    }

    /// The medians of both, and their ratio.
    fn report(what: &str, mut ours: Vec<Duration>, mut plain: Vec<Duration>) {
        ours.sort_unstable();
        plain.sort_unstable();
        let (ours, plain) = (ours[ours.len() / 2], plain[plain.len() / 2]);
        let ratio = ours.as_secs_f64() / plain.as_secs_f64();
        println!("  {what:<22} longarm {ours:>12.2?}   tokio {plain:>12.2?}   ratio {ratio:.2}");
    }

    async fn one_shot(local: &Local, times: usize) {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let start = Instant::now();
            let spawned = local.spawn(ExecRequest::new(["/bin/true"]).cwd("/tmp")).await.expect("it starts");
            drain(spawned.events).await;
            ours.push(start.elapsed());
            let start = Instant::now();
            let mut command = Command::new("/bin/true");
            let child = command.current_dir("/tmp").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let output = child.spawn().expect("it starts").wait_with_output().await;
            assert!(output.expect("it ends").status.success());
            plain.push(start.elapsed());
        }
        report("start to close", ours, plain);
    }

    async fn echo(local: &Local, times: usize) {
        let request = ExecRequest::new(["cat"]).cwd("/tmp").stdin(Stdin::Piped);
        let mut spawned = local.spawn(request).await.expect("it starts");
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (mut stdin, mut stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        let line = [b'x'; 64];
        for _ in 0..times {
            let start = Instant::now();
            spawned.control.write(line.to_vec().into()).await.expect("it is taken");
            let event = spawned.events.next().await;
            assert!(matches!(event, Some(Ok(Event::Output(output))) if output.bytes.len() == 64));
            ours.push(start.elapsed());
            let start = Instant::now();
            stdin.write_all(&line).await.expect("it is taken");
            let mut back = [0; 64];
            stdout.read_exact(&mut back).await.expect("it comes back");
            plain.push(start.elapsed());
        }
        spawned.control.kill_now();
        child.kill().await.expect("it ends");
        report("echo of 64 bytes", ours, plain);
    }

    async fn stream(local: &Local, what: &str, script: &str, times: usize) {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let start = Instant::now();
            let spawned = local.spawn(ExecRequest::new(["sh", "-c", script]).cwd("/tmp")).await.expect("it starts");
            let ours_bytes = drain(spawned.events).await;
            ours.push(start.elapsed());
            let start = Instant::now();
            let mut command = Command::new("sh");
            let mut child = command.args(["-c", script]).stdout(Stdio::piped()).spawn().expect("it starts");
            let mut stdout = child.stdout.take().expect("a pipe");
            let (mut buffer, mut plain_bytes) = (vec![0; 64 << 10], 0);
            loop {
                match stdout.read(&mut buffer).await.expect("it is read") {
                    0 => break,
                    count => plain_bytes += count,
                }
            }
            child.wait().await.expect("it ends");
            plain.push(start.elapsed());
            assert_eq!(ours_bytes, plain_bytes);
        }
        report(what, ours, plain);
    }

    async fn drain(mut events: longarm::backend::EventSource) -> usize {
        let mut bytes = 0;
        while let Some(event) = events.next().await {
            if let Event::Output(output) = event.expect("no failure") {
                bytes += output.bytes.len();
            }
        }
        bytes
    }
}
