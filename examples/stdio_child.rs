//! A server launched over any command: here this program itself, in place of `ssh host longarm serve --listen stdio` or
//! `docker exec -i box longarm serve --listen stdio`. The server lives as long as the connection, and all that it runs
//! ends with it; what it says on standard error goes to a sink of ours.

use std::error::Error;
use std::sync::Arc;

use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::server::{Server, serve_stdio};
use longarm::transport::stdio::StdioServer;
use longarm::{Environment, ExecRequest, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        eprintln!("serving process {}", std::process::id());
        let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
        return Ok(serve_stdio(&server, tokio::io::stdin(), tokio::io::stdout(), std::future::pending()).await?);
    }

    let server = StdioServer::new(std::env::current_exe()?).arg("serve").on_stderr(|line| println!("[server] {line}"));
    let env = Environment::connect(server.launch()?, ClientConfig::default()).await?;

    // A command that is written to, and whose input ends.
    let process = env.spawn(ExecRequest::new(["tr", "a-z", "A-Z"]).stdin(Stdin::Piped)).await?;
    process.write("through two processes\n").await?;
    process.close_stdin().await?;
    let output = process.output(Default::default()).await?;
    print!("{}", output.stdout.to_text());

    // Waits until the server has ended.
    env.close().await;
    if output.stdout.to_text() != "THROUGH TWO PROCESSES\n" {
        return Err("unexpected output".into());
    }
    Ok(())
}
