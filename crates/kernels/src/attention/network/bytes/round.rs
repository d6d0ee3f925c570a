//! From numbers to bytes, and from sums of bytes to numbers.

use crate::Aligned;
use crate::pack::Grid;
use crate::rows::{Elements, Rows};
use crate::simd::{Simd, kernel};
use crate::words::load_element;

/// Numbers of channels: each kind so many apart.
#[derive(Clone, Copy)]
pub(super) struct Grids {
    pub(super) least: *mut f32,
    pub(super) step: usize,
}

impl Grids {
    pub(super) fn of(space: &mut Aligned<f32>, width: usize, panel: usize) -> Grids {
        let step = width.next_multiple_of(panel);
        space.ensure(4 * step);
        Grids { least: space.as_mut_slice().as_mut_ptr(), step }
    }

    fn scale(self) -> *mut f32 {
        self.least.wrapping_add(self.step)
    }

    fn inverse(self) -> *mut f32 {
        self.least.wrapping_add(2 * self.step)
    }

    fn shift(self) -> *mut f32 {
        self.least.wrapping_add(3 * self.step)
    }
}

/// A panel of slots: sums by channel, and of ones; numbers take their place.
#[derive(Clone, Copy)]
pub(super) struct Mixed {
    pub(super) sums: *mut u32,
    pub(super) width: usize,
    pub(super) grids: Grids,
    /// Of the network's rows.
    pub(super) scales: *const f32,
}

/// Rows by address.
#[derive(Clone, Copy)]
struct Source {
    data: *const u8,
    count: usize,
    width: usize,
    stride: usize,
}

impl Source {
    fn of(rows: Rows) -> (Source, bool) {
        let (data, bf16) = match rows.data() {
            Elements::F32(data) => (data.as_ptr().cast(), false),
            Elements::Bf16(data) => (data.as_ptr().cast(), true),
        };
        (Source { data, count: rows.count(), width: rows.width(), stride: rows.stride() }, bf16)
    }
}

/// A vector of a row's numbers; zeros behind its last.
#[inline(always)]
unsafe fn load<S: Simd, const BF16: bool>(from: &Source, row: usize, at: usize) -> S::F {
    let n = S::LANES.min(from.width - at);
    // SAFETY: within the row.
    unsafe { load_element::<S, BF16>(from.data, row * from.stride + at, n) }
}

/// A vector of four rows, rounded but for the last step; zeros behind the last row.
#[inline(always)]
unsafe fn four_rows<S: Simd, const BF16: bool>(from: &Source, grids: Grids, row: usize, at: usize) -> [S::F; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (inverse, shift) = (S::load(grids.inverse().add(at)), S::load(grids.shift().add(at)));
        let mut four = [S::splat(0.0); 4];
        for (i, four) in four.iter_mut().enumerate() {
            if row + i < from.count {
                *four = S::fma(load::<S, BF16>(from, row + i, at), inverse, shift);
            }
        }
        four
    }
}

/// Every channel's grid; and its sum, weighed by `weights`, if there are any.
#[inline(always)]
unsafe fn ranges<S: Simd>(rows: Rows, grids: Grids, weights: *const f32, sums: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match (Source::of(rows), weights.is_null()) {
            ((rows, false), true) => ranges_of::<S, false, false>(rows, grids, weights, sums),
            ((rows, false), false) => ranges_of::<S, false, true>(rows, grids, weights, sums),
            ((rows, true), true) => ranges_of::<S, true, false>(rows, grids, weights, sums),
            ((rows, true), false) => ranges_of::<S, true, true>(rows, grids, weights, sums),
        }
    }
}
kernel!(
    /// # Safety
    /// Grids and sums have room for whole vectors of channels; there is a weight of every row, or none at all.
    pub(super) ranges_at = ranges(rows: Rows, grids: Grids, weights: *const f32, sums: *mut f32)
);

#[inline(always)]
unsafe fn ranges_of<S: Simd, const BF16: bool, const WEIGHED: bool>(
    rows: Source,
    grids: Grids,
    weights: *const f32,
    sums: *mut f32,
) {
    // SAFETY: all of these have room for whole vectors of channels.
    unsafe {
        for at in (0..rows.width).step_by(S::LANES) {
            // Two rows at a time, or every row would wait for the one before.
            let mut all = [(S::splat(f32::MAX), S::splat(f32::MIN), S::splat(0.0)); 2];
            for row in (0..rows.count).step_by(2) {
                for (i, (low, high, sum)) in all.iter_mut().enumerate() {
                    let row = row + i;
                    if row < rows.count {
                        let x = load::<S, BF16>(&rows, row, at);
                        (*low, *high) = (S::min(*low, x), S::max(*high, x));
                        if WEIGHED {
                            *sum = S::fma(S::splat(*weights.add(row)), x, *sum);
                        }
                    }
                }
            }
            let [one, other] = all;
            let (low, high, sum) = (S::min(one.0, other.0), S::max(one.1, other.1), S::add(one.2, other.2));
            S::store(grids.least.add(at), low);
            S::store(grids.scale().add(at), high);
            if WEIGHED {
                S::store(sums.add(at), sum);
            }
            for at in at..at + S::LANES {
                let grid = Grid::undivided((*grids.least.add(at), *grids.scale().add(at)));
                *grids.least.add(at) = grid.least;
                *grids.scale().add(at) = grid.scale;
                *grids.inverse().add(at) = grid.inverse;
                *grids.shift().add(at) = grid.shift;
            }
        }
    }
}

/// Rounded rows as `[quads of rows][width + 1]` words; the last one of a quad is of ones.
#[inline(always)]
unsafe fn lay_quads<S: Simd>(rows: Rows, grids: Grids, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        match Source::of(rows) {
            (rows, false) => lay_quads_of::<S, false>(rows, grids, to),
            (rows, true) => lay_quads_of::<S, true>(rows, grids, to),
        }
    }
}
kernel!(
    /// # Safety
    /// Room for all words and 16 more.
    pub(super) lay_quads_at = lay_quads(rows: Rows, grids: Grids, to: *mut u32)
);

#[inline(always)]
unsafe fn lay_quads_of<S: Simd, const BF16: bool>(rows: Source, grids: Grids, to: *mut u32) {
    let (count, width) = (rows.count, rows.width);
    // SAFETY: a vector that is not whole writes beyond its quad, what is written later or slack.
    unsafe {
        for quad in 0..count.div_ceil(4) {
            let (first, to) = (4 * quad, to.add(quad * (width + 1)));
            for at in (0..width).step_by(S::LANES) {
                let four = four_rows::<S, BF16>(&rows, grids, first, at);
                S::store_quads::<false>(to.add(at), four);
            }
            *to.add(width) = 0x0101_0101 >> (8 * (4 - 4.min(count - first)));
        }
    }
}

/// Rounded rows as `[quads of the width][rows]` words, quads so many words apart.
#[inline(always)]
unsafe fn lay_across<S: Simd>(rows: Rows, grids: Grids, to: *mut u32, step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match Source::of(rows) {
            (rows, false) => lay_across_of::<S, false>(rows, grids, to, step),
            (rows, true) => lay_across_of::<S, true>(rows, grids, to, step),
        }
    }
}
kernel!(
    /// # Safety
    /// Room for whole vectors of channels, and in a step for the rows in whole fours.
    pub(super) lay_across_at = lay_across(rows: Rows, grids: Grids, to: *mut u32, step: usize)
);

#[inline(always)]
unsafe fn lay_across_of<S: Simd, const BF16: bool>(rows: Source, grids: Grids, to: *mut u32, step: usize) {
    // SAFETY: there is room for whole vectors of channels and four rows.
    unsafe {
        for first in (0..rows.count).step_by(4) {
            for at in (0..rows.width).step_by(S::LANES) {
                let four = four_rows::<S, BF16>(&rows, grids, first, at);
                S::store_quads_across::<false>(to.add(at / 4 * step + first), step, four);
            }
        }
    }
}

/// The inverses of a vector of scales, which take the place of the largest numbers that they are for.
#[inline(always)]
unsafe fn undivided<S: Simd>(numbers: *mut f32, grid: impl Fn(f32) -> Grid) -> S::F {
    let mut inverses = [0.0; 16];
    // SAFETY: the caller's promise.
    unsafe {
        for (lane, inverse) in inverses.iter_mut().enumerate().take(S::LANES) {
            let grid = grid(*numbers.add(lane));
            *numbers.add(lane) = grid.scale;
            *inverse = grid.inverse;
        }
        S::load(inverses.as_ptr())
    }
}

impl Mixed {
    /// What scales a vector of slots, and the row of ones, scaled.
    #[inline(always)]
    unsafe fn scale_and_ones<S: Simd>(&self, at: usize) -> (S::F, S::F) {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = S::load(self.scales.add(at));
            (scale, S::mul(S::load_i32(self.sums.add(self.width * 2 * S::LANES + at).cast()), scale))
        }
    }

    /// A channel's numbers.
    #[inline(always)]
    unsafe fn number<S: Simd>(&self, channel: usize, at: usize, scale: S::F, ones: S::F) -> S::F {
        // SAFETY: the caller's promise.
        unsafe {
            let sum = S::mul(S::load_i32(self.sums.add(channel * 2 * S::LANES + at).cast()), scale);
            let least = S::splat(*self.grids.least.add(channel));
            S::fma(sum, S::splat(*self.grids.scale().add(channel)), S::mul(ones, least))
        }
    }
}

/// A panel of slots' keys as the right side of a product with rounded queries, `[quads of the width][panel]` words. `lines`:
/// what its sums are multiplied by, and then what is added to them.
#[inline(always)]
unsafe fn write_keys<S: Simd>(mixed: Mixed, queries: Grids, bias: *const f32, to: *mut u32, lines: *mut f32) {
    let (panel, width) = (2 * S::LANES, mixed.width);
    // SAFETY: the caller's promise; numbers take the place of the sums that they were made of.
    unsafe {
        for at in [0, S::LANES] {
            let (scale, ones) = mixed.scale_and_ones::<S>(at);
            let (mut low, mut high, mut constant) = (S::splat(0.0), S::splat(0.0), S::load(bias.add(at)));
            for channel in 0..width {
                let x = mixed.number::<S>(channel, at, scale, ones);
                constant = S::fma(x, S::splat(*queries.least.add(channel)), constant);
                let x = S::mul(x, S::splat(*queries.scale().add(channel)));
                (low, high) = (S::min(low, x), S::max(high, x));
                S::store(mixed.sums.add(channel * panel + at).cast(), x);
            }
            S::store(lines.add(panel + at), constant);
            S::store(lines.add(at), S::max(high, S::sub(S::splat(0.0), low)));
            let inverse = undivided::<S>(lines.add(at), Grid::undivided_signed);
            for channel in (0..width).step_by(4) {
                let mut four = [S::splat(0.0); 4];
                for (i, four) in four.iter_mut().enumerate() {
                    if channel + i < width {
                        *four = S::mul(S::load(mixed.sums.add((channel + i) * panel + at).cast()), inverse);
                    }
                }
                S::store_quads::<true>(to.add(channel / 4 * panel + at), four);
            }
        }
    }
}
kernel!(
    /// # Safety
    /// A bias and two lines of a panel; room for the panel's words.
    pub(super) write_keys_at = write_keys(mixed: Mixed, queries: Grids, bias: *const f32, to: *mut u32, lines: *mut f32)
);

/// What queries take of a panel of slots, `relu(scale · sum + constant)`, as `[quads of slots][queries]` words, quads so many
/// words apart; and what a byte of a slot stands for. There is room for four queries at a time.
#[inline(always)]
unsafe fn write_inner<S: Simd>(
    sums: *const u32,
    queries: usize,
    lines: *const f32,
    sizes: *mut f32,
    to: *mut u32,
    step: usize,
) {
    let panel = 2 * S::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        // Both halves and two queries at a time, or every query would wait for the one before.
        let mut most = [[S::splat(f32::MIN); 2]; 2];
        for query in (0..queries).step_by(2) {
            for (i, most) in most.iter_mut().enumerate() {
                if query + i < queries {
                    for (half, most) in most.iter_mut().enumerate() {
                        let sums = sums.add((query + i) * panel + half * S::LANES);
                        *most = S::max(*most, S::load_i32(sums.cast()));
                    }
                }
            }
        }
        for half in [0, 1] {
            let at = half * S::LANES;
            let most = S::max(most[0][half], most[1][half]);
            let (scale, constant) = (S::load(lines.add(at)), S::load(lines.add(panel + at)));
            S::store(sizes.add(at), S::fma(most, scale, constant));
            let inverse = undivided::<S>(sizes.add(at), |most| Grid::undivided((0.0, most)));
            let (scale, constant) = (S::mul(scale, inverse), S::mul(constant, inverse));
            // What is below zero is below the least byte.
            for query in (0..queries).step_by(4) {
                let mut four = [S::splat(0.0); 4];
                for (i, four) in four.iter_mut().enumerate() {
                    *four = S::fma(S::load_i32(sums.add((query + i) * panel + at).cast()), scale, constant);
                }
                S::store_quads_across::<false>(to.add(at / 4 * step + query), step, four);
            }
        }
    }
}
kernel!(
    /// # Safety
    /// Sums of the queries in whole fours, by panel; room for the panel's quads, and in a step for as many queries.
    pub(super) write_inner_at = write_inner(sums: *const u32, queries: usize, lines: *const f32, sizes: *mut f32, to: *mut u32, step: usize)
);

/// A panel of slots' values as rows of channels, so many numbers apart, each slot's times its size.
#[inline(always)]
unsafe fn write_values<S: Simd>(mixed: Mixed, sizes: *const f32, to: *mut f32, step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for at in [0, S::LANES] {
            let (scale, ones) = mixed.scale_and_ones::<S>(at);
            let size = S::load(sizes.add(at));
            let (scale, ones) = (S::mul(scale, size), S::mul(ones, size));
            for channel in 0..mixed.width {
                S::store(to.add(channel * step + at), mixed.number::<S>(channel, at, scale, ones));
            }
        }
    }
}
kernel!(
    /// # Safety
    /// Sizes of a panel; room for it in every channel's row.
    pub(super) write_values_at = write_values(mixed: Mixed, sizes: *const f32, to: *mut f32, step: usize)
);

/// Rows of numbers as `[quads of the width][panel]` words of signed bytes; and what a byte of a row stands for.
#[inline(always)]
unsafe fn round_values<S: Simd>(rows: *const f32, count: usize, width: usize, scales: *mut f32, to: *mut u32) {
    // SAFETY: the caller's promise; a panel has room for four rows at a time.
    unsafe {
        for first in (0..count).step_by(4) {
            let mut inverses = [S::splat(0.0); 4];
            for (i, inverse) in inverses.iter_mut().enumerate().take(count - first) {
                let zero = S::splat(0.0);
                // Comparisons forget what is not a number, sums do not.
                let (mut low, mut high, mut spoilt) = (zero, zero, zero);
                for at in (0..width).step_by(S::LANES) {
                    let x = S::load(rows.add((first + i) * width + at));
                    (low, high, spoilt) = (S::min(low, x), S::max(high, x), S::fma(x, zero, spoilt));
                }
                let most = S::largest(S::max(high, S::sub(zero, low))) + S::sum(spoilt);
                let grid = Grid::undivided_signed(most);
                *scales.add(first + i) = grid.scale;
                *inverse = S::splat(grid.inverse);
            }
            for at in (0..width).step_by(S::LANES) {
                let mut four = [S::splat(0.0); 4];
                for (i, four) in four.iter_mut().enumerate() {
                    if first + i < count {
                        *four = S::mul(S::load(rows.add((first + i) * width + at)), inverses[i]);
                    }
                }
                S::store_quads_across::<true>(to.add(at / 4 * 2 * S::LANES + first), 2 * S::LANES, four);
            }
        }
    }
}
kernel!(
    /// # Safety
    /// So many rows of whole panels, no more rows than a panel has columns; room for a panel of all quads.
    pub(super) round_values_at = round_values(rows: *const f32, count: usize, width: usize, scales: *mut f32, to: *mut u32)
);
