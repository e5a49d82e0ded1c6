//! `longarm serve`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use crate::support::{PROGRAM, Place, Running, Server, eventually, is_alive, run, signal};

#[test]
fn it_answers_the_health_check_and_ends_well_when_asked_to() {
    for name in ["TERM", "INT"] {
        let mut server = Server::start();
        let mut stream = TcpStream::connect(server.url.strip_prefix("ws://").unwrap()).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        server.running.signal(name);
        let outcome = server.running.finish();
        assert_eq!((outcome.code(), outcome.text(), outcome.stderr.as_slice()), (0, "", &b""[..]), "{name}");
    }
}

#[test]
fn addresses_that_make_no_sense_or_are_too_open_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let empty = empty.to_str().unwrap();
    for (args, text) in [
        (&["--listen", "ws://0.0.0.0:0"][..], "--auth-token-file"),
        (&["--listen", "ws://[::]:0"], "--auth-token-file"),
        (&["--listen", "ws://localhost:0"], "literal IP"),
        (&["--listen", "127.0.0.1:0"], "ws://IP:PORT"),
        (&["--listen", "stdio", "--auth-token-file", "/x"], "no meaning"),
        (&["--auth-token-file", "/no/such/file"], "/no/such/file"),
        (&["--auth-token-file", empty], "empty"),
    ] {
        let outcome = run(Command::new(PROGRAM).arg("serve").args(args), b"");
        assert_eq!((outcome.code(), outcome.text()), (1, ""), "{args:?}");
        assert!(outcome.reason().contains(text), "{args:?}: {outcome:?}");
    }
    assert_eq!(run(Command::new(PROGRAM).args(["serve", "--nonsense"]), b"").code(), 2);
}

#[test]
fn a_token_is_asked_for_and_opens_the_door() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (write("right", "s3cret\n"), write("wrong", "guess\n"));
    let server = Server::start_with(&["--auth-token-file", &right]);
    let exec = |args: &[&str]| {
        run(Command::new(PROGRAM).args(["exec", "--connect", &server.url]).args(args).args(["--", "echo", "in"]), b"")
    };
    assert_eq!(exec(&["--auth-token-file", &right]).text(), "in\n");
    let outcome = exec(&[]);
    assert!(outcome.code() == 125 && outcome.reason().contains("401"), "{outcome:?}");
    let outcome = exec(&["--auth-token-file", &wrong]);
    assert!(outcome.code() == 125 && outcome.reason().contains("invalid websocket bearer token"), "{outcome:?}");
}

/// The ids of a process and of a child of it, in a command that runs until it is ended.
fn start_family(place: &Place) -> (Running, [String; 2]) {
    let script = "sleep 600 & echo $$; echo $!; wait";
    let mut client = Running::start(place.exec().args(["--", "sh", "-c", script]));
    let pids = [client.line(), client.line()];
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    (client, pids)
}

#[test]
fn its_end_is_the_end_of_its_processes() {
    for name in ["TERM", "INT"] {
        let place = Place::Connect(Server::start());
        let (mut client, pids) = start_family(&place);
        let Place::Connect(mut server) = place else { unreachable!() };
        server.running.signal(name);
        assert_eq!(server.running.finish().code(), 0);
        eventually("the end of the processes", || pids.iter().all(|pid| !is_alive(pid)));
        client.finish();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn when_it_is_killed_its_processes_end_too() {
    let place = Place::Connect(Server::start());
    let (mut client, pids) = start_family(&place);
    let Place::Connect(server) = place else { unreachable!() };
    server.running.signal("KILL");
    // What a killed server can promise concerns the processes that it started itself.
    eventually("the end of the command", || !is_alive(&pids[0]));
    let outcome = client.finish();
    assert!(outcome.code() == 125 && outcome.reason().contains("disconnected"), "{outcome:?}");
    if is_alive(&pids[1]) {
        signal(pids[1].parse().unwrap(), "KILL");
    }
}

#[test]
fn a_client_that_vanishes_over_stdio_takes_the_server_and_its_processes_along() {
    let (client, pids) = start_family(&Place::Stdio);
    client.signal("KILL");
    eventually("the end of the processes", || pids.iter().all(|pid| !is_alive(pid)));
}

#[test]
fn stdio_speaks_one_message_a_line_and_nothing_else() {
    let mut server = Running::start(Command::new(PROGRAM).args(["serve", "--listen", "stdio"]));
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(b"\r\n  \n{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientName\":\"t\"}}\r\n").unwrap();
    let answer: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
    assert!(answer["id"] == 1 && answer["result"]["sessionId"].is_string(), "{answer}");
    stdin.write_all(b"{\"method\":\"initialized\"}\nnot JSON\n").unwrap();
    let answer: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&(-1).into(), &(-32600).into()), "{answer}");
    drop(stdin);
    let outcome = server.finish();
    assert_eq!((outcome.code(), outcome.text(), outcome.stderr.as_slice()), (0, "", &b""[..]));
}

#[test]
fn stdio_ends_after_a_violation_and_on_sigterm_while_input_is_open() {
    let start = || Running::start(Command::new(PROGRAM).args(["serve", "--listen", "stdio"]));
    let mut server = start();
    server.stdin.as_mut().unwrap().write_all(b"\xff\xfe\n").unwrap();
    let outcome = server.finish();
    assert_eq!((outcome.code(), outcome.text()), (0, ""));
    assert!(outcome.reason().contains("UTF-8"), "{outcome:?}");

    let mut server = start();
    server.stdin.as_mut().unwrap().write_all(b"{\"method\":\"nonsense\"}\n").unwrap();
    assert_eq!(server.finish().code(), 0);

    let mut server = start();
    server.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
    assert!(server.line().contains("-32600"), "it has started");
    server.signal("TERM");
    assert_eq!(server.finish().code(), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn children_get_the_limit_of_descriptors_that_the_server_was_started_with() {
    let script = format!("ulimit -Sn 200; ulimit -Hn 300; exec '{PROGRAM}' serve");
    let server = Server::from_command(Command::new("sh").args(["-c", &script]));
    let limits = std::fs::File::open(format!("/proc/{}/limits", server.running.id())).unwrap();
    let line = BufReader::new(limits).lines().map(Result::unwrap).find(|line| line.starts_with("Max open files"));
    let words: Vec<String> = line.unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[3..5], ["300", "300"], "the server uses all it may");
    let outcome = Place::Connect(server).run(&["--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]);
    assert_eq!(outcome.text(), "200\n300\n");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for attempt in 0.. {
        let mut server = Server::start();
        // Asked to end with the server, the command sends the second signal instead.
        let script = "trap 'kill -TERM $PPID' TERM; echo ready; while :; do sleep 0.05; done";
        let mut client =
            Running::start(Command::new(PROGRAM).args(["exec", "--connect", &server.url, "--", "sh", "-c", script]));
        assert_eq!(client.line(), "ready");
        server.running.signal("TERM");
        let outcome = server.running.finish();
        client.finish();
        // The command has only so long to send it.
        if outcome.code() == 0 && attempt < 5 {
            continue;
        }
        assert_eq!(outcome.code(), 1);
        assert!(outcome.reason().contains("second signal"), "{outcome:?}");
        return;
    }
}

#[test]
fn it_works_on_when_its_own_directory_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let doomed = dir.path().join("doomed");
    std::fs::create_dir(&doomed).unwrap();
    let server = Server::from_command(Command::new(PROGRAM).arg("serve").current_dir(&doomed));
    std::fs::remove_dir(&doomed).unwrap();
    let exec = |args: &[&str]| run(Command::new(PROGRAM).args(["exec", "--connect", &server.url]).args(args), b"");
    let outcome = exec(&["--cwd", "/", "--", "pwd"]);
    assert_eq!((outcome.code(), outcome.text()), (0, "/\n"), "{outcome:?}");
    // A command without a directory of its own starts in that of the server.
    let outcome = exec(&["--", "pwd"]);
    assert_eq!(outcome.code(), 125, "{outcome:?}");
    assert!(outcome.reason().contains("doomed") && outcome.reason().contains("does not exist"), "{outcome:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_contained_command_ends_with_its_daemons() {
    use crate::needs::Need;
    use crate::support::someone_is_called;

    if !Need::Cgroup.is_met() && !Need::PidNamespace.is_met() {
        return;
    }
    for place in Place::all() {
        // In a namespace of its own its number says nothing outside: it is known by its command line.
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().to_str().unwrap();
        let daemon = format!("touch {mark}/up; sleep 300; : {mark}");
        let script = "setsid sh -c \"$1\" >/dev/null 2>&1 & until test -e \"$2/up\"; do sleep 0.01; done; exit 3";
        let argv = ["--contain", "--env-inherit", "all", "--", "sh", "-c", script, "sh", &daemon, mark];
        let outcome = place.run(&argv);
        assert_eq!(outcome.code(), 3, "{}: {outcome:?}", place.name());
        eventually("the end of the daemon", || !someone_is_called(mark));
    }
}

#[test]
fn its_counts_can_be_lowered() {
    let server = Server::start_with(&["--max-sessions", "1", "--max-processes", "1"]);
    let exec = |argv: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["exec", "--connect", &server.url, "-i", "--"]).args(argv);
        command
    };
    let mut first = Running::start(&mut exec(&["sh", "-c", "echo in; exec cat"]));
    assert_eq!(first.line(), "in");
    let refused = run(&mut exec(&["true"]), b"");
    assert_eq!(refused.code(), 125, "{refused:?}");
    first.stdin = None;
    assert_eq!(first.finish().code(), 0);
}
