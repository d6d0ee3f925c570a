//! Squared differences, and bounds.

use super::rows::total;
use super::{beside, buffer, per_element, tensor};
use crate::gpu::Counted;
use burn::tensor::{DType, Tensor};
use cubecl::prelude::*;

/// Cubes that sum, and their units.
const CUBES: u32 = 128;
const UNITS: u32 = 256;

/// How a kernel finds what a number counts: by rows, or by heads and pairs of so many tokens.
fn heads(counted: Counted) -> (bool, u32) {
    match counted {
        Counted::Rows => (false, 1),
        Counted::Pairs { heads } => (true, heads as u32),
    }
}

/// The mean of squared differences over what counts, and how many numbers these are, `[1, 1]` each.
pub(crate) fn mean_square(
    a: &Tensor<2>,
    b: &Tensor<2>,
    tokens: &Tensor<2>,
    counted: Counted,
) -> Option<[Tensor<2>; 2]> {
    let ([_, width], [_, length]) = (a.dims(), tokens.dims());
    let (a, b, tokens) = (buffer(a.clone())?, buffer(b.clone())?, buffer(tokens.clone())?);
    let (parts, mean, count) = (
        beside(&a, &[CUBES as usize, 2], DType::F32),
        beside(&a, &[1, 1], DType::F32),
        beside(&a, &[1, 1], DType::F32),
    );
    let client = a.client.clone();
    let (pairs, heads) = heads(counted);
    let [a, b, tokens, to] = [a, b, tokens, parts.clone()].map(|b| b.into_buffer_arg());
    let (cubes, dim) = (CubeCount::Static(CUBES, 1, 1), CubeDim::new_1d(UNITS));
    square_kernel::launch(&client, cubes, dim, a, b, tokens, to, width as u32, length as u32, heads, pairs);
    let [parts, to, number] = [parts, mean.clone(), count.clone()].map(|b| b.into_buffer_arg());
    mean_kernel::launch(&client, CubeCount::Static(1, 1, 1), CubeDim::new_1d(CUBES), parts, to, number);
    Some([tensor(mean), tensor(count)])
}

/// The gradient of the first from that of [`mean_square`]: of rows, others, tokens, their count and the gradient `[1, 1]`.
pub(crate) fn mean_square_back([a, b, tokens, count, g]: [&Tensor<2>; 5], counted: Counted) -> Option<Tensor<2>> {
    let ([rows, width], [_, length]) = (a.dims(), tokens.dims());
    let [a, b, tokens, number, g] = [a, b, tokens, count, g].map(|x| buffer(x.clone()));
    let (a, b, tokens, number, g) = (a?, b?, tokens?, number?, g?);
    let out = beside(&a, &[rows, width], DType::F32);
    let (client, (pairs, heads)) = (a.client.clone(), heads(counted));
    let (cubes, dim) = per_element(rows * width);
    let [a, b, tokens, number, g, to] = [a, b, tokens, number, g, out.clone()].map(|b| b.into_buffer_arg());
    square_back_kernel::launch(
        &client,
        cubes,
        dim,
        a,
        b,
        tokens,
        number,
        g,
        to,
        width as u32,
        length as u32,
        heads,
        pairs,
    );
    Some(tensor(out))
}

/// Rows within `most` of either sign.
pub(crate) fn within(x: &Tensor<2>, most: &Tensor<2>) -> Option<Tensor<2>> {
    held(x, most, None)
}

/// The gradient of rows from that of [`within`].
pub(crate) fn within_back(x: &Tensor<2>, most: &Tensor<2>, g: &Tensor<2>) -> Option<Tensor<2>> {
    held(x, most, Some(g))
}

fn held(x: &Tensor<2>, most: &Tensor<2>, g: Option<&Tensor<2>>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, most) = (buffer(x.clone())?, buffer(most.clone())?);
    let back = g.is_some();
    // What is not there is not read.
    let g = g.map_or(Some(x.clone()), |g| buffer(g.clone()))?;
    let out = beside(&x, &[rows, width], DType::F32);
    let (cubes, dim) = per_element(rows * width);
    let [x, most, g, to] = [x, most, g, out.clone()].map(|b| b.into_buffer_arg());
    held_kernel::launch(&out.client.clone(), cubes, dim, x, most, g, to, width as u32, back);
    Some(tensor(out))
}

/// What the number at a place counts.
#[cube]
fn weight(tokens: &[f32], at: u32, width: u32, length: u32, heads: u32, #[comptime] pairs: bool) -> f32 {
    let row = at / width;
    let mut token = row;
    let mut other = 1.0f32;
    if comptime!(pairs) {
        let text = row / (heads * length) * length;
        token = text + row % length;
        other = tokens[(text + at % width) as usize];
    }
    tokens[token as usize] * other
}

#[cube(launch)]
fn square_kernel(
    a: &[f32],
    b: &[f32],
    tokens: &[f32],
    out: &mut [f32],
    width: u32,
    length: u32,
    heads: u32,
    #[comptime] pairs: bool,
) {
    let mut parts = Shared::new_slice(UNITS as usize);
    let mut sum = 0.0f32;
    let mut count = 0.0f32;
    let mut i = ABSOLUTE_POS;
    while i < a.len() {
        let weight = weight(tokens, i as u32, width, length, heads, pairs);
        let difference = a[i] - b[i];
        sum += difference * difference * weight;
        count += weight;
        i += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let sum = total(sum, &mut parts);
    let count = total(count, &mut parts);
    if UNIT_POS_X == 0 {
        out[(2 * CUBE_POS_X) as usize] = sum;
        out[(2 * CUBE_POS_X + 1) as usize] = count;
    }
}

#[cube(launch)]
fn mean_kernel(found: &[f32], mean: &mut [f32], number: &mut [f32]) {
    let mut parts = Shared::new_slice(CUBES as usize);
    let sum = total(found[(2 * UNIT_POS_X) as usize], &mut parts);
    let count = total(found[(2 * UNIT_POS_X + 1) as usize], &mut parts);
    if UNIT_POS_X == 0 {
        mean[0] = sum / count;
        number[0] = count;
    }
}

#[cube(launch)]
fn square_back_kernel(
    a: &[f32],
    b: &[f32],
    tokens: &[f32],
    number: &[f32],
    g: &[f32],
    out: &mut [f32],
    width: u32,
    length: u32,
    heads: u32,
    #[comptime] pairs: bool,
) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let weight = weight(tokens, i as u32, width, length, heads, pairs);
        out[i] = (a[i] - b[i]) * weight * (2.0f32 * g[0] / number[0]);
    }
}

#[cube(launch)]
fn held_kernel(x: &[f32], most: &[f32], g: &[f32], out: &mut [f32], width: u32, #[comptime] back: bool) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let most = most[i % width as usize];
        let mut value = x[i].min(most).max(-most);
        if comptime!(back) {
            value = 0.0f32;
            if x[i].abs() <= most {
                value = g[i];
            }
        }
        out[i] = value;
    }
}
