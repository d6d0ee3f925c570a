//! Rows in another order, and their gradients back in the first: no sums, so that nothing waits.

use crate::gpu::permuted_rows;
use burn::tensor::{Int, Tensor};

/// Rows of each group in the given order `[groups, length]`, whose inverse is `back`.
pub(super) fn permuted(x: Tensor<3>, order: &Tensor<2, Int>, back: &Tensor<2, Int>) -> Tensor<3> {
    let [groups, length, width] = x.dims();
    let flat = |order: &Tensor<2, Int>| {
        let first =
            Tensor::<1, Int>::arange(0..groups as i64, (&order.device(), order.dtype())).mul_scalar(length as i64);
        (order.clone() + first.reshape([groups, 1])).reshape([groups * length])
    };
    let rows = permuted_rows(x.reshape([groups * length, width]), flat(order), flat(back));
    rows.reshape([groups, length, width])
}

/// The order that undoes an order.
pub(super) fn inverse(order: Tensor<2, Int>) -> Tensor<2, Int> {
    order.argsort(1)
}

/// The places of the `count` largest numbers of each row: `[groups, rows, count]`.
pub(super) fn largest(x: Tensor<3>, count: usize) -> Tensor<3, Int> {
    if count < x.dims()[2] { x.argtopk(count, 2) } else { x.argsort_descending(2) }
}
