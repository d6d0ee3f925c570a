//! What stands for kernels of our own in a build without GPUs: no device has them.

use super::{Counted, Drops};
use crate::feed::{Fed, Numbers};
use burn::tensor::{DType, Int, Tensor};
use sparing_model::Error;
use std::ops::Range;

pub(crate) fn gelu(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn gelu_back(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn dropped(_: &Tensor<2>, _: &Tensor<1, Int>, _: Drops) -> Option<Tensor<2>> {
    None
}

pub(crate) fn norm(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>, _: f32) -> Option<[Tensor<2>; 2]> {
    None
}

pub(crate) fn norm_back(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn scaled(_: &Tensor<2>, _: &Tensor<2>, _: Option<&Tensor<2>>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn norm_sums(_: &Tensor<2>, _: Option<&Tensor<2>>, _: &Tensor<2>) -> Option<[Tensor<2>; 2]> {
    None
}

pub(crate) fn softmax(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn softmax_back(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn mean_square(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>, _: Counted) -> Option<[Tensor<2>; 2]> {
    None
}

pub(crate) fn mean_square_back(_: [&Tensor<2>; 5], _: Counted) -> Option<Tensor<2>> {
    None
}

pub(crate) fn within(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn within_back(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn column_most(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn column_sums(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn product<const D: usize>(_: &Tensor<D>, _: &Tensor<D>, _: DType) -> Option<Tensor<D>> {
    None
}

pub(crate) fn byte_linear(_: &Tensor<2>, _: &Tensor<2>, _: Option<&Tensor<2>>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn together(_: &[Tensor<1>], _: &[usize]) -> Option<Tensor<1>> {
    None
}

pub(crate) fn part(_: &Tensor<1>, _: Range<usize>, _: [usize; 2]) -> Option<Tensor<2>> {
    None
}

pub(crate) fn write_over(_: &Tensor<1>, _: &Tensor<1>) -> Option<()> {
    None
}

pub(crate) fn shares_memory(_: &Tensor<2>, _: &Tensor<1>) -> bool {
    false
}

pub(crate) fn square_sum(_: &Tensor<1>) -> Option<Tensor<1>> {
    None
}

pub(crate) fn adam(
    _: [&Tensor<1>; 4],
    _: &Tensor<1>,
    _: Option<&Tensor<1>>,
    _: Option<&Tensor<1>>,
    _: &Tensor<1>,
) -> Option<()> {
    None
}

/// No device repeats anything.
pub(crate) enum Recording {}

pub(crate) enum Graph {}

impl Recording {
    pub(crate) fn prepare(_: &Tensor<1>) -> Result<Option<Recording>, Error> {
        Ok(None)
    }

    pub(crate) fn begin(&self) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn end(self) -> Result<Graph, Error> {
        match self {}
    }
}

impl Graph {
    pub(crate) fn write(&self, _: &Fed, _: Numbers) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn replay(&self) -> Result<(), Error> {
        match *self {}
    }
}
