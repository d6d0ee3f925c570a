//! Slots in bytes: whatever is multiplied is rounded to bytes first, and multiplied as in the linear maps.
//!
//! What is rounded has a range of its own (least and largest number, or the largest in size) along everything but the sum:
//! queries, keys and values by channel, the network by row, a slot's key by slot, a slot's value by channel. What a query
//! takes of a slot is rounded by slot too, which lies along the sum: the slot's value is scaled instead. So are the keys for
//! the queries' channels. A sum of `(scale q + least) w` is `scale Σ q w + least Σ w`; for the network, the last depends on
//! how many tokens there are, and is the product of one more row, of ones. Inverses of ranges take no division
//! ([`crate::pack::Grid::undivided`]).

mod round;

use super::super::Job;
use super::{ShareNetwork, Space, place_of};
use crate::epilogue::{Finish, TileResult, finish_at};
use crate::simd::Level;
use crate::tile::Tile;
use crate::words::steps;
use crate::{Aligned, Format, PackedMatrix, Rows};
use round::*;

/// A network's two matrices as bytes: `[slots, tokens]`.
pub(super) struct Bytes {
    keys: PackedMatrix,
    values: PackedMatrix,
}

impl Bytes {
    pub(super) fn new(level: Level, keys: &[f32], values: &[f32], slots: usize, tokens: usize) -> Bytes {
        let pack = |matrix: &[f32]| PackedMatrix::pack_for(level, matrix, slots, tokens, Format::Int8);
        Bytes { keys: pack(keys), values: pack(values) }
    }

    pub(super) fn held(&self) -> usize {
        self.keys.bytes() + self.values.bytes()
    }
}

/// Working memory.
#[derive(Default)]
pub(super) struct ByteSpace {
    /// How channels of queries, and of keys or values, are rounded.
    query_grids: Aligned<f32>,
    grids: Aligned<f32>,
    /// Rounded keys or values.
    laid_out: Aligned<u32>,
    /// Integers before they are scaled.
    sums: Aligned<u32>,
    scores: Aligned<u32>,
    /// A panel of slots' keys; then all slots' values.
    right: Aligned<u32>,
    queries: Aligned<u32>,
    inner: Aligned<u32>,
    /// Slots' values by channel.
    turned: Aligned<u32>,
    /// One number per slot or channel.
    lines: Aligned<f32>,
    rest: Aligned<f32>,
}

/// Keys or values, rounded and laid out, before a network's panels.
#[derive(Clone, Copy)]
struct Mix<'a> {
    level: Level,
    tile: Tile,
    matrix: &'a PackedMatrix,
    /// `[quads][width + 1]`, the last of ones.
    from: *const u32,
    quads: usize,
    width: usize,
    grids: Grids,
    sums: *mut u32,
}

impl Mix<'_> {
    /// # Safety
    /// What was rounded is still there.
    unsafe fn panel(&self, index: usize) -> Mixed {
        let panel = self.level.panel();
        for (channel, count) in self.tile.cuts(self.width + 1) {
            // SAFETY: a panel of the matrix has as many steps as there are quads, or more.
            unsafe {
                let (a, to) = (self.from.add(channel), self.sums.add(channel * panel));
                (self.tile.run)(count, self.quads, a, self.width + 1, self.matrix.panel(index, 0), to, panel, false);
            }
        }
        Mixed { sums: self.sums, width: self.width, grids: self.grids, scales: self.matrix.column_scales(index).0 }
    }
}

impl ByteSpace {
    /// Rounds and lays out; sums of the rows by `weights` go to `rest`.
    ///
    /// # Safety
    /// The level is available; no more rows than the matrix has inputs, and a weight of each.
    unsafe fn mix<'a>(
        &mut self,
        level: Level,
        matrix: &'a PackedMatrix,
        rows: Rows,
        weights: Option<&[f32]>,
    ) -> Mix<'a> {
        let (panel, width) = (level.panel(), rows.width());
        let quads = steps(Format::Int8, rows.count());
        let grids = Grids::of(&mut self.grids, width, panel);
        self.rest.ensure(grids.step);
        self.laid_out.ensure(quads * (width + 1) + 16);
        self.sums.ensure((width + 1) * panel);
        let (from, sums) = (self.laid_out.as_mut_slice().as_mut_ptr(), self.sums.as_mut_slice().as_mut_ptr());
        // SAFETY: room was just made, and the caller's promise.
        unsafe {
            let weights = weights.map_or(std::ptr::null(), <[f32]>::as_ptr);
            ranges_at(level, rows, grids, weights, self.rest.as_mut_slice().as_mut_ptr());
            lay_quads_at(level, rows, grids, from);
        }
        Mix { level, tile: Tile::of(level, Format::Int8), matrix, from, quads, width, grids, sums }
    }
}

/// Queries are rounded, then panel by panel of slots keys are mixed, meet the queries and leave what those take of the slots;
/// then values are mixed, and met.
///
/// # Safety
/// The job is as for [`super::attend_network`], with as many keys as the network takes or fewer.
pub(super) unsafe fn attend(job: &Job, network: &ShareNetwork, bytes: &Bytes, space: &mut Space) {
    let (level, space) = (network.level, &mut space.bytes);
    let (panel, tile) = (level.panel(), Tile::of(level, Format::Int8));
    let (queries, width, slots) = (job.q.count(), job.q.width(), network.slots);
    let (padded, columns) = (network.padded(slots), network.padded(width));
    let [of_width, of_slots] = [width, slots].map(|n| steps(Format::Int8, n));
    // Four queries at a time.
    let step = queries.next_multiple_of(4);
    space.queries.ensure(columns / 4 * step);
    space.inner.ensure(padded / 4 * step);
    space.right.ensure((of_width * panel).max(padded / 4 * columns));
    space.scores.ensure(step * panel);
    space.turned.ensure(width * padded);
    // Scales and constants of a panel of slots, sizes of all slots, scales of channels and as many zeros.
    space.lines.ensure(2 * panel + padded + 2 * columns);
    let grids = Grids::of(&mut space.query_grids, width, panel);
    let [laid_out, inner, right, scores, turned] =
        [&mut space.queries, &mut space.inner, &mut space.right, &mut space.scores, &mut space.turned]
            .map(|space| space.as_mut_slice().as_mut_ptr());
    let lines = space.lines.as_mut_slice().as_mut_ptr();
    // SAFETY: room was just made for all of it, and the caller's promise.
    unsafe {
        let (sizes, channel_scales) = (lines.add(2 * panel), lines.add(2 * panel + padded));
        ranges_at(level, job.q, grids, std::ptr::null(), std::ptr::null_mut());
        lay_across_at(level, job.q, grids, laid_out, step);
        let mix = space.mix(level, &bytes.keys, job.k, None);
        for index in 0..bytes.keys.panels() {
            let first = index * panel;
            write_keys_at(level, mix.panel(index), grids, network.bias.as_ptr().add(first), right, lines);
            for (query, count) in tile.cuts(queries) {
                let to = scores.add(query * panel);
                (tile.run)(count, of_width, laid_out.add(query), step, right, to, panel, false);
            }
            write_inner_at(level, scores, queries, lines, sizes.add(first), inner.add(first / 4 * step), step);
        }
        let mix = space.mix(level, &bytes.values, job.v, Some(&network.rest));
        for index in 0..bytes.values.panels() {
            let first = index * panel;
            write_values_at(level, mix.panel(index), sizes.add(first), turned.add(first).cast(), padded);
        }
        for first in (0..width).step_by(panel) {
            let count = panel.min(width - first);
            let (from, to) = (turned.add(first * padded).cast(), right.add(first * (padded / 4)));
            round_values_at(level, from, count, padded, channel_scales.add(first), to);
        }
        std::slice::from_raw_parts_mut(channel_scales.add(columns), columns).fill(0.0);
        let finish = Finish::biased(place_of(job, 0), space.rest.as_slice().as_ptr());
        // Rows have neither a scale nor a least number of their own.
        let row_scales = [[1f32, 0.0]; 16];
        debug_assert!(tile.rows <= row_scales.len());
        for column in (0..width).step_by(panel) {
            for (query, count) in tile.cuts(queries) {
                let b = right.add(column * (padded / 4));
                (tile.run)(count, of_slots, inner.add(query), step, b, scores, panel, false);
                let result = TileResult {
                    sums: scores,
                    step: panel,
                    row: query,
                    column,
                    rows: count,
                    columns: panel.min(width - column),
                    column_scales: (channel_scales.add(column), channel_scales.add(columns)),
                    row_scales: row_scales.as_ptr().cast(),
                };
                finish_at(level, &finish, &result);
            }
        }
    }
}

#[cfg(test)]
mod tests;
