//! Data to calibrate with and data to score on: never the same examples.

use crate::args::{ColumnArgs, positive, task};
use crate::console;
use crate::failure::Failure;
use clap::Args;
use sparing_tasks::{Dataset, Select, Split, Task};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What to read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// Calibrate with these examples: with --task the folder of its files (the train part is read), else your own table.
    /// Labels are not needed
    #[arg(long, value_name = "PATH")]
    calibrate: Option<PathBuf>,

    /// Calibrate with this many examples, drawn at random
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    samples: usize,

    /// Score on a task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad, language
    #[arg(long, value_name = "TASK", value_parser = task)]
    task: Option<Task>,

    /// Score on this: the task's folder or file, or your own table [default: the dev part in --calibrate; of your own
    /// table, what was not calibrated with]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    #[command(flatten)]
    columns: ColumnArgs,

    /// Seed of everything drawn: calibration examples, intervals
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
}

/// The two datasets, where there are any.
pub struct Data {
    pub calibration: Option<Dataset>,
    pub scoring: Option<Dataset>,
}

impl Data {
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.calibration.is_none() && self.scoring.is_none()
    }
}

impl DataArgs {
    /// Whether there are calibration data.
    pub fn calibrates(&self) -> bool {
        self.calibrate.is_some()
    }

    /// Reads both.
    pub fn read(&self) -> Result<Data, Failure> {
        let sample = Select { sample: Some(self.samples), seed: self.seed, ..Select::default() };
        let Some(task) = self.task else { return self.tables(&sample) };
        let calibration = match &self.calibrate {
            Some(path) => Some(Dataset::read(task, path, Split::Train, &sample)?),
            None => None,
        };
        let all = Select::default();
        let folder = self.calibrate.as_deref().filter(|path| path.is_dir());
        let scoring = match self.data.as_deref().or(folder) {
            Some(path) => Some(Dataset::read(task, path, Split::Dev, &all)?),
            None => match Dataset::builtin(task.name(), &all) {
                Ok(data) => Some(data),
                Err(_) => {
                    console::note("nothing is scored: give --data with the task's dev part");
                    None
                }
            },
        };
        if let (Some(a), Some(b)) = (&calibration, &scoring)
            && a.source == b.source
        {
            return Err(Failure::Usage(format!("{}: calibration and scoring need different files", a.source)));
        }
        Ok(Data { calibration, scoring })
    }

    /// The user's own tables.
    fn tables(&self, sample: &Select) -> Result<Data, Failure> {
        let columns = self.columns.columns();
        let whole = |path: &Path| Dataset::table(path, &columns, &Select::default());
        let Some(path) = &self.calibrate else {
            let scoring = self.data.as_deref().map(whole).transpose()?;
            return Ok(Data { calibration: None, scoring });
        };
        if let Some(data) = &self.data {
            let calibration = Some(Dataset::table(path, &columns, sample)?);
            return Ok(Data { calibration, scoring: Some(whole(data)?) });
        }
        let mut scoring = whole(path)?;
        // At most half: the rest is what the score is about.
        let half = Select { sample: Some(self.samples.min(scoring.examples.len() / 2).max(1)), ..*sample };
        let calibration = Dataset::table(path, &columns, &half)?;
        let used: HashSet<usize> = calibration.examples.iter().map(|e| e.line).collect();
        scoring.examples.retain(|e| !used.contains(&e.line) && e.label != sparing_tasks::Label::None);
        let scoring = if scoring.examples.is_empty() { None } else { Some(scoring) };
        Ok(Data { calibration: Some(calibration), scoring })
    }
}
