//! Trains an encoder on a task and says what came of it.

use super::config::Training;
use super::encoder::{Encoder, Mode};
use super::record::{Record, Settings, late_loss};
use crate::Parameters;
use crate::attention::Kind;
use crate::checkpoint::Work;
use crate::losses::cross_entropy;
use crate::objective::{Loss, Objective, Pass};
use crate::trainer::{Event, Judge, TrainOptions, Watch, train};
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::{Error, OwnedTensor, Weights, write_directory};
use sparing_tasks::lra::{Example, Set, Task};
use sparing_tasks::{Metric, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often what is known is written down while training.
const TELL: Duration = Duration::from_secs(10);

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
    /// The same by the clock.
    pub deadline: Option<Instant>,
}

/// The label of every example.
pub(super) struct Classes<'a> {
    encoder: &'a Encoder,
    set: &'a Set,
    lengths: Vec<usize>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(encoder: &'a Encoder, set: &'a Set) -> Self {
        Classes { encoder, set, lengths: set.lengths() }
    }
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
        let found = found.map_err(|e| crate::device::unread("scores", e))?;
        right += found.iter().zip(&examples).filter(|(found, example)| **found == i32::from(example.label)).count();
    }
    Ok(Some(right as f64 / set.len().max(1) as f64))
}

struct DevJudge<'a> {
    encoder: &'a Encoder,
    set: &'a Set,
    batch: usize,
    best: &'a Path,
    /// Spent here, which is not training.
    seconds: &'a Cell<f64>,
}

impl Judge for DevJudge<'_> {
    fn evaluate(&mut self, parameters: &Parameters, watch: &mut Watch<'_>) -> Result<Option<Vec<Value>>, Error> {
        let start = Instant::now();
        let found = accuracy(self.encoder, parameters, self.set, self.batch, watch)?;
        self.seconds.set(self.seconds.get() + start.elapsed().as_secs_f64());
        Ok(found.map(|value| vec![Value { metric: Metric::Accuracy, value, interval: None }]))
    }

    fn keep(&mut self, parameters: &Parameters) -> Result<(), Error> {
        let tensors: Vec<OwnedTensor> = parameters.to_tensors()?;
        let config = serde_json::to_vec_pretty(self.encoder).map_err(|e| Error::new(format!("config.json: {e}")))?;
        write_directory(self.best, &[("config.json", &config)], &tensors)
    }
}

/// How fast updates are done, evaluations left out.
struct Speed<'a> {
    /// The first update of this call and when it was done: what comes before is compiling.
    first: Option<(u64, Instant)>,
    done: u64,
    evaluating: &'a Cell<f64>,
}

impl Speed<'_> {
    fn step(&mut self, step: u64) {
        self.first.get_or_insert_with(|| {
            self.evaluating.set(0.0);
            (step, Instant::now())
        });
        self.done = step;
    }

    /// Updates per second; `None` if too few were done.
    fn known(&self) -> Option<f64> {
        let (first, since) = self.first?;
        let seconds = since.elapsed().as_secs_f64() - self.evaluating.get();
        (self.done > first && seconds > 0.0).then(|| (self.done - first) as f64 / seconds)
    }
}

/// Trains in a directory, from the checkpoint there if there is one. The record is written as training goes and at its end, or
/// where the job says to stop: then too the test set is scored, and the same call goes on. `None` if the watcher asked to stop.
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
    let trained = parameters.trained();
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
    let settings = Settings::of(&job.training, data);
    let mut record = Record::begun(job, settings, trained, device_name, directory)?;
    let work = Work::new(directory)?;
    let objective = Classes::new(&encoder, &data.train);
    // What a pass of an update takes in memory, a pass without gradients takes thrice.
    let batch = 2 * t.batch;
    let (best, evaluating) = (work.best(), Cell::new(0.0));
    let mut judge = DevJudge { encoder: &encoder, set: &data.dev, batch, best: &best, seconds: &evaluating };
    let mut speed = Speed { first: None, done: 0, evaluating: &evaluating };
    let stop =
        |done: u64| done >= job.stop_at.unwrap_or(u64::MAX) || job.deadline.is_some_and(|at| Instant::now() >= at);
    let (mut told, mut stopped, mut failed) = (Instant::now(), false, None);
    let finish = {
        let mut until = |event: &Event| {
            match event {
                Event::Step { step, loss, .. } => {
                    speed.step(*step);
                    record.steps = *step;
                    record.late_loss = Some(*loss).filter(|loss| loss.is_finite());
                    stopped = stop(*step);
                }
                Event::Evaluated { step, metrics, best: true } => {
                    (record.dev, record.best_step) = (metrics.first().map(|value| value.value), *step);
                    told -= TELL;
                }
                _ => {}
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                record.measured(speed.known(), peak());
                failed = record.write(directory).err();
            }
            watch(event) && !stopped && failed.is_none()
        };
        train(BTreeMap::new(), &mut parameters, &objective, &options, &work, Some(&mut judge), &mut until)?
    };
    if let Some(error) = failed {
        return Err(error);
    }
    record.measured(speed.known(), peak());
    if !finish.complete && !stopped {
        return Ok(None);
    }
    let mut kept = finish.state.best;
    if finish.state.evaluated < finish.state.step {
        let Some(dev) = accuracy(&encoder, &parameters, &data.dev, batch, watch)? else { return Ok(None) };
        if kept.is_none_or(|best| dev > best.value) {
            kept = None;
            (record.dev, record.best_step) = (Some(dev), finish.state.step);
        }
    }
    if let Some(best_so_far) = kept {
        (record.dev, record.best_step) = (Some(best_so_far.value), best_so_far.step);
        let device = parameters.device().clone().without_autodiff();
        parameters = Parameters::from_weights(&Weights::open(&best)?, &device)?;
    }
    let Some(score) = accuracy(&encoder, &parameters, &data.test, batch, watch)? else { return Ok(None) };
    record.steps = finish.state.step;
    record.late_loss = late_loss(&work.log())?;
    (record.score, record.tested, record.peak_bytes) = (Some(score), data.test.len(), peak());
    record.write(directory)?;
    Ok(Some(record))
}
