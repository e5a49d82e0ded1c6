//! Commands under random intents on random trees, against what the intents mean.

use std::fmt::Write as _;

use super::*;
use crate::sandbox::HostPaths;
use crate::sandbox::scene::{Scene, lead, seeds};

/// One command tries every path, by links and dots too, and tells what it could do.
#[tokio::test]
async fn a_command_can_do_what_is_meant() {
    let Some(kernel) = kernels_with_mounts().into_iter().next() else { return };
    let (mut read, mut written) = (0, 0);
    for seed in seeds(12) {
        let scene = Scene::new(seed, true);
        let (Ok(mut bound), Ok(meaning)) = (scene.bind(), scene.meaning()) else { continue };
        bound.expand_globs(&HostPaths).unwrap();
        if bound.admits_process(Path::new("/")).is_err()
            || ["/usr", "/bin/sh"].iter().any(|path| !reads(&meaning, path))
        {
            continue;
        }
        let paths = scene.paths();
        let mut script = format!("exec 2>/dev/null; T='{}'; {HELPERS}", scene.top.display());
        for (number, path) in paths.iter().enumerate() {
            let written = match path.strip_prefix(&scene.top) {
                Ok(below) => format!("\"$T/{}\"", below.display()),
                Err(_) => path.display().to_string(),
            };
            let _ = write!(script, "r {number} {written}; ");
            // Nothing is tried that could change another tree.
            if lead(path).is_ok_and(|led| led.path.starts_with(&scene.top)) {
                let _ = write!(script, "w {number} {written}; ");
            }
        }
        let bound = Arc::new(bound);
        let plan = launch_plan(&script, Path::new("/"), prepared(&kernel, &bound, Walls::default()));
        let (_, output) = Running::start(plan).await.unwrap().end().await;
        let done: std::collections::HashSet<&str> = output.lines().collect();
        for (number, path) in paths.iter().enumerate() {
            let Ok(led) = lead(path) else { continue };
            let meant = if led.exists { meaning.access(&led.path) } else { Access::Deny };
            let could = |what: char| done.contains(format!("{what}{number}").as_str());
            // A directory that leads to something visible is there, and can be listed as far as that.
            let leads = meant == Access::Deny && bound.root.is_none() && bound.opens_below(&led.path);
            assert!(!could('r') || meant >= Access::Read || leads, "{} is read", path.display());
            // What is made in a directory has the rights of that: patterns are about what there was at the start.
            assert!(!could('w') || meant == Access::Write, "{} is written", path.display());
            if *path != led.path || !led.exists {
                continue;
            }
            if meant >= Access::Read {
                assert!(could('r'), "{} is not read", path.display());
                read += 1;
            }
            let inside = led.path.starts_with(&scene.top);
            if inside && meant == Access::Write {
                assert!(could('w'), "{} is not written", path.display());
                written += 1;
            }
        }
    }
    assert!(std::env::var_os("LONGARM_SEED").is_some() || (read > 0 && written > 0), "{read} {written}");
}

/// What tries to read and to write. Appending nothing changes nothing.
const HELPERS: &str = r#"
r() { if test -d "$2"; then ls "$2" >/dev/null && echo "r$1"; else cat <"$2" >/dev/null && echo "r$1"; fi; }
w() {
    if test -d "$2"; then mkdir "$2/probe" && rmdir "$2/probe" && echo "w$1"
    elif test -e "$2"; then true >>"$2" && echo "w$1"; fi
}
"#;

fn reads(meaning: &crate::sandbox::scene::Meaning, path: &str) -> bool {
    lead(Path::new(path)).is_ok_and(|led| meaning.access(&led.path) >= Access::Read)
}
