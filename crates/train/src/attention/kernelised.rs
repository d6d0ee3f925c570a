//! Attention whose scores are products of features: `φ(q) (φ(k)ᵀ v)`, with the sum that would be softmax's below the line.

use super::blocks::{band, join, split};
use super::input::HIDDEN;
use super::work::{chain, each, product};
use burn::tensor::Tensor;

/// Tokens whose past is summed together in the causal form.
const BLOCK: usize = 64;
/// Below the line, where all features vanish.
const TINY: f64 = 1e-12;

/// `φ(q) (φ(k)ᵀ v) / φ(q) Σ φ(k)`; features `[groups, length, features]`, none of them negative, those of padding's keys
/// zero; values `[groups, length, width]`. Queries are asked for when keys are done with. O(n · features · width); the causal form sums block by block.
pub(crate) fn mix(query: impl FnOnce() -> Tensor<3>, key: Tensor<3>, value: Tensor<3>, causal: bool) -> Tensor<3> {
    let [groups, length, _] = value.dims();
    let value = Tensor::cat(vec![value.clone(), Tensor::ones([groups, length, 1], &value.device())], 2);
    divided(if causal { past(query(), key, value) } else { chain(query, key, value) })
}

/// The same where the features of every key are still to be multiplied by its weight, of which the logarithm is given,
/// `[groups, length, 1]`: values are, which is less work. The largest weight that a query sees is divided out, which cancels.
pub(crate) fn mix_weighted(
    query: impl FnOnce() -> Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    weight: Tensor<3>,
    causal: bool,
) -> Tensor<3> {
    if causal {
        return weighted_past(query(), key, value, weight);
    }
    let most = weight.clone().detach().max_dim(1);
    let weight = (weight - most).exp();
    divided(chain(query, key, Tensor::cat(vec![value * weight.clone(), weight], 2)))
}

/// Sums over what is below the line, which is in their last column.
fn divided(sums: Tensor<3>) -> Tensor<3> {
    let width = sums.dims()[2] - 1;
    sums.clone().slice_dim(2, 0..width) / sums.slice_dim(2, width..width + 1).add_scalar(TINY)
}

/// The sums of `mix` over keys up to each query.
fn past(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Tensor<3> {
    let length = query.dims()[1];
    let size = BLOCK.min(length);
    let [query, key, value] = [query, key, value].map(|x| split(x, size));
    let own = product(key.clone().transpose(), value.clone());
    let [groups, blocks, features, columns] = own.dims();
    // What all blocks before have summed up.
    each(own.dims(), 1);
    let nothing = Tensor::zeros([groups, 1, features, columns], &own.device());
    let before =
        if blocks == 1 { nothing } else { Tensor::cat(vec![nothing, own.slice_dim(1, 0..blocks - 1).cumsum(1)], 1) };
    let within = product(query.clone(), key.transpose()).tril(0);
    join(product(query, before) + product(within, value), length)
}

/// `mix_weighted` over keys up to each query; blocks are summed in O(n / 64 · log n · features · width). What is divided out is the largest weight up to the query, so that no later key,
/// however large, changes anything.
fn weighted_past(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, weight: Tensor<3>) -> Tensor<3> {
    let [groups, length, _] = value.dims();
    let size = BLOCK.min(length);
    let value = Tensor::cat(vec![value.clone(), Tensor::ones([groups, length, 1], &value.device())], 2);
    let [query, key, value, weight] = [query, key, value, weight].map(|x| split(x, size));
    let most = weight.clone().detach().max_dim(2);
    let sums = product(key.clone().transpose(), value.clone() * (weight.clone() - most.clone()).exp());
    let Scanned { most, sums } = Scanned { most, sums }.up_to_each().shifted(1);
    // The weights of the own block's keys up to each query, `[groups, blocks, size, size]`.
    let own = weight.swap_dims(2, 3) + band(size, 0, 0, |q, k| k <= q, &key.device());
    let largest = own.clone().detach().max_dim(3);
    let largest = largest.clone().max_pair(most.clone().expand(largest.dims()));
    let within = product(query.clone(), key.transpose()) * (own - largest.clone()).exp();
    let before = product(query, sums) * (most - largest).exp();
    divided(join(before + product(within, value), length))
}

/// Sums of blocks, each over the exponential of the largest weight in it.
struct Scanned {
    /// `[groups, blocks, 1, 1]`, without gradients.
    most: Tensor<4>,
    /// `[groups, blocks, features, columns]`.
    sums: Tensor<4>,
}

impl Scanned {
    /// Blocks in the place of those so many later; nothing comes first.
    fn shifted(&self, by: usize) -> Scanned {
        let [groups, blocks, features, columns] = self.sums.dims();
        let device = self.sums.device();
        let most = Tensor::full([groups, by, 1, 1], HIDDEN, &device);
        let sums = Tensor::zeros([groups, by, features, columns], &device);
        if by == blocks {
            return Scanned { most, sums };
        }
        Scanned {
            most: Tensor::cat(vec![most, self.most.clone().slice_dim(1, 0..blocks - by)], 1),
            sums: Tensor::cat(vec![sums, self.sums.clone().slice_dim(1, 0..blocks - by)], 1),
        }
    }

    /// Every block and all before it, in as many steps as the number of blocks has bits (Hillis and Steele 1986).
    fn up_to_each(mut self) -> Scanned {
        let blocks = self.sums.dims()[1];
        let mut by = 1;
        while by < blocks {
            let before = self.shifted(by);
            each(self.sums.dims(), 3);
            let most = self.most.clone().max_pair(before.most.clone());
            let sums = self.sums * (self.most - most.clone()).exp() + before.sums * (before.most - most.clone()).exp();
            self = Scanned { most, sums };
            by *= 2;
        }
        self
    }
}
