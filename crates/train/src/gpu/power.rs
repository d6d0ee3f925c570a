//! PowerNorm (Shen et al. 2020, <https://arxiv.org/abs/2003.07845>) with its approximate gradient.

use super::operation::{Computed, operation};
use super::sums::column_sums;
use burn::tensor::Tensor;

/// The share that running statistics keep of themselves at every pass, forward and backward, as published.
const KEEP: f64 = 0.9;

/// What a norm divides by, and what it remembers. All `[1, width]`, without history.
pub(crate) struct Power {
    /// Running mean of `x²`.
    pub(crate) phi: Tensor<2>,
    /// The running statistic of the way back (the paper's ν).
    pub(crate) nu: Tensor<2>,
    /// Every row's share of a mean, `[rows, 1]`: zero for padding.
    pub(crate) share: Tensor<2>,
    pub(crate) eps: f32,
    /// Divide by the batch's own statistic (the paper's warm-up) instead of the running one.
    pub(crate) batch: bool,
}

/// Which statistic has changed.
pub(crate) enum Changed {
    Phi,
    Nu,
}

/// `x / ψ w + b` of rows `[rows, width]`; weight and bias `[1, width]`. `tell` gets new running statistics: of φ now, of ν on
/// the way back.
///
/// With the batch's own ψ the gradient is exact: `(g - x̂ mean(g x̂)) / ψ`. With the running one, which depends on all batches
/// before, ν stands for what they would say: `(g - ν x̂) / ψ`, `ν ← ν (1 - (1 - α) mean(x̂²)) + (1 - α) mean(g x̂)`.
pub(crate) fn power_norm(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<2>,
    power: Power,
    tell: impl Fn(Changed, Tensor<2>) + Send + 'static,
) -> Tensor<2> {
    operation([x, weight, bias], move |[x, weight, bias]| {
        let Power { phi, nu, share, eps, batch } = power;
        let mean = {
            let share = share.clone();
            move |x: Tensor<2>| column_sums(x * share.clone())
        };
        let square = mean(x.clone() * x.clone());
        tell(Changed::Phi, phi.clone().mul_scalar(KEEP) + square.clone().mul_scalar(1.0 - KEEP));
        let inverse = if batch { square } else { phi }.add_scalar(eps).sqrt().recip();
        let normal = x * inverse.clone();
        let values = normal.clone() * weight.clone() + bias;
        let back = move |g: Tensor<2>, wanted: [bool; 3]| {
            let dw = wanted[1].then(|| column_sums(g.clone() * normal.clone()));
            let db = wanted[2].then(|| column_sums(g.clone()));
            let g = g * weight;
            let along = mean(g.clone() * normal.clone());
            let energy = mean(normal.clone() * normal.clone());
            let kept = nu.clone() - nu.clone() * energy.mul_scalar(1.0 - KEEP);
            tell(Changed::Nu, kept + along.clone().mul_scalar(1.0 - KEEP));
            let dx = wanted[0].then(|| {
                // Padding has no part in the statistics, and gets no gradient from them.
                let present = share.clone().sign();
                (g - normal * if batch { along } else { nu } * present) * inverse
            });
            [dx, dw, db]
        };
        Computed { values, back }
    })
}
