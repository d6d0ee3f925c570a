//! Softmax of rows, the logarithm of its sum, and their gradients.

use crate::math::exp;
use crate::norm::softmax_in_place;
use crate::simd::{Level, Simd, kernel};
use crate::{Chunks, RowsMut, Team};

/// Numbers that one task takes at least.
const NUMBERS: usize = 1 << 14;

/// Calls `f(first, rows)` for all parts of `out` in whole rows of `width`, by the whole team.
fn parts(team: &Team, width: usize, out: &mut [f32], f: impl Fn(usize, &mut [f32]) + Sync) {
    let rows = out.len() / width.max(1);
    assert_eq!(rows * width, out.len(), "whole rows");
    if rows == 0 {
        return;
    }
    let each = NUMBERS.div_ceil(width).max(rows.div_ceil(Chunks::MOST));
    let chunks = Chunks::new(RowsMut::f32(out, width), each);
    team.run(rows.div_ceil(each), &|task, _| f(task * each, chunks.take(task).all_f32()));
}

/// Softmax of rows of `width`, in place.
pub fn softmax(team: &Team, x: &mut [f32], width: usize) {
    parts(team, width, x, |_, part| softmax_in_place(RowsMut::f32(part, width)));
}

/// The gradient of [`softmax`] from that of its result, `shares`: `(g - Σ g s) s`.
pub fn softmax_gradient(team: &Team, gradient: &[f32], shares: &[f32], width: usize, out: &mut [f32]) {
    assert_eq!((gradient.len(), shares.len()), (out.len(), out.len()), "gradient of a softmax");
    parts(team, width, out, |first, out| {
        let from = first * width..first * width + out.len();
        // SAFETY: the active level is available; the slices are equally long and of whole rows.
        unsafe { back_at(Level::active(), &gradient[from.clone()], &shares[from], width, out) };
    });
}

#[inline(always)]
unsafe fn back<S: Simd>(gradient: &[f32], shares: &[f32], width: usize, out: &mut [f32]) {
    for row in 0..out.len() / width {
        // SAFETY: a row has `width` numbers in all three.
        unsafe {
            let at = |slice: &[f32]| slice.as_ptr().add(row * width);
            let (g, s, to) = (at(gradient), at(shares), out.as_mut_ptr().add(row * width));
            let mut sum = S::splat(0.0);
            vectors::<S>(width, |i, n| sum = S::fma(S::load_n(g.add(i), n), S::load_n(s.add(i), n), sum));
            let sum = S::splat(S::sum(sum));
            vectors::<S>(width, |i, n| {
                let part = S::mul(S::sub(S::load_n(g.add(i), n), sum), S::load_n(s.add(i), n));
                S::store_n(to.add(i), part, n);
            });
        }
    }
}
kernel!(back_at = back(gradient: &[f32], shares: &[f32], width: usize, out: &mut [f32]));

/// `ln Σ exp(x)` of every row of `width`; its gradient is [`softmax`].
pub fn log_sums(team: &Team, x: &[f32], width: usize, out: &mut [f32]) {
    assert_eq!(x.len(), out.len() * width, "sums of rows");
    // A row is one number of the result, and `width` of what is read.
    let each = NUMBERS.div_ceil(width.max(1)).max(out.len().div_ceil(Chunks::MOST));
    if out.is_empty() {
        return;
    }
    let tasks = out.len().div_ceil(each);
    let chunks = Chunks::new(RowsMut::f32(out, 1), each);
    team.run(tasks, &|task, _| {
        let mut part = chunks.take(task);
        let out = part.all_f32();
        // SAFETY: the active level is available; `width` numbers are read for each one of the result.
        unsafe { sums_at(Level::active(), &x[task * each * width..][..out.len() * width], width, out) };
    });
}

#[inline(always)]
unsafe fn sums<S: Simd>(x: &[f32], width: usize, out: &mut [f32]) {
    let whole = width - width % S::LANES;
    for (row, out) in x.chunks_exact(width).zip(out) {
        let (body, rest) = row.split_at(whole);
        // SAFETY: vectors of the body, which is whole vectors.
        unsafe {
            let mut high = S::splat(f32::MIN);
            body.chunks_exact(S::LANES).for_each(|v| high = S::max(high, S::load(v.as_ptr())));
            let most = rest.iter().fold(S::largest(high), |most, x| most.max(*x));
            let mut sum = S::splat(0.0);
            for v in body.chunks_exact(S::LANES) {
                sum = S::add(sum, exp::<S>(S::sub(S::load(v.as_ptr()), S::splat(most))));
            }
            let rest: f32 = rest.iter().map(|x| (x - most).exp()).sum();
            *out = most + (S::sum(sum) + rest).ln();
        }
    }
}
kernel!(sums_at = sums(x: &[f32], width: usize, out: &mut [f32]));

/// Calls `f(at, n)` for each vector of a row.
#[inline(always)]
fn vectors<S: Simd>(width: usize, mut f: impl FnMut(usize, usize)) {
    (0..width).step_by(S::LANES).for_each(|at| f(at, S::LANES.min(width - at)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, numbers};

    /// Against the slow reference in rows of every kind of width, at every level.
    #[test]
    fn rows_match_the_reference() {
        let team = Team::new(2);
        for (rows, width) in [(1, 1), (3, 5), (if cfg!(miri) { 2 } else { 150 }, 256), (4, 37)] {
            let x: Vec<f32> = numbers(3, rows * width, 20.0);
            let gradient = numbers(4, rows * width, 1.0);
            let (mut shares, mut sums, mut found) = (x.clone(), vec![f32::NAN; rows], x.clone());
            softmax(&team, &mut shares, width);
            log_sums(&team, &x, width, &mut sums);
            softmax_gradient(&team, &gradient, &shares, width, &mut found);
            for (row, log_sum) in sums.iter().enumerate() {
                let range = row * width..(row + 1) * width;
                let mut want = x[range.clone()].to_vec();
                reference::softmax(&mut want);
                let sum: f64 = x[range.clone()].iter().map(|x| f64::from(*x).exp()).sum();
                assert!((f64::from(*log_sum) - sum.ln()).abs() < 1e-5 * (1.0 + sum.ln().abs()), "{rows} {width}");
                let dot: f32 = gradient[range.clone()].iter().zip(&want).map(|(g, s)| g * s).sum();
                for (i, want) in range.clone().zip(&want) {
                    assert!((shares[i] - want).abs() < 1e-6, "{rows} {width}");
                    assert!((found[i] - (gradient[i] - dot) * want).abs() < 1e-6, "{rows} {width}");
                }
                for level in Level::all_available() {
                    let (mut out, mut one) = (vec![0.0; width], [0.0]);
                    // SAFETY: available levels; one row.
                    unsafe {
                        back_at(level, &gradient[range.clone()], &shares[range.clone()], width, &mut out);
                        sums_at(level, &x[range.clone()], width, &mut one);
                    }
                    assert!((one[0] - log_sum).abs() < 1e-4, "{level:?}");
                    assert!(out.iter().zip(&found[range.clone()]).all(|(a, b)| (a - b).abs() < 1e-6), "{level:?}");
                }
            }
        }
    }
}
