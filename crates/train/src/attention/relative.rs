//! Scores by distance: `q · r(j - i)` for keys in a window, without a score for every pair of tokens.

use super::work::product;
use burn::tensor::Tensor;

/// For queries `[groups, blocks, size, width]` and rows `[groups, keys + size - 1, width]`: what queries give to the keys of a
/// window, `[groups, blocks, size, keys]`. Rows go by distance: query `q` and key `k` have row `size - 1 + k - q`.
pub(super) fn scores(query: Tensor<4>, rows: Tensor<3>) -> Tensor<4> {
    let [groups, blocks, size, width] = query.dims();
    let wide = rows.dims()[1];
    let keys = wide + 1 - size;
    let all = product(query.reshape([groups, blocks * size, width]), rows.transpose());
    if size == 1 {
        return all.reshape([groups, blocks, 1, keys]);
    }
    // The first key's row stands one place earlier for each query: end to end, in rows that are one shorter, all begin there.
    let flat = all.reshape([groups * blocks, size * wide]).slice_dim(1, size - 1..size - 1 + size * (wide - 1));
    let skewed = flat.reshape([groups * blocks, size, wide - 1]).slice_dim(2, 0..keys);
    skewed.reshape([groups, blocks, size, keys])
}
