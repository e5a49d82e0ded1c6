//! The bounded walk against a naive one over a model of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use longarm::fs::{FileSystem, WalkKind, WalkOptions};
use longarm::path_uri::PathUri;
use proptest::prelude::*;

use crate::support::{Scratch, files};

/// A node of the model. Links lead to a node by its path from the root, if there is one.
#[derive(Clone, Debug)]
enum Node {
    File,
    Fifo,
    Directory(BTreeMap<String, Self>),
    Link(PathBuf),
}

const NAMES: &[&str] = &["a", "B", ".h", "c d", "\u{e9}"];

fn nodes() -> impl Strategy<Value = BTreeMap<String, Node>> {
    let leaf = prop_oneof![
        4 => Just(Node::File),
        1 => Just(Node::Fifo),
        3 => prop::collection::vec(prop::sample::select(NAMES), 0..4).prop_map(|names| Node::Link(names.iter().collect())),
    ];
    let node = leaf.prop_recursive(4, 40, 5, |inner| {
        prop::collection::btree_map(prop::sample::select(NAMES).prop_map(String::from), inner, 0..5)
            .prop_map(Node::Directory)
    });
    prop::collection::btree_map(prop::sample::select(NAMES).prop_map(String::from), node, 0..5)
}

fn options() -> impl Strategy<Value = WalkOptions> {
    (0_u64..5, 1_u64..8, 1_u64..20, any::<bool>(), any::<bool>()).prop_map(
        |(depth, directories, entries, follow, prune)| {
            WalkOptions::new()
                .max_depth(depth)
                .max_directories(directories)
                .max_entries(entries)
                .follow_directory_symlinks(follow)
                .prune_hidden_directories(prune)
        },
    )
}

fn build(path: &Path, root: &Path, nodes: &BTreeMap<String, Node>) {
    for (name, node) in nodes {
        let path = path.join(name);
        match node {
            Node::File => fs::write(path, "").unwrap(),
            Node::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            Node::Directory(nodes) => {
                fs::create_dir(&path).unwrap();
                build(&path, root, nodes);
            }
            Node::Link(target) => symlink(root.join(target), path).unwrap(),
        }
    }
}

/// What the model expects: paths from the root with their kinds, and whether it was cut.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    entries: Vec<(PathBuf, WalkKind)>,
    truncated: bool,
}

struct Model {
    root: Node,
}

impl Model {
    /// Where a path leads, links resolved: the real path and the node there.
    fn resolve(&self, path: &Path, links: usize) -> Option<(PathBuf, &Node)> {
        let mut node = &self.root;
        let mut real = PathBuf::new();
        let mut rest = path.iter();
        while let Some(name) = rest.next() {
            let Node::Directory(nodes) = node else { return None };
            node = nodes.get(name.to_str()?)?;
            real.push(name);
            if let Node::Link(target) = node {
                if links == 0 {
                    return None;
                }
                let target: PathBuf = target.iter().chain(rest).collect();
                return self.resolve(&target, links - 1);
            }
        }
        Some((real, node))
    }

    fn walk(&self, options: WalkOptions) -> Expected {
        let mut expected = Expected::default();
        let mut seen = vec![PathBuf::new()];
        let (mut directories, mut examined) = (0, 0);
        let mut level = vec![PathBuf::new()];
        for depth in 0.. {
            let mut below = Vec::new();
            for shown in level {
                if directories == options.max_directories {
                    return Expected { truncated: true, ..expected };
                }
                directories += 1;
                let Some((_, Node::Directory(nodes))) = self.resolve(&shown, 40) else { panic!("{shown:?}") };
                for (name, node) in nodes {
                    let path = shown.join(name);
                    let Some((real, target)) = self.resolve(&path, 40) else { continue };
                    if examined == options.max_entries {
                        return Expected { truncated: true, ..expected };
                    }
                    examined += 1;
                    let is_link = matches!(node, Node::Link(_));
                    match target {
                        Node::Directory(_) if !is_link || options.follow_directory_symlinks => {
                            expected.entries.push((path.clone(), WalkKind::Directory));
                            let pruned = options.prune_hidden_directories && name.starts_with('.');
                            if depth < options.max_depth && !pruned && !seen.contains(&real) {
                                seen.push(real);
                                below.push(path);
                            }
                        }
                        Node::File if !is_link => expected.entries.push((path, WalkKind::File)),
                        _ => {}
                    }
                }
            }
            if below.is_empty() {
                break;
            }
            level = below;
        }
        expected
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_finds_what_the_model_says(nodes in nodes(), all_options in prop::collection::vec(options(), 1..6)) {
        let scratch = Scratch::new();
        build(scratch.root(), scratch.root(), &nodes);
        let model = Model { root: Node::Directory(nodes) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for options in all_options {
            let walk = runtime.block_on(async { files().walk(scratch.root().into(), options).await }).unwrap();
            prop_assert_eq!(&walk.errors, &vec![]);
            let expected = model.walk(options);
            let uris: Vec<_> = expected
                .entries
                .iter()
                .map(|(path, kind)| (PathUri::from_host_native_path(scratch.path(path)).unwrap(), *kind))
                .collect();
            let found: Vec<_> = walk.entries.into_iter().map(|entry| (entry.path, entry.kind)).collect();
            prop_assert_eq!((found, walk.truncated), (uris, expected.truncated), "{:?}", options);
        }
    }
}
