//! Nyströmformer (Xiong et al. 2021, <https://arxiv.org/abs/2102.03902>).

use super::blocks::extended;
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::{product, softmax};
use super::{Attention, at_least_one};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Nyström's method with the means of segments as landmarks: three softmaxes of `n x m`, `m x m` and `m x n`, the middle one
/// inverted by iteration. Time and memory O(n · landmarks). No causal form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nystrom {
    /// Segments.
    pub landmarks: usize,
    /// Rounds of inversion.
    pub rounds: usize,
}

impl Attention for Nystrom {
    fn check(&self) -> Result<(), Error> {
        at_least_one("landmarks", self.landmarks)?;
        at_least_one("rounds", self.rounds)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Nystrom {
    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let size = length.div_ceil(self.landmarks);
        let count = length.div_ceil(size);
        // Segments end where the tokens end: how many tokens each has, and which have none.
        let tokens = |real: &usize| (0..count).map(|at| real.saturating_sub(at * size).min(size)).collect::<Vec<_>>();
        let tokens: Vec<usize> = heads.lengths.iter().flat_map(tokens).collect();
        let device = heads.device();
        let over = tokens.iter().map(|tokens| 1.0 / (*tokens).max(1) as f32).collect();
        let over = constant(over, [groups, count, 1], &device);
        let empty = tokens.iter().map(|tokens| if *tokens == 0 { HIDDEN } else { 0.0 }).collect();
        let empty = constant(empty, [groups, 1, count], &device);
        let present = heads.present(length);
        let means = |x: Tensor<3>| {
            let x = match &present {
                Some(present) => x * present.clone(),
                None => x,
            };
            let sums = extended(x, count * size).reshape([groups * count, size, width]).sum_dim(1);
            sums.reshape([groups, count, width]) * over.clone()
        };
        let query = heads.scaled_query();
        let (asked, known) = (means(query.clone()), means(heads.key.clone()));
        let left = softmax(product(query, known.clone().transpose()) + empty.clone());
        let middle = softmax(product(asked.clone(), known.transpose()) + empty);
        let right = product(asked, heads.key.clone().transpose());
        let right = softmax(match heads.padding(length) {
            Some(padding) => right + padding,
            None => right,
        });
        let inner = product(self.inverse(middle), product(right, heads.value.clone()));
        product(left, inner)
    }

    /// The pseudo-inverse of `[groups, m, m]` by iteration (Razavi et al. 2014, the paper's equation 11).
    pub(super) fn inverse(&self, a: Tensor<3>) -> Tensor<3> {
        let [groups, count, _] = a.dims();
        let largest = |axis: usize| a.clone().abs().sum_dim(axis).max_dim(3 - axis);
        let mut z = a.clone().transpose() / (largest(1) * largest(2));
        let eye = |scale: f32| {
            let value = |at: usize| if at.is_multiple_of(count + 1) { scale } else { 0.0 };
            constant((0..count * count).map(value).collect(), [1, count, count], &a.device())
                .expand([groups, count, count])
        };
        for _ in 0..self.rounds {
            let az = product(a.clone(), z.clone());
            let inner = product(az.clone(), eye(7.0) - az.clone());
            let outer = product(az, eye(15.0) - inner);
            z = product(z, eye(13.0) - outer).mul_scalar(0.25);
        }
        z
    }
}
