//! Seconds by part.

use crate::arena::Locals;
use crate::program::{Part, RowLocal};
use sparing_kernels::PerWorker;
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds that one part of one layer took. Attention's scores and values are one number: they are one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct PartTime {
    /// The layer; `None` for embeddings, head and what stands between.
    pub layer: Option<usize>,
    /// The part: as in [`crate::Ledger`], or "attention" for scores and values together.
    pub part: &'static str,
    /// Seconds on the clock. Parts that run together on several threads share their segment's time in proportion.
    pub seconds: f64,
}

/// A clock that may stand still, for runs that nobody times.
pub(crate) struct Clock(Option<BTreeMap<(Option<usize>, Part), f64>>);

impl Clock {
    pub(crate) fn stopped() -> Self {
        Clock(None)
    }

    pub(crate) fn running() -> Self {
        Clock(Some(BTreeMap::new()))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Now, if anybody wants to know.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    /// Books the time since `began`.
    pub(crate) fn add(&mut self, layer: Option<usize>, part: Part, began: Option<Instant>) {
        if let (Some(times), Some(began)) = (&mut self.0, began) {
            *times.entry((layer, part)).or_default() += began.elapsed().as_secs_f64();
        }
    }

    /// Books the time since `began` under the steps of a segment, in proportion to the workers' own times.
    pub(crate) fn add_steps(
        &mut self,
        segment: &RowLocal,
        locals: &PerWorker<Locals>,
        threads: usize,
        began: Option<Instant>,
    ) {
        let (Some(times), Some(began)) = (&mut self.0, began) else { return };
        let wall = began.elapsed().as_secs_f64();
        let step = |number: usize| -> f64 { (0..threads).map(|worker| locals.get(worker).seconds[number]).sum() };
        let all: f64 = (0..segment.steps.len()).map(step).sum();
        for (number, info) in segment.steps.iter().enumerate() {
            let share = if all > 0.0 { step(number) / all } else { 0.0 };
            *times.entry((info.layer, info.part)).or_default() += wall * share;
        }
    }

    /// What was booked.
    pub(crate) fn times(self) -> Vec<PartTime> {
        let name = |part: Part| if part == Part::Scores { "attention" } else { part.name() };
        let times = self.0.unwrap_or_default().into_iter();
        times.map(|((layer, part), seconds)| PartTime { layer, part: name(part), seconds }).collect()
    }
}
