//! Attention over chosen keys (`docs/methods/sign-matching.md`), dense: other keys are hidden. The choice is the engine's,
//! made on the host, and has no gradient.

use super::mask::HIDDEN;
use super::merge::flags;
use super::pass::Pass;
use super::values::{Asked, numbers};
use burn::tensor::{Tensor, TensorData};
use sparing_engine::keys_by;
use sparing_kernels::Rows;
use sparing_kernels::attention::{Attention as Scores, Choice, ScoreBias, Span};
use sparing_kernels::reference::chosen;
use sparing_model::{Attention, Error};

impl Pass<'_> {
    /// Hides the keys that a layer does not look at, from queries and keys `[batch, heads, length, head_width]`: `[batch,
    /// heads, length, length]` to add to scores. `None`: it looks at all.
    pub(super) fn unchosen(
        &mut self,
        (layer, attention): (usize, &Attention),
        query: &Tensor<4>,
        key: &Tensor<4>,
    ) -> Result<Option<Tensor<4>>, Error> {
        let Some(keys) = &self.plan.keys else { return Ok(None) };
        let Some(keep) = keys.of(layer, self.architecture) else { return Ok(None) };
        let last = self.architecture.last_attention() == Some(layer);
        if last && matches!(self.asked, Asked::Rows(_)) {
            return Ok(None);
        }
        let (by, ends) = (keys_by(keys), keys.ends);
        let [query, key] = [query, key].map(|rows| numbers(self.wide(rows.clone())));
        let (query, key) = (query?, key?);
        let movable = if ends { flags(self.movable())? } else { Vec::new() };
        let present = flags(self.presence.present.clone())?;
        let Attention { heads, head_width: width, scale, causal, .. } = *attention;
        let scores =
            Scores { heads: 1, head_width: width, scale, causal, window: None, bias: ScoreBias::None, indices: &[] };
        let (count, length) = (self.batch.count(), self.batch.length);
        let mut mask = vec![0f32; count * heads * length * length];
        for (part, mask) in mask.chunks_exact_mut(length * length).enumerate() {
            let first = part / heads * length;
            let there: Vec<usize> = (0..length).filter(|row| present[first + row]).collect();
            if there.is_empty() {
                continue;
            }
            let rows = |of: &[f32]| -> Vec<f32> {
                let row = |row: &usize| (part * length + row) * width;
                there.iter().flat_map(|at| &of[row(at)..row(at) + width]).copied().collect()
            };
            let (query, key) = (rows(&query), rows(&key));
            let pinned: Vec<bool> = there.iter().filter(|_| ends).map(|row| !movable[first + row]).collect();
            let choice = Choice { by, keep: &|of| keep.of(of), pinned: &pinned };
            let span = Span { queries: 0..there.len(), keys: 0..there.len(), ..Span::default() };
            let seen = chosen(&scores, &choice, Rows::f32(&query, width), Rows::f32(&key, width), &span, 0);
            for (number, (row, seen)) in there.iter().zip(seen).enumerate() {
                let mask = &mut mask[row * length..(row + 1) * length];
                mask.fill(HIDDEN);
                let own = if seen.is_empty() { Some(number) } else { None };
                seen.into_iter().chain(own).for_each(|key| mask[there[key]] = 0.0);
            }
        }
        Ok(Some(Tensor::from_data(TensorData::new(mask, [count, heads, length, length]), &self.device)))
    }
}
