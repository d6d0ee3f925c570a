//! The paper's promises as statistical tests, and the same for its heirs.
//!
//! Seeds are fixed, so a test that passes once passes always; the margins say with what confidence a correct sampler would
//! have passed: each comparison allows for five standard errors (one in 1.7 million).

use super::draw::{Draws, Spread, orders};
use super::rule::budget;
use sparing_kernels::staircase::{Part, Pick, Way, encode};
use sparing_kernels::{PerWorker, Rows, RowsMut, Scratch, Team};

const INPUTS: usize = 40;
const WIDTH: usize = 12;
const TOKENS: usize = 9;
const SIGMAS: f64 = 5.0;

/// Rows with a mean of their own, and weights of uneven norms.
struct Problem {
    x: Vec<f32>,
    weights: Vec<f32>,
    mean: Vec<f32>,
    std: Vec<f32>,
    exact: Vec<f32>,
}

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

impl Problem {
    fn new() -> Problem {
        let mean: Vec<f32> = numbers(1, INPUTS).iter().map(|m| 2.0 * m).collect();
        let std: Vec<f32> = numbers(2, INPUTS).iter().map(|s| 0.2 + s.abs()).collect();
        let noise = numbers(3, TOKENS * INPUTS);
        let x: Vec<f32> = noise.iter().enumerate().map(|(i, u)| mean[i % INPUTS] + u * std[i % INPUTS]).collect();
        let size = numbers(4, INPUTS);
        let weights: Vec<f32> =
            numbers(5, WIDTH * INPUTS).iter().enumerate().map(|(i, w)| w * (0.1 + size[i % INPUTS].abs())).collect();
        let mut problem = Problem { x, weights, mean, std, exact: Vec::new() };
        problem.exact = (0..TOKENS).flat_map(|t| problem.product(problem.row(t))).collect();
        problem
    }

    fn row(&self, token: usize) -> &[f32] {
        &self.x[token * INPUTS..(token + 1) * INPUTS]
    }

    fn product(&self, row: &[f32]) -> Vec<f32> {
        let rows = self.weights.chunks_exact(INPUTS);
        rows.map(|w| w.iter().zip(row).map(|(w, x)| *w as f64 * *x as f64).sum::<f64>() as f32).collect()
    }

    /// What is added to centred draws.
    fn offset(&self, centred: bool) -> Vec<f32> {
        if centred { self.product(&self.mean) } else { vec![0.0; WIDTH] }
    }

    /// Estimates all tokens with these budgets for many seeds; budgets of all inputs are exact.
    fn estimate(&self, kind: Kind, budgets: &[u32], seeds: u64, mut see: impl FnMut(&[f32])) {
        let (centred, without) = (kind != Kind::Paper, kind == Kind::Systematic);
        let spread = match kind {
            Kind::Paper => Spread::norms(&self.weights, WIDTH, INPUTS),
            _ => Spread::calibrated(&self.weights, WIDTH, INPUTS, &self.std),
        };
        let spreads = [spread];
        let (team, scratch) = (Team::new(1), PerWorker::new(1, Scratch::default));
        let (offset, mean) = (self.offset(centred), centred.then_some(&self.mean[..]));
        for seed in 0..seeds {
            let draws = Draws::new(&self.weights, (WIDTH, INPUTS), orders(&spreads, without, (seed, 0)), mean, false);
            let head = &draws.heads[0];
            let picks: Vec<Pick> = (0..TOKENS as u32)
                .filter(|row| budgets[*row as usize] < INPUTS as u32)
                .map(|row| (row, budgets[row as usize]))
                .map(|(row, r)| (row, head.by_budget[r as usize]))
                .map(|(row, b)| Pick { row, budget: b.steps, factor: b.factor })
                .collect();
            let mut out = self.exact.clone();
            let part = Part { head: 0, way: Way::Drawn(&head.drawn), picks: &picks, bias: &offset };
            encode(&team, Rows::f32(&self.x, INPUTS), WIDTH, &[part], RowsMut::f32(&mut out, WIDTH), &scratch);
            see(&out);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Paper,
    Calibrated,
    Systematic,
}

/// Mean and standard error of the mean.
#[derive(Default, Clone, Copy)]
struct Sample {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Sample {
    fn add(&mut self, x: f64) {
        (self.n, self.sum, self.squares) = (self.n + 1.0, self.sum + x, self.squares + x * x);
    }

    fn mean(&self) -> f64 {
        self.sum / self.n
    }

    fn error(&self) -> f64 {
        ((self.squares / self.n - self.mean().powi(2)).max(0.0) / self.n).sqrt()
    }
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

fn length(x: &[f32]) -> f64 {
    norm(x.iter().map(|x| *x as f64))
}

const BUDGETS: [u32; TOKENS] = [1, 2, 3, 5, 8, 13, 21, 34, 39];

#[test]
fn every_sampler_is_unbiased_with_every_budget() {
    let problem = Problem::new();
    for kind in [Kind::Paper, Kind::Calibrated, Kind::Systematic] {
        let mut means = vec![Sample::default(); TOKENS * WIDTH];
        problem.estimate(kind, &BUDGETS, 6000, |out| {
            means.iter_mut().zip(out).for_each(|(mean, x)| mean.add(*x as f64));
        });
        for (i, (mean, exact)) in means.iter().zip(&problem.exact).enumerate() {
            let off = (mean.mean() - *exact as f64).abs();
            let allowed = SIGMAS * mean.error() + 1e-4;
            assert!(off <= allowed, "{kind:?} at {i}: {} for {exact}, allowed {allowed}", mean.mean());
        }
    }
}

#[test]
fn lemma_1_holds_and_the_variance_is_the_formulas() {
    let problem = Problem::new();
    let frobenius = length(&problem.weights);
    let mut errors = vec![(Sample::default(), Sample::default()); TOKENS];
    problem.estimate(Kind::Paper, &BUDGETS, 6000, |out| {
        for (token, (error, square)) in errors.iter_mut().enumerate() {
            let row = token * WIDTH..(token + 1) * WIDTH;
            let e = norm(out[row.clone()].iter().zip(&problem.exact[row]).map(|(a, b)| (a - b) as f64));
            error.add(e);
            square.add(e * e);
        }
    });
    for (token, (error, square)) in errors.iter().enumerate() {
        let (x, r) = (length(problem.row(token)), BUDGETS[token] as f64);
        // Lemma 1: E ||H~[i] - X[i] W|| <= ||X[i]|| ||W||_F / sqrt(r).
        let bound = x * frobenius / r.sqrt();
        assert!(error.mean() - SIGMAS * error.error() <= bound, "token {token}: {} above {bound}", error.mean());
        // With these probabilities E ||H~ - H||² = (||X||² ||W||_F² - ||H||²) / r exactly.
        let want =
            (x * x * frobenius * frobenius - length(&problem.exact[token * WIDTH..(token + 1) * WIDTH]).powi(2)) / r;
        let off = (square.mean() - want).abs();
        assert!(off <= SIGMAS * square.error() + 1e-3 * want, "token {token}: {} for {want}", square.mean());
    }
}

#[test]
fn theorem_2_holds_in_the_mean_and_in_the_tail() {
    let problem = Problem::new();
    // A positive attention matrix with rows that add up to one, some of it sharp.
    let scores = numbers(11, TOKENS * TOKENS);
    let attention: Vec<f64> = scores
        .chunks(TOKENS)
        .enumerate()
        .flat_map(|(i, row)| {
            let powers: Vec<f64> = row.iter().map(|s| ((1.0 + i as f64) * *s as f64).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(move |p| p / sum)
        })
        .collect();
    let beta = (0..TOKENS).map(|t| length(problem.row(t))).sum::<f64>() / TOKENS as f64;
    let frobenius = length(&problem.weights);
    for alpha in [0.2f32, 0.4, 1.0] {
        let pooled = |j: usize| (0..TOKENS).fold(0f64, |m, i| m.max(attention[i * TOKENS + j])) as f32;
        let budgets: Vec<u32> = (0..TOKENS).map(|j| budget(TOKENS, pooled(j), alpha, INPUTS)).collect();
        let bound = alpha as f64 * beta * frobenius;
        let seeds = 4000;
        let mut means = [Sample::default(); TOKENS];
        let deltas = [0.5, 0.1, 0.05];
        let mut beyond = [[0u64; TOKENS]; 3];
        problem.estimate(Kind::Paper, &budgets, seeds, |out| {
            for (i, mean) in means.iter_mut().enumerate() {
                let error = norm((0..WIDTH).map(|c| {
                    let at = |j: usize| (out[j * WIDTH + c] - problem.exact[j * WIDTH + c]) as f64;
                    (0..TOKENS).map(|j| attention[i * TOKENS + j] * at(j)).sum()
                }));
                mean.add(error);
                for (delta, beyond) in deltas.iter().zip(&mut beyond) {
                    beyond[i] += u64::from(error > bound / delta);
                }
            }
        });
        for (i, mean) in means.iter().enumerate() {
            assert!(
                mean.mean() <= bound + SIGMAS * mean.error(),
                "alpha {alpha}, query {i}: {} above {bound}",
                mean.mean()
            );
            for (delta, beyond) in deltas.iter().zip(&beyond) {
                let share = beyond[i] as f64 / seeds as f64;
                assert!(
                    share <= *delta,
                    "alpha {alpha}, query {i}: {share} of the errors beyond 1/{delta} of the bound"
                );
            }
        }
    }
}

#[test]
fn heirs_err_less_at_the_same_budgets() {
    let problem = Problem::new();
    let error = |kind: Kind| {
        let mut sum = 0.0;
        problem.estimate(kind, &BUDGETS, 2000, |out| {
            sum += out.iter().zip(&problem.exact).map(|(a, b)| ((a - b) as f64).powi(2)).sum::<f64>();
        });
        sum
    };
    let (paper, calibrated, systematic) = (error(Kind::Paper), error(Kind::Calibrated), error(Kind::Systematic));
    assert!(calibrated < paper && systematic < calibrated, "{paper} {calibrated} {systematic}");
}

#[test]
fn budgets_are_equation_9_rounded_up_within_one_and_all() {
    for (tokens, pooled, alpha, want) in [
        (10, 0.0, 0.4, 1),
        (10, 0.0999, 1.0, 1),
        (10, 0.1001, 1.0, 2),
        (20, 0.5, 0.5, 400),
        (20, 0.5, 0.1, 768),
        (128, 1.0, 1e-30, 768),
        (128, f32::NAN, 0.4, 1),
    ] {
        assert_eq!(budget(tokens, pooled, alpha, 768), want, "{tokens} {pooled} {alpha}");
    }
}

#[test]
fn samples_without_replacement_have_about_as_many_inputs_as_paid_for() {
    let problem = Problem::new();
    let spreads = [Spread::calibrated(&problem.weights, WIDTH, INPUTS, &problem.std)];
    let mut steps = vec![Sample::default(); INPUTS + 1];
    for seed in 0..2000 {
        let draws = Draws::new(&problem.weights, (WIDTH, INPUTS), orders(&spreads, true, (seed, 0)), None, false);
        let by_budget = &draws.heads[0].by_budget;
        assert!(by_budget.windows(2).all(|w| w[0].steps <= w[1].steps), "nested");
        steps.iter_mut().zip(by_budget).for_each(|(sample, budget)| sample.add(budget.steps as f64));
    }
    for (r, sample) in steps.iter().enumerate() {
        let off = (sample.mean() - r as f64).abs();
        assert!(off <= SIGMAS * sample.error() + 1e-9, "budget {r}: {} inputs", sample.mean());
    }
}
