//! Client, server and wire in one program, joined by the in-memory transport: how a host tests its own code.
//! It also shows that the session outlives the connection: the client leaves in the middle of a command, comes back with
//! the session's id, and goes on reading after the last event that it had seen.

use std::error::Error;
use std::sync::Arc;

use longarm::config::ClientConfig;
use longarm::server::Server;
use longarm::transport::memory::{self, MemoryTransport};
use longarm::{Environment, Event, ExecRequest, Local, LocalConfig, Process, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));

    let first = Environment::connect(serve(&server), ClientConfig::default()).await?;
    let mut process = first.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await?;
    let id = process.id().clone();
    process.write("before\n").await?;
    let seen = read_line(&mut process).await?;

    let remote = first.remote().ok_or("it is behind a connection")?;
    let session_id = remote.leave().await.ok_or("there is a session to come back to")?;
    println!("left session {session_id} after event {seen}");
    drop(process);

    let again = Environment::resume(serve(&server), ClientConfig::default(), session_id).await?;
    let mut process = again.attach(id, seen).await?;
    process.write("after\n").await?;
    read_line(&mut process).await?;
    process.close_stdin().await?;
    println!("{}", process.wait().await?);

    again.close().await;
    server.shutdown().await;
    Ok(())
}

/// A connection to the server, whose task ends with the connection.
fn serve(server: &Server) -> MemoryTransport {
    let (near, far) = memory::pair();
    let server = server.clone();
    tokio::spawn(async move {
        if let Err(error) = server.serve(Box::new(far)).await {
            eprintln!("the connection ended: {error}");
        }
    });
    near
}

/// Prints output up to the end of a line, and returns the number of the last event.
async fn read_line(process: &mut Process) -> Result<u64, Box<dyn Error>> {
    while let Some(event) = process.next_event().await? {
        let seq = event.seq();
        if let Event::Output(output) = event {
            print!("event {seq}: {}", String::from_utf8_lossy(&output.bytes));
            if output.bytes.ends_with(b"\n") {
                return Ok(seq);
            }
        }
    }
    Err("the events ended".into())
}
