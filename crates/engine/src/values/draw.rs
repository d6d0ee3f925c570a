//! Which inputs are drawn, and the factors that make sums of draws unbiased.

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
    /// The estimator's factor for every budget, from 0 on.
    pub(crate) factors: Vec<f32>,
}

impl Draws {
    pub(crate) fn new(
        weights: &[f32],
        (width, inputs): (usize, usize),
        spreads: &[Spread],
        mean: Option<&[f32]>,
        without_replacement: bool,
        (seed, layer): (u64, usize),
    ) -> Draws {
        let heads = spreads.iter().enumerate().map(|(head, spread)| {
            let weights = &weights[head * width * inputs..(head + 1) * width * inputs];
            // Every head of every layer has a stream of its own.
            let mut random = Random::new(seed, (layer as u64) << 32 | head as u64);
            let order =
                if without_replacement { priority(spread, &mut random) } else { independent(spread, &mut random) };
            let Order { index, scale, floor, factors } = order;
            HeadDraws { drawn: Drawn::pack(weights, width, inputs, &index, &scale, &floor, mean), factors }
        });
        Draws { heads: heads.collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.heads.iter().map(|head| head.drawn.bytes() + 4 * head.factors.len()).sum()
    }
}

/// A sequence of draws in the terms of [`Drawn`].
struct Order {
    index: Vec<u32>,
    scale: Vec<f32>,
    floor: Vec<f32>,
    factors: Vec<f32>,
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
    let factors = (0..=inputs).map(|r| 1.0 / r.max(1) as f32).collect();
    Order { index: index.iter().map(|i| *i as u32).collect(), scale, floor: vec![0.0; inputs], factors }
}

/// Without replacement, and nested: priority sampling (Duffield, Lund and Thorup 2007). Inputs in descending order of
/// `w_i / u_i`; with budget r the threshold t is the (r+1)-th of these, input i was certain to come with probability
/// `min(1, w_i / t)` given t, and weighs the inverse of that: `max(w_i, t) / w_i`.
fn priority(spread: &Spread, random: &mut Random) -> Order {
    let inputs = spread.share.len();
    let priorities: Vec<f64> = spread.share.iter().map(|w| w / random.unit().max(1e-300)).collect();
    let mut index: Vec<usize> = (0..inputs).collect();
    index.sort_by(|a, b| priorities[*b].total_cmp(&priorities[*a]).then(a.cmp(b)));
    let share = |i: &usize| spread.share[*i];
    let scale = index.iter().map(share).map(|w| if w > 0.0 { (1.0 / w) as f32 } else { 0.0 }).collect();
    let floor = index.iter().map(share).map(|w| w as f32).collect();
    let factors = (0..=inputs).map(|r| index.get(r).map_or(0.0, |i| priorities[*i] as f32)).collect();
    Order { index: index.iter().map(|i| *i as u32).collect(), scale, floor, factors }
}

/// SplitMix64 (Steele, Lea and Flood 2014), a stream per seed and number.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Random {
        let mut first = Random(seed);
        let start = first.next() ^ stream.wrapping_mul(0xd129_0d3d_9a2b_8b4d);
        let mut random = Random(start);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least 0, below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
