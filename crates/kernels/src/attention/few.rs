//! Attention of one or two queries: dot products along the rows of k, then a weighted sum of the rows of v.

use super::{Job, ScoreBias, Workspace};
use crate::math::exp2_negative;
use crate::rows::{Element, Elements, Rows};
use crate::simd::{Simd, kernel};

/// Reads `n` elements of row `row` from column `at`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(data: Elements, at: usize, n: usize) -> S::F {
    unsafe {
        match (data, n == S::LANES) {
            (Elements::F32(d), true) => S::load(d.as_ptr().add(at)),
            (Elements::F32(d), false) => S::load_n(d.as_ptr().add(at), n),
            (Elements::Bf16(d), true) => S::load_bf16(d.as_ptr().add(at)),
            (Elements::Bf16(d), false) => S::load_bf16_n(d.as_ptr().add(at), n),
        }
    }
}

/// `out[i] = scale · row · k[i]`.
#[inline(always)]
pub(super) unsafe fn dots<S: Simd>(k: Rows, row: &[f32], scale: f32, out: &mut [f32]) {
    for (key, out) in out.iter_mut().enumerate() {
        // SAFETY: within `row.len()` elements of a row of k.
        unsafe {
            let mut sum = S::splat(0.0);
            let mut at = 0;
            while at < row.len() {
                let n = S::LANES.min(row.len() - at);
                let k = load::<S>(k.data(), key * k.stride() + at, n);
                sum = S::fma(S::load_n(row.as_ptr().add(at), n), k, sum);
                at += n;
            }
            *out = S::sum(sum) * scale;
        }
    }
}

/// Writes a query's result: the sum of values by their weights, times `scale`.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd>(job: &Job, query: usize, weights: &[f32], scale: f32) {
    let (out_row, out_column) = job.place(query);
    let width = job.v.width();
    let mut at = 0;
    while at < width {
        let n = S::LANES.min(width - at);
        // SAFETY: within rows of v, and the query's place.
        unsafe {
            // Two sums, so that one addition need not wait for the other.
            let mut sums = [S::splat(0.0); 2];
            for (key, weight) in weights.iter().enumerate() {
                let v = load::<S>(job.v.data(), key * job.v.stride() + at, n);
                sums[key % 2] = S::fma(S::splat(*weight), v, sums[key % 2]);
            }
            let y = S::mul(S::add(sums[0], sums[1]), S::splat(scale));
            let p = job.out.at(out_row, out_column + at);
            match job.out.element {
                Element::F32 => S::store_n(p.cast(), y, n),
                Element::Bf16 => S::store_bf16_n(p.cast(), y, n),
            }
        }
        at += n;
    }
}

#[inline(always)]
unsafe fn attend<S: Simd>(job: &Job, space: &mut Workspace) {
    let (keys, width) = (job.k.count(), job.k.width());
    space.scores.ensure(keys.next_multiple_of(S::LANES));
    space.bias.ensure(keys);
    space.rows.ensure(width.next_multiple_of(S::LANES));
    let scale = job.attention.scale * std::f32::consts::LOG2_E;
    let masked = job.attention.causal || job.attention.window.is_some();
    for query in 0..job.q.count() {
        let scores = &mut space.scores.as_mut_slice()[..keys];
        let row = &mut space.rows.as_mut_slice()[..width];
        job.q.read_row(query, row);
        let position = job.position(query);
        // SAFETY: every access is within `width` elements of a row of q, k or v, or within scratch that was grown above; so
        // below.
        unsafe { dots::<S>(job.k, row, scale, scores) };
        let mut most = -1e30f32;
        if !matches!(job.attention.bias, ScoreBias::None) {
            let bias = &mut space.bias.as_mut_slice()[..keys];
            job.bias(query, bias);
            for (score, bias) in scores.iter_mut().zip(bias) {
                *score += *bias * std::f32::consts::LOG2_E;
            }
        }
        for (key, score) in scores.iter_mut().enumerate() {
            if masked && !job.attention.sees(job.span, position, key) {
                *score = f32::NEG_INFINITY;
            }
            most = most.max(*score);
        }
        let mut total = 0.0;
        let mut at = 0;
        while at < keys {
            let n = S::LANES.min(keys - at);
            unsafe {
                let p = scores.as_mut_ptr().add(at);
                S::store_n(p, exp2_negative::<S>(S::sub(S::load_n(p, n), S::splat(most))), n);
            }
            total += scores[at..at + n].iter().sum::<f32>();
            at += n;
        }
        // SAFETY: as above.
        unsafe { weigh::<S>(job, query, scores, 1.0 / total.max(1e-30)) };
    }
}

kernel!(
    /// # Safety
    /// The job's views and result are consistent (see [`super::attend`]).
    pub(super) attend_at = attend(job: &Job, space: &mut Workspace)
);
