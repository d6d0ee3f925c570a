//! What an optimisation found.

use crate::number::or_nan;
use crate::{Candidate, ElementMap, Focus, Interval, Machine, Model, Task, Verdict, Versions};
use serde::{Deserialize, Serialize};

/// What an optimisation was asked, what it tried and what it found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Version of this format: [`Report::VERSION`] when written.
    pub version: u32,
    /// The command line, to do it again.
    pub command: String,
    /// Seed of everything random.
    pub seed: u64,
    /// When, as RFC 3339 has it.
    pub created: String,
    /// Seconds that the whole optimisation took.
    pub seconds: Option<f64>,
    /// What it ran on.
    pub machine: Machine,
    /// Versions of what ran.
    pub versions: Versions,
    /// Tells the model as it came, and the rows that only the report sees, apart from others under the same names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub marks: String,
    /// The model that was optimised.
    pub model: Model,
    /// What mattered most.
    pub focus: Focus,
    /// The largest loss that the user accepts, relative to the baseline's score: 0.005 keeps 99.5%.
    #[serde(deserialize_with = "or_nan")]
    pub budget: f64,
    /// How plans were searched for.
    pub strategy: String,
    /// With which end of the network it begins, where it goes by layers: "from the top".
    #[serde(skip_serializing_if = "String::is_empty")]
    pub order: String,
    /// How the significance of elements was judged.
    pub analysis: String,
    /// What could be economised.
    pub economies: Vec<String>,
    /// What the model is for.
    pub task: Task,
    /// What it takes to be within the budget on searched rows, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub criterion: String,
    /// Confidence of every interval, 0 to 1.
    pub confidence: Option<f64>,
    /// What was timed, in words: "one sentence at a time, 2 threads, median of 30 runs".
    pub timing: String,
    /// The model as it came.
    pub baseline: Candidate,
    /// Bytes of its weights in 32-bit floats, where it came in fewer bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f32_bytes: Option<u64>,
    /// Whether the chosen candidate is within the budget on rows that the search never saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Share of the baseline's score on those rows that the chosen candidate loses; negative if it gains.
    pub lost: Option<f64>,
    /// Index of the chosen candidate; `None`: nothing is better than the model as it came.
    pub chosen: Option<usize>,
    /// Everything that was tried, in order; without the baseline.
    pub candidates: Vec<Candidate>,
    /// What became of every part of the network in the chosen candidate.
    pub elements: ElementMap,
    /// What each technique saves, in the order applied.
    pub gains: Vec<Gain>,
    /// The baseline's time by part.
    pub parts_before: Vec<PartTime>,
    /// The chosen candidate's time by part.
    pub parts_after: Vec<PartTime>,
    /// How the search came to its end.
    pub ended: Ended,
    /// What failed, where [`Report::ended`] says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What the user should be told: "300 rows are too few to tell 0.5% from luck".
    pub notes: Vec<String>,
    /// The saved directory, measured again by a process that knows nothing else.
    pub verification: Option<Verification>,
}

/// How a search came to its end. Whatever it was, what is saved has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// There was nothing left to try.
    #[default]
    Whole,
    /// It was asked to stop.
    Stopped,
    /// A training failed.
    Failed,
}

/// What one technique saves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gain {
    /// Its name.
    pub technique: String,
    /// Share of the baseline's time that it saves; negative if it costs time. All together `1 - 1 / time_ratio` of the
    /// chosen candidate, unless that saved nothing.
    #[serde(deserialize_with = "or_nan")]
    pub time: f64,
    /// Interval of [`Gain::time`], where it was timed. One that has zero in it counts as nothing saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_interval: Option<Interval>,
    /// Share of the baseline's bytes that it saves.
    #[serde(deserialize_with = "or_nan")]
    pub bytes: f64,
}

/// Time of one part of the network.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartTime {
    /// "embeddings", "queries, keys, values", "attention", "attention output", "feed-forward", "norms", "head"...
    pub part: String,
    /// Milliseconds, all layers together, of whatever [`Report::timing`] says.
    #[serde(deserialize_with = "or_nan")]
    pub ms: f64,
}

/// What a fresh process measured from the saved directory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// The metric on unseen rows.
    #[serde(deserialize_with = "or_nan")]
    pub score: f64,
    /// The baseline's time over the saved model's.
    #[serde(deserialize_with = "or_nan")]
    pub time_ratio: f64,
    /// Where that lies, as far as the rounds of the race tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_interval: Option<Interval>,
    /// Where the search's own process found it with the copy that it saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_time: Option<Interval>,
    /// Bytes of the saved weights.
    pub bytes: u64,
}

impl Verification {
    /// Whether the saved directory is what the search promised: the same score and bytes, and a time within the tenth
    /// that one process differs from another.
    pub fn confirms(&self, promised: &Candidate) -> bool {
        let near = |a: f64, b: f64, within: f64| (a - b).abs() <= within * b.abs();
        promised.score.is_none_or(|score| near(self.score, score, 1e-3))
            && near(self.bytes as f64, promised.bytes as f64, 1e-3)
            && self.confirms_time(promised)
    }

    /// Whether two processes found the same speed, as far as rounds and the tenth between processes tell.
    pub fn confirms_time(&self, promised: &Candidate) -> bool {
        let point = |at: f64| Interval { low: at, high: at };
        let found = self.time_interval.unwrap_or(point(self.time_ratio));
        let own = self.search_time.unwrap_or(point(promised.time_ratio));
        found.low <= 1.1 * own.high && found.high >= 0.9 * own.low
    }
}

impl Report {
    /// Version of the format that this code writes.
    pub const VERSION: u32 = 1;

    /// The candidate that was chosen, if any was.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.get(self.chosen?)
    }

    /// Reads `report.json`.
    pub fn parse(json: &str) -> Result<Report, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The text of `report.json`.
    pub fn json(&self) -> String {
        // Every key is a string and every value is one that JSON has: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
