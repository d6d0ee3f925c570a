//! Looking up embeddings: rows are read straight from the mapped tensors, in the file's element type.

use crate::finite;
use crate::layout::Layout;
use sparing_kernels::RowsMut;
use sparing_model::{Architecture, Embeddings, Error, Tensor, Weights};
use std::ops::Range;

/// The embedding tables of a model. Holds the mapping, not a copy.
pub(crate) struct Tables {
    weights: Weights,
    embeddings: Embeddings,
    /// Width of position and type rows.
    width: usize,
}

impl Tables {
    pub(crate) fn new(architecture: &Architecture, weights: Weights) -> Result<Self, Error> {
        let e = architecture.embeddings.clone();
        let before = e.projection.as_ref().filter(|_| e.projection_place == sparing_model::ProjectionPlace::BeforeSum);
        let width = match before {
            Some(projection) => projection.outputs,
            None if e.trigram => 3 * e.width,
            None => e.width,
        };
        let tables = Tables { weights, embeddings: e, width };
        tables.check(&tables.embeddings.word, tables.embeddings.vocabulary, tables.embeddings.width)?;
        if let Some(positions) = &tables.embeddings.positions {
            tables.check_whole(&positions.name, positions.rows, width)?;
        }
        if let Some(types) = &tables.embeddings.token_types {
            tables.check_whole(&types.name, types.rows, width)?;
        }
        Ok(tables)
    }

    fn check(&self, name: &str, rows: usize, width: usize) -> Result<(), Error> {
        let found = self.weights.tensor(name)?;
        if rows.checked_mul(width) != Some(found.len()) {
            let shape = found.shape;
            return Err(Error::new(format!("tensor \"{name}\" has shape {shape:?} where [{rows}, {width}] is needed")));
        }
        Ok(())
    }

    /// The same, and every number of the table, which is small and which any text may read.
    fn check_whole(&self, name: &str, rows: usize, width: usize) -> Result<(), Error> {
        self.check(name, rows, width)?;
        let (table, mut row) = (self.table(name), vec![0.0; width]);
        (0..rows).try_for_each(|number| {
            table.read(number * width, &mut row);
            finite::check(name, &row)
        })
    }

    /// Bytes of the tables in the mapped file.
    pub(crate) fn bytes(&self) -> usize {
        let e = &self.embeddings;
        let names = [Some(&e.word), e.positions.as_ref().map(|p| &p.name), e.token_types.as_ref().map(|t| &t.name)];
        names.into_iter().flatten().filter_map(|name| self.weights.tensor(name).ok()).map(|t| t.bytes().len()).sum()
    }

    fn table(&self, name: &str) -> Tensor<'_> {
        self.weights.tensor(name).expect("checked when compiling")
    }

    /// `out[i] = word[id]` for the batch rows `rows`, or next, this and previous token's words side by side.
    pub(crate) fn words(&self, layout: &Layout, rows: Range<usize>, mut out: RowsMut) {
        let (table, width) = (self.table(&self.embeddings.word), self.embeddings.width);
        for (i, row) in rows.enumerate() {
            let out = out.row_f32(i);
            let read = |row: Option<usize>, out: &mut [f32]| match row {
                Some(row) => table.read(layout.ids[row] as usize * width, out),
                None => out.fill(0.0),
            };
            if !self.embeddings.trigram {
                read(Some(row), out);
                continue;
            }
            let position = layout.positions[row];
            let next = Some(row + 1).filter(|next| layout.positions.get(*next).is_some_and(|p| *p == position + 1));
            let previous = (position > 0).then(|| row - 1);
            for (neighbour, out) in [next, Some(row), previous].into_iter().zip(out.chunks_exact_mut(width)) {
                read(neighbour, out);
            }
        }
    }

    /// `out[i] += position[p] + type[t]` for the batch rows `rows`; `row` is working memory.
    pub(crate) fn add_places(&self, layout: &Layout, rows: Range<usize>, mut out: RowsMut, row: &mut Vec<f32>) {
        row.resize(self.width, 0.0);
        if let Some(positions) = &self.embeddings.positions {
            let table = self.table(&positions.name);
            for (i, at) in rows.clone().enumerate() {
                table.read((positions.offset + layout.positions[at] as usize) * self.width, row);
                add(out.row_f32(i), row);
            }
        }
        if let Some(types) = &self.embeddings.token_types {
            let table = self.table(&types.name);
            let mut held = None;
            for (i, at) in rows.enumerate() {
                // Neighbours nearly always have the same type.
                if held != Some(layout.types[at]) {
                    table.read(layout.types[at] as usize * self.width, row);
                    held = Some(layout.types[at]);
                }
                add(out.row_f32(i), row);
            }
        }
    }
}

fn add(to: &mut [f32], from: &[f32]) {
    for (a, b) in to.iter_mut().zip(from) {
        *a += b;
    }
}
