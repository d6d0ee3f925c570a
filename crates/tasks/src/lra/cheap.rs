//! For tests: how much of a label a single number gives away.

/// The share of `(value, label)` that the best rule "between these two values, or else not" has right, found on the first
/// half and counted on the second. By chance it is a half, with a standard deviation of `0.5 / sqrt(cases / 2)`.
pub(crate) fn best_rule(cases: &[(f64, bool)]) -> f64 {
    let (known, unknown) = cases.split_at(cases.len() / 2);
    let mut sorted = known.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rule = |inside: bool| {
        // The run of values with the largest sum, one that is as said counting 1, another -1 (Kadane).
        let (mut best, mut from, mut sum) = ((0i64, f64::NAN, f64::NAN), 0, 0);
        for (at, (value, label)) in sorted.iter().enumerate() {
            // A rule cannot tell equal values apart.
            if sum <= 0 && (at == 0 || sorted[at - 1].0 < *value) {
                (from, sum) = (at, 0);
            }
            sum += if *label == inside { 1 } else { -1 };
            if sum > best.0 && sorted.get(at + 1).is_none_or(|next| next.0 > *value) {
                best = (sum, sorted[from].0, *value);
            }
        }
        let right = best.0 + sorted.iter().filter(|(_, label)| *label != inside).count() as i64;
        (right, best.1..=best.2, inside)
    };
    let (_, values, inside) = [rule(true), rule(false)].into_iter().max_by_key(|rule| rule.0).unwrap();
    let right = unknown.iter().filter(|(value, label)| (values.contains(value) == inside) == *label);
    right.count() as f64 / unknown.len().max(1) as f64
}

#[test]
fn the_best_rule_is_found() {
    let mut random = crate::random::Random::new(5);
    let values: Vec<f64> = (0..4000).map(|_| random.below(1000) as f64).collect();
    let within = |low: f64, high: f64| values.iter().map(|v| (*v, (low..high).contains(v))).collect::<Vec<_>>();
    for cases in [within(300.0, 500.0), within(-1.0, 250.0), within(900.0, 2000.0)] {
        let others: Vec<_> = cases.iter().map(|(value, label)| (*value, !label)).collect();
        assert!(best_rule(&cases) > 0.99 && best_rule(&others) > 0.99);
    }
    let nothing: Vec<_> = values.iter().map(|value| (*value, random.below(2) == 1)).collect();
    // Four standard deviations.
    assert!((best_rule(&nothing) - 0.5).abs() < 0.045);
    let few: Vec<_> = nothing.iter().map(|(value, label)| (value % 2.0, *label)).collect();
    assert!((best_rule(&few) - 0.5).abs() < 0.045);
}
