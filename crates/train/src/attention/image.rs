//! Image Transformer's two-dimensional form (Parmar et al. 2018, <https://arxiv.org/abs/1802.05751>).

use super::blocks::extended;
use super::blocks::{Part, Table, masked, together};
use super::input::{Heads, Input};
use super::work::product;
use super::{Attention, at_least_one};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Pictures in squares of `block` x `block` pixels; a pixel looks at its square and the eight around it. Time and memory
/// O(n · 9 · block²).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Pixels of a row of the picture.
    pub columns: usize,
    /// Pixels of a square's side.
    pub block: usize,
}

impl Attention for Image {
    fn check(&self) -> Result<(), Error> {
        at_least_one("block", self.block)?;
        at_least_one("columns", self.columns)?;
        if !self.columns.is_multiple_of(self.block) {
            return Err(Error::new("attention: a row of the picture is not a whole number of blocks"));
        }
        Ok(())
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Image {
    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let side = self.block;
        let across = self.columns / side;
        let down = length.div_ceil(self.columns * side);
        let (all, size) = (down * across * side * side, side * side);
        let squares = |x: Tensor<3>| {
            let width = x.dims()[2];
            let grid = extended(x, all).reshape([groups * down, side, across, side * width]);
            grid.swap_dims(1, 2).reshape([groups, down * across, size, width])
        };
        let around = |square: usize| {
            let (row, column) = (square / across, square % across);
            let near = |at: usize, by: usize, count: usize| (at + by).checked_sub(1).filter(|at| *at < count);
            let place = move |i: usize| Some(near(row, i / 3, down)? * across + near(column, i % 3, across)?);
            (0..9).map(place).collect::<Vec<_>>()
        };
        let table = Table::new((0..down * across).map(around).collect());
        let query = squares(heads.scaled_query());
        let scores = product(query, table.gather(squares(heads.key.clone())).transpose());
        let padding =
            heads.padding(all).map(|padding| table.gather(squares(padding.reshape([groups, all, 1]))).swap_dims(2, 3));
        let scores = masked(scores, [padding, table.mask(size, |_| false, &heads.device())]);
        let mixed = together(vec![Part { scores, values: table.gather(squares(heads.value.clone())) }]);
        let back = mixed.reshape([groups * down, across, side, side * width]).swap_dims(1, 2);
        back.reshape([groups, all, width]).slice_dim(1, 0..length)
    }
}
