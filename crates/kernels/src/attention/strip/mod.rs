//! Attention of a panel of queries at a time, against keys in blocks.
//!
//! Scores are computed transposed: keys are the tile's rows, queries its columns (`Sᵀ = K Qᵀ`). Then
//! - softmax runs down the columns, one lane per query, with no sum across lanes;
//! - the probabilities come out exactly as the panel that the second product `Oᵀ = Vᵀ P` wants: nothing is laid out twice;
//! - any number of keys is just a shorter last tile, with nothing to mask.
//!
//! Several blocks of keys are joined by the running maximum and sum of online softmax, so the scores of a strip never
//! exceed a block. With bf16 inputs both products run on bf16 pairs and softmax on f32.

mod panels;
mod softmax;

pub(super) use panels::lay_out_values_at;
pub(super) use softmax::{Block, softmax_at};

use super::{Job, ScoreBias, Workspace};
use crate::Format;
use crate::rows::{Element, Rows};
use crate::simd::Level;
use crate::tile::Tile;
use crate::words::{lay_out, steps};
use panels::write_result_at;
use softmax::divide_at;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// Sequences up to this length are one block.
const ONE_BLOCK: usize = 560;
/// Keys per block in longer sequences (even, so that pairs do not straddle blocks).
const BLOCK: usize = 448;

/// A position no query and no key has, as a float.
const FAR: f32 = 1e9;

/// What stays the same for all panels of queries of a job.
pub(super) struct Strip<'a, 'b> {
    pub(super) job: &'a Job<'b>,
    pub(super) level: Level,
    tile: Tile,
    /// Both products in bf16 pairs.
    pub(super) pairs: bool,
    /// Words of a query or key.
    words: usize,
    pub(super) panel: usize,
    /// Keys per tile (all but the last).
    key_tile: usize,
}

/// # Safety
/// The job's views and result are consistent (see [`super::attend`]).
pub(super) unsafe fn attend(level: Level, job: &Job, space: &mut Workspace) {
    let element = job.k.element();
    if element == Element::Bf16 && !level.multiplies_bf16() {
        // No bf16 products here: the same in f32.
        let widened = [job.q, job.k, job.v].map(|rows| {
            let mut data = vec![0f32; rows.count() * rows.width()];
            for (row, out) in data.chunks_exact_mut(rows.width()).enumerate() {
                rows.read_row(row, out);
            }
            data
        });
        let [q, k, v] = &widened;
        let width = job.k.width();
        let job = Job { q: Rows::f32(q, width), k: Rows::f32(k, width), v: Rows::f32(v, width), ..*job };
        return unsafe { attend(level, &job, space) };
    }
    let strip = Strip::new(level, job);
    // SAFETY: lengths follow from the job's views; see each function.
    unsafe {
        strip.lay_out_keys(space);
        strip.lay_out_values(space);
        for first in (0..job.q.count()).step_by(strip.panel) {
            let count = strip.panel.min(job.q.count() - first);
            strip.panel_of_queries(first, count, space);
        }
    }
}

impl<'a, 'b> Strip<'a, 'b> {
    pub(super) fn new(level: Level, job: &'a Job<'b>) -> Self {
        let pairs = job.k.element() == Element::Bf16;
        let format = if pairs { Format::Bf16 } else { Format::F32 };
        let tile = Tile::of(level, format);
        // An even number of keys per tile keeps pairs inside one tile.
        let key_tile = tile.rows & !1;
        let words = steps(format, job.k.width());
        Strip { job, level, tile, pairs, words, panel: level.panel(), key_tile }
    }

    fn format(&self) -> Format {
        if self.pairs { Format::Bf16 } else { Format::F32 }
    }

    /// Keys as tiles `[words][keys of the tile]`.
    pub(super) unsafe fn lay_out_keys(&self, space: &mut Workspace) {
        let (k, format) = (self.job.k, self.format());
        let keys = k.count();
        space.keys.ensure(keys * self.words + 16);
        for first in (0..keys).step_by(self.key_tile) {
            let count = self.key_tile.min(keys - first);
            // SAFETY: tiles in ascending order, with slack at the end.
            unsafe {
                let to = space.keys.as_mut_slice().as_mut_ptr().add(first * self.words);
                lay_out(self.level, format, false, k, first, count, to, count, &mut space.staging, None);
            }
        }
    }

    /// Values as `[keys][width]`, pairs of keys side by side when in bf16.
    pub(super) unsafe fn lay_out_values(&self, space: &mut Workspace) {
        let v = self.job.v;
        space.values.ensure(steps(self.format(), v.count()) * v.width() + 16);
        // SAFETY: room for all keys was just made.
        unsafe { lay_out_values_at(self.level, v, space.values.as_mut_slice().as_mut_ptr()) };
    }

    /// The keys that at least one of these positions sees, as a range that begins at a tile.
    pub(super) fn visible(&self, positions: Range<usize>) -> Range<usize> {
        let attention = self.job.attention;
        let keys = self.job.k.count();
        let (mut low, mut high) = (0, keys);
        if attention.causal {
            high = positions.end.min(keys);
        }
        if let Some(window) = attention.window {
            low = positions.start.saturating_sub(window);
            high = high.min(positions.end + window);
        }
        low - low % self.key_tile..high
    }

    /// Lays out a panel of queries and their bias. Returns their positions by lane, the positions' range and whether there
    /// is a bias.
    pub(super) fn prepare(&self, first: usize, count: usize, space: &mut Workspace) -> ([f32; 32], Range<usize>, bool) {
        let (job, panel) = (self.job, self.panel);
        space.queries.ensure(self.words * panel + 16);
        // SAFETY: room was just made.
        unsafe {
            let queries = space.queries.as_mut_slice();
            queries[..self.words * panel].fill(0);
            let (to, staging) = (queries.as_mut_ptr(), &mut space.staging);
            lay_out(self.level, self.format(), false, job.q, first, count, to, panel, staging, None);
        }
        let mut positions = [FAR; 32];
        for (lane, position) in positions[..count].iter_mut().enumerate() {
            *position = job.position(first + lane) as f32;
        }
        let biased = !matches!(job.attention.bias, ScoreBias::None);
        if biased {
            self.fill_bias(first, count, space);
        }
        (positions, self.positions(first, count), biased)
    }

    /// The range of some queries' positions.
    fn positions(&self, first: usize, count: usize) -> Range<usize> {
        let all = (first..first + count).map(|query| self.job.position(query));
        let (low, high) = all.fold((usize::MAX, 0), |(low, high), p| (low.min(p), high.max(p)));
        low..high + 1
    }

    unsafe fn panel_of_queries(&self, first: usize, count: usize, space: &mut Workspace) {
        let (job, panel) = (self.job, self.panel);
        let (width, keys) = (job.k.width(), job.k.count());
        let block = if keys <= ONE_BLOCK { ONE_BLOCK } else { BLOCK };
        let block = block - block % self.key_tile;
        space.scores.ensure((block.min(keys) + 2) * panel);
        space.result.ensure(width.next_multiple_of(16) * panel + 4 * panel);
        space.rows.ensure(width.next_multiple_of(16) * panel);
        let (positions, at, whole_bias) = self.prepare(first, count, space);
        let visible = self.visible(at.clone());
        let mut state = State { started: false };
        let mut begin = visible.start;
        while begin < visible.end {
            let end = visible.end.min(begin + block);
            self.absorb(begin..end, &positions, at.clone(), whole_bias, &mut state, space);
            begin = end;
        }
        if job.attention.window.is_some() {
            // Global keys outside the window's range, one tile row each: few by nature.
            for global in job.span.globals.clone() {
                let key = job.attention.indices[global];
                let past = job.attention.causal && key >= at.end;
                if !visible.contains(&key) && !past {
                    self.absorb_single(key, &positions, whole_bias, &mut state, space);
                }
            }
        }
        // SAFETY: `result` holds the panel's sums and output.
        unsafe {
            divide_at(self.level, width, space);
            write_result_at(self.level, job, first, count, space);
        }
    }

    /// Bias of all keys for the panel's queries as `[keys][panel]`, times log2 e.
    fn fill_bias(&self, first: usize, count: usize, space: &mut Workspace) {
        let (keys, panel) = (self.job.k.count(), self.panel);
        let by_key = matches!(self.job.attention.bias, ScoreBias::ByKey(_));
        if by_key && first > 0 {
            // The first panel's serves all.
            return;
        }
        space.bias.ensure(keys * (panel + 1));
        let (bias, row) = space.bias.as_mut_slice().split_at_mut(keys * panel);
        if by_key {
            self.job.bias(first, &mut row[..keys]);
            let rows = bias.chunks_exact_mut(panel).zip(&*row);
            return rows.for_each(|(bias, value)| bias.fill(value * LOG2_E));
        }
        for lane in 0..count {
            self.job.bias(first + lane, &mut row[..keys]);
            for (key, value) in row[..keys].iter().enumerate() {
                bias[key * panel + lane] = value * LOG2_E;
            }
        }
    }

    /// Adds a block of keys to the panel's running softmax. `keys.start` begins a tile.
    fn absorb(
        &self,
        keys: Range<usize>,
        positions: &[f32; 32],
        at: Range<usize>,
        biased: bool,
        state: &mut State,
        space: &mut Workspace,
    ) {
        // SAFETY: keys were laid out tile by tile; scores have room for a block.
        unsafe { self.scores(keys.clone(), space) };
        let masked = self.masked(&keys, &at);
        self.softmax_and_values(keys, positions, biased, masked, state, space);
    }

    /// Raw scores of the panel's queries with these keys, from the start of the scores. `keys.start` begins a tile.
    ///
    /// # Safety
    /// Keys and queries are laid out; the scores have room for `keys`.
    pub(super) unsafe fn scores(&self, keys: Range<usize>, space: &mut Workspace) {
        let panel = self.panel;
        // SAFETY: the caller's promise.
        unsafe {
            let scores = space.scores.as_mut_slice().as_mut_ptr().cast::<u32>();
            for first in keys.clone().step_by(self.key_tile) {
                // The tile was laid out with all its keys, even if the last ones are not asked for here.
                let laid_out = self.key_tile.min(self.job.k.count() - first);
                let count = laid_out.min(keys.end - first);
                let k = space.keys.as_slice().as_ptr().add(first * self.words);
                let c = scores.add((first - keys.start) * panel);
                (self.tile.run)(count, self.words, k, laid_out, space.queries.as_slice().as_ptr(), c, panel, false);
            }
        }
    }

    /// Whether some of the queries at these positions do not see some of these keys.
    pub(super) fn masked(&self, keys: &Range<usize>, at: &Range<usize>) -> bool {
        let attention = self.job.attention;
        let past = attention.causal && keys.end > at.start + 1;
        let outside =
            attention.window.is_some_and(|window| keys.start + window < at.end - 1 || keys.end > at.start + window + 1);
        past || outside
    }

    /// The raw score of one key with the panel's queries, as row `row` of the scores.
    ///
    /// # Safety
    /// As for [`Strip::scores`].
    pub(super) unsafe fn score_of(&self, key: usize, row: usize, space: &mut Workspace) {
        let first = key - key % self.key_tile;
        let laid_out = self.key_tile.min(self.job.k.count() - first);
        // SAFETY: the key's words stand `laid_out` apart in its tile, which is how the kernel reads one row.
        unsafe {
            let k = space.keys.as_slice().as_ptr().add(first * self.words + key - first);
            let c = space.scores.as_mut_slice().as_mut_ptr().add(row * self.panel).cast();
            (self.tile.run)(1, self.words, k, laid_out, space.queries.as_slice().as_ptr(), c, self.panel, false);
        }
    }

    /// Adds one key on its own.
    fn absorb_single(&self, key: usize, positions: &[f32; 32], biased: bool, state: &mut State, space: &mut Workspace) {
        // SAFETY: keys were laid out; there is room for one row of scores.
        unsafe { self.score_of(key, 0, space) };
        self.softmax_and_values(key..key + 1, positions, biased, self.job.attention.causal, state, space);
    }

    /// From raw scores of these keys to weighted values added to the result.
    fn softmax_and_values(
        &self,
        keys: Range<usize>,
        positions: &[f32; 32],
        biased: bool,
        masked: bool,
        state: &mut State,
        space: &mut Workspace,
    ) {
        let first = !state.started;
        let block = Block { keys: keys.clone(), others: &[], positions, biased, masked, first, pairs: self.pairs };
        let width = self.job.k.width();
        // SAFETY: scores hold `keys.len()` rows (and one more for an odd pair); values are laid out for all keys.
        unsafe {
            softmax_at(self.level, self.job, &block, space);
            let mut count = keys.len();
            let mut values = space.values.as_slice().as_ptr();
            let mut odd_value = [0u32; MAX_WIDTH];
            if self.pairs {
                values = values.add(keys.start / 2 * width);
                if keys.start % 2 == 1 {
                    // A single key in the upper half of its pair: move it to the lower half of a pair of its own.
                    assert!(count == 1 && width <= MAX_WIDTH);
                    for (c, word) in odd_value[..width].iter_mut().enumerate() {
                        *word = *values.add(c) >> 16;
                    }
                    values = odd_value.as_ptr();
                }
                count = count.div_ceil(2);
            } else {
                values = values.add(keys.start * width);
            }
            let scores = space.scores.as_slice().as_ptr().cast::<u32>();
            self.weigh(count, values, scores, state.started, space);
        }
        state.started = true;
    }

    /// Adds values weighted by probabilities to the result; `count` steps of keys, or of pairs of keys.
    ///
    /// # Safety
    /// So many rows of values and probabilities; the result has room for the width.
    pub(super) unsafe fn weigh(
        &self,
        count: usize,
        values: *const u32,
        weights: *const u32,
        more: bool,
        space: &mut Workspace,
    ) {
        let (width, panel) = (self.job.k.width(), self.panel);
        // SAFETY: the caller's promise.
        unsafe {
            let result = space.result.as_mut_slice().as_mut_ptr().add(4 * panel).cast::<u32>();
            for (start, rows) in self.tile.cuts(width) {
                let c = result.add(start * panel);
                (self.tile.run)(rows, count, values.add(start), width, weights, c, panel, more);
            }
        }
    }
}

/// Keys that [`attend`] takes as one block.
pub(super) fn longest_block(level: Level, element: Element) -> usize {
    let format = if element == Element::Bf16 { Format::Bf16 } else { Format::F32 };
    let key_tile = Tile::of(level, format).rows & !1;
    ONE_BLOCK - ONE_BLOCK % key_tile
}

/// Attention from kept probabilities: what [`attend`] does after its softmax, to the same bits.
///
/// # Safety
/// As for [`attend`]; `kept` holds the job's panels, `step` words each: sums by lane, then probabilities.
pub(super) unsafe fn mix(level: Level, job: &Job, kept: *const f32, step: usize, space: &mut Workspace) {
    let strip = Strip::new(level, job);
    let (panel, width) = (strip.panel, job.k.width());
    space.result.ensure(width.next_multiple_of(16) * panel + 4 * panel);
    space.rows.ensure(width.next_multiple_of(16) * panel);
    // SAFETY: sizes as ensured; the rest is the caller's promise.
    unsafe {
        strip.lay_out_values(space);
        for (number, first) in (0..job.q.count()).step_by(panel).enumerate() {
            let count = panel.min(job.q.count() - first);
            let visible = strip.visible(strip.positions(first, count));
            let from = kept.add(number * step);
            from.copy_to_nonoverlapping(space.result.as_mut_slice().as_mut_ptr().add(panel), panel);
            let mut values = space.values.as_slice().as_ptr();
            values = values.add(if strip.pairs { visible.start / 2 } else { visible.start } * width);
            let steps = if strip.pairs { visible.len().div_ceil(2) } else { visible.len() };
            strip.weigh(steps, values, from.add(panel).cast(), false, space);
            divide_at(level, width, space);
            write_result_at(level, job, first, count, space);
        }
    }
}

/// Widest head whose single global key may stand alone.
const MAX_WIDTH: usize = 512;

/// Whether anything has been added to the panel's result.
struct State {
    started: bool,
}
