//! What the system shows as files and is more than files: its settings, its shared memory, and what of the kernel's is mounted
//! elsewhere than usual.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::kernel_mounts::Limit;
use super::super::shape::{Base, Step, Target};
use super::{CLOSED_DIRECTORY, CLOSED_FILE, Put, Tree, c_string, changed, is_shared, relative};
use crate::sandbox::{Access, Bound, SandboxError};

impl Tree<'_> {
    /// Lets nobody write to the settings of the machine where all else may be written: their owner could, if it has the
    /// number of the system's root, or was given a part of the control groups.
    pub(super) fn guard(&mut self, path: &Path) -> Result<(), SandboxError> {
        match self.looks.look(path)? {
            Some(found) => self.attach(path, found, false),
            None => Ok(()),
        }
    }

    /// Attaches what the intent names below `/dev/shm`, of which every process has an empty one.
    pub(super) fn share(&mut self, bound: &Bound) -> Result<(), SandboxError> {
        let named = bound.entries.iter().map(|entry| &entry.path).chain(&bound.workspace_roots);
        let named: BTreeSet<&PathBuf> = named.filter(|path| is_shared(path)).collect();
        for path in named {
            let access = bound.access(path);
            let limit = self.looks.mounts().limit(path);
            if access < Some(Access::Read) || self.is_put(path) || limit == Some(Limit::Hidden) {
                continue;
            }
            let Some(found) = self.looks.look(path)? else { continue };
            let at = Path::new("shm").join(path.strip_prefix("/dev/shm").unwrap_or(path));
            self.make_way(&at, found, 0o755);
            let writable = access == Some(Access::Write) && limit.is_none();
            self.put_source(path, found, writable, Target::Path(relative(path)?, None))?;
        }
        Ok(())
    }

    /// Puts limits to what of the kernel's is mounted in such places, if it is seen there. Each is put before what the intent
    /// names below it, and after what it names above.
    pub(super) fn limit(
        &mut self,
        bound: &Bound,
        guarded: bool,
        is_meant: impl Fn(&Path) -> bool,
    ) -> Result<(), SandboxError> {
        let looks = self.looks;
        for cover in looks.mounts().covers().filter(|cover| is_meant(&cover.path)) {
            let path = &cover.path;
            let is_seen = match self.above(path) {
                None => self.base != Base::Empty && !is_shared(path),
                Some((_, put)) => matches!(put, Put::Source),
            };
            let is_limited = match cover.limit {
                // Whoever may write everything is not to see the processes of the host either.
                Limit::Hidden => true,
                Limit::ReadOnly => guarded && bound.can_write(path),
            };
            if !is_seen || !is_limited || self.put.contains_key(path) {
                continue;
            }
            let found = looks.look(path)?.filter(|found| *found == cover.found).ok_or_else(|| changed(path))?;
            match cover.limit {
                Limit::Hidden => {
                    let with = PathBuf::from(if found.directory { CLOSED_DIRECTORY } else { CLOSED_FILE });
                    let target = Target::Path(relative(path)?, Some(found.identity));
                    self.steps.push(Step::Mask { with: c_string(with.as_os_str())?, target });
                    self.put.insert(path.clone(), Put::Mask(with));
                }
                Limit::ReadOnly => self.attach(path, found, false)?,
            }
        }
        Ok(())
    }
}
