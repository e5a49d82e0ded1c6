//! The files of a place, here and behind a connection by the same code: whole files, a stream, a tree, a watch, and the
//! errors that name what is wrong. A write that fails leaves the former content; a copy follows no links out of its tree.
//! Only the way to the environment differs between the two runs.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use longarm::config::ClientConfig;
use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileReader, FileSystem, FileWriter, FsError, OpenMode, ReadOptions,
    RemoveOptions, Symlinks, WalkOptions, WriteOptions,
};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{Environment, Local, LocalConfig};
use tokio::io::AsyncWriteExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("longarm-files-{}", std::process::id()));

    let here = Environment::local();
    tour(&*here.fs(), &dir).await?;
    here.close().await;

    let (near, far) = memory::pair();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let serving = tokio::spawn(async move { server.serve(Box::new(far)).await });
    let there = Environment::connect(near, ClientConfig::default()).await?;
    tour(&*there.fs(), &dir).await?;
    there.close().await;
    serving.await??;
    Ok(())
}

async fn tour(fs: &dyn FileSystem, dir: &Path) -> Result<(), Box<dyn Error>> {
    let at = |name: &str| dir.join(name).into();

    // Whole files, up to a limit that the error names.
    fs.create_directory(at("tree/src"), CreateDirectoryOptions::new()).await?;
    fs.write(at("tree/notes.txt"), "hello".into(), WriteOptions::new()).await?;
    assert_eq!(fs.read(at("tree/notes.txt"), ReadOptions::new()).await?, "hello");
    let refused = fs.read(at("tree/notes.txt"), ReadOptions::new().max_bytes(3)).await;
    assert!(matches!(refused, Err(FsError::TooLarge { size: Some(5), limit: 3, .. })));

    // Larger ones as streams, with some blocks on their way at a time.
    let mut writer = FileWriter::new(fs.open(at("tree/src/large"), OpenMode::Replace).await?, 0);
    for _ in 0..64 {
        writer.write_all(&[7; 64 << 10]).await?;
    }
    writer.shutdown().await?;
    let mut reader = FileReader::new(fs.open(at("tree/src/large"), OpenMode::Read).await?, 0);
    let mut bytes = 0;
    while let Some(block) = reader.next().await {
        bytes += block?.len();
    }
    println!("{bytes} bytes there and back");

    // Trees: bounded walks, copies, removals.
    fs.copy(at("tree"), at("copy"), CopyOptions::new().recursive(true)).await?;
    let walk = fs.walk(at("copy"), WalkOptions::new().max_entries(1_000)).await?;
    for entry in &walk.entries {
        println!("{:?} {}", entry.kind, entry.path);
    }
    assert!(!walk.truncated);

    // A hint that a path may exist now.
    if let Some(watch) = fs.watch_missing(vec![at("later")], None).await? {
        fs.write(at("later"), "".into(), WriteOptions::new()).await?;
        watch.await?;
        println!("it may be there: {}", fs.metadata(at("later"), Symlinks::Follow).await?.is_file);
    }

    // Errors name the path that they are about.
    match fs.read(at("missing"), ReadOptions::new()).await {
        Err(error @ FsError::NotFound { .. }) => println!("{error}"),
        other => return Err(format!("{other:?}").into()),
    }
    fs.remove(dir.into(), RemoveOptions::new()).await?;
    Ok(())
}
