use super::*;

const READ: &str = method::ReadFile::NAME;
const READ_BLOCK: &str = method::ReadBlock::NAME;
const WRITE_BLOCK: &str = method::WriteBlock::NAME;
const COPY: &str = method::Copy::NAME;

fn asked(method: &'static str) -> Asked {
    Asked { destination: Some("/b".into()), symlinks: Symlinks::Refuse, ..Asked::new(method, "/a".into()) }
}

/// Every error that has a text of its own on the wire: the method, the code, the text.
fn rows() -> Vec<(FsError, &'static str, i64, &'static str)> {
    let path = || RequestPath::from("/a");
    let walk = InvalidFsRequest::WalkLimitTooLarge { depth: 64, directories: 10_000, entries: 50_000 };
    let itself = InvalidFsRequest::CopyIntoItself { source_path: path(), destination: "/b".into() };
    let foreign = InvalidFsRequest::ForeignPath { uri: "file:///C:/x".into(), os: "linux".into() };
    let metadata = method::GetMetadata::NAME;
    vec![
        (FsError::NotFound { path: path() }, READ, -32004, "No such file or directory (os error 2)"),
        (FsError::PermissionDenied { path: path(), code: Some(13) }, READ, -32600, "Permission denied (os error 13)"),
        (
            FsError::PermissionDenied { path: path(), code: Some(1) },
            READ,
            -32600,
            "Operation not permitted (os error 1)",
        ),
        (FsError::NotAFile { path: path() }, READ, -32600, "path `/a` is not a file"),
        (FsError::NotADirectory { path: path() }, READ, -32603, "Not a directory (os error 20)"),
        (FsError::IsADirectory { path: path() }, READ, -32603, "Is a directory (os error 21)"),
        (FsError::AlreadyExists { path: path() }, READ, -32603, "File exists (os error 17)"),
        (FsError::NotEmpty { path: path() }, READ, -32603, "Directory not empty (os error 39)"),
        (FsError::SymbolicLink { path: path(), last: true }, metadata, -32600, "path contains a symbolic link"),
        (FsError::SymbolicLink { path: path(), last: true }, READ, -32603, "Symbolic link loop (os error 40)"),
        (
            FsError::TooLarge { path: path(), size: None, limit: 536_870_912 },
            READ,
            -32600,
            "file is too large to read: limit is 536870912 bytes",
        ),
        (FsError::UnknownHandle { handle: "h".into() }, READ_BLOCK, -32004, "unknown file handle `h`"),
        (FsError::HandleExists { handle: "h".into() }, READ, -32600, "file handle `h` already exists"),
        (FsError::TooManyHandles { limit: 128 }, READ, -32600, "at most 128 file handles may be open per connection"),
        (
            FsError::WrongMode { path: path(), wanted: "writing" },
            WRITE_BLOCK,
            -32603,
            "Bad file descriptor (os error 9)",
        ),
        (
            FsError::WrongMode { path: path(), wanted: "reading" },
            READ_BLOCK,
            -32603,
            "Bad file descriptor (os error 9)",
        ),
        (foreign.into(), READ, -32600, "'file:///C:/x' is invalid on 'linux'"),
        (InvalidFsRequest::WalkLimitZero.into(), READ, -32600, "filesystem walk limits must be greater than zero"),
        (
            walk.into(),
            READ,
            -32600,
            "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000",
        ),
        (
            InvalidFsRequest::CopyOfDirectory { path: path() }.into(),
            COPY,
            -32600,
            "fs/copy requires recursive: true when sourcePath is a directory",
        ),
        (itself.into(), COPY, -32600, "fs/copy cannot copy a directory to itself or one of its descendants"),
        (
            InvalidFsRequest::CopyOfSpecial { path: path() }.into(),
            COPY,
            -32600,
            "fs/copy only supports regular files, directories, and symlinks",
        ),
        (InvalidFsRequest::Other("no".into()).into(), READ, -32600, "no"),
    ]
}

/// Errors that a plain peer is told of less exactly.
fn more_rows() -> Vec<(FsError, &'static str, i64, &'static str)> {
    let path = || RequestPath::from("/a");
    let os = FsError::from_io("read", "/a", io::Error::other("of some kind"));
    vec![
        (FsError::SymbolicLink { path: path(), last: false }, READ, -32603, "Not a directory (os error 20)"),
        (
            InvalidFsRequest::BlockLength { length: 0, max: MAX_BLOCK_BYTES }.into(),
            READ_BLOCK,
            -32600,
            "file read block length must be between 1 and 1048576",
        ),
        (
            InvalidFsRequest::BlockLength { length: 2 << 20, max: MAX_BLOCK_BYTES }.into(),
            WRITE_BLOCK,
            -32600,
            "file write block length must be between 1 and 1048576",
        ),
        (
            InvalidFsRequest::BlockRange { offset: u64::MAX, length: 1 }.into(),
            WRITE_BLOCK,
            -32600,
            "file write range exceeds the signed 64-bit file offset limit",
        ),
        (
            FsError::TooLarge { path: path(), size: Some(9), limit: 8 },
            READ,
            -32600,
            "file is too large to read: limit is 8 bytes",
        ),
        (FsError::NotFound { path: "/a/b".into() }, COPY, -32004, "No such file or directory (os error 2)"),
        (SandboxError::Unsupported.into(), READ, -32602, "this executor cannot enforce a sandbox"),
        (SandboxError::Invalid { reason: "r".into() }.into(), READ, -32602, "sandbox intent is invalid: r"),
        (SandboxError::unavailable("r", "s").into(), READ, -32602, "sandbox cannot be enforced here: r; s"),
        (SandboxError::preparation("r").into(), READ, -32602, "sandbox cannot be prepared: r"),
        (SandboxError::changed("r").into(), READ, -32602, "sandbox cannot be prepared: r; try again"),
        (Busy { limit: 3 }.into(), READ, -32600, "3"),
        (FsError::Closed, READ, -32603, "the environment is closed"),
        (Disconnected { sent: Sent::NotSent, reason: "r".into() }.into(), READ, -32603, "disconnected"),
        (os, READ, -32603, "of some kind"),
    ]
}

fn shown(error: &FsError) -> String {
    format!("{error:?}")
}

#[test]
fn every_error_has_its_code_and_text_and_is_made_again_from_them() {
    for (error, method, code, text) in rows() {
        let answer = to_rpc(&error, method, Symlinks::Follow, false);
        assert_eq!((answer.code, answer.message.as_str(), &answer.data), (code, text, &None), "{error:?}");
        assert_eq!(shown(&from_rpc(answer, &asked(method))), shown(&error));
    }
}

#[test]
fn a_peer_with_the_feature_gets_the_same_error_with_all_that_it_names() {
    for (error, method, code, text) in rows().into_iter().chain(more_rows()) {
        let answer = to_rpc(&error, method, Symlinks::Follow, true);
        assert_eq!(answer.code, code, "{error:?}");
        assert!(answer.message.contains(text), "{error:?}: {}", answer.message);
        assert!(answer.data.is_some(), "{error:?}");
        let made = from_rpc(answer, &asked(method));
        match &error {
            // The system's error crosses as its text.
            FsError::Os { source, .. } => {
                let FsError::Os { source: made, path, .. } = &made else { panic!("{made:?}") };
                assert_eq!((made.to_string(), path), (source.to_string(), &RequestPath::from("/a")));
            }
            _ => assert_eq!(shown(&made), shown(&error)),
        }
    }
}

#[test]
fn what_is_no_regular_file_has_another_text_where_links_are_refused() {
    for detailed in [false, true] {
        let error = FsError::NotAFile { path: "/a".into() };
        let answer = to_rpc(&error, READ, Symlinks::Refuse, detailed);
        assert_eq!((answer.code, answer.message.as_str()), (-32600, "path is not a regular file"));
        assert_eq!(shown(&from_rpc(answer, &asked(READ))), shown(&error));
    }
}

#[test]
fn numbers_of_the_system_are_told_by_their_kind() {
    let made = |text: &str| {
        let answer = ErrorCode::INTERNAL.error(text);
        from_rpc(answer, &Asked::new(READ, "/a".into()))
    };
    for (text, kind) in [
        ("No space left on device (os error 28)", io::ErrorKind::StorageFull),
        ("Read-only file system (os error 30)", io::ErrorKind::ReadOnlyFilesystem),
        ("File too large (os error 27)", io::ErrorKind::FileTooLarge),
        ("Symbolic link loop (os error 40)", io::ErrorKind::Other),
        ("of the future (os error 4711)", io::ErrorKind::Other),
    ] {
        let FsError::Os { source, .. } = made(text) else { panic!("{text}") };
        assert_eq!((source.kind(), source.to_string().as_str()), (kind, text));
    }
}

#[test]
fn what_is_not_known_stays_as_it_came() {
    for (code, text) in
        [(-32603, "something"), (-32603, "(os error x)"), (-1, "No such file or directory (os error 2)")]
    {
        let answer = RpcError { code, message: text.into(), data: Some("[1]".into()) };
        let made = from_rpc(answer.clone(), &asked(READ));
        assert_eq!(shown(&made), shown(&FsError::Remote(answer.clone())));
        assert_eq!(to_rpc(&made, READ, Symlinks::Follow, true), answer);
    }
    let answer = ErrorCode::METHOD_NOT_FOUND.error("no");
    let FsError::Unsupported(unsupported) = from_rpc(answer, &asked(READ)) else { panic!() };
    assert_eq!(unsupported.feature, READ);
}
