//! AdamW over tensors that lie end to end.

use super::rows::total;
use super::{beside, buffer, per_element, tensor};
use burn::backend::Cube;
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use std::ops::Range;

/// Tensors that one launch lays end to end: WebGPU binds eight buffers.
const TOGETHER: usize = 7;
/// Cubes that sum squares, and their units.
const CUBES: u32 = 128;
const UNITS: u32 = 256;

/// Tensors `[n]` of f32 one behind the other, each in a room of its own that begins where the one before ends; zeros fill it up.
pub(crate) fn together(tensors: &[Tensor<1>], rooms: &[usize]) -> Option<Tensor<1>> {
    let parts: Vec<CubeTensor> = tensors.iter().map(|t| buffer(t.clone())).collect::<Option<_>>()?;
    let lengths: Vec<usize> = tensors.iter().map(|t| t.dims()[0]).collect();
    let out = beside(parts.first()?, &[rooms.iter().sum()], DType::F32);
    let mut start = 0u32;
    for ((parts, lengths), rooms) in parts.chunks(TOGETHER).zip(lengths.chunks(TOGETHER)).zip(rooms.chunks(TOGETHER)) {
        let longest = rooms.iter().copied().max().unwrap_or(0);
        let at = |i: usize| parts.get(i).unwrap_or(&parts[0]).clone().into_buffer_arg();
        let of = |lengths: &[usize], i: usize| lengths.get(i).copied().unwrap_or(0) as u32;
        // Where each begins, how long it is, and where its room ends.
        let places: [[u32; 3]; TOGETHER] = std::array::from_fn(|i| {
            let begin = start;
            start += of(rooms, i);
            [begin, of(lengths, i), of(rooms, i)]
        });
        let cubes = (longest as u32).div_ceil(4 * UNITS).clamp(1, 512);
        let count = CubeCount::Static(cubes, lengths.len() as u32, 1);
        let [p0, p1, p2, p3, p4, p5, p6] = places;
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
            p0[0],
            p0[1],
            p0[2],
            p1[0],
            p1[1],
            p1[2],
            p2[0],
            p2[1],
            p2[2],
            p3[0],
            p3[1],
            p3[2],
            p4[0],
            p4[1],
            p4[2],
            p5[0],
            p5[1],
            p5[2],
            p6[0],
            p6[1],
            p6[2],
        );
    }
    Some(tensor(out))
}

/// Writes one line over another of the same length.
pub(crate) fn write_over(to: &Tensor<1>, from: &Tensor<1>) -> Option<()> {
    let (count, dim) = per_element(to.dims()[0]);
    let (to, from) = (buffer(to.clone())?, buffer(from.clone())?);
    let client = to.client.clone();
    copy_kernel::launch(&client, count, dim, from.into_buffer_arg(), to.into_buffer_arg());
    Some(())
}

/// A part of a line as a matrix, without copying it; `None` where it would have to be copied.
pub(crate) fn part(whole: &Tensor<1>, range: Range<usize>, shape: [usize; 2]) -> Option<Tensor<2>> {
    let (length, whole) = (whole.dims()[0], buffer(whole.clone())?);
    let bytes = |numbers: usize| (numbers * size_of::<f32>()) as u64;
    let start = bytes(range.start);
    // Burn's own slice asks the same of the end too, and copies what is not a multiple.
    if !start.is_multiple_of(whole.client.properties().memory.alignment) {
        return None;
    }
    let handle = whole.handle.clone().offset_start(start).offset_end(bytes(length - range.end));
    Some(tensor(CubeTensor::new_contiguous(
        whole.client.clone(),
        whole.device.clone(),
        shape.into(),
        handle,
        whole.dtype,
    )))
}

/// Whether a part lies where the whole lies, so that what is written to the one is read from the other.
pub(crate) fn shares_memory(part: &Tensor<2>, whole: &Tensor<1>) -> bool {
    let part = part.clone().without_autodiff().try_into_primitive::<Cube>();
    let whole = whole.clone().try_into_primitive::<Cube>();
    let same =
        |a: &CubeTensor, b: &CubeTensor| std::ptr::eq(a.handle.memory.descriptor(), b.handle.memory.descriptor());
    matches!((part, whole), (Ok(part), Ok(whole)) if same(&part, &whole))
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

/// Changes values and moments, all `[n]`, where they are. `norm` `[1]` is the gradients'; `scale` and `decay` are per element, one and
/// zero where they are `None`; `numbers` are those of [`crate::gpu::Step`]. `None`: nothing was done.
pub(crate) fn adam(
    [value, gradient, first, second]: [&Tensor<1>; 4],
    norm: &Tensor<1>,
    scale: Option<&Tensor<1>>,
    decay: Option<&Tensor<1>>,
    numbers: &Tensor<1>,
) -> Option<()> {
    let length = value.dims()[0];
    let [value, gradient, first, second, norm, numbers] =
        [value, gradient, first, second, norm, numbers].map(|x| buffer(x.clone()));
    let (value, gradient, first, second, norm, numbers) = (value?, gradient?, first?, second?, norm?, numbers?);
    let client = value.client.clone();
    let flags = (scale.is_some(), decay.is_some());
    // What is not there is not read.
    let scale = scale.map_or(Some(norm.clone()), |scale| buffer(scale.clone()))?;
    let decay = decay.map_or(Some(norm.clone()), |decay| buffer(decay.clone()))?;
    let (count, dim) = per_element(length);
    let [value, gradient, first, second, norm, scale, decay, numbers] =
        [value, gradient, first, second, norm, scale, decay, numbers].map(|b| b.into_buffer_arg());
    adam_kernel::launch(
        &client, count, dim, value, gradient, first, second, norm, scale, decay, numbers, flags.0, flags.1,
    );
    Some(())
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
    n0: u32,
    r0: u32,
    s1: u32,
    n1: u32,
    r1: u32,
    s2: u32,
    n2: u32,
    r2: u32,
    s3: u32,
    n3: u32,
    r3: u32,
    s4: u32,
    n4: u32,
    r4: u32,
    s5: u32,
    n5: u32,
    r5: u32,
    s6: u32,
    n6: u32,
    r6: u32,
) {
    match CUBE_POS_Y {
        0 => lay(x0, out, s0, n0, r0),
        1 => lay(x1, out, s1, n1, r1),
        2 => lay(x2, out, s2, n2, r2),
        3 => lay(x3, out, s3, n3, r3),
        4 => lay(x4, out, s4, n4, r4),
        5 => lay(x5, out, s5, n5, r5),
        _ => lay(x6, out, s6, n6, r6),
    }
}

#[cube]
fn lay(x: &[f32], out: &mut [f32], start: u32, length: u32, room: u32) {
    let mut i = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    while i < room {
        let mut value = 0.0f32;
        if i < length {
            value = x[i as usize];
        }
        out[(start + i) as usize] = value;
        i += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cube(launch)]
fn copy_kernel(from: &[f32], to: &mut [f32]) {
    let i = ABSOLUTE_POS;
    if i < to.len() {
        to[i] = from[i];
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
    value: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    norm: &[f32],
    scale: &[f32],
    decay: &[f32],
    numbers: &[f32],
    #[comptime] scaled: bool,
    #[comptime] decays: bool,
) {
    let i = ABSOLUTE_POS;
    if i < value.len() {
        let (beta1, beta2, epsilon) = (numbers[0], numbers[1], numbers[2]);
        let (change, rate, root, limit) = (numbers[3], numbers[4], numbers[5], numbers[6]);
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
        value[i] = kept - by;
        first[i] = mean;
        second[i] = square;
    }
}
