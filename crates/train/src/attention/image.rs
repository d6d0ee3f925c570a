//! Image Transformer's two-dimensional form (Parmar et al. 2018, <https://arxiv.org/abs/1802.05751>).

use super::blocks::{Part, Table, extended, masked, together};
use super::input::{HIDDEN, Input, constant};
use super::picture::{Picture, columns};
use super::work::product;
use super::{Attention, knob, some_tokens};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Pictures in squares of `block` x `block` pixels; a pixel looks at its square and the eight around it. Time and memory
/// O(n · 9 · block²). The causal form goes row by row of the picture; the paper's goes square by square.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Pixels of a row; if left out those of the task's pictures, or about the root of the longest sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<usize>,
    /// Pixels of a square's side.
    pub block: usize,
}

impl Attention for Image {
    fn check(&self) -> Result<(), Error> {
        knob("attention", "block", self.block, 1..=64)?;
        let Some(columns) = self.columns else { return Ok(()) };
        some_tokens("columns", columns)?;
        self.squares(columns)
    }

    fn fits(&self, columns: Option<usize>) -> Result<(), Error> {
        self.columns.or(columns).map_or(Ok(()), |columns| self.squares(columns))
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        self.fits(input.layout.columns)?;
        let (before, columns) = (input.layout.before, columns(self.columns, &input.layout, self.block));
        // One row that holds all is as good as a longer one, whose squares would be nothing but filling.
        let pixels = input.layout.longest.saturating_sub(before).max(1);
        let columns = columns.min(pixels.next_multiple_of(self.block));
        input.by_head(|heads| Ok(self.mix(&Picture::new(heads, before), columns)))
    }
}

impl Image {
    /// Refuses rows of so many pixels if they are not a whole number of squares.
    fn squares(&self, columns: usize) -> Result<(), Error> {
        if columns.is_multiple_of(self.block) {
            return Ok(());
        }
        let message = format!("attention: rows of {columns} pixels are not a multiple of block, {}", self.block);
        Err(Error::new(message))
    }

    fn mix(&self, picture: &Picture<'_>, columns: usize) -> Tensor<3> {
        let heads = &picture.pixels;
        let [groups, length, width] = heads.dims();
        let side = self.block;
        let across = columns / side;
        let down = length.div_ceil(columns * side);
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
        let scores = product(query.clone(), table.gather(squares(heads.key.clone())).transpose());
        let padding =
            heads.padding(all).map(|padding| table.gather(squares(padding.reshape([groups, all, 1]))).swap_dims(2, 3));
        let past = heads.causal.then(|| earlier(side, &heads.device()));
        let scores = masked(scores, [padding, table.mask(size, |_| false, &heads.device()), past]);
        let mut parts = vec![Part { scores, values: table.gather(squares(heads.value.clone())) }];
        parts.extend(picture.besides(query));
        let mixed = together(parts);
        let back = mixed.reshape([groups * down, across, side, side * width]).swap_dims(1, 2);
        picture.whole(back.reshape([groups, all, width]).slice_dim(1, 0..length))
    }
}

/// What to add to scores of a square's pixels with those of the nine squares around so that none sees a later one, row by row
/// of the picture: `[1, 1, side², 9 · side²]`.
fn earlier(side: usize, device: &Device) -> Tensor<4> {
    let size = side * side;
    let value = |at: usize| {
        let (query, square, key) = (at / (9 * size), at / size % 9, at % size);
        let place = |row: usize, column: usize, pixel: usize| (row * side + pixel / side, column * side + pixel % side);
        if place(square / 3, square % 3, key) > place(1, 1, query) { HIDDEN } else { 0.0 }
    };
    constant((0..9 * size * size).map(value).collect(), [1, 1, size, 9 * size], device)
}
