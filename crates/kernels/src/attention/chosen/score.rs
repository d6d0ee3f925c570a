//! What keys are chosen by: a number per key, the smaller the better.

use super::{By, Space};
use crate::Rows;
use crate::attention::Job;
use crate::attention::few::load;
use crate::simd::{Level, Simd, kernel};

/// Fills `own.scores` with a number per key.
///
/// # Safety
/// The level is available.
pub(super) unsafe fn keys(level: Level, job: &Job, by: By, own: &mut Space) {
    let (keys, width) = (job.k.count(), job.k.width());
    own.scores.resize(keys, 0);
    // SAFETY: the buffers have room as each function wants it.
    unsafe {
        match by {
            By::Sign => {
                let words = width.div_ceil(64);
                own.positive.ensure(width.next_multiple_of(64));
                own.bits.resize(words * keys, 0);
                count_positive_at(level, job.q, own.positive.as_mut_slice());
                majority(own.positive.as_slice(), job.q.count(), width, &mut own.signs);
                sign_bits_at(level, job.k, &mut own.bits);
                distances_at(level, &own.bits, &own.signs, &mut own.scores);
            }
            By::Norm => norms_at(level, job.k, &mut own.scores),
            By::Value(threshold) => large_at(level, job.k, threshold, &mut own.scores),
            By::Grouped => unreachable!("groups have no common score"),
        }
    }
}

/// A bit per column, set where at least half of the queries are positive.
fn majority(positive: &[f32], queries: usize, width: usize, signs: &mut Vec<u64>) {
    signs.clear();
    signs.extend(positive[..width].chunks(64).map(|columns| {
        let bit = |(i, count): (usize, &f32)| ((2.0 * count >= queries as f32) as u64) << i;
        columns.iter().enumerate().map(bit).fold(0, |word, bit| word | bit)
    }));
}

/// Counts positive numbers by column (exactly, up to 2^24 rows).
#[inline(always)]
unsafe fn count_positive<S: Simd>(q: Rows, positive: &mut [f32]) {
    // Four vectors at a time stay in registers over all rows.
    for first in (0..q.width()).step_by(4 * S::LANES) {
        // SAFETY: accesses are within a row's width, or within `positive`, which is padded to whole words of 64 columns.
        unsafe {
            let mut counts = [S::splat(0.0); 4];
            for row in 0..q.count() {
                for (i, count) in counts.iter_mut().enumerate() {
                    let at = first + i * S::LANES;
                    if at < q.width() {
                        let x = load::<S>(q.data(), row * q.stride() + at, S::LANES.min(q.width() - at));
                        *count = S::add(*count, S::keep_below(S::splat(1.0), S::splat(0.0), x));
                    }
                }
            }
            for (i, count) in counts.into_iter().enumerate().filter(|(i, _)| first + i * S::LANES < q.width()) {
                S::store(positive.as_mut_ptr().add(first + i * S::LANES), count);
            }
        }
    }
}
kernel!(count_positive_at = count_positive(q: Rows, positive: &mut [f32]));

/// A bit per number of k, set where it is positive: `[words][keys]`.
#[inline(always)]
unsafe fn sign_bits<S: Simd>(k: Rows, bits: &mut [u64]) {
    let (keys, width) = (k.count(), k.width());
    for (word, first) in (0..width).step_by(64).enumerate() {
        let end = width.min(first + 64);
        for (key, bits) in bits[word * keys..(word + 1) * keys].iter_mut().enumerate() {
            *bits = 0;
            for at in (first..end).step_by(S::LANES) {
                // SAFETY: within the row; what is beyond is zero, and so not positive.
                let x = unsafe { load::<S>(k.data(), key * k.stride() + at, S::LANES.min(end - at)) };
                *bits |= (unsafe { S::positives(x) } as u64) << (at - first);
            }
        }
    }
}
kernel!(sign_bits_at = sign_bits(k: Rows, bits: &mut [u64]));

/// Hamming distance of every key's signs from `signs`.
#[inline(always)]
fn distances(bits: &[u64], signs: &[u64], scores: &mut [u32]) {
    scores.fill(0);
    for (bits, sign) in bits.chunks_exact(scores.len()).zip(signs) {
        for (score, bits) in scores.iter_mut().zip(bits) {
            *score += (bits ^ sign).count_ones();
        }
    }
}

/// [`distances`] with the instructions that count bits, where there are any.
fn distances_at(level: Level, bits: &[u64], signs: &[u64], scores: &mut [u32]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512vpopcntdq")]
        fn eight(bits: &[u64], signs: &[u64], scores: &mut [u32]) {
            distances(bits, signs, scores);
        }
        #[target_feature(enable = "popcnt")]
        fn one(bits: &[u64], signs: &[u64], scores: &mut [u32]) {
            distances(bits, signs, scores);
        }
        let wide = matches!(level, Level::Avx512 | Level::Avx512Bf16);
        // SAFETY: called only where the machine has the instructions; AVX-512 levels have the first three.
        unsafe {
            if wide && is_x86_feature_detected!("avx512vpopcntdq") {
                return eight(bits, signs, scores);
            }
            if level != Level::Portable && is_x86_feature_detected!("popcnt") {
                return one(bits, signs, scores);
            }
        }
    }
    let _ = level;
    distances(bits, signs, scores);
}

/// The longer a key, the smaller its score: floats that are not negative are ordered as their bits are.
#[inline(always)]
unsafe fn norms<S: Simd>(k: Rows, scores: &mut [u32]) {
    for (key, score) in scores.iter_mut().enumerate() {
        // SAFETY: within the row.
        unsafe {
            let mut sum = S::splat(0.0);
            for at in (0..k.width()).step_by(S::LANES) {
                let x = load::<S>(k.data(), key * k.stride() + at, S::LANES.min(k.width() - at));
                sum = S::fma(x, x, sum);
            }
            *score = !S::sum(sum).to_bits();
        }
    }
}
kernel!(norms_at = norms(k: Rows, scores: &mut [u32]));

/// The more numbers of a key are beyond the threshold, the smaller its score.
#[inline(always)]
unsafe fn large<S: Simd>(k: Rows, threshold: f32, scores: &mut [u32]) {
    for (key, score) in scores.iter_mut().enumerate() {
        *score = u32::MAX;
        for at in (0..k.width()).step_by(S::LANES) {
            let n = S::LANES.min(k.width() - at);
            // SAFETY: within the row.
            unsafe {
                let x = load::<S>(k.data(), key * k.stride() + at, n);
                let size = S::max(x, S::sub(S::splat(0.0), x));
                let beyond = S::positives(S::sub(size, S::splat(threshold)));
                *score -= (beyond & (u32::MAX >> (32 - n))).count_ones();
            }
        }
    }
}
kernel!(large_at = large(k: Rows, threshold: f32, scores: &mut [u32]));
