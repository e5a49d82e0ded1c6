//! What must hold also when a peer does not do its part: deadlines are kept, everything ends, and what is closed is ended.

use proptest::collection::vec;
use proptest::prelude::*;

use super::cuts::{Play, ROUTES, Step, cases, step};
use super::*;

const DEADLINE: Duration = Duration::from_secs(5);

fn hostile_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => step(),
        2 => any::<bool>().prop_map(Step::Mute),
        2 => (0_usize..9).prop_map(Step::Refuse),
        2 => (0_u64..3_000).prop_map(Step::Wait),
    ]
}

/// How long the peer may take for a handshake, and calls that clean up for their turn: longer than any test takes, or not.
fn patience() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::from_secs(1_000_000)), (0_u64..3_000).prop_map(Duration::from_millis)]
}

/// A play whose every step is looked at.
struct Watched {
    play: Play,
    closed_at: Option<Instant>,
    /// When the session had ended by being closed.
    ended_at: Option<Instant>,
}

impl Watched {
    fn new(extended: bool) -> Self {
        Self { play: Play::new(extended, DEADLINE), closed_at: None, ended_at: None }
    }

    fn apply(&mut self, step: Step) {
        if let Step::CloseAll = step {
            self.closed_at.get_or_insert(self.play.world.client.now);
        }
        self.play.apply(step);
        self.look();
    }

    fn look(&mut self) {
        let client = &self.play.world.client;
        if let (None, Some(ConnectionState::Recovering { deadline, .. })) = (&client.end, client.states.last()) {
            assert!(client.now <= *deadline, "it is given up when it says so");
        }
        let by_this_end = client.end.as_ref().is_some_and(|(reason, _)| **reason == *"closed by this end");
        if by_this_end {
            self.ended_at.get_or_insert(client.now);
        }
    }

    /// What runs in the client's last session.
    fn running(&self) -> Vec<String> {
        let session_id = self.play.world.client.session.session_id.as_deref();
        let sessions = self.play.world.sessions.iter();
        let children = sessions.filter(|session| Some(session.peer.session_id()) == session_id);
        let children = children.flat_map(|session| session.children.values());
        children.filter(|child| !child.exited).map(|child| child.id.clone()).collect()
    }

    /// Nothing is due twice at one moment.
    fn wait(&mut self, millis: u64) {
        self.apply(Step::Wait(millis));
        let client = &self.play.world.client;
        let due = client.session.poll_timeout();
        assert!(due.is_none_or(|due| due > client.now), "{due:?} at {:?}: {:?}", client.now, client.states.last());
    }

    /// The peer does its part, and processes write on if they are `chatty`.
    fn settle(&mut self, rounds: usize, chatty: bool) {
        for _ in 0..rounds {
            self.play.world.settle(1, |world| {
                for route in 1..=ROUTES {
                    if chatty {
                        world.emit(process_id(route).as_str(), 1);
                    }
                    world.client.consume(route);
                }
            });
            self.look();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 2, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deadlines_are_kept_and_everything_ends(
        steps in vec(hostile_step(), 0..250),
        extended in any::<bool>(),
        closes in any::<Option<u8>>(),
        chatty in any::<bool>(),
        handshake in patience(),
        cleanup in patience(),
    ) {
        let mut watched = Watched::new(extended);
        let config = &mut watched.play.world.client.session.config;
        (config.initialize_timeout, config.cleanup_patience) = (handshake, cleanup);
        for (index, step) in steps.into_iter().enumerate() {
            if closes.is_some_and(|at| usize::from(at) == index) {
                watched.apply(Step::CloseAll);
            }
            match step {
                Step::Wait(millis) => watched.wait(millis),
                step => watched.apply(step),
            }
        }
        // The peer does its part again, and is asked anew for what it never answered.
        watched.apply(Step::Refuse(0));
        watched.apply(Step::Mute(false));
        watched.apply(Step::Cut);
        let failed = watched.play.world.client.failures.len();
        watched.settle(120, chatty);
        let unheard = |error: &WaitError| matches!(error, WaitError::Peer(_));
        let failures = &watched.play.world.client.failures[failed..];
        prop_assert!(!failures.iter().any(|(_, error)| unheard(error)), "the peer told of all: {failures:?}");
        let names: Vec<_> = (1..=ROUTES).map(|route| process_id(route).as_str().to_owned()).collect();
        // By now the server has done all that it has said it would do.
        let running = watched.running();
        for name in &names {
            watched.play.world.exit(name);
            watched.play.world.close(name);
        }
        watched.settle(60, false);
        let client = &watched.play.world.client;
        for token in &watched.play.tokens {
            prop_assert!(client.answer(*token).is_some(), "{:?} is not answered", token);
        }
        prop_assert_eq!(client.answers.len(), watched.play.tokens.len());
        if client.end.is_none() {
            let connected = client.states.last().is_some_and(ConnectionState::is_connected);
            prop_assert!(connected || matches!(client.states.last(), None | Some(ConnectionState::Connecting)), "{:?}", client.states);
            // Whoever cannot be followed any more does not run on.
            for (route, error) in &client.failures {
                let name = process_id(route.0);
                prop_assert!(!running.iter().any(|id| id == name.as_str()), "{name} runs on after {error:?}");
            }
        }
        if let (Some(closed_at), Some(ended_at)) = (watched.closed_at, watched.ended_at) {
            // A peer of which nothing is known yet is given no grace time.
            let out_of_time = ended_at >= closed_at + CLOSE_PATIENCE;
            prop_assert!(running.is_empty() || out_of_time, "{running:?} run on");
        }
    }
}

/// What is due while the peer is asked anew for the session is done at that moment as well.
#[test]
fn an_acknowledgement_that_is_due_with_another_try_of_the_handshake_is_due_once() {
    let mut watched = Watched::new(true);
    let all = usize::MAX >> 1;
    watched.apply(Step::Start(1));
    watched.wait(0);
    for step in [Step::Dial(true), Step::Transmit(9), Step::Forth(all), Step::Complete(0), Step::Emit(1, 1)] {
        watched.apply(step);
    }
    watched.apply(Step::Back(all));
    // The server has not noticed that the first connection is gone, and refuses.
    watched.apply(Step::Replace);
    watched.wait(100);
    watched.apply(Step::Dial(true));
    watched.apply(Step::Consume(1));
    for step in [Step::Transmit(1), Step::Forth(all), Step::Back(all)] {
        watched.apply(step);
    }
    let session = &watched.play.world.client.session;
    assert!(session.ack_at.is_some(), "{session:?}");
    assert!(matches!(session.state, State::Handshaking { again: Some(_), .. }), "{session:?}");
    watched.wait(100);
}
