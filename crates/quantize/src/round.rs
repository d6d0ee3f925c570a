//! Rounding a matrix to integers with a scale per row.

use sparing_model::Integers;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The smallest scale, as the engine has it: a row of zeros must not divide by zero.
const LEAST: f32 = 1e-30;
/// Shares of a row's largest weight that are tried as the largest that is not cut off.
const TRIED: usize = 40;
/// The smallest share tried.
const SMALLEST: f32 = 0.2;
/// Rows that a thread takes at a time.
const ROWS: usize = 16;

/// How scales are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScaleChoice {
    /// The row's largest weight becomes the largest integer: nothing is cut off.
    Largest,
    /// The one with the least squared error: large weights are cut off where that helps all others.
    #[default]
    Searched,
    /// The one that is best for a bell curve as wide as the row, if that is smaller than with [`ScaleChoice::Largest`]. Less
    /// exact than a search, but two sums: for training, which chooses anew at every update.
    Spread,
}

/// The best step for numbers that are normally distributed with deviation 1, by bits (Max 1960, "Quantizing for minimum
/// distortion"). From 7 bits on next to nothing lies beyond the largest integer anyway.
pub fn spread_step(bits: u32) -> Option<f32> {
    const STEPS: [f32; 5] = [1.224, 0.651, 0.353, 0.190, 0.104];
    STEPS.get(bits.checked_sub(2)? as usize).copied()
}

/// To the nearest integer, ties to even, without a branch or call: 1.5 * 2^23 has no bits after the point.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT) - SHIFT
}

/// The integer for `x` scales. Written so that it becomes two vector instructions: `f32::clamp` minds NaN.
#[inline(always)]
pub(crate) fn integer(x: f32, most: f32) -> f32 {
    let x = if x < most { x } else { most };
    nearest(if x > -most { x } else { -most })
}

/// Rounds a row of weights, `w ≈ scale * q` with q of this many bits, and returns the scale. `importance` is how much a
/// squared error of each weight matters (the mean square of what it is multiplied with).
pub fn round_row(row: &[f32], importance: &[f32], bits: u32, choice: ScaleChoice, out: &mut [i8]) -> f32 {
    let most = ((1u32 << (bits - 1)) - 1) as f32;
    let largest = row.iter().fold(0f32, |m, w| m.max(w.abs()));
    let mut best = (largest / most).max(LEAST);
    if choice == ScaleChoice::Spread
        && let Some(step) = spread_step(bits)
    {
        let square = row.iter().map(|w| w * w).sum::<f32>() / row.len() as f32;
        best = best.min(step * square.sqrt()).max(LEAST);
    }
    if choice == ScaleChoice::Searched && largest > 0.0 {
        let mut least = error(row, importance, best, most);
        for i in 0..TRIED + 2 {
            let scale = match i {
                ..TRIED => (SMALLEST + (1.0 - SMALLEST) * i as f32 / TRIED as f32) * largest / most,
                // For given integers the best scale is known: that of the line which fits the weights best.
                _ => fit(row, importance, best, most),
            };
            let found = error(row, importance, scale, most);
            if scale > LEAST && found < least {
                (best, least) = (scale, found);
            }
        }
    }
    let inverse = 1.0 / best;
    for (q, w) in out.iter_mut().zip(row) {
        *q = integer(w * inverse, most) as i8;
    }
    best
}

/// Sum of importance x squared error.
fn error(row: &[f32], importance: &[f32], scale: f32, most: f32) -> f32 {
    let inverse = 1.0 / scale;
    sum(row, importance, |w, a| {
        let d = w - integer(w * inverse, most) * scale;
        a * d * d
    })
}

/// The scale that fits the integers at another scale best.
fn fit(row: &[f32], importance: &[f32], scale: f32, most: f32) -> f32 {
    let inverse = 1.0 / scale;
    let q = |w: f32| integer(w * inverse, most);
    sum(row, importance, |w, a| a * w * q(w)) / sum(row, importance, |w, a| a * q(w) * q(w))
}

/// Sums in eight strands, which become vectors: a single sum must be added in order.
#[inline(always)]
fn sum(row: &[f32], importance: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let ((row, row_rest), (weight, weight_rest)) = (row.as_chunks::<8>(), importance.as_chunks::<8>());
    let mut sums = [0f32; 8];
    for (w, a) in row.iter().zip(weight) {
        for i in 0..8 {
            sums[i] += term(w[i], a[i]);
        }
    }
    sums.iter().sum::<f32>() + row_rest.iter().zip(weight_rest).map(|(w, a)| term(*w, *a)).sum::<f32>()
}

/// Rounds a matrix `[outputs, inputs]` row by row, on all cores. `importance` gives each output's (as many numbers as
/// inputs), or `None` if all weights matter alike.
pub fn round_matrix<'a>(
    values: &[f32],
    inputs: usize,
    importance: &(dyn Fn(usize) -> Option<&'a [f32]> + Sync),
    bits: u32,
    choice: ScaleChoice,
) -> Integers {
    let mut found = Integers { values: vec![0; values.len()], scales: vec![0.0; values.len() / inputs] };
    let alike = vec![1f32; inputs];
    each_row(values, inputs, &mut found, &|output, row, out, scale| {
        *scale = round_row(row, importance(output).unwrap_or(&alike), bits, choice, out);
    });
    found
}

/// What is done to a row: its number, the weights, the integers, the scale.
pub(crate) type RowWork<'a> = dyn Fn(usize, &[f32], &mut [i8], &mut f32) + Sync + 'a;

/// Does something to every row of a matrix, on all cores.
pub(crate) fn each_row(values: &[f32], inputs: usize, found: &mut Integers, work: &RowWork<'_>) {
    let tasks: Vec<_> = values
        .chunks(ROWS * inputs)
        .zip(found.values.chunks_mut(ROWS * inputs))
        .zip(found.scales.chunks_mut(ROWS))
        .map(|task| Mutex::new(Some(task)))
        .collect();
    let next = AtomicUsize::new(0);
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            let Some(((rows, out), scales)) = task.lock().unwrap_or_else(|e| e.into_inner()).take() else { continue };
            let rows = rows.chunks_exact(inputs).zip(out.chunks_exact_mut(inputs)).zip(scales);
            for (i, ((row, out), scale)) in rows.enumerate() {
                work(number * ROWS + i, row, out, scale);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(tasks.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn squared(row: &[f32], importance: &[f32], scale: f32, q: &[i8]) -> f64 {
        let term = |((w, a), q): ((&f32, &f32), &i8)| {
            f64::from(*a) * (f64::from(*w) - f64::from(scale) * f64::from(*q)).powi(2)
        };
        row.iter().zip(importance).zip(q).map(term).sum()
    }

    proptest! {
        #[test]
        fn searched_scales_are_never_worse(
            row in prop::collection::vec(-1f32..1.0, 1..70),
            seed in 0usize..100,
            bits in 2u32..=8,
            outlier in 0f32..8.0,
        ) {
            let mut row = row;
            row[0] = outlier;
            let importance: Vec<f32> = (0..row.len()).map(|i| ((i * 7 + seed) % 11) as f32 + 0.1).collect();
            let (mut plain, mut searched) = (vec![0; row.len()], vec![0; row.len()]);
            let a = round_row(&row, &importance, bits, ScaleChoice::Largest, &mut plain);
            let b = round_row(&row, &importance, bits, ScaleChoice::Searched, &mut searched);
            let (a, b) = (squared(&row, &importance, a, &plain), squared(&row, &importance, b, &searched));
            prop_assert!(b <= a * 1.0001 + 1e-12, "{} > {}", b, a);
            let most = (1i16 << (bits - 1)) - 1;
            prop_assert!(searched.iter().chain(&plain).all(|q| i16::from(*q).abs() <= most));
        }
    }

    #[test]
    fn an_outlier_is_cut_off_only_where_it_does_not_matter() {
        let mut row: Vec<f32> = (0..64).map(|i| (i as f32 - 32.0) / 320.0).collect();
        row[7] = 0.6;
        let mut q = vec![0; 64];
        let mut importance = vec![1.0; 64];
        importance[7] = 0.0;
        let cut = round_row(&row, &importance, 4, ScaleChoice::Searched, &mut q);
        importance[7] = 1e4;
        let kept = round_row(&row, &importance, 4, ScaleChoice::Searched, &mut q);
        assert!(cut < 0.05 && kept * 7.0 > 0.55, "{cut} {kept}");
    }

    #[test]
    fn zeros_and_exact_multiples_stay_what_they_are() {
        let mut q = [1; 3];
        assert!(round_row(&[0.0; 3], &[1.0; 3], 4, ScaleChoice::Searched, &mut q) > 0.0);
        assert_eq!(q, [0; 3]);
        let scale = round_row(&[0.5, -3.5, 1.0], &[1.0; 3], 4, ScaleChoice::Searched, &mut q);
        assert_eq!((scale, q), (0.5, [1, -7, 2]));
        // Many rows on many threads are the rows one by one.
        let values: Vec<f32> = (0..300 * 5).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
        let all = round_matrix(&values, 5, &|_| None, 5, ScaleChoice::Searched);
        for (i, row) in values.chunks(5).enumerate() {
            let mut q = [0; 5];
            assert_eq!(round_row(row, &[1.0; 5], 5, ScaleChoice::Searched, &mut q), all.scales[i]);
            assert_eq!(q, all.values[i * 5..(i + 1) * 5]);
        }
    }

    #[test]
    fn a_bell_curve_is_cut_off_where_that_is_best() {
        // Sums of twelve even numbers are normal enough.
        let mut state = 1u32;
        let mut even = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let row: Vec<f32> = (0..4096).map(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0).collect();
        let (importance, mut q) = (vec![1.0; row.len()], vec![0; row.len()]);
        for bits in 2..7 {
            let most = ((1u32 << (bits - 1)) - 1) as f32;
            let [largest, searched, spread] = [ScaleChoice::Largest, ScaleChoice::Searched, ScaleChoice::Spread]
                .map(|choice| round_row(&row, &importance, bits, choice, &mut q))
                .map(|scale| error(&row, &importance, scale, most));
            assert!(spread < 1.06 * searched && spread <= largest, "{bits} bits: {largest} {searched} {spread}");
        }
        // One number alone, and nothing: never beyond the largest, never zero.
        assert_eq!(round_row(&[3.5], &[1.0], 4, ScaleChoice::Spread, &mut q), 0.5);
        assert!(round_row(&[0.0; 3], &[1.0; 3], 3, ScaleChoice::Spread, &mut q) > 0.0);
    }
}
