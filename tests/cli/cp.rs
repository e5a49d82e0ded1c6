//! `longarm cp`, between here and every place.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use longarm::TerminalSize;

use crate::reference::reference;
use crate::support::{Outcome, PROGRAM, Place, Running, Server, eventually, run};
use crate::terminal::OnTerminal;

/// The server runs on this machine, so that a path in the place is one here, with a colon.
fn there(path: impl AsRef<Path>) -> String {
    format!(":{}", path.as_ref().display())
}

fn here(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

fn cp(place: &Place, args: &[&str]) -> Outcome {
    run(place.cp().args(args), b"")
}

#[track_caller]
fn succeeds(place: &Place, args: &[&str]) -> Outcome {
    let outcome = cp(place, args);
    assert_eq!((outcome.code(), outcome.text()), (0, ""), "{} {args:?}: {outcome:?}", place.name());
    outcome
}

#[track_caller]
fn fails(place: &Place, args: &[&str], text: &str) {
    let outcome = cp(place, args);
    assert_eq!(outcome.code(), 1, "{} {args:?}: {outcome:?}", place.name());
    assert!(outcome.reason().contains(text), "{} {args:?}: {outcome:?}", place.name());
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

/// Ours and, if it is here, the reference's.
fn places() -> (Vec<Place>, Option<tempfile::TempDir>) {
    let mut places = Vec::from(Place::all());
    let (reference, home) = reference().unzip();
    places.extend(reference);
    (places, home)
}

#[test]
fn files_of_any_size_go_there_and_come_back() {
    let (places, _home) = places();
    for place in &places {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for length in [0, 1, 1 << 20, (1 << 20) + 1, 5_000_000] {
            fs::write(at("from"), pattern(length)).unwrap();
            succeeds(place, &[&here(at("from")), &there(at("to"))]);
            assert!(fs::read(at("to")).unwrap() == pattern(length), "{} {length} there", place.name());
            succeeds(place, &[&there(at("to")), &here(at("back"))]);
            assert!(fs::read(at("back")).unwrap() == pattern(length), "{} {length} back", place.name());
        }
        fs::create_dir(at("dir")).unwrap();
        succeeds(place, &[&here(at("from")), &here(at("back")), &there(at("dir/"))]);
        assert_eq!(fs::read(at("dir/from")).unwrap(), fs::read(at("dir/back")).unwrap());
        succeeds(place, &[&there(at("dir/from")), &there(at("dir/beside"))]);
        assert_eq!(fs::read(at("dir/from")).unwrap(), fs::read(at("dir/beside")).unwrap());
    }
}

#[test]
fn relative_paths_are_those_of_each_side() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("a/file"), "content").unwrap();
    // The server is a child, in the same directory.
    let outcome = run(Place::Stdio.cp().args(["a/../a/file", ":a/b"]).current_dir(dir.path()), b"");
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    let outcome = run(Place::Stdio.cp().args([":a/b", "./:odd"]).current_dir(dir.path()), b"");
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    assert_eq!(fs::read(dir.path().join(":odd")).unwrap(), b"content");
}

/// What is in a tree, by its path.
fn contents(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut unread = vec![root.to_owned()];
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let content = if path.is_dir() { None } else { Some(fs::read(&path).unwrap()) };
            if content.is_none() {
                unread.push(path.clone());
            }
            found.push((path.strip_prefix(root).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn directories_go_with_all_that_is_in_them_but_links_and_special_files() {
    for place in Place::all() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("from/sub/empty")).unwrap();
        for index in 0..100 {
            fs::write(at(&format!("from/sub/{index}")), pattern(index * 20)).unwrap();
        }
        fs::write(at("from/large"), pattern(3_000_000)).unwrap();
        fs::write(at("from/ tab\t%"), "odd").unwrap();
        fs::write(at("from").join(OsStr::from_bytes(b"\xff\xfe")), "no Unicode").unwrap();
        let expected = contents(&at("from"));
        symlink("..", at("from/sub/loop")).unwrap();
        symlink("/etc/passwd", at("from/out")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at("from/socket")).unwrap();

        for (from, to) in [(here(at("from")), there(at("to"))), (there(at("to")), here(at("back")))] {
            let outcome = succeeds(&place, &[&from, &to]);
            let told = String::from_utf8(outcome.stderr).unwrap();
            for name in ["sub/loop: it is a link", "from/out: it is a link", "from/socket: it is neither"] {
                assert_eq!(told.contains(name), to.starts_with(':'), "{} {name}: {told}", place.name());
            }
        }
        assert!(contents(&at("to")) == expected && contents(&at("back")) == expected, "{}", place.name());
        // Into a directory that exists, under its own name; and over what is there.
        succeeds(&place, &[&here(at("back")), &there(at("to"))]);
        succeeds(&place, &[&here(at("back")), &there(at("to"))]);
        assert!(contents(&at("to/back")) == expected, "{}", place.name());
        drop(socket);
    }
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_is_copied() {
    for place in Place::all() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "content").unwrap();
        fails(&place, &[&here(at("missing")), &there(at("to"))], "missing");
        fails(&place, &[&there(at("missing")), &here(at("to"))], "missing");
        fails(&place, &[&here(at("file")), &there(at("no/to"))], "no/to");
        fails(&place, &[&here(at("file")), &there(at("to/"))], "is not a directory");
        fails(&place, &[&here(at("file")), &here(at("file")), &there(at("to"))], "is not a directory");
        fails(&place, &["/dev/null", &there(at("to"))], "/dev/null");
        fails(&place, &[&there(at("file")), &there(at("file"))], "already exists");
        fails(&place, &[":", &here(at("to"))], "colon");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{}", place.name());

        fs::create_dir_all(at("from/a")).unwrap();
        fs::create_dir_all(at("to/from/b")).unwrap();
        fs::write(at("from/a/file"), "content").unwrap();
        fs::write(at("from/b"), "a directory is in its way").unwrap();
        fails(&place, &[&here(at("from")), &there(at("to"))], "to/from/b");
        assert_eq!(fs::read(at("to/from/a/file")).unwrap(), b"content");
        fails(&place, &[&here(at("missing")), &here(at("file")), &there(at("to"))], "missing");
        assert_eq!(fs::read(at("to/file")).unwrap(), b"content");
    }
}

#[test]
fn what_a_server_cannot_name_is_a_failure() {
    let Some((place, _home)) = reference() else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("from").join(OsStr::from_bytes(b"odd\xff")), "odd").unwrap();
    fs::write(at("from/\u{fffd}"), "this is its name").unwrap();
    fails(&place, &[&there(at("from")), &here(at("to"))], "its name is not Unicode");
    assert_eq!(contents(&at("to")), [("\u{fffd}".into(), Some(b"this is its name".to_vec()))]);
}

#[test]
fn wrong_arguments_are_a_usage_error() {
    for args in [&["a"][..], &[], &["--no-such-flag", "a", ":b"]] {
        let outcome = run(Command::new(PROGRAM).arg("cp").args(args), b"");
        assert_eq!(outcome.code(), 2, "{outcome:?}");
    }
    let outcome = run(Command::new(PROGRAM).args(["cp", "--connect", "ws://127.0.0.1:1", "a", ":b"]), b"");
    assert!(outcome.code() == 1 && outcome.reason().contains("ws://127.0.0.1:1"), "{outcome:?}");
}

/// Bytes of the interrupted copies. What is kept of them ends a megabyte earlier, if it does not agree.
const KEPT: usize = 4 << 20;

/// Makes the beginning of `to` differ from that of `from`, which shows whether it was copied again.
fn interrupted(from: &Path, to: &Path, length: usize) {
    let mut content = fs::read(from).unwrap();
    content.truncate(length);
    content[0] ^= 0xFF;
    fs::write(to, content).unwrap();
}

fn is_kept(from: &Path, to: &Path) -> bool {
    let (from, to) = (fs::read(from).unwrap(), fs::read(to).unwrap());
    assert!(from[1..] == to[1..], "the rest is copied");
    from[0] != to[0]
}

#[test]
fn a_copy_goes_on_where_it_was_interrupted() {
    let (places, _home) = places();
    for place in &places {
        let plain = place.name() == "connect" && places.iter().position(|other| std::ptr::eq(other, place)) == Some(3);
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, pattern(KEPT + 3_000_000)).unwrap();
        for (source, destination, goes_on) in [(there(&from), here(&to), true), (here(&from), there(&to), !plain)] {
            let resume = |length| {
                interrupted(&from, &to, length);
                succeeds(place, &["--resume", &source, &destination]);
                is_kept(&from, &to)
            };
            assert_eq!(resume(KEPT), goes_on, "{} {source}", place.name());
            assert!(resume(KEPT + 3_000_000), "it was complete");
            // A hole where several blocks were under way.
            interrupted(&from, &to, KEPT);
            let hole = fs::OpenOptions::new().write(true).open(&to).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&hole, &[0; 1000], KEPT as u64 - 1_000_000).unwrap();
            succeeds(place, &["--resume", &source, &destination]);
            assert_eq!(is_kept(&from, &to), goes_on, "{} {source}", place.name());
            // Another file.
            fs::write(&to, vec![7; KEPT]).unwrap();
            succeeds(place, &["--resume", &source, &destination]);
            assert!(!is_kept(&from, &to), "{} {source}", place.name());
            interrupted(&from, &to, KEPT);
            succeeds(place, &[&source, &destination]);
            assert!(!is_kept(&from, &to), "without the option all is copied");
        }
    }
}

#[test]
fn a_file_that_is_copied_onto_itself_keeps_what_it_has() {
    let (places, _home) = places();
    for place in &places {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let content = pattern(3_000_000);
        fs::write(at("file"), &content).unwrap();
        symlink(at("file"), at("link")).unwrap();
        fs::hard_link(at("file"), at("other-name")).unwrap();
        for (from, to) in [("file", "file"), ("file", "link"), ("link", "file"), ("file", "other-name")] {
            let is_reference = _home.is_some() && std::ptr::eq(place, places.last().unwrap());
            if is_reference && to == "other-name" {
                // It tells no time of creation, so that nothing tells that both are one, and has one way to write.
                continue;
            }
            for (from, to) in [(here(at(from)), there(at(to))), (there(at(from)), here(at(to)))] {
                // It may be told from another one, which is a failure, or be written over with what it has.
                let outcome = cp(place, &[&from, &to]);
                assert!(fs::read(at("file")).unwrap() == content, "{} {from} {to}: {outcome:?}", place.name());
                if matches!(place, Place::Local) && !to.ends_with("other-name") {
                    assert_eq!(outcome.code(), 1, "{from} {to}");
                    assert!(outcome.reason().contains("exists"), "{outcome:?}");
                }
            }
        }
    }
}

#[test]
fn a_source_that_becomes_shorter_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let source = fs::File::create(&from).unwrap();
    source.set_len(1 << 40).unwrap();
    for place in Place::all() {
        let mut running = Running::start(&mut bounded(place.cp().args([there(&from), here(&to)])));
        eventually("the copy begins", || fs::metadata(&to).is_ok_and(|to| to.len() > 0));
        source.set_len(1 << 20).unwrap();
        let outcome = running.finish();
        assert_eq!(outcome.code(), 1, "{}: {outcome:?}", place.name());
        assert!(outcome.reason().contains("shorter"), "{outcome:?}");
        source.set_len(1 << 40).unwrap();
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn two_sources_never_become_one_file() {
    for place in Place::all() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for size in [10, 3_000_000] {
            for name in ["one", "two", "to"] {
                fs::create_dir_all(at(name).join("tree")).unwrap();
            }
            for name in ["one", "two"] {
                fs::write(at(name).join("data"), vec![name.as_bytes()[0]; size]).unwrap();
                fs::write(at(name).join("tree/data"), vec![name.as_bytes()[0]; size]).unwrap();
            }
            let one = vec![b'o'; size];
            for (sources, copied) in [(["one/data", "two/data"], "to/data"), (["one/tree", "two/tree"], "to/tree/data")]
            {
                fails(&place, &[&here(at(sources[0])), &here(at(sources[1])), &there(at("to"))], "data goes there");
                assert!(fs::read(at(copied)).unwrap() == one, "{} {copied}: the first one", place.name());
            }
            let sources = [there(at("one/data")), there(at("two/data"))];
            fails(&place, &[&sources[0], &sources[1], &there(at("to"))], "data goes there");
            assert!(fs::read(at("to/data")).unwrap() == one, "{}", place.name());
        }
    }
}

/// The program where no file grows beyond 1 GiB, lest a copy without end fills the disk.
fn bounded(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 2097152; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn a_lost_connection_is_a_failure_after_which_the_copy_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // It has no end, so that the server is killed before that.
    let source = fs::File::create(&from).unwrap();
    source.set_len(1 << 40).unwrap();
    let server = Server::start();
    let args = ["cp", "--connect", &server.url, &there(&from), &here(&to)];
    let mut running = Running::start(&mut bounded(Command::new(PROGRAM).args(args)));
    eventually("the copy begins", || fs::metadata(&to).is_ok_and(|to| to.len() > 2 << 20));
    drop(server);
    let outcome = running.finish();
    assert!(outcome.code() == 1 && outcome.reason().contains("from"), "{outcome:?}");
    let length = fs::metadata(&to).unwrap().len() + 3_000_000;
    source.set_len(length).unwrap();
    succeeds(&Place::Stdio, &["--resume", &there(&from), &here(&to)]);
    assert!(fs::metadata(&to).unwrap().len() == length);
}

#[test]
fn an_interrupt_ends_a_copy_with_130() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::File::create(&from).unwrap().set_len(1 << 40).unwrap();
    let to = dir.path().join("to");
    let mut running = Running::start(&mut bounded(Place::Stdio.cp().args([here(&from), there(&to)])));
    eventually("the copy begins", || fs::metadata(&to).is_ok_and(|to| to.len() > 0));
    running.signal("INT");
    assert_eq!(running.finish().code(), 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_on_a_terminal_unless_unwanted() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::write(&from, pattern(3 << 20)).unwrap();
    let server = format!("'{PROGRAM}' serve --listen stdio");
    for quiet in [false, true] {
        let to = there(dir.path().join("to"));
        let mut argv = vec![PROGRAM, "cp", "--stdio", &server, from.to_str().unwrap(), &to];
        if quiet {
            argv.push("--quiet");
        }
        let mut terminal = OnTerminal::start(&argv, TerminalSize { rows: 24, cols: 70 }).await;
        let shown = terminal.expect("[exit code 0]").await;
        assert_eq!(shown.contains("100%  3.0 MiB of 3.0 MiB"), !quiet, "{shown:?}");
        assert_eq!(shown.contains("[###"), !quiet, "{shown:?}");
    }
}
