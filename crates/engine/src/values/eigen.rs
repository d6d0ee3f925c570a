//! Eigenvectors of a small symmetric matrix by Jacobi's rotations: slow for large ones, exact and simple for a head's.

/// Eigenvalues, largest first, and the eigenvectors as columns of a row-major matrix. `a` is `[n, n]`, symmetric.
pub(super) fn eigen(a: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut a = a.to_vec();
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    let size: f64 = a.iter().map(|x| x * x).sum();
    for _ in 0..60 {
        let off: f64 = (0..n * n).filter(|i| i / n != i % n).map(|i| a[i] * a[i]).sum();
        if off <= 1e-24 * size {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p * n + q] != 0.0 {
                    rotate(&mut a, &mut v, n, p, q);
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| a[j * n + j].total_cmp(&a[i * n + i]));
    let values = order.iter().map(|i| a[i * n + i]).collect();
    let mut vectors = vec![0.0; n * n];
    for (to, from) in order.iter().enumerate() {
        // The largest element is positive: the sign, which is free, is the same on every machine.
        let column = (0..n).map(|row| v[row * n + from]);
        let largest = column.clone().fold(0f64, |m, x| if x.abs() > m.abs() + 1e-12 { x } else { m });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        column.enumerate().for_each(|(row, x)| vectors[row * n + to] = sign * x);
    }
    (values, vectors)
}

/// Turns the plane of p and q so that `a[p, q]` vanishes.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let t = if theta == 0.0 { 1.0 } else { t };
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    let turn = |m: &mut [f64], i: usize, j: usize| {
        let (x, y) = (m[i], m[j]);
        (m[i], m[j]) = (c * x - s * y, s * x + c * y);
    };
    for k in 0..n {
        turn(a, k * n + p, k * n + q);
    }
    for k in 0..n {
        turn(a, p * n + k, q * n + k);
    }
    for k in 0..n {
        turn(v, k * n + p, k * n + q);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_rebuilt_from_its_eigenvectors() {
        for n in [1usize, 2, 5, 32] {
            // A covariance: B Bᵀ, of lower rank for the largest.
            let rank = if n == 32 { 20 } else { n };
            let b: Vec<f64> = (0..n * rank).map(|i| ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0).collect();
            let at = |i: usize, j: usize| (0..rank).map(|k| b[i * rank + k] * b[j * rank + k]).sum::<f64>();
            let a: Vec<f64> = (0..n * n).map(|i| at(i / n, i % n)).collect();
            let (values, v) = eigen(&a, n);
            assert!(values.windows(2).all(|w| w[0] >= w[1]) && values.iter().all(|x| *x > -1e-9));
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 = (0..n).map(|k| v[i * n + k] * values[k] * v[j * n + k]).sum();
                    assert!((sum - a[i * n + j]).abs() < 1e-8, "{n}: {sum} for {}", a[i * n + j]);
                    let dot: f64 = (0..n).map(|k| v[k * n + i] * v[k * n + j]).sum();
                    assert!((dot - f64::from(i == j)).abs() < 1e-9, "orthogonal");
                }
            }
        }
    }
}
