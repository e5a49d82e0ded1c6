//! HTTP requests that a place makes, here and behind a connection: a response as a whole, then one that is read as it
//! comes, which slows its sender down to the reader's pace.
//! Errors tell the causes apart, and show of a URL no more than its origin.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use longarm::config::ClientConfig;
use longarm::http::{HttpError, HttpRequest};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{Environment, Local, LocalConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(answer(listener));

    let (near, far) = memory::pair();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    tokio::spawn(async move { server.serve(Box::new(far)).await });
    let there = Environment::connect(near, ClientConfig::default()).await?;

    for (name, environment) in [("here", Environment::local()), ("there", there)] {
        println!("{name}:");
        make_requests(&environment, &url).await?;
        environment.close().await;
    }
    Ok(())
}

async fn make_requests(environment: &Environment, url: &str) -> Result<(), Box<dyn Error>> {
    let http = environment.http();
    let request = HttpRequest::new("POST", format!("{url}/greet?key=hunter2")).body("hello");
    let response = http.send(request.timeout(Duration::from_secs(10))).await?;
    println!("{}: {}", response.status, String::from_utf8_lossy(&response.body));
    assert_eq!(response.headers.get("Content-Type"), Some("text/plain"));

    let mut stream = http.stream(HttpRequest::get(format!("{url}/count"))).await?;
    let mut bytes = 0;
    while let Some(chunk) = stream.body.chunk().await? {
        bytes += chunk.len();
    }
    println!("{bytes} bytes came as a stream");

    // Bound, so that nobody else gets the address, and not listening.
    let unused = TcpSocket::new_v4()?;
    unused.bind(([127, 0, 0, 1], 0).into())?;
    let nobody = unused.local_addr()?;
    match http.send(HttpRequest::get(format!("http://{nobody}/?key=hunter2"))).await {
        Err(error @ HttpError::ConnectionRefused { .. }) => {
            println!("{error}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
        other => return Err(format!("expected a refused connection: {other:?}").into()),
    }
    Ok(())
}

/// Answers each connection once, and ends it.
async fn answer(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (mut socket, _) = listener.accept().await?;
        let mut request = [0; 1024];
        let count = socket.read(&mut request).await?;
        let body = if request[..count].starts_with(b"POST") { b"hi there".to_vec() } else { vec![b'.'; 100_000] };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n";
        socket.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes()).await?;
        socket.write_all(&body).await?;
        socket.shutdown().await?;
        // What has not been read of a request would reset the connection, and take the answer with it.
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await?;
    }
}
