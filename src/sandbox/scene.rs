//! Small trees of real files with intents about them, made from a number, and what such an intent means by a rule that is
//! simple enough to be seen to be right. It shares nothing with the binding.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use super::intent::{
    Access, Entry, EntryPath, FileSystemPolicy, NetworkPolicy, PermissionProfile, SandboxIntent, Special,
};
use super::{Bound, Facts, HostPaths, Platform, SandboxError};
use crate::path_uri::PathUri;

use Access::{Deny, Read, Write};

/// As many seeds as `LONGARM_CASES` says, or else so many; the one of `LONGARM_SEED` alone, if there is one.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match number("LONGARM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("LONGARM_CASES").unwrap_or(count),
    }
}

/// A tree, and an intent about it.
#[derive(Debug)]
pub(crate) struct Scene {
    _dir: tempfile::TempDir,
    seed: u64,
    pub(crate) top: PathBuf,
    pub(crate) intent: SandboxIntent,
    claims: Vec<Claim>,
    roots: Vec<PathBuf>,
    /// The executor's directory for temporary files.
    pub(crate) temp: PathBuf,
    globs: Vec<(PathBuf, String)>,
    /// Whether something is denied that leaves the roots.
    leaves: bool,
}

/// An entry, as the path that it names.
#[derive(Clone, Debug)]
struct Claim {
    path: PathBuf,
    access: Access,
    skip: bool,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("LONGARM_SEED={} in {} under {}", self.seed, self.top.display(), self.intent.to_json());
            let mut paths = Vec::new();
            walk(&self.top, &mut paths);
            for path in paths {
                let target = fs::read_link(&path).map(|target| format!(" -> {}", target.display()));
                eprintln!("  {}{}", path.display(), target.unwrap_or_default());
            }
        }
    }
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// One time in so many.
    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len() as u64);
        all[usize::try_from(at).unwrap()].clone()
    }

    fn access(&mut self) -> Access {
        self.of(&[Deny, Read, Write])
    }

    /// A path of a few names, some of them dots.
    fn names(&mut self, most: u64) -> String {
        let count = 1 + self.below(most);
        let names: Vec<_> = (0..count).map(|_| if self.one_in(8) { ".." } else { self.of(&NAMES) }).collect();
        names.join("/")
    }
}

const NAMES: [&str; 6] = ["a", "b", "d", ".git", ".codex", "x.pem"];
const TOPS: [&str; 4] = ["w", "v", "o", "t"];
const PROTECTED: [&str; 4] = [".git", ".agents", ".codex", ".aws"];

impl Scene {
    /// That of a seed. With `runs`, a process can run under the intent.
    pub(crate) fn new(seed: u64, runs: bool) -> Self {
        let mut random = Random(seed);
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in TOPS {
            fs::create_dir(top.join(name)).unwrap();
        }
        grow(&top, &mut random);
        let temp = top.join("t");
        let mut scene = Self {
            _dir: dir,
            seed,
            intent: SandboxIntent::read_only(),
            claims: Vec::new(),
            roots: Vec::new(),
            temp,
            globs: Vec::new(),
            leaves: false,
            top,
        };
        scene.ask(&mut random, runs);
        scene
    }

    /// A path below the top as somebody would write it.
    fn written(&self, random: &mut Random) -> PathBuf {
        let first = random.of(&TOPS);
        if random.one_in(6) { self.top.join(first) } else { self.top.join(first).join(random.names(3)) }
    }

    fn ask(&mut self, random: &mut Random, runs: bool) {
        for _ in 0..random.below(3) {
            let root =
                if random.one_in(3) { clean(&self.written(random)) } else { self.top.join(random.of(&["w", "v"])) };
            self.roots.push(root);
        }
        let mut entries = Vec::new();
        let base = if runs { 1 + random.below(3) } else { random.below(5) };
        match base {
            0 => {}
            1 => self.special(&mut entries, Special::Root, Read, false),
            2 => {
                self.special(&mut entries, Special::Minimal, Read, false);
                // Otherwise the helpers of a process are not there.
                self.special(&mut entries, Special::ProjectRoots { subpath: None }, Write, false);
            }
            3 => self.special(&mut entries, Special::Root, if random.one_in(4) { Write } else { Read }, false),
            _ => self.special(&mut entries, Special::Root, random.access(), false),
        }
        if random.one_in(2) {
            self.special(&mut entries, Special::ProjectRoots { subpath: None }, Write, false);
        }
        for _ in 0..random.below(6) {
            let (access, skip) = (random.access(), random.one_in(3));
            match random.below(10) {
                0 => self.special(&mut entries, Special::SlashTmp, access, skip),
                1 => self.special(&mut entries, Special::Tmpdir, access, skip),
                2 | 3 => {
                    let subpath = Some(random.names(3));
                    self.special(&mut entries, Special::ProjectRoots { subpath }, access, skip);
                }
                4 => self.glob(&mut entries, random),
                _ => {
                    let path = self.written(random);
                    self.claim(&path, access, skip);
                    let entry = Entry::path(uri(&path), access);
                    entries.push(Entry { skip_missing: skip, ..entry });
                }
            }
        }
        // Their order means nothing.
        for at in (1..entries.len()).rev() {
            entries.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        let file_system = FileSystemPolicy::Restricted { entries, glob_scan_max_depth: None };
        let profile = PermissionProfile::Managed { file_system, network: NetworkPolicy::Restricted };
        self.intent = SandboxIntent::new(profile).cwd(uri(&self.top.join("w")));
        self.intent.workspace_roots = self.roots.iter().map(|root| uri(root)).collect();
    }

    fn claim(&mut self, path: &Path, access: Access, skip: bool) {
        self.claims.push(Claim { path: clean(path), access, skip });
    }

    fn special(&mut self, entries: &mut Vec<Entry>, value: Special, access: Access, skip: bool) {
        match &value {
            Special::Root => self.claim(Path::new("/"), access, skip),
            Special::Minimal => {
                for path in ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"]
                {
                    if fs::metadata(path).is_ok() {
                        self.claim(Path::new(path), access.min(Read), skip);
                    }
                }
            }
            Special::ProjectRoots { subpath } => {
                for root in self.roots.clone() {
                    match subpath {
                        None => self.claim(&root, access, skip),
                        Some(subpath) if stays(subpath) => self.claim(&root.join(subpath), access, skip),
                        // It is no part of a root.
                        Some(_) => self.leaves |= access == Deny,
                    }
                }
            }
            Special::Tmpdir => self.claim(&self.temp.clone(), access, skip),
            Special::SlashTmp => self.claim(Path::new("/tmp"), access, skip),
            Special::Unknown { .. } => unreachable!("it is never asked for"),
        }
        entries.push(Entry { skip_missing: skip, ..Entry::special(value, access) });
    }

    fn glob(&mut self, entries: &mut Vec<Entry>, random: &mut Random) {
        let fixed: Vec<_> = (0..random.below(3)).map(|_| random.names(1)).collect();
        let wild = (0..=random.below(2)).map(|_| random.of(&["*", "**", "*.pem", "[ab]", "[!a]", "?", "a"]));
        let mut wild: Vec<_> = wild.collect();
        wild.insert(0, random.of(&["*", "**", "[a-c]", "[!b]*"]));
        let wild = wild.join("/");
        let text: String = fixed.iter().map(|name| format!("{name}/")).chain([wild.clone()]).collect();
        let fixed: PathBuf = fixed.iter().collect();
        let pattern = match random.below(3) {
            0 => {
                self.globs.push((clean(&self.top.join("w").join(fixed)), wild));
                text
            }
            1 => {
                let roots = self.roots.iter().map(|root| (clean(&root.join(&fixed)), wild.clone()));
                self.globs.extend(roots);
                format!("codex-project-roots://{text}")
            }
            _ => {
                let first = self.top.join(random.of(&TOPS));
                self.globs.push((clean(&first.join(fixed)), wild));
                format!("{}/{text}", first.display())
            }
        };
        entries.push(Entry::new(EntryPath::Glob { pattern }, Deny));
    }

    pub(crate) fn bind(&self) -> Result<Bound, SandboxError> {
        let facts = Facts::new(Platform::Linux, &HostPaths).temp_dir(&self.temp);
        self.intent.bind(&facts.uid(Some(rustix::process::geteuid().as_raw())))
    }

    /// Everything that there is, names beside it that are missing, and the same by way of links and dots, as they are
    /// written.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let mut there = Vec::new();
        walk(&self.top, &mut there);
        let mut paths = there.clone();
        for path in &there {
            let names = NAMES.iter().chain(&["new", ".aws", "../a", "../o/a", "../../w/b"]);
            paths.extend(names.map(|name| path.join(name)));
            if path.is_symlink() {
                let behind = NAMES.iter().flat_map(|name| NAMES.map(|below| path.join(name).join(below)));
                paths.extend(behind);
            }
        }
        paths.extend(["/", "/etc", "/etc/passwd", "/tmp", "/tmp/new", "/var/tmp", "/srv"].map(PathBuf::from));
        paths
    }

    /// The paths without links of all those.
    pub(crate) fn canonical_paths(&self) -> BTreeSet<PathBuf> {
        let led = self.paths().into_iter().filter_map(|path| lead(&path).ok()).filter(|led| !led.nowhere);
        led.map(|led| led.path).collect()
    }

    /// What the intent means.
    ///
    /// # Errors
    ///
    /// Why it means nothing that can be enforced.
    pub(crate) fn meaning(&self) -> Result<Meaning, &'static str> {
        let looped = |_| "links lead in a circle";
        lead(&self.top.join("w")).map_err(looped)?;
        let roots: Vec<Led> = self.roots.iter().map(|root| lead(root)).collect::<Result<_, _>>().map_err(looped)?;
        if self.leaves {
            return Err("what is denied leaves the roots");
        }
        let mut meaning = Meaning::default();
        let (mut counted, mut freed) = (Vec::new(), BTreeSet::new());
        for claim in &self.claims {
            let led = lead(&claim.path).map_err(looped)?;
            if claim.access == Write {
                freed.insert(led.path.clone());
            }
            // Nothing can be allowed with what does not exist. To read is held where the name could come to exist.
            let counts = match claim.access {
                Deny => true,
                Read => led.exists || !(claim.skip || led.nowhere),
                Write => led.exists,
            };
            if counts {
                meaning.add(&led.path, claim.access);
                counted.push((led, claim.access));
            }
        }
        // What a process could exchange a link for would be its own choice.
        let plain_root = counted.iter().filter(|(led, _)| led.path.parent().is_none() && led.links.is_empty());
        let plain_root = plain_root.map(|(_, access)| *access).max_by_key(|access| rank(*access));
        let writable = |path: &PathBuf| path.parent().is_some_and(|parent| meaning.by_entries(parent) == Write);
        for (led, access) in &counted {
            let anyway = match led.path.parent() {
                Some(parent) => meaning.by_entries(parent) == Write,
                None => plain_root == Some(Write),
            };
            if !(*access == Write && anyway) && led.links.iter().any(writable) {
                return Err("a link that could be exchanged");
            }
        }
        let mut globs = Vec::new();
        for (base, wild) in &self.globs {
            let led = lead(base).map_err(looped)?;
            if led.links.iter().any(writable) {
                return Err("a link that could be exchanged");
            }
            if led.path.parent().is_none() {
                return Err("a pattern at the root");
            }
            globs.push((led.path, wild.split('/').map(String::from).collect()));
        }
        meaning.globs = globs;
        let narrower = meaning.entries.iter().any(|(path, access)| path.parent().is_some() && *access != Write);
        if meaning.by_entries(Path::new("/")) == Write && !narrower && meaning.globs.is_empty() {
            return Ok(meaning);
        }
        protect(&mut meaning, &roots, &freed)?;
        Ok(meaning)
    }
}

/// At the top of the roots that are writable, some names are not.
fn protect(meaning: &mut Meaning, roots: &[Led], freed: &BTreeSet<PathBuf>) -> Result<(), &'static str> {
    let mut held = Vec::new();
    for root in roots.iter().filter(|root| root.exists && meaning.by_entries(&root.path) == Write) {
        for path in PROTECTED.map(|name| root.path.join(name)).into_iter().filter(|path| !freed.contains(path)) {
            if path.is_symlink() {
                return Err("a protected name is a link");
            }
            if path.ends_with(".git")
                && let Ok(text) = fs::read_to_string(&path)
                && let Some(named) = text.strip_prefix("gitdir: ")
            {
                let led = lead(&root.path.join(named)).map_err(|_| "links lead in a circle")?;
                let writable = |link: &PathBuf| link.parent().is_some_and(|parent| meaning.by_entries(parent) == Write);
                if led.links.iter().any(writable) {
                    return Err("a link that could be exchanged");
                }
                if led.exists && led.path.is_dir() && led.path.parent().is_some() && !freed.contains(&led.path) {
                    held.push(led.path);
                }
            }
            held.push(path);
        }
    }
    for path in held {
        if meaning.by_entries(&path) == Write {
            meaning.entries.insert(path, Read);
        }
    }
    Ok(())
}

/// What an intent means.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meaning {
    entries: BTreeMap<PathBuf, Access>,
    /// A directory, and the names of a pattern below it.
    globs: Vec<(PathBuf, Vec<String>)>,
}

impl Meaning {
    /// What is allowed with a path without links: what the longest entry says that names it or something above it, unless a
    /// pattern matches as much of it.
    pub(crate) fn access(&self, path: &Path) -> Access {
        let longest = path.ancestors().find(|above| self.entries.contains_key(*above));
        let depth = longest.map_or(0, |longest| longest.components().count());
        let denied = path.ancestors().take_while(|above| above.components().count() >= depth).any(|above| {
            self.globs.iter().any(|(base, pattern)| {
                above.strip_prefix(base).is_ok_and(|below| {
                    let names: Vec<_> = below.iter().map(|name| name.to_str().unwrap()).collect();
                    fits(pattern, &names)
                })
            })
        });
        if denied { Deny } else { self.by_entries(path) }
    }

    /// Whether a path is on the way to something that may be read.
    pub(crate) fn leads(&self, path: &Path) -> bool {
        self.entries.iter().any(|(entry, access)| entry.starts_with(path) && *access >= Read)
    }

    fn by_entries(&self, path: &Path) -> Access {
        path.ancestors().find_map(|above| self.entries.get(above)).copied().unwrap_or(Deny)
    }

    fn add(&mut self, path: &Path, access: Access) {
        let held = self.entries.entry(path.into()).or_insert(access);
        if rank(access) > rank(*held) {
            *held = access;
        }
    }
}

/// On the same path, deny goes before write, and write before read.
fn rank(access: Access) -> u8 {
    match access {
        Read => 0,
        Write => 1,
        Deny => 2,
    }
}

/// Whether names match the names of a pattern, which is of the few forms that are made here.
fn fits(pattern: &[String], names: &[&str]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        // At the end it is all below, and not the directory itself.
        (Some((first, [])), _) if first == "**" => !names.is_empty(),
        (Some((first, rest)), _) if first == "**" => {
            fits(rest, names) || names.split_first().is_some_and(|(_, names)| fits(pattern, names))
        }
        (Some((first, rest)), Some((name, names))) => fits_name(first, name) && fits(rest, names),
        _ => false,
    }
}

fn fits_name(pattern: &str, name: &str) -> bool {
    let first = name.chars().next().unwrap();
    match pattern {
        "*" => true,
        "?" => name.chars().count() == 1,
        "*.pem" => name.ends_with(".pem"),
        "[ab]" => matches!(name, "a" | "b"),
        "[a-c]" => matches!(name, "a" | "b" | "c"),
        "[!a]" => name.chars().count() == 1 && name != "a",
        "[!b]*" => first != 'b',
        literal => {
            assert_eq!(literal, "a", "no other form is made");
            name == literal
        }
    }
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) struct Led {
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// Whether not even the name could come to exist, since something on the way would have to.
    pub(crate) nowhere: bool,
    links: Vec<PathBuf>,
}

/// Follows all links of a path; what is missing is kept as it is written.
///
/// # Errors
///
/// If they lead in a circle.
pub(crate) fn lead(path: &Path) -> io::Result<Led> {
    let mut led = Led { path: "/".into(), exists: true, nowhere: false, links: Vec::new() };
    let mut rest: Vec<PathBuf> = path.components().rev().map(|part| part.as_os_str().into()).collect();
    while let Some(name) = rest.pop() {
        match name.components().next() {
            Some(Component::RootDir) => led.path = "/".into(),
            Some(Component::ParentDir) => {
                led.nowhere |= !led.exists || !led.path.is_dir();
                led.path.pop();
            }
            Some(Component::Normal(_)) => {
                let next = led.path.join(&name);
                match fs::read_link(&next) {
                    Ok(target) if led.exists => {
                        if led.links.len() == 40 {
                            return Err(io::Error::other("too many links"));
                        }
                        led.links.push(next);
                        rest.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
                        continue;
                    }
                    _ => led.exists &= fs::symlink_metadata(&next).is_ok(),
                }
                led.path = next;
            }
            _ => {}
        }
    }
    if let Ok(real) = path.canonicalize() {
        assert_eq!((real.as_path(), true), (led.path.as_path(), led.exists), "as the system has it");
    }
    led.exists &= !led.nowhere;
    Ok(led)
}

/// Removes dots by their text.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}

/// Whether a relative path never leads out, not even for a while.
fn stays(subpath: &str) -> bool {
    let mut depth = 0_i32;
    subpath.split('/').all(|name| {
        depth += if name == ".." { -1 } else { 1 };
        depth >= 0
    })
}

/// Fills a tree: directories, files, and links of every kind.
fn grow(top: &Path, random: &mut Random) {
    for _ in 0..random.below(24) {
        let first = top.join(random.of(&TOPS));
        let path = clean(&first.join(random.names(3)));
        if !path.starts_with(top) || path == top {
            continue;
        }
        let Some(parent) = path.parent() else { continue };
        // Something else may stand in its way, and then it is not made. Nothing is ever made outside.
        let inside = lead(parent).is_ok_and(|led| led.path.starts_with(top));
        if !inside || fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match random.below(8) {
            0..=2 => fs::create_dir(&path),
            3 | 4 => {
                let text: String = match random.below(3) {
                    0 => "gitdir: ../o".into(),
                    1 => format!("gitdir: {}", top.join("v/d").display()),
                    _ => "text".into(),
                };
                fs::write(&path, text)
            }
            5 => symlink(random.names(2), &path),
            6 => symlink(top.join(random.of(&TOPS)).join(random.names(2)), &path),
            _ => match random.below(9) {
                0 => symlink("..", &path),
                1 => symlink(top.join("o"), &path),
                2 => symlink(path.file_name().unwrap(), &path),
                3 => symlink("gone/../a", &path),
                4 => symlink("/", &path),
                5 => symlink("gone/..", &path),
                6 => symlink("x.pem/..", &path),
                7 => symlink("b/../d", &path),
                _ => symlink("../../o/a", &path),
            },
        }
        .unwrap();
    }
}

/// All that is below a directory, and it; links are not followed.
fn walk(path: &Path, found: &mut Vec<PathBuf>) {
    found.push(path.into());
    if path.is_symlink() {
        return;
    }
    let mut below: Vec<_> = fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    below.sort();
    for path in below {
        walk(&path, found);
    }
}

fn uri(path: &Path) -> PathUri {
    PathUri::parse(&format!("file://{}", path.display())).unwrap()
}
