//! A transport from nothing: a TCP connection on which each message follows its length in four bytes.
//! A transport only carries bytes of whole messages, in order. The client, the server and the sessions come with the
//! library; what is written here is the framing, and that partial input stays in the transport.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::error::TransportError;
use longarm::server::Server;
use longarm::transport::{Incoming, Outgoing, Transport};
use longarm::{CollectLimits, Environment, ExecRequest};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, tcp};

const MAX_MESSAGE_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Framed(TcpStream);

impl Transport for Framed {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        let (reader, writer) = self.0.into_split();
        let receiver = Receiver { reader, buffer: BytesMut::new(), received_bytes: 0 };
        (Box::new(Sender { writer, queue: BytesMut::new() }), Box::new(receiver))
    }
}

#[derive(Debug)]
struct Receiver {
    reader: tcp::OwnedReadHalf,
    buffer: BytesMut,
    received_bytes: u64,
}

impl Stream for Receiver {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some((head, rest)) = this.buffer.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*head) as usize;
                if length > MAX_MESSAGE_BYTES {
                    return Poll::Ready(Some(Err(TransportError::Framing("message too large".into()))));
                }
                if length <= rest.len() {
                    this.buffer.advance(4);
                    return Poll::Ready(Some(Ok(this.buffer.split_to(length).freeze())));
                }
            }
            match ready!(pin!(this.reader.read_buf(&mut this.buffer)).poll(cx))? {
                0 => return Poll::Ready(None),
                count => this.received_bytes += count as u64,
            }
        }
    }
}

impl Incoming for Receiver {
    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

#[derive(Debug)]
struct Sender {
    writer: tcp::OwnedWriteHalf,
    queue: BytesMut,
}

impl Sink<Bytes> for Sender {
    type Error = TransportError;

    /// One message at a time: the library must feel that a peer is slow.
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.poll_flush(cx)
    }
    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        let length = u32::try_from(message.len()).map_err(|_| TransportError::Framing("message too large".into()))?;
        self.queue.put_u32(length);
        self.queue.put(message);
        Ok(())
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let this = &mut *self;
        while !this.queue.is_empty() {
            let written = ready!(Pin::new(&mut this.writer).poll_write(cx, &this.queue))?;
            this.queue.advance(written);
        }
        Poll::Ready(Ok(()))
    }
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.writer).poll_shutdown(cx).map_err(Into::into)
    }
}

impl Outgoing for Sender {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let stream = listener.accept().await?.0;
    let serving = tokio::spawn(async move { server.serve(Box::new(Framed(stream))).await });
    let env = Environment::connect(Framed(client), ClientConfig::default()).await?;
    let process = env.spawn(ExecRequest::new(["echo", "over my own wire"])).await?;
    print!("{}", process.output(CollectLimits::default()).await?.stdout.to_text());
    env.close().await;
    Ok(serving.await??)
}
