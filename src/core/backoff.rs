//! How long to wait between attempts to connect.

use std::time::Duration;

use crate::config::RetryDelay;

/// The delay after attempt number `attempt`, which counts from 0.
///
/// It doubles from the first delay to the longest one. Delays that grow get up to half of their length on top, by a hash of
/// `key` and the number: clients that lost one server together do not come back together, and a test can tell the value.
pub(crate) fn delay(config: &RetryDelay, key: &str, attempt: u32) -> Duration {
    if config.max <= config.first {
        return config.first;
    }
    let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
    let base = config.first.saturating_mul(factor).min(config.max);
    let half = u64::try_from(base.as_millis() / 2).unwrap_or(u64::MAX);
    base.saturating_add(Duration::from_millis(hash(key, attempt) % half.saturating_add(1)))
}

/// FNV-1a with 64 bits, so that a new compiler changes nothing.
fn hash(key: &str, attempt: u32) -> u64 {
    let bytes = key.bytes().chain(attempt.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROWING: RetryDelay = RetryDelay { first: Duration::from_millis(500), max: Duration::from_secs(5) };

    #[test]
    fn a_constant_delay_has_no_jitter() {
        let constant = RetryDelay::constant(Duration::from_millis(100));
        for attempt in [0, 1, 31, 32, u32::MAX] {
            assert_eq!(delay(&constant, "s", attempt), Duration::from_millis(100));
        }
    }

    #[test]
    fn a_growing_delay_stays_within_half_above_its_base() {
        for (attempt, base) in
            [(0, 500), (1, 1_000), (2, 2_000), (3, 4_000), (4, 5_000), (40, 5_000), (u32::MAX, 5_000)]
        {
            for key in ["", "a", "b", "session"] {
                let delay = delay(&GROWING, key, attempt).as_millis();
                assert!((base..=base + base / 2).contains(&delay), "{attempt} {key}: {delay}");
            }
        }
    }

    #[test]
    fn the_jitter_is_the_published_hash() {
        // FNV-1a of nothing but four zero bytes.
        assert_eq!(hash("", 0), 0x4d25_767f_9dce_13f5);
        assert_ne!(delay(&GROWING, "a", 0), delay(&GROWING, "b", 0));
        assert_eq!(delay(&GROWING, "a", 3), delay(&GROWING, "a", 3));
    }
}
