//! What the economies that change no answer save.

use serde::Serialize;
use sparing_engine::Engine;
use sparing_model::{Batch, Sequence, Wanted};
use std::collections::{HashMap, HashSet};

/// Operations with one economy after the other, and the clock's word on the one that can be timed alone.
#[derive(Debug, Serialize)]
pub struct Economies {
    /// As an engine would spend that pads every batch to its longest sequence and computes every row.
    pub padded_flops: f64,
    /// Without padding.
    pub unpadded_flops: f64,
    /// And only the rows that the head reads in the last layer.
    pub head_rows_flops: f64,
    /// And identical inputs of a batch once: what is run.
    pub once_flops: f64,
    /// Sequences that were computed once for several.
    pub repeated: usize,
    /// Median seconds as run.
    pub seconds: f64,
    /// Median seconds with every row of the last layer (and no head).
    pub all_rows_seconds: f64,
}

impl Economies {
    /// Counts over all batches; `timed` are the seconds as run and with all rows.
    pub fn count(engine: &Engine, batches: &[Batch], timed: (f64, f64)) -> Economies {
        let mut sums = Economies {
            padded_flops: 0.0,
            unpadded_flops: 0.0,
            head_rows_flops: 0.0,
            once_flops: 0.0,
            repeated: 0,
            seconds: timed.0,
            all_rows_seconds: timed.1,
        };
        // Lengths repeat; counting one is not free.
        let mut alone: HashMap<usize, f64> = HashMap::new();
        for batch in batches {
            let lengths: Vec<usize> = batch.sequences.iter().map(|s| s.ids.len()).collect();
            let ledger = engine.ledger(&lengths, &batch.wanted);
            let exact: f64 = ledger.parts.iter().map(|p| p.flops_exact_padded as f64).sum();
            let run: f64 = ledger.parts.iter().map(|p| p.flops as f64).sum();
            sums.padded_flops += exact;
            sums.head_rows_flops += run;
            for (i, &length) in lengths.iter().enumerate() {
                let wanted = match &batch.wanted {
                    Wanted::Rows(rows) => Wanted::Rows(rows.get(i).cloned().into_iter().collect()),
                    other => other.clone(),
                };
                let one = || engine.ledger(&[length], &wanted).parts.iter().map(|p| p.flops_exact_padded as f64).sum();
                sums.unpadded_flops += *alone.entry(length).or_insert_with(one);
            }
            let different: HashSet<&Sequence> = batch.sequences.iter().collect();
            let repeated = batch.sequences.len() - different.len();
            sums.repeated += repeated;
            sums.once_flops += match repeated {
                0 => run,
                _ => {
                    let lengths: Vec<usize> = different.iter().map(|s| s.ids.len()).collect();
                    engine.ledger(&lengths, &batch.wanted).parts.iter().map(|p| p.flops as f64).sum()
                }
            };
        }
        sums
    }
}
