//! Presets, and the methods by which they are adapted.

use std::num::NonZeroU32;

use super::intent::{
    Access, Entry, EntryPath, FileSystemPolicy, NetworkPolicy, PermissionProfile, SandboxIntent, Special,
    WindowsSandboxLevel,
};
use crate::path_uri::PathUri;

impl SandboxIntent {
    /// Everything may be read and nothing written; no network.
    pub fn read_only() -> Self {
        Self::restricted([Entry::special(Special::Root, Access::Read)])
    }

    /// Everything may be read; the workspace roots and the directories for temporary files may be written, but for protected
    /// names at the top of each root, such as `.git`; no network.
    pub fn workspace_write(roots: impl IntoIterator<Item = PathUri>) -> Self {
        let roots = roots.into_iter().collect();
        let entries = [Special::ProjectRoots { subpath: None }, Special::Tmpdir, Special::SlashTmp];
        let written = entries.map(|special| Entry::special(special, Access::Write));
        Self { workspace_roots: roots, ..written.into_iter().fold(Self::read_only(), Self::entry) }
    }

    /// Only what programs of the platform need and the workspace roots may be read, and nothing written; no network.
    pub fn minimal_read(roots: impl IntoIterator<Item = PathUri>) -> Self {
        Self::minimal(roots, Access::Read)
    }

    /// Only what programs of the platform need may be read, and the workspace roots read and written, but for protected
    /// names; no network.
    pub fn minimal_write(roots: impl IntoIterator<Item = PathUri>) -> Self {
        Self::minimal(roots, Access::Write)
    }

    /// Nothing is restricted, as without an intent.
    pub const fn disabled() -> Self {
        Self::new(PermissionProfile::Disabled)
    }

    /// Files are not restricted; no network.
    pub const fn no_network() -> Self {
        let (file_system, network) = (FileSystemPolicy::Unrestricted, NetworkPolicy::Restricted);
        Self::new(PermissionProfile::Managed { file_system, network })
    }

    fn minimal(roots: impl IntoIterator<Item = PathUri>, access: Access) -> Self {
        let entries = [
            Entry::special(Special::Minimal, Access::Read),
            Entry::special(Special::ProjectRoots { subpath: None }, access),
        ];
        Self { workspace_roots: roots.into_iter().collect(), ..Self::restricted(entries) }
    }

    fn restricted(entries: impl Into<Vec<Entry>>) -> Self {
        let file_system = FileSystemPolicy::Restricted { entries: entries.into(), glob_scan_max_depth: None };
        Self::new(PermissionProfile::Managed { file_system, network: NetworkPolicy::Restricted })
    }

    /// Adds a workspace root.
    pub fn workspace_root(mut self, root: PathUri) -> Self {
        match &mut self.policy_context {
            Some(context) => context.workspace_roots.push(root),
            None => self.workspace_roots.push(root),
        }
        self
    }

    /// Lets a path, and all below it, be read and executed.
    pub fn read(self, path: PathUri) -> Self {
        self.entry(Entry::path(path, Access::Read))
    }

    /// Lets a path, and all below it, be read and written.
    pub fn write(self, path: PathUri) -> Self {
        self.entry(Entry::path(path, Access::Write))
    }

    /// Denies a path, and all below it.
    pub fn deny(self, path: PathUri) -> Self {
        self.entry(Entry::path(path, Access::Deny))
    }

    /// Denies all that match a pattern: see [`EntryPath::Glob`].
    pub fn deny_glob(self, pattern: impl Into<String>) -> Self {
        self.entry(Entry::new(EntryPath::Glob { pattern: pattern.into() }, Access::Deny))
    }

    /// Lets a relative path below each workspace root be read and written, also one that is protected by default, such as
    /// `.git`.
    pub fn write_below_roots(self, subpath: impl Into<String>) -> Self {
        self.entry(Entry::special(Special::ProjectRoots { subpath: Some(subpath.into()) }, Access::Write))
    }

    /// Lets a relative path below each workspace root be read only.
    pub fn read_below_roots(self, subpath: impl Into<String>) -> Self {
        self.entry(Entry::special(Special::ProjectRoots { subpath: Some(subpath.into()) }, Access::Read))
    }

    /// Denies a relative path below each workspace root.
    pub fn deny_below_roots(self, subpath: impl Into<String>) -> Self {
        self.entry(Entry::special(Special::ProjectRoots { subpath: Some(subpath.into()) }, Access::Deny))
    }

    /// Adds a statement about files. Where they were not restricted, it is an exception to "everything may be written".
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries_mut().push(entry);
        self
    }

    /// Sets what is allowed with the network. Where nothing was restricted, only the network then is.
    pub fn network(mut self, allowed: NetworkPolicy) -> Self {
        match &mut self.permissions {
            PermissionProfile::Managed { network, .. } | PermissionProfile::External { network } => *network = allowed,
            PermissionProfile::Disabled if allowed == NetworkPolicy::Restricted => {
                return Self { permissions: Self::no_network().permissions, ..self };
            }
            PermissionProfile::Disabled => {}
        }
        self
    }

    /// Sets how many levels below its fixed beginning a pattern is looked for.
    pub fn glob_scan_max_depth(mut self, levels: NonZeroU32) -> Self {
        self.entries_mut();
        if let PermissionProfile::Managed {
            file_system: FileSystemPolicy::Restricted { glob_scan_max_depth, .. },
            ..
        } = &mut self.permissions
        {
            *glob_scan_max_depth = Some(levels);
        }
        self
    }

    /// Sets what relative patterns, and relative things of calls about files, are relative to.
    pub fn cwd(mut self, cwd: PathUri) -> Self {
        match &mut self.policy_context {
            Some(context) => context.cwd = Some(cwd),
            None => self.cwd = Some(cwd),
        }
        self
    }

    /// Sets what `~/` in patterns stands for.
    pub fn user_home_dir(mut self, home: PathUri) -> Self {
        self.user_home_dir = Some(home);
        self
    }

    /// Names a directory for temporary files, instead of the executor's own.
    pub fn temporary_directory(mut self, directory: PathUri) -> Self {
        self.temporary_directories.get_or_insert_default().push(directory);
        self
    }

    /// Sets how an executor on Windows is to enforce it. By default by a restricted token.
    pub const fn windows_level(mut self, level: WindowsSandboxLevel) -> Self {
        self.windows_sandbox_level = level;
        self
    }

    /// The entries, made where there were none because nothing was restricted.
    fn entries_mut(&mut self) -> &mut Vec<Entry> {
        let open = || FileSystemPolicy::Restricted {
            entries: vec![Entry::special(Special::Root, Access::Write)],
            glob_scan_max_depth: None,
        };
        let network = match &self.permissions {
            PermissionProfile::Managed { network, .. } | PermissionProfile::External { network } => *network,
            PermissionProfile::Disabled => NetworkPolicy::Enabled,
        };
        let restricted = matches!(
            &self.permissions,
            PermissionProfile::Managed { file_system: FileSystemPolicy::Restricted { .. }, .. }
        );
        if !restricted {
            self.permissions = PermissionProfile::Managed { file_system: open(), network };
        }
        match &mut self.permissions {
            PermissionProfile::Managed { file_system: FileSystemPolicy::Restricted { entries, .. }, .. } => entries,
            _ => unreachable!("it was made so"),
        }
    }
}

#[cfg(test)]
mod tests;
