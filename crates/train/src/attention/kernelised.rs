//! Attention whose scores are products of features: `φ(q) (φ(k)ᵀ v)`, with the sum that would be softmax's below the line.

use super::blocks::{join, split};
use super::work::{chain, product};
use burn::tensor::Tensor;

/// Tokens whose past is summed together in the causal form.
const BLOCK: usize = 64;
/// Below the line, where all features vanish.
const TINY: f64 = 1e-12;

/// `φ(q) (φ(k)ᵀ v) / φ(q) Σ φ(k)`; features `[groups, length, features]`, none of them negative, those of padding's keys
/// zero; values `[groups, length, width]`. Queries are asked for when keys are done with. O(n · features · width); the causal form sums block by block.
pub(crate) fn mix(query: impl FnOnce() -> Tensor<3>, key: Tensor<3>, value: Tensor<3>, causal: bool) -> Tensor<3> {
    let [groups, length, _] = value.dims();
    let ones = Tensor::ones([groups, length, 1], &value.device());
    sums(query, key, value, ones, causal)
}

/// The same where the features of every key are still to be multiplied by its weight `[groups, length, 1]`: values are, which
/// is less work.
pub(crate) fn mix_weighted(
    query: impl FnOnce() -> Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    weight: Tensor<3>,
    causal: bool,
) -> Tensor<3> {
    sums(query, key, value * weight.clone(), weight, causal)
}

/// The column of weights sums the shares in the same product.
fn sums(
    query: impl FnOnce() -> Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    weight: Tensor<3>,
    causal: bool,
) -> Tensor<3> {
    let width = value.dims()[2];
    let value = Tensor::cat(vec![value, weight], 2);
    let sums = if causal { past(query(), key, value) } else { chain(query, key, value) };
    sums.clone().slice_dim(2, 0..width) / sums.slice_dim(2, width..width + 1).add_scalar(TINY)
}

/// The same sums over keys up to each query.
fn past(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Tensor<3> {
    let length = query.dims()[1];
    let size = BLOCK.min(length);
    let [query, key, value] = [query, key, value].map(|x| split(x, size));
    let each = product(key.clone().transpose(), value.clone());
    let [groups, blocks, features, columns] = each.dims();
    // What all blocks before have summed up.
    let nothing = Tensor::zeros([groups, 1, features, columns], &each.device());
    let before =
        if blocks == 1 { nothing } else { Tensor::cat(vec![nothing, each.slice_dim(1, 0..blocks - 1).cumsum(1)], 1) };
    let within = product(query.clone(), key.transpose()).tril(0);
    join(product(query, before) + product(within, value), length)
}
