//! GELU and softmax.

use super::operation::{Computed, operation};
use burn::tensor::{Tensor, activation};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `x Φ(x)`, and the gradient of that; Burn's is the gradient of an approximation.
pub(crate) fn gelu(x: Tensor<2>) -> Tensor<2> {
    operation([x], |[x]| {
        let below = x.clone().mul_scalar(FRAC_1_SQRT_2).erf().add_scalar(1.0).mul_scalar(0.5);
        let values = x.clone() * below.clone();
        let back = move |g: Tensor<2>, _: [bool; 1]| {
            let bell = (x.clone() * x.clone()).mul_scalar(-0.5).exp();
            let density = 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;
            [Some((below + (bell * x).mul_scalar(density)) * g)]
        };
        Computed { values, back }
    })
}

/// Softmax along the last axis.
pub(crate) fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let shape = x.shape();
    let width = shape[D - 1];
    let rows = shape.num_elements() / width;
    let found = operation([x.reshape([rows, width])], |[x]| {
        let values = activation::softmax(x, 1);
        let shares = values.clone();
        let back = move |g: Tensor<2>, _: [bool; 1]| {
            let sum = (g.clone() * shares.clone()).sum_dim(1);
            [Some((g - sum) * shares)]
        };
        Computed { values, back }
    });
    found.reshape(shape)
}
