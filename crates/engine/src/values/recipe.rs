//! Economised values as numbers to multiply with, for whoever computes them with gradients.

use super::budget::HeadPicks;
use super::draw::{Order, orders};
use super::{Rule, missing, spreads};
use sparing_model::{Attention, Error, LayerCalibration, Mca, Pooling, Sampler};

/// What economised values of one layer are made of: multipliers `m` per head and token, 1 where a token is exact.
///
/// Of inputs: `v_h = W_h (x m + mean (1 - m)) + b_h`, the mean 0 where nothing is calibrated. Of directions, columns of the
/// head's basis `B_h`: `v_h = B_h (m B_hᵀ W_h (x - mean)) + W_h mean + b_h`.
///
/// Draws, budgets and what is exact anyway are those of an engine in f32 with the same weights, plan and seed.
pub struct Recipe {
    rule: Rule,
    /// Per head, where inputs are drawn.
    orders: Vec<Order>,
}

impl Recipe {
    /// For layer `layer`, its value weights `[heads * head_width, inputs]` and its alpha.
    pub fn new(
        (layer, attention): (usize, &Attention),
        (mca, alpha): (&Mca, f32),
        values: &[f32],
        known: Option<&LayerCalibration>,
        seed: u64,
    ) -> Result<Recipe, Error> {
        if mca.sampler.needs_calibration() && known.is_none() {
            return Err(missing(mca.sampler));
        }
        let orders = match mca.sampler {
            Sampler::Paper => orders(&spreads(values, attention, None), false, (seed, layer)),
            Sampler::Calibrated => orders(&spreads(values, attention, known), false, (seed, layer)),
            Sampler::Systematic => orders(&spreads(values, attention, known), true, (seed, layer)),
            Sampler::Graded | Sampler::Mean => vec![],
            Sampler::Int8 => {
                return Err(Error::new(
                    "attention: int8 rounds values and has no gradient; train with mca, calibrated, systematic, graded or mean",
                ));
            }
        };
        Ok(Recipe { rule: Rule::new((layer, attention), (mca, alpha), 1.0), orders })
    }

    /// How the attention that a token gets becomes one number.
    pub fn pooling(&self) -> Pooling {
        self.rule.pooling
    }

    /// Whether directions are multiplied, else inputs.
    pub fn by_direction(&self) -> bool {
        self.rule.sampler == Sampler::Graded
    }

    /// Whether what is multiplied is the distance from the calibration's mean.
    pub fn centred(&self) -> bool {
        self.rule.sampler != Sampler::Paper
    }

    /// Multipliers of a token and head.
    pub fn steps(&self) -> usize {
        if self.by_direction() { self.rule.width } else { self.rule.inputs }
    }

    /// The multipliers of one sequence, given head by head: `write(head, token, multipliers)`. `pooled` is the attention that
    /// every token gets, `[heads, tokens]`: the largest or the median probability, or the sum for the mean, over `queries`
    /// queries.
    pub fn multipliers(&self, pooled: &[f32], queries: usize, mut write: impl FnMut(usize, usize, &[f32])) {
        let rule = &self.rule;
        let of = |head: usize| &pooled[head * pooled.len() / rule.heads..(head + 1) * pooled.len() / rule.heads];
        let mut picks = HeadPicks::default();
        let dense = rule.is_dense(queries, &mut picks, of);
        let mut row = vec![0.0; self.steps()];
        for head in 0..rule.heads {
            rule.each(&mut picks, of(head), queries, |token, r, exact| {
                match self.orders.get(head) {
                    _ if exact || dense => row.fill(1.0),
                    Some(order) => order.multipliers(r, &mut row),
                    None => {
                        row.fill(0.0);
                        row[..rule.buys(r) as usize].fill(1.0);
                    }
                }
                write(head, token, &row);
            });
        }
    }
}
