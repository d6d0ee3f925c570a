//! Norms and softmax: a few units read a row together.

use super::{ACROSS, DOWN, beside, buffer, elements, per_row, tensor};
use burn::tensor::{DType, Tensor};
use cubecl::prelude::*;

/// Layer norm of f32 rows `[rows, width]`, weight and bias `[1, width]`: the normed rows, and mean and inverse deviation of
/// each, `[rows, 2]`.
pub(crate) fn norm(x: &Tensor<2>, weight: &Tensor<2>, bias: &Tensor<2>, eps: f32) -> Option<[Tensor<2>; 2]> {
    let [rows, width] = x.dims();
    let (x, weight, bias) = (buffer(x.clone())?, buffer(weight.clone())?, buffer(bias.clone())?);
    let (out, moments) = (beside(&x, &[rows, width], DType::F32), beside(&x, &[rows, 2], DType::F32));
    let (count, dim) = per_row(rows);
    let client = out.client.clone();
    let [x, weight, bias, to, about] = [x, weight, bias, out.clone(), moments.clone()].map(|b| b.into_buffer_arg());
    norm_kernel::launch(&client, count, dim, x, weight, bias, to, about, rows as u32, width as u32, eps);
    Some([tensor(out), tensor(moments)])
}

/// The gradient of a norm's input from that of its output; `moments` as [`norm`] found them.
pub(crate) fn norm_back(x: &Tensor<2>, weight: &Tensor<2>, moments: &Tensor<2>, g: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, weight, moments, g) =
        (buffer(x.clone())?, buffer(weight.clone())?, buffer(moments.clone())?, buffer(g.clone())?);
    let out = beside(&x, &[rows, width], DType::F32);
    let (count, dim) = per_row(rows);
    let client = out.client.clone();
    let [x, weight, moments, g, to] = [x, weight, moments, g, out.clone()].map(|b| b.into_buffer_arg());
    norm_back_kernel::launch(&client, count, dim, x, weight, moments, g, to, rows as u32, width as u32);
    Some(tensor(out))
}

/// Softmax of every row.
pub(crate) fn softmax(x: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let x = buffer(x.clone())?;
    let out = beside(&x, &[rows, width], x.dtype);
    let (count, dim) = per_row(rows);
    let (client, kind) = (out.client.clone(), elements(&x));
    let [x, to] = [x, out.clone()].map(|b| b.into_buffer_arg());
    softmax_kernel::launch(&client, count, dim, x, to, rows as u32, width as u32, kind);
    Some(tensor(out))
}

/// The gradient of scores from that of their shares.
pub(crate) fn softmax_back(shares: &Tensor<2>, g: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, width] = shares.dims();
    let (shares, g) = (buffer(shares.clone())?, buffer(g.clone())?);
    let out = beside(&shares, &[rows, width], shares.dtype);
    let (count, dim) = per_row(rows);
    let (client, kinds) = (out.client.clone(), [elements(&shares), elements(&g)]);
    let [shares, g, to] = [shares, g, out.clone()].map(|b| b.into_buffer_arg());
    softmax_back_kernel::launch(&client, count, dim, shares, g, to, rows as u32, width as u32, kinds);
    Some(tensor(out))
}

#[cube(launch)]
fn norm_kernel(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    out: &mut [f32],
    moments: &mut [f32],
    rows: u32,
    width: u32,
    eps: f32,
) {
    let mut parts = Shared::new_slice((ACROSS * DOWN) as usize);
    let row = row();
    let (start, end) = (row * width, columns(row, rows, width));
    let mut sum = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < end {
        sum += x[(start + i) as usize];
        i += CUBE_DIM_X;
    }
    let mean = total(sum, &mut parts) / f32::cast_from(width);
    let mut squares = 0.0f32;
    i = UNIT_POS_X;
    while i < end {
        let centred = x[(start + i) as usize] - mean;
        squares += centred * centred;
        i += CUBE_DIM_X;
    }
    let inverse = 1.0f32 / (total(squares, &mut parts) / f32::cast_from(width) + eps).sqrt();
    i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        out[at] = (x[at] - mean) * inverse * weight[i as usize] + bias[i as usize];
        i += CUBE_DIM_X;
    }
    if UNIT_POS_X == 0 && row < rows {
        moments[(2 * row) as usize] = mean;
        moments[(2 * row + 1) as usize] = inverse;
    }
}

#[cube(launch)]
fn norm_back_kernel(x: &[f32], weight: &[f32], moments: &[f32], g: &[f32], out: &mut [f32], rows: u32, width: u32) {
    let mut parts = Shared::new_slice((ACROSS * DOWN) as usize);
    let row = row();
    let (start, end) = (row * width, columns(row, rows, width));
    let mut mean = 0.0f32;
    let mut inverse = 0.0f32;
    if row < rows {
        mean = moments[(2 * row) as usize];
        inverse = moments[(2 * row + 1) as usize];
    }
    let mut sum = 0.0f32;
    let mut along = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        let pull = g[at] * weight[i as usize];
        sum += pull;
        along += pull * (x[at] - mean) * inverse;
        i += CUBE_DIM_X;
    }
    let sum = total(sum, &mut parts) / f32::cast_from(width);
    let along = total(along, &mut parts) / f32::cast_from(width);
    i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        let normal = (x[at] - mean) * inverse;
        out[at] = (g[at] * weight[i as usize] - sum - normal * along) * inverse;
        i += CUBE_DIM_X;
    }
}

#[cube(launch)]
fn softmax_kernel<F: Float>(x: &[F], out: &mut [F], rows: u32, width: u32, #[define(F)] _kind: ElemType) {
    let mut parts = Shared::new_slice((ACROSS * DOWN) as usize);
    let row = row();
    let (start, end) = (row * width, columns(row, rows, width));
    let mut most = f32::new(-3.0e38f32);
    let mut i = UNIT_POS_X;
    while i < end {
        most = most.max(f32::cast_from(x[(start + i) as usize]));
        i += CUBE_DIM_X;
    }
    let most = largest(most, &mut parts);
    let mut sum = 0.0f32;
    i = UNIT_POS_X;
    while i < end {
        sum += (f32::cast_from(x[(start + i) as usize]) - most).exp();
        i += CUBE_DIM_X;
    }
    let scale = 1.0f32 / total(sum, &mut parts);
    i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        out[at] = F::cast_from((f32::cast_from(x[at]) - most).exp() * scale);
        i += CUBE_DIM_X;
    }
}

#[cube(launch)]
fn softmax_back_kernel<F: Float, G: Float>(
    shares: &[F],
    g: &[G],
    out: &mut [F],
    rows: u32,
    width: u32,
    #[define(F, G)] _kinds: [ElemType; 2],
) {
    let mut parts = Shared::new_slice((ACROSS * DOWN) as usize);
    let row = row();
    let (start, end) = (row * width, columns(row, rows, width));
    let mut sum = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        sum += f32::cast_from(shares[at]) * f32::cast_from(g[at]);
        i += CUBE_DIM_X;
    }
    let sum = total(sum, &mut parts);
    i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        out[at] = F::cast_from((f32::cast_from(g[at]) - sum) * f32::cast_from(shares[at]));
        i += CUBE_DIM_X;
    }
}

/// The row that this unit works on; more of them may be asked for than there are.
#[cube]
pub(super) fn row() -> u32 {
    CUBE_POS as u32 * CUBE_DIM_Y + UNIT_POS_Y
}

/// How many columns a row has: none if it does not exist, so that its units only wait with the others.
#[cube]
pub(super) fn columns(row: u32, rows: u32, width: u32) -> u32 {
    let mut columns = 0u32;
    if row < rows {
        columns = width;
    }
    columns
}

/// The sum over the units of a row, known to all of them. `parts` has a place for every unit of the cube.
#[cube]
pub(super) fn total(value: f32, parts: &mut Shared<[f32]>) -> f32 {
    joined(value, parts, false)
}

/// The largest over the units of a row, known to all of them.
#[cube]
pub(super) fn largest(value: f32, parts: &mut Shared<[f32]>) -> f32 {
    joined(value, parts, true)
}

#[cube]
fn joined(value: f32, parts: &mut Shared<[f32]>, #[comptime] by_size: bool) -> f32 {
    let at = (UNIT_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize;
    // Whoever still reads what was there before is waited for.
    sync_cube();
    parts[at] = value;
    let mut half = CUBE_DIM_X / 2;
    while half > 0 {
        sync_cube();
        if UNIT_POS_X < half {
            let other = parts[at + half as usize];
            if comptime!(by_size) {
                parts[at] = parts[at].max(other);
            } else {
                parts[at] += other;
            }
        }
        half /= 2;
    }
    sync_cube();
    parts[(UNIT_POS_Y * CUBE_DIM_X) as usize]
}
