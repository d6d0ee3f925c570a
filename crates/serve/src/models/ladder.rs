//! The plans that a request with a deadline may get: from the most faithful to the cheapest.

use super::{Choice, Served, Variant};
use crate::error::Refusal;
use sparing_model::{Batch, Plan, Precision, Sequence};
use sparing_report::Report;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens of the sequence that plans are timed with.
const TIMED_TOKENS: usize = 128;
/// Runs, the fastest counts.
const TIMED_RUNS: usize = 3;

/// Plans with their speeds, the most faithful first.
pub(crate) struct Ladder {
    steps: Vec<Arc<Variant>>,
}

impl Ladder {
    /// Compiles and times the plans: those on the frontier of the optimiser's report that the served weights can be
    /// computed with, or, without a report, the served plan in fewer and fewer bits.
    pub(crate) async fn measure(served: &Arc<Served>) -> Result<Ladder, Refusal> {
        let frontier = served.directory.as_deref().and_then(|directory| frontier(served, directory));
        let mut steps = Vec::new();
        for choice in frontier.unwrap_or_else(|| precisions(&served.base.choice)) {
            let variant = served.compiled(choice).await?;
            if variant.expected(1).is_none() {
                let timed = variant.clone();
                let sequence = timed_sequence(served);
                let time = move || time(&timed, sequence);
                tokio::task::spawn_blocking(time).await.map_err(|_| Refusal::backend("a plan cannot be timed"))?;
            }
            steps.push(variant);
        }
        Ok(Ladder { steps })
    }

    /// The most faithful plan that computes so many tokens in time; the cheapest if none does.
    pub(crate) fn step(&self, within: Duration, tokens: usize) -> Choice {
        let fits = |variant: &&Arc<Variant>| variant.expected(tokens).is_some_and(|time| time <= within);
        let cheapest = || self.steps.iter().min_by_key(|variant| variant.expected(tokens));
        // There is always the served plan.
        let step = self.steps.iter().find(fits).or_else(cheapest).or(self.steps.first());
        step.map(|variant| variant.choice.clone())
            .unwrap_or(Choice { precision: Precision::F32, attention: Default::default() })
    }
}

/// The served plan and cheaper precisions.
fn precisions(served: &Choice) -> Vec<Choice> {
    let order = [Precision::F32, Precision::Bf16, Precision::Int8];
    let from = order.iter().position(|precision| *precision == served.precision).unwrap_or(0);
    order[from..]
        .iter()
        .map(|precision| Choice { precision: *precision, attention: served.attention.clone() })
        .collect()
}

/// Plans on the report's frontier for the weights as they are, best score first; `None`: no report, or none that fit.
fn frontier(served: &Served, directory: &Path) -> Option<Vec<Choice>> {
    let report = Report::parse(&std::fs::read_to_string(directory.join("report.json")).ok()?).ok()?;
    let lower = report.task.metric.lower_is_better;
    let plan = &served.model.plan;
    let mut found: Vec<(f64, Choice)> = Vec::new();
    for candidate in report.candidates.iter().filter(|candidate| candidate.on_frontier) {
        let Ok(other) = serde_json::from_value::<Plan>(candidate.plan.clone()) else { continue };
        if other.elements != plan.elements || other.quantization != plan.quantization {
            continue;
        }
        let precision = other.precision.unwrap_or(Precision::F32);
        let choice = Choice { precision, attention: other.attention.unwrap_or_default() };
        let score = candidate.score.unwrap_or(candidate.search_score);
        found.push((if lower { -score } else { score }, choice));
    }
    if !found.iter().any(|(_, choice)| *choice == served.base.choice) {
        found.push((f64::INFINITY, served.base.choice.clone()));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    (found.len() > 1).then(|| found.into_iter().map(|(_, choice)| choice).collect())
}

/// A sequence to time plans with.
fn timed_sequence(served: &Served) -> Sequence {
    let length = TIMED_TOKENS.min(served.max_tokens());
    let words = served.model.architecture.embeddings.vocabulary.max(1);
    Sequence { ids: (0..length).map(|i| (i * 37 % words) as u32).collect(), types: Vec::new() }
}

fn time(variant: &Variant, sequence: Sequence) {
    let tokens = sequence.ids.len();
    let batch = Batch { sequences: vec![sequence], ..Batch::default() };
    let run = || {
        let began = Instant::now();
        variant.run(&batch).ok().map(|_| began.elapsed())
    };
    if let Some(fastest) = (0..TIMED_RUNS).filter_map(|_| run()).min() {
        variant.note(tokens, fastest);
    }
}
