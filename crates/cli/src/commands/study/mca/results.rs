//! Results as they are kept: one JSON object per line, added as soon as it is known.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use sparing_model::Sampler;
use sparing_tasks::Metric;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in the folder of a study.
const FILE: &str = "results.jsonl";

/// Which of the paper's tables a model belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Table 1: BERT.
    Model,
    /// Table 2: DistilBERT, a compressed model.
    Student,
    /// Table 3: Longformer.
    Long,
}

impl Part {
    /// All of them, in the paper's order.
    pub const ALL: [Part; 3] = [Part::Model, Part::Student, Part::Long];

    /// The number of the paper's table.
    pub fn table(self) -> usize {
        self as usize + 1
    }

    /// What the authors put there.
    pub fn published(self) -> &'static str {
        match self {
            Part::Model => "BERT",
            Part::Student => "DistilBERT",
            Part::Long => "Longformer",
        }
    }
}

/// One combination: measured once, found again by all of this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Which table it belongs to.
    pub part: Part,
    /// The task, or the name of the user's table.
    pub task: String,
    /// The model's name.
    pub model: String,
    /// Of the model's value weights: another training is another model.
    pub weights: String,
    /// Precision of the weights.
    pub precision: String,
    /// The plan as `--attention` has it.
    pub attention: String,
    /// Where in the paper's grid it stands; `None` for plans of the user's own.
    pub way: Option<Way>,
    /// Inputs that were scored.
    pub rows: usize,
    /// Seeds that were run: 1 where nothing is drawn.
    pub seeds: usize,
}

/// A place in the grid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// How budgets are spent.
    pub sampler: Sampler,
    /// The error coefficient.
    pub alpha: f32,
    /// What the authors pad to; `None`: the actual length.
    pub padded: Option<usize>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of what.
    #[serde(flatten)]
    pub cell: Cell,
    /// The task's metrics, the headline first.
    pub scores: Vec<Score>,
    /// Tokens of an input on average.
    pub tokens: f64,
    /// Times fewer tokens than with padding to 128: what never computing padding saves alone.
    pub padding: f64,
    /// Times fewer operations of the value encoding as the authors count.
    pub authors: f64,
    /// The same on real tokens.
    pub values: f64,
    /// Of A·X·W on real tokens.
    pub attention_ratio: f64,
    /// Of the whole model.
    pub whole: f64,
    /// Times faster than the exact engine in the same precision.
    pub time: f64,
    /// The same in CPU time of all threads, which other programs on the machine disturb less.
    pub cpu: f64,
    /// Seconds for all inputs, economised and exact: the best of the rounds, batch by batch.
    pub seconds: f64,
    /// Exactly.
    pub exact_seconds: f64,
    /// Threads it was measured with.
    pub threads: usize,
    /// Rounds the time is the best of.
    pub rounds: usize,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Which.
    pub metric: Metric,
    /// Of the exact engine in the same precision.
    pub exact: f64,
    /// Mean over the seeds.
    pub mean: f64,
    /// Half the width of its 95% interval over the seeds; `None` for a single seed.
    pub half: Option<f64>,
}

impl Measured {
    /// The task's first metric.
    pub fn headline(&self) -> Option<&Score> {
        self.scores.first()
    }

    /// Points of the headline that are lost.
    pub fn loss(&self) -> f64 {
        self.headline().map_or(f64::NAN, |score| 100.0 * (score.exact - score.mean))
    }
}

/// The results of a study, in memory and on disk.
pub struct Results {
    path: PathBuf,
    measured: Vec<Measured>,
    /// The file ends in the middle of a line.
    cut: bool,
}

impl Results {
    /// Reads what is there. A line that is no result (cut in the middle by a crash) is passed over.
    pub fn open(folder: &Path) -> Result<Results, Failure> {
        let path = folder.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Failure::new(format!("{}: cannot be read ({e})", path.display()))),
        };
        let measured = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Results { path, measured, cut: !text.is_empty() && !text.ends_with('\n') })
    }

    /// Whether a combination was measured.
    pub fn has(&self, cell: &Cell) -> bool {
        self.measured.iter().any(|measured| measured.cell == *cell)
    }

    /// Adds a result, on disk before this returns.
    pub fn add(&mut self, measured: Measured) -> Result<(), Failure> {
        let mut line = Vec::new();
        if std::mem::take(&mut self.cut) {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, &measured)?;
        line.push(b'\n');
        let write = |mut file: File| file.write_all(&line).and_then(|()| file.sync_data());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .and_then(write)
            .map_err(|e| Failure::new(format!("{}: cannot be written ({e})", self.path.display())))?;
        self.measured.push(measured);
        Ok(())
    }

    /// The newest result of every configuration, in the order they were first measured.
    pub fn newest(&self) -> Vec<Measured> {
        let mut newest: Vec<Measured> = Vec::new();
        for measured in &self.measured {
            let same = |other: &&mut Measured| {
                let (a, b) = (&other.cell, &measured.cell);
                (a.part, &a.task, &a.model, &a.precision, &a.attention)
                    == (b.part, &b.task, &b.model, &b.precision, &b.attention)
            };
            match newest.iter_mut().find(same) {
                Some(old) => *old = measured.clone(),
                None => newest.push(measured.clone()),
            }
        }
        newest
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A result in the grid.
    pub fn measured(task: &str, way: Way, (exact, mean): (f64, f64), values: f64) -> Measured {
        let length = way.padded.map_or(String::new(), |n| format!(",padded={n}"));
        Measured {
            cell: Cell {
                part: Part::Model,
                task: task.into(),
                model: "tiny".into(),
                weights: "00".into(),
                precision: "f32".into(),
                attention: format!("{}:{}{length},strict", way.sampler.name(), way.alpha),
                way: Some(way),
                rows: 100,
                seeds: 8,
            },
            scores: vec![Score { metric: Metric::Accuracy, exact, mean, half: Some(0.002) }],
            tokens: 25.0,
            padding: 5.0,
            authors: if way.padded.is_some() { 5.0 * values } else { values },
            values,
            attention_ratio: 1.25,
            whole: 1.0 + values / 100.0,
            time: 1.01,
            cpu: 1.02,
            seconds: 1.0,
            exact_seconds: 1.01,
            threads: 1,
            rounds: 3,
        }
    }

    /// The paper's sampler with the authors' padding.
    pub fn padded(alpha: f32) -> Way {
        Way { sampler: Sampler::Paper, alpha, padded: Some(128) }
    }

    #[test]
    fn what_was_measured_is_found_again_and_a_cut_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) =
            (measured("sst2", padded(0.2), (0.9, 0.89), 1.2), measured("sst2", padded(0.4), (0.9, 0.8), 2.0));
        let mut results = Results::open(folder.path()).unwrap();
        results.add(one.clone()).unwrap();
        results.add(two.clone()).unwrap();
        let path = folder.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        // Killed in the middle of the second line, wherever that was.
        for cut in whole.len() / 2 + 20..whole.len() - 1 {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut again = Results::open(folder.path()).unwrap();
            assert!(again.has(&one.cell) && !again.has(&two.cell), "{cut}");
            again.add(two.clone()).unwrap();
            assert_eq!(Results::open(folder.path()).unwrap().newest(), [one.clone(), two.clone()], "{cut}");
        }
    }

    #[test]
    fn the_newest_counts_and_other_seeds_are_another_combination() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path()).unwrap();
        let old = measured("sst2", padded(0.2), (0.9, 0.89), 1.2);
        let mut new = old.clone();
        new.cell.seeds = 128;
        results.add(old.clone()).unwrap();
        assert!(!results.has(&new.cell));
        results.add(new.clone()).unwrap();
        assert!(results.has(&old.cell) && results.has(&new.cell));
        assert_eq!(results.newest(), [new]);
    }
}
