//! A dataset made ready for a model once, to be answered many times: by other seeds, other precisions, other plans.

use crate::batches::{batch, checked, groups};
use crate::evaluate::{metrics, positive, suits};
use crate::scorer::{self, Scorer, TextScorer};
use crate::{Dataset, Encode, Gold, Labels, Metric, Options, Outcome};
use sparing_model::{Architecture, Batch, Error, Outputs};

/// Inputs in batches, and what is right for each. For heads that answer once per text.
pub struct Prepared {
    batches: Vec<Batch>,
    /// The examples of every batch.
    groups: Vec<Vec<usize>>,
    gold: Vec<Gold>,
    labels: Labels,
    metrics: Vec<Metric>,
    /// What the user should be told.
    pub notes: Vec<String>,
}

impl Prepared {
    /// Tokenises a dataset for a model.
    pub fn new(
        encoder: &dyn Encode,
        architecture: &Architecture,
        dataset: &Dataset,
        options: &Options,
    ) -> Result<Prepared, Error> {
        let head = &architecture.head;
        suits(dataset.task, head.kind)?;
        if !scorer::one_row(head.kind) {
            return Err(Error::new(format!("{}: the model's head does not answer once per text", dataset.source)));
        }
        let mut notes = dataset.notes.clone();
        let gold = dataset.gold(head.kind, &head.labels, &mut notes)?;
        let units = scorer::texts(dataset, encoder, options.limit(architecture))?;
        if units.is_empty() {
            return Err(Error::new(format!("{}: nothing in it to be scored", dataset.source)));
        }
        let groups = groups(&units, options.tokens_per_batch);
        Ok(Prepared {
            batches: groups.iter().map(|group| batch(&units, group)).collect(),
            groups,
            gold,
            labels: Labels { count: head.labels.len(), positive: positive(dataset.task, &head.labels) },
            metrics: metrics(dataset, head.kind, &head.labels),
            notes,
        })
    }

    /// What to run, alike lengths together.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// Tokens of every input.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.batches.iter().flat_map(|batch| batch.sequences.iter().map(|sequence| sequence.ids.len()))
    }

    /// The task's metrics, the headline first.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The value of every metric, given the outputs of every batch.
    pub fn score(&self, outputs: Vec<Outputs>) -> Result<Vec<f64>, Error> {
        if outputs.len() != self.batches.len() {
            return Err(Error::new(format!("{} of {} batches have outputs", outputs.len(), self.batches.len())));
        }
        let count = self.gold.len();
        let labels = self.labels.count;
        let mut scorer = Box::new(TextScorer { gold: self.gold.clone(), outcomes: vec![None; count], labels });
        for ((group, batch), outputs) in self.groups.iter().zip(&self.batches).zip(outputs) {
            let outputs = checked(outputs, batch)?;
            for (&unit, output) in group.iter().zip(&outputs.sequences) {
                scorer.take(unit, output, outputs.width)?;
            }
        }
        let outcomes: Vec<Outcome> = scorer.finish().into_iter().map(|(_, outcome)| outcome).collect();
        let all: Vec<usize> = (0..outcomes.len()).collect();
        Ok(self.metrics.iter().map(|metric| metric.measure(&outcomes, &all, self.labels)).collect())
    }
}
