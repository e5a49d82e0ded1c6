//! Output: the bytes as they were written, in order.

use super::context::Context;
use crate::event::{Event, OutputStream};
use crate::request::Stdin;
use crate::text::EventText;

cases! {"output_order":
    bytes_arrive_unchanged_wherever_they_are_cut,
    text_is_whole_wherever_its_bytes_are_cut,
    streams_that_take_turns_arrive_in_turn,
    each_stream_keeps_its_own_bytes,
}

async fn bytes_arrive_unchanged_wherever_they_are_cut(cx: Context) {
    let mut watched = cx.watch_piped(&["pieces", "e2", "!00ff", "82ac0a", "ff6f6bf09f"]).await;
    watched.write("1\n2\n3\n4\n").await;
    watched.read_to_end().await;
    assert_eq!(watched.stdout, b"\xe2\x82\xac\n\xffok\xf0\x9f");
    assert_eq!(watched.stderr, b"\x00\xff");
}

async fn text_is_whole_wherever_its_bytes_are_cut(cx: Context) {
    let request = cx.child(&["pieces", "e2", "!c3", "82ac0a", "!a9", "ff6f6bf09f"]).stdin(Stdin::Piped);
    let mut process = cx.spawn(request).await;
    let mut decoder = EventText::new();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    process.write("\n").await.unwrap();
    let mut to_come = 4;
    while let Some(event) = process.next_event().await.unwrap() {
        for (stream, text) in decoder.push(&event) {
            if stream == OutputStream::Stdout { stdout.push_str(&text) } else { stderr.push_str(&text) }
        }
        // The next piece is asked for only when this one has arrived, so that each is a chunk of its own.
        if matches!(event, Event::Output(_)) && to_come > 0 {
            to_come -= 1;
            process.write("\n").await.unwrap();
        }
    }
    assert_eq!((stdout.as_str(), stderr.as_str()), ("\u{20ac}\n\u{fffd}ok\u{fffd}", "\u{e9}"));
}

async fn streams_that_take_turns_arrive_in_turn(cx: Context) {
    let mut watched = cx.watch_piped(&["turns", "20"]).await;
    for turn in 0..20 {
        watched.write("\n").await;
        let line = format!("{turn}\n");
        if turn % 2 == 0 { watched.until_stdout(&line).await } else { watched.until_stderr(&line).await }
    }
    assert!(watched.read_to_end().await.success());
}

async fn each_stream_keeps_its_own_bytes(cx: Context) {
    let mut watched = cx.watch(&["emit", "100000", "70000"]).await;
    watched.read_to_end().await;
    for (stream, length) in [(&watched.stdout, 100_000), (&watched.stderr, 70_000)] {
        assert_eq!(stream.len(), length);
        assert!(stream.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251));
    }
}
