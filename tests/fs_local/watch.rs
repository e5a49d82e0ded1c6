//! Watching for paths that do not exist.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures_util::FutureExt;
use longarm::fs::{FileSystem, MissingWatch, RequestPath};
use longarm::path_uri::PathUri;

use crate::roles::alone;
use crate::support::{Scratch, files};

/// Far longer than the system takes to tell.
const LIMIT: Duration = Duration::from_secs(30);

async fn watch(missing: &[RequestPath], present: Option<RequestPath>) -> Option<MissingWatch> {
    files().watch_missing(missing.to_vec(), present).await.unwrap()
}

async fn fires(watch: MissingWatch) {
    tokio::time::timeout(LIMIT, watch).await.expect("the watch fires").unwrap();
}

#[tokio::test]
async fn a_watch_fires_when_a_path_or_one_above_it_appears() {
    let scratch = Scratch::new();
    for missing in ["file", "a/b/c"] {
        for also in [vec![], vec![scratch.at("never")]] {
            let mut paths = also;
            paths.push(scratch.at(missing));
            let watch = watch(&paths, None).await.unwrap();
            scratch.directory(missing);
            fires(watch).await;
            fs::remove_dir_all(scratch.path(missing.split('/').next().unwrap())).unwrap();
        }
    }
    // By a rename, a link and a name that is no text.
    let watched = watch(&[scratch.at("moved")], None).await.unwrap();
    fs::rename(scratch.file("file", ""), scratch.path("moved")).unwrap();
    fires(watched).await;
    let watched = watch(&[scratch.at("link")], None).await.unwrap();
    scratch.link("link", "nothing");
    fires(watched).await;
    let odd = PathUri::parse(&format!("file://{}/odd%FF", scratch.root().display())).unwrap();
    let watched = watch(&[odd.clone().into()], None).await.unwrap();
    fs::write(odd.to_host_native_path().unwrap(), "").unwrap();
    fires(watched).await;
}

#[tokio::test]
async fn what_has_another_name_does_not_fire_a_watch() {
    let scratch = Scratch::new();
    let mut watched = watch(&[scratch.at("a/b")], None).await.unwrap();
    for name in ["b", "other"] {
        scratch.file(name, "1");
        scratch.file(name, "2");
        fs::remove_file(scratch.path(name)).unwrap();
    }
    // Events come in order: the one that matters is the last, and the only one.
    assert!((&mut watched).now_or_never().is_none());
    tokio::task::yield_now().await;
    assert!((&mut watched).now_or_never().is_none());
    scratch.directory("a");
    fires(watched).await;
}

#[tokio::test]
async fn a_watch_fires_when_the_nearest_directory_goes_or_changes() {
    let scratch = Scratch::new();
    for change in [
        |dir: &std::path::Path| fs::remove_dir(dir).unwrap(),
        |dir: &std::path::Path| fs::rename(dir, dir.with_file_name("elsewhere")).unwrap(),
        |dir: &std::path::Path| fs::set_permissions(dir, PermissionsExt::from_mode(0o700)).unwrap(),
        // Another directory may come to lie there.
        |dir: &std::path::Path| {
            fs::rename(dir.parent().unwrap(), dir.parent().unwrap().with_file_name("gone")).unwrap()
        },
    ] {
        let dir = scratch.directory("above/dir");
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        let watched = watch(&[scratch.at("above/dir/missing/x")], None).await.unwrap();
        change(&dir);
        fires(watched).await;
    }
}

#[tokio::test]
async fn a_watch_fires_when_what_is_present_changes_or_goes() {
    let scratch = Scratch::new();
    let missing = [scratch.at("missing")];
    for change in [
        |path: &std::path::Path| fs::write(path, "changed").unwrap(),
        |path: &std::path::Path| fs::remove_file(path).unwrap(),
        |path: &std::path::Path| fs::rename(path, path.with_file_name("elsewhere")).unwrap(),
        |path: &std::path::Path| {
            let other = path.with_file_name("other");
            fs::write(&other, "other").unwrap();
            fs::rename(other, path).unwrap();
        },
    ] {
        let present = scratch.file("present", "");
        // Held open, it is not gone when its name is.
        let _open = fs::File::open(&present).unwrap();
        let watched = watch(&missing, Some(present.as_path().into())).await.unwrap();
        change(&present);
        fires(watched).await;
    }
    let directory = scratch.directory("directory");
    let mut watched = watch(&missing, Some(directory.as_path().into())).await.unwrap();
    scratch.file("directory/inside", "");
    assert!((&mut watched).now_or_never().is_none());
    fs::remove_dir_all(directory).unwrap();
    fires(watched).await;
}

#[tokio::test]
async fn what_cannot_be_watched_is_said_so() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    scratch.directory("dir");
    scratch.link("dlink", "dir");
    scratch.link("link", "file");
    scratch.link("dangling", "nothing");
    let missing = scratch.at("missing");
    let foreign = RequestPath::from(PathUri::parse("file:///C:/x").unwrap());
    for paths in [
        vec![],
        vec![missing.clone(); 65],
        vec![missing.clone(), scratch.at("file")],
        vec![scratch.at("dlink/missing")],
        vec![scratch.at("dangling")],
        vec![scratch.at("file/missing")],
        vec![scratch.at("n".repeat(300))],
        vec![foreign.clone()],
        vec!["relative".into()],
        vec!["/".into()],
        vec!["/proc/self/missing".into()],
        vec!["/sys/missing".into()],
    ] {
        assert!(watch(&paths, None).await.is_none(), "{paths:?}");
    }
    for present in [missing.clone(), scratch.at("link"), scratch.at("dlink/x"), foreign, "/proc/self/status".into()] {
        let watched = watch(std::slice::from_ref(&missing), Some(present.clone())).await;
        assert!(watched.is_none(), "{present:?}");
    }
    assert!(watch(&vec![missing; 64], Some(scratch.at("dir"))).await.is_some());
}

#[test]
fn dropping_a_watch_frees_what_it_holds() {
    // Other tests have watches of their own.
    alone("watch::dropping_a_watch_frees_what_it_holds", || {
        let watches = || {
            let links = fs::read_dir("/proc/self/fd").unwrap();
            let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            links.filter(|target| target.to_string_lossy().contains("inotify")).count()
        };
        let scratch = Scratch::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(watches(), 0);
            let one = watch(&[scratch.at("missing")], None).await.unwrap();
            let with_one = watches();
            assert!(with_one > 0);
            drop(one);
            until(|| watches() == 0).await;
            // One that is not wanted any more before it is set up is none, either.
            let files = files();
            let mut unwanted = Box::pin(files.watch_missing(vec![scratch.at("missing")], None));
            // It may be quick.
            drop((&mut unwanted).now_or_never());
            drop(unwanted);
            let fired = watch(&[scratch.at("other")], None).await.unwrap();
            scratch.file("other", "");
            fires(fired).await;
            until(|| watches() == 0).await;
        });
    });
}

/// Until something holds that no event tells of.
async fn until(holds: impl Fn() -> bool) {
    let holding = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, holding).await.expect("in time");
}
