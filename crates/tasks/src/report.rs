//! What an evaluation found.

use crate::Task;
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
        .map(|((value, metric), draws)| Value { metric: *metric, value, interval: bootstrap.interval(&draws) })
        .collect()
}

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
