//! What is hashed, clustered or sorted, pair by pair in f64: the same choices made slowly.

use super::super::fresh::orthogonal;
use super::{Case, Rows};
use crate::random::Random;

const HEAD: usize = 4;

/// Queries, keys and values of a case, row by row.
struct Host {
    case: Case,
    q: Rows,
    k: Rows,
    v: Rows,
}

impl Host {
    fn new(kind: &str, length: usize, lengths: &[usize], causal: bool) -> Host {
        let case = Case::new(kind, length, lengths, causal, 21);
        let of = |name: &str| case.with(false, |input| super::numbers(input.mapped(name).unwrap()));
        let q = of("query.weight");
        let k = if kind.contains("reformer") { q.clone() } else { of("key.weight") };
        let v = of("value.weight");
        Host { case, q, k, v }
    }

    fn row<'a>(&self, of: &'a Rows, group: usize, at: usize) -> &'a [f64] {
        &of[(group * self.case.rows + at) * HEAD..][..HEAD]
    }

    /// Compares what `of(group, query)` says with what the mechanism does.
    fn same(&self, of: impl Fn(usize, usize) -> Vec<f64>) {
        let mut out = vec![0.0; self.v.len()];
        for group in 0..self.case.groups() {
            for i in 0..self.case.real(group) {
                out[(group * self.case.rows + i) * HEAD..][..HEAD].copy_from_slice(&of(group, i));
            }
        }
        let apart = self.case.apart(&self.case.mixed(), &out);
        assert!(apart < 5e-5, "{:?} causal {}: {apart}", self.case.kind, self.case.causal);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn unit(x: &[f64]) -> Vec<f64> {
    let length = dot(x, x).sqrt();
    x.iter().map(|x| x / length).collect()
}

/// Values mixed by the softmax of their scores.
fn mixed(seen: &[(f64, Vec<f64>)]) -> Vec<f64> {
    let most = seen.iter().fold(f64::MIN, |most, (score, _)| most.max(*score));
    let sum: f64 = seen.iter().map(|(score, _)| (score - most).exp()).sum();
    (0..HEAD).map(|at| seen.iter().map(|(score, value)| (score - most).exp() / sum * value[at]).sum()).collect()
}

/// However many rounds show a key, it counts once: attention over all that any round shows, but for the token itself.
#[test]
fn reformer() {
    for (hashes, buckets, chunk, causal) in [(1, 4, 4, false), (3, 4, 4, false), (3, 2, 8, true), (2, 6, 3, true)] {
        let kind = format!(r#"{{"kind":"reformer","buckets":{buckets},"hashes":{hashes},"chunk":{chunk}}}"#);
        let host = Host::new(&kind, 30, &[30, 17], causal);
        let rotations: Vec<Vec<f32>> = (0..hashes)
            .map(|round| orthogonal(buckets / 2, HEAD, &mut Random::at(0, &[host.case.seed, round as u64])))
            .collect();
        host.same(|group, i| {
            let real = host.case.real(group);
            let shown = |j: &usize| {
                rotations.iter().any(|rotation| {
                    let hash = |token: usize| {
                        let along: Vec<f64> = rotation
                            .chunks_exact(HEAD)
                            .map(|row| {
                                row.iter().zip(host.row(&host.k, group, token)).map(|(a, b)| f64::from(*a) * b).sum()
                            })
                            .collect();
                        let all: Vec<f64> = along.iter().copied().chain(along.iter().map(|x| -x)).collect();
                        (0..all.len()).max_by(|a, b| all[*a].total_cmp(&all[*b])).unwrap()
                    };
                    let mut order: Vec<usize> = (0..real).collect();
                    order.sort_by_key(|token| hash(*token));
                    let place = |token: usize| order.iter().position(|other| *other == token).unwrap() / chunk;
                    hash(i) == hash(*j) && [0, 1].contains(&(place(i) as isize - place(*j) as isize))
                })
            };
            let others = (0..real).filter(|j| *j != i && (!causal || *j <= i)).filter(shown);
            let score = |j: usize| dot(host.row(&host.q, group, i), &unit(host.row(&host.k, group, j))) / 2.0;
            let seen: Vec<_> = others.map(|j| (score(j), host.row(&host.v, group, j).to_vec())).collect();
            if seen.is_empty() { host.row(&host.v, group, i).to_vec() } else { mixed(&seen) }
        });
    }
}

/// Several clusters, each with the queries and keys nearest to its centre. In the causal form a cluster that shows a query nothing
/// gives it nothing.
#[test]
fn routing() {
    let cases = [(3, 2, [24, 24], false), (4, 1, [24, 15], false), (6, 3, [24, 9], false), (4, 2, [24, 15], true)];
    for (clusters, rounds, lengths, causal) in cases {
        let kind = format!(r#"{{"kind":"routing","clusters":{clusters},"rounds":{rounds}}}"#);
        let host = Host::new(&kind, 24, &lengths, causal);
        let each = 24usize.div_ceil(clusters);
        let mut random = Random::at(0, &[1]);
        let start: Vec<f64> = (0..clusters * HEAD).map(|_| f64::from(random.normal() as f32)).collect();
        let taken: Vec<[Vec<Vec<usize>>; 2]> = (0..host.case.groups())
            .map(|group| {
                let real = host.case.real(group);
                let rows = |of: &Rows| (0..real).map(|at| unit(host.row(of, group, at))).collect::<Vec<_>>();
                let (q, k) = (rows(&host.q), rows(&host.k));
                let mut centres: Vec<Vec<f64>> = start.chunks_exact(HEAD).map(unit).collect();
                for _ in 0..rounds {
                    let mut sums: Vec<Vec<f64>> =
                        centres.iter().map(|centre| centre.iter().map(|x| 1e-3 * x).collect()).collect();
                    for token in q.iter().chain(&k) {
                        let near = |at: &usize| dot(token, &centres[*at]);
                        let own = (0..clusters).max_by(|a, b| near(a).total_cmp(&near(b))).unwrap();
                        sums[own].iter_mut().zip(token).for_each(|(sum, x)| *sum += x);
                    }
                    centres = sums.iter().map(|sum| unit(sum)).collect();
                }
                [&q, &k].map(|rows| {
                    let nearest = |centre: &Vec<f64>| {
                        let mut tokens: Vec<usize> = (0..real).collect();
                        tokens.sort_by(|a, b| dot(&rows[*b], centre).total_cmp(&dot(&rows[*a], centre)));
                        tokens.truncate(each);
                        tokens
                    };
                    centres.iter().map(nearest).collect()
                })
            })
            .collect();
        host.same(|group, i| {
            let [queries, keys] = &taken[group];
            let query = unit(host.row(&host.q, group, i));
            let got: Vec<Vec<f64>> = (0..clusters)
                .filter(|cluster| queries[*cluster].contains(&i))
                .filter(|cluster| !causal || keys[*cluster].iter().any(|j| *j <= i))
                .map(|cluster| {
                    let key = |j: usize| unit(host.row(&host.k, group, j));
                    let seen = keys[cluster].iter().filter(|j| !causal || **j <= i);
                    let seen = seen.map(|j| (2.0 * dot(&query, &key(*j)), host.row(&host.v, group, *j).to_vec()));
                    mixed(&seen.collect::<Vec<_>>())
                })
                .collect();
            (0..HEAD).map(|at| got.iter().map(|row| row[at]).sum::<f64>() / got.len().max(1) as f64).collect()
        });
    }
}

/// Every block looks at itself and at one mixture of blocks, balanced both ways or, in the causal form, of earlier ones.
#[test]
fn sinkhorn() {
    let (size, temperature, rounds) = (4, 0.7, 3);
    for (length, lengths) in [(16, [16, 16]), (24, [24, 10]), (22, [22, 13])] {
        for causal in [false, true] {
            let kind = r#"{"kind":"sinkhorn","block":4,"rounds":3,"temperature":0.7}"#;
            let host = Host::new(kind, length, &lengths, causal);
            let row = |of: &Rows, group: usize, at: usize| match at < host.case.real(group) {
                true => host.row(of, group, at).to_vec(),
                false => vec![0.0; HEAD],
            };
            let mean = |of: &Rows, group: usize, block: usize| -> Vec<f64> {
                let rows: Vec<_> = (0..size).map(|at| row(of, group, block * size + at)).collect();
                (0..HEAD).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / size as f64).collect()
            };
            // Of the blocks that have tokens.
            let shares = |group: usize| -> Vec<Vec<f64>> {
                let blocks = host.case.real(group).div_ceil(size);
                let fit = |a: usize, b: usize| {
                    let asked = if causal { row(&host.q, group, a * size) } else { mean(&host.q, group, a) };
                    (dot(&asked, &mean(&host.k, group, b)) / 2.0 * (size as f64).sqrt() / temperature).exp()
                };
                let mut all: Vec<Vec<f64>> = (0..blocks)
                    .map(|a| (0..blocks).map(|b| if causal && b >= a { 0.0 } else { fit(a, b) }).collect())
                    .collect();
                for _ in 0..if causal { 1 } else { rounds } {
                    if !causal {
                        for b in 0..blocks {
                            let sum: f64 = all.iter().map(|row| row[b]).sum();
                            all.iter_mut().for_each(|row| row[b] /= sum);
                        }
                    }
                    for row in &mut all {
                        let sum: f64 = row.iter().sum();
                        row.iter_mut().for_each(|x| *x /= sum.max(1e-300));
                    }
                }
                all
            };
            host.same(|group, i| {
                let (real, own) = (host.case.real(group), i / size);
                let query = host.row(&host.q, group, i);
                let near = (own * size..((own + 1) * size).min(real)).filter(|j| !causal || *j <= i);
                let mut seen: Vec<_> = near
                    .map(|j| (dot(query, host.row(&host.k, group, j)) / 2.0, host.row(&host.v, group, j).to_vec()))
                    .collect();
                if (length > size) && !(causal && own == 0) {
                    let shares = &shares(group)[own];
                    for place in 0..size {
                        let sum = |of: &dyn Fn(usize) -> f64| -> f64 {
                            shares.iter().enumerate().map(|(block, share)| share * of(block * size + place)).sum()
                        };
                        let mixture = |of: &Rows| -> Vec<f64> {
                            (0..HEAD).map(|at| sum(&|token| row(of, group, token)[at])).collect()
                        };
                        let there = sum(&|token| f64::from(u8::from(token < real)));
                        seen.push((dot(query, &mixture(&host.k)) / 2.0 + (there + 1e-9).ln(), mixture(&host.v)));
                    }
                }
                mixed(&seen)
            });
        }
    }
}
