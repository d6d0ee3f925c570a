//! The loop: batches, updates, evaluations, checkpoints.

mod run;

pub(crate) use run::collect;

use crate::checkpoint::{State, Work};
use crate::inventory::inventory;
use crate::objective::Objective;
use crate::{AdamOptions, AdamW, Parameters, Schedule};
use run::Run;
use serde::Serialize;
use sparing_model::{Architecture, Error};
use sparing_tasks::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Seconds of work that are worth a checkpoint at the end.
const WORTH_SAVING: f64 = 30.0;

/// How to train. What the curve depends on is compared when training goes on from a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainOptions {
    /// What is trained, in words.
    pub subject: String,
    /// Times every example is seen.
    pub epochs: u64,
    /// Updates in all, instead of epochs.
    pub steps: Option<u64>,
    /// Examples per pass.
    pub batch: usize,
    /// Passes per update.
    pub accumulate: usize,
    /// The learning rate.
    pub schedule: Schedule,
    /// The optimizer.
    pub adam: AdamOptions,
    /// Each layer's rate is this share of the rate of the layer above.
    pub layer_decay: f64,
    /// Dropout of hidden states and attention.
    pub dropout: f64,
    /// Matrix products in bf16.
    pub bf16: bool,
    /// Tensors with one of these in their name stay as they are.
    pub freeze: Vec<String>,
    /// Decides everything random.
    pub seed: u64,
    /// Evaluate after this many updates; `None`: after every epoch.
    pub evaluate_every: Option<u64>,
    /// Stop after this many evaluations without a better one.
    pub patience: Option<usize>,
    /// Save after this many updates.
    #[serde(skip)]
    pub checkpoint_steps: Option<u64>,
    /// Save after this many minutes.
    #[serde(skip)]
    pub checkpoint_minutes: f64,
    /// Fetch losses from the device after this many updates, or about once a second: a GPU waits for nobody in between,
    /// and nobody runs far ahead of it.
    #[serde(skip)]
    pub log_every: u64,
    /// On a GPU, record updates and let the device repeat them.
    #[serde(skip)]
    pub record: bool,
}

impl Default for TrainOptions {
    fn default() -> Self {
        use crate::{Curve, Warmup};
        TrainOptions {
            subject: String::new(),
            epochs: 3,
            steps: None,
            batch: 32,
            accumulate: 1,
            schedule: Schedule { rate: 5e-5, curve: Curve::Linear, warmup: Warmup::Ratio(0.1) },
            adam: AdamOptions::default(),
            layer_decay: 1.0,
            dropout: 0.1,
            bf16: false,
            freeze: vec![],
            seed: 0,
            evaluate_every: None,
            patience: None,
            checkpoint_steps: None,
            checkpoint_minutes: 10.0,
            log_every: 1,
            record: true,
        }
    }
}

/// What happens, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An update was done.
    Step {
        /// Updates done.
        step: u64,
        /// Updates in all.
        total: u64,
        /// The last loss that is known.
        loss: f64,
        /// Tokens per second since training began or went on.
        speed: f64,
    },
    /// An evaluation was done.
    Evaluated {
        /// Updates done.
        step: u64,
        /// What was found, the headline first.
        metrics: Vec<Value>,
        /// It is the best so far.
        best: bool,
    },
    /// Training goes on from a checkpoint.
    Resumed {
        /// Updates done.
        step: u64,
    },
    /// Nothing new; asked often while something takes long.
    Waiting,
}

/// Told of every event; false asks to stop, which saves first.
pub type Watch<'a> = dyn FnMut(&Event) -> bool + 'a;

/// Judges the model from time to time.
pub trait Judge {
    /// Scores the parameters, the headline first, nothing at all if no score can be had of them; `None` if the watcher asked to stop meanwhile.
    fn evaluate(&mut self, parameters: &Parameters, watch: &mut Watch<'_>) -> Result<Option<Vec<Value>>, Error>;

    /// Keeps these parameters: they are the best so far.
    fn keep(&mut self, parameters: &Parameters) -> Result<(), Error>;
}

/// How training ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Where it stands.
    pub state: State,
    /// False: it was asked to stop and has saved a checkpoint.
    pub complete: bool,
    /// Seconds spent in this run, evaluations included.
    pub seconds: f64,
    /// Updates of this run that a GPU repeated by itself.
    pub repeated: u64,
    /// Why it did not, if it was tried.
    pub unrecorded: Option<String>,
}

/// Trains, from the newest checkpoint in `work` if there is one. Without a judge the last parameters are the result.
/// `scales`: factor of the rate by tensor name, 1 where there is none.
pub fn train(
    scales: BTreeMap<String, f64>,
    parameters: &mut Parameters,
    objective: &dyn Objective,
    options: &TrainOptions,
    work: &Work,
    mut judge: Option<&mut dyn Judge>,
    watch: &mut Watch<'_>,
) -> Result<Finish, Error> {
    let start = Instant::now();
    let mut optimizer = AdamW::new(options.adam, scales);
    let fingerprint = serde_json::to_value(options).map_err(|e| Error::new(format!("options: {e}")))?;
    let restored = work.restore(&fingerprint, parameters, &mut optimizer)?;
    let resumed = restored.is_some();
    freeze(parameters, &options.freeze)?;
    let mut state = restored.unwrap_or(State { options: fingerprint, ..State::default() });
    if let Some(hook) = objective.hook() {
        hook.recall(&state.memory)?;
    }
    let save = |state: &mut State, parameters: &Parameters, optimizer: &AdamW| {
        state.memory = objective.hook().map_or(Ok(serde_json::Value::Null), |hook| hook.memory())?;
        work.save(state, parameters, optimizer)
    };
    let mut run = Run::new(objective, options, work, &state)?;
    if resumed {
        watch(&Event::Resumed { step: state.step });
    }
    let mut saved = (Instant::now(), state.step);
    let complete = loop {
        if let Some(judge) = judge.as_deref_mut()
            && run.evaluation_due(&state)
        {
            run.flush(&mut state)?;
            let Some(metrics) = judge.evaluate(parameters, watch)? else {
                save(&mut state, parameters, &optimizer)?;
                break false;
            };
            let best = run.judged(&mut state, &metrics)?;
            if best {
                judge.keep(parameters)?;
            }
            watch(&Event::Evaluated { step: state.step, metrics, best });
        }
        if state.step >= run.total || state.stopped {
            // What comes after training can be killed too; a short way back costs less than a checkpoint.
            if saved.0.elapsed().as_secs_f64() > WORTH_SAVING {
                run.flush(&mut state)?;
                save(&mut state, parameters, &optimizer)?;
            }
            break true;
        }
        let by_steps = options.checkpoint_steps.is_some_and(|n| state.step >= saved.1 + n.max(1));
        if by_steps || saved.0.elapsed().as_secs_f64() > 60.0 * options.checkpoint_minutes {
            run.flush(&mut state)?;
            save(&mut state, parameters, &optimizer)?;
            saved = (Instant::now(), state.step);
        }
        run.update(&mut state, parameters, &mut optimizer)?;
        if state.step >= run.fetch_at {
            run.flush(&mut state)?;
        }
        let event = Event::Step { step: state.step, total: run.total, loss: run.loss, speed: run.speed() };
        if !watch(&event) {
            run.flush(&mut state)?;
            save(&mut state, parameters, &optimizer)?;
            break false;
        }
    };
    run.flush(&mut state)?;
    let (repeated, unrecorded) = (run.repeated, run.recorder.gave_up().map(str::to_string));
    Ok(Finish { state, complete, seconds: start.elapsed().as_secs_f64(), repeated, unrecorded })
}

/// Keeps tensors as they are that have one of these in their name.
fn freeze(parameters: &mut Parameters, parts: &[String]) -> Result<(), Error> {
    if let Some(part) = parts.iter().find(|part| !parameters.iter().any(|(name, _)| name.contains(*part))) {
        return Err(Error::new(format!("--freeze {part}: no tensor has this in its name")));
    }
    if !parts.is_empty() {
        let fixed: BTreeSet<String> = parameters.iter().filter(|(_, p)| !p.trainable).map(|(n, _)| n.into()).collect();
        parameters.set_trainable(|name| !fixed.contains(name) && !parts.iter().any(|part| name.contains(part)));
    }
    Ok(())
}

/// Factor of the rate by tensor: the head's is 1, each layer below has `decay` times that of the one above.
pub fn rate_scales(architecture: &Architecture, decay: f64) -> BTreeMap<String, f64> {
    if decay == 1.0 {
        return BTreeMap::new();
    }
    let top = architecture.layers.len() + 1;
    let entries = inventory(architecture).into_iter();
    entries.map(|e| (e.name, decay.powi(top.saturating_sub(e.depth) as i32))).collect()
}
