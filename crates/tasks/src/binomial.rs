//! Exact bounds of a probability from counted events (Clopper and Pearson, "The use of confidence or fiducial limits
//! illustrated in the case of the binomial", Biometrika 1934).

/// `P(X <= k)` for X binomial with `n` draws of probability `p`.
pub fn at_most(k: usize, n: usize, p: f64) -> f64 {
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let odds = p.ln() - (-p).ln_1p();
    let mut log_term = n as f64 * (-p).ln_1p(); // ln P(X = 0)
    let mut sum = log_term.exp();
    for i in 0..k {
        log_term += ((n - i) as f64).ln() - ((i + 1) as f64).ln() + odds;
        sum += log_term.exp();
    }
    sum.min(1.0)
}

/// The largest probability that `k` events in `n` draws do not contradict: one-sided, with this confidence.
pub fn upper(k: usize, n: usize, confidence: f64) -> f64 {
    if k >= n { 1.0 } else { solve(|p| at_most(k, n, p) > 1.0 - confidence) }
}

/// The smallest probability that `k` events in `n` draws do not contradict: one-sided, with this confidence.
pub fn lower(k: usize, n: usize, confidence: f64) -> f64 {
    if k == 0 { 0.0 } else { solve(|p| at_most(k - 1, n, p) > confidence) }
}

/// How many events in `n` draws still prove, with this confidence, a probability of at most `p`; `None` if not even
/// their absence does.
pub fn allowed(n: usize, p: f64, confidence: f64) -> Option<usize> {
    let proves = |k: usize| k < n && at_most(k, n, p) <= 1.0 - confidence;
    if !proves(0) {
        return None;
    }
    let (mut yes, mut no) = (0, n);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if proves(middle) { yes = middle } else { no = middle }
    }
    Some(yes)
}

/// Where a condition that holds for small probabilities stops to hold; never below it.
fn solve(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if holds(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy.stats.binom.cdf and scipy.stats.beta.ppf give these.
    #[test]
    fn as_published() {
        assert!((at_most(0, 299, 0.01) - 0.99f64.powi(299)).abs() < 1e-12);
        assert!((at_most(5, 10, 0.5) - 0.623046875).abs() < 1e-12);
        // The rule of three: 1 - 0.05^(1/n).
        assert!((upper(0, 100, 0.95) - (1.0 - 0.05f64.powf(0.01))).abs() < 1e-12);
        // Clopper-Pearson, 10 of 100, two-sided 95%: 0.0490 to 0.1762.
        assert!((lower(10, 100, 0.975) - 0.04900469).abs() < 1e-7);
        assert!((upper(10, 100, 0.975) - 0.17622260).abs() < 1e-7);
        assert_eq!((lower(0, 9, 0.9), upper(9, 9, 0.9)), (0.0, 1.0));
    }

    #[test]
    fn the_first_provable_number_of_draws() {
        // 0.99^298 = 0.0500 still exceeds 5%.
        assert_eq!(allowed(298, 0.01, 0.95), None);
        assert_eq!(allowed(299, 0.01, 0.95), Some(0));
        for n in [500, 4000, 67_349] {
            let k = allowed(n, 0.01, 0.95).unwrap();
            assert!(upper(k, n, 0.95) <= 0.01 + 1e-12 && upper(k + 1, n, 0.95) > 0.01, "{n}: {k}");
        }
        assert_eq!(allowed(0, 0.5, 0.9), None);
    }
}
