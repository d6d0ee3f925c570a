//! AdamW over tensors that lie end to end.

use super::rows::total;
use super::{beside, buffer, per_element, tensor};
use crate::gpu::Step;
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Tensors that one launch lays end to end: WebGPU binds eight buffers.
const TOGETHER: usize = 7;
/// Cubes that sum squares, and their units.
const CUBES: u32 = 128;
const UNITS: u32 = 256;

/// Tensors `[n]` of f32 one behind the other.
pub(crate) fn together(tensors: &[Tensor<1>]) -> Option<Tensor<1>> {
    let parts: Vec<CubeTensor> = tensors.iter().map(|t| buffer(t.clone())).collect::<Option<_>>()?;
    let lengths: Vec<usize> = tensors.iter().map(|t| t.dims()[0]).collect();
    let out = beside(parts.first()?, &[lengths.iter().sum()], DType::F32);
    let mut start = 0u32;
    for (parts, lengths) in parts.chunks(TOGETHER).zip(lengths.chunks(TOGETHER)) {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let at = |i: usize| parts.get(i).unwrap_or(&parts[0]).clone().into_buffer_arg();
        let ends: [u32; TOGETHER] = std::array::from_fn(|i| lengths.get(i).copied().unwrap_or(0) as u32);
        let mut starts = [0u32; TOGETHER];
        for i in 0..TOGETHER {
            starts[i] = start;
            start += ends[i];
        }
        let cubes = (longest as u32).div_ceil(4 * UNITS).clamp(1, 512);
        let count = CubeCount::Static(cubes, lengths.len() as u32, 1);
        together_kernel::launch(
            &out.client.clone(),
            count,
            CubeDim::new_1d(UNITS),
            at(0),
            at(1),
            at(2),
            at(3),
            at(4),
            at(5),
            at(6),
            out.clone().into_buffer_arg(),
            starts[0],
            starts[1],
            starts[2],
            starts[3],
            starts[4],
            starts[5],
            starts[6],
            ends[0],
            ends[1],
            ends[2],
            ends[3],
            ends[4],
            ends[5],
            ends[6],
        );
    }
    Some(tensor(out))
}

/// The sum of squares, `[1]`.
pub(crate) fn square_sum(x: &Tensor<1>) -> Option<Tensor<1>> {
    let x = buffer(x.clone())?;
    let parts = beside(&x, &[CUBES as usize], DType::F32);
    let count = CubeCount::Static(CUBES, 1, 1);
    let [from, to] = [x, parts.clone()].map(|b| b.into_buffer_arg());
    square_kernel::launch(&parts.client.clone(), count, CubeDim::new_1d(UNITS), from, to);
    Some(tensor::<1>(parts).sum())
}

/// New values and moments, all `[n]`. `norm` `[1]` is the gradients'; `scale` and `decay` are per element, one and zero where
/// they are `None`.
pub(crate) fn adam(
    [value, gradient, first, second]: [&Tensor<1>; 4],
    norm: &Tensor<1>,
    scale: Option<&Tensor<1>>,
    decay: Option<&Tensor<1>>,
    step: Step,
) -> Option<[Tensor<1>; 3]> {
    let length = value.dims()[0];
    let (value, gradient, norm) = (buffer(value.clone())?, buffer(gradient.clone())?, buffer(norm.clone())?);
    let (first, second) = (buffer(first.clone())?, buffer(second.clone())?);
    let [to, to_first, to_second] = [(); 3].map(|()| beside(&value, &[length], DType::F32));
    let client = value.client.clone();
    let flags = (scale.is_some(), decay.is_some());
    // What is not there is not read.
    let scale = scale.map_or(Some(norm.clone()), |scale| buffer(scale.clone()))?;
    let decay = decay.map_or(Some(norm.clone()), |decay| buffer(decay.clone()))?;
    let (count, dim) = per_element(length);
    let [value, gradient, first, second, norm, scale, decay] =
        [value, gradient, first, second, norm, scale, decay].map(|b| b.into_buffer_arg());
    let found = [to, to_first, to_second];
    let [a, b, c] = found.clone().map(|b| b.into_buffer_arg());
    let Step { beta1, beta2, epsilon, change, rate, root, limit } = step;
    adam_kernel::launch(
        &client, count, dim, value, gradient, first, second, norm, scale, decay, a, b, c, beta1, beta2, epsilon,
        change, rate, root, limit, flags.0, flags.1,
    );
    Some(found.map(tensor))
}

#[cube(launch)]
fn together_kernel(
    x0: &[f32],
    x1: &[f32],
    x2: &[f32],
    x3: &[f32],
    x4: &[f32],
    x5: &[f32],
    x6: &[f32],
    out: &mut [f32],
    s0: u32,
    s1: u32,
    s2: u32,
    s3: u32,
    s4: u32,
    s5: u32,
    s6: u32,
    n0: u32,
    n1: u32,
    n2: u32,
    n3: u32,
    n4: u32,
    n5: u32,
    n6: u32,
) {
    match CUBE_POS_Y {
        0 => lay(x0, out, s0, n0),
        1 => lay(x1, out, s1, n1),
        2 => lay(x2, out, s2, n2),
        3 => lay(x3, out, s3, n3),
        4 => lay(x4, out, s4, n4),
        5 => lay(x5, out, s5, n5),
        _ => lay(x6, out, s6, n6),
    }
}

#[cube]
fn lay(x: &[f32], out: &mut [f32], start: u32, length: u32) {
    let mut i = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    while i < length {
        out[(start + i) as usize] = x[i as usize];
        i += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cube(launch)]
fn square_kernel(x: &[f32], out: &mut [f32]) {
    let mut parts = Shared::new_slice(UNITS as usize);
    let mut sum = 0.0f32;
    let mut i = ABSOLUTE_POS;
    while i < x.len() {
        sum += x[i] * x[i];
        i += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let sum = total(sum, &mut parts);
    if UNIT_POS_X == 0 {
        out[CUBE_POS_X as usize] = sum;
    }
}

#[cube(launch)]
fn adam_kernel(
    value: &[f32],
    gradient: &[f32],
    first: &[f32],
    second: &[f32],
    norm: &[f32],
    scale: &[f32],
    decay: &[f32],
    to: &mut [f32],
    to_first: &mut [f32],
    to_second: &mut [f32],
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    change: f32,
    rate: f32,
    root: f32,
    limit: f32,
    #[comptime] scaled: bool,
    #[comptime] decays: bool,
) {
    let i = ABSOLUTE_POS;
    if i < to.len() {
        let mut g = gradient[i];
        if limit > 0.0f32 {
            g *= (limit / (norm[0] + 1e-6f32)).min(1.0f32);
        }
        let mean = first[i] * beta1 + g * (1.0f32 - beta1);
        let square = second[i] * beta2 + g * g * (1.0f32 - beta2);
        let mut by = mean / (square.sqrt() * root + epsilon) * change;
        let mut kept = value[i];
        if comptime!(scaled) {
            by *= scale[i];
        }
        if comptime!(decays) {
            kept *= 1.0f32 - rate * decay[i];
        }
        to[i] = kept - by;
        to_first[i] = mean;
        to_second[i] = square;
    }
}
