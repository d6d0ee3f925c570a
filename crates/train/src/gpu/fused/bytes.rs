//! Linear maps of bytes: rows are rounded to 8 bits with a scale each, multiplied on tensor cores, and scaled back.

use super::product::multiplied;
use super::rows::{columns, largest, row};
use super::{ACROSS, DOWN, beside, buffer, elements, per_element, per_row, tensor};
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The largest byte.
const MOST: f32 = 127.0;
/// What sides must be multiples of.
const STEP: usize = 16;

/// `x Wᵀ + b` in the precision of `x`: `[rows, inputs]` to `[rows, outputs]`; weight `[outputs, inputs]` and bias `[1, outputs]` are f32.
/// `None` where the device has no such kernel.
pub(crate) fn byte_linear(x: &Tensor<2>, weight: &Tensor<2>, bias: Option<&Tensor<2>>) -> Option<Tensor<2>> {
    let ([rows, inputs], [outputs, _]) = (x.dims(), weight.dims());
    let (x, weight) = (buffer(x.clone())?, buffer(weight.clone())?);
    if [rows, inputs, outputs].iter().any(|side| !side.is_multiple_of(STEP)) || !has_bytes(&x) {
        return None;
    }
    let shifts = bias.is_some();
    let (out, (x, of_row)) = (beside(&x, &[rows, outputs], x.dtype), rounded(x, rows, inputs));
    let (weight, of_column) = rounded(weight, outputs, inputs);
    let sums = beside(&x, &[rows, outputs], DType::I32);
    let sums = multiplied(x, turned(weight), sums)?;
    // What is not there is not read.
    let bias = bias.map_or(Some(of_column.clone()), |bias| buffer(bias.clone()))?;
    let (count, dim) = per_element(rows * outputs);
    let (client, kind, width) = (out.client.clone(), elements(&out), outputs as u32);
    let [sums, of_row, of_column, bias, to] =
        [sums, of_row, of_column, bias, out.clone()].map(|buffer| buffer.into_buffer_arg());
    unround_kernel::launch(&client, count, dim, sums, of_row, of_column, bias, to, width, shifts, kind);
    Some(tensor(out))
}

/// Whether tensor cores of this device multiply bytes.
fn has_bytes(on: &CubeTensor) -> bool {
    let byte = i8::elem_type_native();
    on.client.properties().features.matmul.mma.iter().any(|kind| kind.a_type == byte && kind.b_type == byte)
}

/// Bytes, and the scale of every row.
fn rounded(x: CubeTensor, rows: usize, width: usize) -> (CubeTensor, CubeTensor) {
    let (out, scales) = (beside(&x, &[rows, width], DType::I8), beside(&x, &[rows, 1], DType::F32));
    let (count, dim) = per_row(rows);
    let (client, kind) = (out.client.clone(), elements(&x));
    let [x, to, of] = [x, out.clone(), scales.clone()].map(|buffer| buffer.into_buffer_arg());
    round_kernel::launch(&client, count, dim, x, to, of, rows as u32, width as u32, kind);
    (out, scales)
}

/// A matrix read column by column.
fn turned(mut matrix: CubeTensor) -> CubeTensor {
    matrix.meta.swap(0, 1);
    matrix
}

#[cube(launch)]
fn round_kernel<F: Float>(
    x: &[F],
    out: &mut [i8],
    scales: &mut [f32],
    rows: u32,
    width: u32,
    #[define(F)] _kind: ElemType,
) {
    let mut parts = Shared::new_slice((ACROSS * DOWN) as usize);
    let row = row();
    let (start, end) = (row * width, columns(row, rows, width));
    let mut most = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < end {
        most = most.max(f32::cast_from(x[(start + i) as usize]).abs());
        i += CUBE_DIM_X;
    }
    // A row of zeros stays one.
    let most = largest(most, &mut parts).max(1.0e-30f32);
    let scale = MOST / most;
    i = UNIT_POS_X;
    while i < end {
        let at = (start + i) as usize;
        out[at] = i8::cast_from((f32::cast_from(x[at]) * scale).round());
        i += CUBE_DIM_X;
    }
    if UNIT_POS_X == 0 && row < rows {
        scales[row as usize] = most / MOST;
    }
}

#[cube(launch)]
fn unround_kernel<F: Float>(
    sums: &[i32],
    of_row: &[f32],
    of_column: &[f32],
    bias: &[f32],
    out: &mut [F],
    width: u32,
    #[comptime] shifts: bool,
    #[define(F)] _kind: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        let (row, column) = (i / width as usize, i % width as usize);
        let mut value = f32::cast_from(sums[i]) * of_row[row] * of_column[column];
        if comptime!(shifts) {
            value += bias[column];
        }
        out[i] = F::cast_from(value);
    }
}
