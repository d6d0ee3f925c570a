//! One run of the loop: which batch is next, how an update is done, and what is written down of it.

use super::TrainOptions;
use crate::batches::epoch_batches;
use crate::checkpoint::{Best, State, Work};
use crate::feed;
use crate::log::{Line, Log};
use crate::objective::{Objective, Pass};
use crate::ops::on_host;
use crate::optimizer::NamedGradients;
use crate::random::Random;
use crate::recorder::{Found, Recorder};
use crate::{AdamW, Parameters};
use burn::tensor::Tensor;
use sparing_model::Error;
use sparing_tasks::Value;
use std::time::Instant;

/// One run of the loop.
pub(super) struct Run<'a> {
    objective: &'a dyn Objective,
    options: &'a TrainOptions,
    log: Log,
    /// Updates per epoch.
    per_epoch: u64,
    pub(super) total: u64,
    /// The batches of one epoch.
    batches: Option<(u64, Vec<Vec<usize>>)>,
    /// Updates whose numbers are still on the device.
    pending: Vec<Pending>,
    /// When they were last fetched, and the step at which they are to be fetched again.
    fetched: Instant,
    pub(super) fetch_at: u64,
    /// The last loss that is known.
    pub(super) loss: f64,
    start: Instant,
    tokens: u64,
    /// Updates that the device repeats by itself.
    pub(super) recorder: Recorder,
    pub(super) repeated: u64,
}

struct Pending {
    step: u64,
    loss: Tensor<1>,
    norm: Tensor<1>,
    rate: f64,
    tokens: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        objective: &'a dyn Objective,
        options: &'a TrainOptions,
        work: &Work,
        state: &State,
    ) -> Result<Self, Error> {
        let examples = objective.lengths().len();
        if examples == 0 || options.batch == 0 || options.accumulate == 0 {
            return Err(Error::new("there is nothing to train on: no examples, or batches of none"));
        }
        let per_epoch = examples.div_ceil(options.batch).div_ceil(options.accumulate) as u64;
        let total = options.steps.unwrap_or(per_epoch * options.epochs);
        let log = Log::open(&work.log(), state.step, state.evaluated)?;
        let now = Instant::now();
        Ok(Run {
            objective,
            options,
            log,
            per_epoch,
            total,
            batches: None,
            pending: Vec::new(),
            fetched: now,
            fetch_at: 0,
            loss: f64::NAN,
            start: now,
            tokens: 0,
            recorder: Recorder::default(),
            repeated: 0,
        })
    }

    /// Tokens per second since this run began.
    pub(super) fn speed(&self) -> f64 {
        self.tokens as f64 / self.start.elapsed().as_secs_f64()
    }

    pub(super) fn evaluation_due(&self, state: &State) -> bool {
        let every = self.options.evaluate_every.unwrap_or(self.per_epoch).max(1);
        let due = state.step.is_multiple_of(every) || state.step >= self.total;
        state.step > 0 && due && state.evaluated < state.step
    }

    /// Books an evaluation; true if it is the best so far.
    pub(super) fn judged(&mut self, state: &mut State, metrics: &[Value]) -> Result<bool, Error> {
        state.evaluated = state.step;
        self.log.write(&Line::Evaluation { step: state.step, metrics: metrics.to_vec() })?;
        let better = |headline: &&Value| match state.best {
            None => true,
            Some(best) if headline.metric.higher_is_better() => headline.value > best.value || best.value.is_nan(),
            Some(best) => headline.value < best.value || best.value.is_nan(),
        };
        let better = metrics.first().filter(better);
        if let Some(headline) = better {
            state.best = Some(Best { step: state.step, value: headline.value });
            state.waited = 0;
        } else {
            state.waited += 1;
            state.stopped = self.options.patience.is_some_and(|p| state.waited >= p);
        }
        Ok(better.is_some())
    }

    /// The passes of the update after `step` updates.
    fn passes(&mut self, step: u64) -> (u64, Vec<Vec<usize>>) {
        let (epoch, within) = (step / self.per_epoch, (step % self.per_epoch) as usize);
        let o = self.options;
        if self.batches.as_ref().is_none_or(|(e, _)| *e != epoch) {
            self.batches = Some((epoch, epoch_batches(self.objective.lengths(), o.batch, o.seed, epoch)));
        }
        let all = self.batches.as_ref().map(|(_, b)| b.as_slice()).unwrap_or_default();
        let from = within * o.accumulate;
        (epoch, all[from..(from + o.accumulate).min(all.len())].to_vec())
    }

    pub(super) fn update(
        &mut self,
        state: &mut State,
        parameters: &mut Parameters,
        optimizer: &mut AdamW,
    ) -> Result<(), Error> {
        let (epoch, passes) = self.passes(state.step);
        let o = self.options;
        if let [batch] = passes.as_slice()
            && self.update_recorded(epoch, batch, state, parameters, optimizer)?
        {
            return Ok(());
        }
        let examples: usize = passes.iter().map(Vec::len).sum();
        let mut gradients = NamedGradients::new();
        let mut losses = Vec::new();
        let mut tokens = 0;
        for (number, batch) in passes.iter().enumerate() {
            let pass = self.pass(epoch, state.step, number);
            // Dropout draws from the device's generator: seeded here, it is the same after a resume.
            parameters.device().seed(pass.seed);
            let loss = self.objective.loss(parameters, batch, &pass)?;
            tokens += loss.tokens as u64;
            let value = loss.value.mul_scalar(batch.len() as f64 / examples as f64);
            collect(parameters, &value, &mut gradients);
            for (name, statistic) in self.objective.changed() {
                parameters.put(&name, statistic);
            }
            losses.push(value.inner());
        }
        if let Some(holes) = self.objective.holes() {
            holes.clear_gradients(&mut gradients);
        }
        let rate = o.schedule.at(state.step, self.total);
        let norm = optimizer.update(parameters, gradients, rate)?;
        self.done(state, [Tensor::cat(losses, 0).sum(), norm], rate, tokens);
        Ok(())
    }

    /// An update that the device repeats by itself, or that is recorded for that; false: it is to be done step by step.
    fn update_recorded(
        &mut self,
        epoch: u64,
        batch: &[usize],
        state: &mut State,
        parameters: &mut Parameters,
        optimizer: &mut AdamW,
    ) -> Result<bool, Error> {
        // On the host there are no launches to spare.
        if !self.options.record || on_host(parameters.device()) {
            return Ok(false);
        }
        let (objective, pass) = (self.objective, self.pass(epoch, state.step, 0));
        let Some((form, mut moment)) = objective.recordable(batch, &pass, parameters.device())? else {
            return Ok(false);
        };
        let rate = self.options.schedule.at(state.step, self.total);
        let tokens = moment.batch.tokens() as u64;
        self.recorder.keep_for(optimizer.layout());
        let asked = |parameters: &mut Parameters| -> Result<(Tensor<1>, NamedGradients), Error> {
            let loss = objective.loss(parameters, batch, &pass)?.value;
            let mut gradients = NamedGradients::new();
            collect(parameters, &loss, &mut gradients);
            Ok((loss.inner(), gradients))
        };
        let done = |parameters: &mut Parameters, optimizer: &mut AdamW| -> Result<Found, Error> {
            let (loss, gradients) = asked(parameters)?;
            Ok([loss, optimizer.update(parameters, gradients, rate)?])
        };
        let found = if self.recorder.knows(&form) {
            let first = if self.recorder.trusts(&form) { None } else { optimizer.copies() };
            let mut expected = None;
            if let Some(copies) = &first {
                // Step by step, and back to where it began.
                expected = Some(numbers(&done(parameters, optimizer)?)?);
                optimizer.write_back(copies);
            }
            moment.step = Some(optimizer.advance(rate));
            let repeated = self.recorder.repeat(&form, &moment);
            if let (Some(copies), Some(expected)) = (first, expected) {
                let found = repeated.as_ref().map_err(|e| Error::new(e.to_string())).and_then(numbers);
                let is_known = found.is_ok();
                if !self.recorder.compare(&form, expected, found) {
                    if is_known {
                        // An update that differs from itself says nothing against its recording.
                        optimizer.write_back(&copies);
                        self.recorder.once_more(done(parameters, optimizer).and_then(|found| numbers(&found)));
                    }
                    optimizer.put_back(copies, parameters);
                    return Ok(false);
                }
            }
            self.repeated += 1;
            repeated?
        } else if let Some(place) = optimizer.place()
            && self.recorder.is_due(&form)
            && let Some(copies) = optimizer.copies()
            && let Some(recording) = self.recorder.prepare(&place)
        {
            let (done, tape) = feed::noted(|| done(parameters, optimizer));
            let done = done?;
            // What it left behind is not used again before it has come to an end.
            numbers(&done)?;
            self.recorder.record(form, recording, tape, || {
                let (loss, gradients) = asked(parameters)?;
                Ok([loss, optimizer.apply(parameters, gradients, rate)?])
            })?;
            if !self.recorder.knows(&form) {
                optimizer.put_back(copies, parameters);
                return Ok(false);
            }
            done
        } else {
            return Ok(false);
        };
        self.done(state, found, rate, tokens);
        Ok(true)
    }

    /// What decides everything about a pass.
    fn pass(&self, epoch: u64, step: u64, number: usize) -> Pass {
        let o = self.options;
        let seed = Random::at(o.seed, &[1, step, number as u64]).bits();
        Pass { seed, epoch, step, dropout: o.dropout, bf16: o.bf16 }
    }

    /// Books an update.
    fn done(&mut self, state: &mut State, [loss, norm]: Found, rate: f64, tokens: u64) {
        state.step += 1;
        state.tokens += tokens;
        self.tokens += tokens;
        self.pending.push(Pending { step: state.step, loss, norm, rate, tokens: state.tokens });
    }

    /// Fetches the numbers that are still on the device and writes them down.
    pub(super) fn flush(&mut self, state: &mut State) -> Result<(), Error> {
        let epochs = self.per_epoch as f64;
        let updates = self.pending.len() as f64;
        for p in std::mem::take(&mut self.pending) {
            let (loss, norm) = (number(p.loss)?, number(p.norm)?);
            if !loss.is_finite() || !norm.is_finite() {
                return Err(Error::new(format!(
                    "the loss is {loss} and the gradients' norm {norm} at step {}: training has diverged; use a smaller \
                     learning rate or a longer warm-up",
                    p.step
                )));
            }
            self.loss = loss;
            let epoch = p.step as f64 / epochs;
            let line = Line::Step { step: p.step, epoch, loss, rate: p.rate, norm, tokens: p.tokens };
            self.log.write(&line)?;
        }
        let in_a_second = updates / self.fetched.elapsed().as_secs_f64().max(1e-6);
        self.fetched = Instant::now();
        self.fetch_at = state.step + (in_a_second as u64).clamp(1, self.options.log_every.max(1));
        debug_assert!(state.step >= state.evaluated);
        Ok(())
    }
}

/// Adds the gradients of a loss to those of the passes before.
pub(crate) fn collect(parameters: &Parameters, loss: &Tensor<1>, sum: &mut NamedGradients) {
    let mut gradients = loss.backward();
    for (name, parameter) in parameters.iter().filter(|(_, p)| p.trainable) {
        let Some(g) = parameter.value.grad_remove(&mut gradients) else { continue };
        let g = match sum.remove(name) {
            Some(before) => before + g,
            None => g,
        };
        sum.insert(name.to_string(), g);
    }
}

fn numbers(found: &Found) -> Result<[f64; 2], Error> {
    let [loss, norm] = found.clone();
    Ok([number(loss)?, number(norm)?])
}

fn number(tensor: Tensor<1>) -> Result<f64, Error> {
    let data = tensor.try_into_data().map_err(|e| crate::device::unread("a loss", e))?;
    let values = data.as_slice::<f32>().map_err(|e| Error::new(format!("a loss cannot be read ({e:?})")))?;
    Ok(f64::from(values[0]))
}
