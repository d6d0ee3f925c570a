//! The mean of a metric over repetitions, with Student's interval.

use crate::Metric;
use serde::{Deserialize, Serialize};

/// The mean of a metric over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The metric.
    pub metric: Metric,
    /// Mean over seeds.
    pub mean: f64,
    /// Half the width of the 95% t-interval; `None` for a single seed.
    pub half: Option<f64>,
    /// Standard deviation over seeds.
    pub deviation: Option<f64>,
}

impl Mean {
    /// The mean of a metric's values, one per seed.
    pub fn new(metric: Metric, values: &[f64]) -> Mean {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation =
            (values.len() > 1).then(|| (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt());
        let half = deviation.map(|d| t_quantile(values.len() - 1) * d / n.sqrt());
        Mean { metric, mean, half, deviation }
    }
}

/// Two-sided 95% quantile of Student's t with this many degrees of freedom.
fn t_quantile(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match freedom {
        0 => f64::NAN,
        f => TABLE.get(f - 1).copied().unwrap_or(1.96 + 2.5 / f as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // scipy.stats.t.interval(.95, 4, loc=mean, scale=sem) of 90, 91, 92, 93, 94: 92 ± 1.9633.
        let m = Mean::new(Metric::Accuracy, &[0.90, 0.91, 0.92, 0.93, 0.94]);
        assert!((m.mean - 0.92).abs() < 1e-12 && (m.half.unwrap() - 0.019633).abs() < 1e-5, "{m:?}");
        assert_eq!(Mean::new(Metric::Accuracy, &[0.5]).half, None);
    }
}
