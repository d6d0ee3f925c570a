//! The contract between those who have tokens and those who turn them into numbers.

use crate::{Architecture, Error, HeadRows};

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

impl Batch {
    /// Refuses what no executor of this architecture can run, in one line that says why.
    pub fn check(&self, architecture: &Architecture) -> Result<(), Error> {
        for (number, sequence) in self.sequences.iter().enumerate() {
            check_sequence(architecture, number, sequence)?;
        }
        let Wanted::Rows(wanted) = &self.wanted else { return Ok(()) };
        if architecture.head.rows != HeadRows::All {
            return Err(Error::new(
                "this head answers once per sequence; rows can be chosen only for heads that answer per token",
            ));
        }
        if wanted.len() != self.sequences.len() {
            let (lists, sequences) = (wanted.len(), self.sequences.len());
            return Err(Error::new(format!("{lists} lists of wanted rows for {sequences} sequences; give one each")));
        }
        for (number, (rows, sequence)) in wanted.iter().zip(&self.sequences).enumerate() {
            if let Some(row) = rows.iter().find(|row| **row >= sequence.ids.len()) {
                let tokens = sequence.ids.len();
                return Err(Error::new(format!(
                    "sequence {number}: row {row} is wanted but there are {tokens} tokens"
                )));
            }
        }
        Ok(())
    }
}

fn check_sequence(architecture: &Architecture, number: usize, sequence: &Sequence) -> Result<(), Error> {
    let tokens = sequence.ids.len();
    let embeddings = &architecture.embeddings;
    if tokens == 0 {
        return Err(Error::new(format!("sequence {number} is empty; give it one token at least")));
    }
    if let Some(limit) = architecture.longest_input().filter(|limit| tokens > *limit) {
        return Err(Error::new(format!("sequence {number} has {tokens} tokens; this model takes {limit} at most")));
    }
    if let Some(id) = sequence.ids.iter().find(|id| **id as usize >= embeddings.vocabulary) {
        let words = embeddings.vocabulary;
        return Err(Error::new(format!("sequence {number}: token id {id} is outside the vocabulary of {words}")));
    }
    if !sequence.types.is_empty() && sequence.types.len() != tokens {
        let types = sequence.types.len();
        return Err(Error::new(format!("sequence {number} has {types} token types for {tokens} tokens")));
    }
    if let Some(table) = &embeddings.token_types
        && let Some(kind) = sequence.types.iter().find(|t| **t as usize >= table.rows)
    {
        let rows = table.rows;
        return Err(Error::new(format!("sequence {number}: token type {kind}, but this model knows {rows}")));
    }
    Ok(())
}
