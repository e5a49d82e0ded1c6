use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use super::*;

/// What the supervisor and the reader do. Each is one turn under the lock, so that a sequence of them is an interleaving of
/// two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The supervisor asks, as it does before it goes to sleep.
    Ask,
    /// The supervisor asks, and pushes a chunk if it may, as it does when it reads.
    Feed,
    /// The reader takes an event, or waits for one.
    Take,
}

const TURNS: [Turn; 3] = [Turn::Ask, Turn::Feed, Turn::Take];

/// A queue, and what either side is owed.
struct Model {
    events: EventQueue,
    wakes: Arc<Wakes>,
    /// The supervisor was refused, and has not been woken since.
    supervisor_is_owed: bool,
    /// So often the reader was told to wait.
    held: usize,
    resumes: u32,
    refusals: u32,
}

#[derive(Debug, Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Model {
    fn new(retained_bytes: usize, retained_chunks: usize) -> Self {
        let limits = OutputLimits { retained_bytes, retained_chunks, ..OutputLimits::default() };
        Self {
            events: EventQueue::new(limits),
            wakes: Arc::default(),
            supervisor_is_owed: false,
            held: 0,
            resumes: 0,
            refusals: 0,
        }
    }

    fn ask(&mut self) -> bool {
        let room = self.events.has_room();
        self.supervisor_is_owed |= !room;
        self.refusals += u32::from(!room);
        room
    }

    /// Returns whether there was an event.
    fn take(&mut self) -> bool {
        let waker = Arc::clone(&self.wakes).into();
        let (event, resume) = self.events.poll_next(&Context::from_waker(&waker));
        if resume {
            self.supervisor_is_owed = false;
            self.resumes += 1;
        }
        self.held -= usize::from(event.is_ready());
        event.is_ready()
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Ask => {
                self.ask();
            }
            Turn::Feed => {
                if self.ask() {
                    self.events.push_output(OutputStream::Stdout, Bytes::from_static(b"xx"));
                    self.held += 1;
                }
            }
            Turn::Take => {
                self.take();
            }
        }
    }
}

#[test]
fn a_supervisor_that_was_ever_refused_is_woken_before_the_reader_waits() {
    const LENGTH: u32 = 10;
    let mut refused = 0;
    for (bytes, chunks) in [(7, 100), (1000, 3), (1, 1), (0, 0)] {
        for number in 0..TURNS.len().pow(LENGTH) {
            let turns: Vec<Turn> = (0..LENGTH).map(|place| TURNS[number / TURNS.len().pow(place) % 3]).collect();
            let mut model = Model::new(bytes, chunks);
            for turn in &turns {
                model.turn(*turn);
                assert!(!model.supervisor_is_owed || model.held > 0, "nobody wakes it after {turns:?}");
            }
            refused += u32::from(model.supervisor_is_owed);
            while model.take() {}
            assert!(!model.supervisor_is_owed, "nobody wakes it after {turns:?} and the rest");
            assert!(model.resumes <= model.refusals, "it is not woken for nothing");
        }
    }
    assert!(refused > 1000, "the case is met");
}

#[test]
fn a_reader_at_the_bound_does_not_wake_the_supervisor_for_every_chunk() {
    let mut model = Model::new(200, 1000);
    while model.ask() {
        model.turn(Turn::Feed);
    }
    for _ in 0..49 {
        model.take();
        model.ask();
    }
    assert_eq!(model.resumes, 0);
    model.take();
    assert_eq!(model.resumes, 1, "half is taken");
}

#[test]
fn a_waiting_reader_is_woken_by_whatever_comes() {
    let model = Model::new(100, 100);
    let wakes = |model: &Model| model.wakes.0.load(Ordering::Relaxed);
    let pushes: [fn(&EventQueue); 4] = [
        |events| assert_eq!(events.push_output(OutputStream::Stderr, Bytes::from_static(b"x")), 1),
        |events| events.push_exited(ExitStatus::exited(0), false),
        |events| events.push_closed(false),
        |events| events.fail(WaitError::Closed),
    ];
    for (before, push) in pushes.into_iter().enumerate() {
        if before < 3 {
            assert!(model.events.poll_next(&Context::from_waker(&Arc::clone(&model.wakes).into())).0.is_pending());
            push(&model.events);
            assert_eq!(wakes(&model), before as u64 + 1);
            assert!(model.events.poll_next(&Context::from_waker(Waker::noop())).0.is_ready());
        } else {
            push(&model.events);
            let (end, _) = model.events.poll_next(&Context::from_waker(Waker::noop()));
            assert!(matches!(end, Poll::Ready(None)), "nothing follows the end");
        }
    }
}

#[test]
fn a_reader_that_goes_lets_everything_in() {
    let mut model = Model::new(4, 100);
    model.turn(Turn::Feed);
    model.turn(Turn::Feed);
    assert!(!model.ask());
    model.events.reader_is_gone();
    for sum in 3..10 {
        assert!(model.ask());
        assert_eq!(model.events.push_output(OutputStream::Stdout, Bytes::from_static(b"xx")), sum * 2);
    }
    assert_eq!(model.events.lock().events.len(), 0, "it is counted and not held");
}
