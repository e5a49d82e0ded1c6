//! The files of a place: which call for what, what is safe, and what a plain peer lacks.
//!
//! [`Environment::fs`](crate::Environment::fs) hands out a [`FileSystem`](crate::fs::FileSystem), the same trait for this
//! machine and for one behind a connection.
//!
//! | for | use | bound |
//! | --- | --- | --- |
//! | a file that fits into memory | [`read`], [`write`](crate::fs::FileSystem::write) | 48 MiB, or [`max_bytes`] |
//! | a file of any size | [`open`], then [`FileReader`] and [`FileWriter`] | [`BLOCKS_IN_FLIGHT`] blocks on their way |
//! | parts of a file | [`open`], then [`read_block`] and [`write_block`] | 1 MiB a block |
//! | one directory | [`read_directory`] | none |
//! | a tree | [`walk`] | 10,000 directories, 50,000 entries, 64 levels; it says if there is more |
//! | news of a path that does not exist | [`watch_missing`] | 64 paths |
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use longarm::Environment;
//! use longarm::fs::{FileReader, FileWriter, FsError, OpenMode, ReadOptions, RemoveOptions, WriteOptions};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let environment = Environment::local();
//! let fs = environment.fs();
//! let dir = fs.private_directory().await?;
//! let path = || Ok::<_, longarm::path_uri::PathUriError>(dir.join("file")?.into());
//!
//! fs.write(path()?, "short".into(), WriteOptions::new()).await?;
//! assert_eq!(fs.read(path()?, ReadOptions::new()).await?, "short");
//!
//! // The limit, the size and the way out are in the error.
//! let error = fs.read(path()?, ReadOptions::new().max_bytes(4)).await.unwrap_err();
//! assert!(matches!(error, FsError::TooLarge { size: Some(5), limit: 4, .. }));
//!
//! // Streams are `AsyncWrite` and `AsyncRead`; a reader is also a `Stream` of `Bytes`.
//! let mut writer = FileWriter::new(fs.open(path()?, OpenMode::Replace).await?, 0);
//! writer.write_all(&vec![7; 3_000_000]).await?;
//! writer.shutdown().await?;
//! let mut bytes = Vec::new();
//! FileReader::new(fs.open(path()?, OpenMode::Read).await?, 2_999_990).read_to_end(&mut bytes).await?;
//! assert_eq!(bytes, [7; 10]);
//!
//! fs.remove(dir.into(), RemoveOptions::new()).await?;
//! environment.close().await;
//! # Ok(())
//! # }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # What is safe
//!
//! - **Whole-file writes** leave the former content when they fail or are cut: the new one is written beside it and takes
//!   its place at once, with owner, mode, attributes and access lists of the old. Where that would lose something (a file
//!   with several names, a mount point, a directory that may not be written) the file is written in place;
//!   [`WriteOptions`](crate::fs::WriteOptions) says when. Files that are opened for blocks are written in place.
//! - **Copies** onto themselves, by whichever name, change nothing. Copies and removals of trees follow no link out of them,
//!   and name what failed.
//! - **Reads** never block on what is no file: a FIFO or a device is refused.
//! - [`Symlinks::Refuse`](crate::fs::Symlinks::Refuse) refuses links in every component of a path.
//!
//! # Under a sandbox
//!
//! [`with_sandbox`](crate::fs::FileSystem::with_sandbox) gives the same files as far as a
//! [`SandboxIntent`](crate::sandbox::SandboxIntent) allows; the place enforces it, here or behind a connection:
//!
//! ```
//! use longarm::Environment;
//! use longarm::fs::{FsError, ReadOptions, WriteOptions};
//! use longarm::path_uri::PathUri;
//! use longarm::sandbox::SandboxIntent;
//!
//! # async fn example(env: &Environment, job: PathUri) -> Result<(), FsError> {
//! let intent = SandboxIntent::workspace_write([job.clone()]).cwd(job).deny_below_roots("secrets");
//! let files = env.fs().with_sandbox(intent)?;
//! files.write("/srv/job/notes".into(), "allowed".into(), WriteOptions::new()).await?;
//! let denied = files.read("/srv/job/secrets/key".into(), ReadOptions::new()).await;
//! assert!(matches!(denied, Err(FsError::PermissionDenied { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! On Linux this machine enforces it by itself, without a process for each call and on any kernel; one with Landlock adds a
//! second wall. Refusals are those of the equivalent mounts: a write where only reading is allowed ends in
//! `FsError::Os` with the system's "read-only file system", what is denied in `PermissionDenied`, and what the intent
//! does not show in `NotFound`. It decides by paths: a second hard link of a denied file, or another mount of it, is another
//! path. An intent that names workspace roots needs a `cwd`. Elsewhere than on Linux, an intent that restricts files is
//! refused.
//!
//! # Names
//!
//! A name is any bytes that the place allows. A path is native text of the place or a
//! [`PathUri`](crate::path_uri::PathUri), which carries them all; a
//! [`DirectoryEntry`](crate::fs::DirectoryEntry::path_in) knows its own.
//!
//! # Behind a connection
//!
//! - Long transfers do not hold up anything else: blocks on their way are few, and the server sends blocks and the output
//!   of processes in turn, byte for byte.
//! - An open file belongs to its connection and is closed with it; a lost connection ends every call and every stream at
//!   once in [`FsError::Disconnected`](crate::fs::FsError::Disconnected).
//! - [`fail_fast`](crate::fs::FileSystem::fail_fast) gives a view whose calls never wait for a connection that is not
//!   there: they end in `Disconnected` with [`Sent::NotSent`](crate::error::Sent::NotSent).
//! - Towards a plain peer, going on with an upload ([`OpenMode::Update`](crate::fs::OpenMode::Update)), private
//!   directories, `fsync`, and a recursive removal that refuses links end in
//!   [`Unsupported`](crate::error::Unsupported) before anything is sent; names that are not Unicode come with marks
//!   in them. That peer empties a file that is copied onto itself, and its whole-file writes are not safe.
//!
//! [`read`]: crate::fs::FileSystem::read
//! [`open`]: crate::fs::FileSystem::open
//! [`read_directory`]: crate::fs::FileSystem::read_directory
//! [`walk`]: crate::fs::FileSystem::walk
//! [`watch_missing`]: crate::fs::FileSystem::watch_missing
//! [`read_block`]: crate::fs::FileHandle::read_block
//! [`write_block`]: crate::fs::FileHandle::write_block
//! [`max_bytes`]: crate::fs::ReadOptions::max_bytes
//! [`BLOCKS_IN_FLIGHT`]: crate::fs::BLOCKS_IN_FLIGHT
//! [`FileReader`]: crate::fs::FileReader
//! [`FileWriter`]: crate::fs::FileWriter
