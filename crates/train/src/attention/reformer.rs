//! Reformer's hashed attention (Kitaev et al. 2020, <https://arxiv.org/abs/2001.04451>).

use super::blocks::{Table, join, split};
use super::fresh::{Fresh, Sizes, orthogonal};
use super::input::{HIDDEN, Heads, Input, constant, like, places, plain};
use super::permute::Order;
use super::work::{each, product, softmax};
use super::{Attention, knob, rounds, some_tokens};
use crate::random::Random;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Queries that are keys too are hashed by random rotations; tokens are sorted by hash and look at those of the same hash in
/// their own chunk and the one before. Several hashes are weighed by how much each has seen, a key that several show counting
/// once. Time O(n · hashes · chunk) and a sort of each, and O(n · hashes² · chunk) comparisons; memory O(n · hashes · chunk). In the causal form no token reads a later one; which earlier ones are in its chunk may depend
/// on later ones, as in the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reformer {
    /// Different hashes; an even number.
    pub buckets: usize,
    /// Rounds of hashing.
    pub hashes: usize,
    /// Tokens of a chunk.
    pub chunk: usize,
    /// Draws the rotations, together with the pass.
    #[serde(default)]
    pub seed: u64,
}

/// The score of a token with itself: it looks there only if there is nothing else.
const SELF: f32 = -1e5;
/// What comparing a query with a key costs: a difference, where it lies, and what follows for the mask.
const COMPARISON: usize = 4;

impl Attention for Reformer {
    fn check(&self) -> Result<(), Error> {
        rounds("hashes", self.hashes)?;
        some_tokens("chunk", self.chunk)?;
        knob("attention", "buckets", self.buckets, 2..=1 << 12)?;
        if !self.buckets.is_multiple_of(2) {
            return Err(Error::new(format!("attention: buckets is {}; an even number is expected", self.buckets)));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    /// Queries are keys, so that there is one map for both.
    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        ["query.weight", "value.weight"].map(|name| Fresh::map(name, sizes.attention_width, sizes.width)).to_vec()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let query = input.mapped("query.weight")?;
        let value = input.mapped("value.weight")?;
        let heads = input.heads_of(query.clone(), unit(query), value);
        let chunk = self.chunk.min(input.dims()[1]);
        let order = |round| Order::by_bucket(self.hash(&heads, input.seed, round), self.buckets, chunk, &heads.lengths);
        let orders = (0..self.hashes).map(order).collect::<Result<Vec<_>, Error>>()?;
        Ok(weighed((0..self.hashes).map(|round| self.round(&heads, &orders, round)).collect()))
    }
}

/// Rows of length one.
pub(super) fn unit(x: Tensor<3>) -> Tensor<3> {
    let length = (x.clone() * x.clone()).sum_dim(2).add_scalar(1e-12).sqrt();
    x / length
}

/// Rounds of attention with the logarithm of what each has seen: their mean by that. `[groups, length, width]`.
fn weighed(rounds: Vec<(Tensor<3>, Tensor<3>)>) -> Tensor<3> {
    if rounds.len() == 1 {
        return rounds.into_iter().next().map(|round| round.0).unwrap_or_else(|| unreachable!("one round"));
    }
    let (mixed, seen): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    let shares = softmax(Tensor::cat(seen, 2));
    let each =
        mixed.into_iter().enumerate().map(|(round, mixed)| mixed * shares.clone().slice_dim(2, round..round + 1));
    each.reduce(|sum, part| sum + part).unwrap_or_else(|| unreachable!("two rounds at least"))
}

impl Reformer {
    /// The hash of every token, `[groups, length]`: the largest of all directions and their opposites.
    fn hash(&self, heads: &Heads, seed: u64, round: usize) -> Tensor<2, Int> {
        let [groups, length, width] = heads.dims();
        let half = self.buckets / 2;
        let mut random = Random::at(self.seed, &[seed, round as u64]);
        let device = heads.device().without_autodiff();
        let rotation = constant(orthogonal(half, width, &mut random), [1, half, width], &device);
        let key = plain(heads.key.clone());
        let along = product(key, rotation.transpose().expand([groups, width, half]));
        Tensor::cat(vec![along.clone(), along.neg()], 2).argmax(2).reshape([groups, length])
    }

    /// One round: what was mixed, and the logarithm of the sum of what was seen, `[groups, length, 1]`.
    fn round(&self, heads: &Heads, orders: &[Order], round: usize) -> (Tensor<3>, Tensor<3>) {
        let [groups, length, width] = heads.dims();
        let size = self.chunk.min(length);
        let order = &orders[round];
        let device = heads.device().without_autodiff();
        let of = |x: &Tensor<3>| split(order.apply(x.clone()), size);
        let query = of(&heads.scaled_query());
        let blocks = query.dims()[1];
        let before = Table::window(blocks, 1, 0);
        let scores = product(query, before.gather(of(&heads.key)).transpose());
        let shape = scores.dims();
        // A number of each sorted query less that of each key in its window.
        let apart = |of_token: Tensor<3>| {
            each(shape, COMPARISON);
            let sorted = split(order.apply(of_token), size);
            sorted.clone().expand(shape) - before.gather(sorted).swap_dims(2, 3).expand(shape)
        };
        // 1 where a round shows the key to the query. What is behind the end has seat 0, where nobody sits.
        let shown = |order: &Order| apart(order.seats.clone()).sub_scalar(0.5).abs().lower_scalar(1.0).float();
        let here = shown(order);
        let mut mask = here.clone().sub_scalar(1.0).mul_scalar(-HIDDEN);
        if orders.len() > 1 {
            // A key that several rounds show counts once: each takes its share, one over their number.
            let others = orders.iter().enumerate().filter(|(other, _)| *other != round);
            let rounds = others.fold(here, |sum, (_, other)| sum + shown(other));
            mask = mask - rounds.clamp_min(1.0).log();
        }
        let earlier = apart(places(length, &device).add_scalar(1.0).expand([groups, length, 1]));
        mask = mask + earlier.clone().equal_scalar(0.0).float().mul_scalar(SELF);
        if heads.causal {
            mask = mask + earlier.lower_scalar(0.0).float().mul_scalar(HIDDEN);
        }
        if let Some(padding) = heads.padding(length) {
            let padding = order.apply(plain(padding).reshape([groups, length, 1]));
            mask = mask + before.gather(split(padding, size)).swap_dims(2, 3);
        }
        if let Some(absent) = before.mask(size, |_| false, &device) {
            mask = mask + absent;
        }
        let mask = like(mask, &scores);
        let scores = scores + mask;
        let most = scores.clone().detach().max_dim(3);
        let seen = (scores.clone() - most.clone()).exp().sum_dim(3).log() + most;
        let mixed = product(softmax(scores), before.gather(of(&heads.value)));
        let unsorted = |x: Tensor<4>| order.undo(join(x, length));
        let (mixed, seen) = (unsorted(mixed), unsorted(seen));
        debug_assert_eq!(mixed.dims(), [groups, length, width]);
        (mixed, seen)
    }
}
