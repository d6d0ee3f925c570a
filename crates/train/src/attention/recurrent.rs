//! Segments that remember those before: Transformer-XL (Dai et al. 2019, <https://arxiv.org/abs/1901.02860>) and the
//! Compressive Transformer (Rae et al. 2019, <https://arxiv.org/abs/1911.05507>).
//!
//! What a segment remembers are hidden states of the layer below. No gradient flows into them; the maps from them to keys and
//! values learn all the same, as in the papers. All hidden states of a whole sequence are known when the layer is computed, so
//! that all segments run at once.

use super::blocks::{Part, Table, band, join, masked, split, together};
use super::compressed::compressed;
use super::fresh::{Begin, Fresh, Sizes};
use super::input::{Heads, Input, constant, folded};
use super::work::product;
use super::{Attention, projections, relative, some_tokens, tokens};
use crate::layers;
use crate::sines::sines;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use std::ops::Range;

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

/// The same, and `compressed` older segments, of whose hidden states `rate` have become one by a learned convolution; keys and
/// values are made of the result. The convolution is trained by the task; the paper trains it to keep what attention would have
/// read. Time and memory O(n · segment · (1 + memory +
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
        tokens("memory", self.memory)?;
        some_tokens("segment", self.segment)
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        positioned(sizes)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let whole = Remembering { segment: self.segment, memory: self.memory, older: None };
        whole.up_to(input.dims()[1]).attend(input)
    }
}

impl Attention for Compressive {
    fn check(&self) -> Result<(), Error> {
        for (knob, value) in [("segment", self.segment), ("compressed", self.compressed), ("rate", self.rate)] {
            some_tokens(knob, value)?;
        }
        tokens("memory", self.memory)?;
        if !self.segment.is_multiple_of(self.rate) {
            let (segment, rate) = (self.segment, self.rate);
            return Err(Error::new(format!("attention: segment {segment} is not a multiple of rate {rate}")));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let inputs = self.rate * sizes.width;
        let begin = Begin::Normal(1.0 / (inputs as f64).sqrt());
        positioned(sizes).into_iter().chain([Fresh::new("compress.weight", &[inputs, sizes.width], begin)]).collect()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let older = Some((self.compressed, self.rate));
        let whole = Remembering { segment: self.segment, memory: self.memory, older };
        whole.up_to(input.dims()[1]).attend(input)
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

/// Keys and values of what is remembered, `[batch * heads, tokens, head width]`.
struct Memory {
    key: Tensor<3>,
    value: Tensor<3>,
}

impl Memory {
    /// Of these groups, in blocks.
    fn of(&self, groups: &Range<usize>, size: usize) -> [Tensor<4>; 2] {
        [&self.key, &self.value].map(|x| split(x.clone().slice_dim(0, groups.clone()), size))
    }
}

impl Remembering {
    /// Of sequences that are no longer than this: segments that are not there are not remembered.
    fn up_to(self, length: usize) -> Remembering {
        let segment = self.segment.min(length);
        let earlier = length.div_ceil(segment) - 1;
        let memory = self.memory.min(earlier);
        let older = self.older.map(|(count, rate)| (count.min(earlier - memory), rate));
        Remembering { segment, memory, older: older.filter(|(count, _)| *count > 0) }
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let width = input.dims()[2];
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
        let all = input.all()?;
        let near = self.remembered(input, &all)?;
        let far = self.older.map(|(_, rate)| shortened(input, rate)).transpose()?;
        input.each(&all, |heads| {
            let scale = 1.0 / (head_width as f64).sqrt();
            let with =
                |bias: &Tensor<2>| split((heads.query.clone() + heads.own(bias.clone(), 1)).mul_scalar(scale), size);
            let known = Known {
                content: with(&content),
                position: with(&position),
                rows: heads.own(rows.clone(), distances),
                heads,
            };
            Ok(self.mix(&known, &near, far.as_ref()))
        })
    }

    /// Keys and values of hidden states that no gradient flows into; the maps still learn by them.
    fn remembered(&self, input: &Input<'_>, all: &Heads) -> Result<Memory, Error> {
        if self.memory == 0 || !input.x.device().is_autodiff() {
            return Ok(Memory { key: all.key.clone(), value: all.value.clone() });
        }
        mapped(input, input.x.clone().detach())
    }

    fn mix(&self, known: &Known<'_>, near: &Memory, far: Option<&Memory>) -> Tensor<3> {
        let heads = known.heads;
        let length = heads.dims()[1];
        let (size, device) = (self.segment, heads.device());
        let blocks = length.div_ceil(size);
        let own = Table::window(blocks, 0, 0);
        let past = heads.causal.then(|| band(size, 0, 0, |q, k| k <= q, &device));
        let scores = known.scores(split(heads.key.clone(), size), 0, 1);
        let scores = masked(scores, [own.padding(heads, blocks, size), past]);
        let mut parts = vec![Part { scores, values: split(heads.value.clone(), size) }];
        if self.memory > 0 {
            let table = before(blocks, self.memory, 0);
            let [key, value] = near.of(&heads.groups, size).map(|x| table.gather(x));
            let masks = [table.mask(size, |_| false, &device), table.padding(heads, blocks, size)];
            let scores = masked(known.scores(key, self.memory * size, 1), masks);
            parts.push(Part { scores, values: value });
        }
        if let (Some((older, rate)), Some(far)) = (self.older, far) {
            let (table, short) = (before(blocks, older, self.memory), size / rate);
            let [key, value] = far.of(&heads.groups, short).map(|x| table.gather(x));
            let masks = [table.mask(short, |_| false, &device), self.padding(heads, &table, blocks, rate)];
            let scores = masked(known.scores(key, (older + self.memory) * size, rate), masks);
            parts.push(Part { scores, values: value });
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

/// Keys and values of hidden states `[batch, tokens, width]`.
fn mapped(input: &Input<'_>, x: Tensor<3>) -> Result<Memory, Error> {
    let [batch, tokens, width] = x.dims();
    let rows = x.reshape([batch * tokens, width]);
    let key = input.folded_map(rows.clone(), "key.weight")?;
    Ok(Memory { key, value: input.folded_map(rows, "value.weight")? })
}

/// Keys and values of hidden states of which `rate` have become one; no gradient flows into those.
fn shortened(input: &Input<'_>, rate: usize) -> Result<Memory, Error> {
    mapped(input, compressed(input.present_rows().detach(), &input.tensor("compress.weight")?, rate))
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
