//! Nyströmformer (Xiong et al. 2021, <https://arxiv.org/abs/2102.03902>).

use super::blocks::extended;
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::{product, softmax};
use super::{Attention, rounds, some_tokens};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Nyström's method with the means of segments as landmarks: three softmaxes of `n x m`, `m x m` and `m x n`, the middle one
/// inverted by iteration. Segments are of one size, so that shorter sequences have fewer. Time O(n · landmarks), and
/// O(rounds · landmarks³) for the inverse, which is more than all else up to about n = rounds · landmarks² / head width; memory O(n · landmarks).
/// No causal form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nystrom {
    /// Segments of the longest sequence.
    pub landmarks: usize,
    /// Rounds of inversion.
    pub rounds: usize,
}

impl Attention for Nystrom {
    fn check(&self) -> Result<(), Error> {
        some_tokens("landmarks", self.landmarks)?;
        rounds("rounds", self.rounds)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let size = input.layout.longest.div_ceil(self.landmarks);
        input.by_head(|heads| Ok(self.mix(heads, size)))
    }
}

/// What to add to scores of segments' means so that empty ones do not count.
struct Empty {
    /// `[groups, 1, segments]`.
    from_tokens: Tensor<3>,
    /// `[groups, segments, segments]`: an empty one sees itself only, so that the others' inverse is as without it.
    from_segments: Tensor<3>,
}

impl Empty {
    /// Of how many tokens are in each segment of each group; `None`: there are some in all.
    fn new(tokens: &[usize], groups: usize, device: &Device) -> Option<Empty> {
        if tokens.iter().all(|tokens| *tokens > 0) {
            return None;
        }
        let count = tokens.len() / groups;
        let hidden = |hidden: bool| if hidden { HIDDEN } else { 0.0 };
        let from_tokens = tokens.iter().map(|tokens| hidden(*tokens == 0)).collect();
        let pair = |group: &[usize], at: usize| match (group[at / count], at / count == at % count) {
            (0, same) => !same,
            _ => group[at % count] == 0,
        };
        let square = |group| (0..count * count).map(move |at| hidden(pair(group, at)));
        Some(Empty {
            from_tokens: constant(from_tokens, [groups, 1, count], device),
            from_segments: constant(
                tokens.chunks_exact(count).flat_map(square).collect(),
                [groups, count, count],
                device,
            ),
        })
    }
}

impl Nystrom {
    /// With segments of `size` tokens.
    fn mix(&self, heads: &Heads, size: usize) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let size = size.clamp(1, length);
        let count = length.div_ceil(size);
        // Segments end where the tokens end: how many tokens each has, and which have none.
        let tokens = |real: &usize| (0..count).map(|at| real.saturating_sub(at * size).min(size)).collect::<Vec<_>>();
        let tokens: Vec<usize> = heads.lengths.iter().flat_map(tokens).collect();
        let device = heads.device();
        let over = tokens.iter().map(|tokens| 1.0 / (*tokens).max(1) as f32).collect();
        let over = constant(over, [groups, count, 1], &device);
        let empty = Empty::new(&tokens, groups, &device);
        let means = |x: Tensor<3>| {
            let sums =
                extended(heads.without_padding(x), count * size).reshape([groups * count, size, width]).sum_dim(1);
            sums.reshape([groups, count, width]) * over.clone()
        };
        let query = heads.scaled_query();
        let (asked, known) = (means(query.clone()), means(heads.key.clone()));
        let mut left = product(query, known.clone().transpose());
        let mut middle = product(asked.clone(), known.transpose());
        if let Some(empty) = empty {
            (left, middle) = (left + empty.from_tokens, middle + empty.from_segments);
        }
        let (left, middle) = (softmax(left), softmax(middle));
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
