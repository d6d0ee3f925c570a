//! What trainings found, one by one and together.

use serde::{Deserialize, Serialize};
use sparing_tasks::{Mean, Metric, Value};
use std::path::PathBuf;

/// One finished training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Its seed.
    pub seed: u64,
    /// Where the model is.
    pub directory: PathBuf,
    /// Updates done.
    pub steps: u64,
    /// The update whose model was kept.
    pub kept: u64,
    /// Loss of the last update.
    pub last_loss: f64,
    /// Mean loss of the last tenth of the updates.
    pub late_loss: f64,
    /// Tokens seen.
    pub tokens: u64,
    /// Seconds of the run that finished it.
    pub seconds: f64,
    /// Updates of that run that a GPU repeated by itself.
    #[serde(default)]
    pub repeated: u64,
    /// Why it did not, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<String>,
    /// What the training's own evaluation said of the model that was kept.
    pub trained: Vec<Value>,
    /// What the engine says of the directory that was written, with intervals.
    pub saved: Vec<Value>,
}

/// Several trainings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// One per seed.
    pub runs: Vec<RunSummary>,
    /// Of the saved models, the headline first.
    pub means: Vec<Mean>,
    /// False: stopped before all seeds were done; what was done is saved.
    pub complete: bool,
    /// What the user should be told.
    pub notes: Vec<String>,
}

impl Summary {
    /// Sums up.
    pub fn new(runs: Vec<RunSummary>, complete: bool, notes: Vec<String>) -> Summary {
        let metrics: Vec<Metric> = runs.first().map(|r| r.saved.iter().map(|v| v.metric).collect()).unwrap_or_default();
        let of = |metric: Metric| -> Vec<f64> {
            runs.iter().filter_map(|r| r.saved.iter().find(|v| v.metric == metric)).map(|v| v.value).collect()
        };
        let means = metrics.into_iter().map(|metric| Mean::new(metric, &of(metric))).collect();
        Summary { runs, means, complete, notes }
    }
}
