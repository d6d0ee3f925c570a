//! Products of matrices.

use super::fused;
use super::operation::{Computed, operation};
use burn::tensor::{DType, Tensor};

/// `a b` in a precision.
pub(crate) fn times<const D: usize>(a: Tensor<D>, b: Tensor<D>, precision: DType) -> Tensor<D> {
    fused::product(&a, &b, precision).unwrap_or_else(|| {
        let found = a.matmul(b);
        if found.dtype() == precision { found } else { found.cast(precision) }
    })
}

/// `a b` of stacked matrices `[.., m, k]` and `[.., k, n]` of one precision, which the result has too.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    if a.dims()[..D - 2] != b.dims()[..D - 2] {
        // One stack is used again and again: its gradient is a sum.
        return a.matmul(b);
    }
    operation([a, b], |[a, b]| {
        let precision = a.dtype();
        let values = times(a.clone(), b.clone(), precision);
        let back = move |g: Tensor<D>, wanted: [bool; 2]| {
            let da = wanted[0].then(|| times(g.clone(), b.transpose(), precision));
            [da, wanted[1].then(|| times(a.transpose(), g, precision))]
        };
        Computed { values, back }
    })
}
