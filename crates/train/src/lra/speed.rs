//! How fast updates of one mechanism at one length are, on random texts.

use super::config::Training;
use super::encoder::Encoder;
use super::record::{read_json, write_json};
use super::training::Classes;
use crate::attention::Kind;
use crate::clock::wait;
use crate::objective::{Objective, Pass};
use crate::optimizer::NamedGradients;
use crate::random::Random;
use crate::trainer::collect;
use crate::{AdamW, Parameters};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use sparing_tasks::lra::{Set, Task};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most updates that are timed together: a GPU's queue is not endless.
const MOST: u64 = 100;

/// What is known of a mechanism's updates at one length; a cell of the table of speeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSpeed {
    /// What the configuration is called.
    pub configuration: String,
    /// What the mechanism is called.
    pub attention: String,
    /// The mechanism.
    pub kind: Kind,
    /// Tokens of every sequence.
    pub length: usize,
    /// Sequences per update.
    pub batch: usize,
    /// Where it was computed.
    pub device: String,
    /// Updates that were timed, after the first one, which compiles.
    pub updates: u64,
    /// Updates per second; `None`: it did not get so far.
    pub updates_per_second: Option<f64>,
    /// Memory that updates took, bytes: what was reserved on the device, or the process's peak on the CPU. 0: not known.
    pub peak_bytes: u64,
    /// Trained numbers.
    pub parameters: usize,
    /// Why there is no speed.
    pub failure: Option<String>,
    /// With which settings; figures of earlier versions do not say.
    #[serde(default)]
    pub training: Option<Training>,
}

impl MeasuredSpeed {
    /// The cell of a file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<MeasuredSpeed>, Error> {
        read_json(path, "a measured speed")
    }

    /// Whether this is of the same mechanism in the same encoder, trained alike as far as its time depends on it. What does not
    /// say of which is of none.
    pub fn is_of(&self, kind: &Kind, training: &Training) -> bool {
        let alike = |own: &Training| {
            let same = |a: &Training, b: &Training| (&a.encoder, a.adam, a.dropout) == (&b.encoder, b.adam, b.dropout);
            same(own, training) && (own.length, own.batch) == (training.length, training.batch)
        };
        self.kind == *kind && self.training.as_ref().is_some_and(alike)
    }

    /// Writes it whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        write_json(path, self)
    }
}

/// Updates of an encoder with fresh numbers on one batch of random bytes, none of it padding.
pub struct UpdateClock {
    encoder: Encoder,
    training: Training,
    examples: Set,
    parameters: Parameters,
    optimizer: AdamW,
    done: u64,
}

impl UpdateClock {
    /// The task is text's: classes of one sequence of bytes, `training.length` long.
    pub fn new(training: &Training, kind: &Kind, device: &Device) -> Result<UpdateClock, Error> {
        let encoder = Encoder::new(training, kind, Task::Text)?;
        let mut random = Random::new(0);
        let mut examples = Set::new(Task::Text);
        for number in 0..training.batch {
            let text: Vec<u8> = (0..training.length).map(|_| random.below(Task::Text.vocabulary()) as u8).collect();
            examples.push(&[&text], (number % Task::Text.classes()) as u8);
        }
        let parameters = encoder.parameters(0, &device.clone().autodiff());
        let optimizer = AdamW::new(training.adam, BTreeMap::new());
        Ok(UpdateClock { encoder, training: training.clone(), examples, parameters, optimizer, done: 0 })
    }

    /// Trained numbers.
    pub fn parameters(&self) -> usize {
        self.parameters.trained()
    }

    /// How many updates were timed and how many there are in a second: after the first one at least one, and for about
    /// as long as `limit` says if that is more.
    pub fn measure(&mut self, limit: Duration) -> Result<(u64, f64), Error> {
        self.updates(1)?;
        let first = self.updates(1)?;
        let more = ((limit.as_secs_f64() / first.max(1e-6)) as u64).min(MOST);
        let (updates, seconds) = if more > 1 { (more, self.updates(more)?) } else { (1, first) };
        Ok((updates, updates as f64 / seconds.max(1e-9)))
    }

    /// Seconds that so many updates take, the device waited for at the end only, as in training.
    fn updates(&mut self, count: u64) -> Result<f64, Error> {
        wait(self.parameters.device())?;
        let start = Instant::now();
        let mut last = None;
        for _ in 0..count {
            last = Some(self.update()?);
        }
        let loss = last.map(|loss| loss.try_into_vec_as::<f32>()).transpose();
        let loss = loss.map_err(|e| crate::device::unread("a loss", e))?;
        wait(self.parameters.device())?;
        match loss.is_some_and(|loss| loss.iter().all(|loss| loss.is_finite())) {
            true => Ok(start.elapsed().as_secs_f64()),
            false => Err(Error::new("the loss is not a number")),
        }
    }

    /// Forward, backward and Adam's step; the loss, still on the device.
    fn update(&mut self) -> Result<Tensor<1>, Error> {
        let seed = self.done;
        self.done += 1;
        self.parameters.device().seed(seed);
        let objective = Classes::new(&self.encoder, &self.examples);
        let all: Vec<usize> = (0..self.examples.len()).collect();
        let pass = Pass { seed, epoch: 0, step: seed, dropout: self.training.dropout, bf16: false };
        let loss = objective.loss(&self.parameters, &all, &pass)?.value;
        let mut gradients = NamedGradients::new();
        collect(&self.parameters, &loss, &mut gradients);
        self.optimizer.update(&mut self.parameters, gradients, self.training.schedule.rate)?;
        Ok(loss.inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::catalogue;
    use crate::lra::recipes;

    /// Every mechanism of the catalogue can be timed, and its updates change its numbers.
    #[test]
    fn updates_of_all_mechanisms() {
        let recipes = recipes("small", None).unwrap();
        let mut training = Training::of(&recipes, Task::Text).unwrap().clone();
        (training.length, training.batch) = (64, 2);
        for (name, kind) in catalogue().unwrap() {
            let mut clock = UpdateClock::new(&training, &kind, &Device::flex()).unwrap();
            let numbers = |clock: &UpdateClock| {
                let value = clock.parameters.get("tokens").unwrap().value.clone();
                value.try_into_vec_as::<f32>().unwrap()
            };
            let before = numbers(&clock);
            let (updates, speed) = clock.measure(Duration::ZERO).unwrap();
            assert!(updates == 1 && speed > 0.0, "{name}");
            assert_eq!(clock.done, 2, "{name}");
            assert_ne!(numbers(&clock), before, "{name}");
        }
    }
}
