//! Somebody who exchanges names while they are used: nothing outside is touched, and nobody sees half of anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use longarm::fs::{
    CopyOptions, CreateDirectoryOptions, FileSystem, FsError, ReadOptions, RemoveOptions, Symlinks, WriteOptions,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::needs::skipped;
use crate::support::{Scratch, content, files};

/// As often as is tried, whether or not the moment is met; at least [`EXCHANGES`] times it might have been.
const TIMES: usize = 200;
const EXCHANGES: usize = 1000;

/// Exchanges two names again and again, until it is dropped.
struct Swapper<'scope> {
    stop: &'scope AtomicBool,
    count: &'scope AtomicUsize,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl<'scope> Swapper<'scope> {
    fn new(
        scope: &'scope Scope<'scope, '_>,
        stop: &'scope AtomicBool,
        count: &'scope AtomicUsize,
        one: PathBuf,
        other: PathBuf,
    ) -> Self {
        let swap = move || {
            while !stop.load(Ordering::Relaxed) {
                // One of them may be gone for a while.
                if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        Self { stop, count, thread: Some(scope.spawn(swap)) }
    }

    /// Whether it is to be tried once more.
    fn goes_on(&self, times: usize) -> bool {
        times < TIMES || self.count.load(Ordering::Relaxed) < EXCHANGES
    }
}

impl Drop for Swapper<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Does something in a runtime of its own, as often as is enough, while two names are exchanged.
fn while_swapping(one: PathBuf, other: PathBuf, mut body: impl AsyncFnMut(usize)) {
    for _ in 0..2 {
        if let Err(error) = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
            return skipped("a race", &format!("the file system exchanges no names: {error}"));
        }
    }
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        let swapper = Swapper::new(scope, &stop, &count, one, other);
        runtime.block_on(async {
            let mut times = 0;
            while swapper.goes_on(times) {
                body(times).await;
                times += 1;
            }
        });
    });
}

/// What must never change.
fn outside(scratch: &Scratch) -> PathBuf {
    scratch.directory("outside/below");
    scratch.file("outside/file", "secret");
    scratch.file("outside/below/file", "secret");
    scratch.path("outside")
}

fn is_whole(outside: &Path) {
    let mut names: Vec<_> = fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["below", "file"]);
    assert_eq!(fs::read_dir(outside.join("below")).unwrap().count(), 1);
    assert_eq!(
        (content(outside.join("file")), content(outside.join("below/file"))),
        (b"secret".into(), b"secret".into())
    );
}

#[test]
fn a_removal_never_leaves_its_tree_while_a_directory_becomes_a_link() {
    let scratch = Scratch::new();
    let outside = outside(&scratch);
    scratch.link("link", &outside);
    let inside = scratch.directory("tree/inside");
    while_swapping(inside.clone(), scratch.path("link"), async |_| {
        // What is made or goes under one's hands may fail; what is outside may not.
        drop(fs::create_dir_all(inside.join("below")));
        let removed = files().remove(scratch.at("tree"), RemoveOptions::new()).await;
        assert!(!matches!(removed, Err(FsError::InvalidRequest(_) | FsError::Peer(_))), "{removed:?}");
        is_whole(&outside);
        // The link or the directory may have been removed as what it was; there is to be one of each.
        if fs::symlink_metadata(scratch.path("link")).is_err() {
            drop(std::os::unix::fs::symlink(&outside, scratch.path("link")));
        }
    });
}

#[test]
fn a_copy_brings_nothing_in_from_outside_while_a_directory_becomes_a_link() {
    let scratch = Scratch::new();
    let outside = outside(&scratch);
    scratch.link("link", &outside);
    scratch.directory("tree/inside");
    scratch.file("tree/inside/file", "public");
    while_swapping(scratch.path("tree/inside"), scratch.path("link"), async |times| {
        let copy = format!("copy-{}", times % 2);
        let copied = files().copy(scratch.at("tree"), scratch.at(&copy), CopyOptions::new().recursive(true)).await;
        let copied_file = scratch.path(&copy).join("inside");
        let is_link = fs::symlink_metadata(&copied_file).is_ok_and(|found| found.is_symlink());
        if !is_link && let Ok(content) = fs::read(copied_file.join("file")) {
            assert_eq!(content, b"public", "{copied:?}");
        }
        fs::remove_dir_all(scratch.path(&copy)).unwrap();
        is_whole(&outside);
    });
}

#[test]
fn a_copy_writes_nothing_outside_while_its_destination_becomes_a_link() {
    let scratch = Scratch::new();
    let outside = outside(&scratch);
    scratch.directory("tree/inside/below");
    for name in ["file", "new", "below/file", "below/new"] {
        scratch.file(format!("tree/inside/{name}"), "copied");
    }
    scratch.directory("copy/inside");
    scratch.link("link", &outside);
    while_swapping(scratch.path("copy/inside"), scratch.path("link"), async |_| {
        let copied = files().copy(scratch.at("tree"), scratch.at("copy"), CopyOptions::new().recursive(true)).await;
        assert!(!matches!(copied, Err(FsError::InvalidRequest(_) | FsError::Peer(_))), "{copied:?}");
        is_whole(&outside);
    });
}

#[test]
fn what_refuses_links_goes_through_none_that_appears() {
    let scratch = Scratch::new();
    let outside = outside(&scratch);
    scratch.directory("inside");
    scratch.file("inside/file", "public");
    scratch.link("link", &outside);
    while_swapping(scratch.path("inside"), scratch.path("link"), async |times| {
        let file = || scratch.at("inside/file");
        match files().read(file(), ReadOptions::new().symlinks(Symlinks::Refuse)).await {
            Ok(bytes) => assert!(bytes == "public" || bytes == "written", "{bytes:?}"),
            Err(error) => assert!(matches!(error, FsError::SymbolicLink { .. } | FsError::Os { .. }), "{error:?}"),
        }
        drop(files().write(file(), "written".into(), WriteOptions::new().symlinks(Symlinks::Refuse)).await);
        let new = scratch.at(format!("inside/new-{times}/below"));
        let options = CreateDirectoryOptions::new().symlinks(Symlinks::Refuse);
        drop(files().create_directory(new, options).await);
        let new = scratch.at(format!("inside/new-{times}"));
        drop(files().remove(new, RemoveOptions::new().symlinks(Symlinks::Refuse)).await);
        is_whole(&outside);
    });
}

#[test]
fn whoever_reads_a_file_that_is_written_and_renamed_sees_one_content_whole() {
    const BYTES: usize = 200_000;
    let scratch = Scratch::new();
    scratch.file("file", vec![b'a'; BYTES]);
    scratch.file("other", vec![b'b'; BYTES]);
    while_swapping(scratch.path("file"), scratch.path("other"), async |times| {
        let letter = b'c' + u8::try_from(times % 20).unwrap();
        let writing =
            async { files().write(scratch.at("file"), vec![letter; BYTES].into(), WriteOptions::new()).await };
        let reading = async { files().read(scratch.at("file"), ReadOptions::new()).await };
        let (written, read) = tokio::join!(writing, reading);
        if let Err(error) = written {
            // It gives up rather than write into a file that may be in its place again.
            let FsError::Os { source, .. } = &error else { panic!("{error:?}") };
            assert!(source.to_string().contains("exchange it again and again"), "{error:?}");
        }
        let read = read.unwrap();
        assert_eq!(read.len(), BYTES);
        assert!(read.iter().all(|byte| *byte == read[0]), "a mixture");
    });
    assert_eq!(scratch.names(""), ["file", "other"]);
}
