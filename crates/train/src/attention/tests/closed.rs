//! Kernels, low ranks and synthesized scores equal their closed forms, computed pair by pair.

use super::{Case, Rows, nothing};

struct Host {
    case: Case,
    q: Rows,
    k: Rows,
    v: Rows,
}

impl Host {
    fn new(kind: &str, length: usize, lengths: &[usize], causal: bool) -> Host {
        let case = Case::new(kind, length, lengths, causal, 21);
        let [q, k, v] = case.projected();
        Host { case, q, k, v }
    }

    /// Makes some rows of all sequences larger.
    fn enlarge(&mut self, tokens: std::ops::Range<usize>, by: f32) {
        let (length, width) = (self.case.sizes.length, self.case.sizes.width);
        for sequence in self.case.x.chunks_exact_mut(length * width) {
            sequence[tokens.start * width..tokens.end * width].iter_mut().for_each(|x| *x *= by);
        }
        [self.q, self.k, self.v] = self.case.projected();
    }

    fn row<'a>(&self, of: &'a Rows, group: usize, at: usize) -> &'a [f64] {
        let width = self.case.sizes.head_width();
        &of[(group * self.case.sizes.length + at) * width..][..width]
    }

    /// A column of keys or values, shortened over the length.
    fn short(&self, by: &Rows, of: &Rows, group: usize, at: usize, column: usize) -> f64 {
        let keys = 0..self.case.real(group);
        keys.map(|j| by[at * self.case.sizes.length + j] * self.row(of, group, j)[column]).sum()
    }

    /// The score of a query with a shortened key.
    fn short_score(&self, by: &Rows, group: usize, query: usize, at: usize) -> f64 {
        let width = self.case.sizes.head_width();
        let key: Vec<f64> = (0..width).map(|c| self.short(by, &self.k, group, at, c)).collect();
        dot(self.row(&self.q, group, query), &key) / (width as f64).sqrt()
    }

    /// A weighted mean of values by `weight(group, query, key)`, not negative.
    fn weighed(&self, weight: impl Fn(usize, usize, usize) -> f64) -> Rows {
        let (length, width) = (self.case.sizes.length, self.case.sizes.head_width());
        let mut out = vec![0.0; self.v.len()];
        for group in 0..self.case.groups() {
            for i in 0..self.case.real(group) {
                let keys = 0..self.case.real(group);
                let weights: Vec<f64> =
                    keys.map(|j| if self.case.causal && j > i { 0.0 } else { weight(group, i, j) }).collect();
                let sum: f64 = weights.iter().sum();
                for (j, w) in weights.iter().enumerate() {
                    for column in 0..width {
                        out[(group * length + i) * width + column] += w / sum * self.row(&self.v, group, j)[column];
                    }
                }
            }
        }
        out
    }

    fn same(&self, found: &Rows, tolerance: f64) {
        let apart = self.case.apart(&self.case.mixed(), found);
        assert!(apart < tolerance, "{:?} causal {}: {apart}", self.case.kind, self.case.causal);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn linear() {
    let features = |x: &[f64]| x.iter().map(|x| if *x > 0.0 { x + 1.0 } else { x.exp() }).collect::<Vec<_>>();
    for (length, lengths, causal) in [(9, vec![9, 4], false), (150, vec![150, 70], true), (64, vec![64], true)] {
        let host = Host::new(r#"{"kind":"linear"}"#, length, &lengths, causal);
        let found = host.weighed(|g, i, j| dot(&features(host.row(&host.q, g, i)), &features(host.row(&host.k, g, j))));
        host.same(&found, 1e-4);
    }
}

#[test]
fn performer() {
    for (function, causal) in [("softmax", false), ("softmax", true), ("relu", false), ("relu", true)] {
        let kind = format!(r#"{{"kind":"performer","features":6,"function":"{function}"}}"#);
        let mut host = Host::new(&kind, 80, &[80, 37], causal);
        // Keys that are so large that others are e^-40 of them and less, in the first places: a later key must not drown them.
        host.enlarge(0..20, if function == "softmax" { 5.0 } else { 1.0 });
        let directions = host.case.tensor("directions");
        let root = 4f64.powf(0.25);
        let features = |x: &[f64]| -> Vec<f64> {
            let x: Vec<f64> = x.iter().map(|x| x / root).collect();
            let half = dot(&x, &x) / 2.0;
            let along = directions.chunks_exact(4).map(|direction| dot(direction, &x));
            match function {
                "softmax" => along.map(|along| (along - half).exp()).collect(),
                _ => along.map(|along| along.max(0.0) + 1e-3).collect(),
            }
        };
        let found = host.weighed(|g, i, j| dot(&features(host.row(&host.q, g, i)), &features(host.row(&host.k, g, j))));
        host.same(&found, 2e-3);
    }
}

#[test]
fn linformer() {
    for shared in [false, true] {
        let kind = format!(r#"{{"kind":"linformer","rank":3,"shared":{shared}}}"#);
        let host = Host::new(&kind, 12, &[12, 5], false);
        let by_key = host.case.tensor("shorten.key");
        let by_value = if shared { by_key.clone() } else { host.case.tensor("shorten.value") };
        let mut out = vec![0.0; host.v.len()];
        for group in 0..host.case.groups() {
            for i in 0..host.case.real(group) {
                let scores: Vec<f64> = (0..3).map(|at| host.short_score(&by_key, group, i, at).exp()).collect();
                let sum: f64 = scores.iter().sum();
                for column in 0..4 {
                    out[(group * 12 + i) * 4 + column] =
                        (0..3).map(|at| scores[at] / sum * host.short(&by_value, &host.v, group, at, column)).sum();
                }
            }
        }
        host.same(&out, 1e-4);
    }
}

/// The network is applied to every row of scores, as the paper has it.
#[test]
fn softmax_network() {
    let mut host = Host::new(r#"{"kind":"softmax-network","keys":3}"#, 12, &[12, 5], false);
    for (name, values) in [("hidden.bias", [0.3, -0.2, 0.1]), ("output.bias", [0.5, -1.0, 0.25])] {
        host.case.set(name, &values);
    }
    let [by_key, by_value] = ["shorten.key", "shorten.value"].map(|name| host.case.tensor(name));
    let [w1, b1] = ["hidden.weight", "hidden.bias"].map(|name| host.case.tensor(name));
    let [w2, b2] = ["output.weight", "output.bias"].map(|name| host.case.tensor(name));
    let mut out = vec![0.0; host.v.len()];
    for group in 0..host.case.groups() {
        for i in 0..host.case.real(group) {
            let scores: Vec<f64> = (0..3).map(|at| host.short_score(&by_key, group, i, at)).collect();
            let inner: Vec<f64> = (0..3).map(|at| (dot(&w1[at * 3..][..3], &scores) + b1[at]).max(0.0)).collect();
            let shares: Vec<f64> = (0..3).map(|at| dot(&w2[at * 3..][..3], &inner) + b2[at]).collect();
            for column in 0..4 {
                out[(group * 12 + i) * 4 + column] =
                    (0..3).map(|at| shares[at] * host.short(&by_value, &host.v, group, at, column)).sum();
            }
        }
    }
    host.same(&out, 1e-4);
}

/// With a landmark for every token Nyström's method is exact, once the inverse has converged.
#[test]
fn nystrom() {
    let host = Host::new(r#"{"kind":"nystrom","landmarks":10,"rounds":40}"#, 10, &[10], false);
    host.same(&host.case.dense(&|_, _| true, &nothing), 2e-2);
}

/// With fewer landmarks than tokens: three softmaxes of tokens and of segments' means, the middle one inverted exactly. Of a
/// shorter sequence the last segment has fewer tokens, and some have none.
#[test]
fn nystrom_with_few_landmarks() {
    let host = Host::new(r#"{"kind":"nystrom","landmarks":5,"rounds":40}"#, 22, &[22, 13], false);
    let mut out = vec![0.0; host.v.len()];
    for group in 0..host.case.groups() {
        let real = host.case.real(group);
        let rows = |of: &Rows| (0..real).map(|at| host.row(of, group, at).to_vec()).collect::<Vec<_>>();
        let (q, k, v) = (rows(&host.q), rows(&host.k), rows(&host.v));
        let means = |of: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let mean = |tokens: &[Vec<f64>]| {
                (0..4).map(|c| tokens.iter().map(|row| row[c]).sum::<f64>() / tokens.len() as f64).collect()
            };
            of.chunks(5).map(mean).collect()
        };
        let (asked, known) = (means(&q), means(&k));
        assert_eq!(known.len(), if group < 2 { 5 } else { 3 });
        let middle = inverse(shares(&asked, &known));
        let found = times(&times(&shares(&q, &known), &middle), &times(&shares(&asked, &k), &v));
        out[group * 22 * 4..][..real * 4].copy_from_slice(&found.concat());
    }
    let full = host.case.dense(&|_, _| true, &nothing);
    assert!(host.case.apart(&out, &full) > 0.1, "as good as full attention");
    host.same(&out, 1e-3);
}

/// Softmax of the scores of all pairs.
fn shares(queries: &[Vec<f64>], keys: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of = |query: &Vec<f64>| {
        let scores: Vec<f64> = keys.iter().map(|key| (dot(query, key) / 2.0).exp()).collect();
        let sum: f64 = scores.iter().sum();
        scores.iter().map(|score| score / sum).collect()
    };
    queries.iter().map(of).collect()
}

fn times(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let column = |at: usize| b.iter().map(|row| row[at]).collect::<Vec<_>>();
    a.iter().map(|row| (0..b[0].len()).map(|at| dot(row, &column(at))).collect()).collect()
}

/// By elimination, the largest pivot first.
fn inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let count = a.len();
    for (at, row) in a.iter_mut().enumerate() {
        row.extend((0..count).map(|column| f64::from(u8::from(column == at))));
    }
    for at in 0..count {
        let pivot = (at..count).max_by(|x, y| a[*x][at].abs().total_cmp(&a[*y][at].abs())).unwrap();
        a.swap(at, pivot);
        let by = a[at][at];
        a[at].iter_mut().for_each(|x| *x /= by);
        let own = a[at].clone();
        for (_, row) in a.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let by = row[at];
            row.iter_mut().zip(&own).for_each(|(x, y)| *x -= by * y);
        }
    }
    a.into_iter().map(|row| row[count..].to_vec()).collect()
}

/// Keys and values of several tokens become one, of the last group fewer; in the causal form a token sees groups that have
/// ended and a key of nothing.
#[test]
fn memory_compressed() {
    for (factor, causal) in [(3, false), (4, true)] {
        let kind = format!(r#"{{"kind":"memory-compressed","factor":{factor}}}"#);
        let host = Host::new(&kind, 11, &[11, 6], causal);
        let kernels = [host.case.tensor("compress.key"), host.case.tensor("compress.value")];
        let mut out = vec![0.0; host.v.len()];
        for group in 0..host.case.groups() {
            let real = host.case.real(group);
            let short = |which: usize, of: &Rows, at: usize| -> Vec<f64> {
                let mut row = vec![0.0; 4];
                for (place, token) in (at * factor..((at + 1) * factor).min(real)).enumerate() {
                    for (input, x) in host.row(of, group, token).iter().enumerate() {
                        for (column, to) in row.iter_mut().enumerate() {
                            *to += x * kernels[which][(place * 4 + input) * 4 + column];
                        }
                    }
                }
                row
            };
            for i in 0..real {
                let mut keys = vec![];
                if causal {
                    keys.push((vec![0.0; 4], vec![0.0; 4]));
                }
                for at in 0..real.div_ceil(factor) {
                    if !causal || (at + 1) * factor <= i + 1 {
                        keys.push((short(0, &host.k, at), short(1, &host.v, at)));
                    }
                }
                let scores: Vec<f64> =
                    keys.iter().map(|(key, _)| (dot(host.row(&host.q, group, i), key) / 2.0).exp()).collect();
                let sum: f64 = scores.iter().sum();
                for column in 0..4 {
                    out[(group * 11 + i) * 4 + column] =
                        keys.iter().zip(&scores).map(|((_, value), score)| score / sum * value[column]).sum();
                }
            }
        }
        host.same(&out, 1e-4);
    }
}

/// Scores that do not depend on keys: softmax of a learned matrix, of low rank or not.
#[test]
fn random_synthesizers() {
    for (kind, part) in [("random", "random"), ("fixed-random", "random"), ("factorised-random", "factors")] {
        let text = format!(r#"{{"kind":"synthesizer","parts":["{kind}"],"rank":3}}"#);
        for causal in [false, true] {
            let case = Case::new(&text, 9, &[9, 5], causal, 2);
            let v = case.with(false, |input| super::numbers(input.mapped("value.weight").unwrap()));
            let host = Host { q: v.clone(), k: v.clone(), v, case };
            let found = match part {
                "random" => {
                    let scores = host.case.tensor("random");
                    host.weighed(|group, i, j| scores[((group % 2) * 9 + i) * 9 + j].exp())
                }
                _ => {
                    let (a, b) = (host.case.tensor("factors.query"), host.case.tensor("factors.key"));
                    let row = |of: &Rows, head: usize, at: usize| of[(head * 9 + at) * 3..][..3].to_vec();
                    host.weighed(|group, i, j| dot(&row(&a, group % 2, i), &row(&b, group % 2, j)).exp())
                }
            };
            host.same(&found, 1e-5);
        }
    }
}

/// Scores made of the token alone.
#[test]
fn dense_synthesizers() {
    let relu = |x: f64| x.max(0.0);
    for kind in ["dense", "factorised-dense"] {
        let case = Case::new(&format!(r#"{{"kind":"synthesizer","parts":["{kind}"]}}"#), 10, &[10, 7], false, 2);
        let of = |name: &str| case.with(false, |input| super::numbers(input.mapped(name).unwrap()));
        let (q, v) = (of("query.weight"), of("value.weight"));
        let host = Host { q, k: v.clone(), v, case };
        let map = |name: &str, x: &[f64]| -> Vec<f64> {
            host.case.tensor(name).chunks_exact(4).map(|weights| dot(weights, x)).collect()
        };
        let found = host.weighed(|group, i, j| {
            let x = host.row(&host.q, group, i);
            let score = match kind {
                "dense" => {
                    let inner: Vec<f64> = map("dense.first", x).into_iter().map(relu).collect();
                    map("dense.second", &inner)[j]
                }
                _ => {
                    let inner: Vec<f64> = map("factorised.first", x).into_iter().map(relu).collect();
                    let (a, b) = (map("factorised.a", &inner), map("factorised.b", &inner));
                    a[j / b.len()] * b[j % b.len()]
                }
            };
            score.exp()
        });
        host.same(&found, 1e-5);
    }
}

/// A mixture is a sum with learned shares, even ones at first.
#[test]
fn mixtures() {
    let host = Host::new(r#"{"kind":"synthesizer","parts":["random","dot-product"]}"#, 8, &[8], false);
    let random = host.case.tensor("random");
    let found = host.weighed(|group, i, j| {
        let score = dot(host.row(&host.q, group, i), host.row(&host.k, group, j)) / 2.0;
        (0.5 * score + 0.5 * random[((group % 2) * 8 + i) * 8 + j]).exp()
    });
    host.same(&found, 1e-5);
}

/// Induced points: two attentions, one after the other.
#[test]
fn induced_points() {
    let host = Host::new(r#"{"kind":"set","points":3}"#, 9, &[9, 4], false);
    let points = host.case.tensor("points");
    let maps = [host.case.tensor("points.key"), host.case.tensor("points.value")];
    let mut out = vec![0.0; host.v.len()];
    for group in 0..host.case.groups() {
        let (head, real) = (group % 2, host.case.real(group));
        let mixed = |scores: Vec<f64>, values: &dyn Fn(usize) -> Vec<f64>| -> Vec<f64> {
            let sum: f64 = scores.iter().sum();
            (0..4).map(|c| scores.iter().enumerate().map(|(at, s)| s / sum * values(at)[c]).sum()).collect()
        };
        let found: Vec<Vec<f64>> = (0..3)
            .map(|point| {
                let asked = &points[(head * 3 + point) * 4..][..4];
                let scores = (0..real).map(|j| (dot(asked, host.row(&host.k, group, j)) / 2.0).exp()).collect();
                mixed(scores, &|j| host.row(&host.v, group, j).to_vec())
            })
            .collect();
        let of = |which: usize, point: usize| -> Vec<f64> {
            let map = &maps[which][head * 16..][..16];
            (0..4).map(|c| (0..4).map(|i| found[point][i] * map[i * 4 + c]).sum()).collect()
        };
        for i in 0..real {
            let scores = (0..3).map(|p| (dot(host.row(&host.q, group, i), &of(0, p)) / 2.0).exp()).collect();
            let row = mixed(scores, &|point| of(1, point));
            out[(group * 9 + i) * 4..][..4].copy_from_slice(&row);
        }
    }
    host.same(&out, 1e-4);
}

/// One block sorts nothing; shares of several add up to one both ways. What several come to is in `sorted.rs`.
#[test]
fn sinkhorn() {
    let host = Host::new(r#"{"kind":"sinkhorn","block":16,"rounds":5,"temperature":0.7}"#, 16, &[16, 9], false);
    host.same(&host.case.dense(&|_, _| true, &nothing), 1e-5);
    let sorter = super::super::Sinkhorn { block: 4, rounds: 20, temperature: 0.7 };
    let case = Case::new(r#"{"kind":"full"}"#, 24, &[24], false, 6);
    let shares = case.with(false, |input| {
        let heads = input.all().unwrap();
        let split = |x| super::super::blocks::split(x, 4);
        super::numbers(sorter.shares(split(heads.scaled_query()), split(heads.key.clone()), None, false))
    });
    for (at, square) in shares.chunks_exact(36).enumerate() {
        for line in 0..6 {
            let row: f64 = square[line * 6..][..6].iter().sum();
            let column: f64 = square.iter().skip(line).step_by(6).sum();
            assert!((row - 1.0).abs() < 1e-5 && (column - 1.0).abs() < 0.02, "{at}: {row} {column}");
        }
    }
}
