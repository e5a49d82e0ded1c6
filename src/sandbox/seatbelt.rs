//! The policy text of macOS for a bound intent: a pure function, the same on every system.
//!
//! Every allowance is one rule that leaves out what a deeper entry takes away, so that no rule depends on the order of others;
//! denials stand at the end, where they win. All paths of entries are parameters of the policy, never part of its text. Patterns
//! and protected names are regular expressions, whose fixed beginning is escaped; since they are matched when a file is used,
//! they also cover files that appear later.
//!
//! Rules are about paths, and a directory that is moved takes what is in it to another one. So no writable root may be moved,
//! nor any directory on the way to something that is less than writable. For the same reason an entry below the directory
//! through which the system shows its data volume a second time is refused: no rule would ever match it.
//!
//! None of it has been run on the system that it is for: it follows the documented behaviour of the policy language.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::bound::{Bound, BoundEntry, Class, Existing, Origin};
use super::error::SandboxError;
use super::glob::push_escaped;
use super::intent::{Access, NetworkPolicy};
use super::managed::ManagedNetworkFacts;

#[cfg(any(all(unix, not(target_os = "linux")), test))]
mod launch;

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use self::launch::{Beginning, ExecuteFault, Refusal, beginning, check_name, is_image, reasons, refusal};

/// The program that applies a policy. Never looked up, so that nothing can take its place.
pub const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The exit code by which [`SANDBOX_EXEC`] says that it could not apply the policy, such as from inside another sandbox.
pub const SANDBOX_EXEC_FAILED: i32 = 71;

/// A policy, and what its parameters stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatbeltPolicy {
    /// The text.
    pub text: String,
    /// Names and paths.
    pub parameters: Vec<(String, PathBuf)>,
}

impl SeatbeltPolicy {
    /// The policy for what is bound. `managed` are facts about a proxy, where the network must go through one; `user_cache` is
    /// the user's cache directory, which the system's own network services write.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Preparation`] if a pattern or a workspace root has a name that the policy's text cannot hold, if an entry
    /// is below `/System/Volumes/Data`, or if there are more of them than arguments of a program can hold.
    pub fn new(
        bound: &Bound,
        managed: Option<&ManagedNetworkFacts>,
        user_cache: Option<&Path>,
    ) -> Result<Self, SandboxError> {
        check_paths(bound)?;
        let mut policy = Writer::default();
        if matches!(bound.class, Class::FullWrite | Class::Nothing) {
            policy.line("(version 1)");
            policy.line("(allow default)");
            if bound.network == NetworkPolicy::Restricted || managed.is_some() {
                policy.line("(deny network*)");
                policy.managed(managed);
            }
        } else {
            policy.text.push_str(BASE);
            policy.files(bound)?;
            match (managed, bound.network) {
                (None, NetworkPolicy::Enabled) => policy.open_network(user_cache),
                (None, NetworkPolicy::Restricted) => {}
                (Some(_), _) => policy.managed(managed),
            }
        }
        policy.text.push_str(LAST);
        policy.globs(bound)?;
        policy.held(bound);
        let policy = Self { text: policy.text, parameters: policy.parameters };
        if policy.arguments().iter().map(|argument| argument.len() + 1).sum::<usize>() > MAX_ARGUMENT_BYTES {
            return Err(SandboxError::preparation(
                "its entries and the matches of its patterns are more than a policy of this system can name",
            ));
        }
        Ok(policy)
    }

    /// The arguments of [`SANDBOX_EXEC`] that stand before the command.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-p".into(), self.text.clone().into()];
        for (name, path) in &self.parameters {
            let mut argument = OsString::from(format!("-D{name}="));
            argument.push(path);
            arguments.push(argument);
        }
        arguments.push("--".into());
        arguments
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    parameters: Vec<(String, PathBuf)>,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A filter for a path and all below it, by a new parameter.
    fn parameter(&mut self, name: String, path: &Path) -> String {
        let filter = format!("(param \"{name}\")");
        self.parameters.push((name, path.into()));
        filter
    }

    fn files(&mut self, bound: &Bound) -> Result<(), SandboxError> {
        self.line("; files to read and to execute");
        self.allow(bound, Access::Read, "file-read* file-map-executable process-exec", "READABLE_ROOT")?;
        self.line("; files to write");
        self.allow(bound, Access::Write, "file-write*", "WRITABLE_ROOT")?;
        self.ancestors(bound);
        Ok(())
    }

    /// A rule for each place where `access` begins, without the places where it ends.
    fn allow(&mut self, bound: &Bound, access: Access, operation: &str, kind: &str) -> Result<(), SandboxError> {
        let begins = |entry: &&BoundEntry| entry.access >= access && bound.above(entry) < Some(access);
        let roots: Vec<_> = bound.entries.iter().filter(begins).collect();
        let owner = |entry: &BoundEntry| {
            entry.path.ancestors().skip(1).find_map(|above| roots.iter().position(|root| root.path == above))
        };
        // What a pattern matches is denied by the pattern.
        let ends = |entry: &&BoundEntry| {
            entry.origin != Origin::Glob && entry.access < access && bound.above(entry) >= Some(access)
        };
        let ends: Vec<_> = bound.entries.iter().filter(ends).map(|entry| (owner(entry), entry)).collect();
        let of = |root: Option<usize>| ends.iter().filter(move |(owner, _)| *owner == root).map(|(_, entry)| *entry);
        if bound.root >= Some(access) {
            self.rule(operation, &format!("{kind}_ALL"), None, of(None))?;
        }
        for (number, root) in roots.iter().enumerate() {
            self.rule(operation, &format!("{kind}_{number}"), Some(root), of(Some(number)))?;
        }
        Ok(())
    }

    fn rule<'a>(
        &mut self,
        operation: &str,
        name: &str,
        root: Option<&BoundEntry>,
        ends: impl Iterator<Item = &'a BoundEntry>,
    ) -> Result<(), SandboxError> {
        let mut exclusions = Vec::new();
        let mut protected = Vec::new();
        let mut number = 0;
        for entry in ends {
            for path in spellings(entry) {
                let parameter = self.parameter(format!("{name}_EXCLUDED_{number}"), &path);
                exclusions.push(format!("(require-not (literal {parameter}))"));
                exclusions.push(format!("(require-not (subpath {parameter}))"));
                number += 1;
            }
            // The name of what exists is the one spelling that it has.
            if entry.origin == Origin::Protected || entry.kind == Existing::Missing {
                protected.push(any_case(&entry.path)?);
            }
        }
        exclusions.extend(protected.iter().map(|regex| format!("(require-not (regex {}))", quoted(regex))));
        let filters: Vec<_> = match root {
            None => vec!["(regex \"^/\")".to_owned()],
            Some(root) => {
                let spelled = spellings(root).into_iter().enumerate();
                let named = spelled.map(|(at, path)| {
                    let name = if at == 0 { name.to_owned() } else { format!("{name}_ALIAS_{at}") };
                    self.parameter(name, &path)
                });
                named.map(|parameter| format!("(subpath {parameter})")).collect()
            }
        };
        for filter in filters {
            let rule = if exclusions.is_empty() {
                format!("(allow {operation} {filter})")
            } else {
                format!("(allow {operation} (require-all {filter} {}))", exclusions.join(" "))
            };
            self.line(&rule);
        }
        Ok(())
    }

    /// To reach what is open, the directories above it must be found; not listed.
    fn ancestors(&mut self, bound: &Bound) {
        let open = bound.entries.iter().filter(|entry| entry.access >= Access::Read);
        let above = open.flat_map(|entry| {
            spellings(entry)
                .into_iter()
                .flat_map(|path| path.ancestors().skip(1).map(Path::to_path_buf).collect::<Vec<_>>())
        });
        let hidden: BTreeSet<_> = above.filter(|path| !bound.can_read(path)).collect();
        for (number, path) in hidden.iter().enumerate() {
            let parameter = self.parameter(format!("ANCESTOR_{number}"), path);
            self.line(&format!("(allow file-read-metadata file-test-existence (literal {parameter}))"));
        }
    }

    /// Denied patterns, which stand last. What an entry opens again below a match stays denied here.
    fn globs(&mut self, bound: &Bound) -> Result<(), SandboxError> {
        for glob in &bound.globs {
            for base in private_spellings(&glob.base) {
                let mut regex = String::from("^");
                push_path(&base, &mut regex)
                    .map_err(|reason| SandboxError::preparation(format!("pattern `{}`: {reason}", glob.text)))?;
                regex.push('/');
                regex.push_str(&glob.pattern.to_regex());
                if regex.contains(|char: char| char.is_control()) {
                    return Err(SandboxError::preparation(format!(
                        "pattern `{}` holds a control character",
                        glob.text
                    )));
                }
                let regex = quoted(&regex);
                self.line(&format!("(deny file-read* file-map-executable file-write* process-exec (regex {regex}))"));
            }
        }
        Ok(())
    }

    /// What must not be moved, with what is in it.
    fn held(&mut self, bound: &Bound) {
        if matches!(bound.class, Class::FullWrite | Class::Nothing) {
            return;
        }
        let begins = bound.entries.iter().filter(|entry| entry.access == Access::Write);
        let narrower = bound.entries.iter().filter(|entry| entry.access < Access::Write);
        let above = narrower.flat_map(|entry| entry.path.ancestors().skip(1));
        let bases = bound.globs.iter().flat_map(|glob| glob.base.ancestors());
        let held: BTreeSet<_> = begins
            .map(|entry| entry.path.as_path())
            .chain(above.chain(bases))
            .filter(|path| path.parent().is_some() && bound.can_write(path))
            .collect();
        let spelled: BTreeSet<_> = held.into_iter().flat_map(private_spellings).collect();
        for (number, path) in spelled.iter().enumerate() {
            let parameter = self.parameter(format!("HELD_{number}"), path);
            self.line(&format!("(deny file-write-unlink (literal {parameter}))"));
        }
    }

    /// What may be reached through a proxy; without ports nothing.
    fn managed(&mut self, managed: Option<&ManagedNetworkFacts>) {
        let Some(managed) = managed else { return };
        self.line("; the network by way of a proxy");
        let ports: BTreeSet<_> = managed.loopback_ports.iter().filter(|port| **port != 0).collect();
        for port in &ports {
            self.line(&format!("(allow network-outbound (remote ip \"localhost:{port}\"))"));
        }
        if ports.is_empty() {
            return;
        }
        if managed.allow_local_binding {
            self.line("(allow network-bind (local ip \"localhost:*\"))");
            self.line("(allow network-inbound (local ip \"localhost:*\"))");
            self.line("(allow network-outbound (remote ip \"localhost:*\"))");
            self.line("(allow network-outbound (remote ip \"*:53\"))");
        }
        if managed.dangerously_allow_all_unix_sockets {
            self.line("(allow system-socket (socket-domain AF_UNIX))");
            self.line("(allow network-bind (local unix-socket))");
            self.line("(allow network-outbound (remote unix-socket))");
            return;
        }
        let sockets: BTreeSet<_> =
            managed.allow_unix_sockets.iter().map(Path::new).filter(|path| path.is_absolute()).collect();
        if !sockets.is_empty() {
            self.line("(allow system-socket (socket-domain AF_UNIX))");
        }
        let spelled: BTreeSet<_> = sockets.into_iter().flat_map(private_spellings).collect();
        for (number, path) in spelled.iter().enumerate() {
            let parameter = self.parameter(format!("UNIX_SOCKET_{number}"), path);
            self.line(&format!("(allow network-bind (local unix-socket (subpath {parameter})))"));
            self.line(&format!("(allow network-outbound (remote unix-socket (subpath {parameter})))"));
        }
    }

    fn open_network(&mut self, user_cache: Option<&Path>) {
        self.text.push_str(NETWORK);
        if let Some(cache) = user_cache {
            let parameter = self.parameter("USER_CACHE_DIR".into(), cache);
            self.line(&format!("(allow file-write* (subpath {parameter}))"));
        }
    }
}

/// Refuses paths that no rule would match.
fn check_paths(bound: &Bound) -> Result<(), SandboxError> {
    let paths = bound.entries.iter().flat_map(|entry| [&entry.path, &entry.lexical]);
    let mut paths = paths.chain(bound.globs.iter().map(|glob| &glob.base));
    match paths.find(|path| path.starts_with(DATA_VOLUME)) {
        Some(path) => Err(SandboxError::preparation(format!(
            "{} is named by way of {DATA_VOLUME}, which the system's policies never see; leave that part out",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The canonical path, and the others that lead to it.
fn spellings(entry: &BoundEntry) -> Vec<PathBuf> {
    let mut spellings = private_spellings(&entry.path);
    for path in private_spellings(&entry.lexical) {
        if !spellings.contains(&path) {
            spellings.push(path);
        }
    }
    spellings
}

/// A path with and without the directory behind the system's own links `/tmp`, `/var` and `/etc`.
fn private_spellings(path: &Path) -> Vec<PathBuf> {
    let mut spellings = vec![path.to_path_buf()];
    let linked = |path: &Path| ["tmp", "var", "etc"].iter().any(|name| path.starts_with(name));
    if let Ok(rest) = path.strip_prefix("/private") {
        spellings.extend(linked(rest).then(|| Path::new("/").join(rest)));
    } else if let Ok(rest) = path.strip_prefix("/") {
        spellings.extend(linked(rest).then(|| Path::new("/private").join(rest)));
    }
    spellings
}

/// A regular expression for a path whose last name may be in capitals: to most file systems there that is the same name.
fn any_case(path: &Path) -> Result<String, SandboxError> {
    let failed = |reason: &str| SandboxError::preparation(format!("{}: {reason}", path.display()));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(failed("it has no name")) };
    let mut regex = String::from("^");
    push_path(parent, &mut regex).map_err(failed)?;
    regex.push('/');
    for char in name.to_str().ok_or_else(|| failed("it is no text"))?.chars() {
        let (lower, upper) = (char.to_ascii_lowercase(), char.to_ascii_uppercase());
        if lower == upper {
            push_escaped(char, &mut regex);
        } else {
            regex.extend(['[', lower, upper, ']']);
        }
    }
    regex.push_str("(/.*)?$");
    Ok(regex)
}

/// Writes a path as a regular expression for itself.
fn push_path(path: &Path, regex: &mut String) -> Result<(), &'static str> {
    let text = path.to_str().ok_or("a name before it is no text, and no policy can hold it")?;
    if text.contains(|char: char| char.is_control()) {
        return Err("a name before it holds a control character");
    }
    text.strip_suffix('/').unwrap_or(text).chars().for_each(|char| push_escaped(char, regex));
    Ok(())
}

/// A text of the policy.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    quoted
}

/// Where the system shows what is on its data volume under its whole path. The same files have shorter paths, by which alone
/// policies know them.
const DATA_VOLUME: &str = "/System/Volumes/Data";

/// What the arguments of a program may take there is 1 MiB with the environment.
const MAX_ARGUMENT_BYTES: usize = 512 << 10;

/// What every restricted command may do.
const BASE: &str = r#"(version 1)
(deny default)
; processes
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
; devices and terminals
(allow file-read* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read* file-write-data file-ioctl (literal "/dev/tty") (literal "/dev/ptmx") (literal "/dev/dtracehelper"))
(allow file-write-data (require-all (literal "/dev/null") (vnode-type CHARACTER-DEVICE)))
(allow file-read* (subpath "/dev/fd"))
(allow pseudo-tty)
(allow file-read* file-write* (require-all (regex "^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
(allow file-ioctl (regex "^/dev/ttys[0-9]+$"))
; facts about the machine
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "kern.os")
  (sysctl-name-prefix "kern.proc.pgrp.")
  (sysctl-name-prefix "kern.proc.pid.")
  (sysctl-name-prefix "net.routetable.")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg"))
(allow sysctl-write (sysctl-name "kern.grade_cputype"))
; services of the system
(allow mach-lookup
  (global-name "com.apple.PowerManagement.control")
  (global-name "com.apple.cfprefsd.agent")
  (global-name "com.apple.cfprefsd.daemon")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (local-name "com.apple.cfprefsd.agent"))
(allow user-preference-read)
(allow ipc-posix-sem)
(allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-unlink
  (ipc-posix-name-regex "^/__KMP_REGISTERED_LIB_[0-9]+$"))
(allow iokit-open (iokit-registry-entry-class "RootDomainUserClient"))
"#;

/// An open network, with the services that name resolution and encryption need.
const NETWORK: &str = r#"; the network
(allow network-bind)
(allow network-inbound)
(allow network-outbound)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SecurityServer")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.networkd")
  (global-name "com.apple.ocspd")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.trustd.agent"))
"#;

/// What nobody may do: a container engine would run commands outside.
const LAST: &str = r#"; a way out of every sandbox
(deny process-exec
  (literal "/usr/local/bin/docker")
  (literal "/opt/homebrew/bin/docker")
  (literal "/Applications/Docker.app/Contents/Resources/bin/docker"))
(deny network-outbound
  (literal "/var/run/docker.sock")
  (literal "/private/var/run/docker.sock")
  (regex "/\\.docker/run/docker\\.sock$"))
(deny mach-lookup (global-name-prefix "com.docker."))
"#;

#[cfg(test)]
mod tests;
