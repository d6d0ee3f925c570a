//! Sparse Sinkhorn attention (Tay et al. 2020, <https://arxiv.org/abs/2002.11296>).

use super::blocks::{Part, Table, band, join, masked, split, together};
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::{product, softmax};
use super::{Attention, rounds, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Blocks are sorted softly: a matrix of how well the mean queries of blocks fit the mean keys of blocks, balanced by
/// Sinkhorn's method, gives every block one mixture of blocks beside its own. (The paper's sorting network maps a block's sum to
/// as many numbers as there are blocks; this form has no tensor of the length's size.) The causal form mixes earlier blocks
/// only, by softmax, and begins a block's mean query with its first token. Time O(n · block + n² / block), memory O(n · block +
/// (n / block)²).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinkhorn {
    /// Tokens of a block.
    pub block: usize,
    /// Rounds of balancing.
    pub rounds: usize,
    /// Below 1, sorting is sharper.
    pub temperature: f64,
}

impl Attention for Sinkhorn {
    fn check(&self) -> Result<(), Error> {
        if !(1e-3..=1e3).contains(&self.temperature) {
            let message = format!("attention: temperature is {}; 0.001 to 1000 is expected", self.temperature);
            return Err(Error::new(message));
        }
        rounds("rounds", self.rounds)?;
        some_tokens("block", self.block)
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Sinkhorn {
    /// How much of each block every block gets, `[groups, blocks, blocks]`, in all one exactly; `apart` is added to how well they fit.
    pub(super) fn shares(&self, query: Tensor<4>, key: Tensor<4>, apart: Option<Tensor<3>>, causal: bool) -> Tensor<3> {
        let [groups, blocks, size, width] = key.dims();
        let asked = if causal { query.slice_dim(2, 0..1) } else { query.mean_dim(2) };
        let mean = |x: Tensor<4>| x.reshape([groups, blocks, width]);
        let found = product(mean(asked), mean(key.mean_dim(2)).transpose());
        let mut logs = found.mul_scalar((size as f64).sqrt() / self.temperature);
        if causal {
            // The first block has nobody before it: it gets its own keys again, which `mix` hides.
            let later = |at: usize| if at % blocks >= (at / blocks).max(1) { HIDDEN } else { 0.0 };
            let mask = constant((0..blocks * blocks).map(later).collect(), [1, blocks, blocks], &logs.device());
            return softmax(logs + mask);
        }
        if let Some(apart) = apart {
            logs = logs + apart;
        }
        for _ in 0..self.rounds {
            logs = logs.clone() - sums(logs, 1);
            logs = logs.clone() - sums(logs, 2);
        }
        logs.exp()
    }

    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [groups, length, width] = heads.dims();
        let size = self.block.min(length);
        let device = heads.device();
        let [query, key, value] = [heads.scaled_query(), heads.key.clone(), heads.value.clone()]
            .map(|x| split(heads.without_padding(x), size));
        let blocks = query.dims()[1];
        let shares = self.shares(query.clone(), key.clone(), apart(heads, blocks, size), heads.causal);
        let sorted = |x: Tensor<4>| {
            let columns = x.dims()[3];
            let mixed = product(shares.clone(), x.reshape([groups, blocks, size * columns]));
            mixed.reshape([groups, blocks, size, columns])
        };
        let own = Table::window(blocks, 0, 0);
        let past = heads.causal.then(|| band(size, 0, 0, |q, k| k <= q, &device));
        let scores = product(query.clone(), key.clone().transpose());
        let scores = masked(scores, [own.padding(heads, blocks, size), past]);
        let mut parts = vec![Part { scores, values: value.clone() }];
        if blocks > 1 {
            let mut scores = product(query, sorted(key).transpose());
            if let Some(padding) = heads.padding(blocks * size) {
                // A sorted place counts as far as tokens are in it.
                let there = padding.div_scalar(-HIDDEN).add_scalar(1.0).reshape([groups, blocks, size, 1]);
                scores = scores + sorted(there).swap_dims(2, 3).add_scalar(1e-9).log();
            }
            if heads.causal {
                let first = |at: usize| if at < size { HIDDEN } else { 0.0 };
                scores = scores + constant((0..blocks * size).map(first).collect(), [1, blocks, 1, size], &device);
            }
            parts.push(Part { scores, values: sorted(value) });
        }
        let mixed = join(together(parts), length);
        debug_assert_eq!(mixed.dims(), [groups, length, width]);
        mixed
    }
}

/// Keeps blocks of padding and blocks with tokens from each other: balanced apart, neither changes the other's shares.
fn apart(heads: &Heads, blocks: usize, size: usize) -> Option<Tensor<3>> {
    let [groups, length, _] = heads.dims();
    let filled: Vec<usize> = heads.lengths.iter().map(|real| real.min(&length).div_ceil(size)).collect();
    if filled.iter().all(|filled| *filled == blocks) {
        return None;
    }
    let value = |filled: usize, at: usize| match (at / blocks < filled) == (at % blocks < filled) {
        true => 0.0,
        false => HIDDEN,
    };
    let values = filled.iter().flat_map(|filled| (0..blocks * blocks).map(move |at| value(*filled, at))).collect();
    Some(constant(values, [groups, blocks, blocks], &heads.device()))
}

/// The logarithm of the sum along an axis.
fn sums(logs: Tensor<3>, axis: usize) -> Tensor<3> {
    let most = logs.clone().detach().max_dim(axis);
    (logs - most.clone()).exp().sum_dim(axis).log() + most
}
