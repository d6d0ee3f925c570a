//! Windows with a few tokens that see all and are seen by all: what Longformer, ETC and BigBird share.

use super::blocks::{Part, Table, broadcast, join, masked, split, together};
use super::full::dense;
use super::input::Heads;
use super::work::product;
use burn::tensor::Tensor;

/// Blocks that look at chosen blocks and at the first tokens.
pub(super) struct Windowed<'a> {
    /// Tokens of a block.
    pub(super) size: usize,
    /// Which blocks each one looks at.
    pub(super) table: Table,
    /// Within those: added to scores, `[1 or groups, 1 or blocks, size, keys]`.
    pub(super) near: Option<Tensor<4>>,
    /// Tokens at the beginning that see all and are seen by all.
    pub(super) globals: usize,
    /// Added to scores of queries and global keys, `[groups, blocks, size, globals]`.
    pub(super) far: Option<Tensor<4>>,
    /// Added to scores of global queries and all keys, `[groups, globals, length]`.
    pub(super) above: Option<Tensor<3>>,
    /// What is mixed.
    pub(super) heads: &'a Heads,
}

impl Windowed<'_> {
    pub(super) fn mix(self) -> Tensor<3> {
        let heads = self.heads;
        let [groups, length, width] = heads.dims();
        let (size, globals) = (self.size, self.globals.min(length));
        let device = heads.device();
        let query = split(heads.scaled_query(), size);
        let blocks = query.dims()[1];
        let gather = |x: &Tensor<3>| self.table.gather(split(x.clone(), size));
        let masks = [
            // Global tokens are looked at apart.
            self.table.mask(size, |at| at < globals, &device),
            self.table.padding(heads, blocks, size),
            self.near,
        ];
        let scores = masked(product(query.clone(), gather(&heads.key).transpose()), masks);
        let mut parts = vec![Part { scores, values: gather(&heads.value) }];
        if globals > 0 {
            let first = |x: &Tensor<3>| x.clone().slice_dim(1, 0..globals).reshape([groups, 1, globals, width]);
            let padding = heads.padding(globals).map(|p| p.reshape([groups, 1, 1, globals]));
            let scores = masked(broadcast(query, first(&heads.key).transpose()), [padding, self.far]);
            parts.push(Part { scores, values: first(&heads.value) });
        }
        let local = join(together(parts), length);
        if globals == 0 {
            return local;
        }
        let query = heads.scaled_query().slice_dim(1, 0..globals);
        let seeing = dense(query, heads.key.clone(), heads.value.clone(), [heads.padding(length), self.above]);
        if globals == length {
            return seeing;
        }
        Tensor::cat(vec![seeing, local.slice_dim(1, globals..length)], 1)
    }
}
