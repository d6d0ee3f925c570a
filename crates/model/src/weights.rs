//! Memory-mapped weights, addressed by tensor name.

use crate::{Bias, Error, Linear};

/// All tensors of a model: one or several mapped safetensors files, or tensors in memory.
pub struct Weights {}

/// One tensor, still in the file's element type.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Shape, outermost axis first.
    pub shape: &'a [usize],
    /// (private representation)
    bytes: &'a [u8],
}

impl Tensor<'_> {
    /// Converts elements `start .. start + out.len()` to f32.
    pub fn read(&self, start: usize, out: &mut [f32]) {
        let _ = (self.bytes, start, out);
        todo!()
    }
}

impl Weights {
    /// The tensor of this name. The error names it and the files searched.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, Error> {
        let _ = name;
        todo!()
    }

    /// A vector of this length in f32; an error if the tensor has another number of elements.
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, Error> {
        let _ = (name, length);
        todo!()
    }

    /// The bias of a linear map in f32.
    pub fn bias(&self, bias: &Bias, length: usize) -> Result<Vec<f32>, Error> {
        let _ = (bias, length);
        todo!()
    }

    /// The matrix of a linear map in f32, row-major `[outputs, inputs]` whatever the file's layout.
    pub fn matrix(&self, linear: &Linear) -> Result<Vec<f32>, Error> {
        let _ = linear;
        todo!()
    }

    /// Tells the operating system that this tensor's pages will not be read again soon, so that a packed
    /// copy and the mapping do not both stay resident.
    pub fn release(&self, name: &str) {
        let _ = name;
    }
}
