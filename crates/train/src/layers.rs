//! Linear maps, norms and their like, each by the faster of our own operations: [`crate::ops`] where numbers are in the
//! host's memory, [`crate::gpu`] elsewhere.

use crate::gpu::{Looked, Seed};
use crate::random::Random;
use crate::{gpu, ops};
use burn::tensor::Tensor;
use burn::tensor::activation::relu as burn_relu;
use sparing_kernels::training::Dropout;
use sparing_kernels::{Activation, Format};
use std::sync::Arc;

/// `x Wᵀ + b`: `[rows, inputs]` to `[rows, outputs]`; weight `[outputs, inputs]`, bias `[1, outputs]`.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
    if ops::on_host(&x.device()) { ops::linear(Format::F32, x, weight, bias) } else { gpu::linear(x, weight, bias) }
}

/// Layer norm of rows; weight and bias `[1, width]`.
pub(crate) fn norm(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>) -> Tensor<2> {
    const EPS: f32 = 1e-6;
    match ops::on_host(&x.device()) {
        true => ops::norm(x, None, None, weight, bias, EPS),
        false => gpu::norm(x, weight, bias, EPS),
    }
}

/// `x Φ(x)`.
pub(crate) fn gelu(x: Tensor<2>) -> Tensor<2> {
    if ops::on_host(&x.device()) { ops::activate(x, Activation::Gelu) } else { gpu::gelu(x) }
}

/// `max(x, 0)`.
pub(crate) fn relu(x: Tensor<2>) -> Tensor<2> {
    if ops::on_host(&x.device()) { ops::activate(x, Activation::Relu) } else { burn_relu(x) }
}

/// Rows of a table by number: `[ids, width]`.
pub(crate) fn lookup(table: Tensor<2>, ids: Vec<u32>) -> Tensor<2> {
    if ops::on_host(&table.device()) {
        let ids: Arc<[usize]> = ids.iter().map(|id| *id as usize).collect();
        return ops::gather(table, ids);
    }
    let looked = Looked::new(&table, ids.iter().map(|id| *id as i32).collect());
    gpu::lookup(table, &looked)
}

/// Drops a share of the numbers and scales the others up. The seed decides which.
pub(crate) fn dropout(x: Tensor<2>, share: f64, seed: u64) -> Tensor<2> {
    if share <= 0.0 {
        return x;
    }
    if ops::on_host(&x.device()) {
        return ops::drop(x, Dropout::new(Random::new(seed).bits(), share));
    }
    let on = x.device().without_autodiff();
    gpu::dropout(x, share, &Seed::new(&on, seed), 0)
}
