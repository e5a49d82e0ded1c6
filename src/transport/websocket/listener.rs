//! The server's side: bind, take connections in, upgrade them side by side.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::WebSocketTransport;
use super::client::prepare_socket;
use super::head::{HeadError, read_head};
use super::io::Io;
use super::token::CapabilityToken;
use super::upgrade::{Answer, Verdict, decide};
use crate::config::MessageLimits;
use crate::error::ConnectError;

/// How a [`Listener`] treats those who connect.
#[derive(Clone, Debug)]
#[must_use]
pub struct ListenOptions {
    token: Option<CapabilityToken>,
    limits: MessageLimits,
    handshake_timeout: Duration,
    max_handshakes: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            token: None,
            limits: MessageLimits::default(),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 256,
        }
    }
}

impl ListenOptions {
    /// Everybody is let in who sends no `Origin`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those are let in who show this token.
    pub fn token(mut self, token: CapabilityToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Bounds on messages.
    pub fn limits(mut self, limits: MessageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a handshake may take in all. By default 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// How many handshakes may be under way. By default 256; one more drops the oldest, so that those who connect and
    /// say nothing keep nobody out.
    pub fn max_handshakes(mut self, count: usize) -> Self {
        self.max_handshakes = count.max(1);
        self
    }

    /// Whether a token is asked for.
    pub fn is_authenticated(&self) -> bool {
        self.token.is_some()
    }
}

/// A bound address that takes WebSocket connections in.
pub struct Listener {
    listener: TcpListener,
    local_addr: SocketAddr,
    options: ListenOptions,
    handshakes: JoinSet<Option<WebSocketTransport>>,
    oldest: VecDeque<AbortHandle>,
    /// After a failure that may pass.
    paused_until: Option<Instant>,
}

impl Listener {
    /// Binds `addr`; port 0 is any free port.
    ///
    /// # Errors
    ///
    /// The system's.
    pub async fn bind(addr: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let local_addr = listener.local_addr()?;
        Ok(Self {
            listener,
            local_addr,
            options,
            handshakes: JoinSet::new(),
            oldest: VecDeque::new(),
            paused_until: None,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The bound address as a client needs it, such as `ws://127.0.0.1:4711`.
    pub fn local_url(&self) -> String {
        format!("ws://{}", self.local_addr)
    }

    /// The next connection that completed its upgrade. Handshakes run side by side and are bounded in size, time and
    /// number; those that fail are answered and forgotten.
    ///
    /// # Errors
    ///
    /// The system's, if the listening socket itself is unusable. All else is waited out: a lack of descriptors or memory,
    /// what a firewall does not allow, and errors of the network that the system reports here.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; handshakes go on.
    pub async fn accept(&mut self) -> io::Result<WebSocketTransport> {
        loop {
            tokio::select! {
                // A finished handshake is somebody who was here first.
                biased;
                Some(finished) = self.handshakes.join_next() => {
                    self.oldest.retain(|handle| !handle.is_finished());
                    // An error is a handshake that was dropped in favour of newer ones.
                    if let Ok(Some(transport)) = finished {
                        return Ok(transport);
                    }
                }
                accepted = accept_after(self.paused_until, &self.listener) => {
                    self.paused_until = None;
                    match accepted {
                        Ok((stream, peer)) => self.start_handshake(stream, peer),
                        Err(error) => match Refusal::of(&error) {
                            Refusal::Connection => {}
                            Refusal::ForNow => self.paused_until = Some(Instant::now() + PAUSE),
                            Refusal::Socket => return Err(error),
                        },
                    }
                }
            }
        }
    }

    fn start_handshake(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.handshakes.len() >= self.options.max_handshakes
            && let Some(oldest) = self.oldest.pop_front()
        {
            oldest.abort();
        }
        let options = self.options.clone();
        self.oldest.push_back(self.handshakes.spawn(async move {
            let limit = options.handshake_timeout;
            // Whoever is too slow, or fails, gets no transport; there is nobody else to tell.
            timeout(limit, upgrade(stream, peer, options)).await.ok()?.ok()?
        }));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local_addr", &self.local_addr)
            .field("options", &self.options)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}

/// The address of a URL `ws://IP:PORT`, the form in which a server is told where to listen.
///
/// # Errors
///
/// [`ConnectError::InvalidAddress`]: a host name, a missing port, another scheme, or more than an address.
pub fn parse_listen_url(url: &str) -> Result<SocketAddr, ConnectError> {
    let invalid = |reason: &str| ConnectError::InvalidAddress { address: url.into(), reason: reason.into() };
    let rest = url.strip_prefix("ws://").ok_or_else(|| invalid("expected ws://IP:PORT"))?;
    rest.strip_suffix('/').unwrap_or(rest).parse().map_err(|_| invalid("expected a literal IP address and a port"))
}

async fn accept_after(until: Option<Instant>, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    if let Some(until) = until {
        sleep_until(until).await;
    }
    listener.accept().await
}

async fn upgrade(
    mut stream: TcpStream,
    peer: SocketAddr,
    options: ListenOptions,
) -> io::Result<Option<WebSocketTransport>> {
    let (verdict, rest) = match read_head(&mut stream).await {
        Ok(head) => (decide(&head.bytes, options.token.as_ref()), head.rest),
        Err(HeadError::TooLarge) => (Verdict::Answer(Answer::new(431, "")), Vec::new()),
        Err(HeadError::Io(error)) => return Err(error),
    };
    match verdict {
        Verdict::Upgrade { accept } => {
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-accept: {accept}\r\n\r\n"
            );
            prepare_socket(&stream)?;
            stream.write_all(answer.as_bytes()).await?;
            let peer = format!("ws://{peer}");
            Ok(Some(WebSocketTransport::new(Io::Tcp(stream), rest, Role::Server, options.limits, peer).await))
        }
        Verdict::Answer(answer) => {
            stream.write_all(&answer.to_bytes()).await?;
            stream.shutdown().await?;
            // What is not read would reset the connection and take the answer with it. The time of a handshake bounds it.
            let mut scratch = [0; 1024];
            while stream.read(&mut scratch).await? != 0 {}
            Ok(None)
        }
    }
}

/// What a failure to take a connection in is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// One connection, which failed before it was taken in: the next one may be there.
    Connection,
    /// Whatever may pass: a lack of descriptors or memory, a firewall, and errors of the network, which some systems report
    /// here although the socket is good.
    ForNow,
    /// The listening socket itself.
    Socket,
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted => Self::Connection,
            _ if error.raw_os_error().is_some_and(|code| OF_THE_SOCKET.contains(&code)) => Self::Socket,
            _ => Self::ForNow,
        }
    }
}

/// It is no descriptor, no socket, or does not listen.
#[cfg(unix)]
const OF_THE_SOCKET: [i32; 4] = [libc::EBADF, libc::ENOTSOCK, libc::EINVAL, libc::EFAULT];

/// `WSAENOTSOCK`, `WSAEINVAL`, `WSAEFAULT`, `WSAEOPNOTSUPP`, `WSANOTINITIALISED`.
#[cfg(windows)]
const OF_THE_SOCKET: [i32; 5] = [10038, 10022, 10014, 10045, 10093];

const PAUSE: Duration = Duration::from_millis(100);

#[cfg(all(test, unix))]
mod tests;
