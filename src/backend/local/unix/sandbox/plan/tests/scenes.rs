//! The mounts and rules for random intents on random trees, against what the intents mean.

use super::*;
use crate::sandbox::HostPaths;
use crate::sandbox::scene::{Scene, seeds};

#[test]
fn the_plan_allows_what_is_meant_with_all_that_exists() {
    let kernel = Kernel {
        mode: Mode::User,
        fresh_proc: true,
        network: true,
        landlock: Some(7),
        ..probe::kernel().unwrap().clone()
    };
    let mut planned = 0;
    for seed in seeds(200) {
        let scene = Scene::new(seed, false);
        let (Ok(mut bound), Ok(meaning)) = (scene.bind(), scene.meaning()) else { continue };
        bound.expand_globs(&HostPaths).unwrap();
        planned += 1;
        // Names that do not exist are held by something that is put there, which is another matter.
        let paths: Vec<PathBuf> = scene.canonical_paths().into_iter().filter(|path| path.exists()).collect();
        for path in &paths {
            assert_eq!(bound.access(path).unwrap_or(Access::Deny), meaning.access(path), "{}", path.display());
        }
        check(&bound, &paths, &kernel);
    }
    assert!(std::env::var_os("LONGARM_SEED").is_some() || planned > 0);
}
