//! Weights laid out for the kernels.

/// How weights are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// bfloat16 weights; products of bf16 activations where the machine has the instructions, else of f32 ones.
    Bf16,
    /// Signed bytes with a scale per output; activations become unsigned bytes with a scale and zero point per row.
    Int8,
}

/// A matrix of `outputs` x `inputs`, packed for multiplication from the right: `y = x Wᵀ`.
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    format: Format,
    pub(crate) values: Vec<f32>,
}

impl PackedMatrix {
    /// Packs row-major `[outputs, inputs]` weights.
    pub fn pack(weights: &[f32], outputs: usize, inputs: usize, format: Format) -> Self {
        assert_eq!(weights.len(), outputs * inputs);
        PackedMatrix { outputs, inputs, format, values: weights.to_vec() }
    }

    /// Width of a result row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Width of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How the weights are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.values.len() * 4
    }
}
