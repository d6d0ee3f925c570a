//! What an evaluation found.

use crate::Task;
use crate::binomial;
use crate::bootstrap::{Bootstrap, Interval};
use crate::outcome::{Labels, Metric, Outcome};
use serde::{Deserialize, Serialize};

/// The result of evaluating a model on a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The task.
    pub task: Task,
    /// Where the data came from.
    pub source: String,
    /// The metrics, the headline first.
    pub values: Vec<Value>,
    /// Number of outcomes (examples; windows of a text).
    pub n: usize,
    /// Everything was run; false if the evaluation was cancelled.
    pub complete: bool,
    /// Which example of the dataset each outcome belongs to, ascending.
    pub examples: Vec<usize>,
    /// One per example (per window of a text), in the dataset's order.
    pub outcomes: Vec<Outcome>,
    /// What the metrics need to know about the labels.
    pub labels: Labels,
    /// Time spent in the executor.
    pub seconds: f64,
    /// Time spent in the tokenizer.
    pub encoding_seconds: f64,
    /// Tokens that were run, special tokens included.
    pub tokens: usize,
    /// How the intervals were drawn.
    pub bootstrap: Bootstrap,
    /// What the user should be told.
    pub notes: Vec<String>,
}

/// One metric's value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The metric.
    pub metric: Metric,
    /// Its value.
    pub value: f64,
    /// Its bootstrap interval.
    pub interval: Option<Interval>,
}

impl Report {
    /// The class that is right most often, and how often: what is right without reading. `None` for other answers than classes.
    pub fn most_frequent(&self) -> Option<(usize, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for outcome in &self.outcomes {
            let Outcome::Class { gold, .. } = outcome else { return None };
            *counts.entry(*gold).or_insert(0) += 1;
        }
        counts.into_iter().max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class)))
    }

    /// The task's first metric. A report always has one.
    pub fn headline(&self) -> &Value {
        &self.values[0]
    }

    /// The value of a metric, if the report has it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values.iter().find(|v| v.metric == metric).map(|v| v.value)
    }
}

/// Measures the outcomes with intervals.
pub(crate) fn values(metrics: &[Metric], outcomes: &[Outcome], labels: Labels, bootstrap: &Bootstrap) -> Vec<Value> {
    let measure =
        |picks: &[usize]| -> Vec<f64> { metrics.iter().map(|m| m.measure(outcomes, picks, labels)).collect() };
    let all: Vec<usize> = (0..outcomes.len()).collect();
    let draws = bootstrap.draw(outcomes.len(), metrics.len(), measure);
    measure(&all)
        .into_iter()
        .zip(metrics)
        .zip(draws)
        .map(|((value, metric), draws)| {
            let interval = bootstrap.interval(&draws);
            let exact = interval.and_then(|_| of_few(*metric, value, outcomes, bootstrap.confidence));
            Value { metric: *metric, value, interval: exact.or(interval) }
        })
        .collect()
}

/// Rows that are drawn again and again cannot tell how often an answer is wrong that none (or hardly one) of them has wrong: where
/// fewer than [`FEW`] are wrong, or right, the exact interval of a share (Clopper and Pearson 1934) takes the place.
fn of_few(metric: Metric, value: f64, outcomes: &[Outcome], confidence: f64) -> Option<Interval> {
    let counted = metric == Metric::Accuracy && matches!(outcomes.first(), Some(Outcome::Class { .. }));
    let (n, right) = (outcomes.len(), (value * outcomes.len() as f64).round() as usize);
    let one_sided = 1.0 - (1.0 - confidence) / 2.0;
    (counted && right.min(n - right.min(n)) < FEW)
        .then(|| Interval { low: binomial::lower(right, n, one_sided), high: binomial::upper(right, n, one_sided) })
}

/// See [`of_few`].
const FEW: usize = 10;

impl std::fmt::Display for Value {
    /// `accuracy 90.02% (87.96 to 91.97)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scale, digits, sign) = if self.metric.is_share() { (100.0, 2, "%") } else { (1.0, 4, "") };
        write!(f, "{} {:.digits$}{sign}", self.metric.name(), self.value * scale)?;
        if let Some(Interval { low, high }) = self.interval {
            write!(f, " ({:.digits$} to {:.digits$})", low * scale, high * scale)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_right_answers_of_six_prove_little() {
        let class = |right: bool| Outcome::Class { gold: 0, predicted: usize::from(!right), logits: vec![0.0, 0.0] };
        let interval = |right: usize, n: usize| {
            let outcomes: Vec<Outcome> = (0..n).map(|i| class(i < right)).collect();
            of_few(Metric::Accuracy, right as f64 / n as f64, &outcomes, 0.95)
        };
        // (0.05 / 2)^(1/6), as every table has it.
        let all = interval(6, 6).unwrap();
        assert!((all.low - 0.5407).abs() < 1e-4 && all.high == 1.0, "{all:?}");
        let none = interval(0, 6).unwrap();
        assert!(none.low == 0.0 && (none.high - 0.4593).abs() < 1e-4, "{none:?}");
        assert_eq!(interval(785, 872), None, "many can be drawn again");
    }
}
