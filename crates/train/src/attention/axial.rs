//! Axial attention (Ho et al. 2019, <https://arxiv.org/abs/1912.12180>).

use super::blocks::{Part, band, extended, masked};
use super::input::Input;
use super::picture::{Picture, columns};
use super::sparse::crossed;
use super::work::product;
use super::{Attention, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A picture's pixel looks at its row and its column, in one softmax (the paper has layers of rows and layers of columns).
/// Time and memory O(n · (rows + columns)), O(n √n) for squares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axial {
    /// Pixels of a row; if left out those of the task's pictures, or about the root of the longest sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<usize>,
}

impl Attention for Axial {
    fn check(&self) -> Result<(), Error> {
        self.columns.map_or(Ok(()), |columns| some_tokens("columns", columns))
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let (before, columns) = (input.layout.before, columns(self.columns, &input.layout, 1));
        input.by_head(|heads| Ok(mix(&Picture::new(heads, before), columns)))
    }
}

fn mix(picture: &Picture<'_>, columns: usize) -> Tensor<3> {
    let pixels = &picture.pixels;
    let [groups, length, width] = pixels.dims();
    let columns = columns.min(length);
    let rows = length.div_ceil(columns);
    let device = pixels.device();
    let grid = |x: &Tensor<3>| extended(x.clone(), rows * columns).reshape([groups, rows, columns, width]);
    let (query, key, value) = (grid(&pixels.scaled_query()), grid(&pixels.key), grid(&pixels.value));
    let padding = pixels.padding(rows * columns).map(|p| p.reshape([groups, rows, 1, columns]));
    let past = pixels.causal.then(|| band(columns, 0, 0, |q, k| k <= q, &device));
    let scores = product(query.clone(), key.clone().transpose());
    let row = Part { scores: masked(scores, [padding.clone(), past]), values: value.clone() };
    let turned = |x: Tensor<4>| x.swap_dims(1, 2);
    let scores = product(turned(query.clone()), turned(key).transpose());
    let padding = padding.map(|p| p.swap_dims(2, 3).swap_dims(1, 2).swap_dims(2, 3));
    // The pixel itself is in its row already.
    let other = band(rows, 0, 0, |q, k| q != k && (!pixels.causal || k <= q), &device);
    let column = Part { scores: masked(scores, [padding, Some(other)]), values: turned(value) };
    picture.whole(crossed(row, column, picture.besides(query), [groups, rows, columns, width], length))
}
