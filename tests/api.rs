//! What this crate promises: the names and signatures that a host can use, as a list that changes only on purpose, and
//! without types of crates that a host does not know.
//!
//! The list is made from the sources. That is exact, since the compiler warns of everything that is public and cannot be
//! reached (`unreachable_pub`). After a change that is meant, `LONGARM_UPDATE_API=1 cargo test --test api` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Crates whose types may stand in a public signature.
const KNOWN: &[&str] = &["std", "core", "crate", "self", "super", "bytes", "futures_core", "futures_sink"];

/// Other names that may, with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("AsyncRead", "the runtime's own trait for what is read"),
    ("Span", "of `tracing`, behind the feature of that name"),
    ("AsyncWrite", "the runtime's own trait for what is written"),
    ("Deserialize", "what `wire` describes can be decoded by other means"),
    ("Serialize", "what `wire` describes can be encoded by other means"),
    ("DeserializeOwned", "what `wire` describes can be decoded by other means"),
];

#[test]
fn the_public_api_is_as_it_was() {
    let mut list = String::new();
    for (path, source) in sources() {
        let items = items(&source);
        if !items.is_empty() {
            writeln!(list, "{path}").unwrap();
        }
        for item in items {
            writeln!(list, "    {}", item.lines.join("\n        ")).unwrap();
        }
    }
    let file = root().join("tests/api.txt");
    if std::env::var_os("LONGARM_UPDATE_API").is_some() {
        std::fs::write(&file, &list).unwrap();
    }
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), list.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    let changes: Vec<_> = gone.chain(added).collect();
    assert!(changes.is_empty(), "if this is meant, set LONGARM_UPDATE_API:\n{}", changes.join("\n"));
    assert_eq!(before, list, "in the same order");
}

#[test]
fn no_type_of_another_crate_is_in_the_public_api() {
    let mut leaks = Vec::new();
    for (path, source) in sources() {
        // An adapter is for the types of another crate, and named after it.
        if path.ends_with("transport/axum.rs") {
            continue;
        }
        let foreign = foreign_names(&source);
        for item in items(&source) {
            // Private fields are shown to nobody.
            for line in item.lines.iter().filter(|line| item.is_shown(line)) {
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                // The name of a variant is its own.
                for word in words.skip(usize::from(item.is_enum())).filter(|word| word.contains(char::is_uppercase)) {
                    let (first, last) = (word.split("::").next().unwrap(), word.rsplit("::").next().unwrap());
                    let from = if word.contains("::") && CRATES.contains(&first) { Some(&first) } else { None };
                    let from = from.copied().or_else(|| foreign.get(first).map(String::as_str));
                    if let Some(from) = from.filter(|_| !ALLOWED.iter().any(|(name, _)| *name == last)) {
                        leaks.push(format!("{path}: {word} of {from} in: {line}"));
                    }
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}

#[test]
fn a_leak_would_be_found() {
    let source = "use tokio::sync::{mpsc, watch as look};\nuse std::io;\npub struct A {\n    secret: mpsc::Sender<u8>,\n    \
                  pub open: look::Sender<u8>,\n}\npub struct B(mpsc::Sender<u8>);\nimpl A {\n    pub fn f(\n        &self,\n    ) -> io::Result<u8> {\n    }\n}\n";
    assert_eq!(foreign_names(source).into_keys().collect::<Vec<_>>(), ["look", "mpsc"]);
    let items = items(source);
    assert_eq!(items.len(), 3);
    let shown: Vec<_> = items[0].lines.iter().filter(|line| items[0].is_shown(line)).cloned().collect();
    assert_eq!(shown, ["pub struct A {", "pub open: look::Sender<u8>,"]);
    assert_eq!(items[1].lines, ["pub struct B(_);"]);
    assert_eq!(items[2].lines, ["pub fn f( &self, ) -> io::Result<u8> {"]);
}

/// Something public: its signature, and the lines of its body that are part of it.
struct Item {
    lines: Vec<String>,
    /// All of its body is public, as that of a trait or an enum.
    whole: bool,
}

impl Item {
    fn is_enum(&self) -> bool {
        self.lines[0].starts_with("pub enum ")
    }

    fn is_shown(&self, line: &str) -> bool {
        self.whole || line.starts_with("pub ")
    }
}

fn items(source: &str) -> Vec<Item> {
    let lines: Vec<&str> = source.lines().collect();
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let text = line.trim_start();
        if !text.starts_with("pub ") || text.starts_with("pub mod ") {
            at += 1;
            continue;
        }
        let indent = line.len() - text.len();
        let mut signature = Vec::new();
        let is_field = text.ends_with(',') && !text.contains('(');
        while let Some(line) = lines.get(at) {
            at += 1;
            signature.push(line.trim());
            if is_field || line.ends_with('{') || line.ends_with(';') || line.ends_with('}') {
                break;
            }
        }
        let mut signature = signature.join(" ");
        if signature.starts_with("pub struct ") && signature.ends_with(");") && !signature.contains("(pub ") {
            let open = signature.find('(').unwrap();
            signature.replace_range(open.., "(_);");
        }
        if is_field {
            // Listed with its structure.
            continue;
        }
        let has_body = ["pub struct ", "pub enum ", "pub trait "].iter().any(|kind| signature.starts_with(kind));
        let whole = !has_body || !signature.starts_with("pub struct ");
        let mut item = Item { lines: vec![signature], whole };
        if has_body && item.lines[0].ends_with('{') {
            let (end, inner) = (format!("{}}}", " ".repeat(indent)), " ".repeat(indent + 4));
            while let Some(line) = lines.get(at).filter(|line| **line != end) {
                at += 1;
                let member = line.strip_prefix(&inner).filter(|rest| !rest.starts_with([' ', '/', '#', '}', ')']));
                item.lines.extend(member.map(str::to_owned));
            }
            if !whole {
                item.lines.retain(|line| line.starts_with("pub "));
            }
        }
        items.push(item);
    }
    items
}

/// Names that a file takes from crates that are not known to a host, and where from.
fn foreign_names(source: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for part in source.split("\nuse ").skip(1).chain(source.strip_prefix("use ")) {
        let path = part.split(';').next().unwrap_or_default();
        let from = path.split("::").next().unwrap_or_default();
        if KNOWN.contains(&from) {
            continue;
        }
        for name in path.rsplit("::").next().unwrap_or_default().split([',', '{', '}']) {
            let name = name.rsplit(" as ").next().unwrap_or_default().trim();
            if !name.is_empty() && name != "self" && name != "_" {
                names.insert(name.to_owned(), from.to_owned());
            }
        }
    }
    names
}

/// The library's sources without their tests, by path.
fn sources() -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if ["tests", "model", "bin", "cli"].contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                // Tests stand last.
                let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
                sources.insert(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), text);
            }
        }
    }
    assert!(sources.len() > 100, "{} files are not the library", sources.len());
    sources
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The crates that are written out where they are used.
const CRATES: &[&str] = &[
    "base64_simd",
    "futures_util",
    "httparse",
    "hyper",
    "libc",
    "memchr",
    "metrics",
    "reqwest",
    "rustix",
    "serde",
    "serde_json",
    "sha2",
    "socket2",
    "tokio",
    "tokio_tungstenite",
    "tracing",
    "tungstenite",
    "url",
    "uuid",
    "wildmatch",
    "windows",
];
