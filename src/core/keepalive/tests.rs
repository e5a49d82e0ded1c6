use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn start() -> (Instant, Keepalive) {
    let now = crate::time::now();
    (now, Keepalive::new(Config::default(), now))
}

#[test]
fn a_silent_peer_is_pinged_and_then_given_up() {
    let (start, mut keepalive) = start();
    assert_eq!(keepalive.poll_timeout(), Some(start + 30 * SECOND));
    assert_eq!(keepalive.handle_timeout(start + 29 * SECOND), Verdict::Alive);
    assert_eq!(keepalive.handle_timeout(start + 30 * SECOND), Verdict::Ping);
    assert_eq!(keepalive.handle_timeout(start + 30 * SECOND), Verdict::Alive, "one ping is enough");
    assert_eq!(keepalive.poll_timeout(), Some(start + 60 * SECOND));
    assert_eq!(keepalive.handle_timeout(start + 60 * SECOND), Verdict::Dead { silence: 60 * SECOND });
}

#[test]
fn any_byte_is_life_and_sending_is_none() {
    let (start, mut keepalive) = start();
    for second in 1..200_u32 {
        let now = start + second * SECOND;
        // One byte of a huge message every 50 s.
        keepalive.handle_received(now, u64::from(second / 50));
        assert!(!matches!(keepalive.handle_timeout(now), Verdict::Dead { .. }), "at {second} s");
    }
    let now = start + 210 * SECOND;
    keepalive.handle_received(now, 3);
    assert_eq!(keepalive.handle_timeout(now), Verdict::Dead { silence: 60 * SECOND });
}

#[test]
fn silence_means_nothing_while_we_do_not_listen() {
    let (start, mut keepalive) = start();
    keepalive.set_listening(start + SECOND, false);
    for second in (30..600).step_by(30) {
        let now = start + second * SECOND;
        assert_eq!(keepalive.poll_timeout(), Some(now));
        assert_eq!(keepalive.handle_timeout(now), Verdict::Ping);
    }
    let back = start + 600 * SECOND;
    keepalive.set_listening(back, true);
    for second in [0, 30] {
        assert_eq!(keepalive.handle_timeout(back + second * SECOND), Verdict::Ping);
    }
    assert_eq!(keepalive.handle_timeout(back + 59 * SECOND), Verdict::Alive);
    assert_eq!(keepalive.handle_timeout(back + 60 * SECOND), Verdict::Dead { silence: 60 * SECOND });
}

#[test]
fn while_we_do_not_listen_what_the_peer_takes_is_its_life() {
    let (start, mut keepalive) = start();
    keepalive.handle_sent(start, 0);
    keepalive.set_listening(start + 40 * SECOND, false);
    assert_eq!(keepalive.poll_timeout(), Some(start + 30 * SECOND), "for a ping");
    let mut last = 0;
    for second in 41..400_u32 {
        let now = start + second * SECOND;
        last = u64::from(second / 50);
        keepalive.handle_sent(now, last);
        assert!(!matches!(keepalive.handle_timeout(now), Verdict::Dead { .. }), "at {second} s");
    }
    // The last of it was taken at 350 s.
    assert_eq!(keepalive.poll_timeout(), Some(start + 401 * SECOND));
    assert_eq!(keepalive.handle_timeout(start + 401 * SECOND), Verdict::Ping);
    let now = start + 410 * SECOND;
    assert_eq!(keepalive.poll_timeout(), Some(now));
    keepalive.handle_sent(now, last);
    assert_eq!(keepalive.handle_timeout(now), Verdict::Dead { silence: 60 * SECOND });
}

#[test]
fn while_we_listen_what_the_peer_takes_is_no_life() {
    let (start, mut keepalive) = start();
    for second in 1..60_u32 {
        keepalive.handle_sent(start + second * SECOND, u64::from(second));
        keepalive.handle_timeout(start + second * SECOND);
    }
    let now = start + 60 * SECOND;
    assert_eq!(keepalive.handle_timeout(now), Verdict::Dead { silence: 60 * SECOND });
}

#[test]
fn without_pings_silence_is_no_evidence() {
    let (start, mut keepalive) = start();
    assert_eq!(keepalive.handle_timeout(start + 30 * SECOND), Verdict::Ping);
    keepalive.disable();
    assert_eq!(keepalive.poll_timeout(), None);
    assert_eq!(keepalive.handle_timeout(start + 10_000 * SECOND), Verdict::Alive);
}

#[test]
fn limits_beyond_the_end_of_time_never_come() {
    let now = crate::time::now();
    let config = Config { ping_interval: Duration::MAX, silence_limit: Duration::MAX };
    let mut keepalive = Keepalive::new(config, now);
    assert_eq!(keepalive.handle_timeout(now + 10_000_000 * SECOND), Verdict::Alive);
}

#[test]
fn a_connection_that_is_doubted_has_to_answer_soon() {
    let start = Instant::now();
    let limit = Duration::from_secs(2);
    let mut keepalive = Keepalive::new(Config::default(), start);
    assert!(keepalive.challenge(start, limit));
    assert!(!keepalive.challenge(start + Duration::from_secs(1), limit), "it is doubted already");
    assert_eq!(keepalive.poll_timeout(), Some(start + limit));
    keepalive.handle_received(start + Duration::from_secs(1), 1);
    assert_eq!(keepalive.handle_timeout(start + limit), Verdict::Alive, "it has answered");
    let later = start + Duration::from_secs(10);
    assert!(keepalive.challenge(later, limit));
    assert_eq!(keepalive.handle_timeout(later + limit), Verdict::Dead { silence: Duration::from_secs(11) });
}

#[test]
fn without_pings_nothing_is_doubted() {
    let start = Instant::now();
    let mut keepalive = Keepalive::new(Config::default(), start);
    keepalive.disable();
    assert!(!keepalive.challenge(start, Duration::ZERO));
    assert_eq!(keepalive.handle_timeout(start + Duration::from_secs(1_000)), Verdict::Alive);
    // And of one that is not read, nothing can be heard.
    let mut keepalive = Keepalive::new(Config::default(), start);
    keepalive.set_listening(start, false);
    assert!(!keepalive.challenge(start, Duration::ZERO));
}

#[test]
fn a_peer_is_not_given_up_for_what_nobody_was_there_to_hear() {
    let (start, mut keepalive) = start();
    // The ping was due at 30 s.
    let woken = start + 225 * SECOND;
    assert_eq!(keepalive.handle_timeout(woken), Verdict::Ping);
    assert_eq!(keepalive.handle_timeout(woken), Verdict::Alive);
    assert_eq!(keepalive.poll_timeout(), Some(woken + 30 * SECOND));
    let mut silent = keepalive;
    assert_eq!(silent.handle_timeout(woken + 29 * SECOND), Verdict::Alive);
    assert_eq!(silent.handle_timeout(woken + 30 * SECOND), Verdict::Dead { silence: 255 * SECOND });
}

#[test]
fn an_answer_that_may_wait_to_be_read_is_read_first() {
    let (start, mut keepalive) = start();
    assert_eq!(keepalive.handle_timeout(start + 30 * SECOND), Verdict::Ping);
    let woken = start + 100 * SECOND;
    assert_eq!(keepalive.handle_timeout(woken), Verdict::Ping, "the answer to the first one has not been looked for");
    keepalive.handle_received(woken, 1);
    assert_eq!(keepalive.poll_timeout(), Some(woken + 30 * SECOND));
    assert_eq!(keepalive.handle_timeout(woken + 30 * SECOND), Verdict::Ping);
    assert_eq!(keepalive.handle_timeout(woken + 60 * SECOND), Verdict::Dead { silence: 60 * SECOND }, "as ever");
}

#[test]
fn one_that_is_doubted_has_its_short_time_also_when_this_end_was_late() {
    let (start, mut keepalive) = start();
    let limit = 2 * SECOND;
    assert!(keepalive.challenge(start, limit));
    let late = start + 5 * SECOND;
    assert_eq!(keepalive.handle_timeout(late), Verdict::Ping);
    assert_eq!(keepalive.poll_timeout(), Some(late + limit));
    assert_eq!(keepalive.handle_timeout(late + limit), Verdict::Dead { silence: 7 * SECOND });
}

#[test]
fn a_timeout_that_is_only_a_little_late_is_as_good_as_any() {
    let (start, mut keepalive) = start();
    let little = Duration::from_millis(900);
    assert_eq!(keepalive.handle_timeout(start + 30 * SECOND + little), Verdict::Ping);
    let end = start + 60 * SECOND + little;
    assert_eq!(keepalive.handle_timeout(end), Verdict::Dead { silence: 60 * SECOND + little });
}

#[test]
fn a_machine_that_wakes_just_before_the_deadline_gives_the_peer_its_time() {
    let (start, mut keepalive) = start();
    let woken = start + Duration::from_millis(59_500);
    assert_eq!(keepalive.handle_timeout(woken), Verdict::Ping, "it was due at 30 s");
    assert_eq!(keepalive.handle_timeout(start + 60 * SECOND), Verdict::Alive);
    assert_eq!(keepalive.poll_timeout(), Some(woken + 30 * SECOND));
    assert_eq!(keepalive.handle_timeout(woken + 30 * SECOND), Verdict::Dead { silence: Duration::from_millis(89_500) });
}

#[test]
fn an_end_that_is_always_late_gives_up_in_the_end() {
    let (start, mut keepalive) = start();
    let mut now = start;
    for _ in 0..MOST_ASKED_AGAIN {
        now = keepalive.poll_timeout().unwrap() + 2 * SECOND;
        assert_eq!(keepalive.handle_timeout(now), Verdict::Ping);
    }
    let verdicts: Vec<_> = (0..3)
        .map(|_| {
            now = keepalive.poll_timeout().unwrap() + 2 * SECOND;
            keepalive.handle_timeout(now)
        })
        .collect();
    assert!(verdicts.iter().any(|verdict| matches!(verdict, Verdict::Dead { .. })), "{verdicts:?}");
}
