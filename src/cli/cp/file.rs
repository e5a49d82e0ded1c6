//! One file.

use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::try_join;
use longarm::fs::{
    BLOCKS_IN_FLIGHT, FileReader, FileWriter, FsError, MAX_BLOCK_BYTES, OpenMode, ReadOptions, STREAM_BLOCK_BYTES,
    Symlinks, WriteOptions,
};
use tokio::io::AsyncWriteExt as _;

use super::location::Location;
use super::progress::Progress;

/// Files up to this size go in one piece, which leaves the former content if it fails.
const WHOLE_BYTES: u64 = 1 << 20;

/// The end of what an interrupted copy has written may have holes: so many bytes were under way, in any order.
const UNORDERED_BYTES: u64 = (BLOCKS_IN_FLIGHT * STREAM_BLOCK_BYTES) as u64;
const _: () = assert!(UNORDERED_BYTES <= MAX_BLOCK_BYTES as u64, "it is compared as one block");

pub(super) struct FileCopy {
    pub(super) from: Location,
    pub(super) to: Location,
    /// Bytes of the source, when it was looked at.
    pub(super) size: u64,
}

impl FileCopy {
    pub(super) async fn copy(&self, resume: bool, progress: &Progress) -> Result<(), FsError> {
        self.from.refuse_same(&self.to).await?;
        if self.size <= WHOLE_BYTES {
            match self.copy_whole(WHOLE_BYTES, progress).await {
                // It has grown.
                Err(FsError::TooLarge { .. }) => {}
                done => return done,
            }
        }
        let kept = if resume { self.kept_bytes().await? } else { 0 };
        if kept == self.size {
            progress.bytes_done(kept);
            return Ok(());
        }
        // Nothing happens to the destination before the source has been read from.
        let (mut reader, mut first) = self.open_source(kept).await?;
        let (to, offset) = match self.open_destination(kept).await {
            // The place writes no files in blocks.
            Err(FsError::Unsupported(_)) => return self.copy_whole(u64::MAX, progress).await,
            opened => opened?,
        };
        if offset != kept {
            (reader, first) = self.open_source(offset).await?;
        }
        progress.bytes_done(offset);
        let mut end = offset;
        let mut writer = FileWriter::new(to, offset);
        let mut next = first;
        while let Some(block) = next {
            let block = block?;
            writer.write_all(&block).await.map_err(|error| self.write_error(error))?;
            progress.bytes_done(block.len() as u64);
            end += block.len() as u64;
            next = reader.next().await;
        }
        writer.shutdown().await.map_err(|error| self.write_error(error))?;
        if end < self.size {
            let text = format!("it has become shorter: {end} bytes of {}", self.size);
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text);
            return Err(FsError::from_io("read", self.from.path(), error));
        }
        Ok(())
    }

    /// The source from an offset on, and its first block.
    async fn open_source(&self, offset: u64) -> Result<(FileReader, Option<Result<Bytes, FsError>>), FsError> {
        let mut reader = FileReader::new(self.from.files().open(self.from.path(), OpenMode::Read).await?, offset);
        let first = reader.next().await.transpose()?;
        Ok((reader, first.map(Ok)))
    }

    async fn copy_whole(&self, limit: u64, progress: &Progress) -> Result<(), FsError> {
        let options = if limit == u64::MAX { ReadOptions::new() } else { ReadOptions::new().max_bytes(limit) };
        let bytes = self.from.files().read(self.from.path(), options).await?;
        let length = bytes.len() as u64;
        self.to.files().write(self.to.path(), bytes, WriteOptions::new()).await?;
        progress.bytes_done(length);
        Ok(())
    }

    /// Opens the destination behind what is kept, or from the beginning if the place cannot do that.
    async fn open_destination(&self, kept: u64) -> Result<(Box<dyn longarm::fs::FileHandle>, u64), FsError> {
        let files = self.to.files();
        if kept > 0 {
            match files.open(self.to.path(), OpenMode::Update).await {
                Err(FsError::Unsupported(_)) => {}
                opened => return Ok((opened?, kept)),
            }
        }
        if let Some(there) = self.possibly_same().await? {
            match files.open(self.to.path(), OpenMode::Update).await {
                Err(FsError::Unsupported(_)) if there => return Err(FsError::AlreadyExists { path: self.to.path() }),
                Err(FsError::Unsupported(_)) => {}
                opened => return Ok((opened?, 0)),
            }
        }
        Ok((files.open(self.to.path(), OpenMode::Replace).await?, 0))
    }

    /// Whether the destination may be the source itself, under this or another name, seen from a place that is this machine
    /// after all or has the same file system. Such a file must not be emptied; written over with what it has it stays as it
    /// is. Within, whether all that can be told of it says so.
    async fn possibly_same(&self) -> Result<Option<bool>, FsError> {
        let to = match self.to.files().metadata(self.to.path(), Symlinks::Follow).await {
            Ok(to) => to,
            Err(FsError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let from = self.from.files().metadata(self.from.path(), Symlinks::Follow).await?;
        let is_same_path = async || {
            let from = self.from.files().canonicalize(self.from.path()).await?;
            Ok::<_, FsError>(from == self.to.files().canonicalize(self.to.path()).await?)
        };
        if to.size == from.size {
            let is_known = to.created.is_some() && from.created.is_some();
            let may_be = agree(to.created, from.created) && agree(to.modified, from.modified);
            return Ok(Some(may_be && (is_known || is_same_path().await?)));
        }
        // One that grows while it is looked at has two sizes.
        if from.size != self.size && agree(to.created, from.created) && is_same_path().await? {
            return Err(FsError::AlreadyExists { path: self.to.path() });
        }
        Ok(None)
    }

    /// How much of the destination can stay: what it has, if that ends as the same part of the source does.
    async fn kept_bytes(&self) -> Result<u64, FsError> {
        let there = match self.to.files().metadata(self.to.path(), Symlinks::Follow).await {
            Ok(metadata) if metadata.is_file && metadata.size <= self.size => metadata.size,
            Ok(_) | Err(FsError::NotFound { .. }) => return Ok(0),
            Err(error) => return Err(error),
        };
        let sure = there.saturating_sub(UNORDERED_BYTES);
        if sure > 0 && !self.agree(sure.saturating_sub(UNORDERED_BYTES), sure).await? {
            return Ok(0);
        }
        Ok(if self.agree(sure, there).await? { there } else { sure })
    }

    /// Whether source and destination have the same bytes between these offsets.
    async fn agree(&self, start: u64, end: u64) -> Result<bool, FsError> {
        let Some(length) = usize::try_from(end - start).ok().filter(|length| *length > 0) else { return Ok(true) };
        let read = async |location: &Location| {
            let file = location.files().open(location.path(), OpenMode::Read).await?;
            let block = file.read_block(start, length).await?;
            file.close().await?;
            Ok::<_, FsError>(block.bytes)
        };
        let (one, other) = try_join(read(&self.from), read(&self.to)).await?;
        Ok(one == other && one.len() == length)
    }

    /// The error inside one of a stream.
    fn write_error(&self, error: std::io::Error) -> FsError {
        match error.downcast::<FsError>() {
            Ok(error) => error,
            Err(error) => FsError::from_io("write to", self.to.path(), error),
        }
    }
}

/// Whether these may be the same time. Over a connection times have milliseconds, and a file system may not keep one.
fn agree(one: Option<SystemTime>, other: Option<SystemTime>) -> bool {
    let millis = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_millis()).ok();
    one.zip(other).is_none_or(|(one, other)| millis(one) == millis(other))
}
