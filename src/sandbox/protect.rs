//! Names in writable directories that must neither change nor appear.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::bound::{Bound, BoundEntry, Existing, Origin, ProtectedName};
use super::error::SandboxError;
use super::facts::{Facts, Found};
use super::intent::Access;
use super::resolve::Resolver;

/// Adds the names at the top of each workspace root that are protected unless an entry frees them. `freed` is what
/// entries let be written, whether it exists or not.
pub(super) fn names(
    bound: &mut Bound,
    freed: &HashSet<PathBuf>,
    facts: &Facts<'_>,
    resolver: &Resolver<'_>,
) -> Result<(), SandboxError> {
    let names: Vec<&str> = USUAL.into_iter().chain(facts.extra_protected_names.iter().map(String::as_str)).collect();
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err(SandboxError::preparation(format!("the executor is set to protect {name:?}, which is no name")));
    }
    let mut found = Vec::new();
    for root in bound.workspace_roots.iter().filter(|root| bound.can_write(root)) {
        // A file holds no names.
        if resolver.found(root)? != Found::Directory {
            continue;
        }
        for name in &names {
            let path = root.join(name);
            if !freed.contains(&path) {
                found.push(protected(bound, root, path, resolver)?);
            }
        }
    }
    for (name, git_dir) in &found {
        let protect = |path: &Path, kind| entry(path, kind, Access::Read);
        if bound.can_write(&name.path) {
            insert(bound, protect(&name.path, name.state));
        }
        let common_dir = git_dir.as_ref().map(|git_dir| common_dir(git_dir, bound, resolver)).transpose()?.flatten();
        for directory in git_dir.iter().chain(&common_dir) {
            if bound.can_write(directory) && !freed.contains(directory) {
                insert(bound, protect(directory, Existing::Directory));
            }
        }
    }
    // Now that what is protected is not writable any more.
    for (name, git_dir) in found {
        let is_new_git = name.path.file_name() == Some(GIT.as_ref()) && name.state == Existing::Missing;
        let placeholder = name.required || !(is_new_git && in_repository(&name.root, bound, facts.uid, resolver)?);
        bound.protected.push(ProtectedName { git_dir, placeholder, ..name });
    }
    bound.protected.sort_by(|a, b| a.path.cmp(&b.path));
    bound.protected.dedup_by(|a, b| a.path == b.path);
    Ok(())
}

/// One protected name, and the directory that `.git` names if it is a file.
fn protected(
    bound: &Bound,
    root: &Path,
    path: PathBuf,
    resolver: &Resolver<'_>,
) -> Result<(ProtectedName, Option<PathBuf>), SandboxError> {
    let Some(state) = existing(&resolver.found(&path)?) else {
        return Err(SandboxError::preparation(format!(
            "{} is protected, and is a symbolic link in a writable directory, which cannot be held; put what it leads to in its \
             place",
            path.display()
        )));
    };
    let is_git = path.file_name() == Some(GIT.as_ref());
    let git_dir = if is_git && state == Existing::File { git_dir(root, &path, bound, resolver)? } else { None };
    let required = bound.entry(&path).is_some();
    let access = bound.access(&path).unwrap_or(Access::Read).min(Access::Read);
    Ok((ProtectedName { root: root.into(), path, state, access, git_dir: None, placeholder: true, required }, git_dir))
}

/// None for a link.
const fn existing(found: &Found) -> Option<Existing> {
    match found {
        Found::Directory => Some(Existing::Directory),
        Found::File => Some(Existing::File),
        Found::Other => Some(Existing::Other),
        Found::Missing => Some(Existing::Missing),
        Found::Link(_) => None,
    }
}

/// The directory that the file `.git` of a linked worktree or a submodule names.
fn git_dir(root: &Path, file: &Path, bound: &Bound, resolver: &Resolver<'_>) -> Result<Option<PathBuf>, SandboxError> {
    match first_line(file, resolver)?.strip_prefix(GIT_DIR) {
        Some(named) => directory_named(named, file, root, bound, resolver),
        None => Ok(None),
    }
}

/// The directory that linked worktrees have in common, which a file in that of each names.
fn common_dir(git_dir: &Path, bound: &Bound, resolver: &Resolver<'_>) -> Result<Option<PathBuf>, SandboxError> {
    let file = git_dir.join("commondir");
    match resolver.found(&file)? {
        Found::File => directory_named(&first_line(&file, resolver)?, &file, git_dir, bound, resolver),
        _ => Ok(None),
    }
}

fn first_line(file: &Path, resolver: &Resolver<'_>) -> Result<String, SandboxError> {
    let text = resolver.identity().read_start(file, MAX_GIT_FILE).map_err(|error| {
        let what = format!("{}: {error}", file.display());
        // It was found to be a file.
        if error.kind() == std::io::ErrorKind::NotFound {
            SandboxError::changed(what)
        } else {
            SandboxError::preparation(what)
        }
    })?;
    Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().into())
}

/// The directory to which a file leads, relative to `base`.
fn directory_named(
    named: &str,
    file: &Path,
    base: &Path,
    bound: &Bound,
    resolver: &Resolver<'_>,
) -> Result<Option<PathBuf>, SandboxError> {
    let failed = |what: String| SandboxError::preparation(format!("{}: {what}", file.display()));
    let named = named.trim();
    if named.is_empty() || named.contains('\0') {
        return Ok(None);
    }
    let resolved = resolver.resolve(&base.join(named))?;
    if let Some(link) = resolved.links.iter().find(|alias| alias.link.parent().is_some_and(|at| bound.can_write(at))) {
        return Err(failed(format!(
            "it leads through the symbolic link {} in a writable directory",
            link.link.display()
        )));
    }
    // The root directory is none: all that there is would have to be protected.
    Ok((resolved.kind == Existing::Directory && !resolved.is_root()).then_some(resolved.path))
}

/// Whether a directory above the root is a repository. What a process of this intent could make is none, nor what another user
/// could, who is not the system's root: either would have the next process go without a placeholder.
fn in_repository(root: &Path, bound: &Bound, uid: Option<u32>, resolver: &Resolver<'_>) -> Result<bool, SandboxError> {
    let is_trusted = |owner: Option<u32>| uid.is_none() || owner.is_none() || owner == uid || owner == Some(0);
    for above in root.ancestors().skip(1) {
        let git = above.join(GIT);
        let found = resolver.found(&git)?;
        if found != Found::Missing
            && !bound.can_write(&git)
            && is_trusted(resolver.owner(&git)?)
            && is_repository(&git, &found, bound, resolver)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether what is found there is what a repository has, and not just anything of that name.
fn is_repository(git: &Path, found: &Found, bound: &Bound, resolver: &Resolver<'_>) -> Result<bool, SandboxError> {
    let has_head = |directory: &Path| {
        let head = resolver.found(&directory.join("HEAD"))?;
        Ok(matches!(head, Found::File | Found::Link(_)))
    };
    match found {
        Found::Directory => has_head(git),
        // What cannot be read is no repository to anybody with our rights.
        Found::File => {
            Ok(resolver.identity().read_start(git, GIT_DIR.len()).is_ok_and(|start| start == GIT_DIR.as_bytes()))
        }
        Found::Link(_) => match resolver.resolve(git) {
            Ok(real) => Ok(real.kind == Existing::Directory && !bound.can_write(&real.path) && has_head(&real.path)?),
            // It leads nowhere.
            Err(_) => Ok(false),
        },
        Found::Other | Found::Missing => Ok(false),
    }
}

/// Adds the entries whose paths are missing from a writable directory: they must not appear there.
pub(super) fn missing(bound: &mut Bound, resolver: &Resolver<'_>) -> Result<(), SandboxError> {
    let mut found = Vec::new();
    let known: HashSet<&Path> = bound.protected.iter().map(|name| name.path.as_path()).collect();
    for entry in &bound.entries {
        let Some(parent) = entry.path.parent() else { continue };
        let held = entry.kind == Existing::Missing
            && entry.access < Access::Write
            && bound.can_write(parent)
            && !known.contains(entry.path.as_path())
            && (parent.parent().is_none() || resolver.found(parent)? == Found::Directory);
        if held {
            let nearest = bound.nearest(parent).map_or_else(|| Path::new("/"), |root| &root.path);
            found.push(ProtectedName {
                root: nearest.into(),
                path: entry.path.clone(),
                // What cannot be reached as the intent has it may be there under the path that that comes to.
                state: existing(&resolver.found(&entry.path)?).unwrap_or(Existing::Missing),
                access: entry.access,
                git_dir: None,
                placeholder: true,
                required: true,
            });
        }
    }
    bound.protected.extend(found);
    bound.protected.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

/// Puts an entry in its place; one that is there for the same path allows no more, or it would not be put there.
fn insert(bound: &mut Bound, entry: BoundEntry) {
    match bound.entries.binary_search_by(|other| other.path.cmp(&entry.path)) {
        Ok(_) => {}
        Err(at) => bound.entries.insert(at, entry),
    }
}

fn entry(path: &Path, kind: Existing, access: Access) -> BoundEntry {
    BoundEntry { path: path.into(), lexical: path.into(), access, kind, skip_missing: false, origin: Origin::Protected }
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

const GIT: &str = ".git";
/// So begins the file that names one.
const GIT_DIR: &str = "gitdir:";
const USUAL: [&str; 4] = [GIT, ".agents", ".codex", ".aws"];
/// Longer than any path.
const MAX_GIT_FILE: usize = 8192;
