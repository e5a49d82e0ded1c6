//! Files as streams.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use longarm::error::{Busy, Disconnected, Sent};
use longarm::fs::{Block, FileHandle, FileReader, FileSystem, FileWriter, FsError, OpenMode};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Scratch, content, files};

/// A file in memory that answers late and in any order, and fails from an offset on.
#[derive(Debug, Default)]
struct Memory {
    blocks: Mutex<BTreeMap<u64, Bytes>>,
    content: Vec<u8>,
    fails_at: Option<u64>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    closed: AtomicUsize,
}

impl Memory {
    fn containing(content: Vec<u8>) -> Self {
        Self { content, ..Self::default() }
    }

    async fn answer(&self, offset: u64) -> Result<(), FsError> {
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        for _ in 0..(7 - offset % 7) {
            tokio::task::yield_now().await;
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        match self.fails_at {
            Some(limit) if offset >= limit => {
                Err(FsError::Disconnected(Disconnected { sent: Sent::Unknown, reason: "cut".into() }))
            }
            _ => Ok(()),
        }
    }

    fn written(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (offset, block) in self.blocks.lock().unwrap().iter() {
            assert_eq!(*offset, all.len() as u64, "blocks meet");
            all.extend_from_slice(block);
        }
        all
    }
}

#[async_trait::async_trait]
impl FileHandle for Memory {
    async fn read_block(&self, offset: u64, length: usize) -> Result<Block, FsError> {
        self.answer(offset).await?;
        let start = self.content.len().min(offset as usize);
        let end = self.content.len().min(start + length);
        Ok(Block::new(Bytes::copy_from_slice(&self.content[start..end]), end - start < length))
    }

    async fn write_block(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        self.answer(offset).await?;
        self.blocks.lock().unwrap().insert(offset, data);
        Ok(())
    }

    async fn close(&self) -> Result<(), FsError> {
        self.closed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number % 251) as u8).collect()
}

#[tokio::test]
async fn a_file_goes_through_a_reader_into_a_writer() {
    let scratch = Scratch::new();
    let bytes = numbers(3_000_001);
    scratch.file("from", &bytes);
    let mut reader = FileReader::new(files().open(scratch.at("from"), OpenMode::Read).await.unwrap(), 0);
    let mut writer = FileWriter::new(files().open(scratch.at("to"), OpenMode::Replace).await.unwrap(), 0);
    assert_eq!(tokio::io::copy(&mut reader, &mut writer).await.unwrap(), bytes.len() as u64);
    writer.shutdown().await.unwrap();
    assert!(content(scratch.path("to")) == bytes);
    // The rest alone, as a download that goes on.
    let rest = FileReader::new(files().open(scratch.at("from"), OpenMode::Read).await.unwrap(), 3_000_000);
    let rest: Vec<_> = rest.collect().await;
    assert!(matches!(rest.as_slice(), [Ok(last)] if last.as_ref() == &bytes[3_000_000..]), "{rest:?}");
    let error = writer.write(b"x").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "it is shut down");
}

proptest! {
    #[test]
    fn streams_carry_all_bytes_in_order_with_bounded_blocks(
        length in 0_usize..300, block in 1_usize..50, in_flight in 1_usize..6, piece in 1_usize..80
    ) {
        let bytes = numbers(length);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let memory = Arc::new(Memory::containing(bytes.clone()));
            let mut reader = FileReader::new(Arc::clone(&memory) as Arc<dyn FileHandle>, 0).blocks(in_flight, block);
            let mut read = Vec::new();
            let mut buffer = vec![0; piece];
            loop {
                match reader.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            assert_eq!(read, bytes);
            assert!(memory.most_in_flight.load(Ordering::SeqCst) <= in_flight);

            let memory = Arc::new(Memory::default());
            let mut writer = FileWriter::new(Arc::clone(&memory) as Arc<dyn FileHandle>, 0).blocks(in_flight, block);
            for piece in bytes.chunks(piece) {
                writer.write_all(piece).await.unwrap();
            }
            writer.flush().await.unwrap();
            assert_eq!(memory.written(), bytes, "what is flushed is there");
            writer.shutdown().await.unwrap();
            writer.shutdown().await.unwrap();
            assert_eq!(memory.closed.load(Ordering::SeqCst), 1);
            assert!(memory.most_in_flight.load(Ordering::SeqCst) <= in_flight);
        });
    }
}

#[tokio::test]
async fn a_failure_is_the_last_item_of_a_reader() {
    let memory = Memory { fails_at: Some(20), ..Memory::containing(numbers(100)) };
    let mut reader = FileReader::new(Arc::new(memory) as Arc<dyn FileHandle>, 0).blocks(3, 10);
    let mut read = 0;
    let error = loop {
        match reader.next().await.unwrap() {
            Ok(bytes) => read += bytes.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(read, 20, "all that came before is delivered");
    assert!(matches!(error, FsError::Disconnected(_)), "{error:?}");
    assert!(reader.next().await.is_none());
}

/// A file whose blocks are not what was asked for.
#[derive(Debug)]
struct Wrong(usize, bool);

#[async_trait::async_trait]
impl FileHandle for Wrong {
    async fn read_block(&self, _offset: u64, _length: usize) -> Result<Block, FsError> {
        Ok(Block::new(vec![0; self.0].into(), self.1))
    }

    async fn write_block(&self, _offset: u64, _data: Bytes) -> Result<(), FsError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), FsError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_block_of_another_length_is_not_taken_for_the_one_that_was_asked_for() {
    for (length, eof) in [(9, false), (0, false), (10, true), (11, false), (11, true)] {
        let mut reader = FileReader::new(Arc::new(Wrong(length, eof)) as Arc<dyn FileHandle>, 0).blocks(2, 10);
        let item = reader.next().await;
        assert!(matches!(item, Some(Err(FsError::Peer(_)))), "{length} {eof}: {item:?}");
        assert!(reader.next().await.is_none());
    }
}

/// A file for which there is no room at every other call.
#[derive(Debug, Default)]
struct Crowded(Memory, AtomicUsize);

impl Crowded {
    fn turn(&self) -> Result<(), FsError> {
        let full = self.1.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if full { Err(Busy { limit: 1 }.into()) } else { Ok(()) }
    }
}

#[async_trait::async_trait]
impl FileHandle for Crowded {
    async fn read_block(&self, offset: u64, length: usize) -> Result<Block, FsError> {
        self.turn()?;
        self.0.read_block(offset, length).await
    }

    async fn write_block(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        self.turn()?;
        self.0.write_block(offset, data).await
    }

    async fn close(&self) -> Result<(), FsError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_when_too_many_calls_are_under_way() {
    let bytes = numbers(1_000);
    let crowded = Arc::new(Crowded(Memory::containing(bytes.clone()), AtomicUsize::new(0)));
    let mut reader = FileReader::new(Arc::clone(&crowded) as Arc<dyn FileHandle>, 0).blocks(3, 10);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, bytes);
    let mut writer = FileWriter::new(Arc::clone(&crowded) as Arc<dyn FileHandle>, 0).blocks(3, 10);
    writer.write_all(&bytes).await.unwrap();
    writer.shutdown().await.unwrap();
    assert_eq!(crowded.0.written(), bytes);
}

#[tokio::test]
async fn a_writer_that_failed_goes_on_failing() {
    let memory = Arc::new(Memory { fails_at: Some(20), ..Memory::default() });
    let mut writer = FileWriter::new(Arc::clone(&memory) as Arc<dyn FileHandle>, 0).blocks(2, 10);
    let error = writer.write_all(&numbers(1000)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    for result in [writer.flush().await, writer.shutdown().await] {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotConnected);
    }
    assert!(memory.written().len() <= 20);
}
