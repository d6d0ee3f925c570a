//! Positions inside attention scores: bucketed distances (MPNet) and Transformer-XL's encodings (XLNet).
//!
//! Both are numbers per distance. They become numbers per query and key by a shift that is only a reshape and two
//! slices ([`shift`]), so gradients need no scatter.

use super::pass::Pass;
use crate::feed;
use burn::tensor::Tensor;
use sparing_model::{Attention, AttentionPosition, Error, distance_bucket};

/// What layers with the same positions share in a pass.
#[derive(Default)]
pub(super) struct Positions {
    /// By table and heads: `[1, heads, length, length]`.
    buckets: Vec<((String, Vec<usize>), Tensor<4>)>,
    /// By clamp: `[2 * length, hidden]`.
    encodings: Vec<(Option<usize>, Tensor<2>)>,
    /// `[batch, 1, length, length]`, 1 where query and key are of different segments.
    segments: Option<Tensor<4>>,
}

impl Pass<'_> {
    /// A learned number per bucketed distance and head: `[1, heads, length, length]`. `kept`: the heads' columns of the
    /// table.
    pub(super) fn buckets(
        &mut self,
        name: &str,
        kept: Vec<usize>,
        buckets: usize,
        max_distance: usize,
    ) -> Result<Tensor<4>, Error> {
        let key = (name.to_string(), kept);
        if let Some((_, known)) = self.positions.buckets.iter().find(|(known, _)| *known == key) {
            return Ok(known.clone());
        }
        let (mut table, kept) = (self.get(name)?, &key.1);
        let (columns, heads) = (table.dims()[1], kept.len());
        if heads < columns {
            let mut choice = vec![0f32; columns * heads];
            kept.iter().enumerate().for_each(|(head, column)| choice[column * heads + head] = 1.0);
            table = table.matmul(feed::constant(&self.device, choice, [columns, heads]));
        }
        let length = self.batch.length;
        // Choosing rows by a product: its gradient is a product too.
        let mut choice = vec![0f32; 2 * length * buckets];
        for (column, row) in choice.chunks_exact_mut(buckets).enumerate() {
            row[distance_bucket(column as i64 - length as i64, buckets, max_distance)] = 1.0;
        }
        let choice = feed::constant(&self.device, choice, [2 * length, buckets]);
        let by_distance = choice.matmul(table).transpose().reshape([1, heads, 1, 2 * length]);
        let bias = shift(by_distance.expand([1, heads, length, 2 * length]));
        self.positions.buckets.push((key, bias.clone()));
        Ok(bias)
    }

    /// Scaled scores `(q + content)·k + (q + position)·r(query - key) + (q + segment)·s`, without what is the same for all
    /// keys of a query.
    pub(super) fn relative(
        &mut self,
        attention: &Attention,
        position: &AttentionPosition,
        query: Tensor<4>,
        key: Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        let AttentionPosition::Relative { projection, content_bias, position_bias, segment_bias, segments, clamp } =
            position
        else {
            return Err(Error::new("relative scores need relative positions"));
        };
        let (heads, width, length) = (attention.heads, attention.head_width, self.batch.length);
        let query = query * attention.scale;
        let biased = |pass: &Self, name: &str| -> Result<Tensor<4>, Error> {
            let bias = pass.get(name)?.reshape([1, heads, 1, width]) * attention.scale;
            Ok(query.clone() + pass.narrow(bias))
        };
        let content = biased(self, content_bias)?.matmul(key.transpose());

        // Not a step of its own in the engine, which keeps it exact: no hook.
        let encodings = self.encodings(*clamp);
        let encodings = self.narrow(encodings);
        let (weight, _) = self.parameters.linear(projection)?;
        let distances = encodings.matmul(self.narrow(weight).transpose());
        let distances = distances.reshape([1, 2 * length, heads, width]).permute([0, 2, 3, 1]);
        let scores = content + shift(biased(self, position_bias)?.matmul(distances));
        let mut scores = self.wide(scores);

        if self.batch.host.most_type() > 0 {
            // Only the difference between "another segment" and "the same" moves a softmax.
            let segments = self.get(segments)?;
            let (same, other) =
                (segments.clone().slice([0..1, 0..heads * width]), segments.slice([1..2, 0..heads * width]));
            let step = self.narrow((other - same).reshape([1, heads, width, 1]));
            let step = self.wide(biased(self, segment_bias)?.matmul(step));
            let different = self.different_segments();
            scores = scores + step * different;
        }
        Ok(scores)
    }

    /// Sinusoidal encodings of the positions `query - key` from `length` down to `1 - length`: `[2 * length, hidden]`.
    fn encodings(&mut self, clamp: Option<usize>) -> Tensor<2> {
        if let Some((_, known)) = self.positions.encodings.iter().find(|(known, _)| *known == clamp) {
            return known.clone();
        }
        let (length, hidden) = (self.batch.length, self.architecture.hidden);
        let half = hidden / 2;
        let mut values = vec![0f32; 2 * length * hidden];
        for (column, row) in values.chunks_exact_mut(hidden).enumerate() {
            let mut position = length as i64 - column as i64;
            if let Some(clamp) = clamp {
                position = position.clamp(-(clamp as i64), clamp as i64);
            }
            for c in 0..half {
                let frequency = 1.0 / 10000f32.powf((2 * c) as f32 / hidden as f32);
                let angle = position as f32 * frequency;
                (row[c], row[half + c]) = (angle.sin(), angle.cos());
            }
        }
        let made = feed::constant(&self.device, values, [2 * length, hidden]);
        self.positions.encodings.push((clamp, made.clone()));
        made
    }

    fn different_segments(&mut self) -> Tensor<4> {
        let batch = self.batch;
        let (count, length) = (batch.count(), batch.length);
        let make = || {
            let types = |shape: [usize; 4]| batch.types.clone().reshape(shape);
            let (queries, keys) = (types([count, 1, length, 1]), types([count, 1, 1, length]));
            let full = [count, 1, length, length];
            queries.expand(full).not_equal(keys.expand(full)).float()
        };
        self.positions.segments.get_or_insert_with(make).clone()
    }
}

/// From scores by distance to scores by key: `out[i][j] = scores[i][length + j - i]` for `[.., length, 2 * length]`.
///
/// Rows of `2 * length` laid end to end and cut again every `2 * length - 1` elements move by one from row to row
/// (Transformer-XL's trick).
fn shift(scores: Tensor<4>) -> Tensor<4> {
    let [count, heads, length, both] = scores.dims();
    let flat = scores.reshape([count, heads, length * both]);
    let flat = flat.slice([0..count, 0..heads, length..length * both]);
    flat.reshape([count, heads, length, both - 1]).slice([0..count, 0..heads, 0..length, 0..length])
}
