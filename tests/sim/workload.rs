//! What runs on the simulated server, and what its client expects of it.

use std::time::Duration;

use longarm::error::SpawnError;
use longarm::event::Event;
use longarm::testing::fake::FakeChild;
use longarm::{Environment, ExecRequest, ExitStatus, OutputStream, Process, Stdin};
use tokio::time::sleep;

use super::random::Random;

/// What a process does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) seed: u64,
    /// What it says on its standard output.
    pub(crate) lines: u64,
    /// The longest pause between two lines, in microseconds.
    pub(crate) pause: u64,
    /// One line of so many is long.
    pub(crate) long_every: u64,
    /// What it is told, and says again on its standard error.
    pub(crate) writes: u64,
}

impl Work {
    /// Now and then something, for a minute of both directions.
    pub(crate) const fn steady(seed: u64) -> Self {
        Self { seed, lines: 150, pause: 400_000, long_every: 20, writes: 60 }
    }

    /// Short lines without end, faster than any round trip.
    pub(crate) const fn chatty(seed: u64) -> Self {
        Self { seed, lines: 12_000, pause: 3_000, long_every: u64::MAX, writes: 20 }
    }

    fn request(self) -> ExecRequest {
        let Self { seed, lines, pause, long_every, writes } = self;
        let numbers = [seed, lines, pause, long_every, writes].map(|number| number.to_string());
        ExecRequest::new(["program".to_owned()].into_iter().chain(numbers)).cwd("/").stdin(Stdin::Piped)
    }

    fn of(request: &ExecRequest) -> Self {
        let numbers: Vec<u64> = request.argv()[1..]
            .iter()
            .map(|number| number.to_str().and_then(|number| number.parse().ok()).expect("a number"))
            .collect();
        let [seed, lines, pause, long_every, writes] = numbers[..] else { panic!("{numbers:?}") };
        Self { seed, lines, pause, long_every, writes }
    }

    /// Starts the process, even if a break leaves some starts in doubt.
    pub(crate) async fn spawn(self, place: &Environment) -> Process {
        loop {
            match place.spawn(self.request()).await {
                Ok(process) => return process,
                Err(SpawnError::Disconnected(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Follows a process to its end, and writes to it meanwhile: every event in order, every byte once.
    pub(crate) async fn follow(self, mut process: Process) {
        let handle = process.handle();
        let writing = async move {
            let mut random = Random::new(self.seed + 1);
            for number in 0..self.writes {
                handle.write(format!("{number}\n")).await.expect("a write lives through it");
                sleep(Duration::from_millis(random.below(900))).await;
            }
        };
        let reading = async {
            let (mut next, mut out, mut err) = (1, String::new(), String::new());
            let (mut code, mut closed) = (None, false);
            while let Some(event) = process.next_event().await.expect("events live through it") {
                assert!(!closed, "nothing follows the end");
                assert_eq!(event.seq(), next);
                next += 1;
                match event {
                    Event::Output(output) => {
                        let text = String::from_utf8(output.bytes.to_vec()).expect("text");
                        if output.stream == OutputStream::Stdout { out.push_str(&text) } else { err.push_str(&text) }
                    }
                    Event::Exited(exited) => code = exited.status.code(),
                    Event::Closed(_) => closed = true,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((code, closed), (Some(CODE), true));
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let said = out.lines().map(|line| number(line.trim_end_matches('x').trim()));
            assert!(said.eq(0..self.lines), "{out}");
            let told = err.lines().map(number);
            assert!(told.eq(0..self.writes), "{err}");
        };
        tokio::join!(biased; writing, reading);
    }
}

/// Says numbers at its own pace, and what it is told, until it has said and heard everything.
pub(crate) async fn program(request: ExecRequest, mut child: FakeChild) -> ExitStatus {
    let work = Work::of(&request);
    let mut random = Random::new(work.seed);
    let (mut next, mut heard) = (0, 0);
    while next < work.lines || heard < work.writes {
        let pause = Duration::from_micros(random.below(work.pause));
        tokio::select! {
            biased;
            told = child.read_stdin(), if heard < work.writes => {
                let told = told.expect("it is told everything before its input ends");
                heard += told.iter().filter(|byte| **byte == b'\n').count() as u64;
                child.stderr(told).await;
            }
            () = sleep(pause), if next < work.lines => {
                let fill = if random.below(work.long_every) == 0 { "x".repeat(20_000) } else { String::new() };
                child.stdout(format!("{next} {fill}\n")).await;
                next += 1;
            }
        }
    }
    ExitStatus::exited(CODE)
}

const CODE: i32 = 7;
