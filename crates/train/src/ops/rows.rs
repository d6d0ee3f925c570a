//! Picking rows and putting them back.

use super::host::{Computed, Matrix, operation};
use super::memory::take;
use burn::tensor::Tensor;
use std::sync::Arc;

/// Rows of a table by number, `[indices, width]`. A row may be asked for often: its gradients add up.
pub(crate) fn gather(table: Tensor<2>, indices: Arc<[usize]>) -> Tensor<2> {
    operation([table], |[table]| {
        let [rows, width] = table.shape;
        let mut values = take(indices.len() * width);
        for (&index, to) in indices.iter().zip(values.chunks_exact_mut(width)) {
            to.copy_from_slice(&table.numbers()[index * width..(index + 1) * width]);
        }
        let shape = [indices.len(), width];
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let mut found = vec![0.0; rows * width];
            for (&index, from) in indices.iter().zip(gradient.numbers().chunks_exact(width)) {
                for (to, g) in found[index * width..(index + 1) * width].iter_mut().zip(from) {
                    *to += g;
                }
            }
            [Some(found)]
        };
        Computed { values, shape, back }
    })
}

/// Rows at their places among `total` rows, zeros elsewhere: `[total, width]`. No two have the same place.
pub(crate) fn spread(rows: Tensor<2>, places: Arc<[usize]>, total: usize) -> Tensor<2> {
    operation([rows], |[rows]| {
        let width = rows.shape[1];
        let mut values = vec![0.0; total * width];
        for (&place, from) in places.iter().zip(rows.numbers().chunks_exact(width)) {
            values[place * width..(place + 1) * width].copy_from_slice(from);
        }
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let mut found = take(places.len() * width);
            for (&place, to) in places.iter().zip(found.chunks_exact_mut(width)) {
                to.copy_from_slice(&gradient.numbers()[place * width..(place + 1) * width]);
            }
            [Some(found)]
        };
        Computed { values, shape: [total, width], back }
    })
}
