//! Calls about files under random intents on random trees, against what the intents mean.

use super::*;
use crate::sandbox::Access;
use crate::sandbox::scene::{Scene, clean, lead, seeds};

/// What a path without links names is read and written exactly if that is meant; by any other way to it, never otherwise.
/// Calls know no dots but by their text.
#[tokio::test]
async fn calls_do_what_is_meant() {
    let (mut reads, mut writes) = (0, 0);
    for seed in seeds(60) {
        let scene = Scene::new(seed, false);
        let Ok(meaning) = scene.meaning() else { continue };
        let config = LocalFileSystemConfig::default().temp_dir(&scene.temp);
        let files = view(LocalFileSystem::new(config), scene.intent.clone());
        for path in scene.paths() {
            let Ok(led) = lead(&clean(&path)) else { continue };
            let (is_itself, inside) = (led.path == path, led.path.starts_with(&scene.top));
            let meant = if led.nowhere { Access::Deny } else { meaning.access(&led.path) };
            let read = if led.path.is_dir() {
                let listed = files.read_directory(path.clone().into()).await;
                if let Ok(listed) = &listed
                    && meant == Access::Deny
                {
                    // Of a directory that only leads to something, that is shown.
                    for entry in listed {
                        let shown = led.path.join(&entry.file_name);
                        assert!(!led.nowhere && (shown.is_symlink() || meaning.leads(&shown)), "{}", shown.display());
                    }
                    continue;
                }
                listed.map(drop)
            } else {
                files.read(path.clone().into(), ReadOptions::new()).await.map(drop)
            };
            assert!(read.is_err() || (led.exists && meant >= Access::Read), "{} is read", path.display());
            if is_itself && led.exists && meant >= Access::Read {
                read.unwrap_or_else(|error| panic!("{} is not read: {error}", path.display()));
                reads += 1;
            }
            // Nothing is tried that could change another tree.
            if !inside {
                continue;
            }
            let written = if led.exists && led.path.is_file() {
                files.open(path.clone().into(), OpenMode::Update).await.map(drop)
            } else if led.exists {
                continue;
            } else {
                files.create_directory(path.clone().into(), CreateDirectoryOptions::new()).await
            };
            let made = written.is_ok();
            assert!(!made || meant == Access::Write, "{} is written", path.display());
            let parent = led.path.parent().unwrap();
            let may = led.exists || (parent.is_dir() && meaning.access(parent) == Access::Write);
            if is_itself && may && meant == Access::Write {
                written.unwrap_or_else(|error| panic!("{} is not written: {error}", path.display()));
                writes += 1;
            }
            if !led.exists && made {
                fs::remove_dir(&led.path).unwrap();
            }
        }
    }
    assert!(std::env::var_os("LONGARM_SEED").is_some() || (reads > 0 && writes > 0), "{reads} {writes}");
}
