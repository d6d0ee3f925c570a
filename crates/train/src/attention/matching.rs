//! Sign matching (`docs/methods/sign-matching.md`), trained: the keys whose signs are most like the queries'.

use super::choose::{largest, picked};
use super::full::dense;
use super::input::{Heads, Input, plain};
use super::work::product;
use super::{Attention, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A head's queries vote on the sign of each column; the `keys` whose signs agree with most votes are kept for the whole
/// head. Time and memory O(n · keys). The choice has no gradient. No causal form: all queries vote
/// (the paper has one, which keeps a quarter of the keys among the first tokens).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignMatching {
    /// Keys of a head.
    pub keys: usize,
}

impl Attention for SignMatching {
    fn check(&self) -> Result<(), Error> {
        some_tokens("keys", self.keys)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| self.mix(heads))
    }
}

/// 1 where a number is zero or more, else -1.
fn signs(x: Tensor<3>) -> Tensor<3> {
    x.greater_equal_scalar(0.0).float().mul_scalar(2.0).sub_scalar(1.0)
}

impl SignMatching {
    fn mix(&self, heads: &Heads) -> Result<Tensor<3>, Error> {
        let [groups, length, width] = heads.dims();
        let keep = self.keys.min(length);
        let padding = heads.padding(length);
        let votes = heads.without_padding(signs(plain(heads.query.clone())));
        let asked = signs(votes.sum_dim(1));
        let mut alike = product(asked, signs(plain(heads.key.clone())).transpose());
        if let Some(padding) = &padding {
            alike = alike + plain(padding.clone());
        }
        let kept = largest(alike, keep)?.reshape([groups, keep]);
        let pick = |x: Tensor<3>| picked(x, &kept);
        let hidden = padding.map(|padding| pick(padding.swap_dims(1, 2)).swap_dims(1, 2));
        let mixed = dense(heads.scaled_query(), pick(heads.key.clone()), pick(heads.value.clone()), [hidden, None]);
        debug_assert_eq!(mixed.dims(), [groups, length, width]);
        Ok(mixed)
    }
}
