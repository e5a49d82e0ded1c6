//! Open files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::os::{self, Access, Kind, NEW_FILE_MODE};
use super::pool::Pool;
use super::read;
use crate::blocking;
use crate::fs::{Block, FileHandle, FsError, InvalidFsRequest, MAX_BLOCK_BYTES, OpenMode, Symlinks};

/// A file of this machine.
#[derive(Debug)]
pub(super) struct LocalHandle {
    pool: Pool,
    path: PathBuf,
    readable: bool,
    /// None once it is closed. Blocks that are under way keep the file open until they end.
    file: Mutex<Option<Arc<File>>>,
}

impl LocalHandle {
    /// Opens a file. May block.
    pub(super) fn open(pool: Pool, path: PathBuf, mode: OpenMode) -> Result<Self, FsError> {
        let (file, readable) = match mode {
            OpenMode::Read => (read::open(&path, Symlinks::Follow)?.0, true),
            OpenMode::Replace => (open_to_write(&path, true)?, false),
            OpenMode::Update => (open_to_write(&path, false)?, false),
        };
        Ok(Self::of(pool, path, file, readable))
    }

    /// A file that was opened, either to be read or to be written to.
    pub(super) fn of(pool: Pool, path: PathBuf, file: File, readable: bool) -> Self {
        Self { pool, path, readable, file: Mutex::new(Some(Arc::new(file))) }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        // Nothing that can panic runs under the lock.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> Result<Arc<File>, FsError> {
        self.slot().clone().ok_or_else(|| FsError::UnknownHandle { handle: self.path.to_string_lossy().into_owned() })
    }

    async fn read(&self, file: Arc<File>, offset: u64, length: usize) -> Result<Block, FsError> {
        if !self.readable {
            return Err(FsError::WrongMode { path: self.path.as_path().into(), wanted: "reading" });
        }
        // No file reaches further.
        let room = (i64::MAX as u64).saturating_sub(offset);
        let within = length.min(usize::try_from(room).unwrap_or(length));
        let path = self.path.clone();
        let read = move || os::read_block(&file, offset, within).map_err(|error| FsError::from_io("read", path, error));
        let bytes = self.pool.run(read).await?;
        let eof = bytes.len() < length;
        Ok(Block::new(bytes.into(), eof))
    }
}

#[async_trait::async_trait]
impl FileHandle for LocalHandle {
    async fn read_block(&self, offset: u64, length: usize) -> Result<Block, FsError> {
        check_length(length)?;
        let read = self.read(self.file()?, offset, length).await;
        if read.is_err() {
            self.slot().take();
        }
        read
    }

    async fn write_block(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        check_length(data.len())?;
        let file = self.file()?;
        if self.readable {
            return Err(FsError::WrongMode { path: self.path.as_path().into(), wanted: "writing" });
        }
        check_range(offset, data.len())?;
        let path = self.path.clone();
        let write =
            move || os::write_block(&file, &data, offset).map_err(|error| FsError::from_io("write to", path, error));
        self.pool.run(write).await
    }

    async fn close(&self) -> Result<(), FsError> {
        let Some(file) = self.slot().take() else { return Ok(()) };
        let path = self.path.clone();
        // Some file systems wait now until what was written is where it belongs, and say only now that it is not.
        let close = move || match Arc::try_unwrap(file) {
            Ok(file) => os::close(file),
            Err(shared) => os::flush(&shared),
        };
        self.pool.run(move || close().map_err(|error| FsError::from_io("write to", path, error))).await
    }
}

impl Drop for LocalHandle {
    fn drop(&mut self) {
        // What was not written to closes at once.
        if !self.readable
            && let Some(file) = self.slot().take()
            && tokio::runtime::Handle::try_current().is_ok()
            && let Err(close) = blocking::spawn(move || drop(file))
        {
            close();
        }
    }
}

fn open_to_write(path: &Path, empty: bool) -> Result<File, FsError> {
    let file = os::open_file(path, Access::WriteOrCreate { mode: NEW_FILE_MODE });
    checked_to_write(file.map_err(|error| FsError::from_io("open", path, error))?, path, empty)
}

/// What was opened to be written to, if it is a regular file; emptied, if that is wanted.
pub(super) fn checked_to_write(file: File, path: &Path, empty: bool) -> Result<File, FsError> {
    let (look, _) = os::look_at_file(&file).map_err(|error| FsError::from_io("examine", path, error))?;
    if look.kind != Kind::File {
        return Err(FsError::NotAFile { path: path.into() });
    }
    if empty {
        file.set_len(0).map_err(|error| FsError::from_io("empty", path, error))?;
    }
    Ok(file)
}

fn check_length(length: usize) -> Result<(), FsError> {
    if (1..=MAX_BLOCK_BYTES).contains(&length) {
        return Ok(());
    }
    Err(InvalidFsRequest::BlockLength { length, max: MAX_BLOCK_BYTES }.into())
}

fn check_range(offset: u64, length: usize) -> Result<(), FsError> {
    match offset.checked_add(length as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(InvalidFsRequest::BlockRange { offset, length }.into()),
    }
}
