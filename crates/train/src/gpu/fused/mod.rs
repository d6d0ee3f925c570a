//! Kernels of our own, each in place of several of Burn's: on a GPU an update's time goes by launches and by passes over memory.
//!
//! They compute in f32 whatever they read and write. Functions return `None` where there is no such device, and Burn's
//! operations do the same there.

mod adam;
mod bytes;
mod compare;
mod elements;
mod product;
mod record;
mod rows;
mod sums;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use adam::{adam, part, shares_memory, square_sum, together, write_over};
pub(crate) use bytes::byte_linear;
pub(crate) use compare::{mean_square, mean_square_back, within, within_back};
pub(crate) use elements::{dropped, gelu, gelu_back, scaled};
pub(crate) use product::product;
pub(crate) use record::{Graph, Recording};
pub(crate) use rows::{norm, norm_back, softmax, softmax_back};
pub(crate) use sums::{column_most, column_sums, norm_sums};

use burn::backend::Cube;
use burn::tensor::{DType, Tensor};
use burn_cubecl::cubecl::prelude::{CubeCount, CubeDim};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

/// Units that work on one row together.
const ACROSS: u32 = 32;
/// Rows of one cube.
const DOWN: u32 = 4;
/// Cubes along the first axis, where WebGPU allows 65,535.
const WIDE: u32 = 32_768;

/// A tensor's buffer in the order of its elements, if it lies on a GPU and kernels can count that far.
fn buffer<const D: usize>(tensor: Tensor<D>) -> Option<CubeTensor> {
    if crate::ops::on_host(&tensor.device()) || tensor.shape().num_elements() > u32::MAX as usize {
        return None;
    }
    Some(into_contiguous(tensor.try_into_primitive::<Cube>().ok()?))
}

/// A buffer to be written, beside another. Its rows follow each other without gaps, which CUDA's would have otherwise.
fn beside(other: &CubeTensor, shape: &[usize], precision: DType) -> CubeTensor {
    empty_device_contiguous_dtype(other.client.clone(), other.device.clone(), shape.into(), precision)
}

fn tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(buffer)
}

/// A unit for every element.
fn per_element(elements: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new_1d(ACROSS * DOWN);
    (grid(elements.div_ceil((ACROSS * DOWN) as usize)), dim)
}

/// [`ACROSS`] units for every row.
fn per_row(rows: usize) -> (CubeCount, CubeDim) {
    (grid(rows.div_ceil(DOWN as usize)), CubeDim::new_2d(ACROSS, DOWN))
}

fn grid(cubes: usize) -> CubeCount {
    let x = cubes.clamp(1, WIDE as usize);
    CubeCount::Static(x as u32, cubes.div_ceil(x).max(1) as u32, 1)
}

/// How kernels name a precision.
fn elements(tensor: &CubeTensor) -> burn_cubecl::cubecl::ir::ElemType {
    burn_backend::cubecl::dtype_to_storage_type(tensor.dtype)
}
