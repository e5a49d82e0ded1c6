//! `longarm exec`, in every place.

use std::io::Write as _;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{PROGRAM, Place, Running, eventually, is_alive, run, signal};

#[test]
fn the_exit_code_is_the_commands() {
    for place in Place::all() {
        for code in [0, 1, 3, 124, 125, 255] {
            let outcome = place.run(&["--", "sh", "-c", &format!("echo hi; exit {code}")]);
            assert_eq!((outcome.code(), outcome.text()), (code, "hi\n"), "{}", place.name());
            assert!(outcome.stderr.is_empty(), "{outcome:?}");
        }
        for (signal, code) in [("KILL", 137), ("TERM", 143), ("USR1", 128 + 10)] {
            let outcome = place.run(&["--", "sh", "-c", &format!("kill -s {signal} $$")]);
            if cfg!(target_os = "linux") || signal != "USR1" {
                assert_eq!(outcome.code(), code, "{} {signal}", place.name());
            }
        }
    }
}

#[test]
fn bytes_of_both_streams_pass_unchanged() {
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    std::fs::write(&path, &all).unwrap();
    for place in Place::all() {
        let script = format!("cat '{0}'; cat '{0}' >&2", path.display());
        let outcome = place.run(&["--", "sh", "-c", &script]);
        assert_eq!(outcome.code(), 0);
        assert!(outcome.stdout == all && outcome.stderr == all, "{}", place.name());
    }
}

#[test]
fn standard_input_and_its_end_are_forwarded_on_demand() {
    let input: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for place in Place::all() {
        let outcome = run(place.exec().args(["-i", "--", "cat"]), &input);
        assert!(outcome.stdout == input, "{}: {} bytes", place.name(), outcome.stdout.len());
        let outcome = run(place.exec().args(["--", "cat"]), b"not for you");
        assert_eq!((outcome.code(), outcome.text()), (0, ""), "{}", place.name());
        // A command that does not read is no reason to wait or to fail.
        let outcome = run(place.exec().args(["-i", "--", "sh", "-c", "exec <&-; exit 4"]), &input);
        assert_eq!(outcome.code(), 4, "{}: {outcome:?}", place.name());
    }
}

#[test]
fn a_command_that_ends_while_input_is_open_ends_the_program() {
    for place in Place::all() {
        let mut running = Running::start(place.exec().args(["-i", "--", "sh", "-c", "exit 6"]));
        assert_eq!(running.finish().code(), 6, "{}", place.name());
    }
}

#[test]
fn the_time_limit_ends_the_command_with_124() {
    for place in Place::all() {
        let start = Instant::now();
        // The limit must not pass before the shell comes to its first line.
        for limit in [0.3, 1.2, 4.8, 19.2_f32] {
            let outcome = place.run(&["--timeout", &limit.to_string(), "--", "sh", "-c", "echo begun; sleep 600"]);
            assert_eq!(outcome.code(), 124, "{}: {outcome:?}", place.name());
            assert!(outcome.reason().contains("time limit"), "{outcome:?}");
            if !outcome.stdout.is_empty() || limit > 10.0 {
                assert_eq!(outcome.text(), "begun\n", "{}", place.name());
                break;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(600));
        assert_eq!(place.run(&["--timeout", "600", "--", "true"]).code(), 0);
    }
}

#[test]
fn failures_of_longarm_itself_are_125_with_one_line_that_names_the_thing() {
    for place in Place::all() {
        for (args, text) in [
            (&["--", "/no/such/program"][..], "/no/such/program"),
            (&["--", "no-such-program-anywhere"], "no-such-program-anywhere"),
            (&["--cwd", "/no/such/dir", "--", "true"], "/no/such/dir"),
            (&["--cwd", "relative", "--", "true"], "relative"),
            (&["--env", "novalue", "--", "true"], "novalue"),
            (&["--env", "=x", "--", "true"], "environment variable name"),
            (&["--timeout", "soon", "--", "true"], "soon"),
            (&["--no-such-flag", "--", "true"], "--no-such-flag"),
            (&["--", ""], "argv[0]"),
            (&[], "required"),
        ] {
            let outcome = place.run(args);
            assert_eq!(outcome.code(), 125, "{} {args:?}: {outcome:?}", place.name());
            assert!(outcome.reason().contains(text), "{} {args:?}: {outcome:?}", place.name());
        }
    }
}

#[test]
fn places_that_cannot_be_reached_are_125_with_a_reason() {
    // Bound, so that nobody else gets the address, and not listening.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("ws://{}", nobody.local_addr().unwrap());
    for (args, text) in [
        (&["--connect", &url][..], url.as_str()),
        (&["--connect", "wss://127.0.0.1:1"], "wss"),
        (&["--connect", "nonsense"], "invalid address"),
        (&["--connect", &url, "--stdio", "x"], "cannot be used with"),
        (&["--auth-token-file", "/x"], "--connect"),
        (&["--connect", &url, "--auth-token-file", "/no/such/file"], "/no/such/file"),
        (&["--stdio", "echo oops >&2; exit 9"], "oops"),
        (&["--stdio", "head -c 1 >/dev/null"], "closed"),
        (&["--stdio", "echo not JSON; cat >/dev/null"], "malformed"),
    ] {
        let outcome = run(Command::new(PROGRAM).arg("exec").args(args).args(["--", "true"]), b"");
        assert_eq!(outcome.code(), 125, "{args:?}: {outcome:?}");
        assert!(outcome.reason().contains(text), "{args:?}: {outcome:?}");
    }
}

#[test]
fn environment_and_directory_are_as_asked_for() {
    for place in Place::all() {
        let name = place.name();
        let args = ["--env-inherit", "none", "--env", "A=1", "--env", "B=x=y", "--cwd", "/", "--", "/usr/bin/env"];
        let outcome = place.run(&args);
        let mut lines: Vec<&str> = outcome.text().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["A=1", "B=x=y"], "{name}");
        assert_eq!(place.run(&["--cwd", "/", "--", "pwd"]).text(), "/\n", "{name}");
        let here = std::env::current_dir().unwrap();
        assert_eq!(place.run(&["--", "pwd", "-P"]).text().trim_end(), here.canonicalize().unwrap().to_str().unwrap());
        let outcome = place.run(&["--env-inherit", "core", "--", "sh", "-c", "echo ${CARGO_MANIFEST_DIR-unset}:$PATH"]);
        assert_eq!(outcome.text().trim_end(), format!("unset:{}", std::env::var("PATH").unwrap()), "{name}");
    }
}

#[test]
fn events_come_as_lines_of_json() {
    for place in Place::all() {
        let outcome = place.run(&["--json", "--", "sh", "-c", "echo out; printf '\\377' >&2; kill -9 $$"]);
        assert_eq!(outcome.code(), 137);
        let events: Vec<serde_json::Value> =
            outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
        assert!(events[0]["event"] == "started" && !events[0]["processId"].as_str().unwrap().is_empty());
        assert!(of("output").iter().any(|event| event["stream"] == "stdout" && event["text"] == "out\n"), "{events:?}");
        assert!(
            of("output").iter().any(|event| event["stream"] == "stderr" && event["base64"] == "/w=="),
            "{events:?}"
        );
        assert_eq!((&of("exited")[0]["exitCode"], &of("exited")[0]["signal"]), (&137.into(), &"SIGKILL".into()));
        assert_eq!(of("closed")[0]["totalBytes"]["stdout"], 4, "{}", place.name());
        assert_eq!(events.last().unwrap()["event"], "closed");
    }
}

#[test]
fn ctrl_c_is_an_interrupt_that_the_command_may_handle() {
    for place in Place::all() {
        let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
        let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
        assert_eq!(running.line(), "ready");
        running.signal("INT");
        let outcome = running.finish();
        assert_eq!((outcome.code(), outcome.text()), (9, "caught\n"), "{}: {outcome:?}", place.name());
        let mut running = Running::start(place.exec().args(["--", "sh", "-c", "echo ready; exec sleep 600"]));
        assert_eq!(running.line(), "ready");
        running.signal("INT");
        assert_eq!(running.finish().code(), 130, "{}", place.name());
    }
}

#[test]
fn a_second_ctrl_c_terminates_and_a_third_kills() {
    for place in Place::all() {
        // It has a grace of two seconds, and may have to wait for its turn for longer than that.
        let ends_by_itself = |_| {
            let script = "trap 'echo int' INT; trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
            let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
            assert_eq!(running.line(), "ready");
            interrupt_until_terminated(&mut running);
            let outcome = running.finish();
            assert_eq!(outcome.text(), "", "{}: {outcome:?}", place.name());
            assert!(matches!(outcome.code(), 7 | 137), "{}: {outcome:?}", place.name());
            outcome.code() == 7
        };
        assert!((0..5).any(ends_by_itself), "{}", place.name());

        // After its grace of two seconds it would be killed, too: the third one must be what kills it.
        let killed_at_once = |_| {
            let script = "trap 'echo int' INT; trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done";
            let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
            assert_eq!(running.line(), "ready");
            interrupt_until_terminated(&mut running);
            let start = Instant::now();
            running.signal("INT");
            assert_eq!(running.finish().code(), 137, "{}", place.name());
            start.elapsed() < Duration::from_millis(1_500)
        };
        assert!((0..5).any(killed_at_once), "{}", place.name());
    }
}

/// The first one interrupts, and so does each that comes too late to be a second one.
fn interrupt_until_terminated(running: &mut Running) {
    running.signal("INT");
    assert_eq!(running.line(), "int");
    for _ in 0..10 {
        running.signal("INT");
        match running.line().as_str() {
            "term" => return,
            line => assert_eq!(line, "int"),
        }
    }
    panic!("no second interrupt was in time");
}

/// The program, started with this signal ignored.
fn ignoring(signal: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' $0; exec \"$@\"", signal]).arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_so() {
    for name in ["HUP", "INT", "QUIT"] {
        let script = "echo ready; read line; echo $line; exit 5";
        let mut running =
            Running::start(&mut ignoring(name, Place::Local.exec().args(["-i", "--", "sh", "-c", script])));
        assert_eq!(running.line(), "ready");
        running.signal(name);
        writeln!(running.stdin.take().unwrap(), "it goes on").unwrap();
        let outcome = running.finish();
        assert_eq!((outcome.code(), outcome.text()), (5, "it goes on\n"), "{name}: {outcome:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_has_come_is_written_when_the_server_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    // What the server says is written down on its way.
    let server = format!(
        "cd '{}'; mkfifo said; tee passed <said & echo $! >tee; echo $$ >server; exec '{PROGRAM}' serve --listen stdio >said",
        dir.path().display()
    );
    let script = "head -c 600000 /dev/zero; exec sleep 600";
    let mut running =
        Running::start(Command::new(PROGRAM).args(["exec", "--stdio", &server, "--", "sh", "-c", script]));
    eventually("all comes", || passed_output(dir.path()) == 600_000 && is_read(&number_in(dir.path(), "tee")));
    signal(number_in(dir.path(), "server").parse().unwrap(), "KILL");
    // Nobody reads until a program that does not wait for that would have ended.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) && !running.has_ended() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let outcome = running.finish();
    assert_eq!((outcome.code(), outcome.stdout.len()), (125, 600_000), "{:?}", outcome.stderr);
}

#[cfg(target_os = "linux")]
fn number_in(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap().trim().to_owned()
}

/// How many bytes of output are in the whole messages that have passed.
#[cfg(target_os = "linux")]
fn passed_output(dir: &Path) -> usize {
    let passed = std::fs::read_to_string(dir.join("passed")).unwrap_or_default();
    let messages = passed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let chunks = messages.filter_map(|message| message["params"]["chunk"].as_str().map(str::to_owned));
    chunks.map(|chunk| chunk.len() / 4 * 3 - chunk.bytes().rev().take_while(|byte| *byte == b'=').count()).sum()
}

/// Whether nothing waits in the pipe to which this process writes.
#[cfg(target_os = "linux")]
fn is_read(pid: &str) -> bool {
    use std::os::fd::AsRawFd as _;

    let pipe = std::fs::File::open(format!("/proc/{pid}/fd/1")).unwrap();
    let mut waiting: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the request writes an integer.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut waiting) }, 0);
    waiting == 0
}

#[test]
fn a_request_to_end_is_passed_on() {
    for place in Place::all() {
        for name in ["TERM", "HUP"] {
            let script = "trap 'echo term; exit 8' TERM; echo ready; while :; do sleep 0.05; done";
            let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
            assert_eq!(running.line(), "ready");
            running.signal(name);
            let outcome = running.finish();
            assert_eq!((outcome.code(), outcome.text()), (8, "term\n"), "{} {name}: {outcome:?}", place.name());
        }
    }
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    for place in Place::all() {
        let mut running = Running::start(place.exec().args(["--", "sh", "-c", "echo $$; exec yes"]));
        let pid = running.line();
        assert_eq!(running.line(), "y");
        running.close_stdout();
        let outcome = running.finish();
        assert_eq!((outcome.code(), outcome.stderr.as_slice()), (141, &b""[..]), "{}", place.name());
        eventually("the end of the command", || !is_alive(&pid));
    }
}

/// A server without extensions: sends 30 pieces of 20,481 bytes, and the response to the start or the first piece after them.
const LATE: &str = r#"
late=$1
piece=$(head -c 27308 /dev/zero | tr '\0' A)
output() {
  printf '{"method":"process/output","params":{"processId":"%s","seq":%s,"stream":"stdout","chunk":"%s"}}\n' \
    "$process" "$1" "$piece"
}
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^[^[]*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) echo "{\"id\":$id,\"result\":{\"sessionId\":\"s\"}}" ;;
  *'"process/start"'*)
    process=$(printf %s "$line" | sed 's/.*"processId":"\([^"]*\)".*/\1/')
    response="{\"id\":$id,\"result\":{\"processId\":\"$process\"}}"
    [ "$late" = response ] || { echo "$response"; }
    seq=1
    [ "$late" = first ] && seq=2
    while [ $seq -le 30 ]; do
      output $seq
      seq=$((seq + 1))
    done
    [ "$late" = first ] && output 1
    [ "$late" = response ] && echo "$response"
    printf '{"method":"process/exited","params":{"processId":"%s","seq":31,"exitCode":6}}\n' "$process"
    printf '{"method":"process/closed","params":{"processId":"%s","seq":32}}\n' "$process"
    ;;
  *'"id":'*) echo "{\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}" ;;
  esac
done
"#;

#[test]
fn what_is_waited_for_may_stand_behind_much_output() {
    let dir = tempfile::tempdir().unwrap();
    let server = dir.path().join("server");
    std::fs::write(&server, LATE).unwrap();
    for late in ["nothing", "response", "first"] {
        let server = format!("sh '{}' {late}", server.display());
        let outcome = run(Command::new(PROGRAM).args(["exec", "--stdio", &server, "--cwd", "/", "--", "x"]), b"");
        let zeros = outcome.stdout.iter().all(|byte| *byte == 0);
        assert_eq!(
            (outcome.code(), outcome.stdout.len(), zeros),
            (6, 30 * 20_481, true),
            "{late}: {:?}",
            outcome.stderr
        );
    }
}

#[test]
fn a_slow_reader_gets_everything() {
    let places = Place::all();
    let script = "i=0; while [ $i -lt 200000 ]; do echo line-$i; i=$((i+1)); done; exit 5";
    let start = |place: &Place| Running::start(place.exec().args(["--", "sh", "-c", script]));
    let mut all: Vec<_> = places.iter().map(start).collect();
    for running in &mut all {
        assert_eq!(running.line(), "line-0");
    }
    // Longer than the silence after which open streams are given up: what is tested is that time alone changes nothing.
    std::thread::sleep(Duration::from_millis(2_500));
    for (place, mut running) in places.iter().zip(all) {
        let outcome = running.finish();
        assert_eq!(outcome.code(), 5, "{}", place.name());
        let expected: String = (1..200_000).map(|index| format!("line-{index}\n")).collect();
        assert!(outcome.text() == expected, "{}: {} bytes", place.name(), outcome.stdout.len());
    }
}

#[test]
fn what_a_command_leaves_behind_does_not_keep_the_program_and_lives_on() {
    // A server that is launched for one command ends with it, and so does all that ran there.
    for place in Place::all().into_iter().filter(|place| !matches!(place, Place::Stdio)) {
        let outcome = place.run(&["--", "sh", "-c", "sleep 300 & echo $!; exit 2"]);
        assert_eq!(outcome.code(), 2, "{}: {outcome:?}", place.name());
        let pid = outcome.text().trim_end();
        assert!(is_alive(pid), "{}", place.name());
        signal(pid.parse().unwrap(), "KILL");
    }
}

#[test]
fn what_a_command_leaves_behind_may_go_on_writing() {
    for place in Place::all() {
        for left in ["while :; do echo x; sleep 0.4; done", "exec yes"] {
            let outcome = place.run(&["--", "sh", "-c", &format!("({left}) & exit 2")]);
            assert_eq!(outcome.code(), 2, "{} {left}: {outcome:?}", place.name());
        }
    }
}
