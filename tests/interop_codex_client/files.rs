//! What the client asks of files and of the place when it starts, seen on the wire.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::{Run, Turn};

#[test]
fn the_client_finds_every_method_that_it_calls() {
    let Some(mut run) = Run::new() else { return };
    let wire = Wire::start(&run.server.url);
    run.server.url.clone_from(&wire.url);
    let workspace = run.dir.path().join("workspace");
    std::fs::write(workspace.join("AGENTS.md"), "Be brief.\n").unwrap();
    let png = base64_simd::STANDARD.decode_to_vec(PNG).unwrap();
    std::fs::write(workspace.join("dot.png"), png).unwrap();
    let image = workspace.join("dot.png");
    // There are no skills at first, which the client watches for; the command makes one, which the next run finds.
    let make = "mkdir -p .agents/skills/greet && printf -- '---\\nname: greet\\ndescription: Greets.\\n---\\nHi.\\n' \
                > .agents/skills/greet/SKILL.md";
    let outputs = run.script(vec![Turn::call("one", json!({"cmd": make, "yield_time_ms": 20_000}))]);
    assert!(outputs["one"].contains("Process exited with code 0"), "{}", outputs["one"]);
    let outputs = run.script(vec![Turn::tool("look", "view_image", json!({"path": image}))]);
    assert!(outputs["look"].contains("image"), "{}", outputs["look"]);

    let asked = wire.methods();
    for method in [
        "initialize",
        "environmentConfig/read",
        "fs/getMetadata",
        "fs/watchMissing",
        "fs/canonicalize",
        "fs/walk",
        "fs/readFile",
        "process/start",
    ] {
        assert!(asked.contains(method), "{method} is not among {asked:?}");
    }
    let told = wire.told();
    assert!(told.iter().any(|message| message["result"]["watching"] == true), "a watch is set");
    assert!(told.iter().any(|message| message["method"] == "fs/missingChanged"), "and fires");
    assert!(told.iter().any(|message| message["result"]["dataBase64"].is_string()), "a file is read");
    let listed = |message: &Value| message["result"]["entries"].as_array().is_some_and(|entries| !entries.is_empty());
    assert!(told.iter().any(listed), "the skills are found");
    let missing: Vec<_> = told.iter().filter(|message| message["error"]["code"] == -32601).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// One dot, as base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A listener in front of a server that remembers what passes, in both directions.
pub(crate) struct Wire {
    pub(crate) url: String,
    connections: Arc<Mutex<Vec<Arc<Connection>>>>,
}

#[derive(Default)]
struct Connection {
    from_client: Mutex<Vec<u8>>,
    from_server: Mutex<Vec<u8>>,
}

impl Wire {
    pub(crate) fn start(server: &str) -> Self {
        let server = server.trim_start_matches("ws://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&connections);
        // Lives until the test's process ends.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(&server).unwrap();
                let connection = Arc::<Connection>::default();
                known.lock().unwrap().push(Arc::clone(&connection));
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&connection));
                std::thread::spawn(move || pass_on(client, server, &connection.from_client));
                std::thread::spawn(move || pass_on(back.0, back.1, &back.2.from_server));
            }
        });
        Self { url, connections }
    }

    /// What was said on each connection, by the client and by the server.
    pub(crate) fn conversations(&self) -> Vec<[Vec<Value>; 2]> {
        let connections = self.connections.lock().unwrap();
        let said = |connection: &Arc<Connection>| {
            [&connection.from_client, &connection.from_server].map(|side| messages(&side.lock().unwrap()))
        };
        connections.iter().map(said).collect()
    }

    /// The methods of all requests of the client.
    pub(crate) fn methods(&self) -> BTreeSet<String> {
        let connections = self.connections.lock().unwrap();
        let messages = connections.iter().flat_map(|connection| messages(&connection.from_client.lock().unwrap()));
        messages.filter_map(|message| Some(message["method"].as_str()?.to_owned())).collect()
    }

    /// All messages of the server.
    pub(crate) fn told(&self) -> Vec<Value> {
        let connections = self.connections.lock().unwrap();
        connections.iter().flat_map(|connection| messages(&connection.from_server.lock().unwrap())).collect()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        seen.lock().unwrap().extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// The JSON messages in the frames behind an HTTP head.
fn messages(bytes: &[u8]) -> Vec<Value> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let mut rest = &bytes[head..];
    let mut messages = Vec::new();
    let mut text = Vec::new();
    while let Some((last, opcode, payload, next)) = frame(rest) {
        rest = next;
        if opcode > 2 {
            continue;
        }
        text.extend(payload);
        if last {
            messages.push(serde_json::from_slice(&std::mem::take(&mut text)).unwrap());
        }
    }
    messages
}

fn frame(bytes: &[u8]) -> Option<(bool, u8, Vec<u8>, &[u8])> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (length, mut at) = match second & 0x7F {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?, 10),
        short => (usize::from(short), 2),
    };
    let mut mask = [0; 4];
    if second & 0x80 != 0 {
        mask.copy_from_slice(bytes.get(at..at + 4)?);
        at += 4;
    }
    let payload = bytes.get(at..at + length)?.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Some((first & 0x80 != 0, first & 0x0F, payload, &bytes[at + length..]))
}
