//! Whole files that are read: in one message if they are small, else in blocks.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

use super::handle::RemoteFile;
use super::{Peer, RemoteFileSystem, error, file_bytes, uri};
use crate::backend::remote::result_of;
use crate::fs::{
    DEFAULT_WHOLE_FILE_BYTES, FileHandle as _, FileSystem as _, FsError, MAX_BLOCK_BYTES, OpenMode, ReadOptions,
    RequestPath, Symlinks, when_there_is_room,
};
use crate::wire::RequestId;
use crate::wire::codec;
use crate::wire::follow_symlinks;
use crate::wire::fs::{ReadFileExtension, ReadFileParams, whole_file_bytes};
use crate::wire::fs_error::Asked;
use crate::wire::method::{self, Method};

impl RemoteFileSystem {
    pub(super) async fn read_whole(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError> {
        let peer = self.peer().await?;
        let limit = options.max_bytes.unwrap_or(DEFAULT_WHOLE_FILE_BYTES);
        // Blocks cannot refuse links, and not every peer has them under a sandbox.
        let in_blocks = options.symlinks == Symlinks::Follow && self.may_open_files(&peer);
        let one_message = limit.min(if in_blocks { MAX_SINGLE_READ_BYTES } else { MAX_MESSAGE_FILE_BYTES });
        let known_size = if peer.features.fs {
            // The peer keeps the limit itself, and says what the size is.
            match self.read_message(&path, options.symlinks, Some(one_message), &peer).await {
                Err(FsError::TooLarge { size, .. }) => size,
                // It may not.
                other => return within(other?, path, one_message),
            }
        } else {
            let size = self.metadata(path.clone(), options.symlinks).await?.size;
            // Files that the kernel makes up say that they are empty, and may have any size; the peer knows no limit.
            if size <= one_message && (size > 0 || !in_blocks) {
                let bytes = self.read_message(&path, options.symlinks, None, &peer).await?;
                return within(bytes, path, limit);
            }
            Some(size).filter(|size| *size > 0)
        };
        let largest = if in_blocks { limit } else { one_message };
        if !in_blocks || known_size.is_some_and(|size| size > limit) {
            return Err(FsError::TooLarge { path, size: known_size, limit: largest });
        }
        let file = self.open_file(path.clone(), OpenMode::Read).await?;
        let bytes = read_blocks(&file, path, limit, known_size).await;
        match bytes {
            Ok(bytes) => file.close().await.map(|()| bytes),
            // The file closes itself, and the first error is the one to tell.
            Err(error) => Err(error),
        }
    }

    async fn read_message(
        &self,
        path: &RequestPath,
        symlinks: Symlinks,
        max_bytes: Option<u64>,
        peer: &Peer,
    ) -> Result<Bytes, FsError> {
        let params = ReadFileParams {
            path: uri(path, peer)?,
            follow_symlinks: follow_symlinks(symlinks),
            sandbox: self.sandbox.clone(),
            longarm: max_bytes.map(|max_bytes| ReadFileExtension { max_bytes: Some(max_bytes) }),
        };
        let encode = move |id: &RequestId| codec::encode_request::<method::ReadFile>(id, &params);
        let answer = self.remote.ask_on(self.on()?, method::ReadFile::NAME, false, encode).await;
        let bytes = answer.and_then(|answer| match file_bytes(answer.clone()) {
            Some((bytes, None)) => Ok(bytes),
            _ => result_of::<method::ReadFile>(&answer).map(|result| result.data_base64.into()),
        });
        let asked = Asked { symlinks, ..Asked::new(method::ReadFile::NAME, path.clone()) };
        bytes.map_err(|failure| error(failure, &asked))
    }
}

/// Reads to the end, with some blocks on their way.
async fn read_blocks(
    file: &RemoteFile,
    path: RequestPath,
    limit: u64,
    known_size: Option<u64>,
) -> Result<Bytes, FsError> {
    // What the peer says of the size is no reason to set aside more than what is on its way.
    let capacity = known_size.unwrap_or(0).min(limit).min((BLOCKS_ON_THEIR_WAY * MAX_BLOCK_BYTES) as u64);
    let mut bytes = BytesMut::with_capacity(usize::try_from(capacity).unwrap_or(0));
    let mut offset = 0_u64;
    let mut blocks = FuturesOrdered::new();
    loop {
        // Of a file whose size is known, no more than one block behind it is asked for.
        while blocks.len() < BLOCKS_ON_THEIR_WAY && (blocks.is_empty() || known_size.is_none_or(|size| offset <= size))
        {
            blocks.push_back(when_there_is_room(move || file.read_block(offset, MAX_BLOCK_BYTES)));
            offset += MAX_BLOCK_BYTES as u64;
        }
        let Some(block) = blocks.next().await else { return Ok(bytes.freeze()) };
        let block = block?;
        bytes.extend_from_slice(&block.bytes);
        if bytes.len() as u64 > limit {
            return Err(FsError::TooLarge { path, size: known_size, limit });
        }
        if block.eof {
            return Ok(bytes.freeze());
        }
    }
}

fn within(bytes: Bytes, path: RequestPath, limit: u64) -> Result<Bytes, FsError> {
    let size = bytes.len() as u64;
    if size > limit { Err(FsError::TooLarge { path, size: Some(size), limit }) } else { Ok(bytes) }
}

/// The largest file whose bytes, as base64, fit into one message of 64 MiB: 48 MiB, less what is around them.
pub(super) const MAX_MESSAGE_FILE_BYTES: u64 = whole_file_bytes(64 << 20);

/// Files up to this size are read in one message.
const MAX_SINGLE_READ_BYTES: u64 = 4 << 20;

/// Enough to fill the connection, and few enough that others get their turn.
const BLOCKS_ON_THEIR_WAY: usize = 4;
