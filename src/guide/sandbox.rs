//! Sandboxes: what they protect against, what they do not, and on which systems.
//!
//! A request with a [`SandboxIntent`](crate::sandbox::SandboxIntent) runs in a sandbox that the executor makes of it, or does
//! not run at all. The host says *what* is allowed; the executor alone chooses *how*, and reports it. A request without an
//! intent has no sandbox.
//!
//! ```
//! use longarm::collect::CollectLimits;
//! use longarm::error::SpawnError;
//! use longarm::path_uri::PathUri;
//! use longarm::sandbox::SandboxIntent;
//! use longarm::{Environment, ExecRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let environment = Environment::local();
//! let request = ExecRequest::new(["sh", "-c", "echo hi > /etc/longarm-example"]).sandbox(SandboxIntent::read_only());
//! match environment.spawn(request).await {
//!     Ok(process) => {
//!         let handle = process.handle();
//!         let output = process.output(CollectLimits::default()).await?;
//!         assert!(!output.status.success());
//!         for evidence in handle.denial().into_iter().flat_map(|denial| denial.evidence) {
//!             println!("{evidence}, a guess: {}", evidence.is_guess());
//!         }
//!     }
//!     // The cause and the remedy, before anything was started.
//!     Err(SpawnError::Sandbox(refusal)) => println!("{refusal}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # environment.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What an intent says
//!
//! Presets are [`read_only`](crate::sandbox::SandboxIntent::read_only),
//! [`workspace_write`](crate::sandbox::SandboxIntent::workspace_write),
//! [`minimal_read`](crate::sandbox::SandboxIntent::minimal_read) and
//! [`minimal_write`](crate::sandbox::SandboxIntent::minimal_write); methods add entries. Of several entries for a path the
//! longest decides, and among equals *deny* wins over *write* over *read*; the order of entries never matters. Links are
//! resolved first. In each workspace root, `.git`, `.agents`, `.codex` and `.aws` stay read-only at the top, also where they do
//! not exist yet, unless an entry names them: a command that is to commit needs
//! [`write_below_roots(".git")`](crate::sandbox::SandboxIntent::write_below_roots). Where `.git` is a file, as in a linked worktree
//! or a submodule, that frees the directory which the file names as well; but what git writes outside of the roots takes entries of
//! its own: in a worktree for the `.git` of the repository, in a submodule for its directory there. Where everything may be
//! written, and nothing is excepted, there are no such names; that is also so with `/` as a writable workspace root. On Linux, where
//! executors with different state directories, or of different users, work in one root at a time, an empty directory of such a
//! name can stay until the one that has made it runs another command.
//!
//! A workspace root, or a path to be written, that does not exist is no error: it is not made, and the start goes on with the rest.
//!
//! # What is enforced, and how strongly
//!
//! [`Process::enforcement`](crate::Process::enforcement) tells it for each process: in full, in part with what is missing, or
//! nothing. Unless the executor's owner accepts less ([`SandboxSettings`](crate::sandbox::SandboxSettings)), what cannot be
//! enforced in full is refused. Nothing that comes over the wire changes that. [`Local::assess_sandbox`](crate::Local::assess_sandbox)
//! tells it before anything is started.
//!
//! A host that has another way to enforce an intent, such as a container runtime, implements
//! [`SandboxEnforcer`](crate::sandbox::SandboxEnforcer). What follows is about the one that a place has by default.
//!
//! | Linux has | and the sandbox is |
//! | --- | --- |
//! | user namespaces or `CAP_SYS_ADMIN`, Landlock of ABI 3 (Linux 6.2) and seccomp | full: what is outside the roots stands behind two walls, and so does the network, but behind one where a process has a loopback interface of its own |
//! | no namespaces | with the owner's consent partial, and only without deny entries, workspace roots and minimal reads; else refused. It takes Landlock of ABI 3, or of ABI 4 (Linux 6.7) where only the network is restricted. Before ABI 6 (Linux 6.12) a process can signal its own process group only, so that `kill` of a child or `abort` do not do what they should. Queues, semaphores and shared memory of System V, and message queues, cannot be used |
//! | no Landlock | with the owner's consent partial: one wall instead of two, and none before named pipes of the host that the user may write to |
//! | no seccomp | refused |
//!
//! The network of a process is enabled, or restricted to nothing: no socket can be made but local ones with a connection, which can be
//! neither bound nor connected, and pairs of them. So nothing can listen on a path in the workspace, either. The owner may give
//! such processes a loopback interface of their own; they still make no local sockets but pairs. With
//! [`managed_network`](crate::ExecRequest::managed_network) they have one on which the given ports lead to those of the
//! executor, at most 256 connections at a time, and nothing else leads anywhere.
//!
//! On Linux a network namespace takes long to make. One that leads nowhere, whose loopback interface is down, and of which no
//! command can change anything is kept when its sandbox has ended, and given to one that comes next, never to two at a time: up to
//! four of a kind by each thread of the place that makes processes, which is one unless starts hang. With it are kept its user
//! namespace, and the memory file system that is the `/dev` of the sandbox, which is read-only; nothing of the host's file systems
//! is kept, so that what was mounted can be unmounted. A command with the network of the executor gets a user namespace that was
//! kept in the same way. A network with a working loopback interface is always new, and so is that of a command that may write
//! everything as the system's root; when such a command has ended, or has run for 0.1 s, one is made for the next.
//!
//! A command that runs as the system's root finds all of `/proc` read-only, also what is its own there, unless it may write
//! everything: as the owner of the rest it could change modes there for the whole machine.
//!
//! On Linux a directory within something writable stays in its place if something that is not writable lies below it, by an
//! entry or a match of a pattern, or if a pattern begins there: it can be neither renamed nor removed (`EBUSY`), also if it
//! holds no match yet. What is in it can be. Where this concerns more than 16,384 directories, the start is refused. Every process
//! has a `/dev` and a `/proc` of its own: an entry for something there means nothing, and a denial is refused. Only below
//! `/dev/shm`, which is empty at first, what entries and workspace roots name is the host's. `/sys` is not writable unless all is.
//!
//! Nor does it matter where the kernel shows such things. Of a second procfs, as in the tree of another system, or of a file system
//! of message queues, a process with namespaces finds an empty directory that it cannot enter, whatever an entry says; a second
//! sysfs, control groups and the like are not writable unless all is, also by an entry for something in them. The executor learns of
//! them from `/proc/self/mountinfo`, and a start is refused if it cannot. What is mounted while a start is under way may escape it;
//! what is mounted later is not seen by a process that runs.
//!
//! A command on a terminal has it as `/dev/tty` and as its streams, with job control, its size and its keys. It has no name in
//! the sandbox, so that `tty` says that there is none.
//!
//! ## What a command notices
//!
//! On Linux, with namespaces, a command runs as it would without a sandbox, but for what is denied and for this:
//!
//! - It has no capabilities, and `sudo` and other programs that change the user give it no other rights. So one that runs as the
//!   system's root writes, and reads, only what the modes of files let that user: not a workspace that belongs to another user.
//! - With a user namespace, the user and the group of the command are shown as they are, all others as nobody's (65534); what
//!   groups the user is in counts as before. Files cannot be given to another user or group, even to one that the user is in.
//! - To rename or to link from one root to another, or between a root and a directory for temporary files, fails as between file
//!   systems (`EXDEV`).
//! - Debuggers and tracers, sandboxes within the sandbox, `io_uring`, higher priorities, leases on files (`F_SETLEASE`), and
//!   snapshots of Btrfs are refused.
//! - Its processes are numbered anew, and those outside are not seen. Whatever it has started ends with it.
//!
//! ## macOS
//!
//! The same intents become a Seatbelt policy, with which `/usr/bin/sandbox-exec` starts the command in its own place. **This
//! project has not run it on macOS**: it is compiled with every change, and the text of the policy is evaluated in tests against
//! what the intent says of each path. So a sandbox there counts as partial: it is refused unless the executor's owner accepts
//! that ([`accept_partial`](crate::sandbox::SandboxSettings::accept_partial)), and the report names what is missing.
//!
//! | on macOS | |
//! | --- | --- |
//! | the policy | is tried before the command is started; one that the system does not take, or an executor that is in a sandbox itself, is an error of the start |
//! | the command | is the process that was started: exit status, signals, terminal and directory are its own. A program that cannot be executed is an error of the start, also if the policy forbids it |
//! | `arg0` | is refused if it is not the program's name: `sandbox-exec` cannot give another one |
//! | variables whose names begin with `DYLD_` | do not reach the command: the system takes them from what it starts itself, and `sandbox-exec` is that |
//! | patterns | also cover files that appear later. What matches at the start keeps its directories in place; a directory that holds a later match can be moved to where the pattern does not match |
//! | roots, and directories on the way to something that is not writable | cannot be moved or removed |
//! | missing protected names | are held by the policy in capitals and small letters; nothing is made in their place. They are compared at the end, and what appeared is reported |
//! | what the command leaves behind | is killed with its process group; a descendant that has left the group lives on, in the sandbox |
//! | the network through a proxy | outbound to the given loopback ports only |
//! | one wall | where Linux has two |
//!
//! ## Windows
//!
//! A process can run with a write-restricted token, in a job object: it may write only what an access control entry lets its own
//! identity write, or everyone, or whoever is logged on; and it ends with all that it has started. Nothing is changed on the
//! machine for it. **This project has not run it on Windows** either: it is compiled with every change, and what is decided and
//! what the token consists of is tested on every system. So it counts as partial, as on macOS.
//!
//! | an intent that asks for | is |
//! | --- | --- |
//! | [`windows_level`](crate::sandbox::SandboxIntent::windows_level) `disabled`, and restricts something | refused: the level enforces nothing |
//! | the level `elevated` or `mxc` | refused: there is no set-up with administrators' rights that would make accounts and filters of the network, and no containers are made |
//! | the level `restricted-token`, everything readable and nothing writable | enforced in part, with the owner's consent. What everyone may write to can be written, other processes of the user can be read, and a restricted network is **not** restricted: without that set-up nothing could |
//! | writable directories | refused: they would need access control entries that stay on them, and this version makes none |
//! | denied paths or patterns, or only some of the files readable | refused: such a token reads all that its user reads |
//! | the network through given ports, or a restricted network only | refused: as above |
//!
//! ## Files
//!
//! Calls about files under an intent are decided path by path on Linux only. Elsewhere, those that read are made under an intent
//! that lets everything be read, and those of an intent that does not restrict files; all others are refused. The systems have
//! several names for one file, by ignoring the case and the composition of letters and by showing a volume under two directories;
//! what would have to be asked of them about that has not been proven on any.
//!
//! # What it protects against
//!
//! On Linux, and on the other systems as far as the tables above go:
//!
//! A command that writes, reads or connects where it should not, by mistake or because somebody talked an agent into it: files
//! outside the roots and their modes, owners, times and attributes; denied paths, also through links; metadata directories whose
//! content other programs execute; other processes, their environment and memory, also by calls about files; sockets, abstract
//! names and shared memory outside; the input queue of a terminal; descendants that outlive their command.
//!
//! # What it does not
//!
//! - Errors of the kernel. Fewer of its calls can be made, but it is the same kernel.
//! - What may be read may be sent away, where the network is enabled.
//! - Where the network is enabled, a command reaches whatever listens on the executor's machine, among that the executor: one
//!   that serves a port of loopback without a token starts commands for it that are in no sandbox. Have it want a token
//!   (`longarm serve --auth-token-file`), and deny that file in the intents.
//! - On Linux, what is denied and is missing while a process is started, in a tree that cannot be written to, or where its
//!   directory is missing too: if somebody puts it there later, the process finds it, and where it may write it can make it. Name
//!   a directory that exists.
//! - On Linux, a denied file that the host replaces by another one, as editors do that save, while a process runs: what was
//!   there at the start is denied to that process. Name its directory where that matters.
//! - A protected name that is only looked at afterwards, because the executor's owner wants it so
//!   ([`MissingProtected`](crate::sandbox::MissingProtected)), or because it is `.git` in a root inside a larger repository, of
//!   which the command may not write the `.git`: the command can make it, with content that other programs execute. The report of
//!   such a process is a part that names it, and [`Evidence::ProtectedName`](crate::sandbox::Evidence::ProtectedName) tells that it appeared. It is not taken away: a user
//!   may have made it meanwhile. What an entry of the intent denies or makes read-only is held there too.
//! - What a link leads to whose name a pattern matches: patterns are compared with paths without links. Deny that path.
//! - A hard link to a denied file that was made before, and on Linux a file that a pattern would match but that was made after the start of
//!   a process. (Calls about files test patterns each time.)
//! - On Linux, a directory below the beginning of a pattern that holds no match at the start: it can be moved to where the
//!   pattern does not match, and what the host puts in it later is not denied there, neither to that process nor to later ones.
//!   So is what a process finds, before it is a match, under another name. Name a directory by an entry, not by a pattern, where
//!   secrets may appear.
//! - What a command leaves in a workspace for somebody else to execute: a changed build script is a changed build script.
//!   So is a set-user-ID program: one that a command makes in a workspace gives its rights to another user who executes it outside
//!   of a sandbox.
//! - Another mount of the same directory, made by the host: what is denied, or is a protected name, by one of its paths is not by
//!   the other; nor in the lower directory of an overlay. Name both.
//! - Named pipes that are already in a writable root, also below what is read-only there: they can be written to, if their modes
//!   allow it.
//! - Locks: a command can lock (`flock`) what it can read, and has those wait who want to lock it too. While it locks an empty
//!   directory of a protected name, further starts in that root are refused after a few seconds.
//! - Processor time, memory and disk space.
//! - A person who approves everything.
//!
//! # Denials
//!
//! After a failure, [`sandbox_denied`](crate::event::Exited::sandbox_denied) says whether a sandbox seems to have denied something,
//! by the same rules as Codex's server: among them, that the output holds words such as *permission denied*. So a command
//! can claim a denial, and one in another language hides it. [`Process::denial`](crate::Process::denial) has the evidence, and
//! tells what is a [guess](crate::sandbox::Evidence::is_guess). A denial may be the reason to ask somebody; by itself it must never
//! grant anything.
//!
//! On Linux the evidence also says how often the filter refused to make a socket (`socket`, `socketpair`), whatever the command
//! made of that and with whatever code it ended: [`Evidence::Seccomp`](crate::sandbox::Evidence::Seccomp). By itself it is no
//! denial, since many programs only try. A thread of the executor answers such a call, in some microseconds and always by
//! `EPERM`; so the call waits while the executor is stopped, and is refused by `ENOSYS` if that is gone. The thread is there as
//! long as there are sandboxes, with a descriptor for each. A command in such a sandbox cannot listen to system calls of its
//! own children in the same way: `seccomp` refuses it a listener (`EBUSY`). Where the kernel gives the executor none (before
//! Linux 5.0, or behind another listener, as in a container whose calls are answered), the filter refuses by itself and the
//! evidence is missing: the report on what is enforced has `seccomp notification` among its mechanisms, or the reason against
//! it among its facts.
//!
//! `examples/sandboxed.rs` shows the way: a denied write, its report, and an approved run without the sandbox.
