//! Client and server as they are, on a network that is made up and a clock that is virtual: partitions, loss in one direction,
//! slow links, links that are half open, servers that start anew, clocks that jump.
//!
//! A case that fails says its seed, and what happened to the network until then; `LONGARM_SEED` runs that one alone, and
//! `LONGARM_CASES` as many seeds as it says for each test.

mod fault;
mod network;
mod random;
mod workload;

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use longarm::Environment;
use longarm::backend::remote::ConnectionState;
use longarm::config::{ClientConfig, Keepalive, ServerConfig};
use longarm::error::WaitError;
use longarm::server::Server;
use longarm::testing::fake::FakeBackend;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::fault::{Fault, HEALS_WITHIN};
use self::network::{Conditions, Network};
use self::random::Random;
use self::workload::{Work, program};

fn server() -> Server {
    server_that_retains(64 << 10)
}

fn server_that_retains(bytes: usize) -> Server {
    let mut config = ServerConfig::default();
    config.keepalive = keepalive();
    config.output.retained_bytes = bytes;
    Server::builder(Arc::new(FakeBackend::new(program))).config(config).build()
}

fn keepalive() -> Keepalive {
    let mut keepalive = Keepalive::default();
    keepalive.ping_interval = Duration::from_secs(3);
    keepalive.silence_limit = Duration::from_secs(6);
    keepalive
}

fn place(network: &Network) -> Environment {
    let mut config = ClientConfig::default();
    config.keepalive = keepalive();
    Environment::with_connector(network.connector(), config)
}

thread_local! {
    /// What has happened in the case that runs.
    static STORY: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(what: &impl Debug) {
    STORY.with_borrow_mut(|story| story.push(format!("{what:?}")));
}

/// Tells of a case that fails.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        let story = STORY.take();
        if std::thread::panicking() {
            eprintln!("LONGARM_SEED={} after {}", self.0, story.join(", "));
        }
    }
}

/// Runs a scenario in virtual time, which is bounded too, for so many seeds, or the one that is asked for.
fn cases<T>(count: u64, scenario: impl AsyncFn(u64) -> T) -> Vec<T> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("LONGARM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("LONGARM_CASES").unwrap_or(count),
    };
    seeds
        .map(|seed| {
            let _case = Case(seed);
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("built");
            runtime.block_on(async { timeout(Duration::from_secs(3_600), scenario(seed)).await.expect("it ends") })
        })
        .collect()
}

/// What a run comes to.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    connections: u64,
    /// Faults that break connections.
    breaks: u64,
    digest: u64,
}

/// Processes at work while these faults happen, in an order of the seed's. Nothing of them is lost, and their session lives.
async fn live_through(network: Network, work: &[Work], faults: &[Fault], seed: u64) -> Run {
    let mut random = Random::new(seed);
    let place = place(&network);
    let mut running = JoinSet::new();
    for &work in work {
        let place = place.clone();
        running.spawn(async move { work.follow(work.spawn(&place).await).await });
    }
    let mut connection = place.connection().expect("remote");
    let mut breaks = 0;
    connection.wait_for(ConnectionState::is_connected).await.expect("connected");
    while !running.is_empty() {
        let fault = random.one_of(faults);
        note(&fault);
        breaks += u64::from(fault.breaks());
        fault.happen(&network, &mut random).await;
        let healed = timeout(HEALS_WITHIN, connection.wait_for(ConnectionState::is_connected)).await;
        assert!(healed.is_ok_and(|state| state.is_some()), "after {fault:?}: {:?}", connection.state());
        sleep(random.millis(0..3_000)).await;
        while let Some(ended) = running.try_join_next() {
            ended.expect("each one is whole");
        }
    }
    // The last fault may have been noticed only now, when nothing is left to do.
    let state = timeout(HEALS_WITHIN, connection.wait_for(ConnectionState::is_connected)).await;
    assert!(matches!(state, Ok(Some(ConnectionState::Connected { session: 1, .. }))), "{state:?}");
    place.close().await;
    Run { connections: network.connections(), breaks, digest: network.digest() }
}

/// Three processes at work between peers of this crate.
fn run(faults: &[Fault], count: u64) -> Vec<Run> {
    cases(count, async |seed| {
        let work = [0, 1, 2].map(|number| Work::steady(seed * 100 + number));
        live_through(Network::new(server()), &work, faults, seed).await
    })
}

/// The same where neither end says that it speaks more than the plain protocol.
fn run_plain(faults: &[Fault], count: u64) -> Vec<Run> {
    cases(count, async |seed| {
        let work = [0, 1, 2].map(|number| Work::steady(seed * 100 + number));
        live_through(Network::plain(server_that_retains(1 << 20)), &work, faults, seed).await
    })
}

/// Fails where the faults broke nothing.
fn assert_connections_broke(runs: &[Run]) {
    assert!(!runs.is_empty());
    for run in runs {
        assert!(run.connections > run.breaks.min(1), "{run:?}");
    }
    assert!(runs.iter().any(|run| run.connections > 1), "{runs:?}");
}

#[test]
fn partitions_lose_nothing() {
    assert_connections_broke(&run(&[Fault::Partition], 8));
}

#[test]
fn loss_in_one_direction_loses_nothing() {
    assert_connections_broke(&run(&[Fault::LossForth, Fault::LossBack], 8));
}

#[test]
fn slow_links_lose_nothing() {
    run(&[Fault::Slow], 6);
}

#[test]
fn long_ways_lose_nothing_and_break_nothing() {
    let runs = run(&[Fault::Late], 8);
    assert!(runs.iter().all(|run| run.connections == 1), "{runs:?}");
}

#[test]
fn half_open_links_lose_nothing() {
    assert_connections_broke(&run(&[Fault::HalfOpen, Fault::ClientTold, Fault::ServerTold], 8));
}

#[test]
fn clocks_that_jump_lose_nothing() {
    run(&[Fault::ClockJump], 8);
}

#[test]
fn all_of_it_together_loses_nothing() {
    assert_connections_broke(&run(&Fault::ALL, 12));
}

#[test]
fn the_plain_protocol_loses_nothing_of_what_is_retained() {
    assert_connections_broke(&run_plain(&Fault::ALL, 12));
}

/// While what was missed is read over a long way, there is always more.
#[test]
fn a_chatty_process_is_caught_up_with_over_a_long_way() {
    for plain in [false, true] {
        let runs = cases(4, async |seed| {
            let mut random = Random::new(seed);
            let server = server_that_retains(1 << 20);
            let network = if plain { Network::plain(server) } else { Network::new(server) };
            let place = place(&network);
            let work = Work::chatty(seed);
            let following = tokio::spawn({
                let place = place.clone();
                async move { work.follow(work.spawn(&place).await).await }
            });
            let far = Conditions { latency: random.millis(100..600), ..Conditions::default() };
            note(&far);
            network.set(far);
            let mut connection = place.connection().expect("remote");
            connection.wait_for(ConnectionState::is_connected).await.expect("connected");
            let mut resets = 0;
            while !following.is_finished() {
                sleep(random.millis(0..4_000)).await;
                // Some strike while it catches up.
                note(&Fault::Reset);
                network.reset();
                resets += 1;
                sleep(random.millis(0..4_000)).await;
                network.set(far);
            }
            following.await.expect("it is whole");
            place.close().await;
            (resets, network.connections())
        });
        assert!(runs.iter().all(|(resets, connections)| *resets > 2 && *connections > 2), "{runs:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = || run(&Fault::ALL, 3);
    assert_eq!(once(), once());
}

#[test]
fn a_half_open_link_is_found_dead_within_its_bound() {
    cases(10, async |seed| {
        let network = Network::new(server());
        let place = place(&network);
        place.wait_until_ready().await.expect("connected");
        sleep(Random::new(seed).millis(0..10_000)).await;
        let mut connection = place.connection().expect("remote");
        let buried_at = Instant::now();
        network.bury();
        connection.wait_for(|state| !state.is_connected()).await.expect("the place lives");
        // The last sign of life may be as old as a ping.
        assert!(buried_at.elapsed() <= keepalive().silence_limit, "{:?}", buried_at.elapsed());
        place.wait_until_ready().await.expect("connected again");
        // The server's end of the old link is as dead: the session is had when that does not answer a ping.
        assert!(buried_at.elapsed() <= keepalive().silence_limit + Duration::from_secs(3), "{:?}", buried_at.elapsed());
        place.close().await;
    });
}

#[test]
fn a_server_that_starts_anew_ends_the_processes_and_the_next_call_begins_another_session() {
    cases(10, async |seed| {
        let mut random = Random::new(seed);
        let network = Network::new(server());
        let place = place(&network);
        let work = Work::steady(seed);
        let mut process = work.spawn(&place).await;
        let writes = process.handle();
        sleep(random.millis(0..5_000)).await;
        // Down for a while, or not.
        network.set(Conditions { refused: true, ..Conditions::default() });
        network.restart(server());
        sleep(random.millis(0..30_000)).await;
        network.set(Conditions::default());
        let error = loop {
            match process.next_event().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the end of the process was never told"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WaitError::Disconnected(_)), "{error}");
        assert!(matches!(place.connection().map(|watch| watch.state()), Some(ConnectionState::SessionLost { .. })));
        writes.write("nobody is there\n").await.expect_err("it is gone");
        work.follow(work.spawn(&place).await).await;
        let state = place.connection().map(|watch| watch.state());
        assert!(matches!(state, Some(ConnectionState::Connected { session: 2, .. })), "{state:?}");
        place.close().await;
    });
}

#[test]
fn an_outage_longer_than_the_deadline_is_told_at_the_deadline() {
    cases(10, async |seed| {
        let network = Network::new(server());
        let place = place(&network);
        let mut process = Work::steady(seed).spawn(&place).await;
        network.set(Conditions { refused: true, ..Conditions::default() });
        network.reset();
        let cut_at = Instant::now();
        while !matches!(process.next_event().await, Err(WaitError::Disconnected(_))) {}
        let deadline = ClientConfig::default().recovery.deadline;
        assert!(cut_at.elapsed() >= deadline && cut_at.elapsed() < deadline + Duration::from_secs(1));
        network.set(Conditions::default());
        place.wait_until_ready().await.expect("a new session");
        place.close().await;
    });
}
