//! Where a training stands, on disk: everything needed to go on to the same curve after a kill at any moment.
//!
//! A checkpoint is a directory that is written beside and renamed, so it is there whole or not at all. All randomness
//! is a function of seed and step, so the step is all there is to know about position.

use crate::optimizer::{from_weights, to_owned};
use crate::{AdamW, Parameters};
use serde::{Deserialize, Serialize};
use sparing_model::{Error, Weights, write_directory};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a training stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Updates done.
    pub step: u64,
    /// The step of the last evaluation.
    pub evaluated: u64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Evaluations since the best one.
    pub waited: usize,
    /// Early stopping has ended the training.
    pub stopped: bool,
    /// Tokens seen.
    pub tokens: u64,
    /// What the hook remembers.
    #[serde(default)]
    pub memory: serde_json::Value,
    /// What the curve depends on; a checkpoint of other options is refused.
    pub options: serde_json::Value,
}

/// The best evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// After this many updates.
    pub step: u64,
    /// The headline metric.
    pub value: f64,
}

/// A directory for everything that a training leaves behind until it is done.
#[derive(Debug, Clone)]
pub struct Work {
    directory: PathBuf,
}

const PREFIX: &str = "checkpoint-";

impl Work {
    /// The directory, made if it is not there.
    pub fn new(directory: &Path) -> Result<Work, Error> {
        fs::create_dir_all(directory)
            .map_err(|e| Error::new(format!("{}: cannot be made ({e})", directory.display())))?;
        Ok(Work { directory: directory.to_path_buf() })
    }

    /// Where the best model so far is kept.
    pub fn best(&self) -> PathBuf {
        self.directory.join("best")
    }

    /// Where the log is.
    pub fn log(&self) -> PathBuf {
        self.directory.join("train.jsonl")
    }

    /// Saves, then removes older checkpoints.
    pub fn save(&self, state: &State, parameters: &Parameters, optimizer: &AdamW) -> Result<(), Error> {
        // An evaluation without a step is progress too: both numbers are in the name, and no name is written twice.
        let target = self.directory.join(format!("{PREFIX}{:010}-{:010}", state.step, state.evaluated));
        if target.exists() {
            return Ok(());
        }
        let mut tensors = optimizer.to_tensors()?;
        for (name, parameter) in parameters.iter() {
            tensors.push(to_owned(&format!("parameter/{name}"), &parameter.value)?);
        }
        let text = serde_json::to_vec_pretty(state).map_err(|e| Error::new(format!("state.json: {e}")))?;
        write_directory(&target, &[("state.json", &text)], &tensors)?;
        for path in self.checkpoints() {
            if path != target {
                // What is left behind costs space, nothing else.
                let _ = fs::remove_dir_all(path);
            }
        }
        Ok(())
    }

    /// Goes back to the newest checkpoint, if there is one. The error names the first option that differs.
    pub fn restore(
        &self,
        options: &serde_json::Value,
        parameters: &mut Parameters,
        optimizer: &mut AdamW,
    ) -> Result<Option<State>, Error> {
        self.sweep();
        let Some(path) = self.checkpoints().pop() else { return Ok(None) };
        let file = path.join("state.json");
        let bad = |why: String| Error::new(format!("{}: {why}", file.display()));
        let text = fs::read(&file).map_err(|e| bad(format!("cannot be read ({e})")))?;
        let state: State = serde_json::from_slice(&text).map_err(|e| bad(format!("not a checkpoint ({e})")))?;
        if let Some(what) = difference(&state.options, options) {
            return Err(bad(format!(
                "this checkpoint was made with other options: {what}; give the same ones, or start over"
            )));
        }
        let weights = Weights::open(&path)?;
        let device = parameters.device().clone();
        for (name, parameter) in parameters.iter_mut() {
            let value = from_weights(&weights, &format!("parameter/{name}"), &device)?;
            if value.dims() != parameter.value.dims() {
                return Err(bad(format!("tensor \"{name}\" has another shape in this model")));
            }
            parameter.value = if parameter.trainable { value.require_grad() } else { value };
        }
        optimizer.restore(&weights, state.step, &device)?;
        Ok(Some(state))
    }

    /// Whether there is a checkpoint.
    pub fn has_checkpoint(&self) -> bool {
        !self.checkpoints().is_empty()
    }

    /// All whole checkpoints, the furthest last.
    fn checkpoints(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
            .map(|entry| entry.path())
            .filter(|path| path.join("state.json").is_file())
            .collect();
        found.sort();
        found
    }

    /// Removes what a killed write left behind.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') && (name.contains(".partial-") || name.contains(".old-")) {
                let path = entry.path();
                let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            }
        }
    }
}

/// The first field that differs, as `lr was 2e-5, is 3e-5`.
pub(crate) fn difference(was: &serde_json::Value, is: &serde_json::Value) -> Option<String> {
    let (Some(old), Some(new)) = (was.as_object(), is.as_object()) else {
        return (was != is).then(|| "they cannot be compared".to_string());
    };
    let absent = serde_json::Value::Null;
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.into_iter().find_map(|name| {
        let (a, b) = (old.get(name).unwrap_or(&absent), new.get(name).unwrap_or(&absent));
        (a != b).then(|| format!("{name} was {a}, is {b}"))
    })
}
