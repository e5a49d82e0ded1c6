//! Whatever a client does, whenever its connections break, at any byte, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::pair::World;
use super::*;
use crate::error::Disconnected;
use crate::wire::method;

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Start(u64),
    Write(u64, usize),
    CloseStdin(u64),
    Terminate(u64),
    Status,
    Abandon(u64),
    Discard(u64),
    Release(u64),
    Consume(u64),
    Emit(u64, usize),
    Exit(u64),
    Close(u64),
    Complete(usize),
    Transmit(usize),
    Forth(usize),
    Back(usize),
    Cut,
    ClientNotices,
    ServerNotices,
    Dial(bool),
    Repeat(usize),
    OldEnds,
    Wait(u64),
    /// A call that concerns no process; one that belongs to the connection, or one that may wait for the next.
    Ask(bool),
    /// The next reads are refused.
    Refuse(usize),
    /// Reads are not answered from now on, or are again.
    Mute(bool),
    /// The host has another connection.
    Replace,
    /// The place is closed.
    CloseAll,
}

pub(super) const ROUTES: u64 = 6;

pub(super) fn step() -> impl Strategy<Value = Step> {
    let route = || 1..=ROUTES;
    // Most messages are shorter than the long pieces, so that cuts strike headers, bodies and between them.
    let bytes = || prop_oneof![3 => 1_usize..40, 3 => 40_usize..400, 1 => Just(usize::MAX >> 1)];
    let size = prop_oneof![60 => 0_usize..40, 1 => input::PIECE_BYTES - 1..input::PIECE_BYTES + 40];
    prop_oneof![
        5 => route().prop_map(Step::Start),
        5 => (route(), size).prop_map(|(route, size)| Step::Write(route, size)),
        1 => route().prop_map(Step::CloseStdin),
        1 => route().prop_map(Step::Terminate),
        1 => Just(Step::Status),
        1 => route().prop_map(Step::Abandon),
        1 => route().prop_map(Step::Discard),
        1 => route().prop_map(Step::Release),
        6 => route().prop_map(Step::Consume),
        10 => (route(), 1_usize..40).prop_map(|(route, bytes)| Step::Emit(route, bytes)),
        2 => route().prop_map(Step::Exit),
        2 => route().prop_map(Step::Close),
        10 => (0_usize..4).prop_map(Step::Complete),
        12 => (1_usize..6).prop_map(Step::Transmit),
        14 => bytes().prop_map(Step::Forth),
        14 => bytes().prop_map(Step::Back),
        3 => Just(Step::Cut),
        5 => Just(Step::ClientNotices),
        5 => Just(Step::ServerNotices),
        8 => prop::bool::weighted(0.8).prop_map(Step::Dial),
        2 => (0_usize..40).prop_map(Step::Repeat),
        1 => Just(Step::OldEnds),
        1 => any::<bool>().prop_map(Step::Ask),
        1 => (0_usize..6).prop_map(Step::Refuse),
        1 => Just(Step::Replace),
        6 => (0_u64..200).prop_map(Step::Wait),
    ]
}

/// Longer than any test takes.
const AGES: Duration = Duration::from_secs(1_000_000);

/// What the host knows of a process that it asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) start: Option<Token>,
    /// Each write and what it ended in, by its token, and the byte that it is made of.
    writes: Vec<(Token, u8, usize)>,
    /// Nobody waits for its end, or it was ended.
    given_up: bool,
    given_up_input: bool,
    killed: bool,
}

pub(super) struct Play {
    pub(super) world: World,
    pub(super) asked: BTreeMap<u64, Asked>,
    pub(super) tokens: Vec<Token>,
    byte: u8,
}

impl Play {
    pub(super) fn new(extended: bool, deadline: Duration) -> Self {
        // A plain peer loses nothing while its bound is not reached.
        let window = if extended { 100 } else { 1 << 20 };
        Self { world: World::new(extended, window, deadline), asked: BTreeMap::new(), tokens: Vec::new(), byte: 0 }
    }

    fn submit(&mut self, route: u64, op: Op) -> Token {
        let token = self.world.client.submit(route, op);
        self.tokens.push(token);
        token
    }

    fn has_started(&self, route: u64) -> bool {
        let start = self.asked.get(&route).and_then(|asked| asked.start);
        start.is_some_and(|start| matches!(self.world.client.answer(start), Some(Ok(Answer::Started(_)))))
    }

    pub(super) fn apply(&mut self, step: Step) {
        let now = self.world.client.now;
        let name = |route| process_id(route).as_str().to_owned();
        match step {
            Step::Start(route) if self.asked.get(&route).is_none_or(|asked| asked.start.is_none()) => {
                // The program is its id, for the server's backend.
                let request = ExecRequest::new([name(route)]).cwd("/tmp").process_id(process_id(route));
                let request = request.stdin(crate::request::Stdin::Piped);
                let token = self.submit(route, start(&request));
                self.asked.entry(route).or_default().start = Some(token);
            }
            Step::Write(route, size) if self.has_started(route) => {
                self.byte = self.byte.wrapping_add(1);
                let token = self.submit(route, Op::Write { data: vec![self.byte; size].into() });
                self.asked.entry(route).or_default().writes.push((token, self.byte, size));
            }
            Step::CloseStdin(route) if self.has_started(route) => {
                self.submit(route, Op::CloseStdin);
            }
            Step::Terminate(route) if self.has_started(route) => {
                self.submit(route, terminate());
                self.asked.entry(route).or_default().killed = true;
            }
            Step::Status => {
                self.submit(0, Op::Status);
            }
            Step::Abandon(route) => {
                if let Some(asked) = self.asked.get_mut(&route) {
                    asked.given_up = true;
                    asked.killed = true;
                    self.world.client.session.abandon(now, RouteKey(route));
                    self.world.client.session.release(now, RouteKey(route));
                }
            }
            Step::Discard(route) => {
                if let Some(asked) = self.asked.get_mut(&route) {
                    asked.given_up = true;
                    self.world.client.session.discard(now, RouteKey(route));
                }
            }
            Step::Release(route) if self.has_started(route) => self.world.client.session.release(now, RouteKey(route)),
            Step::Consume(route) => self.world.client.consume(route),
            Step::Emit(route, bytes) => self.world.emit(&name(route), bytes),
            Step::Exit(route) => self.world.exit(&name(route)),
            Step::Close(route) => {
                // What is accepted from then on goes nowhere.
                self.asked.entry(route).or_default().given_up_input = true;
                self.world.close(&name(route));
            }
            Step::Complete(which) => self.world.complete(which),
            Step::Transmit(messages) => self.world.transmit(messages),
            Step::Forth(bytes) => self.world.forth(bytes),
            Step::Back(bytes) => self.world.back(bytes),
            Step::Cut => self.world.cut(),
            Step::ClientNotices => self.world.client_notices(),
            Step::ServerNotices => self.world.server_notices(),
            Step::Dial(well) => self.world.dial(well),
            Step::Repeat(which) => self.world.repeat(which),
            Step::OldEnds => self.world.old_connection_ends(),
            Step::Wait(millis) => self.world.pass(Duration::from_millis(millis)),
            Step::Ask(bound) => {
                let encode = |id: &RequestId| codec::encode_request::<method::Status>(id, &method::NoParams);
                let on = bound.then_some(self.world.client.session.link);
                let ask = Ask { method: method::Status::NAME, cleanup: false, on, encode: Box::new(encode) };
                self.submit(0, Op::Ask(Box::new(ask)));
            }
            Step::Refuse(reads) => self.world.refuse = reads,
            Step::Mute(mute) => self.world.mute = mute,
            Step::Replace => {
                self.world.client.session.replace(now);
                self.world.client.drain();
                self.world.note_hang_ups();
            }
            Step::CloseAll => self.world.client.session.close(now),
            Step::Start(_) | Step::Write(..) | Step::CloseStdin(_) | Step::Terminate(_) | Step::Release(_) => {}
        }
        self.world.client.drain();
    }

    /// Lets everything come to its end: every process that is wanted ends by itself.
    pub(super) fn finish(&mut self) {
        self.world.refuse = 0;
        for _ in 0..2 {
            let routes: Vec<_> = (1..=ROUTES).collect();
            self.world.settle(60, |world| routes.iter().for_each(|route| world.client.consume(*route)));
            for route in 1..=ROUTES {
                let name = process_id(route).as_str().to_owned();
                self.world.exit(&name);
                self.world.close(&name);
            }
        }
        for route in self.asked.keys() {
            self.world.client.session.release(self.world.client.now, RouteKey(*route));
        }
        self.world.settle(4, |_| {});
    }

    fn check(&self) {
        let client = &self.world.client;
        assert!(client.end.is_none(), "{:?}", client.end);
        for token in &self.tokens {
            assert!(client.answer(*token).is_some(), "{token:?} is not answered");
        }
        assert_eq!(client.answers.len(), self.tokens.len());
        for (route, asked) in &self.asked {
            self.check_process(*route, asked);
        }
        for session in &self.world.sessions {
            let mut ids = BTreeSet::new();
            for child in session.children.values() {
                assert!(ids.insert(&child.id), "{} was started twice", child.id);
                assert!(child.closed, "{} runs on", child.id);
            }
        }
        assert_eq!(client.session.poll_timeout(), None, "invariant 8: {:?}", client.session);
        assert!(client.session.routes.is_empty(), "{:?}", client.session.routes);
    }

    fn check_process(&self, route: u64, asked: &Asked) {
        let client = &self.world.client;
        let id = process_id(route);
        let mut children = self.world.sessions.iter().flat_map(|session| session.children.values());
        let child = children.rfind(|child| child.id == id.as_str());
        let Some(start) = asked.start else { return };
        match client.answer(start) {
            Some(Ok(_)) => {}
            Some(Err(Failure::Disconnected(Disconnected { .. }) | Failure::Closed)) => {
                // If it was started it was ended: the check of all children sees to that.
                let got = client.events.iter().any(|(key, _)| key.0 == route);
                assert!(!got || asked.given_up, "never adopted");
                return;
            }
            // The stop came before the start.
            Some(Err(Failure::Spawn(_))) if asked.killed => return,
            other => panic!("{other:?}"),
        }
        let child = child.expect("it was started");
        let events: Vec<_> = client.events.iter().filter(|(key, _)| key.0 == route).map(|(_, event)| event).collect();
        let mut bytes = Vec::new();
        let (mut next, mut exits) = (1, 0);
        for event in &events {
            assert_eq!(event.seq(), next, "invariant 1");
            next += 1;
            match event {
                Event::Output(output) => bytes.extend_from_slice(&output.bytes),
                Event::Exited(_) => exits += 1,
                Event::Closed(_) => {}
                Event::Gap(gap) => panic!("{gap:?}"),
            }
        }
        let failures: Vec<_> = client.failures.iter().filter(|(key, _)| key.0 == route).collect();
        assert!(failures.is_empty(), "{failures:?}");
        if !asked.given_up {
            assert_eq!(bytes, child.written, "nothing is lost or doubled");
            assert!(matches!(events.last(), Some(Event::Closed(_))) && exits == 1, "invariant 2: {events:?}");
        } else {
            assert!(child.written.starts_with(&bytes));
        }
        self.check_input(asked, &child.stdin);
    }

    /// Every write that was accepted is there, once and in order; of one that was not, a beginning may be.
    fn check_input(&self, asked: &Asked, mut stdin: &[u8]) {
        for (token, byte, size) in &asked.writes {
            let run = stdin.iter().take_while(|other| *other == byte).count();
            let done = matches!(self.world.client.answer(*token), Some(Ok(Answer::Done)));
            if done && !asked.killed && !asked.given_up && !asked.given_up_input {
                assert_eq!(run, *size, "a write of {size} bytes");
            }
            assert!(run <= *size, "invariant 3: {run} of {size} bytes");
            stdin = &stdin[run..];
        }
        assert!(stdin.is_empty(), "bytes that nobody wrote");
    }
}

/// 2,000 unless `LONGARM_CASES` says otherwise.
pub(super) fn cases() -> u32 {
    std::env::var("LONGARM_CASES").ok().map_or(2_000, |text| text.parse().expect("LONGARM_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_connection_may_break_and_nothing_else_may(steps in vec(step(), 0..250), extended in any::<bool>()) {
        let mut play = Play::new(extended, AGES);
        for step in steps {
            play.apply(step);
        }
        play.finish();
        play.check();
    }
}

/// A small program of a client, cut at every single byte that crosses.
#[test]
fn any_byte_may_be_the_last_one_of_its_connection() {
    let run = |cut_at: Option<usize>| {
        let mut play = Play::new(true, AGES);
        play.apply(Step::Start(1));
        play.apply(Step::Start(2));
        let mut was_cut = false;
        for round in 0..80 {
            play.apply(Step::Transmit(2));
            for step in [Step::Forth, Step::Back].repeat(4) {
                // The cut strikes exactly there.
                let left = cut_at.filter(|_| !was_cut).map_or(usize::MAX, |at| at - play.world.crossed);
                play.apply(step(left.min(20)));
                if cut_at.is_some_and(|at| play.world.crossed == at) && !was_cut {
                    was_cut = true;
                    play.apply(Step::Cut);
                }
            }
            for step in [Step::Complete(0), Step::ClientNotices, Step::ServerNotices, Step::Wait(10), Step::Dial(true)]
            {
                play.apply(step);
            }
            match round % 16 {
                3 => play.apply(Step::Write(1, 3)),
                5 => play.apply(Step::Emit(1, 30)),
                7 => play.apply(Step::Emit(2, 9)),
                9 => play.apply(Step::Consume(1)),
                11 if round > 60 => play.apply(Step::Exit(2)),
                _ => {}
            }
        }
        play.finish();
        play.check();
        play.world.crossed
    };
    let whole = run(None);
    assert!(whole > 1_000, "{whole}");
    for at in 0..whole {
        run(Some(at));
    }
}
