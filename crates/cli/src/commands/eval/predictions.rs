//! What came of every example, one JSON object per line.

use crate::failure::Failure;
use crate::files;
use serde::Serialize;
use sparing_tasks::{Dataset, Outcome, Report};
use std::path::Path;

#[derive(Serialize)]
struct Prediction<'a> {
    /// Where the example stands in its file.
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    /// Names, where the outcome has numbers of labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    gold_label: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_label: Option<&'a str>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Writes the file beside, then renames it.
pub fn write(path: &Path, dataset: &Dataset, report: &Report, labels: &[String]) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    for (&number, outcome) in report.examples.iter().zip(&report.outcomes) {
        let Some(example) = dataset.examples.get(number) else { continue };
        let name = |label: usize| labels.get(label).map(String::as_str);
        let (gold_label, predicted_label) = match outcome {
            Outcome::Class { gold, predicted, .. } => (name(*gold), name(*predicted)),
            _ => (None, None),
        };
        let prediction = Prediction {
            line: example.line,
            id: example.id.as_deref(),
            text: &example.text,
            pair: example.pair.as_deref(),
            gold_label,
            predicted_label,
            outcome,
        };
        serde_json::to_writer(&mut bytes, &prediction)?;
        bytes.push(b'\n');
    }
    files::write(path, &bytes)
}
