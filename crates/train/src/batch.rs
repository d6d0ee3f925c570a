//! Batches as Burn wants them: padded.

use crate::data::Target;
use crate::feed;
use burn::tensor::{Bool, Device, Int, Tensor};
use sparing_model::Sequence;
use std::sync::Arc;

/// Texts and what is wanted of them, padded to a common length.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostBatch {
    /// Token ids of each text.
    pub(crate) ids: Vec<Vec<u32>>,
    /// Token types, one per token.
    pub(crate) types: Vec<Vec<u32>>,
    /// Common length.
    pub(crate) length: usize,
    /// The answers, where there are any.
    pub(crate) targets: Vec<Target>,
}

impl HostBatch {
    /// Pads to `length`, at least the longest.
    pub(crate) fn new(sequences: &[Sequence], targets: Vec<Target>, length: usize) -> HostBatch {
        let longest = sequences.iter().map(|s| s.ids.len()).max().unwrap_or(0);
        HostBatch {
            ids: sequences.iter().map(|s| s.ids.clone()).collect(),
            types: sequences.iter().map(types_of).collect(),
            length: length.max(longest).max(1),
            targets,
        }
    }

    /// 1 where there is a token.
    fn presence(&self) -> Vec<i32> {
        let row = |ids: &Vec<u32>| (0..self.length).map(|i| i32::from(i < ids.len())).collect::<Vec<_>>();
        self.ids.iter().flat_map(row).collect()
    }

    /// What is known of every token as it lies on the device: `[batch * length]`, 0 where padded.
    pub(crate) fn padded(&self, known: &[Vec<u32>]) -> Vec<i32> {
        let zeros = || std::iter::repeat_n(0, self.length);
        let row = |text: &Vec<u32>| text.iter().map(|x| *x as i32).chain(zeros()).take(self.length).collect::<Vec<_>>();
        known.iter().flat_map(row).collect()
    }

    /// Real tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }

    /// The largest token type; nothing needs looking up where it is zero.
    pub(crate) fn most_type(&self) -> u32 {
        self.types.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Whether rows of texts have answers of their own: of these there is another number in every batch.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.targets.iter().any(|target| matches!(target, Target::Rows(_)))
    }

    /// Whether there is no padding.
    pub(crate) fn is_full(&self) -> bool {
        self.ids.iter().all(|ids| ids.len() == self.length)
    }
}

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
    /// The same on the host.
    pub(crate) host: Arc<HostBatch>,
    device: Device,
}

impl PaddedBatch {
    /// Pads to `length` (at least the longest; rounding up to a few lengths keeps GPU kernels few).
    pub fn new(sequences: &[Sequence], length: usize, device: &Device) -> PaddedBatch {
        PaddedBatch::of(HostBatch::new(sequences, vec![], length), device)
    }

    /// Puts a batch on a device.
    pub(crate) fn of(host: HostBatch, device: &Device) -> PaddedBatch {
        let host = Arc::new(host);
        // Nothing here has a gradient.
        let device = device.clone().without_autodiff();
        let shape = [host.ids.len(), host.length];
        let ints = |of: fn(&HostBatch) -> Vec<i32>| -> Tensor<2, Int> {
            feed::ints(&device, of(&host), move |moment| Ok(of(&moment.batch))).reshape(shape)
        };
        PaddedBatch {
            ids: ints(|host| host.padded(&host.ids)),
            types: ints(|host| host.padded(&host.types)),
            mask: ints(HostBatch::presence).equal_elem(1),
            lengths: host.ids.iter().map(Vec::len).collect(),
            length: host.length,
            host,
            device,
        }
    }

    /// Whole numbers that depend on nothing but the batch.
    pub(crate) fn ints(&self, of: impl Fn(&HostBatch) -> Vec<i32> + 'static) -> Tensor<1, Int> {
        feed::ints(&self.device, of(&self.host), move |moment| Ok(of(&moment.batch)))
    }

    /// Numbers that depend on nothing but the batch.
    pub(crate) fn floats(&self, of: impl Fn(&HostBatch) -> Vec<f32> + 'static) -> Tensor<1> {
        feed::floats(&self.device, of(&self.host), move |moment| Ok(of(&moment.batch)))
    }

    /// Sequences.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Real tokens.
    pub fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Where row `row` of sequence `sequence` is among `[batch * length]` rows.
    pub fn row(&self, sequence: usize, row: usize) -> usize {
        sequence * self.length + row
    }
}
