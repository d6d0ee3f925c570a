//! Any number of labels per example (scikit-learn's multilabel indicator form, as lists of label numbers).

use super::f1;

/// F1 over all label decisions together (`average="micro"`).
pub fn labels_f1_micro(gold: &[&[usize]], predicted: &[&[usize]]) -> f64 {
    if gold.is_empty() {
        return f64::NAN;
    }
    let counts = counts(gold, predicted);
    let sum = |i: usize| counts.iter().map(|c| c[i]).sum();
    f1(sum(0), sum(1), sum(2))
}

/// Mean of the F1 of all `labels` labels, those that never occur counting 0 (`average="macro"`).
pub fn labels_f1_macro(gold: &[&[usize]], predicted: &[&[usize]], labels: usize) -> f64 {
    if gold.is_empty() {
        return f64::NAN;
    }
    let counts = counts(gold, predicted);
    let sum: f64 = counts.iter().map(|c| f1(c[0], c[1], c[2])).sum();
    sum / labels as f64
}

/// Share of examples whose set of labels is right exactly (`accuracy_score` on indicators).
pub fn subset_accuracy(gold: &[&[usize]], predicted: &[&[usize]]) -> f64 {
    let same =
        |g: &[usize], p: &[usize]| g.iter().all(|label| p.contains(label)) && p.iter().all(|label| g.contains(label));
    let right = gold.iter().zip(predicted).filter(|(g, p)| same(g, p)).count();
    right as f64 / gold.len() as f64
}

/// Hits, false positives and false negatives of every label.
fn counts(gold: &[&[usize]], predicted: &[&[usize]]) -> Vec<[usize; 3]> {
    let all = gold.iter().chain(predicted).flat_map(|list| list.iter());
    let mut counts = vec![[0; 3]; all.max().map_or(0, |largest| largest + 1)];
    for (g, p) in gold.iter().zip(predicted) {
        for label in p.iter() {
            counts[*label][usize::from(!g.contains(label))] += 1;
        }
        for label in g.iter() {
            counts[*label][2] += usize::from(!p.contains(label));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    // Values computed with scikit-learn 1.9.1 on the indicator matrices of these lists.
    #[test]
    fn as_sklearn() {
        let gold: [&[usize]; 4] = [&[0, 2], &[1], &[0, 1], &[]];
        let predicted: [&[usize]; 4] = [&[0], &[1, 2], &[0, 1], &[]];
        assert!((labels_f1_micro(&gold, &predicted) - 0.8).abs() < 1e-12);
        assert!((labels_f1_macro(&gold, &predicted, 3) - 0.6666666666666666).abs() < 1e-12);
        assert!((subset_accuracy(&gold, &predicted) - 0.5).abs() < 1e-12);
        let few: [&[usize]; 2] = [&[0], &[]];
        assert!((labels_f1_macro(&few, &few, 3) - 0.3333333333333333).abs() < 1e-12);
    }

    proptest::proptest! {
        #[test]
        fn bounds(gold in proptest::collection::vec(proptest::collection::btree_set(0..5usize, 0..5), 1..20), turn in 0..20usize) {
            let gold: Vec<Vec<usize>> = gold.into_iter().map(|s| s.into_iter().collect()).collect();
            let mut other = gold.clone();
            other.rotate_left(turn % gold.len());
            let g: Vec<&[usize]> = gold.iter().map(Vec::as_slice).collect();
            let o: Vec<&[usize]> = other.iter().map(Vec::as_slice).collect();
            let micro = labels_f1_micro(&g, &o);
            proptest::prop_assert!((0.0..=1.0).contains(&micro));
            proptest::prop_assert_eq!(subset_accuracy(&g, &g), 1.0);
            proptest::prop_assert!((micro - labels_f1_micro(&o, &g)).abs() < 1e-12);
        }
    }
}
