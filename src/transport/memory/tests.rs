use std::future::Future;
use std::task::{Context, Waker};

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};

use super::*;

type Halves = (Box<dyn Outgoing>, Box<dyn Incoming>);

fn split_pair() -> (Halves, Halves) {
    let (first, second) = pair();
    (Box::new(first).split(), Box::new(second).split())
}

fn message(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[tokio::test]
async fn messages_arrive_in_order_in_both_directions() {
    let ((mut client_out, mut client_in), (mut server_out, mut server_in)) = split_pair();
    client_out.send(message("one")).await.unwrap();
    client_out.send(message("two")).await.unwrap();
    server_out.send(message("three")).await.unwrap();
    assert_eq!(server_in.next().await.unwrap().unwrap(), "one");
    assert_eq!(server_in.next().await.unwrap().unwrap(), "two");
    assert_eq!(client_in.next().await.unwrap().unwrap(), "three");
    assert_eq!(server_in.received_bytes(), 6);
}

#[tokio::test]
async fn what_was_sent_before_the_close_still_arrives() {
    let ((mut client_out, client_in), (_server_out, mut server_in)) = split_pair();
    client_out.send(message("last")).await.unwrap();
    client_out.close().await.unwrap();
    drop((client_out, client_in));
    assert_eq!(server_in.next().await.unwrap().unwrap(), "last");
    assert!(server_in.next().await.is_none());
    assert!(server_in.next().await.is_none());
}

#[tokio::test]
async fn a_dropped_receiver_disconnects_the_sender() {
    let ((mut client_out, _client_in), (server_out, server_in)) = split_pair();
    drop((server_out, server_in));
    assert!(matches!(client_out.send(message("x")).await, Err(TransportError::Closed(None))));
}

#[tokio::test]
async fn a_full_queue_makes_the_sender_wait_and_a_dropped_end_frees_it() {
    let ((mut client_out, _client_in), (server_out, mut server_in)) = split_pair();
    let mut sent = 0;
    while client_out.send(message("x")).now_or_never().is_some() {
        sent += 1;
        assert!(sent < 100_000, "the queue is not bounded");
    }
    let mut waiting = client_out.send(message("y"));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
    server_in.next().await.unwrap().unwrap();
    waiting.await.unwrap();
    drop((server_out, server_in));
    assert!(client_out.send(message("z")).await.is_err());
}

#[tokio::test]
async fn a_message_above_the_bound_passes_alone() {
    let ((mut client_out, _client_in), (_server_out, mut server_in)) = split_pair();
    client_out.send(Bytes::from(vec![b'x'; 64 << 20])).await.unwrap();
    assert!(client_out.send(message("y")).now_or_never().is_none());
    assert_eq!(server_in.next().await.unwrap().unwrap().len(), 64 << 20);
}

#[cfg(feature = "testing")]
mod with_faults {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_cut_delivers_what_came_before_and_breaks_both_directions() {
        let (client, server) = pair_with_faults(Faults::none().cut_after_messages(2), Faults::none());
        let (mut client_out, mut client_in) = Box::new(client).split();
        let (mut server_out, mut server_in) = Box::new(server).split();
        server_out.send(message("lost")).await.unwrap();
        for text in ["one", "two", "three"] {
            client_out.send(message(text)).await.unwrap();
        }
        assert_eq!(server_in.next().await.unwrap().unwrap(), "one");
        assert_eq!(server_in.next().await.unwrap().unwrap(), "two");
        assert!(matches!(server_in.next().await, Some(Err(TransportError::Io(_)))));
        assert!(matches!(client_in.next().await, Some(Err(TransportError::Io(_)))));
        assert!(client_out.send(message("x")).await.is_err());
        assert!(server_out.send(message("x")).await.is_err());
    }

    #[tokio::test]
    async fn a_cut_by_bytes_loses_the_message_that_straddles_it() {
        let (client, server) = pair_with_faults(Faults::none(), Faults::none().cut_after_bytes(5));
        let (_client_out, mut client_in) = Box::new(client).split();
        let (mut server_out, _server_in) = Box::new(server).split();
        server_out.send(message("abc")).await.unwrap();
        server_out.send(message("def")).await.unwrap();
        assert_eq!(client_in.next().await.unwrap().unwrap(), "abc");
        assert!(matches!(client_in.next().await, Some(Err(TransportError::Io(_)))));
    }

    #[tokio::test]
    async fn every_nth_message_comes_twice() {
        let (client, server) = pair_with_faults(Faults::none().duplicate_every(2), Faults::none());
        let (mut client_out, _client_in) = Box::new(client).split();
        let (_server_out, mut server_in) = Box::new(server).split();
        for text in ["1", "2", "3"] {
            client_out.send(message(text)).await.unwrap();
        }
        client_out.close().await.unwrap();
        let mut got = Vec::new();
        while let Some(next) = server_in.next().await {
            got.push(next.unwrap());
        }
        assert_eq!(got, ["1", "2", "2", "3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_holds_messages_back() {
        let (client, server) = pair_with_faults(Faults::none().delay(Duration::from_secs(5)), Faults::none());
        let (mut client_out, _client_in) = Box::new(client).split();
        let (_server_out, mut server_in) = Box::new(server).split();
        let start = tokio::time::Instant::now();
        client_out.send(message("late")).await.unwrap();
        assert_eq!(server_in.next().await.unwrap().unwrap(), "late");
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
