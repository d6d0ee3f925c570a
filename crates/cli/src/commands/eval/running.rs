//! The score so far, for whoever watches the progress bar.

use sparing_model::{Batch, Error, Executor, HeadKind, Model, Outputs, Sequence};
use sparing_tasks::{Dataset, Gold};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An executor that looks over another's shoulder: how many of the labels it gave so far are right.
pub struct Running<'a> {
    executor: &'a dyn Executor,
    /// The right label of each input; empty where nobody watches, or the head gives more than one label.
    gold: HashMap<Sequence, usize>,
    right: AtomicUsize,
    seen: AtomicUsize,
}

impl<'a> Running<'a> {
    /// Watches an executor; `shown` is false where nobody will ask for the score.
    pub fn new(
        executor: &'a dyn Executor,
        model: &Model,
        dataset: &Dataset,
        max_tokens: Option<usize>,
        shown: bool,
    ) -> Self {
        let head = &model.architecture.head;
        let mut gold = HashMap::new();
        // Anything wrong with a label or a text is told by the evaluation itself.
        if let (true, HeadKind::Classify, Ok(tokenizer)) = (shown, head.kind, model.tokenizer())
            && let Ok(labels) = dataset.gold(head.kind, &head.labels, &mut Vec::new())
        {
            for (example, label) in dataset.examples.iter().zip(labels) {
                let encoded = tokenizer.encode(&example.text, example.pair.as_deref(), max_tokens);
                if let (Ok(encoded), Gold::Class(label)) = (encoded, label) {
                    gold.insert(encoded.sequence, label);
                }
            }
        }
        Running { executor, gold, right: AtomicUsize::new(0), seen: AtomicUsize::new(0) }
    }

    /// `90.1% right`, once something has been seen.
    pub fn score(&self) -> String {
        let (right, seen) = (self.right.load(Ordering::Relaxed), self.seen.load(Ordering::Relaxed));
        if seen == 0 { String::new() } else { format!("{:.1}% right, ", 100.0 * right as f64 / seen as f64) }
    }
}

impl Executor for Running<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let outputs = self.executor.run(batch)?;
        for (sequence, logits) in batch.sequences.iter().zip(&outputs.sequences) {
            if let Some(label) = self.gold.get(sequence) {
                let top = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                self.right.fetch_add(usize::from(top.map(|t| t.0) == Some(*label)), Ordering::Relaxed);
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(outputs)
    }
}
