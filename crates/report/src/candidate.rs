//! One model that was tried.

use crate::number::or_nan;
use serde::{Deserialize, Serialize};

/// One model that was tried: its plan, its score and its cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Candidate {
    /// Short and unique in the report.
    pub name: String,
    /// The plan as `sparing.json` has it.
    pub plan: serde_json::Value,
    /// What the plan does, in words.
    pub what: String,
    /// The metric on the rows that the search looked at.
    #[serde(deserialize_with = "or_nan")]
    pub search_score: f64,
    /// Interval of [`Candidate::search_score`] beside the baseline's: by the standard error of the difference, for both saw the
    /// same rows.
    pub search_interval: Option<Interval>,
    /// The metric on rows that the search never saw; only for candidates that were measured there.
    pub score: Option<f64>,
    /// Interval of [`Candidate::score`].
    pub interval: Option<Interval>,
    /// Paired interval of `score - baseline's score` on unseen rows: how well the data tell the two apart.
    pub change: Option<Interval>,
    /// Share of unseen (else of searched) rows with the same answer as the baseline's, 0 to 1.
    pub agreement: Option<f64>,
    /// Share of the baseline's score on searched rows that is lost by the baseline's own belief: how much less it believes in
    /// this candidate's answers than in its own. [`Candidate::meets_budget`] goes by it.
    pub doubt: Option<f64>,
    /// Standard error of the share of the score that is lost on searched rows.
    pub luck: Option<f64>,
    /// The baseline's time over this one's: 2 is twice as fast.
    #[serde(deserialize_with = "or_nan")]
    pub time_ratio: f64,
    /// Interval of [`Candidate::time_ratio`]; only for candidates that were timed, the others are foreseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_interval: Option<Interval>,
    /// Milliseconds, of whatever [`crate::Report::timing`] says.
    #[serde(deserialize_with = "or_nan")]
    pub time_ms: f64,
    /// Bytes of the saved weights.
    pub bytes: u64,
    /// Bytes that packed weights and tables take in memory, where known. What a request needs comes on top.
    pub memory_bytes: Option<u64>,
    /// The loss on searched rows is within the budget: [`Candidate::doubt`], and the score give or take [`Candidate::luck`].
    /// What unseen rows say of the chosen one is [`crate::Report::verdict`].
    pub meets_budget: bool,
    /// Nothing that was tried is better in one of score, time and size without being worse in another.
    pub on_frontier: bool,
}

impl Candidate {
    /// Whether its time is measured; else it is foreseen.
    pub fn is_timed(&self) -> bool {
        self.time_interval.is_some()
    }
}

/// Where the true number probably lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    #[serde(deserialize_with = "or_nan")]
    pub low: f64,
    /// Upper end.
    #[serde(deserialize_with = "or_nan")]
    pub high: f64,
}
