//! Calls about files under an intent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longarm::fs::{FsError, OpenMode, Symlinks, WalkOptions};
use longarm::sandbox::SandboxError;

use super::tools::{Outcome, ensure};
use crate::files::{Files, busy, denied, hidden, read_only};
use crate::place::{Cripple, Kind, Settings};
use crate::policy::{deny, empty, minr, ro, ww};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        custom!(105, "a file outside is read", ro, read_outside),
        custom!(106, "nothing is changed", ro, nothing_is_changed),
        custom!(107, "the workspace is written", ww, workspace_is_written),
        custom!(108, "protected names", ww, protected_names).setup("mkdir $W/a"),
        custom!(109, "a denied directory", deny, nothing_of_what_is_denied),
        custom!(110, "by links to the outside", ww, by_links_to_the_outside)
            .setup("ln -s $O $W/link; ln -s $O/new $W/dangling"),
        custom!(111, "a link is exchanged between check and use", deny, exchanged).setup(
            "cd $W; mkdir public swapped; echo public >public/f; echo public >swapped/f; ln -s public link; ln -s secret other-link; ln -s secret other",
        ),
        custom!(112, "what is not readable", minr, not_readable),
        custom!(113, "without the platform", |dirs| empty(dirs).special("slash_tmp", "read"), no_platform),
        custom!(114, "a directory is made in a denied one", deny, made_in_what_is_denied),
        custom!(114, "a directory is made in a hidden one", minr, made_in_what_is_hidden),
        custom!(
            115,
            "a tree that holds a denied place",
            |dirs| ww(dirs).path(dirs.w.join("outer/inner"), "deny"),
            removal_around_an_entry
        )
        .setup(OUTER),
        custom!(115, "a tree that holds what a pattern denies", |dirs| ww(dirs).glob("**/inner"), removal_around_a_pattern)
            .setup(OUTER),
        custom!(116, "no directory for the workspace", |dirs| ww(dirs).without_cwd(), no_directory),
        custom!(117, "a pattern, and a later file", |dirs| ww(dirs).glob("**/*.pem"), a_later_file),
        custom!(118, "nobody else is restricted", deny, nobody_else),
    ];
    // Calls need no namespaces.
    let crippled = Settings { cripple: Some(Cripple::UserNamespaces), ..Settings::default() };
    // The executor can make no process: there is no helper.
    let alone = Settings { cripple: Some(Cripple::Processes), ..Settings::default() };
    for row in [
        custom!(105, "S06, no user namespaces: a file outside is read", ro, read_outside).settings(crippled),
        custom!(106, "S06, no user namespaces: nothing is changed", ro, nothing_is_changed).settings(crippled),
        custom!(107, "S06, no user namespaces: the workspace is written", ww, workspace_is_written).settings(crippled),
        custom!(109, "S06, no user namespaces: a denied directory", deny, nothing_of_what_is_denied).settings(crippled),
        custom!(112, "S06, no user namespaces: what is not readable", minr, not_readable).settings(crippled),
        custom!(105, "no helper: a file outside is read", ro, read_outside).settings(alone),
        custom!(107, "no helper: the workspace is written", ww, workspace_is_written).settings(alone),
        custom!(109, "no helper: a denied directory", deny, nothing_of_what_is_denied).settings(alone),
    ] {
        rows.push(row.at(Kind::ALONE));
    }
    rows
}

const OUTER: &str = "mkdir -p $W/outer/inner; echo x >$W/outer/f; echo x >$W/outer/inner/f";

/// All that is in the directories of a row, and what it holds.
fn content(stage: &Stage<'_>) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut content, mut rest) = (BTreeMap::new(), vec![stage.dirs.w.clone(), stage.dirs.o.clone()]);
    while let Some(path) = rest.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            rest.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let bytes = if found.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        content.insert(path, bytes);
    }
    content
}

async fn read_outside(stage: &Stage<'_>) -> Outcome {
    let files = Files::under(stage);
    assert_eq!(files.read(stage.dirs.o.join("f")).await.unwrap(), b"outside");
    assert!(files.read("/etc/passwd").await.is_ok());
    Ok(())
}

async fn nothing_is_changed(stage: &Stage<'_>) -> Outcome {
    let (files, w, o, before) = (Files::under(stage), &stage.dirs.w, &stage.dirs.o, content(stage));
    read_only(files.write(w.join("new"), "x").await);
    read_only(files.write(w.join("f"), "x").await);
    read_only(files.mkdir(w.join("new"), true).await);
    read_only(files.mkdir(w.join("new"), false).await);
    read_only(files.remove(w.join("f")).await);
    read_only(files.remove(w.join("sub")).await);
    read_only(files.copy(o.join("f"), w.join("new")).await);
    read_only(files.copy(o.join("f"), w.join("f")).await);
    for mode in [OpenMode::Replace, OpenMode::Update] {
        read_only(files.0.open(w.join("f").into(), mode).await);
    }
    read_only(files.0.open(w.join("new").into(), OpenMode::Replace).await);
    assert_eq!(content(stage), before);
    Ok(())
}

async fn workspace_is_written(stage: &Stage<'_>) -> Outcome {
    let (files, w, o) = (Files::under(stage), &stage.dirs.w, &stage.dirs.o);
    files.write(w.join("new"), "new").await.unwrap();
    files.write(w.join("f"), "changed").await.unwrap();
    files.mkdir(w.join("a/b"), true).await.unwrap();
    files.copy(o.join("f"), w.join("a/copy")).await.unwrap();
    for (name, text) in [("new", "new"), ("f", "changed"), ("a/copy", "outside")] {
        assert_eq!(std::fs::read_to_string(w.join(name)).unwrap(), text);
    }
    assert!(w.join("a/b").is_dir());
    files.remove(w.join("a")).await.unwrap();
    assert!(!w.join("a").exists());
    files.write(stage.dirs.t.join("new"), "x").await.unwrap();

    let before = content(stage);
    read_only(files.write(o.join("f"), "x").await);
    read_only(files.write(o.join("new"), "x").await);
    read_only(files.copy(w.join("f"), o.join("new")).await);
    read_only(files.mkdir(o.join("new"), true).await);
    read_only(files.remove(o.join("f")).await);
    assert_eq!(content(stage), before);
    Ok(())
}

async fn protected_names(stage: &Stage<'_>) -> Outcome {
    let (files, w, before) = (Files::under(stage), &stage.dirs.w, content(stage));
    read_only(files.write(w.join(".git/config"), "x").await);
    read_only(files.write(w.join(".git/new"), "x").await);
    read_only(files.remove(w.join(".git")).await);
    read_only(files.remove(w.join(".git/config")).await);
    assert_eq!(files.read(w.join(".git/config")).await.unwrap(), b"[core]\n");
    for name in [".codex", ".agents", ".aws"] {
        read_only(files.mkdir(w.join(name), true).await);
        read_only(files.write(w.join(name), "x").await);
        read_only(files.copy(w.join("a"), w.join(name)).await);
    }
    assert_eq!(content(stage), before);
    files.mkdir(w.join("sub/.git"), true).await.unwrap();
    assert!(w.join("sub/.git").is_dir());
    Ok(())
}

async fn nothing_of_what_is_denied(stage: &Stage<'_>) -> Outcome {
    let (files, w, s, before) = (Files::under(stage), &stage.dirs.w, &stage.dirs.s, content(stage));
    denied(files.read(s.join("f")).await);
    denied(files.0.open(s.join("f").into(), OpenMode::Read).await);
    denied(files.0.read_directory(s.as_path().into()).await);
    denied(files.copy(s.join("f"), w.join("copied")).await);
    denied(files.copy(s, w.join("copied")).await);
    denied(files.write(s.join("f"), "x").await);
    denied(files.remove(s).await);
    denied(files.remove(s.join("f")).await);
    denied(files.read(w.join("sub/../secret/f")).await);
    assert_eq!(content(stage), before);
    // Around it all is as ever.
    assert_eq!(files.read(w.join("f")).await.unwrap(), b"inside");
    files.write(w.join("f"), "x").await.unwrap();
    Ok(())
}

async fn by_links_to_the_outside(stage: &Stage<'_>) -> Outcome {
    let (files, w, before) = (Files::under(stage), &stage.dirs.w, content(stage));
    read_only(files.write(w.join("link/f"), "x").await);
    read_only(files.write(w.join("link/new"), "x").await);
    read_only(files.write(w.join("dangling"), "x").await);
    read_only(files.mkdir(w.join("link/new"), true).await);
    read_only(files.remove(w.join("link/f")).await);
    read_only(files.copy(w.join("f"), w.join("link/new")).await);
    assert_eq!(content(stage), before);
    // The link itself is the workspace's.
    files.remove(w.join("link")).await.unwrap();
    assert_eq!(std::fs::read(stage.dirs.o.join("f")).unwrap(), b"outside");
    Ok(())
}

async fn exchanged(stage: &Stage<'_>) -> Outcome {
    const EXCHANGES: usize = 100_000;
    let (files, w) = (Files::under(stage), &stage.dirs.w);
    // One name is a link to either directory in turn, another is a directory and a link to the denied one in turn.
    let exchanged = Arc::new(AtomicUsize::new(0));
    let swapper = std::thread::spawn({
        // It ends with whoever reads.
        let (exchanged, w) = (Arc::downgrade(&exchanged), w.clone());
        move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            let pairs = [("link", "other-link"), ("swapped", "other")].map(|(one, other)| (w.join(one), w.join(other)));
            while let Some(exchanged) = exchanged.upgrade() {
                let (one, other) = &pairs[exchanged.fetch_add(1, Ordering::Relaxed) % 2];
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        }
    });
    let (mut reads, mut refusals, mut rounds) = (0, 0, 0);
    // On a busy machine, either of them can have the processor for long.
    while exchanged.load(Ordering::Relaxed) < EXCHANGES || reads == 0 || refusals == 0 {
        ensure(!swapper.is_finished(), || "nothing is exchanged any more".into())?;
        for path in [w.join("link/f"), w.join("swapped/f")] {
            match files.read(&path).await {
                Ok(bytes) => {
                    assert!(bytes == b"public\n" || bytes == b"public", "{}: {bytes:?}", path.display());
                    reads += 1;
                }
                Err(FsError::PermissionDenied { .. }) => refusals += 1,
                Err(error) => assert!(!matches!(error, FsError::Closed), "{error:?}"),
            }
            // Whatever it says, it must not reach the file. It takes longer, and is not to keep the others from it.
            if rounds % 8 == 0 {
                drop(files.write(&path, "public").await);
            }
        }
        rounds += 1;
    }
    drop(exchanged);
    swapper.join().unwrap();
    assert_eq!(std::fs::read(stage.dirs.s.join("f")).unwrap(), b"secret");
    Ok(())
}

async fn not_readable(stage: &Stage<'_>) -> Outcome {
    let (files, w, o) = (Files::under(stage), &stage.dirs.w, &stage.dirs.o);
    assert_eq!(files.read(w.join("f")).await.unwrap(), b"inside");
    assert!(files.read("/etc/passwd").await.is_ok());
    hidden(files.read(o.join("f")).await);
    hidden(files.0.metadata(o.as_path().into(), Symlinks::Follow).await);
    hidden(files.0.metadata(o.join("f").into(), Symlinks::Follow).await);
    hidden(files.0.canonicalize(o.join("f").into()).await);
    hidden(files.0.read_directory(o.as_path().into()).await);
    hidden(files.0.open(o.join("f").into(), OpenMode::Read).await);
    hidden(files.copy(o.join("f"), w.join("new")).await);
    hidden(files.write(o.join("f"), "x").await);
    read_only(files.write(w.join("f"), "x").await);
    // The directories above lead to what is readable, and to nothing else.
    let above = files.0.read_directory(stage.dirs.base.as_path().into()).await.unwrap();
    assert_eq!(above.iter().map(|entry| &*entry.file_name).collect::<Vec<_>>(), ["w"]);
    let found = files.0.metadata(stage.dirs.base.as_path().into(), Symlinks::Follow).await.unwrap();
    assert!(found.is_directory && found.size == 0 && found.modified.is_none(), "{found:?}");
    // A link of the platform leads to what an entry names, by either name.
    if Path::new("/bin").is_symlink() {
        assert!(files.read("/bin/sh").await.is_ok() && files.read("/usr/bin/sh").await.is_ok());
    }
    Ok(())
}

async fn no_platform(stage: &Stage<'_>) -> Outcome {
    let files = Files::under(stage);
    for path in ["/etc/hostname", "/etc/passwd", "/usr/bin/env"] {
        hidden(files.read(path).await);
    }
    files.0.read_directory(Path::new("/tmp").into()).await.unwrap();
    Ok(())
}

async fn made_in_what_is_denied(stage: &Stage<'_>) -> Outcome {
    let (files, s, before) = (Files::under(stage), &stage.dirs.s, content(stage));
    for recursive in [false, true] {
        denied(files.mkdir(s.join("new"), recursive).await);
        denied(files.mkdir(s.join("f/new"), recursive).await);
    }
    // It is there: without that flag, that comes first where it does.
    denied(files.mkdir(s, true).await);
    assert!(files.mkdir(s, false).await.is_err());
    assert_eq!(content(stage), before);
    Ok(())
}

async fn made_in_what_is_hidden(stage: &Stage<'_>) -> Outcome {
    let (files, before) = (Files::under(stage), content(stage));
    for recursive in [false, true] {
        for path in [stage.dirs.o.join("new"), stage.dirs.o.clone(), stage.dirs.o.join("f")] {
            assert!(files.mkdir(&path, recursive).await.is_err(), "{}", path.display());
        }
        read_only(files.mkdir(stage.dirs.w.join("new"), recursive).await);
    }
    assert_eq!(content(stage), before);
    Ok(())
}

async fn removal_around_an_entry(stage: &Stage<'_>) -> Outcome {
    let before = content(stage);
    busy(Files::under(stage).remove(stage.dirs.w.join("outer")).await);
    assert_eq!(content(stage), before);
    Ok(())
}

async fn removal_around_a_pattern(stage: &Stage<'_>) -> Outcome {
    let before = content(stage);
    denied(Files::under(stage).remove(stage.dirs.w.join("outer")).await);
    assert_eq!(content(stage), before);
    Ok(())
}

async fn no_directory(stage: &Stage<'_>) -> Outcome {
    let (o, f) = (&stage.dirs.o, stage.dirs.o.join("f"));
    let before = content(stage);
    let files = match stage.files() {
        Ok(files) => Files(files),
        Err(error) => {
            invalid(Err::<(), _>(error));
            return Ok(());
        }
    };
    invalid(files.read(&f).await);
    invalid(files.write(stage.dirs.w.join("new"), "x").await);
    invalid(files.mkdir(stage.dirs.w.join("new"), true).await);
    invalid(files.remove(stage.dirs.w.join("f")).await);
    invalid(files.copy(&f, stage.dirs.w.join("new")).await);
    invalid(files.0.open(f.clone().into(), OpenMode::Read).await);
    invalid(files.0.metadata(f.clone().into(), Symlinks::Follow).await);
    invalid(files.0.canonicalize(f.clone().into()).await);
    invalid(files.0.read_directory(o.as_path().into()).await);
    invalid(files.0.walk(o.as_path().into(), WalkOptions::new()).await);
    assert_eq!(content(stage), before);
    Ok(())
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::Sandbox(SandboxError::Invalid { .. })), "{error:?}");
}

async fn a_later_file(stage: &Stage<'_>) -> Outcome {
    let (files, w) = (Files::under(stage), &stage.dirs.w);
    assert_eq!(files.read(w.join("f")).await.unwrap(), b"inside");
    std::fs::write(w.join("later.pem"), "secret").unwrap();
    let before = content(stage);
    denied(files.read(w.join("later.pem")).await);
    denied(files.0.open(w.join("later.pem").into(), OpenMode::Read).await);
    denied(files.copy(w.join("later.pem"), w.join("copied")).await);
    denied(files.write(w.join("other.pem"), "x").await);
    assert_eq!(content(stage), before);
    Ok(())
}

async fn nobody_else(stage: &Stage<'_>) -> Outcome {
    let (files, free, s, o) = (Files::under(stage), Files::free(stage), &stage.dirs.s, &stage.dirs.o);
    // While calls are restricted, and after them.
    for _ in 0..20 {
        let (restricted, unrestricted) = tokio::join!(files.read(s.join("f")), free.read(s.join("f")));
        denied(restricted);
        assert_eq!(unrestricted.unwrap(), b"secret");
    }
    read_only(files.write(o.join("f"), "x").await);
    free.write(o.join("f"), "free").await.unwrap();
    stage.freely("cat $S/f && echo free >$O/f && echo x >$O/by-a-process").await?;
    let (file, other) = (o.join("f"), o.join("by-a-thread"));
    let by_thread = std::thread::spawn(move || std::fs::write(file, "free").and_then(|()| std::fs::write(other, "x")));
    by_thread.join().unwrap().map_err(|error| error.to_string())
}
