//! GELU, dropout and scales, element by element.

use super::{beside, buffer, elements, per_element, tensor};
use crate::gpu::Drops;
use burn::backend::Cube;
use burn::tensor::{DType, Int, Tensor};
use cubecl::prelude::*;

/// `x Φ(x)` in the precision of `x`.
pub(crate) fn gelu(x: &Tensor<2>) -> Option<Tensor<2>> {
    let shape = x.dims();
    let x = buffer(x.clone())?;
    let out = beside(&x, &shape, x.dtype);
    let (count, dim) = per_element(shape[0] * shape[1]);
    let kind = elements(&x);
    gelu_kernel::launch(&out.client.clone(), count, dim, x.into_buffer_arg(), out.clone().into_buffer_arg(), kind);
    Some(tensor(out))
}

/// The gradient of `x` from that of `x Φ(x)`.
pub(crate) fn gelu_back(x: &Tensor<2>, g: &Tensor<2>) -> Option<Tensor<2>> {
    let shape = x.dims();
    let (x, g) = (buffer(x.clone())?, buffer(g.clone())?);
    let out = beside(&x, &shape, x.dtype);
    let (count, dim) = per_element(shape[0] * shape[1]);
    let kinds = [elements(&x), elements(&g)];
    let [x, g, found] = [x, g, out.clone()].map(|buffer| buffer.into_buffer_arg());
    gelu_back_kernel::launch(&out.client.clone(), count, dim, x, g, found, kinds);
    Some(tensor(out))
}

/// Some elements zero, the others scaled up. The gradient goes the same way.
pub(crate) fn dropped(x: &Tensor<2>, seed: &Tensor<1, Int>, drops: Drops) -> Option<Tensor<2>> {
    let shape = x.dims();
    let x = buffer(x.clone())?;
    let out = beside(&x, &shape, x.dtype);
    let (count, dim) = per_element(shape[0] * shape[1]);
    let (kind, Drops { number, limit, scale }) = (elements(&x), drops);
    let seed = seed.clone().try_into_primitive::<Cube>().ok()?;
    let [x, seed, found] = [x, seed, out.clone()].map(|buffer| buffer.into_buffer_arg());
    drop_kernel::launch(&out.client.clone(), count, dim, x, seed, found, number, limit, scale, kind);
    Some(tensor(out))
}

/// `x w + b` of f32 rows `[rows, width]`, weight and bias `[1, width]`.
pub(crate) fn scaled(x: &Tensor<2>, weight: &Tensor<2>, bias: Option<&Tensor<2>>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let shifts = bias.is_some();
    let (x, weight) = (buffer(x.clone())?, buffer(weight.clone())?);
    // What is not there is not read.
    let bias = bias.map_or(Some(weight.clone()), |bias| buffer(bias.clone()))?;
    let out = beside(&x, &[rows, width], DType::F32);
    let (count, dim) = per_element(rows * width);
    let [x, weight, bias, to] = [x, weight, bias, out.clone()].map(|buffer| buffer.into_buffer_arg());
    scale_kernel::launch(&out.client.clone(), count, dim, x, weight, bias, to, width as u32, shifts);
    Some(tensor(out))
}

#[cube(launch)]
fn scale_kernel(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32], width: u32, #[comptime] shifts: bool) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let column = i % width as usize;
        let mut value = x[i] * weight[column];
        if comptime!(shifts) {
            value += bias[column];
        }
        out[i] = value;
    }
}

#[cube(launch)]
fn gelu_kernel<F: Float>(x: &[F], out: &mut [F], #[define(F)] _kind: ElemType) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let x = f32::cast_from(x[i]);
        out[i] = F::cast_from(x * below(x));
    }
}

#[cube(launch)]
fn gelu_back_kernel<F: Float, G: Float>(x: &[F], g: &[G], out: &mut [F], #[define(F, G)] _kinds: [ElemType; 2]) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let x = f32::cast_from(x[i]);
        let bell = (x * x * -0.5f32).exp() * 0.398_942_3f32;
        out[i] = F::cast_from((below(x) + x * bell) * f32::cast_from(g[i]));
    }
}

/// Φ(x): the share of a normal distribution below x.
#[cube]
#[allow(unstable_name_collisions, reason = "the standard library's erf is not what a kernel calls")]
fn below(x: f32) -> f32 {
    (f32::erf(x * 0.707_106_77f32) + 1.0f32) * 0.5f32
}

#[cube(launch)]
fn drop_kernel<F: Float>(
    x: &[F],
    seed: &[i32],
    out: &mut [F],
    number: u32,
    limit: u32,
    scale: f32,
    #[define(F)] _kind: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let seed = hash(number, u32::reinterpret(seed[0]));
        let mut kept = 0.0f32;
        if hash(i as u32, seed) >= limit {
            kept = f32::cast_from(x[i]) * scale;
        }
        out[i] = F::cast_from(kept);
    }
}

/// Bits that look random, of a number and a seed (Jarzynski and Olano 2020, "PCG").
#[cube]
fn hash(number: u32, seed: u32) -> u32 {
    let state = (number ^ seed) * 747_796_405u32 + 2_891_336_453u32;
    let word = ((state >> ((state >> 28u32) + 4u32)) ^ state) * 277_803_737u32;
    let mixed = ((word >> 22u32) ^ word) + seed;
    let state = mixed * 747_796_405u32 + 2_891_336_453u32;
    let word = ((state >> ((state >> 28u32) + 4u32)) ^ state) * 277_803_737u32;
    (word >> 22u32) ^ word
}
