//! Randomised kinds come to full attention as their budget grows: means over fixed seeds, each at least as many deviations
//! from failing as said.

use super::super::Sizes;
use super::{Case, nothing};

/// The mean error over ten seeds beside full attention of the same queries, keys and values.
fn error(kind: &str, length: usize) -> f64 {
    let each = (0..10).map(|seed| {
        let case = Case::new(kind, length, &[length, length - 5], false, seed).scaled(0.4);
        case.error(&case.mixed(), &case.dense(&|_, _| true, &nothing))
    });
    each.sum::<f64>() / 10.0
}

/// The variance of FAVOR+ falls as one over the features: a hundredfold budget has less than a third of the error (a tenth is
/// expected; the deviation of the mean of ten is about a tenth of it).
#[test]
fn performer_converges() {
    let of = |features: usize| error(&format!(r#"{{"kind":"performer","features":{features}}}"#), 40);
    let (few, many) = (of(8), of(800));
    assert!(many < few / 3.0 && many < 0.12, "{few} {many}");
}

/// More landmarks are nearer; as many as tokens are exact (tested elsewhere).
#[test]
fn nystrom_converges() {
    let of = |landmarks: usize| error(&format!(r#"{{"kind":"nystrom","landmarks":{landmarks},"rounds":20}}"#), 40);
    let (few, many) = (of(4), of(20));
    assert!(many < few, "{few} {many}");
}

/// One cluster is full attention, but for the lengths of queries and keys: with unit rows it is exact.
#[test]
fn routing_of_one_cluster_is_full() {
    let case = Case::new(r#"{"kind":"routing","clusters":1,"rounds":1}"#, 14, &[14, 8], false, 3);
    let [q, k, _] = case.projected();
    let width = case.sizes.head_width();
    let norm = |of: &[f64], group: usize, at: usize| -> f64 {
        of[(group * 14 + at) * width..][..width].iter().map(|x| x * x).sum::<f64>().sqrt()
    };
    let scale = (width as f64).sqrt();
    let added = |group: usize, i: usize, j: usize| {
        let row = |of: &[f64], at: usize| of[(group * 14 + at) * width..][..width].to_vec();
        let dot: f64 = row(&q, i).iter().zip(row(&k, j)).map(|(a, b)| a * b).sum();
        scale * dot / norm(&q, group, i) / norm(&k, group, j) - dot / scale
    };
    let apart = case.apart(&case.mixed(), &case.dense(&|_, _| true, &added));
    assert!(apart < 1e-4, "{apart}");
}

/// Hashed attention with shared queries and keys: full attention but for a token itself, when all are in one chunk and
/// enough rounds make every pair meet. The error falls to that of the pairs that never did, which point away from each other
/// and hardly count.
#[test]
fn reformer_converges() {
    let error = |hashes: usize| -> f64 {
        let each = (0..6).map(|seed| {
            let kind = format!(r#"{{"kind":"reformer","buckets":2,"hashes":{hashes},"chunk":64}}"#);
            let case = Case::new(&kind, 24, &[24, 15], false, seed);
            let (q, v) = case.with(false, |input| {
                let of = |name: &str| super::numbers(input.mapped(name).unwrap());
                (of("query.weight"), of("value.weight"))
            });
            let mut out = vec![0.0; v.len()];
            for group in 0..case.groups() {
                let row = |of: &[f64], at: usize| of[(group * 24 + at) * 4..][..4].to_vec();
                for i in 0..case.real(group) {
                    let weight = |j: usize| -> f64 {
                        let (a, b) = (row(&q, i), row(&q, j));
                        let norm = b.iter().map(|x| x * x).sum::<f64>().sqrt();
                        (a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / norm / 2.0).exp()
                    };
                    let others: Vec<usize> = (0..case.real(group)).filter(|j| *j != i).collect();
                    let sum: f64 = others.iter().map(|j| weight(*j)).sum();
                    for j in others {
                        for column in 0..4 {
                            out[(group * 24 + i) * 4 + column] += weight(j) / sum * row(&v, j)[column];
                        }
                    }
                }
            }
            case.error(&case.mixed(), &out)
        });
        each.sum::<f64>() / 6.0
    };
    let (one, some, many) = (error(1), error(8), error(64));
    assert!(some < 0.1 * one && many < 0.01 * one, "{one} {some} {many}");
}

/// Monte-Carlo values are exact where the budget covers all inputs, and unbiased where it does not: the mean over 400 passes is
/// within five deviations of that mean.
#[test]
fn monte_carlo_is_unbiased() {
    let exact = Case::new(r#"{"kind":"monte-carlo","alpha":1e-4}"#, 12, &[12, 7], false, 1);
    let dense = exact.dense(&|_, _| true, &nothing);
    assert!(exact.apart(&exact.mixed(), &dense) < 1e-4);
    let mut sums = vec![0.0; dense.len()];
    let mut squares = vec![0.0; dense.len()];
    let passes = 400;
    let mut case = Case::new(r#"{"kind":"monte-carlo","alpha":2.0}"#, 12, &[12, 7], false, 1);
    for pass in 0..passes {
        case.seed = 1000 + pass;
        for (at, x) in case.mixed().into_iter().enumerate() {
            sums[at] += x;
            squares[at] += x * x;
        }
    }
    let n = passes as f64;
    let means: Vec<f64> = sums.iter().map(|sum| sum / n).collect();
    let mut worst: f64 = 0.0;
    for group in 0..case.groups() {
        for at in 0..case.real(group) * 4 {
            let at = group * 48 + at;
            let deviation = ((squares[at] / n - means[at] * means[at]).max(0.0) / n).sqrt();
            worst = worst.max((means[at] - dense[at]).abs() / (deviation + 1e-4));
        }
    }
    assert!(worst < 5.0, "{worst}");
    assert!(case.apart(&case.mixed(), &dense) > 1e-3, "nothing was drawn");
}

/// Half of alpha is four times the draws, and half of the error, until budgets cover all inputs: the mean of twenty passes over
/// some 2600 numbers each falls by a tenth at least at every step, and by half in two.
#[test]
fn monte_carlo_converges() {
    let sizes = Sizes { length: 24, width: 64, attention_width: 64, heads: 2 };
    let error = |alpha: f64| {
        let kind = serde_json::from_str(&format!(r#"{{"kind":"monte-carlo","alpha":{alpha}}}"#)).unwrap();
        let mut case = Case::of(kind, sizes, &[24, 17], false, 1).scaled(0.3);
        let dense = case.dense(&|_, _| true, &nothing);
        let each = (0..20).map(|pass| {
            case.seed = 500 + pass;
            case.error(&case.mixed_from(usize::MAX), &dense)
        });
        each.sum::<f64>() / 20.0
    };
    let errors = [1.6, 0.8, 0.4, 0.2].map(error);
    assert!(errors.windows(2).all(|two| two[1] < 0.9 * two[0]), "{errors:?}");
    assert!(errors[2] < 0.5 * errors[0] && errors[0] > 0.01, "{errors:?}");
}

/// Graded values with a budget for everything are those of the two maps one after the other.
#[test]
fn graded_is_exact_with_a_full_budget() {
    let of = |alpha: f64| Case::new(&format!(r#"{{"kind":"graded","alpha":{alpha}}}"#), 10, &[10, 6], false, 5);
    let case = of(1e-4);
    let (basis, map) = (case.tensor("basis"), case.tensor("value.weight"));
    // value = x Uᵀ Cᵀ: dense attention with those values.
    let x = case.with(false, |input| input.x.clone().try_into_vec_as::<f32>().unwrap());
    let mut values = vec![0.0; case.groups() * 10 * 4];
    for group in 0..case.groups() {
        for at in 0..10 {
            let row = &x[((group / 2) * 10 + at) * 8..][..8];
            let inner: Vec<f64> = (0..8).map(|d| (0..8).map(|i| basis[d * 8 + i] * f64::from(row[i])).sum()).collect();
            for column in 0..4 {
                let output = (group % 2) * 4 + column;
                values[(group * 10 + at) * 4 + column] = (0..8).map(|d| map[output * 8 + d] * inner[d]).sum();
            }
        }
    }
    let [q, k, _] = case.projected();
    let mut out = vec![0.0; values.len()];
    for group in 0..case.groups() {
        let row = |of: &[f64], at: usize| of[(group * 10 + at) * 4..][..4].to_vec();
        for i in 0..case.real(group) {
            let weight = |j: usize| (row(&q, i).iter().zip(row(&k, j)).map(|(a, b)| a * b).sum::<f64>() / 2.0).exp();
            let sum: f64 = (0..case.real(group)).map(weight).sum();
            for j in 0..case.real(group) {
                for column in 0..4 {
                    out[(group * 10 + i) * 4 + column] += weight(j) / sum * row(&values, j)[column];
                }
            }
        }
    }
    assert!(case.apart(&case.mixed(), &out) < 1e-4);
    let errors = [0.5, 3.0, 20.0].map(|alpha| {
        let case = of(alpha);
        case.error(&case.mixed(), &out)
    });
    assert!(errors[0] <= errors[1] && errors[1] < errors[2], "{errors:?}");
}
