//! The arithmetic of attention, counted where it is done: what a mechanism claims about its cost is tested against this.

use crate::{gpu, ops};
use burn::tensor::Tensor;
use std::cell::Cell;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// What an exponential costs beside a multiplication and addition: near enough for an exponent.
const EXPONENTIAL: u64 = 8;

fn add(operations: u64) {
    DONE.with(|done| done.set(done.get().wrapping_add(operations)));
}

/// Runs something; also the operations of `product` and `softmax` in it, on this thread.
pub fn counted<T>(job: impl FnOnce() -> T) -> (T, u64) {
    let before = DONE.with(Cell::get);
    let result = job();
    (result, DONE.with(Cell::get).wrapping_sub(before))
}

/// A product of matrices, batch by batch: `[.., rows, inner]` times `[.., inner, columns]`.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let (left, right) = (a.dims(), b.dims());
    let batches: usize = (0..D - 2).map(|axis| left[axis].max(right[axis])).product();
    add((2 * batches * left[D - 2] * left[D - 1] * right[D - 1]) as u64);
    if ops::on_host(&a.device()) { a.matmul(b) } else { gpu::product(a, b) }
}

/// Softmax along the last axis.
pub(crate) fn softmax<const D: usize>(scores: Tensor<D>) -> Tensor<D> {
    add(EXPONENTIAL * scores.dims().iter().product::<usize>() as u64);
    gpu::softmax(scores)
}
