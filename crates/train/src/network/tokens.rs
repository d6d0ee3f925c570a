//! Tokens that nothing needs (`docs/methods/tokens.md`): who has left, and who passes by feed-forward blocks. The choice is
//! the engine's and has no gradient. What is computed stays dense: a token that left is padding from then on.

use super::pass::Pass;
use burn::tensor::{Bool, Tensor, TensorData};
use sparing_model::{Error, Layer};

/// Who is economised in a pass.
pub(super) struct Presence {
    /// True where there is a token that has not left, `[batch, length]`.
    pub(super) present: Tensor<2, Bool>,
    /// True where a token may be economised, `[batch, length]`.
    movable: Option<Tensor<2, Bool>>,
    /// True where a token passes by the feed-forward blocks of the layer under way, `[batch, length]`.
    idle: Option<Tensor<2, Bool>>,
}

impl Presence {
    pub(super) fn new(batch: &crate::PaddedBatch) -> Presence {
        Presence { present: batch.mask.clone(), movable: None, idle: None }
    }

    /// Whether somebody may pass by the feed-forward blocks of the layer under way.
    pub(super) fn anybody_idle(&self) -> bool {
        self.idle.is_some()
    }
}

impl Pass<'_> {
    /// Below which measures a layer's tokens leave, or skip its feed-forward blocks. Never where attention is the last.
    pub(super) fn cuts(&self, layer: usize) -> (f32, f32) {
        let last = self.architecture.last_attention() == Some(layer);
        let tokens = self.plan.tokens.as_ref().filter(|_| !last);
        let (drop, skip) = tokens.map_or((0.0, 0.0), |tokens| tokens.cuts(layer));
        let blocks = self.architecture.layers[layer].ffns.iter().any(|ffn| !ffn.up.is_empty());
        (drop, if blocks { skip } else { 0.0 })
    }

    /// Decides, from probabilities `[batch, heads, length, length]` and values `[batch, heads, length, head_width]`, who
    /// leaves behind this attention and who skips what follows.
    pub(super) fn choose(&mut self, (drop, skip): (f32, f32), probabilities: &Tensor<4>, value: &Tensor<4>) {
        if drop <= 0.0 && skip <= 0.0 {
            return;
        }
        let [count, _, length, _] = probabilities.dims();
        let there = self.presence.present.clone().float();
        let queries = there.clone().reshape([count, 1, length, 1]);
        let pooled = (probabilities.clone().inner() * queries).sum_dim(2);
        let lengths = self.wide(value.clone().inner()).square().sum_dim(3).sqrt().swap_dims(2, 3);
        let measures = (pooled * lengths).sum_dim(1).reshape([count, length]) * there.clone();
        let even = measures.clone().sum_dim(1) / there.sum_dim(1);
        let shares = measures / even;
        let movable = self.movable();
        // What is not a number is not below.
        let below = |cut: f32| shares.clone().lower_elem(cut).bool_and(movable.clone());
        self.presence.idle = (skip > 0.0).then(|| below(skip));
        if drop > 0.0 {
            self.leave(below(drop));
        }
    }

    /// From here on these are padding.
    fn leave(&mut self, leaving: Tensor<2, Bool>) {
        let present = self.presence.present.clone().bool_and(leaving.bool_not());
        self.hide_all_but(&present);
        self.presence.present = present;
    }

    /// Everybody but the ends of a sequence and of its parts: what heads read, and separators. As those never leave, they
    /// are the same in all layers.
    pub(super) fn movable(&mut self) -> Tensor<2, Bool> {
        if let Some(known) = &self.presence.movable {
            return known.clone();
        }
        let length = self.batch.length;
        let mut movable = vec![false; self.batch.count() * length];
        for (number, types) in self.batch.host_types.iter().enumerate() {
            for row in 1..types.len().saturating_sub(1) {
                movable[self.batch.row(number, row)] = types[row] == types[row + 1];
            }
        }
        let shape = [self.batch.count(), length];
        let made: Tensor<2, Bool> = Tensor::from_data(TensorData::new(movable, shape), &self.device);
        self.presence.movable = Some(made.clone());
        made
    }

    /// Puts back the rows of those who pass by: to them nothing happens between attention and the layer's result but the
    /// last norm, where norms come last. `before` and `after` the feed-forward blocks, `[batch * length, hidden]`.
    pub(super) fn pass_by(&mut self, layer: &Layer, before: Tensor<2>, after: Tensor<2>) -> Result<Tensor<2>, Error> {
        let Some(idle) = self.presence.idle.take() else { return Ok(after) };
        let rest = match layer.ffns.last().filter(|_| !layer.norm_first) {
            Some(ffn) => self.norm(&ffn.norm, before)?,
            None => before,
        };
        let [rows, width] = after.dims();
        Ok(after.mask_where(idle.reshape([rows, 1]).expand([rows, width]), rest))
    }
}
