//! Every token looks at every token (Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>).

use super::Attention;
use super::input::{HIDDEN, Heads, Input, constant};
use super::work::{product, softmax};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// `softmax(q kᵀ / √d) v`. Time and memory O(n²).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Full {}

impl Attention for Full {
    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(full(heads)))
    }
}

/// Full attention of these heads.
pub(crate) fn full(heads: &Heads) -> Tensor<3> {
    let [_, length, _] = heads.dims();
    let causal = heads.causal.then(|| later(length, length, &heads.device()));
    dense(heads.scaled_query(), heads.key.clone(), heads.value.clone(), [heads.padding(length), causal])
}

/// What to add to scores so that no query sees a later key: `[1, queries, keys]`.
pub(crate) fn later(queries: usize, keys: usize, device: &Device) -> Tensor<3> {
    let value = |at: usize| if at % keys > at / keys { HIDDEN } else { 0.0 };
    constant((0..queries * keys).map(value).collect(), [1, queries, keys], device)
}

/// `softmax(q kᵀ + masks) v` of `[groups, queries, width]` and `[groups, keys, width]`.
pub(crate) fn dense(q: Tensor<3>, k: Tensor<3>, v: Tensor<3>, masks: [Option<Tensor<3>>; 2]) -> Tensor<3> {
    let scores = product(q, k.transpose());
    let scores = masks.into_iter().flatten().fold(scores, |scores, mask| scores + mask);
    product(softmax(scores), v)
}
