//! A small network in softmax's place (MA-BERT, Neo et al. 2023; `docs/methods/ma-bert.md`), trained from nothing.

use super::fresh::{Begin, Fresh, Sizes};
use super::input::Input;
use super::linformer::{shortened, shortening};
use super::work::product;
use super::{Attention, projections, some_tokens};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Keys and values of all tokens become `keys` of each as in Linformer; the scores of a query go through `W2 relu(W1 x + b1) + b2`
/// instead of softmax. W1 is multiplied into the keys and W2 into the values, so that no score is touched twice: multiplications,
/// additions and comparisons only. Time and memory O(n · keys). No causal form: every one of the `keys` is of the whole sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftmaxNetwork {
    /// Keys that are left, and the network's width.
    pub keys: usize,
}

impl Attention for SoftmaxNetwork {
    fn check(&self) -> Result<(), Error> {
        some_tokens("keys", self.keys)
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let keys = self.keys;
        let mut all = [projections(sizes), shortening(sizes, keys, false)].concat();
        all.extend([Fresh::map("hidden.weight", keys, keys), Fresh::new("hidden.bias", &[keys], Begin::Zero)]);
        all.extend([Fresh::map("output.weight", keys, keys), Fresh::new("output.bias", &[keys], Begin::Zero)]);
        all
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let keys = self.keys;
        let (hidden, output) = (input.tensor("hidden.weight")?, input.tensor("output.weight")?);
        let (first, last) = (input.tensor("hidden.bias")?, input.tensor("output.bias")?);
        input.each(&shortened(input, false)?, |heads| {
            let groups = heads.dims()[0];
            let by = |map: Tensor<2>, rows: &Tensor<3>| {
                let outputs = map.dims()[0];
                product(map.reshape([1, outputs, keys]).expand([groups, outputs, keys]), rows.clone())
            };
            let key = by(hidden.clone(), &heads.key);
            let value = by(output.clone().transpose(), &heads.value);
            let inner = relu(product(heads.query.clone(), key.transpose()) + first.clone().reshape([1, 1, keys]));
            Ok(product(inner, value) + by(last.clone().reshape([1, keys]), &heads.value))
        })
    }
}
