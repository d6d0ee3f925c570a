//! The Cholesky factor of a symmetric positive matrix, and its inverse.

/// Lower triangles are kept row by row, row i with i + 1 numbers.
pub type Lower = Vec<Vec<f64>>;

/// The lower factor L of A = L Lᵀ, from A's lower triangle. Where A is not positive its pivots are taken for `floor`.
pub fn factor(mut a: Lower, floor: f64) -> Lower {
    for i in 0..a.len() {
        let (done, rest) = a.split_at_mut(i);
        let row = &mut rest[0];
        for j in 0..i {
            row[j] = (row[j] - dot(&row[..j], &done[j][..j])) / done[j][j];
        }
        let pivot = row[i] - dot(&row[..i], &row[..i]);
        row[i] = pivot.max(floor).sqrt();
    }
    a
}

/// The inverse of a lower triangle, a lower triangle too.
pub fn invert(lower: &Lower) -> Lower {
    let mut inverse = Lower::with_capacity(lower.len());
    for (i, row) in lower.iter().enumerate() {
        let mut out = vec![0.0; i + 1];
        for (k, known) in inverse.iter().enumerate() {
            let factor = row[k];
            out.iter_mut().zip(known).for_each(|(o, x)| *o -= factor * x);
        }
        out[i] = 1.0;
        out.iter_mut().for_each(|o| *o /= row[i]);
        inverse.push(out);
    }
    inverse
}

/// The lower triangle of A⁻¹ = L⁻ᵀ L⁻¹, from A's.
pub fn inverse(a: Lower, floor: f64) -> Lower {
    let halves = invert(&factor(a, floor));
    let mut whole: Lower = (0..halves.len()).map(|i| vec![0.0; i + 1]).collect();
    for half in &halves {
        for (i, to) in whole.iter_mut().enumerate().take(half.len()) {
            let factor = half[i];
            to.iter_mut().zip(half).for_each(|(t, x)| *t += factor * x);
        }
    }
    whole
}

/// In eight strands, which become vectors.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0f64; 8];
    for (x, y) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_undoes_the_matrix() {
        let n = 23;
        let at = |i: usize, j: usize| {
            let (i, j) = (i as f64, j as f64);
            (-(i - j).abs() / 5.0).exp() + if i == j { 0.1 } else { 0.0 }
        };
        let inverse = inverse((0..n).map(|i| (0..=i).map(|j| at(i, j)).collect()).collect(), 1e-12);
        let of = |i: usize, j: usize| if i >= j { inverse[i][j] } else { inverse[j][i] };
        for i in 0..n {
            for j in 0..n {
                let found: f64 = (0..n).map(|k| at(i, k) * of(k, j)).sum();
                assert!((found - f64::from(u8::from(i == j))).abs() < 1e-10, "{i} {j} {found}");
            }
        }
    }
}
