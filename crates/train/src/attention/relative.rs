//! Scores by distance: `q · r(j - i)` for keys in a window, without a score for every pair of tokens.

use super::work::product;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// For queries `[groups, blocks, size, width]` and rows of distances `[groups, distances, width]`: what queries give to
/// the keys of a window, `[groups, blocks, size, keys]`. `distance(query, key)` says which row a pair has, both counted from the
/// first of their kind in the block.
pub(super) fn scores(
    query: Tensor<4>,
    rows: Tensor<3>,
    keys: usize,
    distance: impl Fn(usize, usize) -> usize,
) -> Tensor<4> {
    let [groups, blocks, size, width] = query.dims();
    let distances = rows.dims()[1];
    let all = product(query.reshape([groups, blocks * size, width]), rows.transpose());
    let all = all.reshape([groups, blocks, size, distances]);
    let device = all.device().without_autodiff();
    // Each row of the block picks from its own distances: a pick per row, the same for all blocks.
    let places: Vec<i32> = (0..size)
        .flat_map(|q| (0..keys).map(|k| (q * distances + distance(q, k)) as i32).collect::<Vec<_>>())
        .collect();
    let picked = all.reshape([groups * blocks, size * distances]).select(1, indices(places, &device));
    picked.reshape([groups, blocks, size, keys])
}

fn indices(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
