//! Batches as Burn wants them: padded.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use sparing_model::Sequence;

/// The type of every token of a sequence; 0 where none is given.
fn types_of(sequence: &Sequence) -> Vec<u32> {
    (0..sequence.ids.len()).map(|i| sequence.types.get(i).copied().unwrap_or(0)).collect()
}

/// Sequences padded to a common length on a device.
#[derive(Clone)]
pub struct PaddedBatch {
    /// Token ids `[batch, length]`, 0 where padded.
    pub ids: Tensor<2, Int>,
    /// Token types `[batch, length]`.
    pub types: Tensor<2, Int>,
    /// True where there is a token, `[batch, length]`.
    pub mask: Tensor<2, Bool>,
    /// Real length of each sequence.
    pub lengths: Vec<usize>,
    /// Common length.
    pub length: usize,
    /// The ids on the host, for what depends on a token (Longformer's separators).
    pub(crate) host: Vec<Vec<u32>>,
    /// The token types on the host, one per token.
    pub(crate) host_types: Vec<Vec<u32>>,
    /// The largest token type; nothing needs looking up where it is zero.
    pub(crate) most_type: u32,
}

impl PaddedBatch {
    /// Pads to `length` (at least the longest; rounding up to a few lengths keeps GPU kernels few).
    pub fn new(sequences: &[Sequence], length: usize, device: &Device) -> PaddedBatch {
        let longest = sequences.iter().map(|s| s.ids.len()).max().unwrap_or(0);
        let (count, length) = (sequences.len(), length.max(longest).max(1));
        let mut ids = vec![0i32; count * length];
        let mut types = vec![0i32; count * length];
        let mut mask = vec![false; count * length];
        for (number, sequence) in sequences.iter().enumerate() {
            let row = number * length;
            for (to, id) in ids[row..].iter_mut().zip(&sequence.ids) {
                *to = *id as i32;
            }
            for (to, kind) in types[row..].iter_mut().zip(&sequence.types) {
                *to = *kind as i32;
            }
            mask[row..row + sequence.ids.len()].fill(true);
        }
        // Nothing here has a gradient.
        let device = &device.clone().without_autodiff();
        let shape = [count, length];
        PaddedBatch {
            ids: Tensor::from_data(TensorData::new(ids, shape), device),
            types: Tensor::from_data(TensorData::new(types, shape), device),
            mask: Tensor::from_data(TensorData::new(mask, shape), device),
            lengths: sequences.iter().map(|s| s.ids.len()).collect(),
            length,
            host: sequences.iter().map(|s| s.ids.clone()).collect(),
            host_types: sequences.iter().map(types_of).collect(),
            most_type: sequences.iter().flat_map(|s| s.types.iter().copied()).max().unwrap_or(0),
        }
    }

    /// Sequences.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Real tokens.
    pub fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// What is known of every token on the host as it is on the device: `[batch * length]`, 0 where padded.
    pub(crate) fn padded(&self, known: &[Vec<u32>]) -> Vec<u32> {
        let zeros = || std::iter::repeat_n(0, self.length);
        known.iter().flat_map(|sequence| sequence.iter().copied().chain(zeros()).take(self.length)).collect()
    }

    /// Where row `row` of sequence `sequence` is among `[batch * length]` rows.
    pub fn row(&self, sequence: usize, row: usize) -> usize {
        sequence * self.length + row
    }
}
