//! What was asked for.

use serde::{Deserialize, Serialize};

/// What matters most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Focus {
    /// Least time.
    #[default]
    Speed,
    /// Fewest bytes.
    Size,
    /// Best score.
    Accuracy,
}

impl Focus {
    /// `speed`, `size` or `accuracy`.
    pub fn name(self) -> &'static str {
        match self {
            Focus::Speed => "speed",
            Focus::Size => "size",
            Focus::Accuracy => "accuracy",
        }
    }
}

/// The model that was optimised.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Model {
    /// As the user gave it: a directory or a name on the Hub.
    pub name: String,
    /// Its name on the Hub (`owner/name`), if it came from there.
    pub hub: Option<String>,
    /// `model_type` of its `config.json`.
    pub family: String,
}

/// What the model is for, and how that is scored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// The task's name, or the file's for the user's own data.
    pub name: String,
    /// The headline metric.
    pub metric: Metric,
    /// Rows that the search looked at.
    pub search_rows: usize,
    /// Rows that only the final scores were measured on.
    pub report_rows: usize,
}

/// What is measured, and how to show it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metric {
    /// `accuracy`, `F1`, `perplexity`...
    pub name: String,
    /// 0 to 1, shown as a percentage.
    pub is_share: bool,
    /// As with perplexity.
    pub lower_is_better: bool,
}
