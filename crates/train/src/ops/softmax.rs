//! Softmax of rows, and the logarithm of its sum.

use super::host::{Computed, Matrix, operation, own_numbers, stored_rows, workers};
use super::memory::take;
use burn::tensor::Tensor;
use sparing_kernels::training;

/// Softmax of every row; in its place where nobody else needs `x`.
pub(crate) fn softmax(x: Tensor<2>) -> Tensor<2> {
    let shape = x.dims();
    let x = match own_numbers(x) {
        Ok(mut numbers) => {
            training::softmax(&workers().team, &mut numbers, shape[1]);
            return stored_rows(numbers, shape);
        }
        Err(shared) => shared,
    };
    operation([x], |[x]| {
        let values = shares(x);
        // Computed again on the way back, which costs no more than a copy of them and keeps less.
        let x = x.clone();
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let shares = shares(&x);
            let mut found = take(shares.len());
            training::softmax_gradient(&workers().team, gradient.numbers(), &shares, shape[1], &mut found);
            [Some(found)]
        };
        Computed { values, shape, back }
    })
}

/// `ln Σ exp(x)` of every row, `[rows, 1]`.
pub(crate) fn log_sums(x: Tensor<2>) -> Tensor<2> {
    operation([x], |[x]| {
        let [rows, width] = x.shape;
        let mut values = vec![0.0; rows];
        training::log_sums(&workers().team, x.numbers(), width, &mut values);
        let x = x.clone();
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let mut found = shares(&x);
            for (row, g) in found.chunks_exact_mut(width).zip(gradient.numbers()) {
                row.iter_mut().for_each(|share| *share *= g);
            }
            [Some(found)]
        };
        Computed { values, shape: [rows, 1], back }
    })
}

fn shares(x: &Matrix) -> Vec<f32> {
    let mut values = take(x.numbers().len());
    values.copy_from_slice(x.numbers());
    training::softmax(&workers().team, &mut values, x.shape[1]);
    values
}
