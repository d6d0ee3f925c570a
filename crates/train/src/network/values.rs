//! Values computed as precisely as attention needs them (`docs/methods/values.md`), dense: what is not drawn is multiplied
//! by zero. Budgets and draws are the engine's and have no gradient.

use super::pass::Pass;
use burn::tensor::{Tensor, TensorData};
use sparing_engine::Recipe;
use sparing_model::{Attention, Error, HeadRows, LayerCalibration, Pooling};

/// The queries of each sequence whose attention counts in the last layer that has one.
pub(super) enum Asked {
    /// All.
    All,
    /// The one that the head reads, if it reads one.
    Head,
    /// These rows.
    Rows(Vec<Vec<usize>>),
}

impl Pass<'_> {
    /// How a layer's values are economised, if they are.
    pub(super) fn recipe(&self, (layer, attention): (usize, &Attention)) -> Result<Option<Recipe>, Error> {
        let Some(mca) = &self.plan.mca else { return Ok(None) };
        let Some(alpha) = mca.alpha_of(layer) else { return Ok(None) };
        let weights = numbers(self.weights(&attention.value)?.0)?;
        let seed = self.mode.draws.unwrap_or(mca.seed);
        Recipe::new((layer, attention), (mca, alpha), &weights, self.known(layer), seed).map(Some)
    }

    fn known(&self, layer: usize) -> Option<&LayerCalibration> {
        self.calibration.and_then(|calibration| calibration.layers.get(layer))
    }

    /// Values `[batch, heads, length, head_width]` of rows `[batch * length, inputs]`, within the budgets that probabilities
    /// `[batch, heads, length, length]` give.
    pub(super) fn economised_values(
        &self,
        (layer, attention): (usize, &Attention),
        recipe: &Recipe,
        rows: Tensor<2>,
        probabilities: &Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        let (count, length) = (self.batch.count(), self.batch.length);
        let Attention { heads, head_width: width, .. } = *attention;
        let inputs = attention.value.inputs;
        let multipliers = self.multipliers(layer, recipe, probabilities)?;
        let (weights, bias) = self.weights(&attention.value)?;
        // Per head from inputs to its values.
        let maps = weights.reshape([heads, width, inputs]).swap_dims(1, 2);
        let rows = self.wide(rows).reshape([1, count * length, inputs]);
        let constant = |values: &[f32], shape: [usize; 3]| -> Tensor<3> {
            Tensor::from_data(TensorData::new(values.to_vec(), shape), &self.device)
        };
        let known = self.known(layer).filter(|_| recipe.centred());
        let mean = known.map(|known| constant(&known.mean, [1, 1, inputs]));
        let values = match (known, mean) {
            (Some(known), Some(mean)) if recipe.by_direction() => {
                let basis = constant(&known.basis, [heads, width, width]);
                let centred = (rows - mean.clone()).expand([heads, count * length, inputs]).matmul(maps.clone());
                let kept = centred.matmul(basis.clone()) * multipliers;
                kept.matmul(basis.swap_dims(1, 2)) + mean.expand([heads, 1, inputs]).matmul(maps)
            }
            (_, Some(mean)) => (rows * multipliers.clone() + mean * multipliers.neg().add_scalar(1.0)).matmul(maps),
            (_, None) => (rows * multipliers).matmul(maps),
        };
        let values = match bias {
            Some(bias) => values + bias.reshape([heads, 1, width]),
            None => values,
        };
        Ok(self.narrow(values.reshape([heads, count, length, width]).swap_dims(0, 1)))
    }

    /// `[heads, batch * length, steps]`, 1 where nothing is economised.
    fn multipliers(&self, layer: usize, recipe: &Recipe, probabilities: &Tensor<4>) -> Result<Tensor<3>, Error> {
        let [count, heads, length, _] = probabilities.dims();
        let all = numbers(probabilities.clone())?;
        let there = numbers(self.presence.present.clone().float())?;
        let steps = recipe.steps();
        let mut found = vec![1f32; heads * count * length * steps];
        for number in 0..count {
            let tokens: Vec<usize> = (0..length).filter(|token| there[number * length + token] > 0.0).collect();
            let queries = self.queries(layer, number, &tokens);
            let mut pooled = Vec::with_capacity(heads * tokens.len());
            for head in 0..heads {
                let square = &all[(number * heads + head) * length * length..][..length * length];
                let given = |token: usize| queries.iter().map(move |query| square[query * length + token]);
                pooled.extend(tokens.iter().map(|token| pool(recipe.pooling(), given(*token))));
            }
            recipe.multipliers(&pooled, queries.len(), |head, token, multipliers| {
                let row = head * count * length + self.batch.row(number, tokens[token]);
                found[row * steps..(row + 1) * steps].copy_from_slice(multipliers);
            });
        }
        Ok(Tensor::from_data(TensorData::new(found, [heads, count * length, steps]), &self.device))
    }

    /// The queries of a sequence whose attention counts: in the last attention those that are asked for.
    fn queries(&self, layer: usize, number: usize, tokens: &[usize]) -> Vec<usize> {
        let last = self.architecture.last_attention() == Some(layer);
        let end = self.batch.lengths[number] - 1;
        match (&self.asked, self.architecture.head.rows) {
            (Asked::Rows(rows), _) if last => rows[number].clone(),
            (Asked::Head, HeadRows::First) if last => vec![0],
            (Asked::Head, HeadRows::Last) if last => vec![end],
            _ => tokens.to_vec(),
        }
    }
}

/// One number of what all queries give to a token, as the engine has it.
fn pool(pooling: Pooling, given: impl Iterator<Item = f32>) -> f32 {
    match pooling {
        Pooling::Max => given.fold(0.0, f32::max),
        Pooling::Mean => given.sum(),
        Pooling::Median => {
            let mut all: Vec<f32> = given.collect();
            let middle = all.len() / 2;
            if all.is_empty() { 0.0 } else { *all.select_nth_unstable_by(middle, f32::total_cmp).1 }
        }
    }
}

/// The numbers of a tensor, without its gradient.
pub(super) fn numbers<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Error> {
    let numbers = tensor.inner().try_into_vec_as::<f32>();
    numbers.map_err(|e| crate::device::unread("attention", e))
}
