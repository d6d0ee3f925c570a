//! How the sides of a product are laid out: words of one f32, or of two neighbouring terms of a sum in bf16.

use crate::Format;
use crate::simd::{Simd, kernel};

/// Terms of a sum that a word holds.
pub(super) fn terms(format: Format) -> usize {
    match format {
        Format::F32 => 1,
        Format::Bf16 => 2,
        Format::Int8 => unreachable!("gradients have no bytes"),
    }
}

/// How a row is cut into groups of columns that are stored apart.
pub(super) struct Groups {
    /// Columns of a group; the last may be shorter.
    pub(super) width: usize,
    /// Columns in all.
    pub(super) last: usize,
    /// Words between the beginnings of two groups.
    pub(super) step: usize,
    /// Words between two rows of a group.
    pub(super) pitch: usize,
}

/// Copies rows (`step_from` words apart) group by group: they are read from front to back. With `PAIRS` two rows become one
/// of pairs; the last of an odd number has zeros beside it.
#[inline(always)]
unsafe fn copy<S: Simd, const PAIRS: bool>(
    from: *const u32,
    step_from: usize,
    rows: usize,
    groups: &Groups,
    to: *mut u32,
) {
    let Groups { width, last, step, pitch } = *groups;
    let per = if PAIRS { 2 } else { 1 };
    for (line, row) in (0..rows).step_by(per).enumerate() {
        for (index, first) in (0..last).step_by(width).enumerate() {
            let count = width.min(last - first);
            let mut at = 0;
            while at < count {
                let n = S::LANES.min(count - at);
                // SAFETY: within the rows, and within the row's place in the group.
                unsafe {
                    let p = from.add(row * step_from + first + at).cast::<f32>();
                    let read = |p| if n == S::LANES { S::load(p) } else { S::load_n(p, n) };
                    let words = match (PAIRS, row + 1 < rows) {
                        (false, _) => read(p),
                        (true, true) => S::pairs(read(p), read(p.add(step_from))),
                        (true, false) => S::pairs(read(p), S::splat(0.0)),
                    };
                    let to = to.add(index * step + line * pitch + at).cast::<f32>();
                    if n == S::LANES { S::store(to, words) } else { S::store_n(to, words, n) }
                }
                at += n;
            }
        }
    }
}

#[inline(always)]
unsafe fn copy_groups<S: Simd>(from: *const u32, step_from: usize, rows: usize, groups: &Groups, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe { copy::<S, false>(from, step_from, rows, groups, to) }
}
kernel!(
    /// # Safety
    /// `from` has the rows, `to` the groups.
    pub(super) copy_groups_at = copy_groups(from: *const u32, step_from: usize, rows: usize, groups: &Groups, to: *mut u32)
);

#[inline(always)]
unsafe fn pair_groups<S: Simd>(from: *const u32, step_from: usize, rows: usize, groups: &Groups, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe { copy::<S, true>(from, step_from, rows, groups, to) }
}
kernel!(
    /// # Safety
    /// `from` has the rows, `to` the groups, with half as many rows.
    pub(super) pair_groups_at = pair_groups(from: *const u32, step_from: usize, rows: usize, groups: &Groups, to: *mut u32)
);

/// Writes `rows` rows of `terms` f32 (`step_from` apart) as `[words][step_to]`, a column of pairs per row. Each group of
/// `LANES` rows writes `LANES` words per column, so `to` needs that much slack at the end.
#[inline(always)]
unsafe fn pairs_side_by_side<S: Simd>(
    from: *const u32,
    step_from: usize,
    rows: usize,
    terms: usize,
    to: *mut u32,
    step_to: usize,
) {
    let words = terms.div_ceil(2);
    // A square of words on its way: in the first-level cache.
    let mut square = [0u32; 16 * 16];
    let square = square.as_mut_ptr();
    for row in (0..rows).step_by(S::LANES) {
        let count = S::LANES.min(rows - row);
        for word in (0..words).step_by(S::LANES) {
            let left = terms - 2 * word;
            // SAFETY: within the rows, the square and the result.
            unsafe {
                for i in 0..count {
                    let p = from.add((row + i) * step_from + 2 * word).cast::<f32>();
                    let line = square.add(i * S::LANES).cast::<u16>();
                    let half = |first: usize| match left.saturating_sub(first) {
                        0 => S::splat(0.0),
                        n if n < S::LANES => S::load_n(p.add(first), n),
                        _ => S::load(p.add(first)),
                    };
                    S::store_bf16(line, half(0));
                    S::store_bf16(line.add(S::LANES), half(S::LANES));
                }
                let to = to.add(row + word * step_to);
                if words - word >= S::LANES {
                    S::transpose(square, S::LANES, count, to, step_to);
                } else {
                    for word in 0..words - word {
                        for i in 0..count {
                            *to.add(word * step_to + i) = *square.add(i * S::LANES + word);
                        }
                    }
                }
            }
        }
    }
}
kernel!(
    /// # Safety
    /// `from` has `rows` rows of `terms` f32; `to` has `words * step_to` words and 16 more.
    pub(super) pairs_side_by_side_at = pairs_side_by_side(from: *const u32, step_from: usize, rows: usize, terms: usize, to: *mut u32, step_to: usize)
);
