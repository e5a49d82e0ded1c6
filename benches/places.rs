//! What a place costs: every row in this library's four places, beside plain `tokio::process` in the same run.
//!
//! - *spawn to exit*: `/bin/true` from the call to its status and the end of its output, median.
//! - *echo*: 64 bytes to `cat` and back, median.
//! - *output*: `head -c 256M /dev/zero`, received by the consumer.
//!
//! `cargo bench --all-features --bench places`; without `--bench` each row runs briefly, to see that it works. Ratios of
//! one run are what to quote: absolute numbers are those of the machine at that moment.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::event::Event;
use longarm::request::Stdin;
use longarm::server::{Server, serve_websocket};
use longarm::transport::stdio::StdioServer;
use longarm::transport::websocket::{ConnectOptions, ListenOptions, Listener, connect};
use longarm::transport::{Transport, memory};
use longarm::{Environment, ExecRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let size = if std::env::args().any(|argument| argument == "--bench") {
        Size { spawns: 300, echoes: 3_000, bytes: 256 << 20 }
    } else {
        Size { spawns: 3, echoes: 10, bytes: 4 << 20 }
    };
    let plain = Figures::of_tokio(&size).await?;
    println!("{:12} {:>16} {:>7} {:>12} {:>7} {:>14} {:>7}", "", "spawn to exit", "", "echo", "", "output", "");
    plain.print("tokio", &plain);

    let local = Environment::local();
    Figures::of_place(&local, &size).await?.print("local", &plain);
    local.close().await;

    let (near, far) = memory::pair();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(Box::new(far)).await }
    });
    measure_remote("memory", near, &size, &plain).await?;
    serving.await??;
    server.shutdown().await;

    let child = StdioServer::new(env!("CARGO_BIN_EXE_longarm")).args(["serve", "--listen", "stdio"]).launch()?;
    measure_remote("stdio", child, &size, &plain).await?;

    let listener = Listener::bind("127.0.0.1:0".parse()?, ListenOptions::new()).await?;
    let url = listener.local_url();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { serve_websocket(&server, listener, async { drop(stopped.await) }).await }
    });
    measure_remote("websocket", connect(&url, &ConnectOptions::new()).await?, &size, &plain).await?;
    drop(stop);
    serving.await??;
    Ok(())
}

async fn measure_remote(name: &str, transport: impl Transport, size: &Size, plain: &Figures) -> Result<()> {
    let env = Environment::connect(transport, ClientConfig::default()).await?;
    Figures::of_place(&env, size).await?.print(name, plain);
    env.close().await;
    Ok(())
}

struct Size {
    spawns: usize,
    echoes: usize,
    bytes: usize,
}

struct Figures {
    spawn: Duration,
    echo: Duration,
    mib_per_second: f64,
}

impl Figures {
    fn print(&self, name: &str, plain: &Self) {
        let ratio = |mine: Duration, other: Duration| mine.as_secs_f64() / other.as_secs_f64();
        println!(
            "{name:12} {:>13.0} us {:>6.2}x {:>9.1} us {:>6.2}x {:>8.0} MiB/s {:>6.2}x",
            self.spawn.as_secs_f64() * 1e6,
            ratio(self.spawn, plain.spawn),
            self.echo.as_secs_f64() * 1e6,
            ratio(self.echo, plain.echo),
            self.mib_per_second,
            self.mib_per_second / plain.mib_per_second,
        );
    }

    async fn of_place(env: &Environment, size: &Size) -> Result<Self> {
        let mut spawns = Vec::new();
        for _ in 0..size.spawns {
            let begun = Instant::now();
            let mut process = env.spawn(ExecRequest::new(["/bin/true"]).cwd("/")).await?;
            while process.next_event().await?.is_some() {}
            spawns.push(begun.elapsed());
        }

        let mut cat = env.spawn(ExecRequest::new(["cat"]).cwd("/").stdin(Stdin::Piped)).await?;
        let mut echoes = Vec::new();
        for _ in 0..size.echoes {
            let begun = Instant::now();
            cat.write(&LINE[..]).await?;
            let mut left = LINE.len();
            while left > 0 {
                if let Some(Event::Output(output)) = cat.next_event().await? {
                    left -= output.bytes.len();
                }
            }
            echoes.push(begun.elapsed());
        }
        cat.close_stdin().await?;
        cat.wait().await?;

        let count = size.bytes.to_string();
        let begun = Instant::now();
        let mut head = env.spawn(ExecRequest::new(["head", "-c", &count, "/dev/zero"]).cwd("/")).await?;
        let mut received = 0;
        while let Some(event) = head.next_event().await? {
            if let Event::Output(output) = event {
                received += output.bytes.len();
            }
        }
        assert_eq!(received, size.bytes, "every byte arrives");
        Ok(Self::new(spawns, echoes, received, begun.elapsed()))
    }

    async fn of_tokio(size: &Size) -> Result<Self> {
        let mut spawns = Vec::new();
        for _ in 0..size.spawns {
            let begun = Instant::now();
            Command::new("/bin/true").stdin(Stdio::null()).output().await?;
            spawns.push(begun.elapsed());
        }

        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (mut stdin, mut stdout) = (cat.stdin.take().ok_or("no stdin")?, cat.stdout.take().ok_or("no stdout")?);
        let mut echoes = Vec::new();
        let mut line = LINE;
        for _ in 0..size.echoes {
            let begun = Instant::now();
            stdin.write_all(&LINE).await?;
            stdout.read_exact(&mut line).await?;
            echoes.push(begun.elapsed());
        }
        drop(stdin);
        cat.wait().await?;

        let begun = Instant::now();
        let mut head = Command::new("head")
            .args(["-c", &size.bytes.to_string(), "/dev/zero"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = head.stdout.take().ok_or("no stdout")?;
        let mut buffer = vec![0; 64 << 10];
        let mut received = 0;
        loop {
            match stdout.read(&mut buffer).await? {
                0 => break,
                count => received += count,
            }
        }
        head.wait().await?;
        Ok(Self::new(spawns, echoes, received, begun.elapsed()))
    }

    fn new(spawns: Vec<Duration>, echoes: Vec<Duration>, bytes: usize, elapsed: Duration) -> Self {
        Self {
            spawn: median(spawns),
            echo: median(echoes),
            mib_per_second: bytes as f64 / f64::from(1 << 20) / elapsed.as_secs_f64(),
        }
    }
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

const LINE: [u8; 64] = [b'x'; 64];
