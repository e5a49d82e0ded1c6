//! `-t`: the program itself on a terminal, which this library makes.

use std::time::Duration;

use longarm::{Environment, Event, ExecRequest, Process, TerminalSize};
use tokio::time::timeout;

use crate::support::{PROGRAM, Place};

/// A program on a terminal.
pub(crate) struct OnTerminal {
    process: Process,
    seen: String,
    _environment: Environment,
}

impl OnTerminal {
    pub(crate) async fn start(argv: &[&str], size: TerminalSize) -> Self {
        let environment = Environment::local();
        let process = environment.spawn(ExecRequest::new(argv).terminal(size)).await.unwrap();
        Self { process, seen: String::new(), _environment: environment }
    }

    /// Reads until `text` has come, and forgets what came up to its end.
    pub(crate) async fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let event = timeout(Duration::from_secs(60), self.process.next_event()).await;
            match event.unwrap_or_else(|_| panic!("{text:?} does not come: {:?}", self.seen)).unwrap() {
                Some(Event::Output(output)) => self.seen.push_str(&String::from_utf8_lossy(&output.bytes)),
                Some(Event::Exited(exited)) => self.seen.push_str(&format!("[{}]", exited.status)),
                Some(_) => {}
                None => panic!("{text:?} did not come: {:?}", self.seen),
            }
        }
    }

    async fn type_in(&self, text: &str) {
        self.process.write(text.to_owned()).await.unwrap();
    }
}

/// The arguments of `longarm exec` at `place`.
fn exec(place: &Place, args: &[&str]) -> Vec<String> {
    let mut argv = vec![PROGRAM.to_owned()];
    argv.extend(place.exec().get_args().map(|arg| arg.to_str().unwrap().to_owned()));
    argv.extend(args.iter().map(|arg| (*arg).to_owned()));
    argv
}

async fn start(place: &Place, args: &[&str]) -> OnTerminal {
    let argv = exec(place, args);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    OnTerminal::start(&argv, TerminalSize { rows: 33, cols: 99 }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_terminal_has_the_local_size_and_follows_it() {
    for place in Place::all() {
        let script = "trap 'stty size; echo resized' WINCH; stty size; echo ready; while :; do sleep 0.05; done";
        let mut terminal = start(&place, &["-it", "--", "sh", "-c", script]).await;
        assert!(terminal.expect("ready").await.contains("33 99"), "{}", place.name());
        terminal.process.resize(TerminalSize { rows: 44, cols: 111 }).await.unwrap();
        assert!(terminal.expect("resized").await.contains("44 111"), "{}", place.name());
        terminal.type_in("\u{3}").await;
        terminal.expect("[exit code 130]").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_reach_the_command_and_ctrl_c_is_a_byte() {
    for place in Place::all() {
        let script = "stty raw -echo; echo ready; head -c 4 | od -An -tx1; stty sane; exit 6";
        let mut terminal = start(&place, &["-it", "--", "sh", "-c", script]).await;
        terminal.expect("ready").await;
        terminal.type_in("a\u{3}\r\u{4}").await;
        assert!(terminal.expect("[exit code 6]").await.contains("61 03 0d 04"), "{}", place.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_terminal_is_as_before_after_every_end() {
    for (args, end) in [
        (&["-it", "--", "sh", "-c", "exit 3"][..], "[exit code 3]"),
        (&["-it", "--", "/no/such/program"], "[exit code 125]"),
        (&["-it", "--", "sh", "-c", "kill -9 $$"], "[exit code 137]"),
        (&["-it", "--timeout", "0.2", "--", "sleep", "600"], "[exit code 124]"),
        (&["-t", "--", "sh", "-c", "exit 3"], "[exit code 3]"),
    ] {
        let argv = exec(&Place::Local, args).iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
        let script = format!("stty -g; echo; {argv}; code=$?; echo; stty -g; exit $code");
        let mut terminal = OnTerminal::start(&["sh", "-c", &script], TerminalSize::default()).await;
        let output = terminal.expect(end).await;
        let settings: Vec<&str> = output.lines().filter(|line| line.split(':').count() > 10).collect();
        assert_eq!(settings.len(), 2, "{args:?}: {output}");
        assert_eq!(settings[0], settings[1], "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_restored_when_the_program_is_asked_to_end() {
    let argv = exec(&Place::Local, &["-it", "--", "sleep", "600"]);
    let argv = argv.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
    // Without job control a background program shares our process group, and so may use the terminal; but its standard
    // input is another one if nobody says otherwise.
    let script = format!(
        "exec 3<&0; before=$(stty -g); {argv} <&3 & echo pid-$!-; \
         until [ \"$before\" != \"$(stty -g)\" ]; do sleep 0.01; done; echo changed; wait $!; code=$?; \
         [ \"$before\" = \"$(stty -g)\" ] && echo same; exit $code"
    );
    for signal in ["TERM", "HUP"] {
        let mut terminal = OnTerminal::start(&["sh", "-c", &script], TerminalSize::default()).await;
        terminal.expect("pid-").await;
        let pid = terminal.expect("-").await;
        terminal.expect("changed").await;
        crate::support::signal(pid.trim_end_matches('-').parse().unwrap(), signal);
        assert!(terminal.expect("[exit code 143]").await.contains("same"), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_restored_when_the_quit_key_ends_the_program() {
    let argv = exec(&Place::Local, &["-t", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    let argv = argv.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
    // The key reaches all in the foreground.
    let script = format!(
        "trap : QUIT; before=$(stty -g); {argv}; code=$?; [ \"$before\" = \"$(stty -g)\" ] && echo same; exit $code"
    );
    let mut terminal = OnTerminal::start(&["sh", "-c", &script], TerminalSize::default()).await;
    terminal.expect("ready").await;
    terminal.type_in("\u{1c}").await;
    assert!(terminal.expect("[exit code 143]").await.contains("same"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_i_the_interrupt_key_interrupts() {
    for place in Place::all() {
        let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
        let mut terminal = start(&place, &["-t", "--", "sh", "-c", script]).await;
        terminal.expect("ready").await;
        terminal.type_in("\u{3}").await;
        assert!(terminal.expect("[exit code 9]").await.contains("caught"), "{}", place.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_takes_input_from_a_pipe_and_sees_its_end() {
    for place in Place::all() {
        for input in [&b"one\ntwo\n"[..], b"one\ntwo"] {
            let mut command = place.exec();
            let command = command.args(["-it", "--", "sh", "-c", "stty -echo; cat; echo end"]);
            let outcome = crate::support::run(command, input);
            assert!(outcome.code() == 0 && outcome.text().contains("two"), "{outcome:?}");
            assert!(outcome.text().ends_with("end\r\n"), "{}: {outcome:?}", place.name());
        }
    }
}

/// A place without the extension: neither side learns that the other one has it.
fn plain_place() -> Vec<String> {
    let hide = "sed -u 's/\"longarm\":/\"other\":/g'";
    let server = format!("{hide} | '{PROGRAM}' serve --listen stdio | {hide}");
    vec![PROGRAM.into(), "exec".into(), "--stdio".into(), server]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_typed_input_that_cannot_be_passed_on_is_said_and_ends_nothing() {
    let mut argv = plain_place();
    argv.extend(
        ["-i", "--", "sh", "-c", "trap 'echo bye; exit 7' INT; while read line; do echo got $line; done"]
            .map(Into::into),
    );
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut terminal = OnTerminal::start(&argv, TerminalSize { rows: 24, cols: 200 }).await;
    terminal.type_in("one\n").await;
    terminal.expect("got one").await;
    terminal.type_in("\u{4}").await;
    terminal.expect("longarm: ").await;
    terminal.expect("input").await;
    terminal.type_in("\u{3}").await;
    terminal.expect("bye").await;
    terminal.expect("[exit code 7]").await;
}
