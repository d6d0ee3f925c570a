//! Linformer (Wang et al. 2020, <https://arxiv.org/abs/2006.04768>).

use super::fresh::{Begin, Fresh, Sizes};
use super::full::dense;
use super::input::{Heads, Input};
use super::work::product;
use super::{Attention, projections, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Keys and values of all tokens become `rank` of each by learned matrices over the length, shared by all heads. Time and
/// memory O(n · rank). No causal form: every one of the `rank` keys is of the whole sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linformer {
    /// Keys that are left.
    pub rank: usize,
    /// One matrix for keys and values.
    #[serde(default)]
    pub shared: bool,
}

impl Attention for Linformer {
    fn check(&self) -> Result<(), Error> {
        some_tokens("rank", self.rank)
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        [projections(sizes), shortening(sizes, self.rank, self.shared)].concat()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let heads = shortened(input, self.shared)?;
        input.each(&heads, |heads| Ok(dense(heads.query.clone(), heads.key.clone(), heads.value.clone(), [None, None])))
    }
}

/// The matrices over the length, `[rank, length]`; one if `shared`.
pub(super) fn shortening(sizes: &Sizes, rank: usize, shared: bool) -> Vec<Fresh> {
    let begin = Begin::Normal(1.0 / (sizes.length as f64).sqrt());
    let names: &[&str] = if shared { &["shorten.key"] } else { &["shorten.key", "shorten.value"] };
    names.iter().map(|name| Fresh::new(name, &[rank, sizes.length], begin)).collect()
}

/// Queries of all tokens, `[groups, length, head width]`, with `rank` keys and values, `[groups, rank, head width]`; keys are over
/// the root of the width, so that products are scores.
pub(super) fn shortened(input: &Input<'_>, shared: bool) -> Result<Heads, Error> {
    let key = input.tensor("shorten.key")?;
    let value = if shared { key.clone() } else { input.tensor("shorten.value")? };
    let (length, most) = (input.dims()[1], key.dims()[1]);
    if length > most {
        return Err(Error::new(format!("attention: a sequence of {length} tokens; it was made for {most}")));
    }
    let query = input.mapped("query.weight")?;
    let scale = 1.0 / (query.dims()[2] as f64).sqrt();
    // Over the length first, then the map: the same product, of far fewer rows.
    let map = |name: &str, by: &Tensor<2>| match input.known {
        Some(_) => Ok(over_length(input.mapped(name)?, by)),
        None => {
            let rows = over_length(input.present_rows(), by);
            let [batch, rank, width] = rows.dims();
            input.folded_map(rows.reshape([batch * rank, width]), name)
        }
    };
    Ok(input.heads_of(query, map("key.weight", &key)?.mul_scalar(scale), map("value.weight", &value)?))
}

/// `[n, length, width]`, padding zero, to `[n, rank, width]`.
fn over_length(x: Tensor<3>, by: &Tensor<2>) -> Tensor<3> {
    let ([count, length, _], rank) = (x.dims(), by.dims()[0]);
    let by = by.clone().slice_dim(1, 0..length).reshape([1, rank, length]);
    product(by.expand([count, rank, length]), x)
}
