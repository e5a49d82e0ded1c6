//! The rules of the layers: the protocol knows neither the runtime nor what is built on it.

use std::path::{Path, PathBuf};

/// The modules of this crate that the protocol may use.
const ALLOWED: [&str; 14] = [
    "config",
    "core",
    "env_policy",
    "error",
    "event",
    // What calls about files take and yield, but nothing that carries them out.
    "fs",
    // The same of HTTP.
    "http",
    "info",
    "path_uri",
    "request",
    "sandbox",
    "status",
    "time",
    "wire",
];

#[test]
fn the_protocol_does_not_know_the_runtime() {
    each_line(|place, line| {
        let code = line.split("//").next().unwrap_or_default();
        let forbidden =
            ["tokio", "Instant::now", "SystemTime::now", "std::thread", "std::net", "std::fs", "std::process"];
        let carry_out = ["dyn FileSystem", "FileHandle", "FileReader", "FileWriter", "MissingWatch"];
        for word in forbidden.iter().chain(&carry_out) {
            assert!(!code.contains(word), "{place} uses {word}");
        }
    });
}

#[test]
fn the_protocol_uses_nothing_that_is_built_on_it() {
    each_line(|place, line| {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let used = &code[at + "crate::".len()..];
            assert!(!used.starts_with('{'), "{place}: name each module on a line of its own");
            let module = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            assert!(ALLOWED.contains(&module), "{place} uses {module}");
        }
    });
}

/// Every line of the protocol but those of its tests, with its place.
fn each_line(check: impl Fn(&str, &str)) {
    let mut files = 0;
    for layer in ["src/core", "src/wire"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in sources(&root.join(layer)) {
            files += 1;
            let text = std::fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                check(&format!("{}:{}", file.strip_prefix(root).unwrap().display(), number + 1), line);
            }
        }
    }
    assert!(files > 20, "{files} files are not the protocol");
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "model");
        if is_test {
            continue;
        }
        if path.is_dir() {
            sources.extend(self::sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    sources
}
