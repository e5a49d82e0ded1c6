//! Bindings of random intents to random trees of real files, against what the intents mean.

use super::*;
use crate::sandbox::scene::{Scene, seeds};

/// What is bound is what is meant, to the letter. It is refused where the meaning says so, and nowhere else: a link that a
/// process could exchange, links in a circle, what is denied outside of the roots, a pattern at the root of the file system.
/// Where the rule of the longest entry alone would allow more, the meaning has the exceptions: nothing is allowed by an entry
/// for what does not exist, and protected names are not written.
#[test]
fn what_is_bound_is_what_is_meant() {
    let (mut bound_ones, mut cases) = (0, 0);
    for seed in seeds(400) {
        let scene = Scene::new(seed, false);
        cases += 1;
        let meaning = scene.meaning();
        let mut bound = match (scene.bind(), &meaning) {
            (Ok(bound), Ok(_)) => bound,
            (Err(SandboxError::Preparation { .. }), Err(_)) => continue,
            (bound, _) => panic!("{bound:?} of what means {meaning:?}"),
        };
        bound_ones += 1;
        let meaning = meaning.unwrap();
        let paths = scene.canonical_paths();
        let check = |bound: &Bound| {
            for path in &paths {
                let got = bound.access(path).unwrap_or(Deny);
                assert_eq!(got, meaning.access(path), "{} by {bound:?}", path.display());
            }
        };
        check(&bound);
        bound.expand_globs(&HostPaths).unwrap();
        check(&bound);
    }
    assert!(cases < 100 || bound_ones > cases / 4, "{bound_ones} of {cases} were bound");
}
