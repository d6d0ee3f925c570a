//! What economised values do to a batch, layer by layer: what was spent on every token, the error made, the paper's bound.

use crate::{Engine, RunOptions};
use sparing_model::{Batch, Error, Outputs};

/// What economised values did to one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerExamined {
    /// The layer.
    pub layer: usize,
    /// `||A·H~ - A·H|| / ||A·H||` (Frobenius) over all queries and heads, both from the exact model's inputs; H without
    /// what is the same for all tokens, bias and mean, would be smaller.
    pub relative_error: f64,
    /// Mean of `||A·H~ - A·H||` over queries and heads.
    pub error: f64,
    /// Mean over heads of what Theorem 2 promises this to stay below in expectation: `alpha · beta · ||W_h||_F`, with beta
    /// the mean length of the rows. For the paper's sampler; the heirs have smaller ones.
    pub bound: f64,
    /// Per sequence and token: the share of the exact cost that was spent, mean over heads.
    pub spent: Vec<Vec<f32>>,
}

/// Sums that become a [`LayerExamined`].
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) layer: usize,
    pub(crate) squared_error: f64,
    pub(crate) squared_size: f64,
    pub(crate) error: f64,
    pub(crate) rows: f64,
    pub(crate) bound: f64,
    pub(crate) spent: Vec<Vec<f32>>,
}

impl Sums {
    /// Adds another wave's.
    pub(crate) fn join(&mut self, other: Sums) {
        let rows = self.rows + other.rows;
        self.bound = (self.bound * self.rows + other.bound * other.rows) / rows.max(1.0);
        self.squared_error += other.squared_error;
        self.squared_size += other.squared_size;
        self.error += other.error;
        self.rows = rows;
        self.spent.extend(other.spent);
    }
}

impl Engine {
    /// Runs a batch exactly, and beside it computes every economised layer's attention with economised values from the
    /// same exact inputs. Sequences as they come; identical ones are not merged. For looking, not for speed.
    pub fn examine(&self, batch: &Batch, options: &RunOptions) -> Result<(Outputs, Vec<LayerExamined>), Error> {
        let mut examined = Vec::new();
        let outputs = self.run_examined(batch, options, &mut examined)?;
        let layers = examined.into_iter().map(|sums: Sums| LayerExamined {
            layer: sums.layer,
            relative_error: (sums.squared_error / sums.squared_size.max(1e-300)).sqrt(),
            error: sums.error / sums.rows.max(1.0),
            bound: sums.bound,
            spent: sums.spent,
        });
        Ok((outputs, layers.collect()))
    }
}
