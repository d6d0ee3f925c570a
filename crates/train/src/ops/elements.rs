//! Element by element: activations and dropout.

use super::host::{Computed, Matrix, operation, workers};
use super::memory::take;
use burn::tensor::Tensor;
use sparing_kernels::training::Dropout;
use sparing_kernels::{Activation, Chunks, RowsMut, activate as apply, activation_gradient};

/// Elements that one task takes.
const CHUNK: usize = 1 << 14;

/// Calls `f(first, part)` for all parts of `out`, on all cores.
fn parts(out: &mut [f32], f: impl Fn(usize, &mut [f32]) + Sync) {
    if out.is_empty() {
        return;
    }
    let each = CHUNK.max(out.len().div_ceil(Chunks::MOST));
    let tasks = out.len().div_ceil(each);
    let chunks = Chunks::new(RowsMut::f32(out, 1), each);
    workers().team.run(tasks, &|task, _| f(task * each, chunks.take(task).all_f32()));
}

/// A non-linearity.
pub(crate) fn activate(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    operation([x], |[x]| {
        let shape = x.shape;
        let mut values = take(x.numbers().len());
        parts(&mut values, |first, out| {
            out.copy_from_slice(&x.numbers()[first..first + out.len()]);
            apply(activation, out);
        });
        let x = x.clone();
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let mut found = take(x.numbers().len());
            parts(&mut found, |first, out| {
                let range = first..first + out.len();
                activation_gradient(activation, &x.numbers()[range.clone()], &gradient.numbers()[range], out);
            });
            [Some(found)]
        };
        Computed { values, shape, back }
    })
}

/// Drops elements and scales the others up.
pub(crate) fn drop(x: Tensor<2>, dropout: Dropout) -> Tensor<2> {
    let scaled = move |x: &Matrix| {
        let mut values = take(x.numbers().len());
        parts(&mut values, |first, out| {
            dropout.factors(first, out);
            for (out, x) in out.iter_mut().zip(&x.numbers()[first..]) {
                *out *= x;
            }
        });
        values
    };
    operation([x], |[x]| Computed {
        values: scaled(x),
        shape: x.shape,
        back: move |gradient: &Matrix, _: [bool; 1]| [Some(scaled(gradient))],
    })
}
