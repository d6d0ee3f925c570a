//! How the learning rate changes with the steps.

use serde::{Deserialize, Serialize};

/// The shape of the curve after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Stays.
    Constant,
    /// Falls to zero along a line.
    Linear,
    /// Falls to zero along half a cosine.
    Cosine,
    /// Falls with the root of the step: `rate / sqrt(max(step, warm-up))`, as Long Range Arena trains.
    Rsqrt,
}

/// How long the rate rises from zero.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Warmup {
    /// This many steps.
    Steps(u64),
    /// This share of all steps.
    Ratio(f64),
}

/// A learning rate for every step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest rate (for [`Curve::Rsqrt`] the factor before the root).
    pub rate: f64,
    /// The shape.
    pub curve: Curve,
    /// The beginning.
    pub warmup: Warmup,
}

impl Schedule {
    /// The rate of the update after `step` updates, of `total` updates in all. As in the reference, the first update
    /// of a warm-up has rate zero.
    pub fn at(&self, step: u64, total: u64) -> f64 {
        let warmup = match self.warmup {
            Warmup::Steps(steps) => steps,
            Warmup::Ratio(ratio) => (total as f64 * ratio).ceil() as u64,
        };
        let (s, w, t) = (step as f64, warmup as f64, total as f64);
        if self.curve == Curve::Rsqrt {
            let w = w.max(1.0);
            return self.rate * (s / w).min(1.0) / s.max(w).sqrt();
        }
        if step < warmup {
            return self.rate * s / w;
        }
        let done = (s - w) / (t - w).max(1.0);
        self.rate
            * match self.curve {
                Curve::Linear => (1.0 - done).max(0.0),
                Curve::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()),
                Curve::Constant | Curve::Rsqrt => 1.0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(curve: Curve, warmup: Warmup, steps: &[u64]) -> Vec<f64> {
        let schedule = Schedule { rate: 2.0, curve, warmup };
        steps.iter().map(|s| (schedule.at(*s, 10) * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn curves_are_the_references() {
        let steps = [0, 1, 2, 6, 9, 10];
        // transformers.get_linear_schedule_with_warmup(optimizer, 2, 10), rate 2.
        assert_eq!(rates(Curve::Linear, Warmup::Steps(2), &steps), [0.0, 1.0, 2.0, 1.0, 0.25, 0.0]);
        assert_eq!(rates(Curve::Linear, Warmup::Ratio(0.2), &steps), [0.0, 1.0, 2.0, 1.0, 0.25, 0.0]);
        // get_cosine_schedule_with_warmup.
        assert_eq!(rates(Curve::Cosine, Warmup::Steps(2), &steps), [0.0, 1.0, 2.0, 1.0, 0.07612, 0.0]);
        assert_eq!(rates(Curve::Constant, Warmup::Steps(0), &steps), [2.0; 6]);
        // 2 * min(1, s/4) / sqrt(max(s, 4)).
        assert_eq!(rates(Curve::Rsqrt, Warmup::Steps(4), &[0, 2, 4, 9]), [0.0, 0.5, 1.0, 0.666667]);
    }
}
