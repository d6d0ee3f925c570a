//! Sign matching (`docs/methods/sign-matching.md`), trained: the keys whose signs are most like the queries'.

use super::choose::{largest, picked};
use super::full::dense;
use super::input::{HIDDEN, Heads, Input, constant, like, places, plain};
use super::work::product;
use super::{Attention, some_tokens};
use burn::tensor::{IndexingUpdateOp, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A head's queries vote on the sign of each column; the `keys` whose signs agree with most votes are kept for the whole
/// head. Time and memory O(n · keys). The choice has no gradient. In the causal form a quarter of the keys is among the first
/// quarter of tokens, and no token reads a later one; which keys are kept depends on all, as in the paper.
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

    fn causal(&self) -> bool {
        true
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
        if heads.causal && keep >= 4 {
            alike = with_first_quarter(heads, alike, keep / 4)?;
        }
        let kept = largest(alike, keep)?.reshape([groups, keep]);
        let pick = |x: Tensor<3>| picked(x, &kept);
        let hidden = padding.map(|padding| pick(padding.swap_dims(1, 2)).swap_dims(1, 2));
        let (query, key, value) = (heads.scaled_query(), pick(heads.key.clone()), pick(heads.value.clone()));
        if !heads.causal {
            return Ok(dense(query, key, value, [hidden, None]));
        }
        let shape = [groups, length, keep];
        let place = places(length, &heads.device());
        let later = kept.clone().float().reshape([groups, 1, keep]).expand(shape).greater(place.expand(shape)).float();
        // A query that sees none of the keys keeps its own value.
        let none = like(later.clone().min_dim(2), &query).expand([groups, length, width]);
        let later = like(later.mul_scalar(HIDDEN), &query);
        let mixed = dense(query, key, value, [hidden, Some(later)]);
        Ok(mixed.clone() + (heads.value.clone() - mixed) * none)
    }
}

/// How alike keys are, `[groups, 1, length]`, such that the best `count` of the first quarter of tokens come before all others.
fn with_first_quarter(heads: &Heads, alike: Tensor<3>, count: usize) -> Result<Tensor<3>, Error> {
    let [groups, _, length] = alike.dims();
    let row = |real: &usize| {
        let quarter = real / 4;
        (0..length).map(move |at| if at < quarter { 0.0 } else { HIDDEN })
    };
    let behind = constant(heads.lengths.iter().flat_map(row).collect(), [groups, 1, length], &alike.device());
    let best = largest(alike.clone() + behind, count)?;
    let ahead = Tensor::full([groups, 1, count], -1e-3 * HIDDEN, &alike.device());
    Ok(alike.scatter(2, best, ahead, IndexingUpdateOp::Add))
}
