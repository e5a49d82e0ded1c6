//! The files of this machine against plain `std::fs` in the same run: what the pool, the checks and the safety cost.
//!
//! `cargo bench --bench files`. Both sides alternate, so that a busy machine slows both; the ratio is what counts.
#![allow(missing_docs, reason = "a program")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use longarm::fs::{
    FileReader, FileSystem, FileWriter, LocalFileSystem, LocalFileSystemConfig, OpenMode, ReadOptions, WriteOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--test");
    let scale = if quick { 1 } else { 20 };
    let dir = tempfile::tempdir().expect("a directory");
    for (name, runtime) in [
        ("one thread", tokio::runtime::Builder::new_current_thread().enable_all().build()),
        ("two threads", tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()),
    ] {
        println!("{name}:");
        let path = dir.path().to_path_buf();
        let run = async move {
            let files = LocalFileSystem::new(LocalFileSystemConfig::from_host());
            small(&files, &path, 100 * scale).await;
            whole(&files, &path, scale).await;
            blocks(&files, &path, if quick { 16 << 20 } else { 256 << 20 }, scale.min(5)).await;
        };
        // On a worker, as the work of a server would be.
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async { tokio::spawn(run).await }).expect("no panic");
    }
}

/// The medians of both, and their ratio.
fn report(what: &str, mut ours: Vec<Duration>, mut plain: Vec<Duration>) {
    ours.sort_unstable();
    plain.sort_unstable();
    let (ours, plain) = (ours[ours.len() / 2], plain[plain.len() / 2]);
    let ratio = ours.as_secs_f64() / plain.as_secs_f64();
    println!("  {what:<26} longarm {ours:>12.2?}   std {plain:>12.2?}   ratio {ratio:.2}");
}

async fn small(files: &LocalFileSystem, dir: &Path, times: usize) {
    let path = dir.join("small");
    fs::write(&path, [7; 4 << 10]).expect("it is written");
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let start = Instant::now();
        let bytes = files.read(path.as_path().into(), ReadOptions::new()).await.expect("it is read");
        ours.push(start.elapsed());
        assert_eq!(bytes.len(), 4 << 10);
        let start = Instant::now();
        let bytes = fs::read(&path).expect("it is read");
        plain.push(start.elapsed());
        assert_eq!(bytes.len(), 4 << 10);
    }
    report("read of 4 KiB", ours, plain);
    let file = files.open(path.as_path().into(), OpenMode::Read).await.expect("it opens");
    let opened = fs::File::open(&path).expect("it opens");
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let start = Instant::now();
        let block = file.read_block(0, 4 << 10).await.expect("it is read");
        ours.push(start.elapsed());
        assert!(!block.eof);
        let start = Instant::now();
        let mut bytes = vec![0; 4 << 10];
        read_at(&opened, &mut bytes);
        plain.push(start.elapsed());
    }
    report("block of 4 KiB", ours, plain);
}

#[cfg(unix)]
fn read_at(file: &fs::File, bytes: &mut [u8]) {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0).expect("it is read");
}

#[cfg(windows)]
fn read_at(file: &fs::File, bytes: &mut [u8]) {
    let read = std::os::windows::fs::FileExt::seek_read(file, bytes, 0).expect("it is read");
    assert_eq!(read, bytes.len());
}

async fn whole(files: &LocalFileSystem, dir: &Path, times: usize) {
    let (our_path, plain_path) = (dir.join("ours"), dir.join("plain"));
    let content = bytes::Bytes::from(vec![7; 16 << 20]);
    let [mut ours, mut plain, mut our_reads, mut plain_reads] = [const { Vec::new() }; 4];
    for _ in 0..times {
        let start = Instant::now();
        let path = || our_path.as_path().into();
        files.write(path(), content.clone(), WriteOptions::new()).await.expect("it is written");
        ours.push(start.elapsed());
        let start = Instant::now();
        fs::write(&plain_path, &content).expect("it is written");
        plain.push(start.elapsed());
        let start = Instant::now();
        let bytes = files.read(path(), ReadOptions::new()).await.expect("it is read");
        our_reads.push(start.elapsed());
        assert_eq!(bytes.len(), content.len());
        let start = Instant::now();
        let bytes = fs::read(&plain_path).expect("it is read");
        plain_reads.push(start.elapsed());
        assert_eq!(bytes.len(), content.len());
    }
    report("16 MiB written whole", ours, plain);
    report("16 MiB read whole", our_reads, plain_reads);
}

async fn blocks(files: &LocalFileSystem, dir: &Path, size: usize, times: usize) {
    let (our_path, plain_path) = (dir.join("our blocks"), dir.join("plain blocks"));
    let piece = vec![7; 256 << 10];
    let [mut ours, mut plain, mut our_reads, mut plain_reads] = [const { Vec::new() }; 4];
    for _ in 0..times {
        let start = Instant::now();
        let path = || our_path.as_path().into();
        let mut writer = FileWriter::new(files.open(path(), OpenMode::Replace).await.expect("it opens"), 0);
        for _ in 0..size / piece.len() {
            writer.write_all(&piece).await.expect("it is written");
        }
        writer.shutdown().await.expect("it is written");
        ours.push(start.elapsed());
        let start = Instant::now();
        let mut file = fs::File::create(&plain_path).expect("it is created");
        for _ in 0..size / piece.len() {
            file.write_all(&piece).expect("it is written");
        }
        plain.push(start.elapsed());
        let mut buffer = vec![0; piece.len()];
        let start = Instant::now();
        let mut reader = FileReader::new(files.open(path(), OpenMode::Read).await.expect("it opens"), 0);
        let mut read = 0;
        loop {
            match reader.read(&mut buffer).await.expect("it is read") {
                0 => break,
                count => read += count,
            }
        }
        our_reads.push(start.elapsed());
        assert_eq!(read, size);
        let start = Instant::now();
        let mut file = fs::File::open(&plain_path).expect("it opens");
        let mut read = 0;
        loop {
            match file.read(&mut buffer).expect("it is read") {
                0 => break,
                count => read += count,
            }
        }
        plain_reads.push(start.elapsed());
        assert_eq!(read, size);
    }
    report(&format!("{} MiB written in blocks", size >> 20), ours, plain);
    report(&format!("{} MiB read in blocks", size >> 20), our_reads, plain_reads);
}
