//! From token ids to the first hidden state.

use super::pass::Pass;
use crate::PaddedBatch;
use crate::batch::HostBatch;
use crate::gpu::{self, Looked};
use burn::tensor::Tensor;
use burn::tensor::module::embedding;
use sparing_model::{Error, PositionTable, ProjectionPlace, TokenTypeTable};

impl Pass<'_> {
    /// `[batch * length, hidden]`.
    pub(super) fn embeddings(&self) -> Result<Tensor<2>, Error> {
        let e = &self.architecture.embeddings;
        let (count, length) = (self.batch.count(), self.batch.length);
        let table = self.get(&e.word)?;
        let words = match self.gpu {
            true => looked_up(table, self.batch, |host| host.padded(&host.ids)),
            false => embedding(table, self.batch.ids.clone()).reshape([count * length, e.width]),
        };
        let mut x = self.looked_up(&e.word, words);
        if e.trigram {
            x = self.trigram(x.reshape([count, length, e.width])).reshape([count * length, 3 * e.width]);
        }
        self.embedded(x, &|types, x| self.add_types(types, x), &|positions, x| self.add_positions(positions, x))
    }

    /// From words to the first hidden state, given how to add token types and positions.
    pub(super) fn embedded(
        &self,
        mut x: Tensor<2>,
        add_types: &dyn Fn(&TokenTypeTable, Tensor<2>) -> Result<Tensor<2>, Error>,
        add_positions: &dyn Fn(&PositionTable, Tensor<2>) -> Result<Tensor<2>, Error>,
    ) -> Result<Tensor<2>, Error> {
        let e = &self.architecture.embeddings;
        if let (Some(projection), ProjectionPlace::BeforeSum) = (&e.projection, e.projection_place) {
            x = self.linear(projection, x)?;
        }
        if let Some(types) = &e.token_types {
            x = add_types(types, x)?;
        }
        if let Some(positions) = &e.positions {
            x = add_positions(positions, x)?;
        }
        if let Some(norm) = &e.norm {
            x = self.norm(norm, x)?;
        }
        x = self.dropout(x);
        if let (Some(projection), ProjectionPlace::AfterNorm) = (&e.projection, e.projection_place) {
            x = self.linear(projection, x)?;
        }
        let (found, hidden) = (x.dims()[1], self.architecture.hidden);
        if found != hidden {
            return Err(Error::new(format!("embeddings are {found} wide but the layers are {hidden}")));
        }
        Ok(x)
    }

    /// Next, this and previous token's words side by side, zeros beyond the ends: `[batch, length, 3 * width]`.
    fn trigram(&self, words: Tensor<3>) -> Tensor<3> {
        let [count, length, width] = words.dims();
        // The word after the last one is nothing, not padding's embedding.
        let real = self.batch.mask.clone().float().reshape([count, length, 1]);
        let words = words * real;
        let none = Tensor::zeros([count, 1, width], &self.device);
        let next = Tensor::cat(vec![words.clone().slice([0..count, 1..length]), none.clone()], 1);
        let previous = Tensor::cat(vec![none, words.clone().slice([0..count, 0..length - 1])], 1);
        Tensor::cat(vec![next, words, previous], 2)
    }

    /// A look-up among two rows is a step from one to the other: that has a cheap gradient, a scatter to two rows has not.
    fn add_types(&self, types: &TokenTypeTable, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let table = self.looked_up(&types.name, self.get(&types.name)?);
        let [rows, width] = table.dims();
        let first = table.clone().slice([0..1, 0..width]);
        Ok(match (self.batch.host.most_type(), rows) {
            (0, _) => self.add_row(x, first),
            _ if self.gpu => x + looked_up(table, self.batch, |host| host.padded(&host.types)),
            (_, 2) => {
                let step = table.slice([1..2, 0..width]) - first.clone();
                let types = self.batch.types.clone().float().reshape([x.dims()[0], 1]);
                x + first + types * step
            }
            _ => {
                let shape = x.shape();
                x + embedding(table, self.batch.types.clone()).reshape(shape)
            }
        })
    }

    /// Every sequence begins at the table's offset, so positions are a slice of the table.
    fn add_positions(&self, positions: &PositionTable, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let table = self.get(&positions.name)?;
        let [rows, width] = table.dims();
        let (count, length) = (self.batch.count(), self.batch.length);
        let last = (positions.offset + length).min(rows);
        let mut used = self.looked_up(&positions.name, table.slice([positions.offset..last, 0..width]));
        let missing = positions.offset + length - last;
        if missing > 0 {
            // Padding only: real tokens were checked.
            used = Tensor::cat(vec![used, Tensor::zeros([missing, width], &self.device)], 0);
        }
        let x = x.reshape([count, length, width]) + used.reshape([1, length, width]);
        Ok(x.reshape([count * length, width]))
    }
}

/// Rows of a table that a batch names.
fn looked_up(table: Tensor<2>, batch: &PaddedBatch, ids: fn(&HostBatch) -> Vec<i32>) -> Tensor<2> {
    let looked = Looked::of(&table, batch, ids);
    gpu::lookup(table, &looked)
}
