//! An open file on the other side.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::{Peer, RemoteFileSystem, error, file_bytes, require, uri};
use crate::backend::remote::{Remote, result_of};
use crate::core::session::{Failure, LinkId};
use crate::fs::{Block, FileHandle, FsError, InvalidFsRequest, MAX_BLOCK_BYTES, OpenMode, RequestPath};
use crate::wire::codec::{self, hot};
use crate::wire::fs::{self, CloseParams, OpenExtension, OpenParams, ReadBlockParams, WriteBlockParams};
use crate::wire::fs_error::Asked;
use crate::wire::method::{self, Method};
use crate::wire::{Base64, RequestId};

/// An open file. When it is dropped, the peer is told to close it.
#[derive(Debug)]
pub(super) struct RemoteFile {
    remote: Remote,
    id: String,
    path: RequestPath,
    /// The connection that the peer's file belongs to, once it is open.
    on: Option<LinkId>,
    closed: AtomicBool,
}

impl RemoteFileSystem {
    pub(super) async fn open_file(&self, path: RequestPath, mode: OpenMode) -> Result<RemoteFile, FsError> {
        let peer = self.peer().await?;
        let (wire_mode, keep_content) = match mode {
            OpenMode::Read => (fs::OpenMode::Read, false),
            OpenMode::Replace => (fs::OpenMode::Replace, false),
            OpenMode::Update => (fs::OpenMode::Replace, true),
        };
        require(wire_mode == fs::OpenMode::Read || peer.has("fileWriteStreaming"), "writing to an open file")?;
        require(self.may_open_files(&peer), "an open file under a sandbox")?;
        require(!keep_content || peer.features.fs, "opening a file for writing without emptying it")?;
        self.open_as(path, wire_mode, keep_content.then_some(OpenExtension { keep_content }), &peer).await
    }

    /// Whether the peer opens files under the sandbox that there is, if any.
    pub(super) fn may_open_files(&self, peer: &Peer) -> bool {
        self.sandbox.is_none() || peer.has("sandboxedFileStreaming")
    }

    async fn open_as(
        &self,
        path: RequestPath,
        mode: fs::OpenMode,
        longarm: Option<OpenExtension>,
        peer: &Peer,
    ) -> Result<RemoteFile, FsError> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let params =
            OpenParams { handle_id: id.clone(), path: uri(&path, peer)?, mode, sandbox: self.sandbox.clone(), longarm };
        let asked = Asked::new(method::OpenFile::NAME, path.clone());
        // Made before the answer is there, so that the peer's file is closed also when nobody waits any more.
        let mut file = RemoteFile { remote: self.remote.clone(), id, path, on: None, closed: AtomicBool::new(false) };
        match self.call::<method::OpenFile>(&asked, params).await {
            Ok(_) => {
                // If that one broke meanwhile, the next one does not know the file, and says so.
                file.on = self.remote.last_connection();
                Ok(file)
            }
            Err(error) => {
                // Of an answer that makes no sense nobody knows whether it means an open file.
                file.closed.store(!matches!(error, FsError::Peer(_)), Ordering::Release);
                Err(error)
            }
        }
    }
}

impl RemoteFile {
    fn check_open(&self) -> Result<(), FsError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(self.unknown());
        }
        Ok(())
    }

    /// Nobody but the peer knows the id.
    fn unknown(&self) -> FsError {
        let handle = match &self.path {
            RequestPath::Native(path) => path.to_string_lossy().into_owned(),
            RequestPath::Uri(uri) => uri.to_string(),
        };
        FsError::UnknownHandle { handle }
    }

    fn failed(&self, method: &'static str, failure: Failure) -> FsError {
        match error(failure, &Asked::new(method, self.path.clone())) {
            FsError::UnknownHandle { .. } => self.unknown(),
            error => error,
        }
    }
}

#[async_trait::async_trait]
impl FileHandle for RemoteFile {
    async fn read_block(&self, offset: u64, length: usize) -> Result<Block, FsError> {
        check_length(length)?;
        self.check_open()?;
        if i64::try_from(offset).is_err() {
            // No file reaches that far, and not every place knows what to say to it.
            return Ok(Block::new(Bytes::new(), true));
        }
        let params = ReadBlockParams { handle_id: self.id.clone(), offset, len: length as u64 };
        let encode = move |id: &RequestId| codec::encode_request::<method::ReadBlock>(id, &params);
        let answer = self.remote.ask_on(self.on, method::ReadBlock::NAME, false, encode).await;
        let block = answer.and_then(|answer| match file_bytes(answer.clone()) {
            Some((bytes, Some(eof))) => Ok(Block::new(bytes, eof)),
            _ => result_of::<method::ReadBlock>(&answer).map(|result| Block::new(result.chunk.into(), result.eof)),
        });
        let block = block.map_err(|failure| self.failed(method::ReadBlock::NAME, failure));
        let block = block.and_then(|block| block.checked(length));
        // Nothing was sent by a call that found no place, so that the peer has not closed the file; and one whose connection is
        // gone stays so.
        if let Err(error) = &block
            && !matches!(error, FsError::InvalidRequest(_) | FsError::Busy(_) | FsError::Disconnected(_))
            && !self.closed.swap(true, Ordering::AcqRel)
            && matches!(error, FsError::Peer(_))
        {
            // The peer does not know that this failed.
            self.remote.tell_cleanup::<method::CloseFile>(self.on, CloseParams { handle_id: self.id.clone() });
        }
        block
    }

    async fn write_block(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        let length = data.len();
        check_length(length)?;
        if offset.checked_add(length as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(InvalidFsRequest::BlockRange { offset, length }.into());
        }
        self.check_open()?;
        let params = WriteBlockParams { handle_id: self.id.clone(), offset, chunk: Base64(data) };
        let encode = move |id: &RequestId| hot::encode_write_block(id, &params);
        let answer = self.remote.ask_on(self.on, method::WriteBlock::NAME, false, encode).await;
        let done = answer.and_then(|answer| result_of::<method::WriteBlock>(&answer));
        done.map(drop).map_err(|failure| self.failed(method::WriteBlock::NAME, failure))
    }

    async fn close(&self) -> Result<(), FsError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let params = CloseParams { handle_id: self.id.clone() };
        let closed = self.remote.ask_cleanup::<method::CloseFile>(self.on, params).await;
        closed.map(drop).map_err(|failure| self.failed(method::CloseFile::NAME, failure))
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if !*self.closed.get_mut() {
            self.remote
                .tell_cleanup::<method::CloseFile>(self.on, CloseParams { handle_id: std::mem::take(&mut self.id) });
        }
    }
}

const fn check_length(length: usize) -> Result<(), InvalidFsRequest> {
    let max = MAX_BLOCK_BYTES;
    if length == 0 || length > max { Err(InvalidFsRequest::BlockLength { length, max }) } else { Ok(()) }
}
