//! Linformer (Wang et al. 2020, <https://arxiv.org/abs/2006.04768>).

use super::fresh::{Begin, Fresh, Sizes};
use super::full::dense;
use super::input::Input;
use super::work::product;
use super::{Attention, at_least_one, projections};
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
        at_least_one("rank", self.rank)
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let begin = Begin::Normal(1.0 / (sizes.length as f64).sqrt());
        let names: &[&str] = if self.shared { &["shorten.key"] } else { &["shorten.key", "shorten.value"] };
        let over = names.iter().map(|name| Fresh::new(name, &[self.rank, sizes.length], begin));
        projections(sizes).into_iter().chain(over).collect()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let key = input.tensor("shorten.key")?;
        let value = if self.shared { key.clone() } else { input.tensor("shorten.value")? };
        let (length, most) = (input.dims()[1], key.dims()[1]);
        if length > most {
            return Err(Error::new(format!("attention: a sequence of {length} tokens; Linformer was made for {most}")));
        }
        input.by_head(|heads| {
            let [groups, ..] = heads.dims();
            let present = heads.present(length);
            let shorten = |x: &Tensor<3>, by: &Tensor<2>| {
                let by = by.clone().slice_dim(1, 0..length).reshape([1, self.rank, length]);
                let x = match &present {
                    Some(present) => x.clone() * present.clone(),
                    None => x.clone(),
                };
                product(by.expand([groups, self.rank, length]), x)
            };
            let (key, value) = (shorten(&heads.key, &key), shorten(&heads.value, &value));
            Ok(dense(heads.scaled_query(), key, value, [None, None]))
        })
    }
}
