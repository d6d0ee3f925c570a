//! The arithmetic of attention, counted where it is done: what a mechanism claims about its cost is tested against this.

use crate::rows::by_rows;
use crate::{gpu, layers, ops};
use burn::tensor::Tensor;
use std::cell::Cell;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Multiplications, additions and exponentials of products, maps and softmaxes, and of what else grows with the length by
    /// more than a number per token and channel: convolutions, scans, comparisons.
    pub operations: u64,
    /// Numbers that were made on the host (masks, positions), gathered, put in another order or chosen from.
    pub moved: u64,
}

thread_local! {
    static DONE: Cell<Work> = const { Cell::new(Work { operations: 0, moved: 0 }) };
}

/// What an exponential costs beside a multiplication and addition: near enough for an exponent.
const EXPONENTIAL: u64 = 8;

fn done(operations: u64, moved: u64) {
    DONE.with(|done| {
        let before = done.get();
        let operations = before.operations.wrapping_add(operations);
        done.set(Work { operations, moved: before.moved.wrapping_add(moved) });
    });
}

fn add(operations: u64) {
    done(operations, 0);
}

/// Counts operations on single numbers that are no product of matrices: so many on each number of a shape.
pub(crate) fn each<const D: usize>(shape: [usize; D], operations: usize) {
    add((operations * shape.iter().product::<usize>()) as u64);
}

/// Counts numbers that are made, gathered, ordered or chosen from.
pub(crate) fn moved(numbers: usize) {
    done(0, numbers as u64);
}

/// Runs something; also what was done in it, on this thread.
pub fn counted<T>(job: impl FnOnce() -> T) -> (T, Work) {
    let before = DONE.with(Cell::get);
    let result = job();
    let after = DONE.with(Cell::get);
    let operations = after.operations.wrapping_sub(before.operations);
    (result, Work { operations, moved: after.moved.wrapping_sub(before.moved) })
}

/// A product of matrices, batch by batch: `[.., rows, inner]` times `[.., inner, columns]`.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let (left, right) = (a.dims(), b.dims());
    let batches: usize = (0..D - 2).map(|axis| left[axis].max(right[axis])).product();
    add((2 * batches * left[D - 2] * left[D - 1] * right[D - 1]) as u64);
    if ops::on_host(&a.device()) { a.matmul(b) } else { gpu::product(a, b) }
}

/// A linear map of every row, the same for all batches: `[batches, rows, inner]` with `[outputs, inner]`.
pub(crate) fn map(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    let ([batches, rows, inner], [outputs, _]) = (x.dims(), weight.dims());
    add((2 * batches * rows * inner * outputs) as u64);
    layers::linear(x.reshape([batches * rows, inner]), weight, None).reshape([batches, rows, outputs])
}

/// `query (keyᵀ value)` of `[batches, n, inner]`, `[batches, n, inner]` and `[batches, n, columns]`: on all cores where it is one
/// batch in the host's memory. The query is asked for when the keys are done with.
pub(crate) fn chain(query: impl FnOnce() -> Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Tensor<3> {
    let ([_, _, inner], [batches, keys, columns]) = (key.dims(), value.dims());
    if batches > 1 || !ops::on_host(&key.device()) {
        let middle = product(key.transpose(), value);
        return product(query(), middle);
    }
    add((2 * keys * inner * columns) as u64);
    let middle = ops::turned_product(value.reshape([keys, columns]), key.reshape([keys, inner]));
    map(query(), middle)
}

/// Softmax along the last axis.
pub(crate) fn softmax<const D: usize>(scores: Tensor<D>) -> Tensor<D> {
    add(EXPONENTIAL * scores.dims().iter().product::<usize>() as u64);
    if ops::on_host(&scores.device()) { by_rows(scores, ops::softmax) } else { gpu::softmax(scores) }
}

/// Softmax of `[groups, length, features]`, and the logarithms of the sums below the line, `[groups, length, 1]`.
pub(crate) fn softmax_and_sums(along: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let [groups, length, features] = along.dims();
    if !ops::on_host(&along.device()) {
        let shares = softmax(along.clone());
        // From the largest of a row: exact, and so are its gradients.
        let sums = along.max_dim(2) - shares.clone().max_dim(2).log();
        return (shares, sums);
    }
    add(EXPONENTIAL * (groups * length * features) as u64);
    let sums = ops::log_sums(along.clone().reshape([groups * length, features])).reshape([groups, length, 1]);
    (softmax(along), sums)
}
