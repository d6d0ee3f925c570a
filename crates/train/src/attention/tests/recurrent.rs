//! Segments with memory, and convolutions: closed forms in f64, and where gradients flow.

use super::super::Input;
use super::{Case, Rows};
use crate::sines::sines;

const WIDTH: usize = 8;
const HEAD: usize = 4;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A map `[outputs, inputs]` of a row.
fn map(weight: &[f64], row: &[f64]) -> Vec<f64> {
    weight.chunks_exact(row.len()).map(|weights| dot(weights, row)).collect()
}

fn row(case: &Case, sequence: usize, token: usize) -> Vec<f64> {
    let from = (sequence * case.rows + token) * WIDTH;
    case.x[from..from + WIDTH].iter().map(|x| f64::from(*x)).collect()
}

/// Values mixed by the softmax of their scores.
fn mixed(seen: &[(f64, Vec<f64>)]) -> Vec<f64> {
    let sum: f64 = seen.iter().map(|(score, _)| score.exp()).sum();
    (0..HEAD).map(|column| seen.iter().map(|(score, value)| score.exp() / sum * value[column]).sum()).collect()
}

/// The Compressive Transformer: own segment, remembered ones, then hidden states that a convolution has made fewer.
#[test]
fn compressive() {
    let (segment, memory, compressed, rate) = (4, 1, 2, 2);
    for (length, lengths) in [(3, vec![3]), (16, vec![16, 16]), (23, vec![23, 9, 14]), (33, vec![31, 33])] {
        for causal in [false, true] {
            let kind = r#"{"kind":"compressive","segment":4,"memory":1,"compressed":2,"rate":2}"#;
            let mut case = Case::new(kind, length, &lengths, causal, 8);
            let biases = [0.3, -0.2, 0.5, 0.1, -0.4, 0.25, 0.0, 0.7];
            case.set("content_bias", &biases);
            case.set("position_bias", &biases.map(|x| 0.5 - x));
            let tensor = |name: &str| case.tensor(name);
            let [query, key, value, position] =
                ["query.weight", "key.weight", "value.weight", "position.weight"].map(tensor);
            let (kernel, content, away) = (tensor("compress.weight"), tensor("content_bias"), tensor("position_bias"));
            let mut out: Rows = vec![0.0; case.groups() * length * HEAD];
            for group in 0..case.groups() {
                let (sequence, head, real) = (group / 2, group % 2, case.real(group));
                let of = |map_of: &[f64], row: &[f64]| map(map_of, row)[head * HEAD..][..HEAD].to_vec();
                let fewer = |first: usize| -> Vec<f64> {
                    let mut sum = vec![0.0; WIDTH];
                    for (place, token) in (first..(first + rate).min(real)).enumerate() {
                        for (input, x) in row(&case, sequence, token).iter().enumerate() {
                            for (column, to) in sum.iter_mut().enumerate() {
                                *to += x * kernel[(place * WIDTH + input) * WIDTH + column];
                            }
                        }
                    }
                    sum
                };
                for i in 0..real {
                    let q = of(&query, &row(&case, sequence, i));
                    let with = |bias: &[f64]| -> Vec<f64> {
                        q.iter().zip(&bias[head * HEAD..]).map(|(q, bias)| q + bias).collect()
                    };
                    let score = |k: &[f64], distance: usize, later: bool| {
                        let distance = if later { -(distance as f64) } else { distance as f64 };
                        let wave: Vec<f64> = sines(distance, WIDTH).into_iter().map(f64::from).collect();
                        (dot(&with(&content), k) + dot(&with(&away), &of(&position, &wave))) / (HEAD as f64).sqrt()
                    };
                    let own = i / segment;
                    let mut seen = vec![];
                    for j in (own.saturating_sub(memory) * segment)..((own + 1) * segment).min(real) {
                        if !causal || j <= i {
                            let x = row(&case, sequence, j);
                            seen.push((score(&of(&key, &x), i.abs_diff(j), j > i), of(&value, &x)));
                        }
                    }
                    let oldest = own.saturating_sub(memory + compressed) * segment;
                    for first in (oldest..own.saturating_sub(memory) * segment).step_by(rate) {
                        let x = fewer(first);
                        seen.push((score(&of(&key, &x), i - (first + rate - 1), false), of(&value, &x)));
                    }
                    out[(group * length + i) * HEAD..][..HEAD].copy_from_slice(&mixed(&seen));
                }
            }
            let apart = case.apart(&case.mixed(), &out);
            assert!(apart < 5e-5, "{lengths:?} causal {causal}: {apart}");
        }
    }
}

/// In one layer nothing but the map stands between a key's weight and the result: what it learns is the derivative, through
/// what is remembered too. What is remembered itself gets no gradient.
#[test]
fn maps_learn_by_what_is_remembered() {
    let kinds = [
        r#"{"kind":"transformer-xl","segment":4,"memory":1}"#,
        r#"{"kind":"compressive","segment":4,"memory":1,"compressed":1,"rate":2}"#,
    ];
    for kind in kinds {
        let mut case = Case::new(kind, 12, &[12], true, 5);
        // The result of the last segment, squared, summed.
        let last = |case: &Case| -> f64 {
            case.mixed().chunks(12 * HEAD).flat_map(|group| &group[8 * HEAD..]).map(|x| x * x).sum()
        };
        let (weights, rows) = case.with(true, |input| {
            let x = input.x.clone().require_grad();
            let mixed = case.kind.attend(&Input { x: x.clone(), ..*input }).unwrap().slice_dim(1, 8..12);
            let mut gradients = (mixed.clone() * mixed).sum().backward();
            let weights = ["key.weight", "value.weight"].map(|name| {
                let value = input.parameters.get(&format!("a.{name}")).unwrap().value.clone();
                value.grad_remove(&mut gradients).unwrap().try_into_vec_as::<f32>().unwrap()
            });
            (weights, super::numbers(x.grad_remove(&mut gradients).unwrap()))
        });
        assert!(rows[..8 * WIDTH].iter().all(|x| *x == 0.0), "{kind}: a gradient flows into what is remembered");
        assert!(rows[8 * WIDTH..].iter().any(|x| x.abs() > 1e-3), "{kind}");
        for (name, found) in ["key.weight", "value.weight"].into_iter().zip(&weights) {
            let values = case.tensor(name);
            let most = found.iter().fold(0f32, |most, x| most.max(x.abs()));
            for at in (0..values.len()).step_by(7) {
                let mut by = |step: f64| {
                    let mut moved = values.clone();
                    moved[at] += step;
                    case.set(name, &moved);
                    last(&case)
                };
                let slope = (by(1e-2) - by(-1e-2)) / 2e-2;
                case.set(name, &values);
                let apart = (slope - f64::from(found[at])).abs();
                assert!(apart < 5e-3 * (1.0 + f64::from(most)), "{kind} {name} {at}: {slope} {}", found[at]);
            }
        }
    }
}

/// Half of the channels attend to all, the other half are convolved with weights that add up to one.
#[test]
fn long_short() {
    for (dynamic, causal) in [(false, false), (false, true), (true, false), (true, true)] {
        let kind = format!(r#"{{"kind":"long-short","kernel":5,"dynamic":{dynamic}}}"#);
        let (length, lengths) = (13, [13, 6]);
        let case = Case::new(&kind, length, &lengths, causal, 8);
        let [q, k, v] = ["query.weight", "key.weight", "value.weight"].map(|name| case.tensor(name));
        let [value, gate, kernel] = ["short.value", "short.gate", "short.kernel"].map(|name| case.tensor(name));
        let mut out: Rows = vec![0.0; case.groups() * length * HEAD];
        for (sequence, real) in lengths.into_iter().enumerate() {
            let half =
                |token: usize, second: bool| row(&case, sequence, token)[usize::from(second) * 4..][..4].to_vec();
            let convolved = |token: usize| -> Vec<f64> {
                let x = half(token, true);
                let gates = map(&gate, &x).into_iter().map(|g| 1.0 / (1.0 + (-g).exp()));
                map(&value, &x).iter().zip(gates).map(|(value, gate)| value * gate).collect()
            };
            for i in 0..real {
                let seen = |j: &usize| !causal || *j <= i;
                let score = |j: usize| dot(&map(&q, &half(i, false)), &map(&k, &half(j, false))) / 2.0;
                let long: Vec<_> = (0..real).filter(seen).map(|j| (score(j), map(&v, &half(j, false)))).collect();
                out[((2 * sequence) * length + i) * HEAD..][..HEAD].copy_from_slice(&mixed(&long));
                let logs = if dynamic { map(&kernel, &half(i, true)) } else { kernel.clone() };
                let sum: f64 = logs.iter().map(|log| log.exp()).sum();
                let before = if causal { 4 } else { 2 };
                for (at, log) in logs.iter().enumerate() {
                    if let Some(j) = (i + at).checked_sub(before).filter(|j| *j < real) {
                        for (column, x) in convolved(j).iter().enumerate() {
                            out[((2 * sequence + 1) * length + i) * HEAD + column] += log.exp() / sum * x;
                        }
                    }
                }
            }
        }
        let apart = case.apart(&case.mixed(), &out);
        assert!(apart < 2e-5, "{kind} causal {causal}: {apart}");
    }
}
