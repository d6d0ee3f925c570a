//! Rows as the tile kernels want them: 32-bit words (an f32, two bf16, four bytes), a few rows side by side.

use crate::pack::Grid;
use crate::rows::{Elements, Rows};
use crate::simd::{Level, Simd, kernel};
use crate::tile::Tile;
use crate::{Aligned, Format, InputRounding};

/// Words that a row of `width` elements takes in B's terms: steps of the tile kernel.
pub(crate) fn steps(format: Format, width: usize) -> usize {
    match format {
        Format::F32 => width,
        Format::Bf16 => width.div_ceil(2),
        Format::Int8 => width.div_ceil(4),
    }
}

/// Words that a row of A takes.
pub(crate) fn row_words(tile: &Tile, format: Format, width: usize) -> usize {
    steps(format, width) * if tile.wide { 2 } else { 1 }
}

/// Writes `rows` rows (`step_from` words apart) as `[words][step_to]`, a column of words per row. Each group of
/// `LANES` rows writes `LANES` words per column, so `to` needs that much slack at the end.
#[inline(always)]
unsafe fn side_by_side<S: Simd>(
    from: *const u32,
    step_from: usize,
    rows: usize,
    words: usize,
    to: *mut u32,
    step_to: usize,
) {
    unsafe {
        let mut row = 0;
        while row < rows {
            let count = S::LANES.min(rows - row);
            let (from, to) = (from.add(row * step_from), to.add(row));
            let mut word = 0;
            while word + S::LANES <= words {
                S::transpose(from.add(word), step_from, count, to.add(word * step_to), step_to);
                word += S::LANES;
            }
            while word < words {
                for i in 0..count {
                    *to.add(word * step_to + i) = from.add(i * step_from + word).read_unaligned();
                }
                word += 1;
            }
            row += count;
        }
    }
}

kernel!(
    /// # Safety
    /// `from` has `rows` rows of `words` words; `to` has `words * step_to` words and 16 more.
    pub(crate) side_by_side_at = side_by_side(from: *const u32, step_from: usize, rows: usize, words: usize, to: *mut u32, step_to: usize)
);

/// `n` elements from `at` on; the other lanes are zero.
#[inline(always)]
pub(crate) unsafe fn load_element<S: Simd, const BF16: bool>(p: *const u8, at: usize, n: usize) -> S::F {
    unsafe {
        match (BF16, n == S::LANES) {
            (false, true) => S::load(p.cast::<f32>().add(at)),
            (false, false) => S::load_n(p.cast::<f32>().add(at), n),
            (true, true) => S::load_bf16(p.cast::<u16>().add(at)),
            (true, false) => S::load_bf16_n(p.cast::<u16>().add(at), n),
        }
    }
}

/// f32 elements to bf16, zero up to `padded`.
#[inline(always)]
unsafe fn to_bf16<S: Simd>(from: *const f32, width: usize, to: *mut u16, padded: usize) {
    unsafe {
        let mut i = 0;
        while i + S::LANES <= width {
            S::store_bf16(to.add(i), S::load(from.add(i)));
            i += S::LANES;
        }
        if i < padded {
            S::store_bf16_n(to.add(i), S::load_n(from.add(i), width - i), padded - i);
        }
    }
}
kernel!(to_bf16_at = to_bf16(from: *const f32, width: usize, to: *mut u16, padded: usize));

/// Quantises a row to bytes: `x ≈ scale * q + least`, q in 0..=steps. Returns `(scale, least)`. Writes up to the next
/// whole vector; what lies beyond the row is arbitrary (its weights are zero).
#[inline(always)]
unsafe fn quantise<S: Simd, const BF16: bool>(
    from: *const u8,
    width: usize,
    to: *mut u8,
    input: InputRounding,
) -> (f32, f32) {
    unsafe {
        let grid = match input.grid {
            Some(grid) => grid,
            None => Grid::new(input.steps, range::<S, BF16>(from, width)),
        };
        let steps = f32::from(input.steps);
        let (inverse, shift) = (S::splat(grid.inverse), S::splat(grid.shift));
        let mut i = 0;
        while i < width {
            let x = load_element::<S, BF16>(from, i, S::LANES.min(width - i));
            let q = S::fma(x, inverse, shift);
            S::store_u8(to.add(i), S::min(S::max(q, S::splat(0.0)), S::splat(steps)));
            i += S::LANES;
        }
        (grid.scale, grid.least)
    }
}

/// Least and largest element of a row.
#[inline(always)]
unsafe fn range<S: Simd, const BF16: bool>(from: *const u8, width: usize) -> (f32, f32) {
    unsafe {
        let whole = width - width % S::LANES;
        let (mut high, mut low) = (S::splat(f32::MIN), S::splat(f32::MAX));
        let mut i = 0;
        while i < whole {
            let x = load_element::<S, BF16>(from, i, S::LANES);
            (high, low) = (S::max(high, x), S::min(low, x));
            i += S::LANES;
        }
        let (mut most, mut least) = (S::largest(high), -S::largest(S::sub(S::splat(0.0), low)));
        while i < width {
            let x =
                if BF16 { crate::rows::bf16_to_f32(*from.cast::<u16>().add(i)) } else { *from.cast::<f32>().add(i) };
            (most, least) = (most.max(x), least.min(x));
            i += 1;
        }
        (least, most)
    }
}

#[inline(always)]
unsafe fn quantise_f32<S: Simd>(from: *const u8, width: usize, to: *mut u8, input: InputRounding) -> (f32, f32) {
    unsafe { quantise::<S, false>(from, width, to, input) }
}
#[inline(always)]
unsafe fn quantise_bf16<S: Simd>(from: *const u8, width: usize, to: *mut u8, input: InputRounding) -> (f32, f32) {
    unsafe { quantise::<S, true>(from, width, to, input) }
}
kernel!(quantise_f32_at = quantise_f32(from: *const u8, width: usize, to: *mut u8, input: InputRounding) -> (f32, f32));
kernel!(quantise_bf16_at = quantise_bf16(from: *const u8, width: usize, to: *mut u8, input: InputRounding) -> (f32, f32));

/// Quantises a row of weights to signed bytes around zero: `w ≈ scale * q`, q in -127..=127. Returns the scale. Writes up
/// to the next whole vector, zeros beyond the row.
#[inline(always)]
unsafe fn quantise_weights<S: Simd>(from: *const f32, width: usize, to: *mut i8) -> f32 {
    unsafe {
        let (mut high, mut low) = (S::splat(0.0), S::splat(0.0));
        let mut i = 0;
        while i < width {
            let w = S::load_n(from.add(i), S::LANES.min(width - i));
            (high, low) = (S::max(high, w), S::min(low, w));
            i += S::LANES;
        }
        let most = S::largest(S::max(high, S::sub(S::splat(0.0), low)));
        let scale = (most / 127.0).max(1e-30);
        // Shifted by 128 on the way through unsigned bytes; flipping the top bit shifts back.
        let (inverse, shift) = (S::splat(1.0 / scale), S::splat(128.0));
        i = 0;
        while i < width {
            let w = S::load_n(from.add(i), S::LANES.min(width - i));
            let q = S::min(S::max(S::fma(w, inverse, shift), S::splat(1.0)), S::splat(255.0));
            S::store_u8(to.add(i).cast(), q);
            for j in i..i + S::LANES {
                *to.add(j) = (*to.add(j) as u8 ^ 0x80) as i8;
            }
            i += S::LANES;
        }
        scale
    }
}
kernel!(
    /// # Safety
    /// `to` has room for `width` rounded up to 16.
    pub(crate) quantise_weights_at = quantise_weights(from: *const f32, width: usize, to: *mut i8) -> f32
);

/// Lays out rows `first .. first + count` for a tile: `[words][step_to]`. For int8 also notes each row's scale and least
/// value in `quantised` (two numbers per row), rounded as it says.
///
/// # Safety
/// `to` has room for `words * step_to` words and 16 more.
pub(crate) unsafe fn lay_out(
    level: Level,
    format: Format,
    wide: bool,
    rows: Rows,
    first: usize,
    count: usize,
    to: *mut u32,
    step_to: usize,
    staging: &mut Aligned<u32>,
    quantised: Option<(&mut [f32], InputRounding)>,
) {
    let rows = rows.range(first..first + count);
    let (width, stride) = (rows.width(), rows.stride());
    let words = steps(format, width) * if wide { 2 } else { 1 };
    // Sixteen words of slack: quantising writes whole vectors.
    let step = words + 16;
    // SAFETY (whole block): `rows` vouches for `count` rows of `width` elements; staging is grown to fit first.
    unsafe {
        let (from, step_from): (*const u32, usize) = match (format, wide, rows.data()) {
            (Format::F32, _, Elements::F32(d)) => (d.as_ptr().cast(), stride),
            (Format::Bf16, true, Elements::F32(d)) if width.is_multiple_of(2) => (d.as_ptr().cast(), stride),
            (Format::Bf16, false, Elements::Bf16(d)) if width.is_multiple_of(2) && stride.is_multiple_of(2) => {
                (d.as_ptr().cast(), stride / 2)
            }
            (Format::F32, ..) | (Format::Bf16, true, _) => {
                staging.ensure(count * step);
                for i in 0..count {
                    let row = &mut staging.as_mut_slice()[i * step..i * step + words];
                    for (c, word) in row.iter_mut().enumerate() {
                        *word = if c < width { rows.get(i, c).to_bits() } else { 0 };
                    }
                }
                (staging.as_slice().as_ptr(), step)
            }
            (Format::Bf16, false, data) => {
                staging.ensure(count * step);
                for i in 0..count {
                    let to = staging.as_mut_slice().as_mut_ptr().add(i * step).cast::<u16>();
                    match data {
                        Elements::F32(d) => to_bf16_at(level, d.as_ptr().add(i * stride), width, to, 2 * words),
                        Elements::Bf16(d) => {
                            to.add(2 * words - 1).write(0);
                            std::ptr::copy_nonoverlapping(d.as_ptr().add(i * stride), to, width);
                        }
                    }
                }
                (staging.as_slice().as_ptr(), step)
            }
            (Format::Int8, _, data) => {
                staging.ensure(count * step);
                let (quantised, input) = quantised.expect("int8 rows have scales");
                for i in 0..count {
                    let to = staging.as_mut_slice().as_mut_ptr().add(i * step).cast::<u8>();
                    let (scale, least) = match data {
                        Elements::F32(d) => quantise_f32_at(level, d.as_ptr().add(i * stride).cast(), width, to, input),
                        Elements::Bf16(d) => {
                            quantise_bf16_at(level, d.as_ptr().add(i * stride).cast(), width, to, input)
                        }
                    };
                    (quantised[2 * i], quantised[2 * i + 1]) = (scale, least);
                }
                (staging.as_slice().as_ptr(), step)
            }
        };
        side_by_side_at(level, from, step_from, count, words, to, step_to);
    }
}
