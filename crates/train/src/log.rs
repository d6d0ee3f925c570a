//! `train.jsonl`: one JSON object per step and per evaluation.

use serde::{Deserialize, Serialize};
use sparing_model::{Error, replace_file};
use sparing_tasks::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// An evaluation.
    Evaluation {
        /// Updates done.
        step: u64,
        /// What was found, the headline first.
        metrics: Vec<Value>,
    },
    /// An update.
    Step {
        /// Updates done, this one included.
        step: u64,
        /// Epochs done, with fraction.
        epoch: f64,
        /// Mean loss of the update's examples.
        loss: f64,
        /// Learning rate.
        rate: f64,
        /// Norm of the gradients before clipping.
        norm: f64,
        /// Tokens seen since the beginning.
        tokens: u64,
    },
}

impl Line {
    /// Updates done.
    pub fn step(&self) -> u64 {
        match self {
            Line::Evaluation { step, .. } | Line::Step { step, .. } => *step,
        }
    }
}

/// The log being written.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens the log and drops what is beyond the state that training goes on from: it will come again.
    pub(crate) fn open(path: &Path, step: u64, evaluated: u64) -> Result<Log, Error> {
        let mut kept = Vec::new();
        for line in read(path)? {
            let stays = match &line {
                Line::Step { step: s, .. } => *s <= step,
                Line::Evaluation { step: s, .. } => *s <= evaluated,
            };
            if stays {
                write_line(&mut kept, &line).map_err(|e| failed(path, &e))?;
            }
        }
        replace_file(path, &kept).map_err(|e| failed(path, &e))?;
        let file = OpenOptions::new().append(true).open(path).map_err(|e| failed(path, &e))?;
        Ok(Log { path: path.to_path_buf(), file })
    }

    pub(crate) fn write(&mut self, line: &Line) -> Result<(), Error> {
        let mut text = Vec::new();
        write_line(&mut text, line).and_then(|()| self.file.write_all(&text)).map_err(|e| failed(&self.path, &e))
    }
}

fn write_line(out: &mut Vec<u8>, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}

/// The lines of a log; one that a kill cut short is left out.
pub fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let file = match File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        other => other.map_err(|e| failed(path, &e))?,
    };
    let mut lines = Vec::new();
    for line in BufReader::new(file).lines() {
        if let Ok(line) = serde_json::from_str(&line.map_err(|e| failed(path, &e))?) {
            lines.push(line);
        }
    }
    Ok(lines)
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    Error::new(format!("{}: {e}", path.display()))
}
