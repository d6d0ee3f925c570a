//! GELU, softmax and dropout.

use super::operation::{Computed, operation};
use super::{Drops, fused};
use crate::rows::by_rows;
use burn::tensor::{Distribution, Tensor, activation};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `x Φ(x)`, and the gradient of that; Burn's is the gradient of an approximation.
pub(crate) fn gelu(x: Tensor<2>) -> Tensor<2> {
    operation([x], |[x]| {
        let values = fused::gelu(&x).unwrap_or_else(|| x.clone() * below(&x));
        let back = move |g: Tensor<2>, _: [bool; 1]| {
            let found = fused::gelu_back(&x, &g).unwrap_or_else(|| {
                let bell = (x.clone() * x.clone()).mul_scalar(-0.5).exp();
                let density = 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;
                (below(&x) + (bell * x).mul_scalar(density)) * g
            });
            [Some(found)]
        };
        Computed { values, back }
    })
}

/// Φ(x): the share of a normal distribution below x.
fn below(x: &Tensor<2>) -> Tensor<2> {
    x.clone().mul_scalar(FRAC_1_SQRT_2).erf().add_scalar(1.0).mul_scalar(0.5)
}

/// Softmax along the last axis.
pub(crate) fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    by_rows(x, |x| {
        operation([x], |[x]| {
            let values = fused::softmax(&x).unwrap_or_else(|| activation::softmax(x, 1));
            let shares = values.clone();
            let back = move |g: Tensor<2>, _: [bool; 1]| {
                let found = fused::softmax_back(&shares, &g).unwrap_or_else(|| {
                    let sum = (g.clone() * shares.clone()).sum_dim(1);
                    (g - sum) * shares
                });
                [Some(found)]
            };
            Computed { values, back }
        })
    })
}

/// Drops a share of the elements and scales the others up. Which ones depends on the seed and their places.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, share: f64, seed: u64) -> Tensor<D> {
    by_rows(x, |x| {
        operation([x], |[x]| {
            let drops = Drops::new(share, seed);
            match fused::dropped(&x, drops) {
                Some(values) => {
                    let back = move |g: Tensor<2>, _: [bool; 1]| [fused::dropped(&g, drops)];
                    Computed { values, back: Box::new(back) as Box<dyn FnOnce(_, _) -> _ + Send> }
                }
                None => {
                    let kept =
                        Tensor::random(x.shape(), Distribution::Bernoulli(1.0 - share), (&x.device(), x.dtype()));
                    let kept = kept.mul_scalar(drops.scale);
                    let values = x * kept.clone();
                    Computed { values, back: Box::new(move |g: Tensor<2>, _: [bool; 1]| [Some(g * kept)]) }
                }
            }
        })
    })
}
