//! The names of methods and notifications, and the types of what they carry.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::environment::{ConfigReadParams, ConfigReadResult, EnvironmentInfo, StatusResult};
use super::extension::{AckParams, CloseStdinParams, CloseStdinResult, ListResult, ResizeParams, SignalByNameParams};
use super::fs;
use super::http;
use super::initialize::{self, InitializeParams, InitializeResult};
use super::process::{
    ClosedParams, ExitedParams, OutputParams, ReadParams, ReadResult, SignalParams, StartParams, StartResult,
    TerminateParams, TerminateResult, WriteParams, WriteResult,
};

/// A method: what a request names, carries, and is answered with.
pub trait Method {
    /// The name on the wire.
    const NAME: &'static str;
    /// The family, as it stands in errors about the state of the handshake.
    const FAMILY: &'static str;
    /// Its parameters.
    type Params: Serialize + DeserializeOwned;
    /// Its result.
    type Result: Serialize + DeserializeOwned;
}

/// A notification: what it names and carries.
pub trait Notification {
    /// The name on the wire.
    const NAME: &'static str;
    /// Its parameters.
    type Params: Serialize + DeserializeOwned;
}

macro_rules! methods {
    ($($(#[$doc:meta])* $marker:ident = $name:literal ($family:literal): $params:ty => $result:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $marker {}

        impl Method for $marker {
            const NAME: &'static str = $name;
            const FAMILY: &'static str = $family;
            type Params = $params;
            type Result = $result;
        }
    )*
        /// The names of all methods.
        pub const METHODS: &[&str] = &[$($name),*];
    };
}

macro_rules! notifications {
    ($($(#[$doc:meta])* $marker:ident = $name:literal: $params:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $marker {}

        impl Notification for $marker {
            const NAME: &'static str = $name;
            type Params = $params;
        }
    )*
        /// The names of all notifications.
        pub const NOTIFICATIONS: &[&str] = &[$($name),*];
    };
}

methods! {
    /// Opens or resumes a session. Comes before all others.
    Initialize = "initialize" ("initialize"): InitializeParams => InitializeResult;
    /// Tells what the place is.
    Info = "environment/info" ("environment info"): NoParams => EnvironmentInfo;
    /// Asks for a sign of life.
    Status = "environment/status" ("environment status"): NoParams => StatusResult;
    /// Starts a process.
    Start = "process/start" ("exec"): StartParams => StartResult;
    /// Reads retained output and the state of a process.
    Read = "process/read" ("exec"): ReadParams => ReadResult;
    /// Writes to standard input.
    Write = "process/write" ("exec"): WriteParams => WriteResult;
    /// Interrupts a process.
    SendSignal = "process/signal" ("exec"): SignalParams => Empty;
    /// Ends a process.
    Terminate = "process/terminate" ("exec"): TerminateParams => TerminateResult;
    /// Asks for configuration that is kept at the place.
    ConfigRead = "environmentConfig/read" ("environment config"): ConfigReadParams => ConfigReadResult;
    /// Reads a whole file.
    ReadFile = "fs/readFile" ("filesystem"): fs::ReadFileParams => fs::ReadFileResult;
    /// Writes a whole file.
    WriteFile = "fs/writeFile" ("filesystem"): fs::WriteFileParams => Empty;
    /// Opens a file for blocks.
    OpenFile = "fs/open" ("filesystem"): fs::OpenParams => fs::OpenResult;
    /// Reads a block.
    ReadBlock = "fs/readBlock" ("filesystem"): fs::ReadBlockParams => fs::ReadBlockResult;
    /// Writes a block.
    WriteBlock = "fs/writeBlock" ("filesystem"): fs::WriteBlockParams => Empty;
    /// Closes a file.
    CloseFile = "fs/close" ("filesystem"): fs::CloseParams => Empty;
    /// Resolves all symbolic links of a path.
    Canonicalize = "fs/canonicalize" ("filesystem"): fs::PathParams => fs::PathResult;
    /// Creates a directory.
    CreateDirectory = "fs/createDirectory" ("filesystem"): fs::CreateDirectoryParams => Empty;
    /// Tells what a path is.
    GetMetadata = "fs/getMetadata" ("filesystem"): fs::GetMetadataParams => fs::Metadata;
    /// Lists a directory.
    ReadDirectory = "fs/readDirectory" ("filesystem"): fs::PathParams => fs::ReadDirectoryResult;
    /// Lists a tree, within bounds.
    Walk = "fs/walk" ("filesystem"): fs::WalkParams => fs::WalkResult;
    /// Removes a file or a directory.
    Remove = "fs/remove" ("filesystem"): fs::RemoveParams => Empty;
    /// Copies a file or a directory.
    Copy = "fs/copy" ("filesystem"): fs::CopyParams => Empty;
    /// Watches for paths that do not exist.
    WatchMissing = "fs/watchMissing" ("filesystem"): fs::WatchMissingParams => fs::WatchMissingResult;
    /// Makes an HTTP request.
    HttpRequest = "http/request" ("http"): http::RequestParams => http::RequestResult;
    /// Closes standard input.
    CloseStdin = "longarm/process/closeStdin" ("exec"): CloseStdinParams => CloseStdinResult;
    /// Sets the size of a terminal.
    Resize = "longarm/process/resize" ("exec"): ResizeParams => Empty;
    /// Sends a signal by name.
    SendSignalByName = "longarm/process/signal" ("exec"): SignalByNameParams => Empty;
    /// Lists the processes of the session.
    List = "longarm/process/list" ("exec"): NoParams => ListResult;
    /// Makes a new directory that only its owner can enter.
    PrivateDirectory = "longarm/fs/privateDirectory" ("filesystem"): NoParams => fs::PathResult;
}

notifications! {
    /// Ends the handshake. From the client.
    Initialized = "initialized": initialize::Initialized;
    /// Acknowledges events. From the client.
    Ack = "longarm/process/ack": AckParams;
    /// Bytes that a process wrote. From the server.
    Output = "process/output": OutputParams;
    /// A process has ended. From the server.
    Exited = "process/exited": ExitedParams;
    /// All streams of a process have ended. From the server.
    Closed = "process/closed": ClosedParams;
    /// A watched path may exist now. From the server.
    MissingChanged = "fs/missingChanged": fs::MissingChangedParams;
    /// Bytes of the body of a response. From the server.
    BodyDelta = "http/request/bodyDelta": http::BodyDeltaParams;
    /// How much of a body may be sent. To a server.
    HttpCredit = "longarm/http/credit": http::CreditParams;
    /// Nobody waits for a request, or for the rest of its body, any more. To a server.
    HttpCancel = "longarm/http/cancel": http::CancelParams;
}

/// No parameters: `null` or an object, whose members are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoParams;

impl Serialize for NoParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for NoParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EmptyVisitor("no parameters")).map(|()| Self)
    }
}

/// A result without data: an object, whose members are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Empty;

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EmptyVisitor("an empty result")).map(|()| Self)
    }
}

struct EmptyVisitor(&'static str);

impl<'de> Visitor<'de> for EmptyVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
