//! Linear attention (Katharopoulos et al. 2020, <https://arxiv.org/abs/2006.16236>).

use super::input::Input;
use super::{Attention, kernelised};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Features `elu(x) + 1`. Time O(n · d²), memory O(n · d), d the head's width.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {}

impl Attention for Linear {
    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| {
            let key = heads.without_padding(features(heads.key.clone()));
            Ok(kernelised::mix(|| features(heads.query.clone()), key, heads.value.clone(), heads.causal))
        })
    }
}

/// `elu(x) + 1`: `x + 1` above zero, `exp(x)` below.
fn features(x: Tensor<3>) -> Tensor<3> {
    x.clone().clamp_min(0.0) + x.clamp_max(0.0).exp()
}
