//! Dropout whose choice depends on a seed and the element's number alone: nothing is stored for the way back, and any
//! thread can compute any part of it.

use crate::simd::{Level, Simd, kernel};

/// Drops elements with a given chance and scales the others up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    key: (u32, u32),
    /// A hash below this drops.
    limit: u32,
    scale: f32,
}

impl Dropout {
    /// Drops this share (from 0 up to, not including, 1).
    pub fn new(seed: u64, share: f64) -> Dropout {
        assert!((0.0..1.0).contains(&share), "a share of {share} cannot be dropped");
        let limit = (share * f64::from(u32::MAX)) as u32;
        Dropout { key: (seed as u32, (seed >> 32) as u32), limit, scale: (1.0 / (1.0 - share)) as f32 }
    }

    /// What elements `first..` are multiplied by: zero or the scale.
    pub fn factors(&self, first: usize, out: &mut [f32]) {
        // SAFETY: the active level is available; the kernel stays inside the slice.
        unsafe { factors_at(Level::active(), self, first, out) }
    }
}

/// A hash of 32 bits (the rounds of Wellons' `lowbias32`, <https://github.com/skeeto/hash-prospector>), with the second half
/// of the key in the middle so that two keys do not give shifted copies of one sequence.
#[inline(always)]
pub(super) fn hash(key: (u32, u32), number: u32) -> u32 {
    let mut x = number.wrapping_add(key.0);
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d) ^ key.1;
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Plain integer arithmetic that the compiler turns into vectors of the level.
#[inline(always)]
pub(super) unsafe fn factors<S: Simd>(dropout: &Dropout, first: usize, out: &mut [f32]) {
    let Dropout { key, limit, scale } = *dropout;
    let key = (key.0, key.1 ^ ((first as u64 >> 32) as u32));
    for (i, out) in out.iter_mut().enumerate() {
        let keep = hash(key, (first as u32).wrapping_add(i as u32)) >= limit;
        *out = if keep { scale } else { 0.0 };
    }
}
kernel!(factors_at = factors(dropout: &Dropout, first: usize, out: &mut [f32]));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_drops_the_same_share_of_elements() {
        let n = if cfg!(miri) { 100 } else { 100_000 };
        let dropout = Dropout::new(0x1234_5678_9abc_def0, 0.1);
        let mut want = vec![0f32; n];
        for (i, w) in want.iter_mut().enumerate() {
            *w = if hash(dropout.key, i as u32) >= dropout.limit { 1.0 / 0.9 } else { 0.0 };
        }
        for level in Level::all_available() {
            let mut got = vec![f32::NAN; n];
            // SAFETY: available level.
            unsafe { factors_at(level, &dropout, 0, &mut got) };
            assert_eq!(got, want);
            // Any part on its own.
            let mut part = vec![f32::NAN; 37];
            // SAFETY: available level.
            unsafe { factors_at(level, &dropout, 11, &mut part) };
            assert_eq!(part, want[11..48]);
        }
        let share = |f: &[f32]| f.iter().filter(|f| **f == 0.0).count() as f64 / n as f64;
        assert!(cfg!(miri) || (share(&want) - 0.1).abs() < 0.004, "{}", share(&want));
        let mut other = vec![0f32; n];
        Dropout::new(0x1234_5678_9abc_def1, 0.1).factors(0, &mut other);
        let both = want.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count() as f64 / n as f64;
        assert!(cfg!(miri) || (both - 0.01).abs() < 0.002, "{both}");
    }
}
