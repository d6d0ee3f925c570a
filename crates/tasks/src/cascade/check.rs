//! A cascade beside its two executors on inputs it was not made from.

use super::inputs::Inputs;
use super::{Cascade, Pair, Tally};
use crate::Dataset;
use crate::batches::{self, Progress};
use crate::binomial;
use crate::bootstrap::Interval;
use crate::encode::Encode;
use crate::evaluate::Options;
use serde::Serialize;
use sparing_model::{Architecture, Batch, Error, Executor, Outputs};
use std::sync::Mutex;
use std::time::Instant;

/// How a cascade did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Inputs compared.
    pub inputs: usize,
    /// Those the cascade decides as the exact executor does.
    pub same: usize,
    /// Those the cheap executor alone decides so.
    pub same_cheap: usize,
    /// Exact 95% interval of the cascade's agreement, from this data alone.
    pub agreement: Interval,
    /// What the cascade ran.
    pub tally: Tally,
    /// Seconds of the cascade, of the cheap and of the exact executor alone, batch by batch in turn.
    pub seconds: f64,
    /// Of the cheap executor alone.
    pub seconds_cheap: f64,
    /// Of the exact executor alone.
    pub seconds_exact: f64,
    /// Everything was run.
    pub complete: bool,
}

impl Check {
    /// Whether this data contradicts a promise: with 95% confidence the agreement is below it.
    pub fn contradicts(&self, certify: f64) -> bool {
        binomial::upper(self.same, self.inputs, 0.95) < certify
    }
}

/// Runs the cascade and two executors alone over a dataset, and compares decisions and times. Labels are not needed.
pub fn check(
    cascade: &Cascade<'_>,
    alone: &Pair<'_>,
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Check, Error> {
    let inputs = Inputs::new(encoder, architecture, dataset, alone.decision, options)?;
    let all: [Timed<'_>; 3] = [cascade, alone.cheap, alone.exact].map(|e| Timed(e, Mutex::new(0.0)));
    let before = cascade.tally();
    let mut outputs: Vec<Option<Vec<Vec<f32>>>> = vec![None; inputs.units.len()];
    let mut width = 0;
    let executors = [&all[0] as &dyn Executor, &all[1], &all[2]];
    let spent = batches::run(&executors, &inputs.units, options.tokens_per_batch, progress, |group, each| {
        width = each[0].width;
        for (place, unit) in group.iter().enumerate() {
            outputs[*unit] = Some(each.iter().map(|o| o.sequences[place].clone()).collect());
        }
        Ok(())
    })?;
    let (mut compared, mut same, mut same_cheap) = (0, 0, 0);
    for example in inputs.examples.iter().filter(|units| !units.is_empty()) {
        let done: Option<Vec<&Vec<Vec<f32>>>> = example.iter().map(|unit| outputs[*unit].as_ref()).collect();
        let Some(done) = done else { continue };
        let choice = |which: usize| {
            let outputs: Vec<&[f32]> = done.iter().map(|each| &each[which][..]).collect();
            inputs.choice(example, &outputs, width)
        };
        let exact = choice(2);
        compared += 1;
        same += usize::from(alone.decision.same(&choice(0), &exact));
        same_cheap += usize::from(alone.decision.same(&choice(1), &exact));
    }
    let after = cascade.tally();
    let seconds = all.map(|timed| timed.1.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(Check {
        inputs: compared,
        same,
        same_cheap,
        agreement: Interval {
            low: binomial::lower(same, compared, 0.975),
            high: binomial::upper(same, compared, 0.975),
        },
        tally: Tally { inputs: after.inputs - before.inputs, escalated: after.escalated - before.escalated },
        seconds: seconds[0],
        seconds_cheap: seconds[1],
        seconds_exact: seconds[2],
        complete: spent.complete,
    })
}

/// An executor and the seconds spent in it.
struct Timed<'a>(&'a dyn Executor, Mutex<f64>);

impl Executor for Timed<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let start = Instant::now();
        let outputs = self.0.run(batch);
        *self.1.lock().unwrap_or_else(|e| e.into_inner()) += start.elapsed().as_secs_f64();
        outputs
    }
}
