//! Trains an encoder on a task and says what came of it.

use super::config::Training;
use super::encoder::{Encoder, Mode};
use crate::attention::Kind;
use crate::checkpoint::Work;
use crate::losses::cross_entropy;
use crate::objective::{Loss, Objective, Pass};
use crate::trainer::{Event, Judge, TrainOptions, Watch, train};
use crate::{Parameters, log};
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use sparing_model::{Error, OwnedTensor, Weights, write_directory};
use sparing_tasks::lra::{Example, Set, Task};
use sparing_tasks::{Metric, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// What is trained on and judged by.
pub struct Data {
    /// To train on.
    pub train: Set,
    /// To choose by.
    pub dev: Set,
    /// To report.
    pub test: Set,
}

/// One training.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The task.
    pub task: Task,
    /// What the configuration is called.
    pub configuration: String,
    /// The configuration.
    pub training: Training,
    /// What the mechanism is called.
    pub attention: String,
    /// The mechanism.
    pub kind: Kind,
    /// Decides everything random.
    pub seed: u64,
    /// Evaluate after this many updates.
    pub evaluate_every: u64,
    /// Save after this many updates.
    pub checkpoint_steps: u64,
    /// Stop here and save, to go on another time.
    pub stop_at: Option<u64>,
}

/// What came of a training; a row of the table.
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
    /// Share of the test set that is right, with the numbers that were best on the dev set.
    pub score: f64,
    /// Examples of the test set.
    pub tested: usize,
    /// Best share of the dev set that was right, and after how many updates.
    pub dev: f64,
    /// See `dev`.
    pub best_step: u64,
    /// Mean loss of the last tenth of the updates.
    pub late_loss: f64,
    /// Updates per second, evaluations left out.
    pub steps_per_second: f64,
    /// Most memory in use, bytes: the device's, or the process's on the CPU. 0: not known.
    pub peak_bytes: u64,
    /// Trained numbers.
    pub parameters: usize,
    /// Where it was computed.
    pub device: String,
}

/// The file of a record.
pub const RECORD: &str = "record.json";

struct Classes<'a> {
    encoder: &'a Encoder,
    set: &'a Set,
    lengths: Vec<usize>,
}

impl Objective for Classes<'_> {
    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn loss(&self, parameters: &Parameters, examples: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let chosen: Vec<Example<'_>> = examples.iter().map(|number| self.set.example(*number)).collect();
        let mode = Mode { dropout: pass.dropout, seed: pass.seed };
        let scores = self.encoder.forward(parameters, &chosen, mode)?;
        let labels: Vec<i32> = chosen.iter().map(|example| i32::from(example.label)).collect();
        let labels: Tensor<1, Int> = Tensor::from_data(TensorData::new(labels, [chosen.len()]), &scores.device());
        let tokens = chosen.iter().flat_map(|example| example.sequences).map(<[u8]>::len).sum();
        Ok(Loss { value: cross_entropy(scores, labels), tokens })
    }
}

/// Share of a set that is right; `None` if the watcher asked to stop.
pub fn accuracy(
    encoder: &Encoder,
    parameters: &Parameters,
    set: &Set,
    batch: usize,
    watch: &mut Watch<'_>,
) -> Result<Option<f64>, Error> {
    let parameters = parameters.without_autodiff();
    let lengths = set.lengths();
    let mut order: Vec<usize> = (0..set.len()).collect();
    order.sort_by_key(|number| lengths[*number]);
    let mut right = 0;
    for numbers in order.chunks(batch.max(1)) {
        if !watch(&Event::Waiting) {
            return Ok(None);
        }
        let examples: Vec<Example<'_>> = numbers.iter().map(|number| set.example(*number)).collect();
        let scores = encoder.forward(&parameters, &examples, Mode { dropout: 0.0, seed: 0 })?;
        let found = scores.argmax(1).try_into_vec_as::<i32>();
        let found = found.map_err(|e| Error::new(format!("the device gave no scores: {e:?}")))?;
        right += found.iter().zip(&examples).filter(|(found, example)| **found == i32::from(example.label)).count();
    }
    Ok(Some(right as f64 / set.len().max(1) as f64))
}

struct DevJudge<'a> {
    encoder: &'a Encoder,
    set: &'a Set,
    batch: usize,
    best: &'a Path,
    seconds: f64,
}

impl Judge for DevJudge<'_> {
    fn evaluate(&mut self, parameters: &Parameters, watch: &mut Watch<'_>) -> Result<Option<Vec<Value>>, Error> {
        let start = Instant::now();
        let found = accuracy(self.encoder, parameters, self.set, self.batch, watch)?;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(found.map(|value| vec![Value { metric: Metric::Accuracy, value, interval: None }]))
    }

    fn keep(&mut self, parameters: &Parameters) -> Result<(), Error> {
        let tensors: Vec<OwnedTensor> = parameters.to_tensors()?;
        let config = serde_json::to_vec_pretty(self.encoder).map_err(|e| Error::new(format!("config.json: {e}")))?;
        write_directory(self.best, &[("config.json", &config)], &tensors)
    }
}

/// Trains in a directory, from the checkpoint there if there is one, and writes the record. `None` if it was asked to stop
/// or has come to where it should stop: the same call goes on.
pub fn run(
    job: &Job,
    data: &Data,
    directory: &Path,
    device: (&str, Device),
    peak: &dyn Fn() -> u64,
    watch: &mut Watch<'_>,
) -> Result<Option<Record>, Error> {
    let encoder = Encoder::new(&job.training, &job.kind, job.task)?;
    let (device_name, device) = device;
    let mut parameters = encoder.parameters(job.seed, &device.autodiff());
    let trained = parameters.iter().filter(|(_, p)| p.trainable).map(|(_, p)| p.shape.iter().product::<usize>()).sum();
    let t = &job.training;
    let options = TrainOptions {
        subject: format!("lra {} {} {}", job.task.name(), job.configuration, serde_json::json!(job.kind)),
        steps: Some(t.steps),
        batch: t.batch,
        schedule: t.schedule,
        adam: t.adam,
        dropout: t.dropout,
        seed: job.seed,
        evaluate_every: Some(job.evaluate_every.max(1)),
        checkpoint_steps: Some(job.checkpoint_steps.max(1)),
        log_every: if device_name == "cpu" { 1 } else { 50 },
        ..TrainOptions::default()
    };
    let work = Work::new(directory)?;
    let objective = Classes { encoder: &encoder, lengths: data.train.lengths(), set: &data.train };
    // What a pass of an update takes in memory, a pass without gradients takes thrice.
    let batch = 2 * t.batch;
    let best = work.best();
    let mut judge = DevJudge { encoder: &encoder, set: &data.dev, batch, best: &best, seconds: 0.0 };
    let (mut first, mut done) = (None, 0);
    let finish = {
        let stop_at = job.stop_at.unwrap_or(u64::MAX);
        let mut until = |event: &Event| {
            if let Event::Step { step, .. } = event {
                first.get_or_insert((*step, Instant::now()));
                done = *step;
            }
            watch(event) && done < stop_at
        };
        train(BTreeMap::new(), &mut parameters, &objective, &options, &work, Some(&mut judge), &mut until)?
    };
    let seconds = first.map_or(0.0, |(_, since)| since.elapsed().as_secs_f64()) - judge.seconds;
    let updates = first.map_or(0, |(step, _)| done - step);
    let stopped_here = job.stop_at.is_some_and(|stop| done >= stop);
    if !finish.complete && !stopped_here {
        return Ok(None);
    }
    if finish.state.best.is_some() {
        let kept = Weights::open(&best)?;
        parameters = Parameters::from_weights(&kept, &parameters.device().clone().without_autodiff())?;
    }
    let Some(score) = accuracy(&encoder, &parameters, &data.test, batch, watch)? else { return Ok(None) };
    let losses: Vec<f64> = log::read(&work.log())?
        .iter()
        .filter_map(|line| if let log::Line::Step { loss, .. } = line { Some(*loss) } else { None })
        .collect();
    let late = &losses[losses.len() - losses.len().div_ceil(10)..];
    let record = Record {
        task: job.task,
        configuration: job.configuration.clone(),
        attention: job.attention.clone(),
        kind: job.kind.clone(),
        seed: job.seed,
        steps: finish.state.step,
        planned: t.steps,
        batch: t.batch,
        length: t.length,
        score,
        tested: data.test.len(),
        dev: finish.state.best.map_or(f64::NAN, |best| best.value),
        best_step: finish.state.best.map_or(0, |best| best.step),
        late_loss: late.iter().sum::<f64>() / late.len().max(1) as f64,
        steps_per_second: if updates > 0 && seconds > 0.0 { updates as f64 / seconds } else { 0.0 },
        peak_bytes: peak(),
        parameters: trained,
        device: device_name.to_string(),
    };
    let path = directory.join(RECORD);
    let failed = |e: &dyn std::fmt::Display| Error::new(format!("{}: cannot be written ({e})", path.display()));
    let text = serde_json::to_vec_pretty(&record).map_err(|e| failed(&e))?;
    let beside = path.with_extension("partial");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path)).map_err(|e| failed(&e))?;
    Ok(Some(record))
}
