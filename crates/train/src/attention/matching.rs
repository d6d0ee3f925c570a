//! Sign matching (`docs/methods/sign-matching.md`), trained: the keys whose signs are most like the queries'.

use super::full::dense;
use super::input::{Heads, Input, plain};
use super::permute::largest;
use super::work::product;
use super::{Attention, at_least_one};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A head's queries vote on the sign of each column; the `keys` whose signs agree with most votes are kept for the whole
/// head. Time and memory O(n · keys). The choice has no gradient. No causal form: all queries vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignMatching {
    /// Keys of a head.
    pub keys: usize,
}

impl Attention for SignMatching {
    fn check(&self) -> Result<(), Error> {
        at_least_one("keys", self.keys)
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
        let mut votes = signs(plain(heads.query.clone()));
        if let Some(present) = heads.present(length) {
            votes = votes * plain(present);
        }
        let asked = signs(votes.sum_dim(1));
        let mut alike = product(asked, signs(plain(heads.key.clone())).transpose());
        if let Some(padding) = &padding {
            alike = alike + plain(padding.clone());
        }
        let kept = largest(alike, keep)?.reshape([groups, keep, 1]);
        let pick = |x: Tensor<3>| {
            let columns = x.dims()[2];
            x.gather(1, kept.clone().expand([groups, keep, columns]))
        };
        let hidden = padding.map(|padding| pick(padding.swap_dims(1, 2)).swap_dims(1, 2));
        let mixed = dense(heads.scaled_query(), pick(heads.key.clone()), pick(heads.value.clone()), [hidden, None]);
        debug_assert_eq!(mixed.dims(), [groups, length, width]);
        Ok(mixed)
    }
}
