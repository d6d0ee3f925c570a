//! What came of a training, on disk.

use super::config::Training;
use super::training::{Data, Job};
use crate::attention::Kind;
use crate::log;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sparing_model::{Error, replace_file};
use sparing_tasks::lra::{Set, Task};
use std::fs;
use std::path::Path;

/// What came of a training, or has come of it so far; a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The task.
    pub task: Task,
    /// What the configuration is called.
    pub configuration: String,
    /// What the mechanism is called.
    pub attention: String,
    /// The mechanism.
    pub kind: Kind,
    /// Seed.
    pub seed: u64,
    /// Updates done.
    pub steps: u64,
    /// Updates planned.
    pub planned: u64,
    /// Examples per update.
    pub batch: usize,
    /// Longest sequence.
    pub length: usize,
    /// Share of the test set that is right, with the numbers that were best on the dev set. `None`: still being trained,
    /// or stopped before it came to that.
    pub score: Option<f64>,
    /// Examples of the test set.
    pub tested: usize,
    /// Best share of the dev set that was right; `None`: not evaluated yet.
    pub dev: Option<f64>,
    /// Updates after which that was.
    pub best_step: u64,
    /// Mean loss of the last tenth of the updates; `None`: not known yet.
    pub late_loss: Option<f64>,
    /// Updates per second, evaluations left out.
    pub steps_per_second: f64,
    /// Memory, bytes: what was reserved on the device, or the process's peak on the CPU. 0: not known.
    pub peak_bytes: u64,
    /// Trained numbers.
    pub parameters: usize,
    /// Where it was computed.
    pub device: String,
    /// How it was trained and on what; records of earlier versions do not say.
    #[serde(default)]
    pub settings: Option<Settings>,
}

/// What a score depends on beside the mechanism and the seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The encoder, the rate and all else.
    pub training: Training,
    /// Fingerprints of the examples to train on,
    pub train: String,
    /// to choose by,
    pub dev: String,
    /// and to report.
    pub test: String,
}

impl Settings {
    /// Those of a training.
    pub fn of(training: &Training, data: &Data) -> Settings {
        let [train, dev, test] = [&data.train, &data.dev, &data.test].map(Set::fingerprint);
        Settings { training: training.clone(), train, dev, test }
    }

    /// What differs first.
    fn difference(&self, other: &Settings) -> Option<&'static str> {
        let (a, b) = (&self.training, &other.training);
        let parts = [
            ("the encoder differs", a.encoder == b.encoder),
            ("the number of updates differs", a.steps == b.steps),
            ("the batch differs", a.batch == b.batch),
            ("the length differs", a.length == b.length),
            ("the rate differs", a.schedule == b.schedule),
            ("the optimizer differs", a.adam == b.adam),
            ("dropout differs", a.dropout == b.dropout),
            ("the examples to train on differ", self.train == other.train),
            ("the dev examples differ", self.dev == other.dev),
            ("the test examples differ", self.test == other.test),
        ];
        parts.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
    }

    /// How many examples were trained on: a fingerprint begins with it.
    fn examples(&self) -> Option<usize> {
        self.train.split(' ').next()?.parse().ok()
    }
}

/// The file of a record.
pub const RECORD: &str = "record.json";

impl Record {
    /// Of a training that has only begun, or goes on from what the directory holds.
    pub(super) fn begun(
        job: &Job,
        settings: Settings,
        parameters: usize,
        device: &str,
        directory: &Path,
    ) -> Result<Record, Error> {
        let earlier = Record::of(directory, job, &settings)?;
        // What was the best so far still is.
        let (dev, best_step) = earlier.as_ref().map_or((None, 0), |record| (record.dev, record.best_step));
        Ok(Record {
            task: job.task,
            configuration: job.configuration.clone(),
            attention: job.attention.clone(),
            kind: job.kind.clone(),
            seed: job.seed,
            steps: 0,
            planned: job.training.steps,
            batch: job.training.batch,
            length: job.training.length,
            score: None,
            tested: 0,
            dev,
            best_step,
            late_loss: None,
            steps_per_second: earlier.map_or(0.0, |record| record.steps_per_second),
            peak_bytes: 0,
            parameters,
            device: device.to_string(),
            settings: Some(settings),
        })
    }

    /// What keeps it from being of this training; `None` if nothing does.
    fn other(&self, job: &Job, settings: &Settings) -> Option<&'static str> {
        match &self.settings {
            _ if self.kind != job.kind => Some("the attention differs"),
            None => Some("its record is of an earlier version and does not say which"),
            Some(own) => own.difference(settings),
        }
    }

    /// The record of a directory, which must be of this training; `None` if there is none.
    pub fn of(directory: &Path, job: &Job, settings: &Settings) -> Result<Option<Record>, Error> {
        let Some(record) = Record::read(directory)? else { return Ok(None) };
        match record.other(job, settings) {
            None => Ok(Some(record)),
            Some(what) => Err(Error::new(format!(
                "{}: holds a training of other settings ({what}); give another --out, or remove it",
                directory.display()
            ))),
        }
    }

    /// What differs first between two trainings of one task, the seed aside.
    pub fn difference(&self, other: &Record) -> Option<&'static str> {
        let of = |record: &Record| (record.planned, record.batch, record.length);
        match (&self.settings, &other.settings) {
            _ if self.kind != other.kind => Some("the attention differs"),
            (Some(own), Some(other)) => own.difference(other),
            (None, None) if of(self) == of(other) => None,
            _ => Some("the settings differ, or are not known of one"),
        }
    }

    /// How many examples were trained on; `None`: a record of an earlier version.
    pub fn trained_on(&self) -> Option<usize> {
        self.settings.as_ref()?.examples()
    }

    /// Takes what was measured; a speed that is not known leaves the earlier one.
    pub(super) fn measured(&mut self, speed: Option<f64>, peak: u64) {
        self.steps_per_second = speed.unwrap_or(self.steps_per_second);
        self.peak_bytes = peak;
    }

    /// The record of a directory; `None` if there is none.
    pub fn read(directory: &Path) -> Result<Option<Record>, Error> {
        read_json(&directory.join(RECORD), "a record")
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), Error> {
        write_json(&directory.join(RECORD), self)
    }
}

/// What a file holds; `None` if there is none.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Option<T>, Error> {
    let Ok(text) = fs::read(path) else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|e| Error::new(format!("{}: not {what} ({e})", path.display())))
}

/// Writes a file, whole or not at all.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| Error::new(format!("{}: cannot be written ({e})", path.display()));
    let text = serde_json::to_vec_pretty(value).map_err(|e| failed(&e))?;
    replace_file(path, &text).map_err(|e| failed(&e))
}

/// Mean loss of the last tenth of a log's updates.
pub(super) fn late_loss(path: &Path) -> Result<Option<f64>, Error> {
    let loss = |line: &log::Line| if let log::Line::Step { loss, .. } = line { Some(*loss) } else { None };
    let losses: Vec<f64> = log::read(path)?.iter().filter_map(loss).collect();
    let late = &losses[losses.len() - losses.len().div_ceil(10)..];
    Ok((!late.is_empty()).then(|| late.iter().sum::<f64>() / late.len() as f64))
}
