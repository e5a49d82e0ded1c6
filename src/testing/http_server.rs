//! A small HTTP server on loopback, for tests of requests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Answers by the path that is asked for:
///
/// | path | answer |
/// | --- | --- |
/// | `/echo` | 200: the request as text, and `x-a: 1`, `x-a: 2` |
/// | `/404` | 404: `nf` |
/// | `/204` | 204 |
/// | `/redir` | 302 to `/echo`: `moved` |
/// | `/redirect/STATUS/N` | that status, N times, then `/echo` |
/// | `/to/STATUS/URL` | that status, to the URL, without its query |
/// | `/stream/N` | N chunks, one every 100 ms after the first two |
/// | `/bytes/N` | N bytes, the number of each modulo 251 |
/// | `/endless` | bytes without end; [`sent_bytes`](Self::sent_bytes) counts them |
/// | `/trunc` | 5 of 100 bytes |
/// | `/slow` | nothing |
/// | `/drip` | one chunk, then nothing |
/// | `/garbage` | something that is not HTTP |
///
/// It ends when it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    /// By path: how many exchanges have begun that have no end of their own, and how many of them the client has ended.
    open: watch::Sender<HashMap<String, (u64, u64)>>,
    sent_bytes: AtomicU64,
}

impl HttpServer {
    /// Listens on a free port.
    ///
    /// # Errors
    ///
    /// That of the system, if there is none.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { open: watch::Sender::default(), sent_bytes: AtomicU64::new(0) });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Ok(Self { address, state, task })
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Waits until so many requests for a path without an end of its own have come.
    pub async fn begun(&self, path: &str, count: u64) {
        self.wait(path, |(begun, _)| begun >= count).await;
    }

    /// Waits until the client has ended so many exchanges that have no end of their own.
    pub async fn ended(&self, path: &str, count: u64) {
        self.wait(path, |(_, ended)| ended >= count).await;
    }

    /// How many bytes of `/endless` the system has taken.
    pub fn sent_bytes(&self) -> u64 {
        self.state.sent_bytes.load(Ordering::SeqCst)
    }

    async fn wait(&self, path: &str, is_there: impl Fn((u64, u64)) -> bool) {
        let mut open = self.state.open.subscribe();
        // The sender lives as long as this.
        let _seen = open.wait_for(|open| is_there(open.get(path).copied().unwrap_or_default())).await;
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

async fn serve(socket: TcpStream, state: Arc<State>) {
    let mut socket = BufReader::new(socket);
    while let Ok(Some(request)) = read(&mut socket).await {
        if !matches!(answer(&mut socket, &request, &state).await, Ok(true)) {
            return;
        }
    }
}

async fn read(socket: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if socket.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut headers = Vec::new();
    loop {
        line.clear();
        socket.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await?;
    Ok(Some(Request { method, path, headers, body }))
}

/// Whether another request may follow.
async fn answer(socket: &mut BufReader<TcpStream>, request: &Request, state: &State) -> io::Result<bool> {
    let mut parts = request.path.trim_start_matches('/').splitn(3, '/');
    let (name, first, second) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    match name.split('?').next().unwrap_or_default() {
        "echo" => {
            let mut text = format!("{} {}\n", request.method, request.path);
            for (name, value) in &request.headers {
                // Writing to a string cannot fail.
                let _written = writeln!(text, "{}: {value}", name.to_ascii_lowercase());
            }
            let mut body = text.into_bytes();
            body.extend_from_slice(b"\n");
            body.extend_from_slice(&request.body);
            whole(socket, "200 OK", "x-a: 1\r\nx-a: 2\r\ncontent-type: text/plain\r\n", &body).await
        }
        "404" => whole(socket, "404 Not Found", "", b"nf").await,
        "204" => {
            socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
            Ok(true)
        }
        "redir" => whole(socket, "302 Found", "location: /echo\r\n", b"moved").await,
        "redirect" => {
            let left = number(second).saturating_sub(1);
            let status = number(first);
            let next = if left == 0 { "/echo".into() } else { format!("/redirect/{status}/{left}") };
            whole(socket, &format!("{status} Moved"), &format!("location: {next}\r\n"), b"moved").await
        }
        "to" => {
            let url = second.unwrap_or_default().split('?').next().unwrap_or_default();
            let location = format!("location: {url}\r\n");
            whole(socket, &format!("{} Moved", number(first)), &location, b"moved").await
        }
        "stream" => {
            socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            for index in 0..number(first) {
                if index > 1 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                chunk(socket, format!("chunk{index}\n").as_bytes()).await?;
            }
            chunk(socket, b"").await?;
            Ok(true)
        }
        "bytes" => {
            let count = usize::try_from(number(first)).unwrap_or(0);
            let body: Vec<u8> = (0..count).map(|index| (index % 251) as u8).collect();
            whole(socket, "200 OK", "", &body).await
        }
        "endless" => {
            socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            state.begin(&request.path);
            let block = vec![b'x'; 64 << 10];
            while let Ok(()) = socket.write_all(&block).await {
                state.sent_bytes.fetch_add(block.len() as u64, Ordering::SeqCst);
            }
            state.end(&request.path);
            Ok(false)
        }
        "trunc" => {
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort").await?;
            Ok(false)
        }
        "slow" => hold(socket, request, state).await,
        "drip" => {
            socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            chunk(socket, b"drop").await?;
            hold(socket, request, state).await
        }
        "garbage" => {
            socket.write_all(b"this is not HTTP\r\n\r\n").await?;
            Ok(false)
        }
        _ => whole(socket, "404 Not Found", "", b"no such path").await,
    }
}

/// Waits for the client to go away.
async fn hold(socket: &mut BufReader<TcpStream>, request: &Request, state: &State) -> io::Result<bool> {
    state.begin(&request.path);
    // Nothing follows on this connection, so whatever comes, an end or an error, is its end.
    let _gone = socket.read_u8().await;
    state.end(&request.path);
    Ok(false)
}

async fn whole(socket: &mut BufReader<TcpStream>, status: &str, headers: &str, body: &[u8]) -> io::Result<bool> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body).await?;
    Ok(true)
}

async fn chunk(socket: &mut BufReader<TcpStream>, bytes: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    socket.write_all(&chunk).await
}

impl State {
    fn begin(&self, path: &str) {
        self.open.send_modify(|open| open.entry(path.into()).or_default().0 += 1);
    }

    fn end(&self, path: &str) {
        self.open.send_modify(|open| open.entry(path.into()).or_default().1 += 1);
    }
}
