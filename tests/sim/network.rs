//! A network that is made up. Like TCP, it keeps the order and loses nothing of a connection that lives: what cannot pass waits.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use longarm::error::{ConnectError, TransportError};
use longarm::server::Server;
use longarm::transport::{Connector, Incoming, Outgoing, PingStart, Transport};
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// How the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub(crate) latency: Duration,
    pub(crate) bytes_per_second: Option<u64>,
    /// Nothing passes: towards the server, and back.
    pub(crate) stalled: [bool; 2],
    /// New connections are refused.
    pub(crate) refused: bool,
}

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { latency: Duration::from_millis(20), bytes_per_second: None, stalled: [false; 2], refused: false }
    }
}

#[derive(Clone)]
pub(crate) struct Network {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    conditions: Conditions,
    server: Server,
    /// Neither end says anything to the other of what goes beyond the plain protocol.
    plain: bool,
    pipes: Vec<Weak<Pipe>>,
    connections: u64,
    /// Of all that has ever been sent, and when.
    digest: u64,
    begun: Option<Instant>,
}

impl Network {
    pub(crate) fn new(server: Server) -> Self {
        let shared = Shared {
            conditions: Conditions::default(),
            server,
            plain: false,
            pipes: Vec::new(),
            connections: 0,
            digest: 0,
            begun: None,
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// One that lets neither end know of the other that it speaks more than the plain protocol.
    pub(crate) fn plain(server: Server) -> Self {
        let network = Self::new(server);
        network.lock().plain = true;
        network
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> u64 {
        self.lock().connections
    }

    /// Tells one run from another, by all that was sent and when.
    pub(crate) fn digest(&self) -> u64 {
        self.lock().digest
    }

    pub(crate) fn connector(&self) -> impl Connector + use<> {
        Dialler { network: self.clone() }
    }

    pub(crate) fn set(&self, conditions: Conditions) {
        self.lock().conditions = conditions;
        let fast = conditions.bytes_per_second.is_none();
        let soon = Instant::now() + conditions.latency;
        self.each_pipe(|state| {
            if fast {
                state.free_at = None;
                state.flying.iter_mut().for_each(|(due, _)| *due = soon.min(*due));
            }
        });
    }

    /// Breaks all connections.
    pub(crate) fn reset(&self) {
        self.each_pipe(|state| state.broken_for = [true; 2]);
    }

    /// Breaks all connections for this end. The other one hears nothing of it, nor anything else.
    pub(crate) fn cut(&self, side: Side) {
        self.each_pipe(|state| {
            state.broken_for[side as usize] = true;
            state.dead = true;
        });
    }

    /// Lets nothing pass any more over the connections that there are.
    pub(crate) fn bury(&self) {
        self.each_pipe(|state| state.dead = true);
    }

    /// Another server in the place of the former one, whose connections break.
    pub(crate) fn restart(&self, server: Server) {
        self.lock().server = server;
        self.reset();
    }

    fn each_pipe(&self, change: impl Fn(&mut PipeState)) {
        let pipes: Vec<_> = self.lock().pipes.iter().filter_map(Weak::upgrade).collect();
        for pipe in pipes {
            let mut state = pipe.lock();
            change(&mut state);
            state.wake();
        }
    }

    fn conditions(&self) -> Conditions {
        self.lock().conditions
    }

    /// So much is sent.
    fn note(&self, direction: usize, now: Instant, size: usize) -> Conditions {
        let mut shared = self.lock();
        let begun = *shared.begun.get_or_insert(now);
        let mut hasher = DefaultHasher::new();
        (shared.digest, direction, now - begun, size).hash(&mut hasher);
        shared.digest = hasher.finish();
        shared.conditions
    }

    fn connect(&self) -> (End, End) {
        let [forth, back] = [0, 1].map(|direction| {
            let (network, state) = (self.clone(), Mutex::default());
            Arc::new(Pipe { network, direction, state })
        });
        let mut shared = self.lock();
        shared.connections += 1;
        shared.pipes.retain(|pipe| pipe.strong_count() > 0);
        shared.pipes.extend([&forth, &back].map(Arc::downgrade));
        let near = End { side: Side::Client, outgoing: Arc::clone(&forth), incoming: Arc::clone(&back) };
        (near, End { side: Side::Server, outgoing: back, incoming: forth })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no panic")
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Dialler {
    network: Network,
}

#[async_trait::async_trait]
impl Connector for Dialler {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        let asked_at = Instant::now();
        let limit = Duration::from_secs(10);
        loop {
            let Conditions { latency, stalled, refused, .. } = self.network.conditions();
            sleep(latency * 2).await;
            if refused {
                let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
                return Err(ConnectError::Unreachable { address: "the server".into(), source });
            }
            if stalled == [false; 2] {
                break;
            }
            if asked_at.elapsed() >= limit {
                return Err(ConnectError::TimedOut { what: "the connection", limit });
            }
            sleep(Duration::from_millis(200)).await;
        }
        let (near, far) = self.network.connect();
        let server = self.network.lock().server.clone();
        // How it ends is seen at the other end.
        tokio::spawn(async move { drop(server.serve(Box::new(far)).await) });
        Ok(Box::new(near))
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

#[derive(Debug)]
enum Packet {
    /// A part of a message, and whether it is the last one.
    Part(Bytes, bool),
    Ping(u64),
    Pong(u64),
    End,
}

impl Packet {
    fn size(&self) -> usize {
        match self {
            Self::Part(bytes, _) => bytes.len() + 8,
            Self::Ping(_) | Self::Pong(_) => 14,
            Self::End => 2,
        }
    }
}

/// One direction of a connection.
struct Pipe {
    network: Network,
    direction: usize,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    flying: VecDeque<(Instant, Packet)>,
    bytes: usize,
    /// When the link is free for the next packet.
    free_at: Option<Instant>,
    /// For the client, for the server.
    broken_for: [bool; 2],
    dead: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeState {
    fn wake(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().expect("no panic")
    }

    fn send(&self, packet: Packet) {
        let now = Instant::now();
        let size = packet.size();
        let Conditions { latency, bytes_per_second, .. } = self.network.note(self.direction, now, size);
        let mut state = self.lock();
        let takes = bytes_per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(size as f64 / rate as f64));
        let left_at = state.free_at.map_or(now, |free| free.max(now)) + takes;
        state.free_at = Some(left_at);
        state.bytes += size;
        state.flying.push_back((left_at + latency, packet));
        wake(&mut state.reader);
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("direction", &self.direction).finish_non_exhaustive()
    }
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    side: Side,
    outgoing: Arc<Pipe>,
    incoming: Arc<Pipe>,
}

impl Transport for End {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        let Self { side, outgoing, incoming } = *self;
        let answers = Arc::clone(&outgoing);
        let sender = Sender { side, pipe: outgoing, ended: false };
        let message = Vec::new();
        let receiver = Receiver { side, pipe: incoming, answers, message, received_bytes: 0, mark: None, sleep: None };
        (Box::new(sender), Box::new(receiver))
    }
}

#[derive(Debug)]
struct Sender {
    side: Side,
    pipe: Arc<Pipe>,
    ended: bool,
}

impl Sender {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.pipe.send(Packet::End);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sink<Bytes> for Sender {
    type Error = TransportError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let mut state = self.pipe.lock();
        if state.broken_for[self.side as usize] {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset).into()));
        }
        if state.bytes < BUFFER_BYTES {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn start_send(self: Pin<&mut Self>, mut message: Bytes) -> Result<(), TransportError> {
        if self.pipe.network.lock().plain {
            message = without_extension(message);
        }
        loop {
            let part = message.split_to(message.len().min(PART_BYTES));
            let last = message.is_empty();
            self.pipe.send(Packet::Part(part, last));
            if last {
                return Ok(());
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl Outgoing for Sender {
    fn start_ping(&mut self, mark: u64) -> PingStart {
        self.pipe.send(Packet::Ping(mark));
        PingStart::Queued
    }
}

#[derive(Debug)]
struct Receiver {
    side: Side,
    pipe: Arc<Pipe>,
    answers: Arc<Pipe>,
    /// What has come of a message.
    message: Vec<u8>,
    received_bytes: u64,
    mark: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Stream for Receiver {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let stalled = this.pipe.network.conditions().stalled[this.pipe.direction];
            let packet = {
                let mut state = this.pipe.lock();
                state.reader = Some(cx.waker().clone());
                if state.broken_for[this.side as usize] {
                    return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset).into())));
                }
                let Some((due, _)) = state.flying.front().filter(|_| !stalled && !state.dead) else {
                    return Poll::Pending;
                };
                let due = *due;
                if due > Instant::now() {
                    drop(state);
                    let sleep = this.sleep.insert(Box::pin(sleep_until(due)));
                    std::task::ready!(sleep.as_mut().poll(cx));
                    continue;
                }
                let Some((_, packet)) = state.flying.pop_front() else { return Poll::Pending };
                state.bytes -= packet.size();
                wake(&mut state.writer);
                packet
            };
            this.received_bytes += packet.size() as u64;
            match packet {
                Packet::Part(part, last) => {
                    this.message.extend_from_slice(&part);
                    if last {
                        return Poll::Ready(Some(Ok(std::mem::take(&mut this.message).into())));
                    }
                }
                Packet::Ping(mark) => this.answers.send(Packet::Pong(mark)),
                Packet::Pong(mark) => this.mark = Some(mark),
                Packet::End => return Poll::Ready(None),
            }
        }
    }
}

impl Incoming for Receiver {
    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    fn answered_mark(&self) -> Option<u64> {
        self.mark
    }
}

/// The message as one that speaks the plain protocol alone would have sent it.
fn without_extension(message: Bytes) -> Bytes {
    if !message.windows(MARK.len()).any(|window| window == MARK) {
        return message;
    }
    let mut json: Value = serde_json::from_slice(&message).expect("JSON");
    let offer = match json["method"].as_str() {
        Some("initialize") => json.get_mut("params"),
        None => json.pointer_mut("/result/environmentInfo/capabilities"),
        Some(method) => panic!("{method} goes beyond the plain protocol"),
    };
    let offer = offer.and_then(Value::as_object_mut).expect("a place for the offer");
    offer.remove("longarm").expect("an offer");
    Bytes::from(json.to_string())
}

/// Stands in messages that go beyond the plain protocol.
const MARK: &[u8] = b"longarm";

/// What a connection takes before it makes its sender wait.
const BUFFER_BYTES: usize = 128 << 10;

/// Of a slow link, even parts of messages are signs of life.
const PART_BYTES: usize = 500;
