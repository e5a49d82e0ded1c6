//! The usual policies, as the wire has them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::dirs::Dirs;

/// A sandbox intent, or none.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    permissions: Option<Permissions>,
    entries: Vec<Value>,
    network: &'static str,
    roots: Vec<String>,
    cwd: Option<String>,
    level: Option<&'static str>,
    more: Vec<(&'static str, Value)>,
    unknown_members: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Permissions {
    Disabled,
    External,
    Unrestricted,
    Restricted,
}

impl Policy {
    fn new(permissions: Option<Permissions>, dirs: &Dirs) -> Self {
        Self {
            permissions,
            entries: Vec::new(),
            network: "restricted",
            roots: vec![uri(&dirs.w)],
            cwd: Some(uri(&dirs.w)),
            level: Some("disabled"),
            more: Vec::new(),
            unknown_members: false,
        }
    }

    pub(crate) fn entry(mut self, path: Value, access: &str) -> Self {
        self.entries.push(json!({"path": path, "access": access}));
        self
    }

    pub(crate) fn path(self, path: impl AsRef<Path>, access: &str) -> Self {
        let path = json!({"type": "path", "path": uri(path.as_ref())});
        self.entry(path, access)
    }

    pub(crate) fn raw_path(self, path: &str, access: &str) -> Self {
        self.entry(json!({"type": "path", "path": path}), access)
    }

    pub(crate) fn skip_missing(mut self, path: impl AsRef<Path>, access: &str) -> Self {
        let path = json!({"type": "path", "path": uri(path.as_ref())});
        self.entries.push(json!({"path": path, "access": access, "missing_path_behavior": "skip"}));
        self
    }

    pub(crate) fn special(self, kind: &str, access: &str) -> Self {
        self.entry(json!({"type": "special", "value": {"kind": kind}}), access)
    }

    pub(crate) fn below_roots(self, subpath: &str, access: &str) -> Self {
        self.entry(json!({"type": "special", "value": {"kind": "project_roots", "subpath": subpath}}), access)
    }

    pub(crate) fn glob(self, pattern: &str) -> Self {
        self.entry(json!({"type": "glob_pattern", "pattern": pattern}), "deny")
    }

    pub(crate) fn roots(mut self, roots: impl IntoIterator<Item = PathBuf>) -> Self {
        self.roots = roots.into_iter().map(|root| uri(&root)).collect();
        self
    }

    pub(crate) fn level(mut self, level: Option<&'static str>) -> Self {
        self.level = level;
        self
    }

    pub(crate) fn member(mut self, name: &'static str, value: Value) -> Self {
        self.more.push((name, value));
        self
    }

    pub(crate) fn enabled(mut self) -> Self {
        self.network = "enabled";
        self
    }

    /// The entries in another order.
    pub(crate) fn in_order(mut self, order: &[usize]) -> Self {
        self.entries = order.iter().map(|index| self.entries[*index].clone()).collect();
        self
    }

    /// Without a directory of its own.
    pub(crate) fn without_cwd(mut self) -> Self {
        self.cwd = None;
        self
    }

    /// With a member in every object of it that nobody knows.
    pub(crate) fn with_unknown_members(mut self) -> Self {
        self.unknown_members = true;
        self
    }

    /// Whether the workspace is writable by an entry of its own.
    pub(crate) fn writes_to_roots(&self) -> bool {
        let is_roots = |entry: &Value| entry["path"]["value"]["kind"] == "project_roots" && entry["access"] == "write";
        self.entries.iter().any(is_roots)
    }

    /// Whether anything is enforced, going by the table of the profiles.
    pub(crate) fn enforces(&self) -> bool {
        let full_write = self.entries.len() == 1
            && self.entries[0]["path"]["value"]["kind"] == "root"
            && self.entries[0]["access"] == "write";
        match self.permissions {
            None | Some(Permissions::Disabled) => false,
            Some(Permissions::External | Permissions::Unrestricted) => self.network == "restricted",
            Some(Permissions::Restricted) => self.network == "restricted" || !full_write,
        }
    }

    /// The JSON text; none for a request without a sandbox.
    pub(crate) fn json(&self) -> Option<String> {
        let file_system = match self.permissions? {
            Permissions::Restricted => json!({"type": "restricted", "entries": self.entries}),
            _ => json!({"type": "unrestricted"}),
        };
        let permissions = match self.permissions? {
            Permissions::Disabled => json!({"type": "disabled"}),
            Permissions::External => json!({"type": "external", "network": self.network}),
            Permissions::Unrestricted | Permissions::Restricted => {
                json!({"type": "managed", "file_system": file_system, "network": self.network})
            }
        };
        let mut intent = json!({"permissions": permissions, "workspaceRoots": self.roots});
        if let Some(cwd) = &self.cwd {
            intent["cwd"] = json!(cwd);
        }
        if let Some(level) = self.level {
            intent["windowsSandboxLevel"] = json!(level);
        }
        for (name, value) in &self.more {
            intent[*name] = value.clone();
        }
        if self.unknown_members {
            add_unknown_members(&mut intent);
        }
        Some(intent.to_string())
    }
}

fn add_unknown_members(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(add_unknown_members);
            members.insert("laterMember".into(), json!({"a": [1, null]}));
        }
        Value::Array(elements) => elements.iter_mut().for_each(add_unknown_members),
        _ => {}
    }
}

/// No sandbox.
pub(crate) fn none(dirs: &Dirs) -> Policy {
    Policy::new(None, dirs)
}

pub(crate) fn dis(dirs: &Dirs) -> Policy {
    Policy::new(Some(Permissions::Disabled), dirs)
}

pub(crate) fn ext(dirs: &Dirs) -> Policy {
    Policy::new(Some(Permissions::External), dirs)
}

pub(crate) fn unr(dirs: &Dirs) -> Policy {
    Policy::new(Some(Permissions::Unrestricted), dirs)
}

/// No entries at all.
pub(crate) fn empty(dirs: &Dirs) -> Policy {
    Policy::new(Some(Permissions::Restricted), dirs)
}

pub(crate) fn full(dirs: &Dirs) -> Policy {
    empty(dirs).special("root", "write")
}

pub(crate) fn ro(dirs: &Dirs) -> Policy {
    empty(dirs).special("root", "read")
}

/// Workspace write without the temporary directories.
pub(crate) fn ww_only(dirs: &Dirs) -> Policy {
    ro(dirs).special("project_roots", "write")
}

pub(crate) fn ww(dirs: &Dirs) -> Policy {
    ww_only(dirs).special("tmpdir", "write").special("slash_tmp", "write")
}

pub(crate) fn wwn(dirs: &Dirs) -> Policy {
    ww(dirs).enabled()
}

pub(crate) fn deny(dirs: &Dirs) -> Policy {
    ww(dirs).path(&dirs.s, "deny")
}

pub(crate) fn minr(dirs: &Dirs) -> Policy {
    empty(dirs).special("minimal", "read").special("project_roots", "read")
}

pub(crate) fn minw(dirs: &Dirs) -> Policy {
    empty(dirs).special("minimal", "read").special("project_roots", "write")
}

/// The file URI of a path that needs no encoding.
pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}
