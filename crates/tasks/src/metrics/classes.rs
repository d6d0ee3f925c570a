//! One class per example.

use super::f1;

/// Share of predictions that are right.
pub fn accuracy(gold: &[usize], predicted: &[usize]) -> f64 {
    let right = gold.iter().zip(predicted).filter(|(g, p)| g == p).count();
    right as f64 / gold.len() as f64
}

/// F1 of one class against the rest (`f1_score(..., average="binary", pos_label=positive)`).
pub fn f1_binary(gold: &[usize], predicted: &[usize], positive: usize) -> f64 {
    if gold.is_empty() {
        return f64::NAN;
    }
    let (mut hits, mut extra, mut missed) = (0, 0, 0);
    for (&g, &p) in gold.iter().zip(predicted) {
        match (g == positive, p == positive) {
            (true, true) => hits += 1,
            (false, true) => extra += 1,
            (true, false) => missed += 1,
            (false, false) => {}
        }
    }
    f1(hits, extra, missed)
}

/// Mean of the F1 of every class that occurs in either (`average="macro"`).
pub fn f1_macro(gold: &[usize], predicted: &[usize]) -> f64 {
    let counts = Counts::new(gold, predicted);
    let mut sum = 0.0;
    let mut classes = 0;
    for class in 0..counts.gold.len() {
        let (g, p, hits) = (counts.gold[class], counts.predicted[class], counts.hits[class]);
        if g + p > 0 {
            sum += f1(hits, p - hits, g - hits);
            classes += 1;
        }
    }
    sum / classes as f64
}

/// F1 over all decisions together (`average="micro"`): with one class per example it is the accuracy.
pub fn f1_micro(gold: &[usize], predicted: &[usize]) -> f64 {
    accuracy(gold, predicted)
}

/// Matthews correlation, for any number of classes (Gorodkin, "Comparing two K-category assignments", 2004);
/// 0 where either side has one class only, as scikit-learn.
pub fn matthews(gold: &[usize], predicted: &[usize]) -> f64 {
    if gold.is_empty() {
        return f64::NAN;
    }
    let counts = Counts::new(gold, predicted);
    let n = gold.len() as f64;
    let right: usize = counts.hits.iter().sum();
    let dot = |a: &[usize], b: &[usize]| -> f64 { a.iter().zip(b).map(|(&a, &b)| a as f64 * b as f64).sum() };
    let covariance = right as f64 * n - dot(&counts.gold, &counts.predicted);
    let gold_variance = n * n - dot(&counts.gold, &counts.gold);
    let predicted_variance = n * n - dot(&counts.predicted, &counts.predicted);
    if gold_variance == 0.0 || predicted_variance == 0.0 {
        return 0.0;
    }
    covariance / (gold_variance * predicted_variance).sqrt()
}

/// Per class: how often it is right, predicted, and both. A class number is an index into a model's
/// labels, so a table by class is small.
struct Counts {
    gold: Vec<usize>,
    predicted: Vec<usize>,
    hits: Vec<usize>,
}

impl Counts {
    fn new(gold: &[usize], predicted: &[usize]) -> Self {
        let classes = gold.iter().chain(predicted).max().map_or(0, |largest| largest + 1);
        let mut counts = Counts { gold: vec![0; classes], predicted: vec![0; classes], hits: vec![0; classes] };
        for (&g, &p) in gold.iter().zip(predicted) {
            counts.gold[g] += 1;
            counts.predicted[p] += 1;
            counts.hits[g] += usize::from(g == p);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    // Values computed with scikit-learn 1.9.1.
    #[test]
    fn three_classes_as_sklearn() {
        let gold = [0, 1, 2, 2, 1, 0, 1, 2, 0, 1];
        let predicted = [0, 2, 2, 2, 1, 0, 0, 1, 0, 1];
        near(accuracy(&gold, &predicted), 0.7);
        near(f1_macro(&gold, &predicted), 0.6984126984126983);
        near(f1_micro(&gold, &predicted), 0.7);
        near(matthews(&gold, &predicted), 0.5606060606060606);
    }

    #[test]
    fn two_classes_as_sklearn() {
        let gold = [0, 1, 1, 0, 1, 1, 0, 1, 0, 1];
        let predicted = [0, 1, 0, 0, 1, 1, 1, 1, 0, 0];
        near(f1_binary(&gold, &predicted, 1), 0.7272727272727273);
        near(f1_binary(&gold, &predicted, 0), 0.6666666666666666);
        near(matthews(&gold, &predicted), 0.408248290463863);
    }

    #[test]
    fn edge_cases_as_sklearn() {
        near(f1_macro(&[0, 0, 1], &[0, 2, 1]), 0.5555555555555555);
        near(matthews(&[1, 1, 1], &[1, 1, 1]), 0.0);
        near(matthews(&[0, 1, 1], &[1, 1, 1]), 0.0);
        near(f1_binary(&[0, 0], &[0, 0], 1), 0.0);
        assert!(accuracy(&[], &[]).is_nan());
        assert!(matthews(&[], &[]).is_nan());
        assert!(f1_macro(&[], &[]).is_nan());
    }

    fn pairs() -> impl Strategy<Value = Vec<(usize, usize)>> {
        proptest::collection::vec((0..4usize, 0..4usize), 1..60)
    }

    proptest! {
        #[test]
        fn order_does_not_matter(pairs in pairs(), turn: usize) {
            let (gold, predicted): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let mut turned = pairs.clone();
            turned.rotate_left(turn % pairs.len());
            let (g2, p2): (Vec<_>, Vec<_>) = turned.into_iter().unzip();
            near(accuracy(&gold, &predicted), accuracy(&g2, &p2));
            near(f1_macro(&gold, &predicted), f1_macro(&g2, &p2));
            near(matthews(&gold, &predicted), matthews(&g2, &p2));
        }

        #[test]
        fn names_of_classes_do_not_matter(pairs in pairs()) {
            let (gold, predicted): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let (g2, p2): (Vec<_>, Vec<_>) = pairs.iter().map(|(g, p)| (7 - g, 7 - p)).unzip();
            near(f1_macro(&gold, &predicted), f1_macro(&g2, &p2));
            near(matthews(&gold, &predicted), matthews(&g2, &p2));
            // Symmetric too: which side is right does not matter to either.
            near(f1_macro(&gold, &predicted), f1_macro(&predicted, &gold));
            near(matthews(&gold, &predicted), matthews(&predicted, &gold));
        }

        #[test]
        fn bounds(pairs in pairs()) {
            let (gold, predicted): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            prop_assert!((0.0..=1.0).contains(&f1_macro(&gold, &predicted)));
            prop_assert!((-1.0 - 1e-12..=1.0 + 1e-12).contains(&matthews(&gold, &predicted)));
            near(accuracy(&gold, &gold), 1.0);
            near(f1_macro(&gold, &gold), 1.0);
        }
    }
}
