//! Tokens that are merged into others (`docs/methods/tokens.md`). Who is, is the engine's choice, made on the host and without a
//! gradient; what comes of them is a weighted mean, which has one.

use super::pass::Pass;
use super::values::numbers;
use burn::tensor::{Bool, Tensor, TensorData};
use sparing_engine::like_tokens;
use sparing_model::{Error, LayerTokens};

impl Pass<'_> {
    /// Decides, from keys `[batch, heads, length, head_width]`, whose rows become part of others behind this attention.
    pub(super) fn pair(&mut self, wanted: &LayerTokens, keys: Tensor<4>) -> Result<(), Error> {
        let [count, heads, length, width] = keys.dims();
        let keys = numbers(self.wide(keys))?;
        let (movable, present) = (flags(self.movable())?, flags(self.presence.present.clone())?);
        let mut sizes = std::mem::take(&mut self.presence.sizes);
        sizes.resize(count * length, 1.0);
        let mut weights = vec![0f32; count * length * length];
        let mut leaving = vec![false; count * length];
        for number in 0..count {
            let first = number * length;
            let there = (0..length).filter(|row| present[first + row]);
            let rows: Vec<usize> = there.clone().filter(|row| movable[first + row]).collect();
            let key = |row: usize| {
                (0..heads).flat_map(move |head| {
                    let at = ((number * heads + head) * length + row) * width;
                    at..at + width
                })
            };
            let keys: Vec<f32> = rows.iter().flat_map(|row| key(*row)).map(|at| keys[at]).collect();
            let weights = &mut weights[first * length..(first + length) * length];
            let sizes = &mut sizes[first..first + length];
            (0..length).for_each(|row| weights[row * length + row] = sizes[row]);
            for (from, into) in like_tokens(&keys, heads, width, wanted.merging(there.count())) {
                let (from, into) = (rows[from], rows[into]);
                leaving[first + from] = true;
                weights[into * length + from] = sizes[from];
                sizes[into] += sizes[from];
            }
            let each = weights.chunks_exact_mut(length).zip(sizes);
            each.for_each(|(row, size)| row.iter_mut().for_each(|weight| *weight /= *size));
        }
        self.presence.sizes = sizes;
        let weights = TensorData::new(weights, [count, length, length]);
        self.presence.merger = Some(Tensor::from_data(weights, &self.device));
        self.leave(Tensor::from_data(TensorData::new(leaving, [count, length]), &self.device));
        Ok(())
    }

    /// Rows of all tokens, those that are merged in the layer under way part of others.
    pub(super) fn merge(&self, rows: Tensor<2>) -> Tensor<2> {
        let Some(merger) = self.presence.merger.clone() else { return rows };
        let [count, length, _] = merger.dims();
        let [all, width] = rows.dims();
        merger.matmul(rows.reshape([count, length, width])).reshape([all, width])
    }

    /// What to add to scores because of what keys stand for, `[batch, 1, 1, length]`; `None`: nothing.
    pub(super) fn log_sizes(&self) -> Option<Tensor<4>> {
        let sizes = &self.presence.sizes;
        let logarithms: Vec<f32> = sizes.iter().map(|size| size.ln()).collect();
        let shape = [self.batch.count(), 1, 1, self.batch.length];
        (!sizes.is_empty()).then(|| Tensor::from_data(TensorData::new(logarithms, shape), &self.device))
    }
}

/// Read back to the host.
pub(super) fn flags(tensor: Tensor<2, Bool>) -> Result<Vec<bool>, Error> {
    tensor.into_data().try_into_vec::<bool>().map_err(|e| Error::new(format!("attention: {e}")))
}
