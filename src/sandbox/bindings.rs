//! What intents were bound to last: most commands of a host have the same one.
//!
//! What an intent is bound to follows from it, from the facts, and from what was found at the paths that were looked at. So if
//! all of them are found as they were, binding it again would come to the same.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::bound::Bound;
use super::error::SandboxError;
use super::facts::{Facts, Found, PathIdentity, Platform, Seen};
use super::intent::SandboxIntent;

/// The last bindings of one executor.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// The last one last.
    last: Mutex<Vec<Arc<Binding>>>,
    /// What was made of them last, the last one last.
    finished: Mutex<Vec<Finished>>,
}

/// What is made of a binding by what the executor keeps and puts there.
#[derive(Debug)]
struct Finished {
    bound: Arc<Bound>,
    own: Vec<PathBuf>,
    placed: Vec<PathBuf>,
    finished: Arc<Bound>,
}

#[derive(Debug)]
struct Binding {
    intent: SandboxIntent,
    platform: Platform,
    temp_dir: Option<PathBuf>,
    uid: Option<u32>,
    extra_protected_names: Vec<String>,
    /// What was looked at, in that order, and what was found. Nothing where the user may not look.
    looks: Vec<(PathBuf, Option<Seen>)>,
    bound: Arc<Bound>,
}

impl Bindings {
    /// Binds an intent, as [`SandboxIntent::bind`] does.
    ///
    /// # Errors
    ///
    /// Those of [`SandboxIntent::bind`].
    pub(crate) fn bind(&self, intent: &SandboxIntent, facts: &Facts<'_>) -> Result<Arc<Bound>, SandboxError> {
        let known = self.find(intent, facts);
        if let Some(known) = &known
            && known.holds(facts.identity)
        {
            return Ok(Arc::clone(&known.bound));
        }
        let recorder = Recorder::new(facts.identity);
        let bound = Arc::new(intent.bind(&Facts { identity: &recorder, ..*facts })?);
        let looks = recorder.looks().filter(|looks| (1..=MOST_LOOKS).contains(&looks.len()));
        if let Some(looks) = looks.filter(|_| bound.entries.len() <= MOST_LOOKS) {
            let binding = Binding {
                intent: intent.clone(),
                platform: facts.platform,
                temp_dir: facts.temp_dir.map(Into::into),
                uid: facts.uid,
                extra_protected_names: facts.extra_protected_names.to_vec(),
                looks,
                bound: Arc::clone(&bound),
            };
            self.keep(binding, known.as_ref());
        }
        Ok(bound)
    }

    /// A binding in which these directories of the executor's own are [kept out](Bound::keep_out), and directories that were
    /// missing [exist](Bound::come_to_exist) by now.
    ///
    /// # Errors
    ///
    /// Those of [`Bound::keep_out`].
    pub(crate) fn finish(
        &self,
        bound: &Arc<Bound>,
        own: &[PathBuf],
        placed: &[&Path],
    ) -> Result<Arc<Bound>, SandboxError> {
        if own.is_empty() && placed.is_empty() {
            return Ok(Arc::clone(bound));
        }
        let is_of = |of: &&Finished| Arc::ptr_eq(&of.bound, bound) && of.own == own && of.placed == placed;
        let known = |last: &[Finished]| last.iter().rev().find(is_of).map(|of| Arc::clone(&of.finished));
        if let Some(finished) = known(&self.finished.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(finished);
        }
        let mut finished = Bound::clone(bound);
        own.iter().try_for_each(|path| finished.keep_out(path))?;
        placed.iter().for_each(|path| finished.come_to_exist(path));
        let finished = Arc::new(finished);
        // One that is not kept itself is another one the next time.
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = last.iter().any(|binding| Arc::ptr_eq(&binding.bound, bound));
        drop(last);
        if is_kept {
            let (own, placed) = (own.to_vec(), placed.iter().map(Into::into).collect());
            let new = Finished { bound: Arc::clone(bound), own, placed, finished: Arc::clone(&finished) };
            let mut last = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() == MOST_FINISHED {
                last.remove(0);
            }
            last.push(new);
        }
        Ok(finished)
    }

    /// How many are known.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn find(&self, intent: &SandboxIntent, facts: &Facts<'_>) -> Option<Arc<Binding>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().rev().find(|binding| binding.is_of(intent, facts)).cloned()
    }

    /// In the place of one that does not hold any more, or of the one that was kept the longest.
    fn keep(&self, binding: Binding, former: Option<&Arc<Binding>>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|other| former.is_none_or(|former| !Arc::ptr_eq(other, former)));
        if last.len() == MOST {
            last.remove(0);
        }
        last.push(Arc::new(binding));
    }
}

impl Binding {
    fn is_of(&self, intent: &SandboxIntent, facts: &Facts<'_>) -> bool {
        self.platform == facts.platform
            && self.temp_dir.as_deref() == facts.temp_dir
            && self.uid == facts.uid
            && self.extra_protected_names == facts.extra_protected_names
            && self.intent == *intent
    }

    /// Whether everything is found as it was.
    fn holds(&self, identity: &dyn PathIdentity) -> bool {
        self.looks.iter().all(|(path, found)| match identity.look(path) {
            Ok(now) => found.as_ref() == Some(&now),
            Err(error) => found.is_none() && error.kind() == io::ErrorKind::PermissionDenied,
        })
    }
}

/// Writes down what is looked at.
struct Recorder<'a> {
    identity: &'a dyn PathIdentity,
    looks: RefCell<Vec<(PathBuf, Option<Seen>)>>,
    /// Something else was asked for, or failed.
    is_more: Cell<bool>,
}

impl<'a> Recorder<'a> {
    fn new(identity: &'a dyn PathIdentity) -> Self {
        Self { identity, looks: RefCell::default(), is_more: Cell::new(false) }
    }

    /// All that was looked at, if nothing else was asked for.
    fn looks(self) -> Option<Vec<(PathBuf, Option<Seen>)>> {
        (!self.is_more.get()).then(|| self.looks.into_inner())
    }
}

impl PathIdentity for Recorder<'_> {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        let seen = self.identity.look(path);
        match &seen {
            Ok(seen) => self.looks.borrow_mut().push((path.into(), Some(seen.clone()))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.looks.borrow_mut().push((path.into(), None));
            }
            Err(_) => self.is_more.set(true),
        }
        seen
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        self.is_more.set(true);
        self.identity.list(directory)
    }

    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
        self.is_more.set(true);
        self.identity.read_start(file, max)
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        // Where a path has one spelling only, there is nothing to be asked for.
        if cfg!(any(target_os = "macos", windows)) {
            self.is_more.set(true);
        }
        self.identity.true_name(path)
    }
}

/// As many different intents as a host may have in use.
const MOST: usize = 4;

/// Each as it is before the names are held, and then.
const MOST_FINISHED: usize = 2 * MOST;

/// Of larger ones the binding is not what costs.
const MOST_LOOKS: usize = 128;

#[cfg(test)]
mod tests {
    use super::super::fake::{FakePaths, UID};
    use super::*;
    use crate::path_uri::PathUri;

    /// A file system that counts the looks.
    struct Counted {
        paths: FakePaths,
        looks: Cell<usize>,
        reads: Cell<usize>,
    }

    impl PathIdentity for Counted {
        fn look(&self, path: &Path) -> io::Result<Seen> {
            self.looks.set(self.looks.get() + 1);
            self.paths.look(path)
        }

        fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
            self.paths.list(directory)
        }

        fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
            self.reads.set(self.reads.get() + 1);
            self.paths.read_start(file, max)
        }

        fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
            self.paths.true_name(path)
        }
    }

    fn counted(paths: &FakePaths) -> Counted {
        Counted { paths: paths.clone(), looks: Cell::new(0), reads: Cell::new(0) }
    }

    fn usual() -> SandboxIntent {
        SandboxIntent::workspace_write([PathUri::parse("file:///srv/w").unwrap()])
    }

    fn paths() -> FakePaths {
        FakePaths::new(&["/srv/w/.git/", "/srv/w/src/", "/tmp/"])
    }

    /// Binds it in both ways, which come to the same. Whether it was bound anew, if only to find that it cannot be.
    fn is_anew(bindings: &Bindings, intent: &SandboxIntent, facts: &Facts<'_>) -> bool {
        let before = bindings.find(intent, facts);
        let bound = bindings.bind(intent, facts);
        match (bound, intent.bind(facts)) {
            (Ok(bound), Ok(anew)) => assert_eq!(*bound, anew),
            (Err(error), Err(anew)) => {
                assert_eq!(error.to_string(), anew.to_string());
                return true;
            }
            (bound, anew) => panic!("{bound:?} {anew:?}"),
        }
        let after = bindings.find(intent, facts);
        match (before, after) {
            (Some(before), Some(after)) => !Arc::ptr_eq(&before, &after),
            _ => true,
        }
    }

    #[test]
    fn what_is_found_as_it_was_is_not_bound_again() {
        let (bindings, identity) = (Bindings::default(), counted(&paths()));
        let facts = Facts::new(Platform::Linux, &identity).uid(Some(UID));
        let first = bindings.bind(&usual(), &facts).unwrap();
        let looks = identity.looks.replace(0);
        assert!(looks > 4, "{looks}");
        assert_eq!(bindings.bind(&usual(), &facts).unwrap(), first);
        assert_eq!((identity.looks.get(), bindings.known()), (looks, 1), "at all of it");
        assert!(!is_anew(&bindings, &usual(), &facts));
    }

    #[test]
    fn whatever_is_found_differently_is_bound_anew() {
        let changed = [
            paths().with("/srv/w/.codex/"),
            paths().with("/srv/w/.aws"),
            paths().with("/srv/w/.agents -> /srv"),
            FakePaths::new(&["/srv/w/src/", "/tmp/"]),
            FakePaths::new(&["/srv/w -> /srv/other", "/srv/other/.git/", "/tmp/"]),
            FakePaths::new(&["/srv/w/.git/", "/srv/w/src/"]),
            paths().owned("/srv/w", UID + 1),
            paths().blocked("/srv"),
            FakePaths::new(&["/tmp/"]),
        ];
        for paths_now in changed {
            let bindings = Bindings::default();
            let before = paths();
            let facts = |paths| Facts::new(Platform::Linux, paths).uid(Some(UID));
            assert!(is_anew(&bindings, &usual(), &facts(&before)));
            assert!(is_anew(&bindings, &usual(), &facts(&paths_now)), "{paths_now:?}");
            is_anew(&bindings, &usual(), &facts(&before));
            assert!(!is_anew(&bindings, &usual(), &facts(&before)));
            assert_eq!(bindings.known(), 1);
        }
    }

    #[test]
    fn other_intents_and_other_facts_are_others_and_the_last_few_are_kept() {
        let (bindings, paths) = (Bindings::default(), paths());
        let extra = [".mine".to_owned()];
        let facts = Facts::new(Platform::Linux, &paths).uid(Some(UID));
        let others = [
            facts,
            facts.uid(None),
            facts.temp_dir(Path::new("/srv")),
            Facts { platform: Platform::Posix, ..facts },
            Facts { extra_protected_names: &extra, ..facts },
        ];
        for facts in &others {
            assert!(is_anew(&bindings, &usual(), facts) && !is_anew(&bindings, &usual(), facts));
        }
        assert_eq!(bindings.known(), MOST);
        assert!(is_anew(&bindings, &usual(), &others[0]), "it was kept the longest");
        assert!(!is_anew(&bindings, &usual(), &others[4]));
        let denied = usual().deny_below_roots("src");
        assert!(is_anew(&bindings, &denied, &others[4]) && !is_anew(&bindings, &denied, &others[4]));
    }

    #[test]
    fn what_depends_on_more_than_looks_is_bound_each_time() {
        let worktree = FakePaths::new(&["/srv/w/", "/srv/repository/", "/tmp/"]);
        let identity = counted(&worktree.text("/srv/w/.git", "gitdir: /srv/repository"));
        let (bindings, facts) = (Bindings::default(), Facts::new(Platform::Linux, &identity).uid(Some(UID)));
        for reads in 1..3 {
            bindings.bind(&usual(), &facts).unwrap();
            assert_eq!((identity.reads.get(), bindings.known()), (reads, 0));
        }
        // Nothing is looked at.
        bindings.bind(&SandboxIntent::read_only(), &facts).unwrap();
        assert_eq!(bindings.known(), 0);
    }

    #[test]
    fn what_is_made_of_a_binding_is_made_once_for_the_same_directories() {
        let (bindings, paths) = (Bindings::default(), paths());
        let facts = Facts::new(Platform::Linux, &paths).uid(Some(UID));
        let bound = bindings.bind(&usual(), &facts).unwrap();
        let (own, git) = ([PathBuf::from("/srv/w/state")], Path::new("/srv/w/.codex"));
        let other = [PathBuf::from("/srv/w/src")];
        type Made<'a> = (&'a [PathBuf], &'a [&'a Path]);
        let all: [Made<'_>; 5] = [(&own, &[]), (&own, &[git]), (&other, &[git]), (&[], &[git]), (&other, &[])];
        let mut made: Vec<Arc<Bound>> = Vec::new();
        for (own, placed) in all {
            let mut expected = Bound::clone(&bound);
            own.iter().try_for_each(|path| expected.keep_out(path)).unwrap();
            placed.iter().for_each(|path| expected.come_to_exist(path));
            assert!(expected != *bound && made.iter().all(|made| **made != expected));
            let finished = bindings.finish(&bound, own, placed).unwrap();
            assert_eq!(*finished, expected);
            assert!(Arc::ptr_eq(&finished, &bindings.finish(&bound, own, placed).unwrap()));
            made.push(finished);
        }
        assert!(Arc::ptr_eq(&bound, &bindings.finish(&bound, &[], &[]).unwrap()));
        // What is to be writable cannot be kept out, however often that is tried.
        let root = [PathBuf::from("/srv/w")];
        assert!((0..2).all(|_| bindings.finish(&bound, &root, &[]).is_err()));
        // Nor is anything taken for what was made of another one.
        let denied = bindings.bind(&usual().deny_below_roots("src"), &facts).unwrap();
        let finished = bindings.finish(&denied, &own, &[git]).unwrap();
        assert_ne!(finished, made[1]);
        assert_eq!(bindings.finished.lock().unwrap().len(), 6);
        let unknown = Arc::new(Bound::clone(&bound));
        assert_eq!(bindings.finish(&unknown, &own, &[git]).unwrap(), made[1]);
        assert_eq!(bindings.finished.lock().unwrap().len(), 6, "it is not kept itself");
        for number in 0..MOST_FINISHED {
            bindings.finish(&bound, &[format!("/srv/w/{number}").into()], &[]).unwrap();
        }
        assert_eq!(bindings.finished.lock().unwrap().len(), MOST_FINISHED);
    }
}
