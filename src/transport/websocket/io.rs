//! What a WebSocket runs on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream of bytes.
#[derive(Debug)]
pub(super) enum Io {
    /// A socket of our own.
    Tcp(TcpStream),
    /// The same under TLS.
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// A connection that a web framework has upgraded.
    #[cfg(feature = "axum")]
    Upgraded(hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>),
}

/// Does the same with each.
macro_rules! with_each {
    ($io:expr, $stream:ident => $do:expr) => {
        match $io.get_mut() {
            Io::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            #[cfg(feature = "tls")]
            Io::Tls(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            #[cfg(feature = "axum")]
            Io::Upgraded(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = with_each!(self, stream => stream.poll_read(cx, buf));
        match result {
            // An end of TLS without a word. What is cut off, the frames of the WebSocket tell.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            result => result,
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        with_each!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_each!(self, stream => stream.poll_shutdown(cx))
    }
}
