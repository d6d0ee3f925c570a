//! Real numbers: correlation and squared error.

/// Pearson's correlation; NaN if either side is constant, as SciPy.
pub fn pearson(gold: &[f64], predicted: &[f64]) -> f64 {
    let n = gold.len() as f64;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / n;
    let (gold_mean, predicted_mean) = (mean(gold), mean(predicted));
    let (mut covariance, mut gold_square, mut predicted_square) = (0.0, 0.0, 0.0);
    for (g, p) in gold.iter().zip(predicted) {
        let (g, p) = (g - gold_mean, p - predicted_mean);
        covariance += g * p;
        gold_square += g * g;
        predicted_square += p * p;
    }
    if gold_square == 0.0 || predicted_square == 0.0 {
        return f64::NAN;
    }
    (covariance / (gold_square.sqrt() * predicted_square.sqrt())).clamp(-1.0, 1.0)
}

/// Spearman's correlation: Pearson's of the ranks, ties sharing their average rank.
pub fn spearman(gold: &[f64], predicted: &[f64]) -> f64 {
    pearson(&ranks(gold), &ranks(predicted))
}

/// Ranks from 1; equal numbers share the average of their ranks.
pub fn ranks(x: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_unstable_by(|&a, &b| x[a].total_cmp(&x[b]));
    let mut ranks = vec![0.0; x.len()];
    let mut from = 0;
    while from < order.len() {
        let mut to = from + 1;
        while to < order.len() && x[order[to]] == x[order[from]] {
            to += 1;
        }
        for &i in &order[from..to] {
            ranks[i] = (from + to + 1) as f64 / 2.0;
        }
        from = to;
    }
    ranks
}

/// Mean of the squared differences.
pub fn mean_squared_error(gold: &[f64], predicted: &[f64]) -> f64 {
    let sum: f64 = gold.iter().zip(predicted).map(|(g, p)| (g - p) * (g - p)).sum();
    sum / gold.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Values computed with SciPy 1.17.1 and scikit-learn 1.9.1.
    #[test]
    fn as_scipy() {
        let x = [2.5, 0.5, 2.0, 8.0, 2.0, -1.0];
        let y = [3.0, -0.5, 2.0, 7.0, 2.5, 2.0];
        assert!((pearson(&x, &y) - 0.8806177287825903).abs() < 1e-12);
        assert!((spearman(&x, &y) - 0.8676470588235294).abs() < 1e-12);
        assert!((mean_squared_error(&x, &y) - 1.9166666666666667).abs() < 1e-12);
        assert_eq!(ranks(&x), [5.0, 2.0, 3.5, 6.0, 3.5, 1.0]);
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert!(pearson(&[], &[]).is_nan());
    }

    proptest! {
        #[test]
        fn pearson_ignores_scale_and_shift(
            pairs in proptest::collection::vec((-5.0..5.0f64, -5.0..5.0f64), 3..40), scale in 0.1..9.0f64, shift in -9.0..9.0f64,
        ) {
            let (x, y): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let moved: Vec<f64> = y.iter().map(|v| v * scale + shift).collect();
            prop_assert!((pearson(&x, &y) - pearson(&x, &moved)).abs() < 1e-9);
            prop_assert!((pearson(&x, &y) - pearson(&y, &x)).abs() < 1e-12);
        }

        #[test]
        fn spearman_ignores_monotone_maps(pairs in proptest::collection::vec((-5..5i32, -5..5i32), 3..40)) {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().map(|(a, b)| (a as f64, b as f64)).unzip();
            let curved: Vec<f64> = y.iter().map(|v| v.powi(3) + v).collect();
            let (a, b) = (spearman(&x, &y), spearman(&x, &curved));
            prop_assert!(a.is_nan() && b.is_nan() || (a - b).abs() < 1e-12);
            let n = x.len() as f64;
            prop_assert!((ranks(&x).iter().sum::<f64>() - n * (n + 1.0) / 2.0).abs() < 1e-9);
        }
    }
}
