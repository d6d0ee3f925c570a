//! From attention to budgets: what is paid for which token. Knows no weights.

use super::budget::HeadPicks;
use super::draw::Budget;
use sparing_kernels::staircase::Pick;
use sparing_model::{Attention, Length, Mca, Pooling, Sampler};
use std::ops::Range;

/// A token whose budget is this share of the exact product's cost is computed exactly: that is as fast.
const FULL_SHARE: f64 = 0.75;
/// A sequence whose values would cost this share of the exact ones is computed exactly: so is that.
const DENSE_SHARE: f64 = 0.75;
/// What an int8 product costs beside an f32 one: a word holds four numbers.
const INT8_COST: f64 = 0.25;

/// What one layer pays for values.
pub(crate) struct Rule {
    pub(crate) layer: usize,
    pub(crate) heads: usize,
    /// Width of one head.
    pub(crate) width: usize,
    /// Width of the rows that values are computed from: d.
    pub(crate) inputs: usize,
    pub(crate) alpha: f32,
    pub(crate) sampler: Sampler,
    pub(crate) pooling: Pooling,
    pub(crate) length: Length,
    strict: bool,
    /// Seconds of a cheap operation beside an exact one.
    slower: f64,
}

/// Equation 9: `r = (n · pooled / alpha)²`, rounded up, from 1 to d.
pub(crate) fn budget(tokens: usize, pooled: f32, alpha: f32, inputs: usize) -> u32 {
    let root = tokens as f64 * pooled as f64 / alpha as f64;
    // Also for what is not a number: a float becomes the nearest integer in range, NaN becomes 0.
    ((root * root).ceil() as u64).clamp(1, inputs as u64) as u32
}

impl Rule {
    pub(super) fn new((layer, attention): (usize, &Attention), (mca, alpha): (&Mca, f32), slower: f64) -> Rule {
        let (heads, width, inputs) = (attention.heads, attention.head_width, attention.value.inputs);
        let Mca { sampler, pooling, length, strict, .. } = *mca;
        Rule { layer, heads, width, inputs, alpha, sampler, pooling, length, strict, slower }
    }

    /// n of equation 9.
    fn length(&self, tokens: usize) -> usize {
        match self.length {
            Length::Actual => tokens,
            Length::Padded(length) => length,
        }
    }

    /// Budgets from which on a token is computed exactly.
    fn full_from(&self) -> u32 {
        let share = FULL_SHARE / self.slower;
        if self.strict { self.inputs as u32 } else { (share * self.inputs as f64).ceil() as u32 }
    }

    /// What a budget of r inputs buys: draws, or directions at the cost of projecting and turning back.
    pub(super) fn buys(&self, r: u32) -> u32 {
        match self.sampler {
            Sampler::Paper | Sampler::Calibrated | Sampler::Systematic => r,
            Sampler::Graded => (r as usize * self.width / (self.inputs + self.width)) as u32,
            Sampler::Mean | Sampler::Int8 => 0,
        }
    }

    /// Budgets of one sequence and head in terms of equation 9, from pooled attention; `queries` as were pooled.
    fn budgets(&self, pooled: &[f32], queries: usize, out: &mut Vec<u32>) {
        let n = self.length(pooled.len());
        // The mean's sum is over queries that exist.
        let share = if self.pooling == Pooling::Mean { 1.0 / queries.max(1) as f32 } else { 1.0 };
        out.clear();
        out.extend(pooled.iter().map(|p| budget(n, p * share, self.alpha, self.inputs)));
    }

    /// The budgets, each with whether it means exactly, for tests and pictures: `f(token of the sequence, budget, exact)`.
    pub(super) fn each(
        &self,
        picks: &mut HeadPicks,
        pooled: &[f32],
        queries: usize,
        mut f: impl FnMut(usize, u32, bool),
    ) {
        let mut budgets = std::mem::take(&mut picks.budgets);
        self.budgets(pooled, queries, &mut budgets);
        let exact = match self.sampler {
            Sampler::Paper | Sampler::Calibrated | Sampler::Systematic | Sampler::Graded => None,
            Sampler::Mean => Some(1.0),
            Sampler::Int8 => Some(1.0 - INT8_COST),
        };
        match exact {
            None => budgets.iter().enumerate().for_each(|(i, r)| f(i, *r, *r >= self.full_from())),
            Some(gain) => {
                // As many of the most attended tokens exactly as the budgets buy together.
                let all: f64 = budgets.iter().map(|r| *r as f64).sum::<f64>() / self.inputs as f64;
                let count = ((all - (1.0 - gain) * budgets.len() as f64) / gain + 1e-9).floor().max(0.0) as usize;
                let order = &mut picks.order;
                order.clear();
                order.extend(0..budgets.len() as u32);
                let key = |i: u32| pooled[i as usize];
                order.sort_unstable_by(|a, b| key(*b).total_cmp(&key(*a)).then(a.cmp(b)));
                for (place, i) in order.iter().enumerate() {
                    f(*i as usize, budgets[*i as usize], place < count);
                }
            }
        }
        picks.budgets = budgets;
    }

    /// Operations of one token and head that is computed cheaply, from what its budget buys.
    pub(crate) fn cost_of(&self, bought: u32) -> u64 {
        let (inputs, width) = (self.inputs as u64, self.width as u64);
        match self.sampler {
            Sampler::Paper | Sampler::Calibrated | Sampler::Systematic => 2 * bought as u64 * width,
            Sampler::Graded => 2 * bought as u64 * (inputs + width),
            Sampler::Mean => 0,
            Sampler::Int8 => 2 * inputs * width,
        }
    }

    /// Operations of one token and head.
    pub(crate) fn cost(&self, r: u32, exact: bool) -> u64 {
        if exact { 2 * (self.inputs * self.width) as u64 } else { self.cost_of(self.buys(r)) }
    }

    /// What the clock sees of it, in exact operations.
    fn time_cost(&self, r: u32, exact: bool) -> f64 {
        let each = match self.sampler {
            _ if exact => 1.0,
            Sampler::Int8 => INT8_COST,
            _ => self.slower,
        };
        self.cost(r, exact) as f64 * each
    }

    /// Decides what is computed how for one head of a sequence, rows `rows`, unless all of it is exact. `pooled`: the
    /// sequence's tokens.
    pub(crate) fn pick(
        &self,
        picks: &mut HeadPicks,
        rows: Range<usize>,
        pooled: &[f32],
        queries: usize,
        dense: bool,
        draws: Option<&[Budget]>,
    ) {
        let mut spent = picks.spent;
        let (mut full, mut cheap) = (std::mem::take(&mut picks.full), std::mem::take(&mut picks.cheap));
        self.each(picks, pooled, queries, |token, r, exact| {
            let exact = exact || dense;
            let row = (rows.start + token) as u32;
            let drawn = draws.map(|draws| draws[r as usize]).filter(|_| !exact);
            let Budget { steps: budget, factor } = drawn.unwrap_or(Budget { steps: self.buys(r), factor: 1.0 });
            let cost = self.cost(drawn.map_or(r, |drawn| drawn.steps), exact);
            (if exact { &mut full } else { &mut cheap }).push(Pick { row, budget, factor });
            spent.add(self, r, exact, cost);
        });
        (picks.full, picks.cheap, picks.spent) = (full, cheap, spent);
    }

    /// Whether computing a sequence exactly would take no longer; `pooled(head)` are its tokens.
    pub(crate) fn is_dense<'a>(
        &self,
        queries: usize,
        picks: &mut HeadPicks,
        pooled: impl Fn(usize) -> &'a [f32],
    ) -> bool {
        if self.strict {
            return false;
        }
        let (mut cost, mut all) = (0.0, 0.0);
        for head in 0..self.heads {
            self.each(picks, pooled(head), queries, |_, r, exact| {
                cost += self.time_cost(r, exact);
                all += 2.0 * (self.inputs * self.width) as f64;
            });
        }
        cost > DENSE_SHARE * all
    }
}
