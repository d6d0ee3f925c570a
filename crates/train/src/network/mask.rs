//! What may not be seen, as numbers to add to scores. Made once per pass and kind of attention.

use super::pass::Pass;
use crate::feed;
use burn::tensor::{Bool, Tensor, TensorData};
use sparing_model::{Attention, GlobalTokens};

/// Far below every score, yet finite: a query that sees nothing (padding does) must not become NaN.
pub(super) const HIDDEN: f32 = -1e9;

/// What distinguishes masks within a pass: causal or not, and the window.
type Kind = (bool, Option<usize>);

/// The masks made so far in a pass.
#[derive(Default)]
pub(super) struct Masks {
    made: Vec<(Kind, Option<Tensor<4>>)>,
    padding: Option<Option<Tensor<4>>>,
}

impl Pass<'_> {
    /// `[batch or 1, 1, length or 1, length]` to add to this attention's scores; `None`: everything is seen.
    pub(super) fn mask(&mut self, attention: &Attention) -> Option<Tensor<4>> {
        let kind: Kind = (attention.causal, attention.window.as_ref().map(|w| w.one_sided));
        if let Some((_, mask)) = self.masks.made.iter().find(|(known, _)| *known == kind) {
            return mask.clone();
        }
        let padding = self.padding_mask();
        let mask = match kind {
            (false, None) => padding,
            // Padding stands at the end, where no earlier token looks.
            (true, None) => Some(self.square_mask(|query, key| key <= query)),
            (causal, Some(reach)) => {
                let near = |query: usize, key: usize| query.abs_diff(key) <= reach && (!causal || key <= query);
                Some(self.window_mask(near, padding))
            }
        };
        self.masks.made.push((kind, mask.clone()));
        mask
    }

    /// Hides all tokens but those that are `present`, `[batch, length]`, as padding. What was merged counts as often.
    pub(super) fn hide_all_but(&mut self, present: &Tensor<2, Bool>) {
        self.masks.made.clear();
        let mask = self.key_mask(present);
        self.masks.padding = Some(Some(match self.log_sizes() {
            Some(sizes) => mask + sizes,
            None => mask,
        }));
    }

    /// `[batch, 1, 1, length]` to add to scores.
    fn key_mask(&self, present: &Tensor<2, Bool>) -> Tensor<4> {
        let hidden = present.clone().bool_not().float() * HIDDEN;
        hidden.reshape([self.batch.count(), 1, 1, self.batch.length])
    }

    /// Hides padding: `[batch, 1, 1, length]`.
    pub(super) fn padding_mask(&mut self) -> Option<Tensor<4>> {
        if let Some(known) = &self.masks.padding {
            return known.clone();
        }
        let mask = (!self.batch.host.is_full()).then(|| self.key_mask(&self.batch.mask));
        self.masks.padding = Some(mask.clone());
        mask
    }

    /// `[1, 1, length, length]` from what a query sees, the same in all sequences.
    fn square_mask(&self, sees: impl Fn(usize, usize) -> bool) -> Tensor<4> {
        let length = self.batch.length;
        let mut values = Vec::with_capacity(length * length);
        for query in 0..length {
            values.extend((0..length).map(|key| if sees(query, key) { 0.0 } else { HIDDEN }));
        }
        feed::constant(&self.device, values, [1, 1, length, length])
    }

    /// A window, and the tokens that everybody sees: those hide nothing.
    fn window_mask(&self, near: impl Fn(usize, usize) -> bool, padding: Option<Tensor<4>>) -> Tensor<4> {
        let mut mask = self.square_mask(near);
        let globals = self.globals();
        if globals.iter().any(|count| *count > 0) {
            // 1 where a token is local, 0 where it is global: a product takes the window off.
            let length = self.batch.length;
            let local: Vec<f32> = globals
                .iter()
                .flat_map(|count| (0..length).map(move |key| if key < *count { 0.0 } else { 1.0 }))
                .collect();
            let shape = [globals.len(), 1, 1, length];
            mask = mask * Tensor::from_data(TensorData::new(local, shape), &self.device);
        }
        match padding {
            Some(padding) => mask + padding,
            None => mask,
        }
    }

    /// How many tokens at the beginning of each sequence attend globally.
    pub(super) fn globals(&self) -> Vec<usize> {
        let count = |ids: &Vec<u32>| match self.architecture.head.global_tokens {
            GlobalTokens::None => 0,
            GlobalTokens::First => 1.min(ids.len()),
            // The separator itself stays local, as in the reference.
            GlobalTokens::UntilSeparator(id) => ids.iter().position(|i| *i == id).unwrap_or(0),
        };
        self.batch.host.ids.iter().map(count).collect()
    }
}
