//! Linear maps `x Wᵀ + b`.

use super::operation::{Computed, operation};
use super::product::times;
use super::sums::{column_sums, transposed_product};
use burn::tensor::Tensor;

/// `x Wᵀ + b` in the precision of `x`: `[rows, inputs]` to `[rows, outputs]`; weight `[outputs, inputs]` and bias
/// `[1, outputs]` are f32, and so are their gradients.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
    let Some(bias) = bias else {
        return operation([x, weight], |[x, weight]| {
            let weight = like(weight, &x);
            let values = times(x.clone(), weight.clone().transpose(), x.dtype());
            let back = move |g: Tensor<2>, wanted: [bool; 2]| gradients(g, x, weight, wanted);
            Computed { values, back }
        });
    };
    operation([x, weight, bias], |[x, weight, bias]| {
        let (weight, bias) = (like(weight, &x), like(bias, &x));
        let values = times(x.clone(), weight.clone().transpose(), x.dtype()) + bias;
        let back = move |g: Tensor<2>, wanted: [bool; 3]| {
            let db = wanted[2].then(|| column_sums(g.clone()));
            let [dx, dw] = gradients(g, x, weight, [wanted[0], wanted[1]]);
            [dx, dw, db]
        };
        Computed { values, back }
    })
}

/// Of the rows `g W`, of the weight `gᵀ x`: as it is stored, so that the optimizer need not turn it.
fn gradients(g: Tensor<2>, x: Tensor<2>, weight: Tensor<2>, wanted: [bool; 2]) -> [Option<Tensor<2>>; 2] {
    let dx = wanted[0].then(|| times(g.clone(), weight, g.dtype()));
    [dx, wanted[1].then(|| transposed_product(g, x))]
}

/// In the precision of another tensor.
fn like(tensor: Tensor<2>, other: &Tensor<2>) -> Tensor<2> {
    let precision = other.dtype();
    if tensor.dtype() == precision { tensor } else { tensor.cast(precision) }
}
