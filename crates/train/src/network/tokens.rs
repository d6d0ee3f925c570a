//! Tokens that nothing needs (`docs/methods/tokens.md`): who has left, and who passes by feed-forward blocks. The choice is
//! the engine's and has no gradient. What is computed stays dense: a token that left is padding from then on.

use super::pass::Pass;
use burn::tensor::{Bool, Tensor, TensorData};
use sparing_model::{Error, Layer, LayerTokens};

/// Who is economised in a pass.
pub(super) struct Presence {
    /// True where there is a token that has not left, `[batch, length]`.
    pub(super) present: Tensor<2, Bool>,
    /// True where a token may be economised, `[batch, length]`.
    movable: Option<Tensor<2, Bool>>,
    /// True where a token passes by the feed-forward blocks of the layer under way, `[batch, length]`.
    idle: Option<Tensor<2, Bool>>,
    /// How rows of the layer under way are merged, `[batch, length, length]`.
    pub(super) merger: Option<Tensor<3>>,
    /// How many tokens each row stands for, `[batch * length]`; empty as long as none were merged.
    pub(super) sizes: Vec<f32>,
}

impl Presence {
    pub(super) fn new(batch: &crate::PaddedBatch) -> Presence {
        Presence { present: batch.mask.clone(), movable: None, idle: None, merger: None, sizes: Vec::new() }
    }

    /// Whether somebody may pass by the feed-forward blocks of the layer under way.
    pub(super) fn anybody_idle(&self) -> bool {
        self.idle.is_some()
    }
}

impl Pass<'_> {
    /// Which of a layer's tokens leave, or skip its feed-forward blocks. None where attention is the last.
    pub(super) fn layer_tokens(&self, layer: usize) -> LayerTokens {
        let last = self.architecture.last_attention() == Some(layer);
        let tokens = self.plan.tokens.as_ref().filter(|_| !last);
        let tokens = tokens.map_or(LayerTokens::default(), |tokens| tokens.of(layer));
        let blocks = self.architecture.layers[layer].ffns.iter().any(|ffn| !ffn.up.is_empty());
        LayerTokens { skip: if blocks { tokens.skip } else { 0.0 }, ..tokens }
    }

    /// Decides, from probabilities `[batch, heads, length, length]` and values `[batch, heads, length, head_width]`, who
    /// leaves behind this attention and who skips what follows.
    pub(super) fn choose(&mut self, wanted: &LayerTokens, probabilities: &Tensor<4>, value: &Tensor<4>) {
        if !wanted.measures() {
            return;
        }
        let [count, _, length, _] = probabilities.dims();
        let there = self.presence.present.clone().float();
        let queries = there.clone().reshape([count, 1, length, 1]);
        let pooled = (probabilities.clone().inner() * queries).sum_dim(2);
        let lengths = self.wide(value.clone().inner()).square().sum_dim(3).sqrt().swap_dims(2, 3);
        let measures = (pooled * lengths).sum_dim(1).reshape([count, length]) * there.clone();
        let even = measures.clone().sum_dim(1) / there.sum_dim(1);
        let shares = measures.clone() / even;
        let movable = self.movable();
        // What is not a number is not below.
        let below = |cut: f32| shares.clone().lower_elem(cut).bool_and(movable.clone());
        self.presence.idle = (wanted.skip > 0.0).then(|| below(wanted.skip));
        let behind = wanted.keeps_some().then(|| self.behind(wanted, measures, movable.clone()));
        if wanted.drop > 0.0 {
            self.leave(below(wanted.drop));
        }
        if let Some(behind) = behind {
            self.leave(behind);
        }
    }

    /// True where a token has as many before it, by measures `[batch, length]`, as may stay. Of equals the earlier is first.
    fn behind(&self, wanted: &LayerTokens, measures: Tensor<2>, movable: Tensor<2, Bool>) -> Tensor<2, Bool> {
        let [count, length] = measures.dims();
        let movable = movable.bool_and(self.presence.present.clone());
        let all = [count, length, length];
        let (mine, other) = (measures.clone().reshape([count, length, 1]), measures.reshape([count, 1, length]));
        let earlier: Vec<bool> = (0..length * length).map(|at| at % length < at / length).collect();
        let earlier: Tensor<3, Bool> = Tensor::from_data(TensorData::new(earlier, [1, length, length]), &self.device);
        let (mine, other) = (mine.expand(all), other.expand(all));
        let tie = mine.clone().equal(other.clone()).bool_and(earlier.expand(all));
        let before = other.greater(mine).bool_or(tie);
        let before = before.bool_and(movable.clone().reshape([count, 1, length]).expand(all));
        let before = before.float().sum_dim(2).reshape([count, length]);
        let places: Vec<f32> = self.batch.host.types.iter().map(|types| places(wanted, types) as f32).collect();
        let places: Tensor<2> = Tensor::from_data(TensorData::new(places, [count, 1]), &self.device);
        before.greater_equal(places.expand([count, length])).bool_and(movable)
    }

    /// From here on these are padding.
    pub(super) fn leave(&mut self, leaving: Tensor<2, Bool>) {
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
        for (number, types) in self.batch.host.types.iter().enumerate() {
            for row in (0..types.len()).filter(|row| may_leave(types, *row)) {
                movable[self.batch.row(number, row)] = true;
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

/// Whether a token is no end of its sequence or of a part of it.
fn may_leave(types: &[u32], row: usize) -> bool {
    row > 0 && row + 1 < types.len() && types[row] == types[row + 1]
}

/// How many of the tokens that may leave stay.
fn places(wanted: &LayerTokens, types: &[u32]) -> usize {
    let ends = (0..types.len()).filter(|row| !may_leave(types, *row)).count();
    wanted.staying(types.len()).saturating_sub(ends)
}
