//! Values as precise as attention needs them (`docs/methods/values.md`), trained: by samples (Monte-Carlo attention) and by
//! learned directions in order (graded).
//!
//! This is the form with gradients: what a budget leaves out is multiplied by zero, so that no time is saved here. The engine
//! skips it.

use super::fresh::{Begin, Fresh, Sizes};
use super::input::{Heads, Input, constant, folded, plain};
use super::work::{product, softmax};
use super::{Attention, projections};
use crate::layers;
use crate::random::Random;
use burn::tensor::{Int, Tensor, TensorData};
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

fn above_zero(alpha: f64) -> Result<(), Error> {
    if alpha > 0.0 { Ok(()) } else { Err(Error::new("attention: alpha must be above 0")) }
}

/// Shares `[groups, length, length]` of full attention, and the budget of every key, `[groups, length, 1]`, up to `most`.
fn budgets(heads: &Heads, most: usize, alpha: f64) -> (Tensor<3>, Tensor<3>) {
    let [groups, length, _] = heads.dims();
    let scores = product(heads.scaled_query(), heads.key.clone().transpose());
    let shares = softmax(match heads.padding(length) {
        Some(padding) => scores + padding,
        None => scores,
    });
    let mut given = plain(shares.clone());
    if let Some(present) = heads.present(length) {
        given = given * plain(present);
    }
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

/// In the graph of gradients that another tensor is in.
fn like(constant: Tensor<3>, other: &Tensor<3>) -> Tensor<3> {
    if other.device().is_autodiff() { constant.autodiff() } else { constant }
}

impl Attention for MonteCarlo {
    fn check(&self) -> Result<(), Error> {
        above_zero(self.alpha)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let [batch, length, width] = input.dims();
        let heads = input.all()?;
        let [groups, _, head_width] = heads.dims();
        let (shares, budget) = budgets(&heads, width, self.alpha);
        let weight = input.tensor("value.weight")?;
        let numbers = plain(weight.clone()).try_into_vec_as::<f32>();
        let numbers = numbers.map_err(|e| Error::new(format!("the device gave no weights: {e:?}")))?;
        // One sequence of inputs per head, by the squared norms of their weights; token j uses the first of it.
        let (mut drawn, mut over) = (Vec::new(), Vec::new());
        for (head, map) in numbers.chunks_exact(head_width * width).enumerate() {
            let norm = |i: usize| map.iter().skip(i).step_by(width).map(|w| f64::from(*w).powi(2)).sum::<f64>();
            let norms: Vec<f64> = (0..width).map(norm).collect();
            let total: f64 = norms.iter().sum();
            let mut random = Random::at(self.seed, &[input.seed, head as u64]);
            for _ in 0..width {
                let mut left = random.uniform() * total;
                let place = norms.iter().position(|norm| {
                    left -= norm;
                    left < 0.0
                });
                let place = place.unwrap_or(width - 1);
                drawn.push((place, head));
                over.push((total / norms[place].max(1e-30)) as f32);
            }
        }
        let device = weight.device().without_autodiff();
        let indices = |values: Vec<i32>| -> Tensor<1, Int> {
            let count = values.len();
            Tensor::from_data(TensorData::new(values, [count]), &device)
        };
        let columns = indices(drawn.iter().map(|(place, _)| *place as i32).collect());
        let rows = input.x.clone().reshape([batch * length, width]).select(1, columns);
        let rows = folded(rows, batch, input.heads);
        // The weights of the drawn inputs, `[heads * draws, head width]`.
        let turned = weight.reshape([input.heads, head_width, width]).swap_dims(1, 2);
        let places = indices(drawn.iter().map(|(place, head)| (head * width + place) as i32).collect());
        let maps = turned.reshape([input.heads * width, head_width]).select(0, places);
        let maps = heads.own(maps.reshape([input.heads, width * head_width]), width);
        let over = constant(over, [input.heads, width], &device);
        let over = heads.own(over, 1);
        let kept = first(&budget, width) * over / budget.clone();
        let sampled = product(rows * like(kept, &shares), maps);
        let exact = budget.greater_equal_scalar(width as f64).expand([groups, length, head_width]);
        let value = sampled.mask_where(exact, heads.value.clone());
        Ok(product(shares, value))
    }
}

impl Attention for Graded {
    fn check(&self) -> Result<(), Error> {
        above_zero(self.alpha)
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
