//! The files of a place behind a connection.
//!
//! Each call is one request to the peer, but for whole files that are read: those above a few MiB come in blocks, several
//! on their way at a time, so that nothing else on the connection waits for long.
//!
//! # Towards a plain peer
//!
//! | asked for | what happens |
//! | --- | --- |
//! | [`OpenMode::Update`], [`FileSystem::private_directory`], `fsync` | `Unsupported`, before anything is sent |
//! | a recursive removal that refuses links | `Unsupported`, before anything is sent |
//! | a whole file | its size is asked for first, since the peer knows no limit |
//! | a name that is not Unicode | comes with replacement characters, and says so ([`DirectoryEntry::is_lossy`]) |
//! | blocks under a sandbox | `Unsupported`, if the peer does not announce `sandboxedFileStreaming` |
//! | a whole file under a sandbox | comes in one message from such a peer, up to 48 MiB |
//! | an error | its path is the one that was asked for, also where the peer means another one |

mod handle;
mod whole;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{
    CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileHandle, FileSystem, FsError, InvalidFsRequest,
    MAX_MISSING_PATHS, Metadata, MissingWatch, OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, Walk,
    WalkOptions, WriteOptions,
};
use crate::backend::remote::watches::Wanted;
use crate::backend::remote::{Remote, result_of};
use crate::core::session::{Answer, ConnectionState, Failure, LinkId};
use crate::error::{Sent, Unsupported};
use crate::info::{EnvironmentInfo, Features};
use crate::path_uri::{NativePath, PathConvention, PathUri};
use crate::sandbox::{SandboxError, SandboxIntent};
use crate::wire::codec::hot;
use crate::wire::fs_error::{self, Asked};
use crate::wire::method::{self, Method, NoParams};
use crate::wire::process::RawObject;
use crate::wire::{Base64, RequestId, follow_symlinks, fs};

/// The files of the place behind a [`Remote`].
#[derive(Clone, Debug)]
pub(crate) struct RemoteFileSystem {
    remote: Remote,
    peer: Arc<OnceLock<Arc<Peer>>>,
    /// Whether a call on a connection that is not made yet fails.
    fail_fast: bool,
    /// What every call carries.
    sandbox: Option<RawObject>,
}

/// What the peer is.
#[derive(Debug)]
struct Peer {
    features: Features,
    info: EnvironmentInfo,
}

impl Peer {
    fn has(&self, flag: &str) -> bool {
        self.info.capabilities.iter().any(|name| name == flag)
    }

    /// How its paths are to be read; that of `path`, if it does not say.
    fn convention(&self, path: &PathUri) -> PathConvention {
        let said = self.info.platform_os.as_deref().map(PathConvention::of_os);
        said.or_else(|| path.convention()).unwrap_or(PathConvention::Posix)
    }
}

impl RemoteFileSystem {
    pub(crate) fn new(remote: Remote) -> Self {
        Self { remote, peer: Arc::default(), fail_fast: false, sandbox: None }
    }

    /// The connection without which a call is not made: one that fails fast waits for none.
    fn on(&self) -> Result<Option<LinkId>, FsError> {
        if !self.fail_fast {
            return Ok(None);
        }
        match self.remote.present_connection() {
            Some(link) => Ok(Some(link)),
            None => Err(self.remote.not_connected(Sent::NotSent).into()),
        }
    }

    /// What the peer is, once it has said so.
    async fn peer(&self) -> Result<Arc<Peer>, FsError> {
        self.on()?;
        if let Some(peer) = self.peer.get() {
            return Ok(Arc::clone(peer));
        }
        if !self.fail_fast {
            return self.ask_what_it_is().await;
        }
        let mut connection = self.remote.connection();
        tokio::select! {
            biased;
            peer = self.ask_what_it_is() => peer,
            _ = connection.wait_for(|state| matches!(state, ConnectionState::Recovering { .. }) || state.is_over()) => {
                Err(self.remote.not_connected(Sent::NotSent).into())
            }
        }
    }

    async fn ask_what_it_is(&self) -> Result<Arc<Peer>, FsError> {
        if self.remote.ready().await.is_err() {
            return Err(self.remote.not_connected(Sent::NotSent).into());
        }
        let features = self.remote.agreed_features().unwrap_or_default();
        let info = crate::backend::ExecBackend::info(&self.remote).await.map_err(|error| match error {
            crate::error::CallError::Unsupported(error) => error.into(),
            crate::error::CallError::Busy(error) => error.into(),
            crate::error::CallError::Disconnected(error) => error.into(),
            crate::error::CallError::Peer(error) => error.into(),
            crate::error::CallError::Remote(error) => FsError::Remote(error),
            _ => FsError::Closed,
        })?;
        let peer = Arc::new(Peer { features, info });
        Ok(Arc::clone(self.peer.get_or_init(|| peer)))
    }

    /// Makes the call that `asked` names.
    async fn call<M>(&self, asked: &Asked, params: M::Params) -> Result<M::Result, FsError>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        self.call_over::<M>(self.on()?, asked, params).await
    }

    async fn call_over<M>(&self, on: Option<LinkId>, asked: &Asked, params: M::Params) -> Result<M::Result, FsError>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        self.remote.ask_over::<M>(on, params).await.map_err(|failure| error(failure, asked))
    }
}

#[async_trait::async_trait]
impl FileSystem for RemoteFileSystem {
    async fn read(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError> {
        self.read_whole(path, options).await
    }

    async fn write(&self, path: RequestPath, data: Bytes, options: WriteOptions) -> Result<(), FsError> {
        let peer = self.peer().await?;
        let limit = whole::MAX_MESSAGE_FILE_BYTES;
        if data.len() as u64 > limit {
            return Err(FsError::TooLarge { path, size: Some(data.len() as u64), limit });
        }
        require(!options.fsync || peer.features.fs, "waiting for the storage")?;
        let params = fs::WriteFileParams {
            path: uri(&path, &peer)?,
            data_base64: fs::LateBase64(Ok(Base64(data))),
            follow_symlinks: follow_symlinks(options.symlinks),
            sandbox: self.sandbox.clone(),
            longarm: options.fsync.then_some(fs::WriteFileExtension { fsync: true }),
        };
        let asked = Asked { symlinks: options.symlinks, ..Asked::new(method::WriteFile::NAME, path) };
        let encode = move |id: &RequestId| hot::encode_write_file(id, &params);
        let answer = self.remote.ask_on(self.on()?, method::WriteFile::NAME, false, encode).await;
        let done = answer.and_then(|answer| result_of::<method::WriteFile>(&answer));
        done.map(drop).map_err(|failure| error(failure, &asked))
    }

    async fn open(&self, path: RequestPath, mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError> {
        let file: Box<dyn FileHandle> = Box::new(self.open_file(path, mode).await?);
        Ok(file)
    }

    async fn create_directory(&self, path: RequestPath, options: CreateDirectoryOptions) -> Result<(), FsError> {
        let peer = self.peer().await?;
        let params = fs::CreateDirectoryParams {
            path: uri(&path, &peer)?,
            recursive: Some(options.recursive),
            follow_symlinks: follow_symlinks(options.symlinks),
            sandbox: self.sandbox.clone(),
        };
        let asked = Asked { symlinks: options.symlinks, ..Asked::new(method::CreateDirectory::NAME, path) };
        self.call::<method::CreateDirectory>(&asked, params).await.map(drop)
    }

    async fn metadata(&self, path: RequestPath, symlinks: Symlinks) -> Result<Metadata, FsError> {
        let peer = self.peer().await?;
        let params = fs::GetMetadataParams {
            path: uri(&path, &peer)?,
            follow_symlinks: follow_symlinks(symlinks),
            sandbox: self.sandbox.clone(),
        };
        let asked = Asked { symlinks, ..Asked::new(method::GetMetadata::NAME, path) };
        self.call::<method::GetMetadata>(&asked, params).await.map(Into::into)
    }

    async fn canonicalize(&self, path: RequestPath) -> Result<PathUri, FsError> {
        let peer = self.peer().await?;
        let params = fs::PathParams { path: uri(&path, &peer)?, sandbox: self.sandbox.clone() };
        let asked = Asked::new(method::Canonicalize::NAME, path);
        self.call::<method::Canonicalize>(&asked, params).await.map(|result| result.path)
    }

    async fn read_directory(&self, path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError> {
        let peer = self.peer().await?;
        let directory = uri(&path, &peer)?;
        let params = fs::PathParams { path: directory.clone(), sandbox: self.sandbox.clone() };
        let asked = Asked::new(method::ReadDirectory::NAME, path);
        let result = self.call::<method::ReadDirectory>(&asked, params).await?;
        let convention = peer.convention(&directory);
        let entries: Result<_, _> = result.entries.into_iter().map(|entry| entry.into_entry(convention)).collect();
        entries.map_err(|reason| bad_result(method::ReadDirectory::NAME, reason))
    }

    async fn walk(&self, path: RequestPath, options: WalkOptions) -> Result<Walk, FsError> {
        let peer = self.peer().await?;
        let root = uri(&path, &peer)?;
        let params = fs::WalkParams { path: root.clone(), options: options.into(), sandbox: self.sandbox.clone() };
        let result = self.call::<method::Walk>(&Asked::new(method::Walk::NAME, path), params).await?;
        let walk = result.into_walk(&root, peer.convention(&root));
        walk.map_err(|reason| bad_result(method::Walk::NAME, reason))
    }

    async fn remove(&self, path: RequestPath, options: RemoveOptions) -> Result<(), FsError> {
        let peer = self.peer().await?;
        let refuses_links = options.recursive && options.symlinks == Symlinks::Refuse;
        require(!refuses_links || peer.features.fs, "a recursive removal that refuses links")?;
        let params = fs::RemoveParams {
            path: uri(&path, &peer)?,
            recursive: Some(options.recursive),
            force: Some(options.force),
            follow_symlinks: follow_symlinks(options.symlinks),
            sandbox: self.sandbox.clone(),
        };
        let asked = Asked { symlinks: options.symlinks, ..Asked::new(method::Remove::NAME, path) };
        self.call::<method::Remove>(&asked, params).await.map(drop)
    }

    async fn copy(&self, source: RequestPath, destination: RequestPath, options: CopyOptions) -> Result<(), FsError> {
        let peer = self.peer().await?;
        let params = fs::CopyParams {
            source_path: uri(&source, &peer)?,
            destination_path: uri(&destination, &peer)?,
            recursive: options.recursive,
            sandbox: self.sandbox.clone(),
        };
        let asked = Asked { destination: Some(destination), ..Asked::new(method::Copy::NAME, source) };
        self.call::<method::Copy>(&asked, params).await.map(drop)
    }

    async fn watch_missing(
        &self,
        missing: Vec<RequestPath>,
        present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError> {
        let peer = self.peer().await?;
        let Some(first) = missing.first().cloned().filter(|_| peer.has("fsWatchMissing")) else { return Ok(None) };
        // A path that the place cannot have is one that it cannot watch.
        let Ok(missing) = missing.iter().map(|path| uri(path, &peer)).collect() else { return Ok(None) };
        let Ok(present) = present.map(|path| uri(&path, &peer)).transpose() else { return Ok(None) };
        let wanted = Wanted { missing, present, sandbox: self.sandbox.clone() };
        let asked = Asked::new(method::WatchMissing::NAME, first);
        let ask = |watch_id, Wanted { missing, present, sandbox }| {
            let params = fs::WatchMissingParams { watch_id, missing, present, sandbox };
            let asked = &asked;
            async move {
                // A watch belongs to its connection, so that none is made over the next one for nobody.
                let on = match self.on()? {
                    None => self.remote.standing_connection().await?,
                    Some(on) => on,
                };
                let watch = self.call_over::<method::WatchMissing>(Some(on), asked, params).await;
                watch.map(|result| result.watching)
            }
        };
        let changed = self.remote.watches().add(wanted, MAX_MISSING_PATHS, ask).await?;
        let remote = self.remote.clone();
        Ok(changed.map(|changed| {
            MissingWatch::new(async move {
                match changed.await {
                    Ok(()) => Ok(()),
                    Err(_) => Err(remote.not_connected(Sent::Unknown).into()),
                }
            })
        }))
    }

    async fn temp_dir(&self) -> Result<PathUri, FsError> {
        let peer = self.peer().await?;
        require(peer.info.temp_dir.is_some(), "naming a temporary directory")?;
        peer.info.temp_dir.clone().ok_or(FsError::Closed)
    }

    async fn private_directory(&self) -> Result<PathUri, FsError> {
        let peer = self.peer().await?;
        require(peer.features.fs, "a private directory")?;
        // The method has no such member.
        require(self.sandbox.is_none(), "a private directory under a sandbox")?;
        let asked = Asked::new(method::PrivateDirectory::NAME, "".into());
        self.call::<method::PrivateDirectory>(&asked, NoParams).await.map(|result| result.path)
    }

    fn with_sandbox(self: Arc<Self>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
        if self.sandbox.is_some() {
            return Err(SandboxError::invalid(
                "these files are under a sandbox already; begin with those of the place",
            )
            .into());
        }
        let sandbox = RawObject::from_json(&intent.to_json()).map_err(SandboxError::invalid)?;
        Ok(Arc::new(Self { sandbox: Some(sandbox), ..Self::clone(&self) }))
    }

    fn fail_fast(&self) -> Option<Arc<dyn FileSystem>> {
        (!self.fail_fast).then(|| Arc::new(Self { fail_fast: true, ..self.clone() }) as Arc<dyn FileSystem>)
    }
}

/// The form of a path on the wire.
fn uri(path: &RequestPath, peer: &Peer) -> Result<PathUri, InvalidFsRequest> {
    let native = match path {
        RequestPath::Uri(uri) => return Ok(uri.clone()),
        RequestPath::Native(native) => native,
    };
    let bytes = native.as_os_str().as_encoded_bytes();
    if bytes.contains(&0) {
        return Err(InvalidFsRequest::Nul { path: path.clone() });
    }
    let convention = match peer.info.platform_os.as_deref() {
        Some(os) => PathConvention::of_os(os),
        None if bytes.starts_with(b"/") => PathConvention::Posix,
        None => PathConvention::Windows,
    };
    let native = match (convention, native.to_str()) {
        (_, Some(text)) => NativePath::from_text(text, convention),
        // On a POSIX host these are the bytes themselves.
        (PathConvention::Posix, None) if cfg!(unix) => NativePath::Posix(bytes.to_vec()),
        (_, None) => {
            let text = format!("{native:?} is not Unicode text, which a path of this place needs");
            return Err(InvalidFsRequest::Other(text));
        }
    };
    PathUri::from_native(&native).map_err(|error| match error.into() {
        InvalidFsRequest::RelativePath { .. } => InvalidFsRequest::RelativePath { path: path.clone() },
        other => other,
    })
}

/// Refuses what the peer does not have.
fn require(present: bool, feature: &'static str) -> Result<(), Unsupported> {
    if present { Ok(()) } else { Err(Unsupported { feature, place: "the peer".into() }) }
}

/// The error that a call of `asked` ended in.
fn error(failure: Failure, asked: &Asked) -> FsError {
    match failure {
        Failure::Remote(answer) => fs_error::from_rpc(answer, asked),
        Failure::Unsupported(error) => error.into(),
        Failure::Busy(error) => error.into(),
        Failure::Disconnected(error) => error.into(),
        Failure::Peer(error) => error.into(),
        Failure::Closed => FsError::Closed,
        other => crate::error::PeerMisbehaved::Protocol(format!("an error of another kind: {other:?}")).into(),
    }
}

fn bad_result(method: &str, reason: String) -> FsError {
    crate::error::PeerMisbehaved::BadResult { method: method.into(), reason }.into()
}

/// Bytes of a file, and for a block whether the file ends there.
fn file_bytes(answer: Answer) -> Option<(Bytes, Option<bool>)> {
    match answer {
        Answer::FileBytes { bytes, eof } => Some((bytes, eof)),
        _ => None,
    }
}
