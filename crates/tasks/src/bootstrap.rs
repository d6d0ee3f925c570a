//! Percentile bootstrap (Efron, "Bootstrap methods: another look at the jackknife", 1979), seeded.

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// How many resamples to draw and which share of them an interval covers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Number of resamples; 0 for no intervals.
    pub resamples: usize,
    /// Share of the resamples inside an interval.
    pub confidence: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Bootstrap { resamples: 1000, confidence: 0.95, seed: 0 }
    }
}

/// A range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Bootstrap {
    /// The statistics of each resample of `0..n`: `resamples` values for each of the `k` numbers that `statistics` returns.
    pub(crate) fn draw(&self, n: usize, k: usize, mut statistics: impl FnMut(&[usize]) -> Vec<f64>) -> Vec<Vec<f64>> {
        let mut random = Random::new(self.seed);
        let mut picks = vec![0; n];
        let mut values = vec![Vec::with_capacity(self.resamples); k];
        if n == 0 {
            return values;
        }
        for _ in 0..self.resamples {
            picks.iter_mut().for_each(|p| *p = random.below(n));
            for (list, value) in values.iter_mut().zip(statistics(&picks)) {
                list.push(value);
            }
        }
        values
    }

    /// The interval of one statistic's resampled values; values that are undefined (NaN) are left out. `None` if nothing is left.
    pub fn interval(&self, values: &[f64]) -> Option<Interval> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - self.confidence.clamp(0.0, 1.0)) / 2.0;
        Some(Interval { low: quantile(&sorted, tail), high: quantile(&sorted, 1.0 - tail) })
    }

    /// The interval of any statistic of `0..n`.
    pub fn of(&self, n: usize, mut statistic: impl FnMut(&[usize]) -> f64) -> Option<Interval> {
        self.interval(&self.draw(n, 1, |picks| vec![statistic(picks)])[0])
    }
}

/// Quantile by linear interpolation (NumPy's default).
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    if sorted[below] == sorted[above] {
        return sorted[below]; // infinities as well
    }
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_numpy() {
        // numpy.percentile([1, 2, 4, 8], [0, 2.5, 50, 97.5, 100])
        let sorted = [1.0, 2.0, 4.0, 8.0];
        for (share, want) in [(0.0, 1.0), (0.025, 1.075), (0.5, 3.0), (0.975, 7.7), (1.0, 8.0)] {
            assert!((quantile(&sorted, share) - want).abs() < 1e-12);
        }
    }

    #[test]
    fn interval_of_a_share_is_near_the_binomial() {
        // 785 of 872: the normal approximation gives 0.8803 to 0.9201.
        let right: Vec<f64> = (0..872).map(|i| f64::from(i < 785)).collect();
        let mean = |picks: &[usize]| picks.iter().map(|&i| right[i]).sum::<f64>() / 872.0;
        let interval = Bootstrap::default().of(872, mean).unwrap();
        assert!((interval.low - 0.8803).abs() < 0.004, "{interval:?}");
        assert!((interval.high - 0.9201).abs() < 0.004, "{interval:?}");
        assert_eq!(Bootstrap::default().of(872, mean).unwrap(), interval);
        assert!(Bootstrap::default().of(0, mean).is_none());
        assert!(Bootstrap::default().of(3, |_| f64::NAN).is_none());
    }
}
