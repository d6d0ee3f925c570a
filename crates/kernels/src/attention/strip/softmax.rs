//! Online softmax of a block of scores, queries side by side in lanes.

use super::super::{Job, Workspace};
use super::FAR;
use crate::math::{exp2_negative, exp2_negative_coarse};
use crate::simd::{Simd, kernel};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// One block of keys for [`softmax`].
pub(crate) struct Block<'a> {
    pub(crate) keys: Range<usize>,
    /// Keys that stand elsewhere, after those.
    pub(crate) others: &'a [usize],
    pub(crate) positions: &'a [f32; 32],
    pub(crate) biased: bool,
    pub(crate) masked: bool,
    pub(crate) first: bool,
    pub(crate) pairs: bool,
}

/// Turns a block's raw scores into probabilities relative to the panel's running maximum, in place (as bf16 pairs of
/// keys where the values are), and brings maximum, sum and result up to date.
///
/// `space.result` begins with the running maximum and sum of each lane (in log2 units), then the result `[width][panel]`.
#[inline(always)]
unsafe fn softmax<S: Simd>(job: &Job, block: &Block, space: &mut Workspace) {
    let panel = 2 * S::LANES;
    let count = block.keys.len() + block.others.len();
    let scale = job.attention.scale * LOG2_E;
    let width = job.k.width();
    let (window, causal) = (job.attention.window, job.attention.causal);
    let globals = &job.attention.indices[job.span.globals.clone()];
    for half in 0..2 {
        let lane = half * S::LANES;
        // SAFETY: scores have `count` rows of `panel` (one more when pairs are odd); result as documented.
        unsafe {
            let scores = space.scores.as_mut_slice().as_mut_ptr().add(lane);
            let running = space.result.as_mut_slice().as_mut_ptr().add(lane);
            let position = S::load(block.positions.as_ptr().add(lane));
            let mut scale_now = S::splat(scale);
            if block.biased || block.masked {
                for (i, key) in block.keys.clone().chain(block.others.iter().copied()).enumerate() {
                    let p = scores.add(i * panel);
                    let mut x = S::mul(S::load(p), scale_now);
                    if block.biased {
                        x = S::add(x, S::load(space.bias.as_slice().as_ptr().add(key * panel + lane)));
                    }
                    if block.masked {
                        let (mut low, mut high) = (-FAR, 2.0 * FAR);
                        if let Some(window) = window
                            && !globals.contains(&key)
                        {
                            (low, high) = (key as f32 - window as f32, (key + window) as f32);
                        }
                        if causal {
                            low = low.max(key as f32);
                        }
                        x = S::keep_between(x, position, S::splat(low), S::splat(high));
                    }
                    S::store(p, x);
                }
                scale_now = S::splat(1.0);
            }
            // Four maxima, so that one comparison need not wait for the other.
            let mut most = [S::splat(f32::MIN); 4];
            let mut i = 0;
            while i + 4 <= count {
                for (j, most) in most.iter_mut().enumerate() {
                    *most = S::max(*most, S::load(scores.add((i + j) * panel)));
                }
                i += 4;
            }
            while i < count {
                most[0] = S::max(most[0], S::load(scores.add(i * panel)));
                i += 1;
            }
            let most = S::max(S::max(most[0], most[1]), S::max(most[2], most[3]));
            let mut most = S::max(S::mul(most, scale_now), S::splat(-1e30));
            let mut total = S::splat(0.0);
            if !block.first {
                let old = S::load(running);
                most = S::max(most, old);
                let shrink = exp2_negative::<S>(S::sub(old, most));
                total = S::mul(S::load(running.add(panel)), shrink);
                let result = running.add(4 * panel);
                for row in 0..width {
                    let p = result.add(row * panel);
                    S::store(p, S::mul(S::load(p), shrink));
                }
            }
            let less = S::sub(S::splat(0.0), most);
            let mut i = 0;
            if block.pairs {
                let mut total_odd = S::splat(0.0);
                while i < count {
                    let low = exp2_negative_coarse::<S>(S::fma(S::load(scores.add(i * panel)), scale_now, less));
                    let high = if i + 1 < count {
                        exp2_negative_coarse::<S>(S::fma(S::load(scores.add((i + 1) * panel)), scale_now, less))
                    } else {
                        S::splat(0.0)
                    };
                    total = S::add(total, low);
                    total_odd = S::add(total_odd, high);
                    // Pair i/2 takes the place of row i/2, which has been read already (for both halves: see below).
                    S::store_bf16_pairs(scores.add(i / 2 * panel).cast(), low, high);
                    i += 2;
                }
                total = S::add(total, total_odd);
            } else {
                while i < count {
                    let p = scores.add(i * panel);
                    let e = exp2_negative::<S>(S::fma(S::load(p), scale_now, less));
                    total = S::add(total, e);
                    S::store(p, e);
                    i += 1;
                }
            }
            S::store(running, most);
            S::store(running.add(panel), total);
        }
    }
}
kernel!(pub(crate) softmax_at = softmax(job: &Job, block: &Block, space: &mut Workspace));

/// Divides a panel's result by its sums.
#[inline(always)]
unsafe fn divide<S: Simd>(width: usize, space: &mut Workspace) {
    let panel = 2 * S::LANES;
    let running = space.result.as_mut_slice().as_mut_ptr();
    for lane in [0, S::LANES] {
        // SAFETY: `result` holds four rows of the panel's state and `width` rows behind them.
        unsafe {
            let inverse = S::div(S::splat(1.0), S::max(S::load(running.add(panel + lane)), S::splat(1e-30)));
            for row in 0..width {
                let p = running.add((4 + row) * panel + lane);
                S::store(p, S::mul(S::load(p), inverse));
            }
        }
    }
}
kernel!(pub(super) divide_at = divide(width: usize, space: &mut Workspace));
