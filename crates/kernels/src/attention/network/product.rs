//! Rows as they are stored times panels: no row of a network's scores depends on another number of it, so that, other than
//! for softmax, nothing need be transposed on the way in or out.

use crate::epilogue::Place;
use crate::rows::{Element, Elements, Rows};
use crate::simd::{Simd, kernel};

/// The right side of a product, `[panels][depth][panel]` words, of which the first `steps` of every panel are used.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub(super) words: *const u32,
    pub(super) depth: usize,
    pub(super) steps: usize,
}

/// What a product adds up to.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// Sums begin here: as many numbers as there are columns, in whole panels.
    pub(super) start: *const f32,
    /// What is below zero becomes zero.
    pub(super) relu: bool,
    pub(super) columns: usize,
    pub(super) to: Place,
}

/// The left side: rows of f32, or of bf16 whose pairs are multiplied.
#[derive(Clone, Copy)]
pub(super) struct Left {
    data: *const u8,
    /// Bytes between rows.
    stride: usize,
    pairs: bool,
}

impl Left {
    pub(super) fn of(rows: Rows) -> Left {
        match rows.data() {
            Elements::F32(data) => Left { data: data.as_ptr().cast(), stride: 4 * rows.stride(), pairs: false },
            Elements::Bf16(data) => Left { data: data.as_ptr().cast(), stride: 2 * rows.stride(), pairs: true },
        }
    }

    /// What was written there is read.
    pub(super) fn at(place: Place) -> Left {
        let (size, pairs) = if place.element == Element::F32 { (4, false) } else { (2, true) };
        Left { data: place.data, stride: size * place.stride, pairs }
    }

    /// From this row on.
    pub(super) fn from(self, row: usize) -> Left {
        Left { data: self.data.wrapping_add(row * self.stride), ..self }
    }
}

/// `to = relu(start + left · right)` for at most [`most_rows`](crate::tile::Tile::rows) rows.
#[inline(always)]
unsafe fn multiply<S: Simd>(rows: usize, left: Left, right: Panels, goal: Goal) {
    macro_rules! of_rows {
        ($($rows:literal)*) => {
            match (rows, left.pairs) {
                $(
                    ($rows, false) => tile::<S, $rows, false>(left, right, goal),
                    ($rows, true) => tile::<S, $rows, true>(left, right, goal),
                )*
                _ => unreachable!("a product of {rows} rows"),
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { of_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}
kernel!(
    /// # Safety
    /// Left and right have that many rows and steps, the goal room for rows and columns.
    pub(super) multiply_at = multiply(rows: usize, left: Left, right: Panels, goal: Goal)
);

#[inline(always)]
unsafe fn tile<S: Simd, const ROWS: usize, const PAIRS: bool>(left: Left, right: Panels, goal: Goal) {
    let panel = 2 * S::LANES;
    let Place { data, element, stride } = goal.to;
    let size = if element == Element::F32 { 4 } else { 2 };
    let least = if goal.relu { 0.0 } else { f32::NEG_INFINITY };
    // SAFETY: the caller's promise.
    unsafe {
        let floor = S::splat(least);
        for first in (0..goal.columns).step_by(panel) {
            let start = goal.start.add(first);
            let mut sums = [[S::load(start), S::load(start.add(S::LANES))]; ROWS];
            let mut b = right.words.add(first * right.depth);
            let mut a = left.data;
            for _ in 0..right.steps {
                let both = [S::load(b.cast()), S::load(b.add(S::LANES).cast())];
                S::prefetch(b.wrapping_add(12 * panel));
                S::prefetch(b.wrapping_add(12 * panel + S::LANES));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let word = a.wrapping_add(row * left.stride).cast::<u32>().read_unaligned();
                    for (sum, b) in sums.iter_mut().zip(both) {
                        *sum = match PAIRS {
                            true => S::dot_pairs(word, b, *sum),
                            false => S::fma(S::splat(f32::from_bits(word)), b, *sum),
                        };
                    }
                }
                a = a.wrapping_add(4);
                b = b.wrapping_add(panel);
            }
            // What is no part of a whole panel is rare: short and without branches otherwise, so that sums stay in registers.
            let to = data.add(first * size);
            match (element, first + panel <= goal.columns) {
                (Element::F32, true) => {
                    for (row, sums) in sums.iter().enumerate() {
                        let to = to.add(row * stride * size).cast::<f32>();
                        S::store(to, S::max(floor, sums[0]));
                        S::store(to.add(S::LANES), S::max(floor, sums[1]));
                    }
                }
                (Element::Bf16, true) => {
                    for (row, sums) in sums.iter().enumerate() {
                        let to = to.add(row * stride * size).cast::<u16>();
                        S::store_bf16(to, S::max(floor, sums[0]));
                        S::store_bf16(to.add(S::LANES), S::max(floor, sums[1]));
                    }
                }
                (_, false) => {
                    for (row, sums) in sums.into_iter().enumerate() {
                        for (at, sum) in [(0, sums[0]), (S::LANES, sums[1])] {
                            let n = S::LANES.min((goal.columns - first).saturating_sub(at));
                            let to = to.wrapping_add((row * stride + at) * size);
                            match element {
                                Element::F32 => S::store_n(to.cast(), S::max(floor, sum), n),
                                Element::Bf16 => S::store_bf16_n(to.cast(), S::max(floor, sum), n),
                            }
                        }
                    }
                }
            }
        }
    }
}
