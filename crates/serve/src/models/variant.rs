//! One way to compute a model, compiled.

use super::Choice;
use sparing_engine::{Engine, RunOptions};
use sparing_model::{Batch, Error, Outputs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One way to compute a model, and how fast it turned out to be.
pub(crate) struct Variant {
    pub(crate) choice: Choice,
    /// Shared by ways that differ only in being exact.
    pub(crate) engine: Arc<Engine>,
    options: RunOptions,
    /// Mean of recent batches; 0: none yet.
    nanoseconds_per_token: AtomicU64,
}

impl Variant {
    pub(crate) fn new(choice: Choice, engine: Arc<Engine>) -> Variant {
        let exact = choice.attention.is_exact();
        let options = if exact { RunOptions::exact() } else { RunOptions::default() };
        Variant { choice, engine, options, nanoseconds_per_token: AtomicU64::new(0) }
    }

    /// Runs a batch.
    pub(crate) fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        self.engine.run_as(batch, &self.options)
    }

    /// Notes what a batch took.
    pub(crate) fn note(&self, tokens: usize, took: Duration) {
        let new = took.as_nanos() as u64 / tokens.max(1) as u64;
        let old = self.nanoseconds_per_token.load(Ordering::Relaxed);
        let mean = if old == 0 { new } else { (7 * old + new) / 8 };
        self.nanoseconds_per_token.store(mean.max(1), Ordering::Relaxed);
    }

    /// What this many tokens will take, if any batch was measured.
    pub(crate) fn expected(&self, tokens: usize) -> Option<Duration> {
        match self.nanoseconds_per_token.load(Ordering::Relaxed) {
            0 => None,
            each => Some(Duration::from_nanos(each.saturating_mul(tokens as u64))),
        }
    }
}
