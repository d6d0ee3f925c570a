//! Sums of columns in two steps: units of neighbouring columns walk some rows each, then others walk what these found.

use super::{ACROSS, DOWN, beside, buffer, elements, tensor};
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Columns of a cube.
const COLUMNS: u32 = ACROSS * DOWN;
/// Rows that one unit walks, at least.
const ROWS: usize = 32;

/// The sum of all rows in f32: `[rows, width]` to `[1, width]`.
pub(crate) fn column_sums(x: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, parts) = (buffer(x.clone())?, parts(rows));
    Some(tensor(joined(x, rows, width, parts, false)))
}

/// The largest size in every column in f32: `[rows, width]` to `[1, width]`.
pub(crate) fn column_most(x: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, parts) = (buffer(x.clone())?, parts(rows));
    Some(tensor(joined(x, rows, width, parts, true)))
}

/// All rows joined to one, some of them first.
fn joined(x: CubeTensor, rows: usize, width: usize, parts: usize, by_size: bool) -> CubeTensor {
    match parts {
        1 => sum(x, rows, width, 1, by_size),
        _ => sum(sum(x, rows, width, parts, by_size), parts, width, 1, by_size),
    }
}

/// Gradients of a norm's weight and bias, `[1, width]` each, from that of its output; `moments` as the norm found them, `None` where rows
/// are scaled as they are.
pub(crate) fn norm_sums(x: &Tensor<2>, moments: Option<&Tensor<2>>, g: &Tensor<2>) -> Option<[Tensor<2>; 2]> {
    let [rows, width] = x.dims();
    let centred = moments.is_some();
    let (x, g) = (buffer(x.clone())?, buffer(g.clone())?);
    // What is not there is not read.
    let moments = moments.map_or(Some(x.clone()), |moments| buffer(moments.clone()))?;
    let parts = parts(rows);
    let each = rows.div_ceil(parts);
    let found = beside(&x, &[parts, 2 * width], DType::F32);
    let (client, to) = (found.client.clone(), found.clone().into_buffer_arg());
    let [x, moments, g] = [x, moments, g].map(|b| b.into_buffer_arg());
    let (count, dim) = cubes(width, parts);
    norm_sums_kernel::launch(&client, count, dim, x, moments, g, to, rows as u32, width as u32, each as u32, centred);
    let both: Tensor<2> = tensor(sum(found, parts, 2 * width, 1, false));
    Some([both.clone().slice([0..1, 0..width]), both.slice([0..1, width..2 * width])])
}

/// Sums of some rows each, or the largest sizes, `[parts, width]`.
fn sum(x: CubeTensor, rows: usize, width: usize, parts: usize, by_size: bool) -> CubeTensor {
    let found = beside(&x, &[parts, width], DType::F32);
    let (client, kind) = (found.client.clone(), elements(&x));
    let (count, dim) = cubes(width, parts);
    let [x, to] = [x, found.clone()].map(|b| b.into_buffer_arg());
    sum_kernel::launch(
        &client,
        count,
        dim,
        x,
        to,
        rows as u32,
        width as u32,
        rows.div_ceil(parts) as u32,
        by_size,
        kind,
    );
    found
}

/// Into how many parts the rows go.
fn parts(rows: usize) -> usize {
    rows.div_ceil(ROWS).clamp(1, 128)
}

fn cubes(width: usize, parts: usize) -> (CubeCount, CubeDim) {
    (CubeCount::Static((width as u32).div_ceil(COLUMNS), parts as u32, 1), CubeDim::new_1d(COLUMNS))
}

#[cube(launch)]
fn sum_kernel<F: Float>(
    x: &[F],
    out: &mut [f32],
    rows: u32,
    width: u32,
    each: u32,
    #[comptime] by_size: bool,
    #[define(F)] _kind: ElemType,
) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column < width {
        let mut row = CUBE_POS_Y * each;
        let end = (row + each).min(rows);
        let mut sum = 0.0f32;
        while row < end {
            let value = f32::cast_from(x[(row * width + column) as usize]);
            if comptime!(by_size) {
                sum = sum.max(value.abs());
            } else {
                sum += value;
            }
            row += 1;
        }
        out[(CUBE_POS_Y * width + column) as usize] = sum;
    }
}

#[cube(launch)]
fn norm_sums_kernel(
    x: &[f32],
    moments: &[f32],
    g: &[f32],
    out: &mut [f32],
    rows: u32,
    width: u32,
    each: u32,
    #[comptime] centred: bool,
) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column < width {
        let mut row = CUBE_POS_Y * each;
        let end = (row + each).min(rows);
        let mut weight = 0.0f32;
        let mut bias = 0.0f32;
        while row < end {
            let at = (row * width + column) as usize;
            let mut normal = x[at];
            if comptime!(centred) {
                normal = (normal - moments[(2 * row) as usize]) * moments[(2 * row + 1) as usize];
            }
            weight += g[at] * normal;
            bias += g[at];
            row += 1;
        }
        let to = CUBE_POS_Y * 2 * width + column;
        out[to as usize] = weight;
        out[(to + width) as usize] = bias;
    }
}
