//! Memory-compressed attention (Liu et al. 2018, <https://arxiv.org/abs/1801.10198>).

use super::blocks::extended;
use super::fresh::{Begin, Fresh, Sizes};
use super::full::dense;
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::product;
use super::{Attention, projections, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Keys and values of every `factor` tokens become one by a learned convolution without overlap. Time and memory
/// O(n² / factor). In the causal form a token sees the groups that end before it and a key of nothing, so that the first tokens
/// have one too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCompressed {
    /// Tokens that become one.
    pub factor: usize,
}

impl Attention for MemoryCompressed {
    fn check(&self) -> Result<(), Error> {
        some_tokens("factor", self.factor)
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        [projections(sizes), compression(sizes, self.factor)].concat()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let (key, value) = (input.tensor("compress.key")?, input.tensor("compress.value")?);
        input.by_head(|heads| Ok(self.mix(heads, &key, &value)))
    }
}

/// The two convolutions, shared by all heads: `[factor * head width, head width]`.
fn compression(sizes: &Sizes, factor: usize) -> Vec<Fresh> {
    let width = sizes.head_width();
    let begin = Begin::Normal(1.0 / ((factor * width) as f64).sqrt());
    ["compress.key", "compress.value"].map(|name| Fresh::new(name, &[factor * width, width], begin)).to_vec()
}

/// `[groups, length, width]`, padding zero, to `[groups, length / factor, width]`.
pub(super) fn compressed(x: Tensor<3>, kernel: &Tensor<2>, factor: usize) -> Tensor<3> {
    let [groups, length, width] = x.dims();
    let count = length.div_ceil(factor);
    let together = extended(x, count * factor).reshape([groups * count, factor * width]);
    product(together, kernel.clone()).reshape([groups, count, width])
}

impl MemoryCompressed {
    fn mix(&self, heads: &Heads, key: &Tensor<2>, value: &Tensor<2>) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let factor = self.factor.min(length);
        let count = length.div_ceil(factor);
        let of = |x: &Tensor<3>, kernel: &Tensor<2>| {
            let x = heads.without_padding(x.clone());
            compressed(x, &kernel.clone().slice_dim(0, 0..factor * width), factor)
        };
        let (key, value) = (of(&heads.key, key), of(&heads.value, value));
        // A group counts if its first token does.
        let hidden =
            |real: &usize| (0..count).map(|at| if at * factor < *real { 0.0 } else { HIDDEN }).collect::<Vec<_>>();
        let padding: Vec<f32> = heads.lengths.iter().flat_map(hidden).collect();
        let device = heads.device();
        let padding = constant(padding, [groups, 1, count], &device);
        if !heads.causal {
            return dense(heads.scaled_query(), key, value, [Some(padding), None]);
        }
        let nothing = || Tensor::zeros([groups, 1, width], &device);
        let (key, value) = (Tensor::cat(vec![nothing(), key], 1), Tensor::cat(vec![nothing(), value], 1));
        let later = |at: usize| {
            let (query, group) = (at / (count + 1), at % (count + 1));
            if group * factor > query + 1 { HIDDEN } else { 0.0 }
        };
        let past = constant((0..length * (count + 1)).map(later).collect(), [1, length, count + 1], &device);
        let padding = Tensor::cat(vec![Tensor::zeros([groups, 1, 1], &device), padding], 2);
        dense(heads.scaled_query(), key, value, [Some(padding), Some(past)])
    }
}
