//! Each wall by itself.

mod scenes;

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::fs::LocalFileSystemConfig;
use crate::path_uri::PathUri;

struct Scene {
    _dir: tempfile::TempDir,
    w: PathBuf,
    o: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().canonicalize().unwrap();
        let [w, o] = ["w", "o"].map(|name| at.join(name));
        for directory in [&w, &o] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("f"), "f").unwrap();
        }
        Self { _dir: dir, w, o }
    }

    fn plan(&self, intent: SandboxIntent) -> Arc<Plan> {
        Plans::default().make(&intent.cwd(uri(&self.w)), &files()).unwrap()
    }
}

fn files() -> LocalFileSystem {
    LocalFileSystem::new(LocalFileSystemConfig::default())
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

#[test]
fn the_first_wall_stands_alone() {
    let scene = Scene::new();
    let plan = scene.plan(SandboxIntent::minimal_write([uri(&scene.w)]));
    let read = |path: PathBuf| files::read(&plan.guard, &path, Symlinks::Follow, 100);
    let write = |path: PathBuf| files::write(&plan.guard, &path, b"x", WriteOptions::new());
    assert_eq!(read(scene.w.join("f")).unwrap(), "f");
    write(scene.w.join("f")).unwrap();
    assert!(matches!(read(scene.o.join("f")), Err(FsError::NotFound { .. })));
    assert!(matches!(write(scene.o.join("f")), Err(FsError::NotFound { .. })));
    // Even what leads to a root by a link from outside of it is not there.
    std::os::unix::fs::symlink(&scene.w, scene.o.join("link")).unwrap();
    assert!(matches!(read(scene.o.join("link/f")), Err(FsError::NotFound { .. })));
    assert_eq!(fs::read(scene.o.join("f")).unwrap(), b"f");
}

#[test]
fn the_second_wall_stands_alone() {
    if !landlock::is_there() {
        eprintln!("SKIPPED the_second_wall_stands_alone: this kernel has no Landlock");
        return;
    }
    let scene = Scene::new();
    for (intent, reads_outside) in [
        (SandboxIntent::workspace_write([uri(&scene.w)]), true),
        (SandboxIntent::minimal_write([uri(&scene.w)]), false),
    ] {
        let plan = scene.plan(intent);
        let ruleset = landlock::Wall::of(plan.guard.bound()).build().unwrap().unwrap();
        let (w, o) = (scene.w.clone(), scene.o.clone());
        let behind = move || {
            ruleset.restrict_this_thread().unwrap();
            assert_eq!(fs::read(w.join("f")).unwrap(), b"f");
            fs::write(w.join("f"), "f").unwrap();
            fs::rename(w.join("f"), w.join("g")).unwrap();
            fs::rename(w.join("g"), w.join("f")).unwrap();
            fs::create_dir(w.join("d")).unwrap();
            fs::remove_dir(w.join("d")).unwrap();
            assert_eq!(fs::read(o.join("f")).is_ok(), reads_outside);
            assert_eq!(fs::read_dir(&o).is_ok(), reads_outside);
            fs::write(o.join("f"), "x").unwrap_err();
            fs::write(o.join("new"), "x").unwrap_err();
            fs::create_dir(o.join("new")).unwrap_err();
            fs::remove_file(o.join("f")).unwrap_err();
            fs::rename(w.join("f"), o.join("f")).unwrap_err();
        };
        std::thread::spawn(behind).join().unwrap();
        // Only that thread.
        fs::write(scene.o.join("f"), "f").unwrap();
    }
}

#[tokio::test]
async fn a_call_that_panics_fails_alone() {
    let scene = Scene::new();
    let plan = scene.plan(SandboxIntent::read_only());
    let (crew, pool) = (plan.crew.clone().unwrap(), Pool::new(2));
    let panicked = crew.run(&pool, || -> Result<(), FsError> { panic!("on purpose") }).await;
    assert!(matches!(panicked, Err(FsError::Os { .. })), "{panicked:?}");
    crew.run(&pool, || Ok(())).await.unwrap();
    pool.idle().await;
}

#[test]
fn equal_walls_share_their_threads_and_plans_are_bounded() {
    let scene = Scene::new();
    let plans = Plans::default();
    let make = |intent: &SandboxIntent| plans.make(intent, &files()).unwrap();
    let one = make(&SandboxIntent::workspace_write([uri(&scene.w)]).cwd(uri(&scene.w)));
    let other = make(&SandboxIntent::workspace_write([uri(&scene.w)]).cwd(uri(&scene.w)).deny(uri(&scene.w.join("f"))));
    let crews = [&one, &other].map(|plan| plan.crew.clone().unwrap());
    assert!(Arc::ptr_eq(&crews[0], &crews[1]), "what is denied is no matter of the second wall");
    for number in 0..100 {
        let root = scene.w.join(number.to_string());
        fs::create_dir(&root).unwrap();
        make(&SandboxIntent::workspace_write([uri(&root)]).cwd(uri(&root)));
    }
    let (plans, crews, bytes) = plans.sizes();
    assert!(plans <= 64 && crews <= 16 && bytes < 1 << 20, "{plans} {crews} {bytes}");
}

#[test]
fn large_intents_do_not_fill_the_memory_with_plans() {
    let scene = Scene::new();
    let plans = Plans::default();
    let make = |number: usize| {
        // What means nothing here is kept with the rest.
        let path = number.to_string().repeat(1 << 20);
        let token = crate::sandbox::Special::Unknown { path, subpath: None };
        let intent = SandboxIntent::read_only().cwd(uri(&scene.w));
        let intent = intent.entry(crate::sandbox::Entry::special(token, crate::sandbox::Access::Read));
        plans.make(&intent, &files()).unwrap();
        intent
    };
    let last = (10..40).map(make).last().unwrap();
    let (kept, _, bytes) = plans.sizes();
    assert!((4..8).contains(&kept) && bytes <= 16 << 20, "{kept} {bytes}");
    assert!(plans.known(&last).is_some(), "the last one is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_wait_for_more_to_do_are_bounded_for_all_policies_together() {
    const POLICIES: usize = 40;
    let scene = Scene::new();
    let (plans, pool) = (Plans::default(), Pool::new(4));
    let mut made = Vec::new();
    for number in 0..POLICIES {
        let root = scene.w.join(number.to_string());
        fs::create_dir(&root).unwrap();
        let intent = SandboxIntent::workspace_write([uri(&root)]).cwd(uri(&root));
        let plan = plans.make(&intent, &files()).unwrap();
        let crew = plan.crew.clone().unwrap();
        let both = Arc::new(std::sync::Barrier::new(2));
        let wait = || {
            let both = Arc::clone(&both);
            crew.run(&pool, move || {
                both.wait();
                Ok(())
            })
        };
        let (one, other) = tokio::join!(wait(), wait());
        one.and(other).unwrap();
        made.push(crew);
    }
    // Until none of them is busy.
    let threads = loop {
        let (threads, idle) =
            made.iter().map(|crew| crew.threads()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        if threads == idle {
            break threads;
        }
        tokio::task::yield_now().await;
    };
    assert!(threads <= 32, "{threads} threads wait");
    // There are more as soon as there is something to do.
    for crew in &made {
        crew.run(&pool, || Ok(())).await.unwrap();
    }
}
