//! Sparse Transformer (Child et al. 2019, <https://arxiv.org/abs/1904.10509>): two patterns of about √n keys each, merged
//! into one softmax.

use super::blocks::{Part, Table, band, broadcast, join, masked, split, together};
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::{product, softmax};
use super::{Attention, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// The tokens fewer than `stride` away, and all that are a multiple of `stride` away. Time and memory O(n · (stride +
/// n / stride)), which is O(n √n) at a stride of √n.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strided {
    /// Tokens between two that are looked at from afar.
    pub stride: usize,
}

/// The tokens of the own block, and the last `summaries` tokens of every block. Time and memory O(n · (stride +
/// summaries · n / stride)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// Tokens of a block.
    pub stride: usize,
    /// Tokens at the end of each block that everybody looks at.
    pub summaries: usize,
}

impl Attention for Strided {
    fn check(&self) -> Result<(), Error> {
        some_tokens("stride", self.stride)
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Strided {
    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let size = self.stride.min(length);
        let device = heads.device();
        let query = split(heads.scaled_query(), size);
        let blocks = query.dims()[1];
        let after = usize::from(!heads.causal);
        let near = Table::window(blocks, 1, after);
        let stride = size as isize;
        let seen = |q: isize, k: isize| (q - k).abs() < stride && (!heads.causal || k <= q);
        let gather = |x: &Tensor<3>| near.gather(split(x.clone(), size));
        let masks = [
            near.mask(size, |_| false, &device),
            near.padding(heads, blocks, size),
            Some(band(size, 1, after, seen, &device)),
        ];
        let scores = masked(product(query.clone(), gather(&heads.key).transpose()), masks);
        let local = Part { scores, values: gather(&heads.value) };
        // Tokens of one remainder stand together: `[groups, remainder, block, width]`.
        let turned = |x: Tensor<4>| x.swap_dims(1, 2);
        let (key, value) = (turned(split(heads.key.clone(), size)), turned(split(heads.value.clone(), size)));
        let mut scores = product(turned(query), key.transpose());
        if let Some(padding) = heads.padding(blocks * size) {
            scores = scores + turned(padding.reshape([groups, blocks, size, 1])).swap_dims(2, 3);
        }
        // The token itself is near already.
        let far = |at: usize| {
            let (q, k) = (at / blocks, at % blocks);
            if q == k || (heads.causal && k > q) { HIDDEN } else { 0.0 }
        };
        let mask = constant((0..blocks * blocks).map(far).collect(), [1, 1, blocks, blocks], &device);
        let far = Part { scores: scores + mask, values: value };
        crossed(local, far, None, [groups, blocks, size, width], length)
    }
}

/// One softmax over keys of the own row and of the own column of a grid `[groups, rows, columns, width]`, and of what all see
/// besides; the columns' scores and values have rows and columns exchanged.
pub(super) fn crossed(
    row: Part,
    column: Part,
    besides: Option<Part>,
    [groups, rows, columns, width]: [usize; 4],
    length: usize,
) -> Tensor<3> {
    let (near, far) = (row.scores.dims()[3], column.scores.dims()[3]);
    let mut scores = vec![row.scores, column.scores.swap_dims(1, 2)];
    scores.extend(besides.as_ref().map(|part| part.scores.clone()));
    let shares = softmax(Tensor::cat(scores, 3));
    let along = product(shares.clone().slice_dim(3, 0..near), row.values);
    let across = shares.clone().slice_dim(3, near..near + far).swap_dims(1, 2);
    let mut mixed: Tensor<4> = along + product(across, column.values).swap_dims(1, 2);
    if let Some(part) = besides {
        let all = shares.dims()[3];
        mixed = mixed + broadcast(shares.slice_dim(3, near + far..all), part.values);
    }
    join(mixed.reshape([groups, rows, columns, width]), length)
}

impl Attention for Fixed {
    fn check(&self) -> Result<(), Error> {
        some_tokens("stride", self.stride)?;
        some_tokens("summaries", self.summaries)?;
        if self.summaries > self.stride {
            return Err(Error::new("attention: summaries are more than the tokens of a block"));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Fixed {
    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let size = self.stride.min(length);
        let last = self.summaries.min(size);
        let device = heads.device();
        let query = split(heads.scaled_query(), size);
        let blocks = query.dims()[1];
        let own = Table::window(blocks, 0, 0);
        let past = heads.causal.then(|| band(size, 0, 0, |q, k| k <= q, &device));
        let (key, value) = (split(heads.key.clone(), size), split(heads.value.clone(), size));
        let scores = product(query.clone(), key.clone().transpose());
        let scores = masked(scores, [own.padding(heads, blocks, size), past]);
        let local = Part { scores, values: value.clone() };
        // The last tokens of all blocks: `[groups, 1, blocks * last, width]`.
        let ends = |x: Tensor<4>| x.slice_dim(2, size - last..size).reshape([groups, 1, blocks * last, width]);
        let mut scores = broadcast(query, ends(key).transpose());
        if let Some(padding) = heads.padding(blocks * size) {
            let padding = padding.reshape([groups, blocks, size]).slice_dim(2, size - last..size);
            scores = scores + padding.reshape([groups, 1, 1, blocks * last]);
        }
        // Those of the own block are in it already.
        let hidden = |at: usize| {
            let (block, of) = (at / (blocks * last), at % (blocks * last) / last);
            if of == block || (heads.causal && of > block) { HIDDEN } else { 0.0 }
        };
        let count = blocks * blocks * last;
        let mask = constant((0..count).map(hidden).collect(), [1, blocks, 1, blocks * last], &device);
        let far = Part { scores: scores + mask, values: ends(value) };
        join(together(vec![local, far]), length)
    }
}
