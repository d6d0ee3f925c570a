//! Position information inside attention scores: bucketed distances (MPNet) and Transformer-XL's relative
//! positions (XLNet), as tables that grow with the longest input seen.

use crate::finite;
use sparing_kernels::{Epilogue, Format, PackedMatrix, PerWorker, Rows, RowsMut, Scratch, Team, gemm_columns};
use sparing_model::{Attention, AttentionPosition, Error, Weights, distance_bucket};
use std::sync::{Arc, RwLock};

/// A table that is made again, larger, when an input is longer than any before.
struct Growing<T>(RwLock<Arc<T>>);

impl<T> Growing<T> {
    fn new(first: T) -> Self {
        Growing(RwLock::new(Arc::new(first)))
    }

    fn get(&self, enough: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> Arc<T> {
        let known = self.0.read().unwrap_or_else(|e| e.into_inner()).clone();
        if enough(&known) {
            return known;
        }
        let made = Arc::new(make());
        *self.0.write().unwrap_or_else(|e| e.into_inner()) = made.clone();
        made
    }

    fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.0.read().unwrap_or_else(|e| e.into_inner()))
    }
}

/// A learned number per bucketed distance and head.
pub(crate) struct Buckets {
    /// `[buckets, heads]`.
    table: Vec<f32>,
    heads: usize,
    buckets: usize,
    max_distance: usize,
    by_distance: Growing<ByDistance>,
}

/// [`Buckets`] written out: `table[head][key - query + reach]`.
pub(crate) struct ByDistance {
    pub(crate) table: Vec<f32>,
    pub(crate) reach: usize,
}

impl Buckets {
    /// `heads`: which of the table's columns they have.
    pub(crate) fn new(
        weights: &Weights,
        name: &str,
        (columns, heads): (usize, &[usize]),
        buckets: usize,
        max_distance: usize,
    ) -> Result<Self, Error> {
        let all = finite::vector(weights, name, buckets * columns)?;
        let table = all.chunks_exact(columns.max(1)).flat_map(|row| heads.iter().map(|head| row[*head])).collect();
        let heads = heads.len();
        let by_distance = Growing::new(ByDistance { table: Vec::new(), reach: 0 });
        Ok(Buckets { table, heads, buckets, max_distance, by_distance })
    }

    /// The table for distances up to `reach` at least.
    pub(crate) fn up_to(&self, reach: usize) -> Arc<ByDistance> {
        let enough = |known: &ByDistance| known.reach >= reach && !known.table.is_empty();
        self.by_distance.get(enough, || {
            let reach = reach.next_power_of_two().max(64);
            let mut table = Vec::with_capacity(self.heads * (2 * reach + 1));
            for head in 0..self.heads {
                for distance in -(reach as i64)..=reach as i64 {
                    table.push(
                        self.table[distance_bucket(distance, self.buckets, self.max_distance) * self.heads + head],
                    );
                }
            }
            ByDistance { table, reach }
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.table.len() + self.by_distance.look(|t| t.table.len())) * 4
    }
}

/// Distances in one packed block of a [`RelativeTable`].
pub(crate) const BLOCK: usize = 64;
/// Columns behind the distances in a row of position scores: the two segment scores and room to spare.
pub(crate) const SEGMENT_COLUMNS: usize = 16;

/// Transformer-XL positions: scores `(q + position_bias)·r(query - key)` and `(q + segment_bias)·s`.
///
/// Queries come with the content bias added already, so both are `q·r` plus a number per distance (per segment)
/// and head, `(position_bias - content_bias)·r`: a matrix product with a bias. Everything is scaled beforehand.
pub(crate) struct Relative {
    heads: usize,
    head_width: usize,
    hidden: usize,
    scale: f32,
    clamp: Option<usize>,
    projection: PackedMatrix,
    /// `position_bias - content_bias`, `[heads, head_width]`.
    position_bias: Vec<f32>,
    /// Per head: `[2, head_width]` and two biases.
    segments: Vec<(PackedMatrix, [f32; 2])>,
    table: Growing<RelativeTable>,
}

/// Projected encodings of the distances `key - query` in `-reach .. reach`, in blocks of [`BLOCK`] per head.
pub(crate) struct RelativeTable {
    reach: usize,
    /// `[heads][2 * reach / BLOCK]`, each `[BLOCK, head_width]`.
    blocks: Vec<PackedMatrix>,
    /// `[heads][2 * reach]`.
    bias: Vec<f32>,
}

impl RelativeTable {
    /// Block `number` (distances `number * BLOCK ..`) of a head, and its biases.
    pub(crate) fn block(&self, head: usize, number: i64) -> (&PackedMatrix, &[f32]) {
        let per_head = 2 * self.reach / BLOCK;
        let at = head * per_head + (number + (self.reach / BLOCK) as i64) as usize;
        (&self.blocks[at], &self.bias[at * BLOCK..(at + 1) * BLOCK])
    }
}

impl Relative {
    pub(crate) fn new(
        weights: &Weights,
        position: &AttentionPosition,
        attention: &Attention,
        hidden: usize,
    ) -> Result<Self, Error> {
        let AttentionPosition::Relative { projection, content_bias, position_bias, segment_bias, segments, clamp } =
            position
        else {
            return Err(Error::new("not relative positions"));
        };
        let (heads, head_width, scale) = (attention.heads, attention.head_width, attention.scale);
        let width = heads * head_width;
        if projection.inputs != hidden || projection.outputs != width {
            return Err(Error::new(format!(
                "the relative projection is {} x {} but must be {width} x {hidden}",
                projection.outputs, projection.inputs
            )));
        }
        let content = finite::vector(weights, content_bias, width)?;
        let minus_content = |name: &str| -> Result<Vec<f32>, Error> {
            Ok(finite::vector(weights, name, width)?.iter().zip(&content).map(|(a, b)| a - b).collect())
        };
        let position_bias = minus_content(position_bias)?;
        let segment_bias = minus_content(segment_bias)?;
        let embedding = finite::vector(weights, segments, 2 * width)?;
        let segments = (0..heads)
            .map(|head| {
                let columns = head * head_width..(head + 1) * head_width;
                let rows: Vec<f32> = [0, width]
                    .iter()
                    .flat_map(|from| &embedding[from + columns.start..from + columns.end])
                    .map(|s| s * scale)
                    .collect();
                let bias =
                    [0, 1].map(|s| dot(&rows[s * head_width..(s + 1) * head_width], &segment_bias[columns.clone()]));
                (PackedMatrix::pack(&rows, 2, head_width, Format::F32), bias)
            })
            .collect();
        let map = weights.matrix(projection)?;
        finite::check(&projection.weight.name(), &map)?;
        let projection = PackedMatrix::pack(&map, width, hidden, Format::F32);
        let table = Growing::new(RelativeTable { reach: 0, blocks: Vec::new(), bias: Vec::new() });
        let clamp = clamp.filter(|clamp| *clamp > 0);
        Ok(Relative { heads, head_width, hidden, scale, clamp, projection, position_bias, segments, table })
    }

    /// The segment map of a head: `[2, head_width]`, and its biases.
    pub(crate) fn segment(&self, head: usize) -> (&PackedMatrix, &[f32]) {
        let (matrix, bias) = &self.segments[head];
        (matrix, bias)
    }

    pub(crate) fn bytes(&self) -> usize {
        let table = self.table.look(|t| t.blocks.iter().map(PackedMatrix::bytes).sum::<usize>() + t.bias.len() * 4);
        let segments: usize = self.segments.iter().map(|(matrix, _)| matrix.bytes() + 8).sum();
        self.projection.bytes() + self.position_bias.len() * 4 + segments + table
    }

    /// The table for sequences of this many tokens at least.
    pub(crate) fn up_to(&self, tokens: usize, team: &Team, scratch: &PerWorker<Scratch>) -> Arc<RelativeTable> {
        let reach = tokens.next_multiple_of(BLOCK);
        // A little ahead, so that inputs of growing length do not each make a new one.
        self.table.get(|known| known.reach >= reach, || self.make(reach.next_multiple_of(2 * BLOCK), team, scratch))
    }

    fn make(&self, reach: usize, team: &Team, scratch: &PerWorker<Scratch>) -> RelativeTable {
        let (width, distances) = (self.heads * self.head_width, 2 * reach);
        let mut encodings = vec![0.0; distances * self.hidden];
        for (i, row) in encodings.chunks_exact_mut(self.hidden).enumerate() {
            let mut position = reach as i64 - i as i64;
            if let Some(clamp) = self.clamp {
                position = position.clamp(-(clamp as i64), clamp as i64);
            }
            let half = self.hidden / 2;
            for c in 0..half {
                let frequency = 1.0 / 10000f32.powf((2 * c) as f32 / self.hidden as f32);
                let angle = position as f32 * frequency;
                (row[c], row[half + c]) = (angle.sin(), angle.cos());
            }
        }
        let mut projected = vec![0.0; distances * width];
        let epilogue = Epilogue::default();
        let (rows, out) = (Rows::f32(&encodings, self.hidden), RowsMut::f32(&mut projected, width));
        gemm_columns(team, rows, &self.projection, &epilogue, out, scratch);
        let mut table = RelativeTable { reach, blocks: Vec::new(), bias: Vec::with_capacity(self.heads * distances) };
        let mut block = vec![0.0; BLOCK * self.head_width];
        for head in 0..self.heads {
            let columns = head * self.head_width..(head + 1) * self.head_width;
            for rows in projected.chunks_exact(BLOCK * width) {
                for (to, from) in block.chunks_exact_mut(self.head_width).zip(rows.chunks_exact(width)) {
                    to.copy_from_slice(&from[columns.clone()]);
                    to.iter_mut().for_each(|x| *x *= self.scale);
                    table.bias.push(dot(to, &self.position_bias[columns.clone()]));
                }
                table.blocks.push(PackedMatrix::pack(&block, BLOCK, self.head_width, Format::F32));
            }
        }
        table
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_have_buckets_of_their_own_and_far_ones_share() {
        // Values of the reference implementation for 32 buckets and distance 128.
        let want = [(0, 0), (-1, 1), (1, 17), (-7, 7), (-8, 8), (8, 24), (-16, 10), (-127, 15), (-128, 15), (500, 31)];
        for (distance, bucket_number) in want {
            assert_eq!(distance_bucket(distance, 32, 128), bucket_number, "{distance}");
        }
    }
}
