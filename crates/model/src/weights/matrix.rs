//! Matrices in the one layout everybody computes with: row-major `[outputs, inputs]`, f32.

use super::{ScaleAxis, Tensor, Weights};
use crate::{Error, Linear, Matrix};

/// Input rows transposed together: a block's columns then stay in the first-level cache.
const BLOCK: usize = 16;

/// A matrix of integers with a scale per output: a weight is integer x scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Integers {
    /// Row-major `[outputs, inputs]`.
    pub values: Vec<i8>,
    /// One per output.
    pub scales: Vec<f32>,
}

impl Weights {
    /// The integers of a linear map, whatever the file's layout, so that nothing is rounded twice. `None` if the map is
    /// not stored as integers with a scale per output.
    pub fn integers(&self, linear: &Linear) -> Result<Option<Integers>, Error> {
        if linear.is_empty() {
            return Ok(None);
        }
        self.check_matrix(&linear.weight, linear.outputs, linear.inputs)?;
        let Matrix::Tensor { name, in_out, slice } = &linear.weight else { return Ok(None) };
        let tensor = self.tensor(name)?;
        let axis = if *in_out { ScaleAxis::Column } else { ScaleAxis::Row };
        let Some(quantized) = tensor.quantized().filter(|q| q.axis() == axis) else { return Ok(None) };
        let (outputs, inputs, start) = (linear.outputs, linear.inputs, slice.map_or(0, |s| s.0));
        let scales = quantized.scales()[start..start + outputs].to_vec();
        let mut values = vec![0; outputs * inputs];
        if *in_out {
            let stored = tensor.len() / inputs;
            let mut row = vec![0; outputs];
            for input in 0..inputs {
                quantized.integers(input * stored + start, &mut row);
                for (output, q) in row.iter().enumerate() {
                    values[output * inputs + input] = *q;
                }
            }
        } else {
            quantized.integers(start * inputs, &mut values);
        }
        Ok(Some(Integers { values, scales }))
    }

    /// The matrix of a linear map in f32, row-major `[outputs, inputs]` whatever the file's layout.
    pub fn matrix(&self, linear: &Linear) -> Result<Vec<f32>, Error> {
        if linear.is_empty() {
            return Ok(vec![]);
        }
        // Shapes first: numbers from a configuration must not decide an allocation.
        self.check_matrix(&linear.weight, linear.outputs, linear.inputs)?;
        if let Matrix::Tensor { name, in_out: false, slice } = &linear.weight {
            return self.rows(self.tensor(name)?, slice.map_or(0, |s| s.0), linear.outputs, linear.inputs);
        }
        let mut out = vec![0.0; linear.outputs * linear.inputs];
        self.fill(&linear.weight, linear.outputs, linear.inputs, &mut out, 0, linear.inputs)?;
        Ok(out)
    }

    /// Checks that the stored tensors of `matrix` exist and hold `outputs` x `inputs` numbers.
    pub(crate) fn check_matrix(&self, matrix: &Matrix, outputs: usize, inputs: usize) -> Result<(), Error> {
        match matrix {
            Matrix::Tensor { name, in_out, slice } => {
                let tensor = self.tensor(name)?;
                let first = tensor.shape.first().copied().unwrap_or(0);
                let rest = tensor.shape.iter().skip(1).product::<usize>();
                let (stored_outputs, stored_inputs) = if *in_out { (rest, first) } else { (first, rest) };
                let fits = match slice {
                    None => stored_outputs == outputs,
                    Some((start, end)) => start < end && *end <= stored_outputs && end - start == outputs,
                };
                if !fits || stored_inputs != inputs {
                    let outputs = slice.map_or(outputs, |s| s.1);
                    let expected = if *in_out { [inputs, outputs] } else { [outputs, inputs] };
                    return Err(misshapen(name, &expected, tensor.shape));
                }
                Ok(())
            }
            Matrix::ConcatInputs(parts) => {
                let total = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.1));
                if total != Some(inputs) {
                    return Err(Error::new(format!("a joined matrix has {total:?} inputs where {inputs} are needed")));
                }
                parts.iter().try_for_each(|(part, width)| self.check_matrix(part, outputs, *width))
            }
        }
    }

    /// Output rows as they are stored.
    fn rows(&self, tensor: Tensor<'_>, start: usize, outputs: usize, inputs: usize) -> Result<Vec<f32>, Error> {
        let mut out = vec![0.0; outputs * inputs];
        tensor.read(start * inputs, &mut out);
        Ok(out)
    }

    /// Writes `matrix` into columns `column .. column + inputs` of `out`, whose rows are `stride` long.
    fn fill(
        &self,
        matrix: &Matrix,
        outputs: usize,
        inputs: usize,
        out: &mut [f32],
        column: usize,
        stride: usize,
    ) -> Result<(), Error> {
        match matrix {
            Matrix::Tensor { name, in_out: false, slice } => {
                let tensor = self.tensor(name)?;
                let start = slice.map_or(0, |s| s.0);
                for output in 0..outputs {
                    let to = output * stride + column;
                    tensor.read((start + output) * inputs, &mut out[to..to + inputs]);
                }
            }
            Matrix::Tensor { name, in_out: true, slice } => {
                let tensor = self.tensor(name)?;
                let stored = tensor.shape.iter().skip(1).product::<usize>();
                let start = slice.map_or(0, |s| s.0);
                let mut block = vec![0.0; BLOCK * outputs];
                for first in (0..inputs).step_by(BLOCK) {
                    let rows = BLOCK.min(inputs - first);
                    for row in 0..rows {
                        tensor.read((first + row) * stored + start, &mut block[row * outputs..(row + 1) * outputs]);
                    }
                    for output in 0..outputs {
                        let to = output * stride + column + first;
                        for (row, out) in out[to..to + rows].iter_mut().enumerate() {
                            *out = block[row * outputs + output];
                        }
                    }
                }
            }
            Matrix::ConcatInputs(parts) => {
                let mut column = column;
                for (part, width) in parts {
                    self.fill(part, outputs, *width, out, column, stride)?;
                    column += width;
                }
            }
        }
        Ok(())
    }
}

/// The error for a tensor that holds an infinity or something that is not a number.
pub fn not_finite(name: &str) -> Error {
    Error::new(format!("tensor \"{name}\" holds a number that is not finite; fetch or export the model again"))
}

/// The error for a tensor whose shape is not what the architecture says.
pub(crate) fn misshapen(name: &str, expected: &[usize], found: &[usize]) -> Error {
    Error::new(format!(
        "tensor \"{name}\" has shape {found:?} where config.json asks for {expected:?}; config.json and the weights do not belong together"
    ))
}
