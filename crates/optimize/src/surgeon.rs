//! How well a linear map does without some of its inputs, when the others make up for them.
//!
//! Inputs go in groups (the neurons of a feed-forward block one by one, the channels of an attention head together). With
//! `H` the mean product of the inputs, a constant among them, and `P = H⁻¹`, removing the group `g` costs
//! `tr(W_g P_gg⁻¹ W_gᵀ)` in mean squared error of the outputs if every other weight and the bias move by
//! `-W_g P_gg⁻¹ P_g·` (Optimal Brain Surgeon; for structures: Kurtic et al. 2023, <https://arxiv.org/abs/2302.04089>). The
//! cheapest group goes, `P` is updated, and so on: the order in which groups can be spared, with the best weights for what
//! is left at every stop.

use sparing_quantize::cholesky::{self, Lower};
use sparing_quantize::{Statistics, Sums};

/// Share of the mean square that is added to every input's: few examples say little about rare inputs.
const DAMPING: f64 = 0.01;
/// Single inputs that go together, before the costs of the others are computed anew.
const TOGETHER: usize = 16;

/// A linear map that lost some of its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Spared {
    /// Groups that are left, ascending.
    pub kept: Vec<usize>,
    /// `[outputs, inputs that are left]`, in the order of `kept`.
    pub weight: Vec<f32>,
    /// What is added to the bias.
    pub bias: Vec<f32>,
    /// Mean squared error of a row of outputs, summed over outputs.
    pub error: f64,
}

/// Mean products of what a map reads, with a constant 1 as the last input.
pub struct Moments {
    inputs: usize,
    lower: Lower,
}

impl Moments {
    /// From what was seen of the map whose weight has this name; `None` if too little was.
    pub fn of(statistics: &Statistics, weight: &str) -> Option<Moments> {
        let sums = statistics.get(weight)?;
        let products = statistics.get(&sums.leader)?.products.as_ref()?.sums();
        Moments::new(sums, &products)
    }

    fn new(sums: &Sums, products: &[f32]) -> Option<Moments> {
        let (inputs, rows) = (sums.sum.len(), sums.rows as f64);
        if rows < 1.0 || products.len() != inputs * inputs {
            return None;
        }
        let mut lower: Lower =
            (0..inputs).map(|i| (0..=i).map(|j| f64::from(products[i * inputs + j]) / rows).collect()).collect();
        let mean = (0..inputs).map(|i| lower[i][i]).sum::<f64>() / inputs as f64;
        if !(mean.is_finite() && mean > 0.0) {
            return None;
        }
        (0..inputs).for_each(|i| lower[i][i] += DAMPING * mean);
        lower.push(sums.sum.iter().map(|s| s / rows).chain([1.0]).collect());
        Some(Moments { inputs, lower })
    }

    /// A surgeon for a map of these weights, `[outputs, inputs]` row-major.
    pub fn surgeon(&self, weight: &[f32], group: usize) -> Surgeon {
        let n = self.inputs;
        let half = cholesky::inverse(self.lower.clone(), 1e-12 * self.lower[0][0].max(1e-12));
        let whole = |i: usize, j: usize| if i >= j { half[i][j] } else { half[j][i] };
        Surgeon {
            group,
            left: (0..n / group).collect(),
            inverse: (0..=n).map(|i| (0..=n).map(|j| whole(i, j)).collect()).collect(),
            weight: weight
                .chunks_exact(n)
                .map(|row| row.iter().map(|w| f64::from(*w)).chain([0.0]).collect())
                .collect(),
            error: 0.0,
        }
    }
}

/// A map in the middle of losing inputs.
#[derive(Clone)]
pub struct Surgeon {
    group: usize,
    /// Groups that are left, ascending.
    left: Vec<usize>,
    /// Of the inputs that are left, the constant last: symmetric.
    inverse: Vec<Vec<f64>>,
    /// Rows of outputs over the inputs that are left; the last number is the bias's.
    weight: Vec<Vec<f64>>,
    error: f64,
}

impl Surgeon {
    /// Lets the cheapest groups go until this many are left, and returns them in the order they went.
    pub fn reduce(&mut self, count: usize) -> Vec<usize> {
        let mut gone = Vec::new();
        while self.left.len() > count {
            let at_once = if self.group == 1 { TOGETHER.min(self.left.len() - count) } else { 1 };
            let mut costs: Vec<(f64, usize)> = (0..self.left.len()).map(|place| (self.cost(place), place)).collect();
            costs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut places: Vec<usize> = costs[..at_once].iter().map(|(_, place)| *place).collect();
            gone.extend(places.iter().map(|place| self.left[*place]));
            places.sort_unstable();
            self.remove(&places);
        }
        gone
    }

    /// Lets all groups but these go.
    pub fn keep(&mut self, kept: &[usize]) {
        let places: Vec<usize> = (0..self.left.len()).filter(|place| !kept.contains(&self.left[*place])).collect();
        for places in places.chunks(places.len().max(1)) {
            self.remove(places);
        }
    }

    /// What is left.
    pub fn spared(&self) -> Spared {
        let inputs = self.left.len() * self.group;
        Spared {
            kept: self.left.clone(),
            weight: self.weight.iter().flat_map(|row| row[..inputs].iter().map(|w| *w as f32)).collect(),
            bias: self.weight.iter().map(|row| row[inputs] as f32).collect(),
            error: self.error,
        }
    }

    /// What it costs to let the group at a place go, all others making up for it.
    fn cost(&self, place: usize) -> f64 {
        let at = place * self.group;
        if self.group == 1 {
            let square: f64 = self.weight.iter().map(|row| row[at] * row[at]).sum();
            return square / self.inverse[at][at].max(f64::MIN_POSITIVE);
        }
        let inputs: Vec<usize> = (at..at + self.group).collect();
        self.damage(&self.block(&inputs), &inputs)
    }

    /// `tr(W_g P_gg⁻¹ W_gᵀ)`, with the inverse of the inverse Cholesky factor of `P_gg`.
    fn damage(&self, half: &Lower, inputs: &[usize]) -> f64 {
        let row = |row: &Vec<f64>| -> f64 {
            let w: Vec<f64> = inputs.iter().map(|i| row[*i]).collect();
            half.iter().map(|h| h.iter().zip(&w).map(|(h, w)| h * w).sum::<f64>().powi(2)).sum()
        };
        self.weight.iter().map(row).sum()
    }

    /// The inverse of the Cholesky factor of `P_gg`.
    fn block(&self, inputs: &[usize]) -> Lower {
        let lower = (0..inputs.len()).map(|i| inputs[..=i].iter().map(|j| self.inverse[inputs[i]][*j]).collect());
        let lower: Lower = lower.collect();
        let floor = 1e-12 * (0..lower.len()).map(|i| lower[i][i]).fold(f64::MIN_POSITIVE, f64::max);
        cholesky::invert(&cholesky::factor(lower, floor))
    }

    /// Lets the groups at these places (ascending) go.
    fn remove(&mut self, places: &[usize]) {
        let inputs: Vec<usize> = places.iter().flat_map(|p| p * self.group..(p + 1) * self.group).collect();
        let half = self.block(&inputs);
        self.error += self.damage(&half, &inputs);
        // B = P_gg⁻¹ P_g·: first with the factor's inverse, then with its transpose.
        let width = self.inverse.len();
        let mut first: Vec<Vec<f64>> = vec![vec![0.0; width]; inputs.len()];
        for (row, h) in first.iter_mut().zip(&half) {
            for (factor, input) in h.iter().zip(&inputs) {
                add(row, *factor, &self.inverse[*input]);
            }
        }
        let mut moves: Vec<Vec<f64>> = vec![vec![0.0; width]; inputs.len()];
        for (k, h) in half.iter().enumerate() {
            for (row, factor) in moves.iter_mut().zip(h) {
                add(row, *factor, &first[k]);
            }
        }
        for row in self.weight.iter_mut().chain(&mut self.inverse) {
            let factors: Vec<f64> = inputs.iter().map(|i| row[*i]).collect();
            for (factor, movement) in factors.iter().zip(&moves) {
                add(row, -factor, movement);
            }
        }
        self.compact(&inputs);
        let mut place = 0;
        self.left.retain(|_| {
            place += 1;
            places.binary_search(&(place - 1)).is_err()
        });
    }

    fn compact(&mut self, inputs: &[usize]) {
        let stays = |i: usize| inputs.binary_search(&i).is_err();
        let mut i = 0;
        self.inverse.retain(|_| {
            i += 1;
            stays(i - 1)
        });
        for row in self.inverse.iter_mut().chain(&mut self.weight) {
            let mut i = 0;
            row.retain(|_| {
                i += 1;
                stays(i - 1)
            });
        }
    }
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t += factor * f);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_quantize::Products;
    use std::collections::BTreeMap;

    /// Repeatable numbers between -1 and 1.
    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2) | 1;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| draw()).collect()
    }

    struct Case {
        inputs: usize,
        x: Vec<f32>,
        w: Vec<f32>,
        moments: Moments,
    }

    /// Inputs that are mixtures of fewer causes, and not around zero.
    fn case(rows: usize, inputs: usize, outputs: usize, causes: usize) -> Case {
        let (cause, mix, noise) = (numbers(1, rows * causes), numbers(2, causes * inputs), numbers(3, rows * inputs));
        let x: Vec<f32> = (0..rows * inputs)
            .map(|i| {
                let (row, column) = (i / inputs, i % inputs);
                let mixed: f32 = (0..causes).map(|c| cause[row * causes + c] * mix[c * inputs + column]).sum();
                mixed + 0.2 * noise[i] + 0.5 * (column % 3) as f32
            })
            .collect();
        let mut products = Products::default();
        products.add(&x, inputs);
        let sum = (0..inputs).map(|i| x.iter().skip(i).step_by(inputs).map(|x| f64::from(*x)).sum()).collect();
        let squares = vec![0.0; inputs];
        let sums = Sums {
            rows: rows as u64,
            sum,
            squares,
            least: 0.0,
            most: 0.0,
            products: Some(products),
            leader: "w".into(),
        };
        let moments = Moments::of(&BTreeMap::from([("w".to_string(), sums)]), "w").unwrap();
        Case { inputs, x, w: numbers(4, outputs * inputs), moments }
    }

    /// Mean squared error of the outputs with these weights on these inputs, the slow way.
    fn error(case: &Case, spared: &Spared, group: usize) -> f64 {
        let inputs: Vec<usize> = spared.kept.iter().flat_map(|g| g * group..(g + 1) * group).collect();
        let rows = case.x.len() / case.inputs;
        let outputs = case.w.len() / case.inputs;
        let mut sum = 0.0;
        for x in case.x.chunks_exact(case.inputs) {
            for o in 0..outputs {
                let exact: f64 = (0..case.inputs).map(|i| f64::from(case.w[o * case.inputs + i] * x[i])).sum();
                let weights = &spared.weight[o * inputs.len()..(o + 1) * inputs.len()];
                let found: f64 = inputs.iter().zip(weights).map(|(i, w)| f64::from(w * x[*i])).sum();
                sum += (found + f64::from(spared.bias[o]) - exact).powi(2);
            }
        }
        sum / rows as f64
    }

    #[test]
    fn the_error_is_what_it_says_and_near_the_best_there_is() {
        for group in [1, 4] {
            let case = case(400, 24, 5, 6);
            let mut surgeon = case.moments.surgeon(&case.w, group);
            surgeon.reduce(12 / group);
            let spared = surgeon.spared();
            let (said, found) = (spared.error, error(&case, &spared, group));
            assert!(found < 1.05 * said && said < 2.0 * found + 0.1, "{group}: {said} {found}");
            // Without making up for what is gone it is far worse.
            let inputs: Vec<usize> = spared.kept.iter().flat_map(|g| g * group..(g + 1) * group).collect();
            let plain = case.w.chunks_exact(24).flat_map(|row| inputs.iter().map(|i| row[*i])).collect();
            let plain = Spared { weight: plain, bias: vec![0.0; 5], ..spared.clone() };
            assert!(error(&case, &plain, group) > 5.0 * found, "{group}");
            // Any small move makes it worse: these are the least squares (damping aside).
            for i in 0..spared.weight.len() {
                for by in [-0.05, 0.05] {
                    let mut other = spared.clone();
                    other.weight[i] += by;
                    assert!(error(&case, &other, group) > found - 2e-3, "{group} {i}");
                }
            }
        }
    }

    #[test]
    fn in_steps_or_at_once_it_is_the_same() {
        let case = case(300, 20, 4, 5);
        let mut steps = case.moments.surgeon(&case.w, 1);
        let gone: Vec<usize> = [15, 9, 4].into_iter().flat_map(|count| steps.reduce(count)).collect();
        assert_eq!(gone.len(), 16);
        let steps = steps.spared();
        let mut once = case.moments.surgeon(&case.w, 1);
        once.keep(&steps.kept);
        let once = once.spared();
        assert_eq!(once.kept, steps.kept);
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(near(&once.weight, &steps.weight) && near(&once.bias, &steps.bias));
        assert!((once.error - steps.error).abs() < 1e-6 * once.error.max(1.0));
    }

    #[test]
    fn without_inputs_the_mean_is_left() {
        let case = case(200, 8, 3, 2);
        let mut surgeon = case.moments.surgeon(&case.w, 2);
        surgeon.reduce(0);
        let spared = surgeon.spared();
        assert!(spared.kept.is_empty() && spared.weight.is_empty());
        for (o, bias) in spared.bias.iter().enumerate() {
            let mean: f64 =
                case.x.chunks_exact(8).map(|x| (0..8).map(|i| f64::from(case.w[o * 8 + i] * x[i])).sum::<f64>()).sum();
            assert!((f64::from(*bias) - mean / 200.0).abs() < 1e-3, "{o}");
        }
    }
}
