use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::*;
use crate::error::TransportError;

fn limits(max_message_bytes: usize) -> MessageLimits {
    MessageLimits { max_message_bytes, ..MessageLimits::default() }
}

/// A reader that hands out prepared pieces, with a pending poll before each.
struct Pieces {
    pieces: std::vec::IntoIter<Vec<u8>>,
    rested: bool,
}

impl Pieces {
    fn new(pieces: Vec<Vec<u8>>) -> Self {
        Self { pieces: pieces.into_iter(), rested: false }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.rested, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.rested = false;
        if let Some(piece) = self.pieces.next() {
            buf.put_slice(&piece);
        }
        Poll::Ready(Ok(()))
    }
}

async fn lines_of(pieces: Vec<Vec<u8>>, max: usize) -> (Vec<Bytes>, Option<TransportError>) {
    let mut reader = LineReader::new(Pieces::new(pieces), max);
    let mut lines = Vec::new();
    while let Some(next) = reader.next().await {
        match next {
            Ok(line) => lines.push(line),
            Err(error) => {
                assert!(reader.next().await.is_none(), "nothing follows an error");
                return (lines, Some(error));
            }
        }
    }
    (lines, None)
}

#[tokio::test]
async fn lines_are_the_same_wherever_the_stream_is_split() {
    let text = "{\"a\":1}\r\n\n  \t \r\n{\"b\":\"ä€😀\"}\n\r\nlast\nunfinished".as_bytes();
    for cut in 0..=text.len() {
        let pieces = [&text[..cut], &text[cut..]].iter().filter(|p| !p.is_empty()).map(|p| p.to_vec()).collect();
        let (lines, error) = lines_of(pieces, 1 << 20).await;
        assert!(error.is_none(), "cut at {cut}: {error:?}");
        assert_eq!(lines, ["{\"a\":1}", "{\"b\":\"ä€😀\"}", "last"], "cut at {cut}");
    }
    let (lines, _) = lines_of(text.iter().map(|byte| vec![*byte]).collect(), 1 << 20).await;
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
    for ending in ["\n", "\r\n"] {
        for (size, fits) in [(99, true), (100, true), (101, false), (5000, false)] {
            let line = format!("{}{ending}", "x".repeat(size)).into_bytes();
            for pieces in [vec![line.clone()], line.chunks(7).map(<[u8]>::to_vec).collect()] {
                let (lines, error) = lines_of(pieces, 100).await;
                assert_eq!(lines.len(), usize::from(fits), "{size} {ending:?}");
                assert_eq!(matches!(error, Some(TransportError::MessageTooLarge { .. })), !fits, "{size} {ending:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_endless_line_ends_the_connection_before_it_is_held() {
    let mut reader = LineReader::new(tokio::io::repeat(b'x'), 1 << 20);
    assert!(matches!(reader.next().await, Some(Err(TransportError::MessageTooLarge { .. }))));
    assert!(reader.received_bytes() <= 4 << 20);
}

#[tokio::test]
async fn text_that_is_not_utf8_ends_the_connection() {
    let (lines, error) = lines_of(vec![b"{}\n\xff\xfe\n{}\n".to_vec()], 100).await;
    assert_eq!(lines, ["{}"]);
    assert!(matches!(error, Some(TransportError::Framing(_))));
}

#[tokio::test]
async fn a_dropped_receive_loses_nothing() {
    let (mut far, near) = tokio::io::duplex(64);
    let (reader, _writer) = tokio::io::split(near);
    let mut reader = LineReader::new(reader, 1000);
    for byte in b"{\"half\":1}" {
        far.write_all(&[*byte]).await.unwrap();
        assert!(reader.next().now_or_never().is_none());
    }
    assert_eq!(reader.received_bytes(), 10, "bytes of an unfinished message count as life");
    far.write_all(b"\n").await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap(), "{\"half\":1}");
}

#[tokio::test]
async fn messages_go_out_one_a_line_and_the_stream_ends_on_close() {
    let (near, mut far) = tokio::io::duplex(16);
    let (reader, writer) = tokio::io::split(near);
    let (mut out, _in) = Box::new(from_io(reader, writer, limits(100))).split();
    let send = async {
        for index in 0..100 {
            out.feed(Bytes::from(format!("{{\"n\":{index}}}"))).await.unwrap();
        }
        out.close().await.unwrap();
        assert!(matches!(out.send(Bytes::from_static(b"x")).await, Err(TransportError::Closed(None))));
    };
    let mut text = String::new();
    let receive = far.read_to_string(&mut text);
    let ((), received) = tokio::join!(send, receive);
    received.unwrap();
    let expected: String = (0..100).map(|index| format!("{{\"n\":{index}}}\n")).collect();
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_writer_that_is_not_read_holds_a_bounded_amount() {
    let (near, far) = tokio::io::duplex(16);
    let (_reader, writer) = tokio::io::split(near);
    let mut out = LineWriter::new(writer);
    let message = Bytes::from(vec![b'x'; 1000]);
    let mut sent = 0_usize;
    while out.feed(message.clone()).now_or_never().is_some() {
        sent += 1000;
        assert!(sent < 1 << 20, "the queue is not bounded");
    }
    assert!(sent > 200 << 10);
    drop(far);
    assert!(matches!(out.feed(message).await, Err(TransportError::Closed(None))));
}

#[tokio::test]
async fn a_message_with_a_line_feed_is_refused() {
    let mut out = LineWriter::new(Vec::new());
    assert!(matches!(out.send(Bytes::from_static(b"{}\n{}")).await, Err(TransportError::Framing(_))));
}

proptest! {
    /// Any messages, in any pieces, come out as they went in, through writers of both kinds.
    #[test]
    fn messages_survive_the_round_trip(
        messages in prop::collection::vec("[^\r\n]{0,40}[a-z]", 0..20),
        pipe_bytes in 1_usize..50,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, far) = tokio::io::duplex(pipe_bytes);
            let (mut out, mut input) = (LineWriter::new(near), LineReader::new(far, 1000));
            let send = async {
                for message in &messages {
                    out.feed(Bytes::copy_from_slice(message.as_bytes())).await.unwrap();
                }
                out.close().await.unwrap();
            };
            let receive = async {
                let mut got = Vec::new();
                while let Some(message) = input.next().await {
                    got.push(String::from_utf8(message.unwrap().to_vec()).unwrap());
                }
                got
            };
            let ((), got) = tokio::join!(send, receive);
            assert_eq!(got, messages);
        });
    }
}

#[cfg(unix)]
mod launching {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::error::ConnectError;
    use crate::transport::Connector as _;

    fn shell(script: &str) -> StdioServer {
        StdioServer::shell(script)
    }

    #[tokio::test]
    async fn a_child_answers_and_its_end_is_waited_for() {
        let child = shell("cat").launch().unwrap();
        let (mut out, mut input) = Box::new(child).split();
        out.send(Bytes::from_static(b"{\"hello\":1}")).await.unwrap();
        assert_eq!(input.next().await.unwrap().unwrap(), "{\"hello\":1}");
        out.close().await.unwrap();
        assert!(input.next().await.is_none(), "a good end is no error");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = StdioServer::new("/no/such/server").connect().await.unwrap_err();
        let ConnectError::Launch { program, source } = error else { panic!("{error:?}") };
        assert_eq!(program.to_str(), Some("/no/such/server"));
        assert_eq!(source.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_failing_server_is_quoted() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let server = shell("echo one >&2; printf 'two\\r\\nthree' >&2; exit 7");
        let child = server.on_stderr(move |line| sink.lock().unwrap().push(line.to_owned())).launch().unwrap();
        let (_out, mut input) = Box::new(child).split();
        let Some(Err(TransportError::Closed(Some(reason)))) = input.next().await else { panic!("no reason") };
        assert!(reason.contains("7") && reason.contains("one / two / three"), "{reason}");
        assert_eq!(*lines.lock().unwrap(), ["one", "two", "three"]);
        assert!(input.next().await.is_none());
    }

    #[tokio::test]
    async fn a_write_to_a_server_that_has_failed_quotes_it_too() {
        let child = shell("echo no room >&2; exec <&-; exit 7").launch().unwrap();
        let (mut out, _input) = Box::new(child).split();
        let error = loop {
            if let Err(error) = out.send(Bytes::from_static(b"{}")).await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert!(matches!(&error, TransportError::Closed(Some(reason)) if reason.contains("no room")), "{error:?}");
        assert!(out.flush().await.is_err());
    }

    #[tokio::test]
    async fn long_lines_of_standard_error_come_in_pieces() {
        let (sink, mut lengths) = tokio::sync::mpsc::unbounded_channel();
        let server = shell("head -c 20000 /dev/zero | tr '\\0' x >&2");
        let child = server.on_stderr(move |line| sink.send(line.len()).unwrap()).launch().unwrap();
        // Until the server has ended by itself: one that is closed may be ended before it has written all.
        let mut lines = Vec::new();
        let read = async {
            while let Some(length) = lengths.recv().await {
                lines.push(length);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("its standard error ends with it");
        drop(child);
        assert!(lines.iter().all(|length| *length <= 8 << 10), "{lines:?}");
        assert_eq!(lines.iter().sum::<usize>(), 20_000);
    }

    /// Whether anybody still holds the write end of a pipe whose read end is `reader`, seen from its end of file.
    async fn ends(mut reader: impl AsyncRead + Unpin) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(20), reader.read_to_end(&mut rest)).await.is_ok()
    }

    #[tokio::test]
    async fn closing_ends_the_whole_group_of_a_stubborn_server() {
        // Both the server and its child ignore the end of input and the request to end, and hold the fifo.
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let receiver = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
        let script =
            format!("trap '' TERM; exec 5>'{}'; sleep 600 & echo ready; while :; do sleep 1; done", fifo.display());
        let child = shell(&script).stop_grace(Duration::from_millis(100)).launch().unwrap();
        let (mut out, mut input) = Box::new(child).split();
        assert_eq!(input.next().await.unwrap().unwrap(), "ready");
        out.close().await.unwrap();
        assert!(ends(receiver).await);
    }

    #[tokio::test]
    async fn dropping_ends_the_server_in_the_background() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let receiver = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
        let script = format!("exec 5>'{}'; echo ready; sleep 600", fifo.display());
        let (out, mut input) = Box::new(shell(&script).launch().unwrap()).split();
        assert_eq!(input.next().await.unwrap().unwrap(), "ready");
        drop((out, input));
        assert!(ends(receiver).await);
    }

    #[tokio::test]
    async fn set_variables_reach_the_child() {
        let child = shell("echo \"$GREETING\"").env("GREETING", "hi").launch().unwrap();
        let (_out, mut input) = Box::new(child).split();
        assert_eq!(input.next().await.unwrap().unwrap(), "hi");
    }
}
