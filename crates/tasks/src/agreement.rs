//! How alike two executors answer, beside how well: an economised model may keep its accuracy and still
//! answer differently. The measures are those of llama.cpp's perplexity tool.

use crate::batches::{self, Progress};
use crate::bootstrap::quantile;
use crate::encode::Encode;
use crate::evaluate::{Options, units};
use crate::scorer::top;
use crate::{Dataset, scorer::cosine};
use serde::{Deserialize, Serialize};
use sparing_model::{Architecture, Error, Executor, HeadKind};

/// How alike two executors answer the same inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Number of answers compared: texts, tokens, start and end of answers.
    pub n: usize,
    /// Share of answers whose top choice (set of labels) is the same; none for heads without choices.
    pub same_top: Option<f64>,
    /// Mean Kullback-Leibler divergence of the second's distribution from the first's, in nats.
    pub mean_kl: Option<f64>,
    /// 99% of the answers diverge less than this.
    pub kl_99: Option<f64>,
    /// Mean cosine between the outputs, for heads that give vectors.
    pub mean_cosine: Option<f64>,
    /// The largest difference between two outputs.
    pub max_abs_difference: f64,
    /// The mean absolute difference between outputs.
    pub mean_abs_difference: f64,
    /// Everything was run.
    pub complete: bool,
}

/// Compares the second executor with the first (the exact model) on a dataset; labels are not needed.
pub fn agreement(
    first: &dyn Executor,
    second: &dyn Executor,
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Agreement, Error> {
    let units = units(encoder, architecture, dataset, options)?;
    let mut sums = Sums::default();
    let kind = architecture.head.kind;
    let budget = options.tokens_per_batch;
    let spent = batches::run(&[first, second], &units, budget, progress, |_, outputs| {
        let (a, b) = (&outputs[0], &outputs[1]);
        for (x, y) in a.sequences.iter().zip(&b.sequences) {
            if a.width != b.width || x.len() != y.len() {
                return Err(Error::new(format!(
                    "the executors' outputs have different shapes: {} numbers in rows of {} and {} in rows of {}",
                    x.len(),
                    a.width,
                    y.len(),
                    b.width
                )));
            }
            sums.add(kind, x, y, a.width);
        }
        Ok(())
    })?;
    if sums.numbers == 0 {
        return Err(Error::new("cancelled before the first example was done"));
    }
    Ok(sums.finish(spent.complete))
}

#[derive(Default)]
struct Sums {
    same: usize,
    divergences: Vec<f64>,
    cosines: f64,
    rows: usize,
    largest: f64,
    difference: f64,
    numbers: usize,
    choices: bool,
}

impl Sums {
    fn add(&mut self, kind: HeadKind, x: &[f32], y: &[f32], width: usize) {
        for (a, b) in x.iter().zip(y) {
            let d = f64::from((a - b).abs());
            // A comparison that a NaN survives: it must not look like agreement.
            if d.is_nan() || d > self.largest {
                self.largest = d;
            }
            self.difference += d;
        }
        self.numbers += x.len();
        self.choices = true;
        match kind {
            HeadKind::Classify | HeadKind::TokenClassify | HeadKind::MaskedLm | HeadKind::CausalLm => {
                for (a, b) in x.chunks_exact(width).zip(y.chunks_exact(width)) {
                    self.choice(a, b);
                }
            }
            HeadKind::Answer => {
                for column in 0..width {
                    let take = |v: &[f32]| -> Vec<f32> { v.iter().skip(column).step_by(width).copied().collect() };
                    self.choice(&take(x), &take(y));
                }
            }
            HeadKind::MultiLabel => {
                self.rows += 1;
                self.same += usize::from(x.iter().zip(y).all(|(a, b)| (*a > 0.0) == (*b > 0.0)));
                let kl = x.iter().zip(y).map(|(&a, &b)| kl(&[a, 0.0], &[b, 0.0])).sum();
                self.divergences.push(kl);
            }
            HeadKind::Hidden | HeadKind::Embed { .. } | HeadKind::Regress => {
                self.choices = false;
                for (a, b) in x.chunks_exact(width).zip(y.chunks_exact(width)) {
                    self.rows += 1;
                    self.cosines += cosine(a, b);
                }
            }
        }
    }

    fn choice(&mut self, a: &[f32], b: &[f32]) {
        self.rows += 1;
        self.same += usize::from(top(a) == top(b));
        self.divergences.push(kl(a, b));
    }

    fn finish(mut self, complete: bool) -> Agreement {
        let n = self.rows as f64;
        self.divergences.sort_unstable_by(f64::total_cmp);
        let choices = self.choices;
        let divergences = &self.divergences;
        Agreement {
            n: self.rows,
            same_top: choices.then(|| self.same as f64 / n),
            mean_kl: choices.then(|| divergences.iter().sum::<f64>() / n),
            kl_99: choices.then(|| quantile(divergences, 0.99)),
            mean_cosine: (!choices).then(|| self.cosines / n),
            max_abs_difference: self.largest,
            mean_abs_difference: self.difference / self.numbers as f64,
            complete,
        }
    }
}

/// Kullback-Leibler divergence `sum p ln(p / q)` of the softmax of two rows of logits, in nats.
pub fn kl(p: &[f32], q: &[f32]) -> f64 {
    let log_sum = |x: &[f32]| {
        let largest = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = x.iter().map(|&v| (f64::from(v) - largest).exp()).sum();
        largest + sum.ln()
    };
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let divergence: f64 = p
        .iter()
        .zip(q)
        .map(|(&a, &b)| {
            let (a, b) = (f64::from(a) - p_sum, f64::from(b) - q_sum);
            a.exp() * (a - b)
        })
        .sum();
    // Rounding must not make it negative; NaN stays NaN.
    if divergence < 0.0 { 0.0 } else { divergence }
}
