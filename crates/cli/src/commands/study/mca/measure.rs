//! One combination measured: scores over seeds, operations, and time beside the exact engine's, interleaved.

use super::results::{Measured, Score};
use super::subject::{Planned, Subject};
use crate::failure::Failure;
use crate::interrupt;
use crate::machine::Stopwatch;
use sparing_engine::{Engine, Options, RunOptions};
use sparing_model::{Batch, Calibration, Outputs};
use sparing_tasks::Mean;
use std::sync::Arc;

/// How long inputs are with padding, as the authors have it.
const PADDED: usize = 128;

/// What the authors' 128 seeds are here.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Rounds that are timed.
    pub rounds: usize,
}

impl Effort {
    /// Inputs that a combination takes, however often.
    pub fn inputs(&self, planned: &Planned) -> u64 {
        (planned.cell.rows * (2 * self.rounds + planned.cell.seeds - 1)) as u64
    }
}

/// Best seconds of every batch so far: by the clock, and of CPU time.
struct Best(Vec<[f64; 2]>);

impl Best {
    fn new(batches: usize) -> Best {
        Best(vec![[f64::INFINITY; 2]; batches])
    }

    fn time(&mut self, number: usize, run: impl FnOnce() -> Result<Outputs, Failure>) -> Result<Outputs, Failure> {
        let watch = Stopwatch::start();
        let outputs = run()?;
        let lap = watch.lap();
        let best = &mut self.0[number];
        *best = [best[0].min(lap.wall.as_secs_f64()), best[1].min(lap.cpu.as_secs_f64())];
        Ok(outputs)
    }

    fn sum(&self) -> [f64; 2] {
        self.0.iter().fold([0.0; 2], |sum, best| [sum[0] + best[0], sum[1] + best[1]])
    }
}

/// Measures one combination. `step` is told how many inputs were run.
pub fn measure(
    subject: &Subject,
    planned: &Planned,
    calibration: Option<Arc<Calibration>>,
    effort: Effort,
    step: &mut dyn FnMut(usize),
) -> Result<Measured, Failure> {
    let options = Options {
        threads: effort.threads,
        precision: Some(planned.precision),
        attention: Some(planned.plan.clone()),
        calibration,
        ..Options::default()
    };
    let engine = Engine::compile(&subject.model, &options)?;
    let prepared = &subject.prepared;
    let mut run = |batch: &Batch, options: &RunOptions| -> Result<Outputs, Failure> {
        interrupt::check()?;
        step(batch.sequences.len());
        Ok(engine.run_as(batch, options)?)
    };
    let (exactly, first) = (RunOptions::exact(), RunOptions { seed: Some(0), ..RunOptions::default() });
    let batches = prepared.batches();
    let (mut exact_best, mut best) = (Best::new(batches.len()), Best::new(batches.len()));
    let (mut exact_outputs, mut outputs) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        (exact_outputs, outputs) = (Vec::new(), Vec::new());
        engine.reset_spending();
        for (number, batch) in batches.iter().enumerate() {
            // Who goes first finds the caches colder: they take turns.
            if (round + number).is_multiple_of(2) {
                exact_outputs.push(exact_best.time(number, || run(batch, &exactly))?);
                outputs.push(best.time(number, || run(batch, &first))?);
            } else {
                outputs.push(best.time(number, || run(batch, &first))?);
                exact_outputs.push(exact_best.time(number, || run(batch, &exactly))?);
            }
        }
    }
    let exact = prepared.score(exact_outputs)?;
    let mut values = vec![prepared.score(outputs)?];
    for seed in 1..planned.cell.seeds as u64 {
        let options = RunOptions { seed: Some(seed), ..RunOptions::default() };
        let outputs = batches.iter().map(|batch| run(batch, &options)).collect::<Result<Vec<_>, _>>()?;
        values.push(prepared.score(outputs)?);
    }
    let score = |(number, exact): (usize, &f64)| {
        let metric = prepared.metrics()[number];
        let Mean { mean, half, .. } = Mean::new(metric, &values.iter().map(|v| v[number]).collect::<Vec<_>>());
        Score { metric, exact: *exact, mean, half }
    };
    let tokens: usize = prepared.lengths().sum();
    let padded: usize = prepared.lengths().map(|length| length.max(PADDED)).sum();
    let spent = engine.spending();
    let ([exact_seconds, exact_cpu], [seconds, cpu]) = (exact_best.sum(), best.sum());
    Ok(Measured {
        cell: planned.cell.clone(),
        scores: exact.iter().enumerate().map(score).collect(),
        tokens: tokens as f64 / planned.cell.rows as f64,
        padding: padded as f64 / tokens as f64,
        authors: spent.authors_ratio(),
        values: spent.values_ratio(),
        attention_ratio: spent.attention_ratio(),
        whole: spent.model_ratio(),
        time: exact_seconds / seconds,
        // Systems that do not tell CPU time tell none for either.
        cpu: if cpu > 0.0 { exact_cpu / cpu } else { exact_seconds / seconds },
        seconds,
        exact_seconds,
        threads: engine.threads(),
        rounds: effort.rounds,
    })
}
