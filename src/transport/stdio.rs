//! One message a line, on any pair of a reader and a writer, or with a child process at the other end.
//!
//! Lines end with `\n` or `\r\n`; lines of only white space are skipped. A line above the limit, or one that is not
//! UTF-8, ends the connection. An unfinished last line is dropped: it is no message.

mod framing;
mod launch;
#[cfg(test)]
mod tests;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

use self::framing::{LineReader, LineWriter};
use super::{Incoming, Outgoing, Transport};
use crate::config::MessageLimits;

pub use self::launch::{StdioChild, StdioServer};

/// Makes a connection of a reader and a writer, such as the standard streams of this process, or a socket.
///
/// ```
/// use longarm::config::MessageLimits;
/// use longarm::transport::stdio;
///
/// let (here, there) = tokio::io::duplex(64 << 10);
/// let (reader, writer) = tokio::io::split(here);
/// let transport = stdio::from_io(reader, writer, MessageLimits::default());
/// ```
pub fn from_io<R, W>(reader: R, writer: W, limits: MessageLimits) -> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    StdioTransport {
        reader: LineReader::new(reader, limits.max_message_bytes),
        writer: LineWriter::new(writer),
        peer: "stdio".into(),
    }
}

/// A connection over a reader and a writer. See [`from_io`].
#[must_use = "dropping a transport disconnects the peer"]
pub struct StdioTransport<R, W> {
    reader: LineReader<R>,
    writer: LineWriter<W>,
    peer: String,
}

impl<R, W> StdioTransport<R, W> {
    /// Names the other side, for messages.
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.peer = peer.into();
        self
    }
}

impl<R, W> fmt::Debug for StdioTransport<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioTransport").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<R, W> Transport for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        (Box::new(self.writer), Box::new(self.reader))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}
