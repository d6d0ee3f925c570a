//! Pictures: pixels in rows, after the few tokens that are none of them (what is pooled), which see all and are seen by all.

use super::blocks::{Part, broadcast};
use super::full::{dense, later};
use super::input::{Heads, Layout};
use burn::tensor::Tensor;

/// Pixels of a row: those asked for, or those of the task's pictures, or about the root of the longest sequence, up to the next
/// multiple of `unit`.
pub(super) fn columns(asked: Option<usize>, layout: &Layout, unit: usize) -> usize {
    let root = || (layout.longest.saturating_sub(layout.before) as f64).sqrt().ceil() as usize;
    asked.or(layout.columns).unwrap_or_else(|| root().max(1).next_multiple_of(unit))
}

/// Tokens of which the first are no pixels.
pub(super) struct Picture<'a> {
    all: &'a Heads,
    before: usize,
    /// The pixels, `[groups, pixels, head width]`.
    pub(super) pixels: Heads,
}

impl Picture<'_> {
    pub(super) fn new(all: &Heads, before: usize) -> Picture<'_> {
        let before = before.min(all.dims()[1] - 1);
        Picture { all, before, pixels: if before == 0 { all.clone() } else { all.after(before) } }
    }

    /// The tokens before the pixels as keys of all queries `[groups, blocks, size, head width]`.
    pub(super) fn besides(&self, query: Tensor<4>) -> Option<Part> {
        let [groups, _, width] = self.all.dims();
        let first = |x: &Tensor<3>| x.clone().slice_dim(1, 0..self.before).reshape([groups, 1, self.before, width]);
        (self.before > 0).then(|| Part {
            scores: broadcast(query, first(&self.all.key).transpose()),
            values: first(&self.all.value),
        })
    }

    /// What pixels have got, `[groups, pixels, head width]`, after what the tokens before them get.
    pub(super) fn whole(&self, pixels: Tensor<3>) -> Tensor<3> {
        if self.before == 0 {
            return pixels;
        }
        let (all, length) = (self.all, self.all.dims()[1]);
        let query = all.scaled_query().slice_dim(1, 0..self.before);
        let past = all.causal.then(|| later(self.before, length, &all.device()));
        let first = dense(query, all.key.clone(), all.value.clone(), [all.padding(length), past]);
        Tensor::cat(vec![first, pixels], 1)
    }
}
