//! Values as precise as attention needs them (`docs/methods/values.md`), trained: by samples (Monte-Carlo attention) and by
//! learned directions in order (graded).
//!
//! This is the form with gradients: what a budget leaves out is multiplied by zero, so that no time is saved here. The engine
//! skips it.

use super::fresh::{Begin, Fresh, Sizes};
use super::input::{Heads, Input, constant, folded, like, plain};
use super::work::{product, softmax};
use super::{Attention, projections};
use crate::layers;
use crate::random::Random;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Values of a token as a mean over `(n · max A / alpha)²` drawn inputs, at most exactly. Time O(n²) for attention, and
/// O(n · Σ budgets) for values in the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonteCarlo {
    /// The larger, the fewer draws.
    pub alpha: f64,
    /// Decides the draws, together with the pass.
    #[serde(default)]
    pub seed: u64,
}

/// The same budgets buy directions: the first ones of a learned basis, which training therefore puts in order. Time as
/// [`MonteCarlo`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graded {
    /// The larger, the fewer directions.
    pub alpha: f64,
}

fn sensible(alpha: f64) -> Result<(), Error> {
    if (1e-6..=1e6).contains(&alpha) {
        return Ok(());
    }
    Err(Error::new(format!("attention: alpha is {alpha}; a number from 0.000001 to 1000000 is expected")))
}

/// Shares `[groups, length, length]` of full attention, and the budget of every key, `[groups, length, 1]`, up to `most`.
fn budgets(heads: &Heads, most: usize, alpha: f64) -> (Tensor<3>, Tensor<3>) {
    let [groups, length, _] = heads.dims();
    let scores = product(heads.scaled_query(), heads.key.clone().transpose());
    let shares = softmax(match heads.padding(length) {
        Some(padding) => scores + padding,
        None => scores,
    });
    // The shares that padding's queries give do not count.
    let given = heads.without_padding(plain(shares.clone()));
    let tokens: Vec<f32> = heads.lengths.iter().map(|real| *real as f32).collect();
    let tokens = constant(tokens, [groups, 1, 1], &given.device());
    let needed = given.max_dim(1) * tokens.div_scalar(alpha);
    let budget = (needed.clone() * needed).ceil().clamp(1.0, most as f64).reshape([groups, length, 1]);
    (shares, budget)
}

/// 1 for the first columns of each row, as many as its budget says: `[groups, length, most]`.
fn first(budget: &Tensor<3>, most: usize) -> Tensor<3> {
    let [groups, length, _] = budget.dims();
    let place = Tensor::<1, Int>::arange(0..most as i64, &budget.device()).float().reshape([1, 1, most]);
    let shape = [groups, length, most];
    place.expand(shape).lower(budget.clone().expand(shape)).float()
}

impl Attention for MonteCarlo {
    fn check(&self) -> Result<(), Error> {
        sensible(self.alpha)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let [batch, length, width] = input.dims();
        let heads = input.all()?;
        let [groups, _, head_width] = heads.dims();
        let (shares, budget) = budgets(&heads, width, self.alpha);
        let weight = input.tensor("value.weight")?.reshape([input.heads, head_width, width]);
        let Drawn { places, over } = self.draw(plain(weight.clone()), input.seed);
        let all = input.heads * width;
        let rows = input.x.clone().reshape([batch * length, width]).select(1, places.clone().reshape([all]));
        let rows = folded(rows, batch, input.heads);
        // The weights of the drawn inputs, `[heads * draws, head width]`.
        let heads_first = Tensor::<1, Int>::arange(0..input.heads as i64, (&places.device(), places.dtype()));
        let places = places + heads_first.mul_scalar(width as i64).reshape([input.heads, 1]);
        let maps = weight.swap_dims(1, 2).reshape([all, head_width]).select(0, places.reshape([all]));
        let maps = heads.own(maps.reshape([input.heads, width * head_width]), width);
        let over = heads.own(over, 1);
        let kept = first(&budget, width) * over / budget.clone();
        let sampled = product(rows * like(kept, &shares), maps);
        let exact = budget.greater_equal_scalar(width as f64).expand([groups, length, head_width]);
        let value = sampled.mask_where(exact, heads.value.clone());
        Ok(product(shares, value))
    }
}

/// As many inputs of each head as there are.
struct Drawn {
    /// Which ones, `[heads, width]`.
    places: Tensor<2, Int>,
    /// One over how likely each was, `[heads, width]`.
    over: Tensor<2>,
}

impl MonteCarlo {
    /// One sequence of inputs per head, each drawn by the squared norms of its weights `[heads, head width, width]`; token j uses
    /// the first of it. Drawn where the weights are: nothing is waited for.
    fn draw(&self, weight: Tensor<3>, seed: u64) -> Drawn {
        let [heads, _, width] = weight.dims();
        let norms = (weight.clone() * weight).sum_dim(1);
        let sums = norms.clone().cumsum(2);
        let total = sums.clone().slice_dim(2, width - 1..width);
        let uniform = |head: usize| {
            let mut random = Random::at(self.seed, &[seed, head as u64]);
            (0..width).map(|_| random.uniform() as f32).collect::<Vec<_>>()
        };
        let drawn = constant((0..heads).flat_map(uniform).collect(), [heads, width, 1], &norms.device());
        let shape = [heads, width, width];
        let below = sums.expand(shape).lower_equal((drawn * total.clone()).expand(shape));
        let places = below.int().sum_dim(2).clamp_max(width as i32 - 1).reshape([heads, width]);
        let chosen = norms.reshape([heads, width]).gather(1, places.clone()).clamp_min(1e-30);
        Drawn { places, over: total.reshape([heads, 1]) / chosen }
    }
}

impl Attention for Graded {
    fn check(&self) -> Result<(), Error> {
        sensible(self.alpha)
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let basis = Fresh::new("basis", &[sizes.width, sizes.width], Begin::Normal(1.0 / (sizes.width as f64).sqrt()));
        projections(sizes).into_iter().chain([basis]).collect()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let [batch, length, width] = input.dims();
        let (query, key) = (input.mapped("query.weight")?, input.mapped("key.weight")?);
        let heads = input.heads_of(query.clone(), key, query);
        let [groups, _, head_width] = heads.dims();
        let (shares, budget) = budgets(&heads, width, self.alpha);
        let rows = layers::linear(input.x.clone().reshape([batch * length, width]), input.tensor("basis")?, None);
        let rows = rows.reshape([batch, 1, length, width]).expand([batch, input.heads, length, width]);
        let rows = rows.reshape([groups, length, width]) * like(first(&budget, width), &shares);
        let maps = input.tensor("value.weight")?.reshape([input.heads, head_width, width]).swap_dims(1, 2);
        let maps = heads.own(maps.reshape([input.heads, width * head_width]), width);
        Ok(product(shares, product(rows, maps)))
    }
}
