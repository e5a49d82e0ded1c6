//! Files in every place against plain `std::fs` in the same run: what the pool, the checks, the safety and the wire cost.
//!
//! - *read*, *block*: 4 KiB from the call to the bytes, median.
//! - *denying*: 1 KiB read under an intent that denies something else, against the same read without it, median. Above 1.5
//!   times, the bench fails.
//! - *whole*: 16 MiB written and read in one call, median.
//! - *blocks*: 256 MiB through a stream, written and read.
//! - *echo*: 64 bytes to `cat` and back, alone and while 256 MiB are being read on the same connection, median and the
//!   slowest of a hundred.
//!
//! `cargo bench --bench files`; without `--bench` each row runs briefly, to see that it works. `-- websocket` measures only
//! the places whose name has that in it. Both sides alternate, so that a
//! busy machine slows both; the ratio is what counts. A server has a thread of its own.
#![allow(missing_docs, reason = "a program")]

use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm::config::ClientConfig;
use longarm::fs::{FileReader, FileSystem, FileWriter, OpenMode, ReadOptions, WriteOptions};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{Environment, Event, ExecRequest, Local, LocalConfig, Process, Stdin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

fn main() {
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let wants = |name: &str| name.contains(&wanted);
    let size = if quick {
        Size { small: 100, whole: 1, blocks: 1, bytes: 16 << 20, echoes: 100 }
    } else {
        Size { small: 2_000, whole: 20, blocks: 5, bytes: 256 << 20, echoes: 3_000 }
    };
    let dir = tempfile::tempdir().expect("a directory");
    let one_thread = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let two_threads = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for (name, runtime) in [("local, one thread", &one_thread()), ("local, two threads", &two_threads)] {
        if wants(name) {
            measure(name, runtime, std::future::ready(Environment::local()), dir.path(), &size);
        }
    }
    if wants("memory") {
        measure("memory", &one_thread(), over_memory(), dir.path(), &size);
    }
    #[cfg(feature = "websocket")]
    if wants("websocket") {
        measure("websocket", &one_thread(), over_websocket(), dir.path(), &size);
    }
}

struct Size {
    small: usize,
    whole: usize,
    blocks: usize,
    bytes: usize,
    echoes: usize,
}

fn measure(name: &str, runtime: &Runtime, place: impl Future<Output = Environment>, dir: &Path, size: &Size) {
    println!("{name}:");
    runtime.block_on(async {
        let place = place.await;
        let files = place.fs();
        small(&*files, dir, size.small).await;
        #[cfg(target_os = "linux")]
        denying(&files, dir, size.small).await;
        whole(&*files, dir, size.whole).await;
        blocks(&*files, dir, size.bytes, size.blocks).await;
        echo(&place, dir, size).await;
        place.close().await;
    });
}

/// Runs a server on a thread of its own, for as long as its work takes.
fn serve<F: Future<Output = ()>>(work: impl FnOnce(Server) -> F + Send + 'static) {
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
            work(server.clone()).await;
            server.shutdown().await;
        });
    });
}

async fn over_memory() -> Environment {
    let (near, far) = memory::pair();
    serve(|server| async move { server.serve(Box::new(far)).await.expect("it is served") });
    Environment::connect(near, ClientConfig::default()).await.expect("a connection")
}

#[cfg(feature = "websocket")]
async fn over_websocket() -> Environment {
    use longarm::server::serve_websocket;
    use longarm::transport::websocket::{ConnectOptions, ListenOptions, Listener, connect};

    let (tell, told) = tokio::sync::oneshot::channel();
    // It lives as long as this program.
    serve(|server| async move {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await.expect("a listener");
        tell.send(listener.local_url()).expect("it is waited for");
        serve_websocket(&server, listener, std::future::pending()).await.expect("it is served");
    });
    let transport = connect(&told.await.expect("a URL"), &ConnectOptions::new()).await.expect("a connection");
    Environment::connect(transport, ClientConfig::default()).await.expect("a session")
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The medians of both, and their ratio.
fn report(what: &str, mut ours: Vec<Duration>, mut plain: Vec<Duration>) {
    let (ours, plain) = (median(&mut ours), median(&mut plain));
    let ratio = ours.as_secs_f64() / plain.as_secs_f64();
    println!("  {what:<26} longarm {ours:>12.2?}   std {plain:>12.2?}   ratio {ratio:.2}");
}

/// Both through the place: what the policy and its walls cost.
#[cfg(target_os = "linux")]
async fn denying(files: &Arc<dyn FileSystem>, dir: &Path, times: usize) {
    use longarm::path_uri::PathUri;
    use longarm::sandbox::SandboxIntent;

    let uri = |path: &Path| PathUri::from_host_native_path(path.canonicalize().expect("it exists")).expect("absolute");
    let (path, secret) = (dir.join("kilobyte"), dir.join("secret"));
    fs::write(&path, [7; 1 << 10]).expect("it is written");
    fs::create_dir_all(&secret).expect("it is made");
    let intent = SandboxIntent::workspace_write([uri(dir)]).cwd(uri(dir)).deny(uri(&secret));
    let sandboxed = Arc::clone(files).with_sandbox(intent).expect("a view");
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..times {
        for (files, spent) in [(&sandboxed, &mut ours), (files, &mut plain)] {
            let start = Instant::now();
            let bytes = files.read(path.as_path().into(), ReadOptions::new()).await.expect("it is read");
            spent.push(start.elapsed());
            assert_eq!(bytes.len(), 1 << 10);
        }
    }
    let (sandboxed, without) = (median(&mut ours), median(&mut plain));
    let ratio = sandboxed.as_secs_f64() / without.as_secs_f64();
    println!(
        "  {:<26} sandboxed {sandboxed:>10.2?}   without {without:>8.2?}   ratio {ratio:.2}",
        "1 KiB read, denying"
    );
    // A short run is no measurement.
    assert!(times < 1_000 || ratio <= 1.5, "a read under a sandbox takes {ratio:.2} times as long as without");
}

async fn small(files: &dyn FileSystem, dir: &Path, times: usize) {
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

async fn whole(files: &dyn FileSystem, dir: &Path, times: usize) {
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

async fn blocks(files: &dyn FileSystem, dir: &Path, size: usize, times: usize) {
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

/// The time of an echo alone, and while a file is read on the same connection.
async fn echo(place: &Environment, dir: &Path, size: &Size) {
    let mut cat = place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await.expect("it starts");
    let mut alone = Vec::new();
    for _ in 0..size.echoes {
        alone.push(one_echo(&mut cat).await);
    }
    let path = dir.join("our blocks");
    let mut loaded = Vec::new();
    let transfer = async {
        let file = place.fs().open(path.as_path().into(), OpenMode::Read).await.expect("it opens");
        let mut reader = FileReader::new(file, 0);
        let copied = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.expect("it is read");
        assert_eq!(copied, size.bytes as u64);
    };
    let begun = Instant::now();
    let echoes = async {
        loop {
            loaded.push(one_echo(&mut cat).await);
        }
    };
    tokio::select! {
        () = transfer => {}
        () = echoes => {}
    }
    let transferred = begun.elapsed();
    let slow = |times: &[Duration]| times[times.len() - 1 - times.len() / 100];
    let (idle, busy) = (median(&mut alone), median(&mut loaded));
    let ratio = busy.as_secs_f64() / idle.as_secs_f64();
    println!("  {:<26} median  {idle:>12.2?}   1 in 100 {:>8.2?}", "echo", slow(&alone));
    println!(
        "  {:<26} median  {busy:>12.2?}   1 in 100 {:>8.2?}   ratio {ratio:.2}, over {transferred:.2?}",
        "echo during a transfer",
        slow(&loaded),
    );
    cat.kill().await.expect("it ends");
}

async fn one_echo(cat: &mut Process) -> Duration {
    const LINE: [u8; 64] = [b'x'; 64];
    let begun = Instant::now();
    cat.write(&LINE[..]).await.expect("it is written");
    let mut left = LINE.len();
    while left > 0 {
        if let Some(Event::Output(output)) = cat.next_event().await.expect("it is heard") {
            left -= output.bytes.len();
        }
    }
    begun.elapsed()
}
