//! Longformer (Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>).

use super::blocks::{Table, band};
use super::globals::Windowed;
use super::input::{Heads, Input};
use super::{Attention, knob, tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A window of `window / 2` tokens to each side, and global tokens that see all and are seen by all, with the same maps as
/// others (the paper's have maps of their own). Time and memory O(n · (window + globals)). The causal form has no global
/// tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Longformer {
    /// Tokens in the window, both sides together.
    pub window: usize,
    /// Tokens at the beginning that are global.
    #[serde(default)]
    pub globals: usize,
}

impl Attention for Longformer {
    fn check(&self) -> Result<(), Error> {
        tokens("globals", self.globals)?;
        knob("attention", "window", self.window, 2..=1 << 20)
    }

    fn causal(&self) -> bool {
        self.globals == 0
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        input.by_head(|heads| Ok(self.mix(heads)))
    }
}

impl Longformer {
    fn mix(&self, heads: &Heads) -> Tensor<3> {
        let length = heads.dims()[1];
        let reach = (self.window / 2).min(length);
        let after = usize::from(!heads.causal);
        let seen = |q: isize, k: isize| (q - k).abs() <= reach as isize && (!heads.causal || k <= q);
        Windowed {
            size: reach,
            table: Table::window(length.div_ceil(reach), 1, after),
            near: Some(band(reach, 1, after, seen, &heads.device())),
            globals: self.globals,
            far: None,
            above: None,
            heads,
        }
        .mix()
    }
}
