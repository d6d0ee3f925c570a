//! A cheap engine and the exact one, for cascades.

use crate::failure::Failure;
use sparing_engine::{Engine, Options, RunOptions, Spending};
use sparing_model::{AttentionPlan, Batch, Error, Executor, Model, Outputs, Precision, Wanted};
use sparing_tasks::Fingerprint;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// The engine as the user configures it, and the exact one: f32, exact attention.
pub struct Engines {
    /// The cheap one.
    pub cheap: Engine,
    /// The exact one, unless the cheap one can run exactly itself.
    exact: Option<Engine>,
}

impl Engines {
    /// Compiles both. Nothing to economise is an error.
    pub fn compile(model: &Model, options: &Options) -> Result<Engines, Failure> {
        let (precision, attention) = configuration(model, options);
        if attention == AttentionPlan::default() && precision == Precision::F32 {
            let text = "--certify: this is the exact model already; add what makes it cheap, such as --precision int8 or --attention";
            return Err(Failure::Usage(text.to_string()));
        }
        let cheap = Engine::compile(model, options)?;
        let exactly =
            Options { precision: Some(Precision::F32), attention: Some(AttentionPlan::default()), ..options.clone() };
        let exact = if precision == Precision::F32 { None } else { Some(Engine::compile(model, &exactly)?) };
        Ok(Engines { cheap, exact })
    }

    /// The cheap executor.
    pub fn cheap(&self) -> Counted<'_> {
        Counted { engine: &self.cheap, options: RunOptions::default(), flops: Mutex::new(0.0) }
    }

    /// The exact executor.
    pub fn exact(&self) -> Counted<'_> {
        let engine = self.exact.as_ref().unwrap_or(&self.cheap);
        Counted { engine, options: RunOptions::exact(), flops: Mutex::new(0.0) }
    }
}

/// What a certificate for a model with these options is about. Reads all weights, compiles nothing.
pub fn fingerprint(model: &Model, options: &Options) -> Result<Fingerprint, Failure> {
    let (precision, attention) = configuration(model, options);
    let mut words = precision.name().to_string();
    if attention != AttentionPlan::default() {
        words += &format!(", attention {attention}");
    }
    let sampler = attention.mca.as_ref().map(|mca| mca.sampler);
    let calibration = match (sampler.filter(|s| s.needs_calibration()), &options.calibration) {
        (None, _) => None,
        (_, Some(given)) => Some(given.clone()),
        (_, None) => model.calibration()?.map(Arc::new),
    };
    let details = calibration.map(|calibration| calibration.to_bytes()).transpose()?.unwrap_or_default();
    Ok(Fingerprint::new(model, words, &details)?)
}

/// The precision and the attention that an engine is compiled with.
fn configuration(model: &Model, options: &Options) -> (Precision, AttentionPlan) {
    let precision = options.precision.or(model.plan.precision).unwrap_or(Precision::F32);
    (precision, options.attention.clone().or(model.plan.attention.clone()).unwrap_or_default())
}

/// An engine with the operations it has done. Identical inputs of a batch are computed, and counted, once.
pub struct Counted<'a> {
    engine: &'a Engine,
    options: RunOptions,
    flops: Mutex<f64>,
}

impl Counted<'_> {
    /// Operations so far.
    pub fn flops(&self) -> f64 {
        *self.flops.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Operations of a batch whose cost does not depend on its words.
    fn count(&self, batch: &Batch) -> f64 {
        let mut seen = HashSet::new();
        let rows = |i: usize| match &batch.wanted {
            Wanted::Rows(rows) => rows.get(i).map(Vec::as_slice).unwrap_or_default(),
            _ => &[],
        };
        let new = |i: &usize| seen.insert((&batch.sequences[*i], rows(*i)));
        let distinct: Vec<usize> = (0..batch.sequences.len()).filter(new).collect();
        let lengths: Vec<usize> = distinct.iter().map(|i| batch.sequences[*i].ids.len()).collect();
        let wanted = match &batch.wanted {
            Wanted::Rows(_) => Wanted::Rows(distinct.iter().map(|i| rows(*i).to_vec()).collect()),
            other => other.clone(),
        };
        self.engine.ledger(&lengths, &wanted).flops() as f64
    }
}

/// Operations of economised runs, of the whole model.
fn spent(spending: Spending) -> f64 {
    spending.model_exact as f64 / spending.model_ratio()
}

impl Executor for Counted<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let before = self.engine.spending();
        let outputs = self.engine.run_as(batch, &self.options)?;
        let after = self.engine.spending();
        // Budgets depend on the words: the engine has counted them itself.
        let flops = if before == after { self.count(batch) } else { spent(after) - spent(before) };
        *self.flops.lock().unwrap_or_else(|e| e.into_inner()) += flops;
        Ok(outputs)
    }
}
