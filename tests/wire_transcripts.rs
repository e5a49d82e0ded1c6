//! The recordings of the reference: every message of a method that this crate has decodes, and what its types make of it is
//! what was recorded.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use longarm::config::MessageLimits;
use longarm::wire::codec::{self, Message, Payload, PayloadError, hot};
use longarm::wire::method::{self, Method, Notification};
use longarm::wire::{ErrorCode, RequestId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Line {
    dir: String,
    conn: Option<u64>,
    msg: Option<Box<RawValue>>,
    raw: Option<String>,
}

struct Transcript {
    name: String,
    /// Made by the reference's own client.
    of_reference_client: bool,
    lines: Vec<Line>,
}

#[test]
fn messages_of_our_methods_decode_and_encode_to_what_was_recorded() {
    let mut seen = HashMap::<String, usize>::new();
    for transcript in transcripts() {
        let mut asked = HashMap::new();
        for line in &transcript.lines {
            let Some(text) = line.msg.as_ref().map(|msg| as_sent(msg.get())) else { continue };
            let at = format!("{}: {text}", transcript.name);
            let message = codec::decode(text.as_bytes(), &MessageLimits::default())
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            match message {
                Message::Request { id, method, params, .. } => {
                    // The server asks too; its ids are its own.
                    let checked = check_request(&method, params, transcript.of_reference_client, &at);
                    *seen.entry(method.clone().into_owned()).or_default() += 1;
                    if let Some(checked) = checked {
                        asked.insert((line.conn, line.dir == "c2s", id), (method.into_owned(), checked));
                    }
                }
                Message::Notification { method, params } => {
                    check_notification(&method, params, &text, &at);
                    *seen.entry(method.into_owned()).or_default() += 1;
                }
                Message::Response { id, result } => {
                    let Some((method, checked)) = asked.remove(&(line.conn, line.dir == "s2c", id)) else { continue };
                    assert!(checked.is_ok(), "the reference took what we refuse: {at}: {checked:?}");
                    check_result(&method, result, &at);
                }
                Message::Error { id, error } => {
                    assert_eq!(value(&codec::encode_error(&id, &error)), value(text.as_bytes()), "{at}");
                    let Some((_, checked)) = asked.remove(&(line.conn, line.dir == "s2c", id)) else { continue };
                    if checked.is_err() {
                        assert_eq!(error.code, ErrorCode::INVALID_PARAMS.0, "{at}");
                    } else if error.code == ErrorCode::INVALID_PARAMS.0 {
                        assert!(is_about_values(&error.message), "the reference refused what we take: {at}");
                    }
                }
            }
        }
    }
    for name in ["initialize", "initialized", "environment/info", "environment/status"]
        .into_iter()
        .chain(["process/start", "process/read", "process/write", "process/signal", "process/terminate"])
        .chain(["fs/readFile", "fs/open", "fs/readBlock", "fs/canonicalize", "fs/getMetadata", "fs/walk", "fs/remove"])
        .chain(["fs/writeFile", "fs/writeBlock", "fs/close", "fs/copy", "fs/createDirectory", "fs/missingChanged"])
        .chain(["process/output", "process/exited", "process/closed", "http/request", "http/request/bodyDelta"])
    {
        assert!(seen.get(name).is_some_and(|count| *count > 2), "the recordings have too little of {name}");
    }
}

#[test]
fn malformed_texts_are_refused_as_recorded() {
    let mut refused = Vec::new();
    for transcript in transcripts() {
        let mut lines = transcript.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let Some(raw) = &line.raw else { continue };
            let answer = lines.peek().and_then(|line| line.msg.as_ref());
            let answer = answer.map(|msg| serde_json::from_str::<Value>(msg.get()).unwrap());
            let malformed = answer.is_some_and(|answer| answer["id"] == -1);
            let decoded = codec::decode(raw.as_bytes(), &MessageLimits::default());
            assert_eq!(decoded.is_err(), malformed, "{raw}: {decoded:?}");
            if malformed {
                refused.push(raw.clone());
            }
        }
    }
    let expected = [
        "not json",
        "[]",
        r#"{"id":null,"method":"environment/status"}"#,
        r#"{"id":7,"id":8,"method":"environment/status"}"#,
        r#"[{"id":7,"method":"environment/status"}]"#,
    ];
    assert_eq!(refused, expected);
}

/// Checks the parameters of a request of ours, and whether they decode.
fn check_request(method: &str, params: Payload<'_>, exactly: bool, at: &str) -> Option<Result<(), PayloadError>> {
    fn check<M: Method>(params: Payload<'_>, exactly: bool, at: &str) -> Result<(), PayloadError> {
        let decoded = params.decode::<M::Params>()?;
        let id = RequestId::Number(1);
        let encoded = value(&codec::encode_request::<M>(&id, &decoded))["params"].take();
        let recorded = value(params.as_json().as_bytes());
        if exactly {
            assert_eq!(encoded, recorded, "{at}");
        } else {
            assert_extends(&encoded, &recorded, at);
        }
        Ok(())
    }

    // Bytes that are no base64 have a value here, which the answer needs, but no form.
    if method == method::WriteFile::NAME
        && params.decode::<longarm::wire::fs::WriteFileParams>().is_ok_and(|params| params.data_base64.0.is_err())
    {
        return None;
    }
    let check = match method {
        method::Initialize::NAME => check::<method::Initialize>,
        method::Info::NAME => check::<method::Info>,
        method::Status::NAME => check::<method::Status>,
        method::Start::NAME => check::<method::Start>,
        method::Read::NAME => check::<method::Read>,
        method::Write::NAME => check::<method::Write>,
        method::SendSignal::NAME => check::<method::SendSignal>,
        method::Terminate::NAME => check::<method::Terminate>,
        method::ConfigRead::NAME => check::<method::ConfigRead>,
        method::ReadFile::NAME => check::<method::ReadFile>,
        method::WriteFile::NAME => check::<method::WriteFile>,
        method::OpenFile::NAME => check::<method::OpenFile>,
        method::ReadBlock::NAME => check::<method::ReadBlock>,
        method::WriteBlock::NAME => check::<method::WriteBlock>,
        method::CloseFile::NAME => check::<method::CloseFile>,
        method::Canonicalize::NAME => check::<method::Canonicalize>,
        method::CreateDirectory::NAME => check::<method::CreateDirectory>,
        method::GetMetadata::NAME => check::<method::GetMetadata>,
        method::ReadDirectory::NAME => check::<method::ReadDirectory>,
        method::Walk::NAME => check::<method::Walk>,
        method::Remove::NAME => check::<method::Remove>,
        method::Copy::NAME => check::<method::Copy>,
        method::WatchMissing::NAME => check::<method::WatchMissing>,
        method::HttpRequest::NAME => check::<method::HttpRequest>,
        _ => return None,
    };
    Some(check(params, exactly, at))
}

/// Members that the recording leaves out must be what their absence means.
fn assert_extends(encoded: &Value, recorded: &Value, at: &str) {
    let (Some(encoded), Some(recorded)) = (encoded.as_object(), recorded.as_object()) else {
        let none = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        assert!(encoded == recorded || none(encoded) && none(recorded), "{at}");
        return;
    };
    for (name, value) in encoded {
        match recorded.get(name) {
            Some(recorded) if name == "metadata" || name == "cwd" => {
                assert_eq!(value.is_null(), recorded.is_null(), "{at}")
            }
            Some(recorded) if is_same_path(value, recorded) => {}
            Some(recorded) => assert_eq!(value, recorded, "{name} in {at}"),
            None if name == "mode" => assert_eq!(value, "read", "{name} in {at}"),
            None if name == "redirectPolicy" => assert_eq!(value, "follow", "{name} in {at}"),
            None if name == "headers" => assert_eq!(*value, Value::Array(vec![]), "{name} in {at}"),
            None => assert!(value.is_null() || value == false, "{name} in {at}"),
        }
    }
    for name in recorded.keys() {
        assert!(encoded.contains_key(name) || recorded[name].is_null(), "{name} in {at}");
    }
}

/// Dots in a path are resolved when it is read.
fn is_same_path(encoded: &Value, recorded: &Value) -> bool {
    let path = |value: &Value| value.as_str().and_then(|text| longarm::PathUri::parse(text).ok());
    recorded.as_str().is_some_and(|text| text.contains("/..")) && path(encoded) == path(recorded)
}

fn check_notification(method: &str, params: Payload<'_>, text: &str, at: &str) {
    fn check<N: Notification>(params: Payload<'_>, text: &str, at: &str) {
        let decoded = params.decode::<N::Params>().unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(value(&codec::encode_notification::<N>(&decoded)), value(text.as_bytes()), "{at}");
    }

    match method {
        method::Initialized::NAME => check::<method::Initialized>(params, text, at),
        method::Exited::NAME => check::<method::Exited>(params, text, at),
        method::Closed::NAME => check::<method::Closed>(params, text, at),
        method::MissingChanged::NAME => check::<method::MissingChanged>(params, text, at),
        method::BodyDelta::NAME => check::<method::BodyDelta>(params, text, at),
        method::Output::NAME => {
            check::<method::Output>(params, text, at);
            let limits = MessageLimits::default();
            let output =
                hot::decode_output(text.as_bytes(), &limits).expect("the usual layout is that of the reference");
            let encoder = hot::OutputEncoder::new(&longarm::request::ProcessId::new(output.process_id));
            assert_eq!(encoder.message(output.seq, output.stream, &output.chunk), text.as_bytes(), "{at}");
        }
        _ => {}
    }
}

fn check_result(method: &str, result: Payload<'_>, at: &str) {
    fn check<T: Serialize + DeserializeOwned>(result: Payload<'_>, at: &str) {
        let decoded = result.decode::<T>().unwrap_or_else(|error| panic!("{at}: {error}"));
        let encoded = value(&codec::encode_response(&RequestId::Number(1), &decoded))["result"].take();
        assert_eq!(encoded, value(result.as_json().as_bytes()), "{at}");
    }

    match method {
        method::Initialize::NAME => check::<<method::Initialize as Method>::Result>(result, at),
        method::Info::NAME => check::<<method::Info as Method>::Result>(result, at),
        method::Status::NAME => check::<<method::Status as Method>::Result>(result, at),
        method::Start::NAME => check::<<method::Start as Method>::Result>(result, at),
        method::Read::NAME => check::<<method::Read as Method>::Result>(result, at),
        method::Write::NAME => check::<<method::Write as Method>::Result>(result, at),
        method::SendSignal::NAME => check::<<method::SendSignal as Method>::Result>(result, at),
        method::Terminate::NAME => check::<<method::Terminate as Method>::Result>(result, at),
        method::ConfigRead::NAME => check::<<method::ConfigRead as Method>::Result>(result, at),
        method::ReadFile::NAME => check::<<method::ReadFile as Method>::Result>(result, at),
        method::WriteFile::NAME => check::<<method::WriteFile as Method>::Result>(result, at),
        method::OpenFile::NAME => check::<<method::OpenFile as Method>::Result>(result, at),
        method::ReadBlock::NAME => check::<<method::ReadBlock as Method>::Result>(result, at),
        method::WriteBlock::NAME => check::<<method::WriteBlock as Method>::Result>(result, at),
        method::CloseFile::NAME => check::<<method::CloseFile as Method>::Result>(result, at),
        method::Canonicalize::NAME => check::<<method::Canonicalize as Method>::Result>(result, at),
        method::CreateDirectory::NAME => check::<<method::CreateDirectory as Method>::Result>(result, at),
        method::GetMetadata::NAME => check::<<method::GetMetadata as Method>::Result>(result, at),
        method::ReadDirectory::NAME => check::<<method::ReadDirectory as Method>::Result>(result, at),
        method::Walk::NAME => check::<<method::Walk as Method>::Result>(result, at),
        method::Remove::NAME => check::<<method::Remove as Method>::Result>(result, at),
        method::Copy::NAME => check::<<method::Copy as Method>::Result>(result, at),
        method::WatchMissing::NAME => check::<<method::WatchMissing as Method>::Result>(result, at),
        method::HttpRequest::NAME => check::<<method::HttpRequest as Method>::Result>(result, at),
        _ => {}
    }
}

/// Whether the reference's text tells that the parameters decoded, and their values cannot be used; or that they are of
/// members that decode keeps as they came, for whoever enforces them.
fn is_about_values(message: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "argv must not be empty",
        "cwd URI `",
        "writeId must not be empty",
        "network policy decision callback timeout",
        "invalid network proxy config",
        "missing field `windowsSandboxLevel`",
        "http/request ",
        "at least one config or requirements path is required",
    ];
    PREFIXES.iter().any(|prefix| message.starts_with(prefix))
}

fn value(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

/// Puts values of the right form in place of the placeholders, and takes the blanks out that the recording put in.
fn as_sent(recorded: &str) -> String {
    let mut text = recorded.to_owned();
    for (placeholder, value) in [
        ("file://<TMP>", "file:///scratch"),
        ("file://<HOME>", "file:///home"),
        ("file://<INSTALL_DIR>", "file:///install"),
        ("<TMP>", "/scratch"),
        ("<THREAD>", "00000000-0000-4000-8000-000000000001"),
        ("<BASE64>", "aGk="),
        ("<BASE64_BODY>", "aGk="),
        ("<HTTP_PORT>", "80"),
        ("\"<TIME_MS>\"", "1700000000000"),
    ] {
        text = text.replace(placeholder, value);
    }
    // A cut base64 text is no base64 text: what is left of it is made whole.
    while let Some(cut) = text.find("...(") {
        let end = cut + text[cut..].find(')').unwrap() + 1;
        let begin = text[..cut].rfind('"').unwrap() + 1;
        let whole = begin + (cut - begin) / 4 * 4;
        text.replace_range(whole..end, "");
    }
    let mut in_string = false;
    let mut escaped = false;
    text.retain(|character| {
        let keep = in_string || character != ' ';
        if character == '"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && character == '\\' && !escaped;
        keep
    });
    // The recording spells what is not ASCII with escapes, which the reference does not.
    if text.contains("\\u") {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let plain = unescape(&text);
        assert_eq!(value(&plain), value(&text));
        text = plain;
    }
    text
}

/// Writes escapes of printable characters as themselves.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        let escape = &rest[at..at + 6];
        let backslashes = rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        let unit = u32::from_str_radix(&escape[2..], 16);
        plain.push_str(&rest[..at]);
        match unit.ok().and_then(char::from_u32) {
            Some(character) if backslashes % 2 == 0 && character >= '\u{80}' => plain.push(character),
            _ => plain.push_str(escape),
        }
        rest = &rest[at + 6..];
    }
    plain + rest
}

fn transcripts() -> Vec<Transcript> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut transcripts = Vec::new();
    for (folder, of_reference_client) in [(root.clone(), false), (root.join("codex-client"), true)] {
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            transcripts.push(Transcript { name: path.display().to_string(), of_reference_client, lines });
        }
    }
    assert!(transcripts.len() > 80);
    transcripts
}
