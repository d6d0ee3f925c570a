//! GELU, softmax and dropout.

use super::operation::{Computed, operation};
use super::{Drops, fused};
use crate::feed;
use crate::random::Random;
use crate::rows::by_rows;
use burn::tensor::{Device, Distribution, Int, Tensor, activation};
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

/// A seed on a device: another in every update.
#[derive(Clone)]
pub(crate) struct Seed(Tensor<1, Int>);

impl Seed {
    /// This seed now; a recorded update's own when it is repeated.
    pub(crate) fn new(device: &Device, seed: u64) -> Seed {
        let bits = |seed: u64| vec![Random::new(seed).bits() as u32 as i32];
        Seed(feed::ints(device, bits(seed), move |moment| Ok(bits(moment.seed))))
    }
}

/// Drops a share of the elements and scales the others up. Which ones depends on the seed, a number and their places.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, share: f64, seed: &Seed, number: u32) -> Tensor<D> {
    let Seed(seed) = seed.clone();
    by_rows(x, |x| {
        operation([x], |[x]| {
            let drops = Drops::new(share, number);
            match fused::dropped(&x, &seed, drops) {
                Some(values) => {
                    let back = move |g: Tensor<2>, _: [bool; 1]| [fused::dropped(&g, &seed, drops)];
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
