//! Performer (Choromanski et al. 2020, <https://arxiv.org/abs/2009.14794>): FAVOR+.

use super::fresh::{Begin, Fresh, Sizes};
use super::input::Input;
use super::work::{map, softmax, softmax_and_sums};
use super::{Attention, kernelised, knob, projections};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Positive features whose products are `exp(q · k / √d)` on average, along directions that are orthogonal in groups. Time
/// O(n · features · d), memory O(n · features).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Performer {
    /// Directions.
    pub features: usize,
    /// What a feature is.
    #[serde(default)]
    pub function: Function,
}

/// What a feature of a direction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// `exp(ω · x - |x|² / 2)`: softmax's.
    #[default]
    Softmax,
    /// `max(ω · x, 0)`, and a little: the paper's generalised attention.
    Relu,
}

/// Added to features that may vanish.
const LEAST: f64 = 1e-3;

impl Attention for Performer {
    fn check(&self) -> Result<(), Error> {
        knob("attention", "features", self.features, 1..=1 << 16)
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let directions = Fresh::new("directions", &[self.features, sizes.head_width()], Begin::Orthogonal);
        projections(sizes).into_iter().chain([directions.fixed()]).collect()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let directions = input.tensor("directions")?;
        let width = directions.dims()[1];
        let directions = directions.div_scalar((width as f64).powf(0.25));
        input.by_head(|heads| {
            let [_, length, _] = heads.dims();
            let padding = heads.padding(length).map(|padding| padding.swap_dims(1, 2));
            let along = |x: &Tensor<3>| map(x.clone(), directions.clone());
            let query = || self.of_queries(along(&heads.query));
            let (key, weight) = self.of_keys(along(&heads.key), heads.key.clone(), padding);
            let value = heads.value.clone();
            Ok(match weight {
                Some(weight) => kernelised::mix_weighted(query, key, value, weight, heads.causal),
                None => kernelised::mix(query, key, value, heads.causal),
            })
        })
    }
}

impl Performer {
    /// Features of queries, `[groups, length, features]`, of their products with directions. What all of a query's features are
    /// multiplied by cancels below the line: its length, and here their sum, so that they are a softmax.
    fn of_queries(&self, along: Tensor<3>) -> Tensor<3> {
        match self.function {
            Function::Softmax => softmax(along),
            Function::Relu => relu(along).add_scalar(LEAST),
        }
    }

    /// Features of keys `[groups, length, width]`, and the logarithm of what those of each are to be multiplied by; padding counts
    /// nothing. Softmax's are a softmax and its sum.
    fn of_keys(&self, along: Tensor<3>, key: Tensor<3>, padding: Option<Tensor<3>>) -> (Tensor<3>, Option<Tensor<3>>) {
        match self.function {
            Function::Softmax => {
                let width = key.dims()[2];
                let half = (key.clone() * key).sum_dim(2).mul_scalar(0.5 / (width as f64).sqrt());
                let less = match padding {
                    Some(padding) => half - padding,
                    None => half,
                };
                let (features, sums) = softmax_and_sums(along);
                (features, Some(sums - less))
            }
            Function::Relu => (relu(along).add_scalar(LEAST), padding),
        }
    }
}
