//! What the reference was recorded to say, said to our client.
//!
//! For each recorded `process/start` the client starts a process of the same id, and its peer answers with the recorded
//! answer and all that the reference then said of the process. In codex-client recordings rows of notifications are cut
//! out; the peer answers reads of them from what is left, as a server would that has dropped the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use longarm::backend::{ExecBackend as _, Spawned};
use longarm::error::SpawnError;
use longarm::event::{Event, OutputStream};
use serde_json::{Value, json};

use crate::peer::{Peer, events, request};

/// One recorded start and what followed.
struct Recording {
    at: String,
    process_id: String,
    answer: Value,
    notifications: Vec<Value>,
}

#[tokio::test(start_paused = true)]
async fn recorded_processes_come_out_as_they_were() {
    let (mut replayed, mut with_output, mut late) = (0, 0, 0);
    for recording in recordings().into_iter().filter(|recording| recording.answer.get("result").is_some()) {
        let (remote, mut peer) = Peer::open(&[]).await;
        let mut spawned = start(&remote, &mut peer, &recording).await;
        let expected = Expected::of(&recording.notifications);
        let got = tokio::select! {
            got = events(&mut spawned) => got,
            () = serve(&mut peer, &recording) => unreachable!("it serves for ever"),
        };
        let at = &recording.at;
        let mut output = BTreeMap::<OutputStream, Vec<u8>>::new();
        let (mut exit, mut closed, mut gaps, mut last) = (None, false, 0, 0);
        for event in got {
            let event = match event {
                Ok(event) => event,
                // Recordings that were cut short end with the connection.
                Err(error) => {
                    assert!(!expected.closed, "{at}: {error}");
                    break;
                }
            };
            assert!(event.seq() > last, "{at}");
            last = event.seq();
            match event {
                Event::Output(chunk) => {
                    late += u32::from(exit.is_some());
                    output.entry(chunk.stream).or_default().extend_from_slice(&chunk.bytes);
                }
                Event::Gap(gap) => gaps += gap.last_seq - gap.first_seq + 1,
                Event::Exited(exited) => exit = Some((exited.status.wire_code(), exited.sandbox_denied)),
                Event::Closed(_) => closed = true,
                other => panic!("{at}: {other:?}"),
            }
        }
        if !closed {
            // What comes behind a row that was cut out had no chance any more.
            for (stream, bytes) in &mut output {
                let recorded = expected.output.get(stream).expect("a stream that was recorded");
                assert!(recorded.starts_with(bytes), "{at}");
                bytes.clone_from(recorded);
            }
        }
        assert!(!closed || output == expected.output, "{at}");
        assert_eq!((exit, closed), (expected.exit, expected.closed), "{at}");
        if closed {
            assert_eq!(gaps, expected.missing, "{at}");
        }
        replayed += 1;
        with_output += usize::from(!output.is_empty());
    }
    assert!(
        replayed >= 100 && with_output >= 80 && late >= 1,
        "{replayed} replayed, {with_output} with output, {late} late"
    );
}

#[tokio::test]
async fn recorded_refusals_become_typed_errors() {
    let mut seen = BTreeMap::<&str, usize>::new();
    for recording in recordings().into_iter().filter(|recording| recording.answer.get("error").is_some()) {
        let (remote, mut peer) = Peer::open(&[]).await;
        let (spawned, ()) = tokio::join!(remote.spawn(request(&recording.process_id)), async {
            let start = peer.expect("process/start").await;
            peer.fail(&start, recording.answer["error"].clone()).await;
        });
        let error = spawned.expect_err("a refusal");
        let kind = match &error {
            SpawnError::ProgramOrCwdNotFound { .. } => "not found",
            SpawnError::PermissionDenied { .. } => "permission",
            SpawnError::InvalidRequest(_) => "invalid",
            SpawnError::AlreadyExists(_) => "exists",
            SpawnError::Sandbox(_) => "sandbox",
            SpawnError::Remote(_) => "other",
            other => panic!("{}: {other:?}", recording.at),
        };
        *seen.entry(kind).or_default() += 1;
    }
    for kind in ["not found", "permission", "invalid", "other"] {
        assert!(seen.contains_key(kind), "no recording of {kind}: {seen:?}");
    }
}

async fn start(remote: &longarm::Remote, peer: &mut Peer, recording: &Recording) -> Spawned {
    let (spawned, ()) = tokio::join!(remote.spawn(request(&recording.process_id)), async {
        let start = peer.expect("process/start").await;
        peer.answer(&start, recording.answer["result"].clone()).await;
    });
    spawned.expect("the recorded answer is a success")
}

/// Sends what was recorded, then answers reads of what was cut out until the client has all.
async fn serve(peer: &mut Peer, recording: &Recording) {
    for notification in &recording.notifications {
        peer.send(notification).await;
    }
    let expected = Expected::of(&recording.notifications);
    if !expected.closed {
        futures_util::SinkExt::close(&mut peer.outgoing).await.expect("closed");
        std::future::pending::<()>().await;
    }
    loop {
        let read = peer.expect("process/read").await;
        let result = expected.read(read["params"]["afterSeq"].as_u64().expect("a number"));
        peer.answer(&read, result).await;
    }
}

/// What the notifications of one process add up to.
#[derive(Default)]
struct Expected {
    output: BTreeMap<OutputStream, Vec<u8>>,
    chunks: BTreeMap<u64, Value>,
    exit: Option<(i32, bool)>,
    closed: bool,
    missing: u64,
    next_seq: u64,
}

impl Expected {
    fn of(notifications: &[Value]) -> Self {
        let mut expected = Self::default();
        let mut by_seq = BTreeMap::new();
        for notification in notifications {
            let seq = notification["params"]["seq"].as_u64().expect("a number");
            by_seq.insert(seq, notification);
        }
        for (seq, notification) in &by_seq {
            let params = &notification["params"];
            match notification["method"].as_str().expect("a method") {
                "process/output" => {
                    let stream: OutputStream = serde_json::from_value(params["stream"].clone()).expect("a stream");
                    let bytes: longarm::wire::Base64 = serde_json::from_value(params["chunk"].clone()).expect("base64");
                    expected.output.entry(stream).or_default().extend_from_slice(&bytes.0);
                    let chunk = json!({"seq": seq, "stream": params["stream"], "chunk": params["chunk"]});
                    expected.chunks.insert(*seq, chunk);
                }
                "process/exited" => {
                    let code = params["exitCode"].as_i64().expect("a number");
                    let denied = params["sandboxDenied"].as_bool().expect("a flag");
                    expected.exit = Some((i32::try_from(code).expect("a code"), denied));
                }
                _ => expected.closed = true,
            }
        }
        expected.next_seq = by_seq.last_key_value().map_or(1, |(seq, _)| seq + 1);
        expected.missing = expected.next_seq - 1 - by_seq.len() as u64;
        expected
    }

    fn read(&self, after_seq: u64) -> Value {
        let chunks: Vec<_> = self.chunks.range(after_seq + 1..).map(|(_, chunk)| chunk).collect();
        let next_seq = self.chunks.last_key_value().filter(|_| !chunks.is_empty()).map(|(seq, _)| seq + 1);
        json!({
            "chunks": chunks, "nextSeq": next_seq.unwrap_or(self.next_seq), "exited": self.exit.is_some(),
            "exitCode": self.exit.map(|(code, _)| code), "closed": self.closed, "failure": null,
            "sandboxDenied": self.exit.is_some_and(|(_, denied)| denied),
        })
    }
}

fn recordings() -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files = jsonl(&root);
    files.extend(jsonl(&root.join("codex-client")));
    files.iter().flat_map(|file| recordings_of(file)).collect()
}

fn jsonl(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the recordings are part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

fn recordings_of(file: &Path) -> Vec<Recording> {
    let text = fs::read_to_string(file).expect("readable");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut recordings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let message = &line["msg"];
        if line["dir"] != "c2s" || message["method"] != "process/start" {
            continue;
        }
        let Some(process_id) = message["params"]["processId"].as_str() else { continue };
        let of_connection =
            || lines[index + 1..].iter().filter(|other| other["conn"] == line["conn"] && other["dir"] == "s2c");
        let answer = of_connection().find(|other| other["msg"]["id"] == message["id"]);
        let Some(answer) = answer.map(|answer| answer["msg"].clone()) else { continue };
        let notifications: Vec<_> = of_connection()
            .map(|other| other["msg"].clone())
            .filter(|other| other["params"]["processId"] == process_id)
            .filter(|other| {
                ["process/output", "process/exited", "process/closed"].iter().any(|name| other["method"] == *name)
            })
            .map(without_placeholders)
            .collect();
        let at = format!("{}:{}", file.display(), index + 1);
        recordings.push(Recording { at, process_id: process_id.into(), answer, notifications });
    }
    recordings
}

/// Payloads that were shortened or made anonymous are not base64 any more.
fn without_placeholders(mut message: Value) -> Value {
    let chunk = message["params"]["chunk"].as_str().unwrap_or_default().to_owned();
    if serde_json::from_value::<longarm::wire::Base64>(json!(chunk)).is_err() || message["params"]["chunk"] == "" {
        message["params"]["chunk"] = json!("eA==");
    }
    message
}
