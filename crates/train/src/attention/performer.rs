//! Performer (Choromanski et al. 2020, <https://arxiv.org/abs/2009.14794>): FAVOR+.

use super::fresh::{Begin, Fresh, Sizes};
use super::input::{HIDDEN, Input};
use super::work::product;
use super::{Attention, at_least_one, kernelised, projections};
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

impl Attention for Performer {
    fn check(&self) -> Result<(), Error> {
        at_least_one("features", self.features)
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
        input.by_head(|heads| {
            let length = heads.dims()[1];
            let padding = heads.padding(length).map(|padding| padding.swap_dims(1, 2));
            let query = self.map(heads.query.clone(), &directions, None, 2);
            let key = self.map(heads.key.clone(), &directions, padding, 1);
            Ok(kernelised::mix(query, key, heads.value.clone(), heads.causal))
        })
    }
}

impl Performer {
    /// Features `[groups, length, features]`. What is largest along `axis` is divided out, which cancels below the line; those of
    /// padding are zero.
    fn map(&self, x: Tensor<3>, directions: &Tensor<2>, padding: Option<Tensor<3>>, axis: usize) -> Tensor<3> {
        let [groups, _, width] = x.dims();
        let x = x.div_scalar((width as f64).powf(0.25));
        let along = directions.clone().transpose().reshape([1, width, self.features]);
        let along = product(x.clone(), along.expand([groups, width, self.features]));
        match self.function {
            Function::Softmax => {
                let mut logs = along - (x.clone() * x).sum_dim(2).mul_scalar(0.5);
                if let Some(padding) = padding {
                    logs = logs + padding;
                }
                let most = logs.clone().detach().max_dim(2);
                let most = if axis == 1 { most.max_dim(1) } else { most };
                (logs - most).exp()
            }
            Function::Relu => {
                let features = relu(along).add_scalar(1e-3);
                match padding {
                    Some(padding) => features * padding.div_scalar(-HIDDEN).add_scalar(1.0),
                    None => features,
                }
            }
        }
    }
}
