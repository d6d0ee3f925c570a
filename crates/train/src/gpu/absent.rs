//! What stands for kernels of our own in a build without GPUs: no device has them.

use super::{Drops, Step};
use burn::tensor::{DType, Tensor};

pub(crate) fn gelu(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn gelu_back(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn dropped(_: &Tensor<2>, _: Drops) -> Option<Tensor<2>> {
    None
}

pub(crate) fn norm(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>, _: f32) -> Option<[Tensor<2>; 2]> {
    None
}

pub(crate) fn norm_back(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn norm_sums(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>) -> Option<[Tensor<2>; 2]> {
    None
}

pub(crate) fn softmax(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn softmax_back(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn column_sums(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn product<const D: usize>(_: &Tensor<D>, _: &Tensor<D>, _: DType) -> Option<Tensor<D>> {
    None
}

pub(crate) fn together(_: &[Tensor<1>]) -> Option<Tensor<1>> {
    None
}

pub(crate) fn square_sum(_: &Tensor<1>) -> Option<Tensor<1>> {
    None
}

pub(crate) fn adam(
    _: [&Tensor<1>; 4],
    _: &Tensor<1>,
    _: Option<&Tensor<1>>,
    _: Option<&Tensor<1>>,
    _: Step,
) -> Option<[Tensor<1>; 3]> {
    None
}
