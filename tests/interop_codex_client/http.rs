//! A tool server that the client reaches by HTTP requests of the executor.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::files::Wire;
use crate::{Run, TOKEN, TOKEN_VARIABLE, Turn};

#[test]
fn a_tool_server_is_reached_through_the_executor() {
    let Some(mut run) = Run::new() else { return };
    let wire = Wire::start(&run.server.url);
    run.server.url.clone_from(&wire.url);
    let tools = ToolServer::start();
    run.config = format!(
        "[mcp_servers.echo]\nurl = \"http://127.0.0.1:{}/mcp\"\nenvironment_id = \"remote\"\n\
         bearer_token_env_var = \"{TOKEN_VARIABLE}\"\nhttp_headers = {{ x-fixed = \"one\" }}\n",
        tools.port
    );
    let long = "y".repeat(300_000);
    let outputs = run.script(vec![
        Turn::tool("short", "echo", json!({"text": "hello"})).of("mcp__echo"),
        Turn::tool("long", "echo", json!({"text": long})).of("mcp__echo"),
    ]);
    assert!(outputs["short"].contains("echo:hello"), "{}", outputs["short"]);
    assert!(outputs["long"].contains("echo:yyyy"), "{}", outputs["long"]);
    let seen = tools.seen.lock().unwrap();
    let methods: Vec<_> = seen.iter().map(|request| request.what.as_str()).collect();
    for method in ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"] {
        assert!(methods.contains(&method), "{method} is not among {methods:?}");
    }
    // The secret is the executor's, and the client has never seen it.
    let bearer = format!("authorization: bearer {TOKEN}");
    for request in &*seen {
        assert!(request.head.contains(&bearer) && request.head.contains("x-fixed: one"), "{}", request.head);
    }
    assert!(wire.methods().contains("http/request"));
    let told = wire.told();
    assert!(told.iter().any(|message| message["params"]["done"] == true), "bodies are streamed to their end");
    // What it looks for at its start may be missing; nothing else fails.
    let errors = told.iter().map(|message| &message["error"]).filter(|error| !error.is_null());
    let others: Vec<_> = errors.filter(|error| error["code"] != -32004).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!told.iter().any(|message| message.to_string().contains(TOKEN)));
}

/// What came in one request.
struct Request {
    /// The method of what is asked, or of HTTP where there is no body.
    what: String,
    /// Everything before the body, in lower case.
    head: String,
}

/// A server of one tool, which says what it is told.
struct ToolServer {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl ToolServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<Request>>>::default();
        let noted = Arc::clone(&seen);
        // Lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || {
                    if let Err(error) = serve(stream.unwrap(), &noted) {
                        eprintln!("the tool server's connection failed: {error}");
                    }
                });
            }
        });
        Self { port, seen }
    }
}

/// Answers the requests of a connection until it ends.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Request>>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let http_method = head.split(' ').next().unwrap_or_default().to_owned();
        let head = head.to_ascii_lowercase();
        let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let what = asked["method"].as_str().unwrap_or(&http_method).to_owned();
        seen.lock().unwrap().push(Request { what: what.clone(), head });
        let result = match what.as_str() {
            "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "echo", "description": "Says what it is told.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}),
            "tools/call" => {
                let text = asked["params"]["arguments"]["text"].as_str().unwrap_or_default();
                json!({"content": [{"type": "text", "text": format!("echo:{text}")}]})
            }
            _ => json!({}),
        };
        let stream = reader.get_mut();
        if asked["id"].is_null() {
            let status = match what.as_str() {
                "GET" => "405 Method Not Allowed",
                "DELETE" => "200 OK",
                _ => "202 Accepted",
            };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        let event = format!("event: message\ndata: {answer}\n\n");
        let head = "content-type: text/event-stream\r\nmcp-session-id: fixed\r\ntransfer-encoding: chunked";
        write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n")?;
        for piece in event.as_bytes().chunks(64 << 10) {
            write!(stream, "{:x}\r\n", piece.len())?;
            stream.write_all(piece)?;
            write!(stream, "\r\n")?;
        }
        write!(stream, "0\r\n\r\n")?;
    }
}
