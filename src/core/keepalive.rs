//! When to ask a peer for a sign of life, and when to give it up.
//!
//! Any byte from the peer is a sign of life, also inside a message that is not complete yet: a peer that is busy sending
//! something huge is alive. What we send is none. While we do not read, because the peer does not take our answers, its
//! silence says nothing: then what it takes of what we send is the sign of life. Where the transport cannot say how much
//! that is, its time stands still.
//!
//! Nor does silence say anything that this end was not there to hear: where a timeout comes late, as after a sleep of the
//! machine, or because others had it, what the peer has said may still wait to be read, and a ping may not have gone out
//! that was due. It is asked once more, and has the time for an answer that it would have had.
//!
//! Used by both sides. Invariants: a spurious timeout changes nothing; time that goes back is taken as standing still.

use std::time::Duration;

use crate::config::Keepalive as Config;
use crate::time::{Instant, after};

/// The liveness of one connection.
#[derive(Debug)]
pub(crate) struct Keepalive {
    config: Config,
    received_bytes: u64,
    /// Known only if the transport says.
    sent_bytes: Option<u64>,
    last_life: Instant,
    next_ping: Instant,
    listening: bool,
    /// A sign of life is wanted until then, for which there was so much time.
    challenged: Option<(Instant, Duration)>,
    /// It is not given up before: it was asked once more.
    asked_until: Option<Instant>,
    /// How often it was asked once more since it was last heard.
    asked_again: u32,
    /// The transport has no pings, so silence is no evidence.
    disabled: bool,
}

/// What a timeout asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Alive,
    /// A ping. If the transport has none, call [`Keepalive::disable`].
    Ping,
    /// The end of the connection.
    Dead {
        /// How long nothing was heard.
        silence: Duration,
    },
}

impl Keepalive {
    /// For a connection made at `now`.
    pub(crate) fn new(config: Config, now: Instant) -> Self {
        Self {
            config,
            received_bytes: 0,
            sent_bytes: None,
            last_life: now,
            next_ping: after(now, config.ping_interval),
            listening: true,
            challenged: None,
            asked_until: None,
            asked_again: 0,
            disabled: false,
        }
    }

    /// How many bytes have come from the peer so far.
    pub(crate) fn handle_received(&mut self, now: Instant, received_bytes: u64) {
        if received_bytes > self.received_bytes {
            self.received_bytes = received_bytes;
            self.note_life(now);
        }
    }

    /// How many bytes the transport has got rid of so far.
    pub(crate) fn handle_sent(&mut self, now: Instant, sent_bytes: u64) {
        let before = self.sent_bytes.replace(sent_bytes);
        if !self.listening && before.is_none_or(|before| sent_bytes > before) {
            self.note_life(now);
        }
    }

    /// Whether this end reads from now on.
    pub(crate) fn set_listening(&mut self, now: Instant, listening: bool) {
        if listening != self.listening {
            self.note_life(now);
        }
        self.listening = listening;
    }

    fn note_life(&mut self, now: Instant) {
        self.challenged = None;
        self.asked_until = None;
        self.asked_again = 0;
        self.last_life = self.last_life.max(now);
    }

    /// Somebody doubts the connection: without a sign of life within `limit` it is given up. True if a ping should go out for
    /// it.
    pub(crate) fn challenge(&mut self, now: Instant, limit: Duration) -> bool {
        if self.disabled || self.challenged.is_some() || !self.counts() {
            return false;
        }
        self.challenged = Some((after(now, limit), limit));
        true
    }

    /// The transport cannot ping: never give up for silence.
    pub(crate) fn disable(&mut self) {
        self.disabled = true;
    }

    /// When [`Self::handle_timeout`] has something to say.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.disabled {
            return None;
        }
        if self.counts() { Some(self.next_ping.min(self.deadline())) } else { Some(self.next_ping) }
    }

    /// Decides what is due. Report received and sent bytes first.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Verdict {
        if self.disabled {
            return Verdict::Alive;
        }
        if self.counts() && now >= self.deadline() {
            let due = self.next_ping.min(self.deadline());
            if self.may_ask_again(now, due) {
                return self.ask_again(now);
            }
            return Verdict::Dead { silence: now.saturating_duration_since(self.last_life) };
        }
        if now >= self.next_ping {
            // It can be shortly before the deadline by now.
            if self.counts() && self.may_ask_again(now, self.next_ping) {
                return self.ask_again(now);
            }
            self.next_ping = after(now, self.config.ping_interval);
            return Verdict::Ping;
        }
        Verdict::Alive
    }

    /// Whether there are signs of life to be missed.
    const fn counts(&self) -> bool {
        self.listening || self.sent_bytes.is_some()
    }

    /// Whether what was due is so late that the silence says nothing. An end that is late every time gives up all the same.
    fn may_ask_again(&self, now: Instant, due: Instant) -> bool {
        now.saturating_duration_since(due) >= LATE && self.asked_again < MOST_ASKED_AGAIN
    }

    fn ask_again(&mut self, now: Instant) -> Verdict {
        self.asked_again += 1;
        let usual = self.config.silence_limit.saturating_sub(self.config.ping_interval);
        let limit = self.challenged.map_or(usual, |(_, limit)| limit.min(usual));
        self.asked_until = Some(after(now, limit.max(LATE)));
        self.next_ping = after(now, self.config.ping_interval);
        Verdict::Ping
    }

    fn deadline(&self) -> Instant {
        let silent = after(self.last_life, self.config.silence_limit);
        let deadline = self.challenged.map_or(silent, |(challenged, _)| challenged.min(silent));
        self.asked_until.map_or(deadline, |until| until.max(deadline))
    }
}

/// A timeout that comes so late says nothing about the peer.
const LATE: Duration = Duration::from_secs(1);
/// So often a peer that is not heard is asked once more.
const MOST_ASKED_AGAIN: u32 = 3;

#[cfg(test)]
mod tests;
