//! ETC, the extended Transformer construction (Ainslie et al. 2020, <https://arxiv.org/abs/2004.08483>).

use super::blocks::{Table, band, broadcast, split};
use super::fresh::{Begin, Fresh, Sizes};
use super::globals::Windowed;
use super::input::{Heads, Input};
use super::work::product;
use super::{Attention, projections, relative, some_tokens, tokens};
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Global tokens of their own, learned and put before the sequence, that see all and are seen by all; tokens see `radius`
/// to each side. Distances are labels with a learned row each, cut off at `labels`; to and from global tokens there is one
/// label each. Time and memory O(n · (radius + globals)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Etc {
    /// Global tokens.
    pub globals: usize,
    /// Tokens seen to each side.
    pub radius: usize,
    /// Distances with a label of their own, to each side.
    pub labels: usize,
}

impl Attention for Etc {
    fn check(&self) -> Result<(), Error> {
        some_tokens("globals", self.globals)?;
        tokens("labels", self.labels)?;
        some_tokens("radius", self.radius)
    }

    fn prefix(&self) -> usize {
        self.globals
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let mut all = projections(sizes);
        // Distances, then: token to global, global to token, global to global.
        let rows = 2 * self.labels + 1 + 3;
        all.push(Fresh::new("labels", &[sizes.heads, rows * sizes.head_width()], Begin::Normal(0.02)));
        all
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let labels = input.tensor("labels")?;
        input.by_head(|heads| Ok(self.mix(heads, labels.clone())))
    }
}

/// Rows of each head, `[heads, rows * width]`, by their numbers: `[heads, numbers * width]`.
fn picked(rows: Tensor<2>, numbers: Vec<i32>, width: usize) -> Tensor<2> {
    let ([heads, all], count) = (rows.dims(), numbers.len());
    let device = rows.device().without_autodiff();
    let numbers = Tensor::<1, Int>::from_data(TensorData::new(numbers, [count]), &device);
    rows.reshape([heads, all / width, width]).select(1, numbers).reshape([heads, count * width])
}

impl Etc {
    fn mix(&self, heads: &Heads, labels: Tensor<2>) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let (globals, cut) = (self.globals.min(length), self.labels as isize);
        let reach = self.radius.min(length);
        let rows = heads.own(labels.clone(), 2 * self.labels + 4);
        let query = split(heads.scaled_query(), reach);
        let seen = |q: isize, k: isize| (q - k).abs() <= reach as isize;
        // Labels of the distances in the window, from the farthest before to the farthest after.
        let away = 1 - 2 * reach as isize..2 * reach as isize;
        let by_distance = away.map(|away| (away.clamp(-cut, cut) + cut) as i32).collect();
        let near = relative::scores(query.clone(), heads.own(picked(labels, by_distance, width), 4 * reach - 1));
        let label = |number: usize| rows.clone().slice_dim(1, 2 * self.labels + number..2 * self.labels + number + 1);
        let far = broadcast(query, label(1).reshape([groups, 1, width, 1]));
        // Global queries: one label for global keys and one for others.
        let global = heads.scaled_query().slice_dim(1, 0..globals);
        let to = |number: usize, keys: usize| {
            product(global.clone(), label(number).transpose()).expand([groups, globals, keys])
        };
        let above = match length - globals {
            0 => to(3, globals),
            tokens => Tensor::cat(vec![to(3, globals), to(2, tokens)], 2),
        };
        Windowed {
            size: reach,
            table: Table::window(length.div_ceil(reach), 1, 1),
            near: Some(near + band(reach, 1, 1, seen, &heads.device())),
            globals,
            far: Some(far),
            above: Some(above),
            heads,
        }
        .mix()
    }
}
