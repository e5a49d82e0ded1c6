use std::io;

use super::*;

const DELAY: Duration = Duration::from_millis(100);

fn config() -> config::Recovery {
    config::Recovery::default()
}

fn unreachable() -> ConnectError {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
    ConnectError::Unreachable { address: "ws://host".into(), source }
}

fn lost(now: Instant) -> Recovery {
    Recovery::new(now, now, Some("the link broke".into()), &config())
}

fn fail(recovery: &mut Recovery, now: Instant, error: ConnectError) -> Next {
    recovery.handle_failure(now, now, error, &config().retry, "s")
}

fn text(next: Next) -> String {
    match next {
        Next::GiveUp { reason, .. } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_attempt_is_made_at_once_and_later_ones_after_a_delay() {
    let now = Instant::now();
    let mut recovery = lost(now);
    assert_eq!(recovery.poll_timeout(), now);
    assert!(matches!(recovery.handle_timeout(now), Next::Dial));
    assert!(matches!(recovery.handle_timeout(now), Next::Wait), "a spurious timeout");
    assert!(matches!(fail(&mut recovery, now, unreachable()), Next::Wait));
    assert_eq!(recovery.poll_timeout(), now + DELAY);
    assert!(matches!(recovery.handle_timeout(now), Next::Wait));
    assert!(matches!(recovery.handle_timeout(now + DELAY), Next::Dial));
}

#[test]
fn a_permanent_error_ends_it_at_once() {
    let now = Instant::now();
    let mut recovery = lost(now);
    recovery.handle_timeout(now);
    recovery.handle_connected();
    let next = fail(&mut recovery, now, ConnectError::UnknownSession("s".into()));
    assert_eq!(text(next), "the link broke; not connected again: unknown session s");
}

#[test]
fn the_deadline_bounds_all_attempts_together() {
    let start = Instant::now();
    let mut recovery = lost(start);
    let (mut now, mut dials) = (start, 0);
    let next = loop {
        match recovery.handle_timeout(now) {
            Next::Dial => {
                dials += 1;
                now += DELAY;
                if let next @ Next::GiveUp { .. } = fail(&mut recovery, now, unreachable()) {
                    break next;
                }
            }
            Next::Wait => now = recovery.poll_timeout(),
            next @ Next::GiveUp { .. } => break next,
        }
    };
    assert_eq!(now, start + config().deadline);
    assert_eq!(dials, 225);
    assert!(text(next).starts_with("the link broke; not connected again: cannot connect to ws://host: "));
}

#[test]
fn an_attempt_that_never_ends_is_given_up_at_the_deadline() {
    let now = Instant::now();
    let mut recovery = Recovery::new(now, now, None, &config());
    recovery.handle_timeout(now);
    assert!(recovery.is_dialling());
    assert_eq!(recovery.poll_timeout(), now + config().deadline);
    let next = recovery.handle_timeout(now + config().deadline);
    assert_eq!(text(next), "connecting took longer than 45000 ms");
}

#[test]
fn a_deadline_beyond_the_clock_is_none() {
    let now = Instant::now();
    let config = config::Recovery { deadline: Duration::MAX, ..config() };
    let mut recovery = Recovery::new(now, now, None, &config);
    assert!(matches!(recovery.handle_timeout(now + Duration::from_secs(1 << 30)), Next::Dial));
}

#[test]
fn a_server_that_asks_for_time_gets_it_up_to_the_last_moment() {
    let start = Instant::now();
    let refused = |seconds| ConnectError::Refused {
        address: "ws://host".into(),
        status: 503,
        reason: "full".into(),
        retry_after: Some(Duration::from_secs(seconds)),
    };
    for (asked, waited) in [(0, DELAY), (7, Duration::from_secs(7)), (3_600, Duration::from_secs(43))] {
        let mut recovery = lost(start);
        recovery.handle_timeout(start);
        assert!(matches!(fail(&mut recovery, start, refused(asked)), Next::Wait));
        assert_eq!(recovery.poll_timeout(), start + waited);
        assert!(matches!(recovery.handle_timeout(start + waited), Next::Dial));
    }
}
