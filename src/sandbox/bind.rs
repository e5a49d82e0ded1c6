//! From an intent to the paths of one executor.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::bound::{Alias, Bound, BoundEntry, Class, Existing, Origin};
use super::error::SandboxError;
use super::facts::{Facts, Platform};
use super::glob::{self, Anchor, BoundGlob};
use super::intent::{
    Access, Entry, EntryPath, FileSystemPolicy, NetworkPolicy, PermissionProfile, SandboxIntent, Special,
    WindowsSandboxLevel,
};
use super::limits;
use super::protect;
use super::resolve::{Resolved, Resolver, clean};
use super::token;
use crate::path_uri::PathUri;

impl SandboxIntent {
    /// Binds the intent to the paths of an executor. Looks at its file system, and so may block; writes nothing.
    ///
    /// The result holds for the moment: whoever enforces it opens the paths anew, without following links.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Preparation`] if a part of it cannot be applied, such as a path of another system, a denied path
    /// that leads through a link which a process could exchange, or a pattern that is malformed;
    /// [`SandboxError::Unavailable`] if it asks for a mechanism that this system does not have;
    /// [`SandboxError::Invalid`] if it lacks the directory that its patterns are relative to.
    pub fn bind(&self, facts: &Facts<'_>) -> Result<Bound, SandboxError> {
        if self.windows_sandbox_level == WindowsSandboxLevel::Mxc && facts.platform != Platform::Windows {
            return Err(SandboxError::unavailable(
                "the level `mxc` exists on Windows only",
                "send another `windowsSandboxLevel`",
            ));
        }
        if facts.platform == Platform::Windows {
            token::check_level(self)?;
        }
        let (file_system, network) = match &self.permissions {
            PermissionProfile::Disabled => (&FileSystemPolicy::Unrestricted, NetworkPolicy::Enabled),
            PermissionProfile::External { network } => (&FileSystemPolicy::Unrestricted, *network),
            PermissionProfile::Managed { file_system, network } => (file_system, *network),
        };
        let FileSystemPolicy::Restricted { entries, glob_scan_max_depth } = file_system else {
            return Ok(Bound::open(network));
        };
        if self.use_legacy_landlock && facts.platform == Platform::Linux {
            return Err(SandboxError::unavailable(
                "the mechanism of `useLegacyLandlock` does not exist here, and could not enforce the entries",
                "send the intent without `useLegacyLandlock`",
            ));
        }
        limits::check(entries.len(), limits::ENTRIES, "entries")?;
        let mut binding = Binding::new(self, facts, network)?;
        entries.iter().try_for_each(|entry| binding.add(entry))?;
        binding.finish(glob_scan_max_depth.map(std::num::NonZeroU32::get))
    }
}

impl Bound {
    /// Without restrictions on files.
    fn open(network: NetworkPolicy) -> Self {
        let nothing = network == NetworkPolicy::Enabled;
        Self {
            class: if nothing { Class::Nothing } else { Class::FullWrite },
            root: Some(Access::Write),
            entries: Vec::new(),
            aliases: Vec::new(),
            network,
            workspace_roots: Vec::new(),
            cwd: None,
            globs: Vec::new(),
            glob_scan_max_depth: None,
            protected: Vec::new(),
            minimal: false,
        }
    }
}

/// An intent on the way to its bound form.
struct Binding<'a> {
    intent: &'a SandboxIntent,
    facts: &'a Facts<'a>,
    resolver: Resolver<'a>,
    network: NetworkPolicy,
    cwd: Option<PathBuf>,
    roots: Vec<Place>,
    root: Option<Access>,
    /// What of it hangs on no link.
    plain_root: Option<Access>,
    /// Those for the root directory only where a link leads to it.
    claims: Vec<Claim>,
    globs: Vec<(BoundGlob, Resolved)>,
    /// The sizes of their patterns.
    characters: usize,
    minimal: Option<Access>,
}

/// A path as written, and what it leads to.
#[derive(Clone)]
struct Place {
    lexical: PathBuf,
    resolved: Resolved,
}

/// One entry for one path.
struct Claim {
    place: Place,
    access: Access,
    skip_missing: bool,
    origin: Origin,
}

impl<'a> Binding<'a> {
    fn new(intent: &'a SandboxIntent, facts: &'a Facts<'a>, network: NetworkPolicy) -> Result<Self, SandboxError> {
        let listed = intent.temporary_directories.as_ref().map_or(0, Vec::len);
        limits::check(intent.effective_roots().len(), limits::ROOTS, "workspace roots")?;
        limits::check(listed, limits::ROOTS, "directories for temporary files")?;
        let resolver = Resolver::new(facts.identity);
        let cwd = intent.effective_cwd().map(|cwd| place(&resolver, cwd)).transpose()?;
        let roots = intent.effective_roots().iter().map(|root| place(&resolver, root));
        let roots = roots.collect::<Result<_, _>>()?;
        let cwd = cwd.map(|cwd| cwd.resolved.path);
        let (claims, globs) = (Vec::new(), Vec::new());
        let (root, plain_root, minimal) = (None, None, None);
        let characters = 0;
        Ok(Self { intent, facts, resolver, network, cwd, roots, root, plain_root, claims, globs, characters, minimal })
    }

    fn add(&mut self, entry: &Entry) -> Result<(), SandboxError> {
        match &entry.path {
            EntryPath::Path { path } => {
                let place = place(&self.resolver, path)?;
                self.claim(place, entry, Origin::Entry)?;
            }
            EntryPath::Glob { pattern } if entry.access == Access::Deny => self.add_glob(pattern)?,
            EntryPath::Glob { pattern } => {
                return Err(SandboxError::preparation(format!(
                    "pattern `{pattern}`: only denied patterns can be enforced; name a directory instead"
                )));
            }
            EntryPath::Special { value } => self.add_special(value, entry)?,
        }
        Ok(())
    }

    fn add_special(&mut self, special: &Special, entry: &Entry) -> Result<(), SandboxError> {
        match special {
            Special::Root => self.claim_root(entry.access),
            Special::Minimal => {
                // It is a base to read, whatever more is asked for.
                let access = entry.access.min(Access::Read);
                self.minimal = stronger(self.minimal, access);
                for path in self.facts.platform.minimal_paths() {
                    let place = self.at(path.into())?;
                    if place.resolved.exists() {
                        self.claim(place, &Entry { access, ..entry.clone() }, Origin::Minimal)?;
                    }
                }
            }
            Special::ProjectRoots { subpath } => {
                for root in self.roots.clone() {
                    let Some(subpath) = subpath else {
                        self.claim(root, entry, Origin::Entry)?;
                        continue;
                    };
                    match below(&root.lexical, subpath)? {
                        Some(path) => {
                            let place = self.at(path)?;
                            self.claim(place, entry, Origin::Entry)?;
                        }
                        None if entry.access == Access::Deny => {
                            return Err(SandboxError::preparation(format!(
                                "`{subpath}` is denied below each workspace root, and leads out of them"
                            )));
                        }
                        // What it would allow is no part of a root.
                        None => {}
                    }
                }
            }
            Special::Tmpdir => {
                for place in self.temp_dirs(entry.access == Access::Deny)? {
                    self.claim(place, entry, Origin::TempDir)?;
                }
            }
            Special::SlashTmp => {
                let place = self.at("/tmp".into())?;
                // To deny it, it need not be one.
                let is_one = place.resolved.kind == Existing::Directory || entry.access == Access::Deny;
                if self.facts.platform != Platform::Windows && is_one {
                    self.claim(place, entry, Origin::TempDir)?;
                }
            }
            Special::Unknown { path, .. } if entry.access == Access::Deny => {
                return Err(SandboxError::preparation(format!("the token `{path}` is denied, and not known here")));
            }
            Special::Unknown { .. } => {}
        }
        Ok(())
    }

    fn claim(&mut self, place: Place, entry: &Entry, origin: Origin) -> Result<(), SandboxError> {
        if place.resolved.is_root() {
            if place.resolved.links.is_empty() {
                self.claim_root(entry.access);
                return Ok(());
            }
            self.root = stronger(self.root, entry.access);
        }
        limits::check(self.claims.len() + 1, limits::ENTRIES, "paths of entries")?;
        self.claims.push(Claim { place, access: entry.access, skip_missing: entry.skip_missing, origin });
        Ok(())
    }

    fn claim_root(&mut self, access: Access) {
        self.root = stronger(self.root, access);
        self.plain_root = stronger(self.plain_root, access);
    }

    /// The directories for temporary files. A sender's list cannot name just any directory; to deny one it can.
    fn temp_dirs(&self, denied: bool) -> Result<Vec<Place>, SandboxError> {
        let own = self.facts.temp_dir.map(|directory| self.at(directory.into())).transpose()?;
        let listed = self.intent.temporary_directories.as_deref().unwrap_or_default();
        let listed = listed.iter().map(|uri| place(&self.resolver, uri)).collect::<Result<Vec<_>, _>>()?;
        if denied {
            return Ok(own.into_iter().chain(listed).collect());
        }
        let is_directory = |place: &Place| place.resolved.kind == Existing::Directory && !place.resolved.is_root();
        if listed.is_empty() {
            return Ok(own.into_iter().filter(is_directory).collect());
        }
        let own = own.map(|own| own.resolved.path);
        let above_root = |path: &Path| {
            self.roots.iter().any(|root| root.resolved.path != path && root.resolved.path.starts_with(path))
        };
        let acceptable = |place: &Place| {
            let Resolved { path, owner, .. } = &place.resolved;
            let ours = self.facts.uid.is_none_or(|uid| *owner == Some(uid)) || own.as_ref() == Some(path);
            ours && is_directory(place) && !above_root(path)
        };
        Ok(listed.into_iter().filter(acceptable).collect())
    }

    fn add_glob(&mut self, text: &str) -> Result<(), SandboxError> {
        let failed = |reason: &str| SandboxError::preparation(format!("pattern `{text}`: {reason}"));
        let windows = self.facts.platform == Platform::Windows;
        if !windows && glob::has_drive(text) {
            return Err(failed("it begins with a drive, and there are none here"));
        }
        let (anchor, rest) = glob::anchor(text, windows);
        let bases: Vec<PathBuf> = match anchor {
            Anchor::Absolute => vec![PathBuf::from("/")],
            Anchor::Roots => self.roots.iter().map(|root| root.lexical.clone()).collect(),
            Anchor::Home => {
                let home = self.intent.user_home_dir.as_ref();
                let home = home.ok_or_else(|| failed("it begins with `~/`, and the intent has no `userHomeDir`"))?;
                vec![native(home)?]
            }
            Anchor::Cwd => {
                let cwd = self.intent.effective_cwd();
                let cwd = cwd.ok_or_else(|| {
                    SandboxError::invalid(format!("pattern `{text}` is relative, and the intent has no `cwd`"))
                })?;
                vec![native(cwd)?]
            }
        };
        let alternatives = glob::parse(rest, anchor, windows).map_err(|reason| failed(&reason))?;
        self.characters += alternatives.iter().map(|alternative| alternative.pattern.size()).sum::<usize>();
        limits::check(self.characters, limits::PATTERN_CHARACTERS, "characters of patterns")?;
        limits::check(self.globs.len() + bases.len() * alternatives.len(), limits::PATTERNS, "patterns")?;
        for base in &bases {
            for alternative in &alternatives {
                let mut fixed = alternative.fixed.iter();
                let mut path = match (windows && anchor == Anchor::Absolute).then(|| fixed.next()).flatten() {
                    Some(drive) => PathBuf::from(format!("{drive}\\")),
                    None => base.clone(),
                };
                path.extend(fixed);
                let Place { resolved, .. } = self.at(path)?;
                if resolved.is_root() {
                    return Err(failed("it begins at the root of the file system"));
                }
                let (base, pattern) = (resolved.path.clone(), alternative.pattern.clone());
                let has_base = resolved.kind == Existing::Directory;
                self.globs.push((BoundGlob { text: text.into(), base, has_base, pattern }, resolved));
            }
        }
        Ok(())
    }

    fn at(&self, path: PathBuf) -> Result<Place, SandboxError> {
        let lexical = clean(&path);
        let resolved = self.resolver.resolve(&lexical)?;
        Ok(Place { lexical, resolved })
    }

    fn finish(self, glob_scan_max_depth: Option<u32>) -> Result<Bound, SandboxError> {
        let freed: HashSet<PathBuf> = self.writes().map(|claim| claim.place.resolved.path.clone()).collect();
        let mut bound = Bound {
            class: Class::RestrictedRead,
            root: self.root.filter(|root| *root != Access::Deny),
            entries: self.entries(),
            aliases: self.aliases(),
            network: self.network,
            workspace_roots: self
                .roots
                .iter()
                .filter(|root| root.resolved.exists())
                .map(|root| root.resolved.path.clone())
                .collect(),
            cwd: self.cwd.clone(),
            globs: Vec::new(),
            glob_scan_max_depth,
            protected: Vec::new(),
            minimal: self.minimal == Some(Access::Read),
        };
        self.check_links(&bound)?;
        let narrower = bound.entries.iter().any(|entry| entry.access != Access::Write) || !self.globs.is_empty();
        if bound.root == Some(Access::Write) && !narrower {
            let Bound { workspace_roots, cwd, aliases, .. } = bound;
            return Ok(Bound { workspace_roots, cwd, aliases, ..Bound::open(self.network) });
        }
        protect::names(&mut bound, &freed, self.facts, &self.resolver)?;
        protect::missing(&mut bound, &self.resolver)?;
        bound.globs = self.globs.into_iter().map(|(glob, _)| glob).collect();
        bound.globs.sort_by(|a, b| (&a.base, &a.text).cmp(&(&b.base, &b.text)));
        bound.globs.dedup();
        let denies = bound.entries.iter().any(|entry| entry.access == Access::Deny) || !bound.globs.is_empty();
        if bound.root.is_some() && !denies {
            bound.class = Class::FullRead;
        }
        Ok(bound)
    }

    fn writes(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.access == Access::Write)
    }

    /// Claims that count: nothing can be allowed with what is not there.
    fn effective(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| match claim.access {
            Access::Write => claim.place.resolved.exists(),
            Access::Read => claim.place.resolved.exists() || !(claim.skip_missing || claim.place.resolved.nowhere),
            Access::Deny => true,
        })
    }

    /// One entry for each path: the strongest claim.
    fn entries(&self) -> Vec<BoundEntry> {
        let mut strongest = BTreeMap::<&Path, &Claim>::new();
        // Any order of the same entries comes to the same.
        let order = |claim: &&Claim| {
            (Reverse(strength(claim.access)), claim.origin as u8, claim.place.lexical.clone(), claim.skip_missing)
        };
        for claim in self.effective().filter(|claim| !claim.place.resolved.is_root()) {
            let held = strongest.entry(&claim.place.resolved.path).or_insert(claim);
            if order(&claim) < order(held) {
                *held = claim;
            }
        }
        let entry = |claim: &Claim| BoundEntry {
            path: claim.place.resolved.path.clone(),
            lexical: claim.place.lexical.clone(),
            access: claim.access,
            kind: claim.place.resolved.kind,
            skip_missing: claim.skip_missing,
            origin: claim.origin,
        };
        strongest.into_values().map(entry).collect()
    }

    fn aliases(&self) -> Vec<Alias> {
        let mut aliases: Vec<_> = self.effective().flat_map(|claim| &claim.place.resolved.links).cloned().collect();
        aliases.sort();
        aliases.dedup();
        aliases
    }

    /// A link in a writable directory can be exchanged, before the next command or during this one. So nothing may hang on
    /// it that this would widen.
    fn check_links(&self, bound: &Bound) -> Result<(), SandboxError> {
        let writable = |path: &Path| path.parent().is_some_and(|parent| bound.can_write(parent));
        let exchangeable = |resolved: &Resolved| {
            let links = resolved.links.iter().map(|alias| &alias.link);
            links.chain(&resolved.blocked).find(|path| writable(path)).cloned()
        };
        let refuse = |what: &str, at: &Path| {
            Err(SandboxError::preparation(format!(
                "{what} leads through {}, which is in a writable directory and is a symbolic link or cannot be looked into, so that a \
                 process could put something else in its place; name the path that is meant",
                at.display()
            )))
        };
        for claim in self.effective() {
            let Place { lexical, resolved } = &claim.place;
            // What is writable anyway is not writable by the link.
            let anyway = match resolved.path.parent() {
                Some(parent) => bound.can_write(parent),
                None => self.plain_root == Some(Access::Write),
            };
            let harmless = claim.access == Access::Write && anyway;
            if !harmless && let Some(at) = exchangeable(resolved) {
                return refuse(&format!("the entry {}", lexical.display()), &at);
            }
        }
        for (glob, resolved) in &self.globs {
            if let Some(at) = exchangeable(resolved) {
                return refuse(&format!("the pattern `{}`", glob.text), &at);
            }
        }
        Ok(())
    }
}

/// Which of two accesses for one path counts.
const fn strength(access: Access) -> u8 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Deny => 2,
    }
}

fn stronger(held: Option<Access>, access: Access) -> Option<Access> {
    Some(held.map_or(access, |held| if strength(held) >= strength(access) { held } else { access }))
}

fn place(resolver: &Resolver<'_>, uri: &PathUri) -> Result<Place, SandboxError> {
    let lexical = native(uri)?;
    let resolved = resolver.resolve(&lexical)?;
    Ok(Place { lexical, resolved })
}

/// The native path of a URI, absolute and clean.
fn native(uri: &PathUri) -> Result<PathBuf, SandboxError> {
    if uri.has_encoded_separator() {
        return Err(SandboxError::preparation(format!("'{uri}' has an encoded separator in a name")));
    }
    let path = uri.to_host_native_path().map_err(|error| SandboxError::preparation(error.to_string()))?;
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(SandboxError::preparation(format!("'{uri}' holds a NUL")));
    }
    Ok(clean(&path))
}

/// A relative path below a directory. None if it leads out of it, if only for a while.
fn below(directory: &Path, subpath: &str) -> Result<Option<PathBuf>, SandboxError> {
    use std::path::Component;
    if subpath.contains('\0') {
        return Err(SandboxError::preparation("a path below the workspace roots holds a NUL"));
    }
    let mut depth = 0_usize;
    for part in Path::new(subpath).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Ok(None),
        }
    }
    Ok(Some(directory.join(subpath)))
}

#[cfg(test)]
mod tests;
