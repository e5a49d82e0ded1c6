//! One command in four places: on this machine, through the in-memory transport, in a child server over stdio, and
//! through a WebSocket server on loopback. The code that runs it is the same; so are the events, the bytes and the status.
//! It ends with a table, and fails if the places disagree.

use std::error::Error;
use std::sync::Arc;

use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::server::{Server, serve_stdio, serve_websocket};
use longarm::transport::memory;
use longarm::transport::stdio::StdioServer;
use longarm::transport::websocket::{self, ListenOptions, Listener};
use longarm::{Environment, Event, ExecRequest, Process, TerminalSize};
use tokio::sync::oneshot;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("serve-stdio") {
        return Ok(serve_stdio(&server(), tokio::io::stdin(), tokio::io::stdout(), std::future::pending()).await?);
    }
    let mut table = Vec::new();

    table.push(tour("local", Environment::local()).await?);

    let (here, there) = memory::pair();
    let serving = tokio::spawn(async move { server().serve(Box::new(there)).await });
    table.push(tour("memory", Environment::connect(here, ClientConfig::default()).await?).await?);
    serving.await??;

    let child = StdioServer::new(std::env::current_exe()?).arg("serve-stdio").launch()?;
    table.push(tour("stdio", Environment::connect(child, ClientConfig::default()).await?).await?);

    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await?;
    let url = listener.local_url();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving =
        tokio::spawn(async move { serve_websocket(&server(), listener, async { drop(stopped.await) }).await });
    let transport = websocket::connect(&url, &Default::default()).await?;
    table.push(tour("websocket", Environment::connect(transport, ClientConfig::default()).await?).await?);
    drop(stop);
    serving.await??;

    println!("\n{:<10} {:<24} {:<20} interrupt", "place", "command", "terminal");
    for (place, [command, terminal, interrupt]) in &table {
        println!("{place:<10} {command:<24} {terminal:<20} {interrupt}");
    }
    if table.iter().any(|(_, facts)| *facts != table[0].1) {
        return Err("the places disagree".into());
    }
    println!("all {} places agree", table.len());
    Ok(())
}

/// A server of this machine.
fn server() -> Server {
    Server::new(Arc::new(Local::new(LocalConfig::from_host())))
}

/// Does the same things in any place, and returns what happened.
async fn tour(place: &'static str, env: Environment) -> Result<(&'static str, [String; 3])> {
    println!("{place}:");

    let script = "echo to stdout; echo to stderr >&2; exit 3";
    let mut process = env.spawn(ExecRequest::new(["sh", "-c", script])).await?;
    let mut bytes = 0;
    let mut status = None;
    while let Some(event) = process.next_event().await? {
        match event {
            Event::Output(output) => {
                print!("  {:?}: {}", output.stream, String::from_utf8_lossy(&output.bytes));
                bytes += output.bytes.len();
            }
            Event::Exited(exited) => status = Some(exited.status),
            _ => {}
        }
    }
    let command = format!("{bytes} bytes, {}", status.ok_or("no exit")?);

    // A terminal that is resized while the command waits for a key.
    let script = "stty size; read key; stty size";
    let size = TerminalSize { rows: 30, cols: 100 };
    let mut process = env.spawn(ExecRequest::new(["sh", "-c", script]).terminal(size)).await?;
    let before = read_line(&mut process).await?;
    process.resize(TerminalSize { rows: 40, cols: 120 }).await?;
    process.write("\n").await?;
    let mut after = String::new();
    // The first line is the terminal's echo of the key.
    while after.is_empty() {
        after = read_line(&mut process).await?;
    }
    let terminal = format!("{before} -> {after}");
    println!("  terminal: {terminal}");

    // An interrupt that the command handles.
    let script = "trap 'echo handled; exit 9' INT; echo ready; while :; do sleep 0.01; done";
    let mut process = env.spawn(ExecRequest::new(["sh", "-c", script])).await?;
    read_line(&mut process).await?;
    process.interrupt().await?;
    let answer = read_line(&mut process).await?;
    let interrupt = format!("{answer}, {}", process.wait().await?);
    println!("  interrupt: {interrupt}");

    env.close().await;
    Ok((place, [command, terminal, interrupt]))
}

/// Reads to the end of a line, which is also the end of what these commands say at a time.
async fn read_line(process: &mut Process) -> Result<String> {
    let mut line = String::new();
    while !line.ends_with('\n') {
        match process.next_event().await?.ok_or("the output ended early")? {
            Event::Output(output) => line.push_str(std::str::from_utf8(&output.bytes)?),
            _ => return Err("the command ended early".into()),
        }
    }
    Ok(line.trim().to_owned())
}
