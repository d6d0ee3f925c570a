//! Tokens look at their own block and blocks beside it (Long Range Arena's local attention; Image Transformer's
//! one-dimensional form, Parmar et al. 2018, <https://arxiv.org/abs/1802.05751>, with `before` 1).

use super::blocks::{Part, Table, band, join, masked, split, together};
use super::input::{Heads, Input};
use super::work::product;
use super::{Attention, some_tokens, tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Blocks of `block` tokens. Time and memory O(n · block · (before + 1 + after)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Tokens of a block.
    pub block: usize,
    /// Blocks before its own that a token looks at.
    #[serde(default)]
    pub before: usize,
    /// And after; the causal form has none.
    #[serde(default)]
    pub after: usize,
}

impl Attention for Local {
    fn check(&self) -> Result<(), Error> {
        tokens("before", self.before)?;
        tokens("after", self.after)?;
        some_tokens("block", self.block)
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Local {
    pub(crate) fn mix(&self, heads: &Heads) -> Tensor<3> {
        let [_, length, _] = heads.dims();
        let size = self.block.min(length);
        let query = split(heads.scaled_query(), size);
        let blocks = query.dims()[1];
        let before = self.before.min(blocks - 1);
        let after = if heads.causal { 0 } else { self.after.min(blocks - 1) };
        let table = Table::window(blocks, before, after);
        let gather = |x: &Tensor<3>| table.gather(split(x.clone(), size));
        let device = heads.device();
        let past = heads.causal.then(|| band(size, before, after, |query, key| key <= query, &device));
        let masks = [table.mask(size, |_| false, &device), table.padding(heads, blocks, size), past];
        let scores = masked(product(query, gather(&heads.key).transpose()), masks);
        join(together(vec![Part { scores, values: gather(&heads.value) }]), length)
    }
}
