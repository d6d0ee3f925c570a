//! Tensors of any number of axes as rows of the last one.

use burn::tensor::Tensor;

/// An operation on rows done to all rows of the last axis.
pub(crate) fn by_rows<const D: usize>(x: Tensor<D>, run: impl FnOnce(Tensor<2>) -> Tensor<2>) -> Tensor<D> {
    let shape = x.shape();
    let width = shape[D - 1];
    run(x.reshape([shape.num_elements() / width.max(1), width])).reshape(shape)
}
