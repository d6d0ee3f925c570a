//! Segments that remember those before: Transformer-XL (Dai et al. 2019, <https://arxiv.org/abs/1901.02860>) and the
//! Compressive Transformer (Rae et al. 2019, <https://arxiv.org/abs/1911.05507>).
//!
//! What a segment remembers are hidden states of the layer below, through which no gradient flows. All of those of a whole
//! sequence are known when the layer is computed, so that all segments run at once.

use super::blocks::{Part, Table, band, join, masked, split, together};
use super::compressed::{compressed, compression};
use super::fresh::{Begin, Fresh, Sizes};
use super::input::{Heads, Input, constant, folded};
use super::work::product;
use super::{Attention, at_least_one, projections, relative};
use crate::layers;
use crate::lra::sines;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Tokens see their segment and `memory` segments before it; positions are distances. Time and memory O(n · segment ·
/// (1 + memory)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerXl {
    /// Tokens of a segment.
    pub segment: usize,
    /// Segments that are remembered.
    pub memory: usize,
}

/// The same, and `compressed` older segments, of which `rate` tokens have become one by a learned convolution. It is trained
/// by the task; the paper trains it to keep what attention would have read. Time and memory O(n · segment · (1 + memory +
/// compressed / rate)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compressive {
    /// Tokens of a segment, a multiple of `rate`.
    pub segment: usize,
    /// Segments that are remembered.
    pub memory: usize,
    /// Segments before those that are remembered compressed.
    pub compressed: usize,
    /// Tokens that become one.
    pub rate: usize,
}

impl Attention for TransformerXl {
    fn check(&self) -> Result<(), Error> {
        at_least_one("segment", self.segment)
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        positioned(sizes)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        Remembering { segment: self.segment, memory: self.memory, older: None }.attend(input)
    }
}

impl Attention for Compressive {
    fn check(&self) -> Result<(), Error> {
        for (knob, value) in [("segment", self.segment), ("compressed", self.compressed), ("rate", self.rate)] {
            at_least_one(knob, value)?;
        }
        if !self.segment.is_multiple_of(self.rate) {
            return Err(Error::new("attention: a segment is not a multiple of the rate"));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        [positioned(sizes), compression(sizes, self.rate)].concat()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let older = Some((self.compressed, self.rate));
        Remembering { segment: self.segment, memory: self.memory, older }.attend(input)
    }
}

/// Projections, the map of distances and the two biases that stand for a query.
fn positioned(sizes: &Sizes) -> Vec<Fresh> {
    let bias = |name| Fresh::new(name, &[sizes.heads, sizes.head_width()], Begin::Zero);
    let map = Fresh::map("position.weight", sizes.attention_width, sizes.width);
    [projections(sizes), vec![map, bias("content_bias"), bias("position_bias")]].concat()
}

struct Remembering {
    segment: usize,
    memory: usize,
    /// Compressed segments, and tokens that become one.
    older: Option<(usize, usize)>,
}

impl Remembering {
    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let [_, length, width] = input.dims();
        let size = self.segment;
        let reach = (1 + self.memory + self.older.map_or(0, |older| older.0)) * size;
        // Rows for distances from `reach - 1` to `1 - size` (a later token of the segment).
        let distances = reach + size - 1;
        let shifted = (0..distances).map(|at| (reach - 1) as f64 - at as f64);
        let waves = constant(waves(shifted, width), [distances, width], &input.x.device());
        let rows = folded(layers::linear(waves, input.tensor("position.weight")?, None), 1, input.heads);
        let [heads, _, head_width] = rows.dims();
        let rows = rows.reshape([heads, distances * head_width]);
        let (content, position) = (input.tensor("content_bias")?, input.tensor("position_bias")?);
        let kernels = match self.older {
            Some(_) => Some((input.tensor("compress.key")?, input.tensor("compress.value")?)),
            None => None,
        };
        debug_assert!(length > 0);
        input.by_head(|heads| {
            let scale = 1.0 / (head_width as f64).sqrt();
            let with =
                |bias: &Tensor<2>| split((heads.query.clone() + heads.own(bias.clone(), 1)).mul_scalar(scale), size);
            let known = Known {
                content: with(&content),
                position: with(&position),
                rows: heads.own(rows.clone(), distances),
                heads,
            };
            Ok(self.mix(&known, kernels.as_ref()))
        })
    }

    fn mix(&self, known: &Known<'_>, kernels: Option<&(Tensor<2>, Tensor<2>)>) -> Tensor<3> {
        let heads = known.heads;
        let [groups, length, width] = heads.dims();
        let (size, device) = (self.segment, heads.device());
        let blocks = length.div_ceil(size);
        let own = Table::window(blocks, 0, 0);
        let past = heads.causal.then(|| band(size, 0, 0, |q, k| k <= q, &device));
        let (key, value) = (split(heads.key.clone(), size), split(heads.value.clone(), size));
        let scores = known.scores(key.clone(), 0, 1);
        let scores = masked(scores, [own.padding(heads, blocks, size), past]);
        let mut parts = vec![Part { scores, values: value.clone() }];
        // No gradient flows into what is remembered.
        let (key, value) = (key.detach(), value.detach());
        let memory = self.memory.min(blocks - 1);
        if memory > 0 {
            let table = before(blocks, memory, 0);
            let scores = known.scores(table.gather(key.clone()), memory * size, 1);
            let masks = [table.mask(size, |_| false, &device), table.padding(heads, blocks, size)];
            parts.push(Part { scores: masked(scores, masks), values: table.gather(value.clone()) });
        }
        if let (Some((older, rate)), Some((by_key, by_value))) = (self.older, kernels)
            && blocks > self.memory + 1
        {
            let older = older.min(blocks - 1 - self.memory);
            let (table, short) = (before(blocks, older, self.memory), size / rate);
            let zeroed = |x: Tensor<4>| {
                let x = x.reshape([groups, blocks * size, width]);
                match heads.present(blocks * size) {
                    Some(present) => x * present,
                    None => x,
                }
            };
            let shorten = |x: Tensor<4>, kernel| {
                table.gather(compressed(zeroed(x), kernel, rate).reshape([groups, blocks, short, width]))
            };
            let scores = known.scores(shorten(key, by_key), (older + self.memory) * size, rate);
            let masks = [table.mask(short, |_| false, &device), self.padding(heads, &table, blocks, rate)];
            parts.push(Part { scores: masked(scores, masks), values: shorten(value, by_value) });
        }
        join(together(parts), length)
    }

    /// Padding of compressed keys: a group counts if its first token does.
    fn padding(&self, heads: &Heads, table: &Table, blocks: usize, rate: usize) -> Option<Tensor<4>> {
        let groups = heads.dims()[0];
        let all = heads.padding(blocks * self.segment)?;
        let short = self.segment / rate;
        let first = all.reshape([groups, blocks * short, rate]).slice_dim(2, 0..1);
        Some(table.gather(first.reshape([groups, blocks, short, 1])).swap_dims(2, 3))
    }
}

/// The `count` blocks that end `skipped` blocks before each one.
fn before(blocks: usize, count: usize, skipped: usize) -> Table {
    let list = |block: usize| (0..count).map(|at| (block + at).checked_sub(count + skipped)).collect();
    Table::new((0..blocks).map(list).collect())
}

/// Queries with both biases, and rows of distances.
struct Known<'a> {
    content: Tensor<4>,
    position: Tensor<4>,
    rows: Tensor<3>,
    heads: &'a Heads,
}

impl Known<'_> {
    /// `(q + u) · k + (q + v) · r` for keys of which the first is `start` tokens before the block. Each is of `rate` tokens and
    /// as far away as the last of them.
    fn scores(&self, keys: Tensor<4>, start: usize, rate: usize) -> Tensor<4> {
        let ([groups, blocks, size, _], count) = (self.position.dims(), keys.dims()[2]);
        let first = self.rows.dims()[1] + 1 - 2 * size - start;
        let rows = self.rows.clone().slice_dim(1, first..first + count * rate + size - 1);
        let away = relative::scores(self.position.clone(), rows);
        let away = match rate {
            1 => away,
            _ => away.reshape([groups, blocks, size * count, rate]).slice_dim(3, rate - 1..rate),
        };
        product(self.content.clone(), keys.transpose()) + away.reshape([groups, blocks, size, count])
    }
}

/// Sines and cosines of distances.
fn waves(distances: impl Iterator<Item = f64>, width: usize) -> Vec<f32> {
    distances.flat_map(|distance| sines(distance, width)).collect()
}
