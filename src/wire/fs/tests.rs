use serde_json::json;

use super::*;
use crate::wire::environment::{ConfigLayer, ConfigReadParams, ConfigReadResult};
use crate::wire::process::tests::Presence::{Defaulted, Nullable, Present, Required};
use crate::wire::process::tests::check;

#[test]
fn members_of_calls_are_required_nullable_or_defaulted_as_specified() {
    let sandbox = json!({"permissions": {}});
    let path = "file:///a";
    check::<ReadFileParams>(
        &json!({"path": path, "followSymlinks": false, "sandbox": sandbox, "longarm": {"maxBytes": 1}}),
        &[("path", Required), ("followSymlinks", Nullable), ("sandbox", Present), ("longarm", Nullable)],
    );
    check::<WriteFileParams>(
        &json!({
            "path": path, "dataBase64": "aGk=", "followSymlinks": false, "sandbox": sandbox, "longarm": {"fsync": true},
        }),
        &[
            ("path", Required),
            ("dataBase64", Required),
            ("followSymlinks", Nullable),
            ("sandbox", Present),
            ("longarm", Nullable),
        ],
    );
    check::<OpenParams>(
        &json!({"handleId": "", "path": path, "mode": "replace", "sandbox": sandbox, "longarm": {"keepContent": true}}),
        &[("handleId", Required), ("path", Required), ("mode", Defaulted), ("sandbox", Present), ("longarm", Nullable)],
    );
    check::<ReadBlockParams>(
        &json!({"handleId": "h", "offset": u64::MAX, "len": 0}),
        &[("handleId", Required), ("offset", Required), ("len", Required)],
    );
    check::<WriteBlockParams>(
        &json!({"handleId": "h", "offset": 0, "chunk": ""}),
        &[("handleId", Required), ("offset", Required), ("chunk", Required)],
    );
    check::<CloseParams>(&json!({"handleId": "h"}), &[("handleId", Required)]);
    check::<PathParams>(&json!({"path": path, "sandbox": sandbox}), &[("path", Required), ("sandbox", Present)]);
    check::<CreateDirectoryParams>(
        &json!({"path": path, "recursive": false, "followSymlinks": true, "sandbox": sandbox}),
        &[("path", Required), ("recursive", Nullable), ("followSymlinks", Nullable), ("sandbox", Present)],
    );
    check::<GetMetadataParams>(
        &json!({"path": path, "followSymlinks": false, "sandbox": sandbox}),
        &[("path", Required), ("followSymlinks", Nullable), ("sandbox", Present)],
    );
    check::<WalkParams>(
        &json!({"path": path, "options": {
            "maxDepth": 0, "maxDirectories": 0, "maxEntries": 0, "followDirectorySymlinks": true, "pruneHiddenDirectories": true,
        }, "sandbox": sandbox}),
        &[("path", Required), ("options", Required), ("sandbox", Present)],
    );
    check::<WalkOptions>(
        &json!({
            "maxDepth": 64, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": false, "pruneHiddenDirectories": true,
        }),
        &[
            ("maxDepth", Required),
            ("maxDirectories", Required),
            ("maxEntries", Required),
            ("followDirectorySymlinks", Required),
            ("pruneHiddenDirectories", Defaulted),
        ],
    );
    check::<RemoveParams>(
        &json!({"path": path, "recursive": false, "force": false, "followSymlinks": false, "sandbox": sandbox}),
        &[
            ("path", Required),
            ("recursive", Nullable),
            ("force", Nullable),
            ("followSymlinks", Nullable),
            ("sandbox", Present),
        ],
    );
    check::<CopyParams>(
        &json!({"sourcePath": path, "destinationPath": path, "recursive": false, "sandbox": sandbox}),
        &[("sourcePath", Required), ("destinationPath", Required), ("recursive", Required), ("sandbox", Present)],
    );
    check::<WatchMissingParams>(
        &json!({"watchId": 1, "missing": [path], "present": path, "sandbox": sandbox}),
        &[("watchId", Required), ("missing", Required), ("present", Present), ("sandbox", Nullable)],
    );
    check::<ConfigReadParams>(
        &json!({"cwd": path, "configPaths": [["a", "b"]], "requirementsPaths": []}),
        &[("cwd", Required), ("configPaths", Required), ("requirementsPaths", Required)],
    );
}

#[test]
fn members_of_results_are_as_specified() {
    let path = "file:///a";
    check::<ReadFileResult>(&json!({"dataBase64": "aGk="}), &[("dataBase64", Required)]);
    check::<OpenResult>(&json!({"handleId": "h"}), &[("handleId", Required)]);
    check::<ReadBlockResult>(&json!({"chunk": "", "eof": true}), &[("chunk", Required), ("eof", Required)]);
    check::<PathResult>(&json!({"path": path}), &[("path", Required)]);
    check::<Metadata>(
        &json!({
            "isDirectory": false, "isFile": true, "isSymlink": true, "size": u64::MAX, "createdAtMs": -1, "modifiedAtMs": i64::MAX,
        }),
        &[
            ("isDirectory", Required),
            ("isFile", Required),
            ("isSymlink", Defaulted),
            ("size", Defaulted),
            ("createdAtMs", Required),
            ("modifiedAtMs", Required),
        ],
    );
    check::<ReadDirectoryResult>(&json!({"entries": []}), &[("entries", Required)]);
    check::<DirectoryEntry>(
        &json!({"fileName": "a", "isDirectory": false, "isFile": true, "longarm": {"encodedName": "%FF"}}),
        &[("fileName", Required), ("isDirectory", Required), ("isFile", Required), ("longarm", Nullable)],
    );
    check::<WalkResult>(
        &json!({
            "entries": [{"path": path, "kind": "directory"}], "errors": [{"path": path, "message": "m"}], "truncated": true,
            "longarm": {"skipped": [{"path": path, "reason": "danglingSymlink"}]},
        }),
        &[("entries", Required), ("errors", Required), ("truncated", Required), ("longarm", Nullable)],
    );
    check::<WatchMissingResult>(&json!({"watching": true}), &[("watching", Required)]);
    check::<MissingChangedParams>(&json!({"watchId": 1}), &[("watchId", Required)]);
    check::<ConfigReadResult>(
        &json!({
            "userHomeDir": path, "codexHomeDir": path, "hostname": "h",
            "config": {"layers": [{"source": "s", "baseDir": path, "toml": ""}], "cloudInsertionIndex": 0},
            "requirements": {"layers": [], "cloudInsertionIndex": 0},
        }),
        &[
            ("userHomeDir", Present),
            ("codexHomeDir", Required),
            ("hostname", Present),
            ("config", Required),
            ("requirements", Required),
        ],
    );
    check::<ConfigLayer>(
        &json!({"source": "s", "baseDir": path, "toml": ""}),
        &[("source", Required), ("baseDir", Required), ("toml", Required)],
    );
}

#[test]
fn modes_are_known_by_name_and_reading_is_the_default() {
    let mode = |mode: &str| {
        serde_json::from_str::<OpenParams>(&format!(r#"{{"handleId":"h","path":"file:///a","mode":{mode}}}"#))
            .map(|params| params.mode)
            .map_err(|error| error.to_string())
    };
    assert_eq!(mode(r#""replace""#), Ok(OpenMode::Replace));
    let refusal = mode(r#""append""#).unwrap_err();
    assert!(refusal.starts_with("unknown variant `append`, expected `read` or `replace`"), "{refusal}");
    assert!(mode("null").is_err());
    let params = serde_json::from_str::<OpenParams>(r#"{"handleId":"h","path":"file:///a"}"#).unwrap();
    assert_eq!(params.mode, OpenMode::Read);
}

#[test]
fn bad_base64_of_a_whole_file_is_told_later() {
    let params =
        |data: &str| serde_json::from_str::<WriteFileParams>(&format!(r#"{{"path":"file:///a","dataBase64":{data}}}"#));
    assert_eq!(params(r#""aGk=""#).unwrap().data_base64.0.unwrap().0, "hi");
    let fault = params(r#""!!""#).unwrap().data_base64.0.unwrap_err();
    assert_eq!(fault.to_string(), "Invalid symbol 33, offset 0.");
    assert!(params("1").is_err() && params("null").is_err());
    let block = serde_json::from_str::<WriteBlockParams>(r#"{"handleId":"h","offset":0,"chunk":"!!"}"#);
    assert!(block.is_err(), "everywhere else it is a fault of the parameters");
}
