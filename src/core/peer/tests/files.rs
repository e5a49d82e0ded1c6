//! Files: order, handles, the watch, and what leaves when.

use super::*;
use crate::fs::{
    Block, DirectoryEntry, FsError, OpenMode, SkipReason, Skipped, Walk, WalkEntry, WalkFailure, WalkKind,
};
use crate::path_uri::PathUri;

impl Rig {
    /// Asks, and takes the job that it becomes.
    fn job(&mut self, method: &str, params: Value) -> (i64, Ticket, FileJob) {
        let id = self.ask(method, params);
        match self.actions.pop_back() {
            Some(Action::File { ticket, job, .. }) => (id, ticket, job),
            other => panic!("{other:?} instead of a job; {:?}", self.out()),
        }
    }

    fn done(&mut self, ticket: Ticket, result: Result<FileResult, FsError>) {
        self.complete(Completion::File { ticket, result });
    }

    fn open(&mut self, id: &str) -> FileKey {
        let (_, ticket, job) = self.job("fs/open", json!({"handleId": id, "path": "file:///a"}));
        let FileJob::Open { file, .. } = job else { panic!("{job:?}") };
        self.done(ticket, Ok(FileResult::Opened(file)));
        assert_eq!(self.out()[0]["result"]["handleId"], id);
        file
    }

    fn block(&mut self, id: &str, length: usize) -> (i64, Ticket) {
        let (call, ticket, job) = self.job("fs/readBlock", read_block(id, length));
        assert!(matches!(job, FileJob::ReadBlock { .. }), "{job:?}");
        (call, ticket)
    }
}

fn read_block(id: &str, length: usize) -> Value {
    json!({"handleId": id, "offset": 0, "len": length})
}

fn full_block() -> Result<FileResult, FsError> {
    Ok(FileResult::Block(Block::new(vec![7; 1 << 20].into(), false)))
}

fn not_found() -> FsError {
    FsError::NotFound { path: "/a".into() }
}

#[test]
fn a_sandbox_goes_with_the_job_and_is_never_ignored() {
    for extended in [false, true] {
        let mut rig = Rig::with(|config| config.max_file_jobs = usize::MAX);
        rig.attach(extended);
        let path = "file:///a";
        for (method, params) in [
            ("fs/readFile", json!({"path": path})),
            ("fs/writeFile", json!({"path": path, "dataBase64": ""})),
            ("fs/open", json!({"handleId": "h", "path": path})),
            ("fs/canonicalize", json!({"path": path})),
            ("fs/createDirectory", json!({"path": path})),
            ("fs/getMetadata", json!({"path": path})),
            ("fs/readDirectory", json!({"path": path})),
            (
                "fs/walk",
                json!({"path": path, "options": {
                    "maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": false,
                }}),
            ),
            ("fs/remove", json!({"path": path})),
            ("fs/copy", json!({"sourcePath": path, "destinationPath": path, "recursive": false})),
            ("fs/watchMissing", json!({"watchId": 1, "missing": [path]})),
        ] {
            let mut sandboxed = params.clone();
            sandboxed["sandbox"] = json!({});
            assert_eq!(rig.refusal(method, sandboxed.clone()).0, -32602, "{method}");
            sandboxed["sandbox"] = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
            rig.ask(method, sandboxed);
            let action = rig.actions.pop_back();
            let Some(Action::File { sandbox: Some(intent), ticket, .. }) = action else {
                panic!("{method}: {action:?}")
            };
            assert!(!intent.restricts_files());
            rig.done(ticket, Err(not_found()));
            rig.out();
            let mut wrong = params.clone();
            wrong["sandbox"] = json!(true);
            assert_eq!(rig.refusal(method, wrong).0, -32602, "{method}");
            assert!(rig.actions.is_empty(), "{method}");
            let mut null = params;
            null["sandbox"] = Value::Null;
            null["watchId"] = json!(2);
            rig.ask(method, null);
            assert!(matches!(rig.actions.pop_back(), Some(Action::File { sandbox: None, .. })), "{method}");
        }
    }
}

#[test]
fn requests_of_one_handle_go_one_after_another_and_others_do_not_wait() {
    let mut rig = Rig::attached(false);
    let (open, ticket, job) = rig.job("fs/open", json!({"handleId": "h", "path": "file:///a", "mode": "replace"}));
    let FileJob::Open { file, mode: OpenMode::Replace, .. } = job else { panic!("{job:?}") };
    let write = rig.ask("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "aGk="}));
    let read = rig.ask("fs/readBlock", read_block("h", 5));
    let close = rig.ask("fs/close", json!({"handleId": "h"}));
    let after = rig.ask("fs/readBlock", read_block("h", 5));
    let again = rig.ask("fs/open", json!({"handleId": "h", "path": "file:///b"}));
    assert!(rig.actions.is_empty() && rig.out().is_empty(), "all wait for the first");
    let (other, other_ticket, _) = rig.job("fs/getMetadata", json!({"path": "file:///c"}));
    rig.done(other_ticket, Err(not_found()));
    assert_eq!(rig.out()[0]["id"], other);

    rig.done(ticket, Ok(FileResult::Opened(file)));
    assert_eq!(names(&rig.out()), [open.to_string()]);
    let Some(Action::File { ticket, job: FileJob::WriteBlock { data, .. }, .. }) = rig.actions.pop_back() else {
        panic!()
    };
    assert_eq!(data, "hi");
    rig.done(ticket, Ok(FileResult::Done));
    let Some(Action::File { ticket, job: FileJob::ReadBlock { .. }, .. }) = rig.actions.pop_back() else { panic!() };
    rig.done(ticket, Ok(FileResult::Block(Block::new("hi".into(), true))));
    let Some(Action::File { ticket, job: FileJob::Close { .. }, .. }) = rig.actions.pop_back() else { panic!() };
    rig.done(ticket, Ok(FileResult::Done));
    let answers = rig.out();
    assert_eq!(names(&answers), [write, read, close, after].map(|id| id.to_string()));
    assert_eq!(answers[1]["result"], json!({"chunk": "aGk=", "eof": true}));
    assert_eq!(answers[3]["error"], json!({"code": -32004, "message": "unknown file handle `h`"}));
    let Some(Action::File { ticket, job: FileJob::Open { file, .. }, .. }) = rig.actions.pop_back() else { panic!() };
    rig.done(ticket, Ok(FileResult::Opened(file)));
    assert_eq!(names(&rig.out()), [again.to_string()]);
}

#[test]
fn a_failed_read_closes_the_handle_a_failed_write_and_a_wrong_length_do_not() {
    let mut rig = Rig::attached(false);
    let file = rig.open("h");
    for length in [0, (1 << 20) + 1] {
        let text = "file read block length must be between 1 and 1048576";
        assert_eq!(rig.refusal("fs/readBlock", read_block("h", length)), (-32600, text.into()));
    }
    let empty = json!({"handleId": "h", "offset": 0, "chunk": ""});
    let text = "file write block length must be between 1 and 1048576";
    assert_eq!(rig.refusal("fs/writeBlock", empty), (-32600, text.into()));
    let far = json!({"handleId": "h", "offset": i64::MAX as u64, "chunk": "aA=="});
    let text = "file write range exceeds the signed 64-bit file offset limit";
    assert_eq!(rig.refusal("fs/writeBlock", far), (-32600, text.into()));
    let (_, ticket, _) = rig.job("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "aA=="}));
    rig.done(ticket, Err(FsError::WrongMode { path: "/a".into(), wanted: "writing" }));
    assert_eq!(rig.out()[0]["error"]["message"], "Bad file descriptor (os error 9)");
    let (_, ticket) = rig.block("h", 1);
    rig.done(ticket, Err(FsError::IsADirectory { path: "/a".into() }));
    assert_eq!(rig.out()[0]["error"]["code"], -32603);
    assert!(matches!(rig.actions.pop_back(), Some(Action::ForgetFile { file: closed }) if closed == file));
    assert_eq!(rig.refusal("fs/readBlock", read_block("h", 1)).0, -32004);
    assert_eq!(rig.call("fs/close", json!({"handleId": "h"}))["result"], json!({}), "a close always succeeds");
}

#[test]
fn handles_are_bounded_and_end_with_the_connection() {
    let mut rig = Rig::with(|config| config.max_file_handles = 2);
    rig.attach(false);
    rig.open("");
    rig.open("a");
    let open = |id: &str| json!({"handleId": id, "path": "file:///a"});
    let text = "file handle `a` already exists";
    assert_eq!(rig.refusal("fs/open", open("a")), (-32600, text.into()));
    let text = "at most 2 file handles may be open per connection";
    assert_eq!(rig.refusal("fs/open", open("b")), (-32600, text.into()));
    let text = "file handle ID must not exceed 32 bytes";
    assert_eq!(rig.refusal("fs/open", open(&"é".repeat(17))), (-32600, text.into()));
    let (_, ticket, _) = rig.job("fs/close", json!({"handleId": "a"}));
    rig.done(ticket, Ok(FileResult::Done));
    rig.out();
    let (_, ticket, _) = rig.job("fs/open", open("b"));
    rig.done(ticket, Err(not_found()));
    assert_eq!(rig.out()[0]["error"]["code"], -32004, "a failed open takes no place");
    rig.open("b");
    let (_, stale) = rig.block("b", 1);
    rig.peer.handle_disconnect(rig.now);
    rig.collect();
    assert!(matches!(rig.actions.pop_back(), Some(Action::ForgetFiles)));
    rig.attach(false);
    rig.done(stale, full_block());
    assert!(rig.out().is_empty(), "an answer for a connection that is gone goes nowhere");
    assert_eq!(rig.refusal("fs/readBlock", read_block("b", 1)).0, -32004);
    rig.open("b");
    rig.open("c");
}

#[test]
fn bytes_on_their_way_are_bounded_and_reads_wait_in_order() {
    let mut rig = Rig::with(|config| config.max_file_bytes_in_flight = 2 << 20);
    rig.attach(false);
    for id in ["a", "b", "c", "d"] {
        rig.open(id);
    }
    let (first, a) = rig.block("a", 1 << 20);
    let (second, b) = rig.block("b", 1 << 20);
    let third = rig.ask("fs/readBlock", read_block("c", 1 << 20));
    let small = rig.ask("fs/readBlock", read_block("d", 1));
    assert!(rig.actions.is_empty(), "there is no room, and nothing goes before what waits");
    let (_, ticket, _) = rig.job("fs/getMetadata", json!({"path": "file:///a"}));
    rig.done(ticket, Err(not_found()));
    assert_eq!(rig.out().len(), 1, "what reads nothing does not wait");
    rig.done(a, full_block());
    assert!(rig.actions.is_empty(), "what waits to leave counts too");
    assert_eq!(rig.out()[0]["id"], first);
    rig.collect();
    let Some(Action::File { ticket: c, .. }) = rig.actions.pop_front() else { panic!() };
    assert!(rig.actions.is_empty());
    rig.done(b, Ok(FileResult::Block(Block::new(Bytes::new(), true))));
    let Some(Action::File { ticket: d, .. }) = rig.actions.pop_front() else { panic!() };
    rig.done(d, Ok(FileResult::Block(Block::new("x".into(), false))));
    rig.done(c, full_block());
    assert_eq!(names(&rig.out()), [second, small, third].map(|id| id.to_string()));
}

#[test]
fn an_event_of_a_process_waits_for_no_more_than_one_block_and_gets_as_many_bytes() {
    let mut rig = Rig::attached(false);
    let process = rig.run("p");
    let ids = ["a", "b", "c", "d", "e", "f"];
    for id in ids {
        rig.open(id);
    }
    let blocks: Vec<_> = ids.iter().map(|id| rig.block(id, 1 << 20)).collect();
    for (_, ticket) in &blocks {
        rig.done(*ticket, full_block());
    }
    // Six blocks wait to leave. What a process writes now leaves behind the first of them at the latest.
    assert_eq!(message_id(&mut rig), Some(blocks[0].0));
    rig.output(process, "now");
    assert_eq!(message_id(&mut rig), None, "the event is next");
    assert_eq!(message_id(&mut rig), Some(blocks[1].0), "without output, blocks do not wait");
    // A process that always has more gets as many bytes as the blocks: 16 chunks of 64 KiB to each.
    for _ in 0..15 {
        rig.event(process, chunk());
    }
    let mut order = Vec::new();
    while let Some(message) = rig.peer.poll_transmit(true) {
        let message: Value = serde_json::from_slice(&message).unwrap();
        order.push(message["id"].as_i64());
        if order.len() < 40 {
            rig.event(process, chunk());
        }
    }
    let places: Vec<_> = (0..order.len()).filter(|place| order[*place].is_some()).collect();
    assert_eq!(places.len(), 4, "all blocks leave");
    assert!(places.windows(2).take(2).all(|pair| (16..=18).contains(&(pair[1] - pair[0]))), "{places:?}");
}

#[test]
fn what_is_larger_than_a_message_is_cut_or_refused_with_size_and_limit() {
    const LIMIT: usize = 100_000;
    let mut rig = Rig::with(|config| config.max_answer_bytes = LIMIT);
    rig.attach(true);
    let path = json!({"path": "file:///a"});
    let (_, ticket, job) = rig.job("fs/readFile", path.clone());
    let FileJob::Read { options, .. } = job else { panic!("{job:?}") };
    assert!(options.max_bytes.unwrap() / 3 * 4 < LIMIT as u64, "the place is asked to keep the limit");
    // Whatever the place gives.
    rig.done(ticket, Ok(FileResult::Bytes(vec![0; LIMIT].into())));
    let error = &rig.out()[0]["error"];
    assert_eq!(error["code"], -32600);
    assert!(error["message"].as_str().unwrap().ends_with("and the limit of a message is 100000 bytes"), "{error}");

    // Names that take many times their length.
    for (count, fits) in [(60, true), (64, false)] {
        let mut entry = DirectoryEntry::new("\u{FFFD}".repeat(255), false, true);
        entry.raw_name = Some(vec![0xFF; 255]);
        let (_, ticket, _) = rig.job("fs/readDirectory", path.clone());
        rig.done(ticket, Ok(FileResult::Entries(vec![entry; count])));
        let answer = rig.peer.poll_transmit(true).unwrap();
        assert!(answer.len() <= LIMIT);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["result"].is_object(), fits, "{count}");
    }

    let found = |index: usize| WalkEntry::new(uri(&format!("file:///a/{}{index}", "x".repeat(900))), WalkKind::File);
    for count in [90, 10_000] {
        let walk = Walk {
            entries: (0..count).map(found).collect(),
            errors: vec![WalkFailure::new(uri("file:///a/b"), "why")],
            skipped: Some((0..count).map(|_| Skipped::new(uri("file:///a/c"), SkipReason::Symlink)).collect()),
            ..Walk::default()
        };
        let params = json!({"path": "file:///a", "options": {
            "maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": false,
        }});
        let (_, ticket, _) = rig.job("fs/walk", params);
        rig.done(ticket, Ok(FileResult::Walk(walk)));
        let answer = rig.peer.poll_transmit(true).unwrap();
        assert!(answer.len() <= LIMIT && answer.len() > LIMIT / 2, "{}", answer.len());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let entries = answer["result"]["entries"].as_array().unwrap();
        assert_eq!(entries[0]["path"], found(0).path.as_str(), "the first ones are there");
        assert_eq!(answer["result"]["truncated"], count > 90);
        assert_eq!(answer["result"]["errors"].as_array().unwrap().len(), 1);
    }
}

fn uri(text: &str) -> PathUri {
    PathUri::parse(text).unwrap()
}

#[test]
fn a_whole_file_counts_as_all_that_it_may_bring() {
    let mut rig = Rig::with(|config| {
        config.max_file_bytes_in_flight = 8 << 20;
        config.max_read_file_bytes = 20 << 20;
    });
    rig.attach(true);
    let too_large = |size: Option<u64>, limit: u64| FsError::TooLarge { path: "/a".into(), size, limit };
    let path = json!({"path": "file:///a"});
    rig.open("h");
    let (first, ticket, job) = rig.job("fs/readFile", path.clone());
    assert!(matches!(job, FileJob::Read { options, .. } if options.max_bytes == Some(2 << 20)), "{job:?}");
    let (block, block_ticket) = rig.block("h", 1 << 20);
    // It is larger than was thought: it waits until nothing else is on its way, and others wait behind it.
    rig.done(ticket, Err(too_large(Some(9 << 20), 2 << 20)));
    let later = rig.ask("fs/readFile", path.clone());
    assert!(rig.actions.is_empty() && rig.out().is_empty());
    rig.done(block_ticket, full_block());
    assert!(rig.actions.is_empty());
    assert_eq!(names(&rig.out()), [block.to_string()]);
    rig.collect();
    let Some(Action::File { ticket, job: FileJob::Read { options, .. }, .. }) = rig.actions.pop_front() else {
        panic!()
    };
    assert_eq!(options.max_bytes, Some(9 << 20));
    assert!(rig.actions.is_empty());
    // It has grown again.
    rig.done(ticket, Err(too_large(None, 9 << 20)));
    let Some(Action::File { ticket, job: FileJob::Read { options, .. }, .. }) = rig.actions.pop_front() else {
        panic!()
    };
    assert_eq!(options.max_bytes, Some(20 << 20));
    rig.done(ticket, Ok(FileResult::Bytes(vec![0; 10 << 20].into())));
    assert!(rig.actions.is_empty(), "it counts until it leaves");
    assert_eq!(names(&rig.out()), [first.to_string()]);
    rig.collect();
    let Some(Action::File { ticket, job: FileJob::Read { .. }, .. }) = rig.actions.pop_front() else { panic!() };
    rig.done(ticket, Err(too_large(Some(21 << 20), 2 << 20)));
    let answers = rig.out();
    assert_eq!(names(&answers), [later.to_string()]);
    assert_eq!(answers[0]["error"]["message"], "file is too large to read: limit is 20971520 bytes");
    assert_eq!(answers[0]["error"]["data"]["longarm"]["size"], 21 << 20);
    // The limit of the place itself is told as it is.
    let (_, ticket, _) = rig.job("fs/readFile", path);
    rig.done(ticket, Err(too_large(Some(1 << 20), 1 << 10)));
    assert_eq!(rig.out()[0]["error"]["message"], "file is too large to read: limit is 1024 bytes");
}

fn chunk() -> Event {
    Event::Output(Output { seq: 0, stream: OutputStream::Stdout, bytes: vec![1; 64 << 10].into() })
}

fn message_id(rig: &mut Rig) -> Option<i64> {
    let message = rig.peer.poll_transmit(true).expect("a message");
    serde_json::from_slice::<Value>(&message).unwrap()["id"].as_i64()
}

#[test]
fn a_client_that_does_not_take_its_blocks_is_still_heard() {
    let mut rig = Rig::attached(false);
    for id in 0..20 {
        rig.open(&id.to_string());
    }
    let mut reads = 0;
    for id in 0..20 {
        rig.ask("fs/readBlock", read_block(&id.to_string(), 1 << 20));
        while let Some(action) = rig.actions.pop_front() {
            let Action::File { ticket, .. } = action else { panic!("{action:?}") };
            reads += 1;
            rig.done(ticket, full_block());
        }
    }
    assert_eq!(reads, 8, "no more is read than may be held");
    assert!(rig.peer.wants_input());
    rig.ask("environment/status", json!({}));
    let mut answers = rig.out().len();
    assert_eq!(answers, 9);
    rig.collect();
    while let Some(Action::File { ticket, .. }) = rig.actions.pop_front() {
        rig.done(ticket, full_block());
        answers += rig.out().len();
        rig.collect();
    }
    assert_eq!(answers, 21, "and all is answered in the end");
}

#[test]
fn one_client_has_a_bounded_number_of_jobs_under_way() {
    let mut rig = Rig::with(|config| config.max_file_jobs = 2);
    rig.attach(false);
    let path = json!({"path": "file:///a"});
    let (_, first, _) = rig.job("fs/getMetadata", path.clone());
    let watch = |id: u64| json!({"watchId": id, "missing": ["file:///a"], "present": null});
    let (_, former, _) = rig.job("fs/watchMissing", watch(1));
    let third = rig.ask("fs/canonicalize", path.clone());
    rig.ask("fs/watchMissing", watch(2));
    assert!(rig.actions.is_empty(), "all places are taken, one of them by a watch that nobody wants any more");
    rig.done(former, Ok(FileResult::Watching(true)));
    let Some(Action::File { ticket, job: FileJob::Canonicalize { .. }, .. }) = rig.actions.pop_front() else {
        panic!()
    };
    assert!(rig.actions.is_empty());
    rig.done(ticket, Err(not_found()));
    let Some(Action::File { job: FileJob::Watch { watch: 2, .. }, .. }) = rig.actions.pop_front() else { panic!() };
    let answers = rig.out();
    assert!(answers.iter().any(|answer| answer["id"] == third), "{answers:?}");
    rig.ask("fs/getMetadata", path);
    assert!(rig.actions.is_empty());
    rig.done(first, Err(not_found()));
    assert!(matches!(rig.actions.pop_front(), Some(Action::File { job: FileJob::Metadata { .. }, .. })));
}

#[test]
fn a_session_that_shuts_down_lets_changes_end() {
    let mut rig = Rig::attached(false);
    let (_, read, _) = rig.job("fs/readFile", json!({"path": "file:///a"}));
    assert!(rig.peer.is_quiet(), "what only looks is given up");
    let (_, write, _) = rig.job("fs/writeFile", json!({"path": "file:///a", "dataBase64": ""}));
    rig.peer.begin_shutdown(rig.now);
    assert!(!rig.peer.is_quiet());
    rig.done(write, Ok(FileResult::Done));
    assert_eq!(rig.out().len(), 1);
    assert!(rig.peer.is_quiet());
    rig.done(read, Err(not_found()));
}

#[test]
fn what_finds_no_room_may_be_asked_again_and_says_so_to_who_understands() {
    for extended in [false, true] {
        let mut rig = Rig::with(|config| config.max_request_bytes_in_flight = 1 << 10);
        rig.attach(extended);
        let write = json!({"path": "file:///a", "dataBase64": "A".repeat(1 << 10)});
        let answer = rig.call("fs/writeFile", write);
        assert_eq!(answer["error"]["code"], -32600);
        assert_eq!(answer["error"]["message"], "more than 1024 bytes of requests without an answer");
        assert_eq!(answer["error"]["data"]["longarm"]["kind"] == "busy", extended, "{answer}");
    }
}

#[test]
fn a_handle_that_the_place_does_not_know_is_told_by_its_id() {
    let mut rig = Rig::attached(false);
    rig.open("h");
    let (_, ticket) = rig.block("h", 1);
    rig.done(ticket, Err(FsError::UnknownHandle { handle: "/of/the/place".into() }));
    assert_eq!(rig.out()[0]["error"]["message"], "unknown file handle `h`");
}

#[test]
fn a_watch_replaces_the_former_one_and_ends_once() {
    let mut rig = Rig::attached(false);
    let watch = |id: u64| json!({"watchId": id, "missing": ["file:///a"], "present": null});
    let changed = |id: u64| json!({"method": "fs/missingChanged", "params": {"watchId": id}});
    let (_, first, job) = rig.job("fs/watchMissing", watch(3));
    assert!(matches!(job, FileJob::Watch { watch: 3, .. }));
    let (_, second, _) = rig.job("fs/watchMissing", watch(5));
    assert_eq!(rig.out()[0]["result"], json!({"watching": false}), "the former one is given up");
    rig.done(first, Ok(FileResult::Watching(true)));
    rig.complete(Completion::MissingChanged { watch: 3 });
    rig.done(second, Ok(FileResult::Watching(true)));
    assert_eq!(rig.out()[0]["result"], json!({"watching": true}));
    rig.complete(Completion::MissingChanged { watch: 5 });
    assert_eq!(rig.out(), [changed(5)]);
    rig.complete(Completion::MissingChanged { watch: 5 });
    assert!(rig.out().is_empty());

    for params in [
        watch(5),
        watch(4),
        json!({"watchId": 6, "missing": []}),
        json!({"watchId": 7, "missing": vec!["file:///a"; 65]}),
    ] {
        assert_eq!(rig.call("fs/watchMissing", params)["result"], json!({"watching": false}));
        assert!(matches!(rig.actions.pop_back(), Some(Action::Unwatch)));
    }
    assert_eq!(rig.call("fs/watchMissing", watch(7))["result"]["watching"], false, "its number was used");
    rig.actions.clear();
    let (_, ticket, _) = rig.job("fs/watchMissing", watch(8));
    rig.done(ticket, Err(not_found()));
    assert_eq!(rig.out()[0]["result"], json!({"watching": false}), "never an error");
}

#[test]
fn members_beyond_the_plain_wire_count_only_where_they_were_agreed() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let params = json!({"handleId": "h", "path": "file:///a", "mode": "replace", "longarm": {"keepContent": true}});
        let (_, _, job) = rig.job("fs/open", params);
        let FileJob::Open { mode, .. } = job else { panic!("{job:?}") };
        assert_eq!(mode == OpenMode::Update, extended);
        let (_, _, job) = rig.job("fs/readFile", json!({"path": "file:///a", "longarm": {"maxBytes": 9}}));
        let FileJob::Read { options, .. } = job else { panic!("{job:?}") };
        assert_eq!(options.max_bytes, Some(if extended { 9 } else { 2 << 20 }));
        let params = json!({"path": "file:///a", "dataBase64": "", "longarm": {"fsync": true}});
        let (_, _, job) = rig.job("fs/writeFile", params);
        let FileJob::Write { options, .. } = job else { panic!("{job:?}") };
        assert_eq!(options.fsync, extended);
        let remove = json!({"path": "file:///a", "followSymlinks": false});
        if extended {
            rig.job("fs/remove", remove);
            rig.job("longarm/fs/privateDirectory", Value::Null);
        } else {
            let text = "recursive no-follow removal is unsupported";
            assert_eq!(rig.refusal("fs/remove", remove), (-32603, text.into()));
            assert_eq!(rig.refusal("longarm/fs/privateDirectory", Value::Null).0, -32601);
        }
    }
}

#[test]
fn configuration_is_empty_and_names_the_home_directory() {
    let mut rig = Rig::attached(false);
    let ask = |cwd: &str, config: Value| json!({"cwd": cwd, "configPaths": config, "requirementsPaths": []});
    let text = "at least one config or requirements path is required";
    assert_eq!(rig.refusal("environmentConfig/read", ask("file:///a", json!([]))), (-32602, text.into()));
    let text = "TOML paths must contain at least one key segment";
    assert_eq!(rig.refusal("environmentConfig/read", ask("file:///a", json!([[]]))), (-32602, text.into()));
    let text = "'file:///C:/a' is invalid on 'linux'";
    assert_eq!(rig.refusal("environmentConfig/read", ask("file:///C:/a", json!([["a"]]))), (-32602, text.into()));
    assert_eq!(rig.refusal("environmentConfig/read", ask("file:///a", json!([["a"]]))).0, -32603, "no home is known");
    rig.peer.info.as_mut().unwrap().home_dir = Some(PathUri::parse("file:///home/u").unwrap());
    let empty = json!({"layers": [], "cloudInsertionIndex": 0});
    let result = json!({
        "userHomeDir": "file:///home/u", "codexHomeDir": "file:///home/u/.codex", "hostname": null, "config": empty,
        "requirements": empty,
    });
    assert_eq!(rig.call("environmentConfig/read", ask("file:///a", json!([["a"]])))["result"], result);
}
