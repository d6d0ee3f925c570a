//! The contract between those who have tokens and those who turn them into numbers.

use crate::Error;

/// One tokenised input.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sequence {
    /// Token ids, special tokens included, no padding.
    pub ids: Vec<u32>,
    /// Token types (segments), one per id; empty means all zero.
    pub types: Vec<u32>,
}

/// Several inputs to be run together. There is no padding anywhere: position-wise steps see the
/// sequences end to end, and only attention knows where one ends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The inputs.
    pub sequences: Vec<Sequence>,
    /// Which token rows the caller wants, for heads that answer per token.
    pub wanted: Wanted,
}

/// Rows a caller wants from a head that answers per token ([`crate::HeadRows::All`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Wanted {
    /// What the head reads.
    #[default]
    Head,
    /// Only these token positions of each sequence, in order (fill-mask: where the mask is; next token: the last).
    Rows(Vec<Vec<usize>>),
    /// The last hidden state of all rows, with no head at all (after the final norm, if there is one).
    Hidden,
}

/// What came out, one entry per sequence of the batch, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outputs {
    /// Width of one output row (labels, vocabulary, hidden width).
    pub width: usize,
    /// Per sequence: `rows * width` numbers. Sequence heads have one row, token heads one per token wanted.
    pub sequences: Vec<Vec<f32>>,
}

/// Whatever turns a batch into numbers: the CPU engine, or Burn on any of its devices.
pub trait Executor: Send + Sync {
    /// Runs the batch. Raw logits, embeddings already normalised where the head says so.
    fn run(&self, batch: &Batch) -> Result<Outputs, Error>;
}
