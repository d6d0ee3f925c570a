//! How long a request may have to wait for the engine before it is better refused at once.

use std::time::Duration;

/// Waits shorter than this are never too long.
const SHORT: Duration = Duration::from_millis(10);
/// How far the 99th percentile moves with every request: up by nearly this share of itself, down by a hundredth of it.
const STEP: f64 = 0.1;

/// How long a request may have to wait.
pub(super) struct Patience {
    /// What the operator said.
    said: Option<Duration>,
    /// The 99th percentile of what recent requests take alone, in seconds; 0 before the first.
    usual: f64,
}

impl Patience {
    pub(super) fn new(said: Option<Duration>) -> Patience {
        Patience { said, usual: 0.0 }
    }

    /// Learns what a request, accepted or not, would take alone.
    pub(super) fn note(&mut self, alone: Duration) {
        let alone = alone.as_secs_f64();
        let factor = if alone > self.usual { 1.0 + 0.99 * STEP } else { 1.0 - 0.01 * STEP };
        self.usual = if self.usual == 0.0 { alone } else { self.usual * factor };
    }

    /// The longest wait with which a request is accepted: as said, else half of what a long request takes alone. Whoever
    /// comes later may join its batch under the same rule, which is then no longer than that wait and a long request: it is
    /// done in twice what a long request takes alone.
    pub(super) fn limit(&self) -> Duration {
        self.said.unwrap_or_else(|| SHORT.max(Duration::from_secs_f64(self.usual / 2.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds that look random: a full cycle of a linear congruence.
    fn milliseconds(most: u64) -> impl Iterator<Item = Duration> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Duration::from_millis((state >> 33) % most)
        })
    }

    #[test]
    fn the_limit_follows_the_longest_of_recent_requests() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.limit(), SHORT);
        milliseconds(1000).take(5000).for_each(|alone| patience.note(alone));
        let long = 2.0 * patience.limit().as_secs_f64();
        assert!((0.9..1.1).contains(&long), "{long}");
        milliseconds(100).take(5000).for_each(|alone| patience.note(alone));
        let short = 2.0 * patience.limit().as_secs_f64();
        assert!((0.09..0.11).contains(&short), "{short}");
        assert_eq!(Patience::new(Some(Duration::ZERO)).limit(), Duration::ZERO);
    }
}
