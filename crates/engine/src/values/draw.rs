//! Which inputs are drawn, and the factors that make sums of draws unbiased.

use crate::random::Random;
use sparing_kernels::staircase::Drawn;

/// By what weights one head's inputs are drawn.
pub(crate) struct Spread {
    /// One number per input, adding up to one.
    share: Vec<f64>,
}

impl Spread {
    /// Equation 6: `p(i) = ||W_h[i]||² / ||W_h||_F²`. Weights `[width, inputs]`.
    pub(crate) fn norms(weights: &[f32], width: usize, inputs: usize) -> Spread {
        Spread::of(squared_norms(weights, width, inputs))
    }

    /// `p(i) ~ std(x_i) ||W_h[i]||`: the least variance for rows that vary so.
    pub(crate) fn calibrated(weights: &[f32], width: usize, inputs: usize, std: &[f32]) -> Spread {
        let norms = squared_norms(weights, width, inputs);
        Spread::of(norms.iter().zip(std).map(|(norm, std)| norm.sqrt() * (*std as f64).max(0.0)).collect())
    }

    fn of(mut weights: Vec<f64>) -> Spread {
        let total: f64 = weights.iter().sum();
        if total > 0.0 && total.is_finite() {
            weights.iter_mut().for_each(|w| *w /= total);
        } else {
            // A head of zeros: whatever is drawn adds nothing.
            let all = weights.len() as f64;
            weights.iter_mut().for_each(|w| *w = 1.0 / all);
        }
        Spread { share: weights }
    }

    pub(crate) fn bytes(&self) -> usize {
        8 * self.share.len()
    }
}

/// `||W[.., i]||²` of every input i.
fn squared_norms(weights: &[f32], width: usize, inputs: usize) -> Vec<f64> {
    let mut norms = vec![0f64; inputs];
    for row in weights[..width * inputs].chunks_exact(inputs) {
        norms.iter_mut().zip(row).for_each(|(n, w)| *n += (*w as f64).powi(2));
    }
    norms
}

/// The draws of one layer and seed: one sequence per head, which every token uses from its beginning.
pub(crate) struct Draws {
    pub(crate) heads: Vec<HeadDraws>,
}

/// The draws of one head.
pub(crate) struct HeadDraws {
    pub(crate) drawn: Drawn,
    /// What every budget from 0 on means.
    pub(crate) by_budget: Vec<Budget>,
}

/// What a budget means for a sequence of draws.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Draws to use, from the first on.
    pub(crate) steps: u32,
    /// The estimator's factor, see [`Drawn`].
    pub(crate) factor: f32,
}

impl Draws {
    pub(crate) fn new(
        weights: &[f32],
        (width, inputs): (usize, usize),
        orders: Vec<Order>,
        mean: Option<&[f32]>,
        narrow: bool,
    ) -> Draws {
        let heads = orders.into_iter().zip(weights.chunks_exact(width * inputs)).map(|(order, weights)| {
            let Order { index, scale, floor, by_budget } = order;
            HeadDraws { drawn: Drawn::pack(weights, width, inputs, &index, &scale, &floor, mean, narrow), by_budget }
        });
        Draws { heads: heads.collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.heads.iter().map(|head| head.drawn.bytes() + 8 * head.by_budget.len()).sum()
    }
}

/// The order of every head's draws.
pub(crate) fn orders(spreads: &[Spread], without_replacement: bool, (seed, layer): (u64, usize)) -> Vec<Order> {
    let heads = spreads.iter().enumerate().map(|(head, spread)| {
        // Every head of every layer has a stream of its own.
        let mut random = Random::stream(seed, (layer as u64) << 32 | head as u64);
        if without_replacement { systematic(spread, &mut random) } else { independent(spread, &mut random) }
    });
    heads.collect()
}

/// A sequence of draws in the terms of [`Drawn`].
pub(crate) struct Order {
    index: Vec<u32>,
    scale: Vec<f32>,
    floor: Vec<f32>,
    by_budget: Vec<Budget>,
}

impl Order {
    /// What a budget multiplies every input by, one number per input: 0 where it is not drawn.
    pub(super) fn multipliers(&self, budget: u32, out: &mut [f32]) {
        let Budget { steps, factor } = self.by_budget[budget as usize];
        out.fill(0.0);
        let draws = self.index.iter().zip(&self.scale).zip(&self.floor);
        for ((index, scale), floor) in draws.take(steps as usize) {
            out[*index as usize] += scale * floor.max(factor);
        }
    }
}

/// Equation 5: `H[j] = 1/r Σ X[j, s_k] W[s_k] / p(s_k)`, the s_k independent and with replacement. As many draws as inputs.
fn independent(spread: &Spread, random: &mut Random) -> Order {
    let inputs = spread.share.len();
    let mut sum = 0.0;
    let cumulated: Vec<f64> = spread
        .share
        .iter()
        .map(|p| {
            sum += p;
            sum
        })
        .collect();
    let draw = |_| {
        let u = random.unit() * sum;
        // An input of probability zero is never the first above u, except by rounding at the very end.
        let i = cumulated.partition_point(|c| *c <= u).min(inputs - 1);
        if spread.share[i] > 0.0 { i } else { (0..inputs).rev().find(|i| spread.share[*i] > 0.0).unwrap_or(i) }
    };
    let index: Vec<usize> = (0..inputs).map(draw).collect();
    let scale = index.iter().map(|i| (1.0 / spread.share[*i]) as f32).collect();
    let by_budget = (0..=inputs).map(|r| Budget { steps: r as u32, factor: 1.0 / r.max(1) as f32 }).collect();
    Order { index: index.iter().map(|i| *i as u32).collect(), scale, floor: vec![0.0; inputs], by_budget }
}

/// Without replacement: input i belongs to the sample of budget r if `u_i <= min(1, c_r w_i)`, where c_r makes these
/// probabilities add up to r, and weighs their inverse (Horvitz and Thompson 1952): `max(w_i, 1/c_r) / w_i`. The u_i stay the
/// same for all budgets, so samples are nested and in one order, that of `u_i / w_i`; each is uniform, so every budget is
/// unbiased; and they are spread evenly (a random permutation of strata, Brewer's collocated sampling), so samples have
/// about r inputs.
fn systematic(spread: &Spread, random: &mut Random) -> Order {
    let w = &spread.share;
    let inputs = w.len();
    let mut strata: Vec<usize> = (0..inputs).collect();
    for i in (1..inputs).rev() {
        strata.swap(i, (random.unit() * (i + 1) as f64) as usize);
    }
    let u: Vec<f64> = strata.iter().map(|s| (*s as f64 + random.unit()) / inputs as f64).collect();
    // Inputs that never vary are never needed: they come last, and count for nothing.
    let enters = |i: usize| if w[i] > 0.0 { u[i] / w[i] } else { f64::INFINITY };
    let mut index: Vec<usize> = (0..inputs).collect();
    index.sort_by(|a, b| enters(*a).total_cmp(&enters(*b)).then(a.cmp(b)));
    let mut sorted = w.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut certain, mut rest) = (0, sorted.iter().sum::<f64>());
    let useful = sorted.iter().filter(|w| **w > 0.0).count();
    let by_budget = (0..=inputs).map(|r| {
        // The largest are certain: as long as the next would be more than certain, it is taken out.
        while certain < r.min(useful) && (r - certain) as f64 * sorted[certain] >= rest {
            rest -= sorted[certain];
            certain += 1;
        }
        if certain >= useful || r >= useful {
            return Budget { steps: useful as u32, factor: 0.0 };
        }
        let c = (r - certain) as f64 / rest;
        let steps = index.partition_point(|i| u[*i] <= (c * w[*i]).min(1.0)) as u32;
        Budget { steps, factor: if c > 0.0 { (1.0 / c) as f32 } else { 0.0 } }
    });
    let by_budget = by_budget.collect();
    let share = |i: &usize| w[*i];
    let scale = index.iter().map(share).map(|w| if w > 0.0 { (1.0 / w) as f32 } else { 0.0 }).collect();
    let floor = index.iter().map(share).map(|w| w as f32).collect();
    Order { index: index.iter().map(|i| *i as u32).collect(), scale, floor, by_budget }
}
