//! Random intents against a rule that is simple enough to be seen to be right.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Short paths over few names, so that they meet.
fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just(".git")], 1..4)
        .prop_map(|names| names.iter().map(|name| format!("/{name}")).collect())
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Deny), Just(Read), Just(Write)]
}

fn intent(entries: Vec<Entry>, roots: &[String]) -> SandboxIntent {
    let file_system = FileSystemPolicy::Restricted { entries, glob_scan_max_depth: None };
    let intent = SandboxIntent::new(PermissionProfile::Managed { file_system, network: NetworkPolicy::Restricted });
    roots.iter().fold(intent, |intent, root| intent.workspace_root(uri(root)))
}

fn entry((path, access, skip_missing): (String, Access, bool)) -> Entry {
    Entry { skip_missing, ..Entry::path(uri(&path), access) }
}

/// Of the entries that name the path or something above it, those with most names; of those, deny, then write.
fn asked(entries: &[(PathBuf, Access)], root: Option<Access>, path: &Path) -> Access {
    let above = entries.iter().filter(|(entry, _)| path.starts_with(entry));
    let best = above.max_by_key(|(entry, access)| (entry.components().count(), strength(*access)));
    best.map(|(_, access)| *access).or(root).unwrap_or(Deny)
}

/// Every path that the entries could be about.
fn probes() -> Vec<PathBuf> {
    let names = ["a", "b", ".git", "c"];
    let mut paths = vec![PathBuf::from("/")];
    for _ in 0..3 {
        let deeper: BTreeSet<PathBuf> = paths.iter().flat_map(|path| names.map(|name| path.join(name))).collect();
        paths.extend(deeper);
    }
    paths
}

proptest! {
    /// Without links, roots and missing paths, what is bound is exactly what was asked for, in whatever order.
    #[test]
    fn the_longest_entry_decides(
        entries in proptest::collection::vec((path(), access(), any::<bool>()), 0..8),
        root in proptest::option::of(access()),
        turn in 0..8_usize,
    ) {
        let fake = entries.iter().fold(FakePaths::default(), |fake, (path, ..)| fake.with(&format!("{path}/")));
        let asked_for: Vec<_> = entries.iter().map(|(path, access, _)| (PathBuf::from(path), *access)).collect();
        let mut wire: Vec<_> = entries.into_iter().map(entry).collect();
        wire.extend(root.map(|access| Entry::special(Special::Root, access)));
        let bound = bind(&fake, &intent(wire.clone(), &[]));
        for path in probes() {
            let got = bound.access(&path).unwrap_or(Deny);
            prop_assert_eq!(got, asked(&asked_for, root, &path), "{}", path.display());
        }
        let turned = turn.min(wire.len());
        wire.rotate_left(turned);
        prop_assert_eq!(&bind(&fake, &intent(wire.clone(), &[])), &bound);
        wire.reverse();
        prop_assert_eq!(&bind(&fake, &intent(wire, &[])), &bound);
        // The lists together are the entries that matter.
        let listed = bound.write_roots().count() + bound.carve_outs().count() + bound.masks().count();
        prop_assert!(listed <= bound.changes().count());
    }

    /// With anything there or missing, with links, roots and patterns: never wider than what was asked for by the paths
    /// without links.
    #[test]
    fn nothing_is_wider_than_asked_for(
        things in proptest::collection::vec((path(), 0..3_u8, path()), 0..8),
        entries in proptest::collection::vec((path(), access(), any::<bool>()), 0..8),
        roots in proptest::collection::vec(path(), 0..3),
        root in proptest::option::of(access()),
        glob in proptest::option::of(path()),
    ) {
        // Something that stands in the way of a later thing stays.
        let fake = things.iter().fold(FakePaths::default(), |fake, (path, kind, target)| {
            let above_is_directory = Path::new(path).ancestors().skip(1).all(|above| {
                matches!(fake.look(above).unwrap().found, crate::sandbox::Found::Directory | crate::sandbox::Found::Missing)
            });
            let vacant = fake.look(Path::new(path)).unwrap().found == crate::sandbox::Found::Missing;
            match kind {
                _ if !above_is_directory || !vacant => fake,
                0 => fake.with(path),
                1 => fake.with(&format!("{path}/")),
                _ => fake.with(&format!("{path} -> {target}")),
            }
        });
        let resolver = Resolver::new(&fake);
        let canonical = |path: &str| resolver.resolve(Path::new(path)).map(|resolved| resolved.path);
        let mut wire: Vec<_> = entries.iter().cloned().map(entry).collect();
        wire.extend(root.map(|access| Entry::special(Special::Root, access)));
        wire.push(Entry::special(Special::ProjectRoots { subpath: None }, Write));
        let pattern = glob.as_ref().map(|base| format!("{base}/*"));
        wire.extend(pattern.map(|pattern| Entry::new(EntryPath::Glob { pattern }, Deny)));
        let Ok(mut bound) = try_bind(&fake, &intent(wire, &roots)) else { return Ok(()) };
        let mut asked_for = Vec::new();
        let mut asked_root = root;
        // One that may be missing and is says nothing.
        let counts = |path: &str, access: Access, skip: bool| {
            access != Read || !skip || resolver.resolve(Path::new(path)).unwrap().exists()
        };
        let named = entries.iter().filter(|(path, access, skip)| counts(path, *access, *skip));
        let named = named.map(|(path, access, _)| (path, *access));
        for (path, access) in named.chain(roots.iter().map(|root| (root, Write))) {
            let path = canonical(path).unwrap();
            if path.parent().is_none() {
                asked_root = stronger(asked_root, access);
            }
            asked_for.push((path, access));
        }
        let base = glob.map(|base| canonical(&base).unwrap());
        let check = |bound: &Bound| {
            for path in probes() {
                let (got, wanted) = (bound.access(&path).unwrap_or(Deny), asked(&asked_for, asked_root, &path));
                prop_assert!(got <= wanted, "{}: {got:?} instead of {wanted:?}", path.display());
                let matched = base.as_ref().is_some_and(|base| path.parent() == Some(base));
                prop_assert!(!matched || got == Deny, "{} matches", path.display());
            }
            Ok(())
        };
        check(&bound)?;
        bound.expand_globs(&fake).unwrap();
        check(&bound)?;
    }

    /// Any text gets an answer, and what is taken goes both ways.
    #[test]
    fn any_intent_gets_an_answer(text in any::<String>(), number in 0..40_usize, piece in ".{0,12}") {
        let _ = SandboxIntent::from_json(&text);
        let example = SandboxIntent::workspace_write([uri("/a")]).deny_glob("/a/**/*.pem").read(uri("/b")).to_json();
        let mut pieces: Vec<&str> = example.split_inclusive(['"', ':', ',', '}', ']']).collect();
        let at = number % pieces.len();
        pieces[at] = &piece;
        if let Ok(intent) = SandboxIntent::from_json(&pieces.concat()) {
            prop_assert_eq!(SandboxIntent::from_json(&intent.to_json()).ok(), Some(intent.clone()));
            let _ = try_bind(&machine(), &intent);
        }
    }
}
