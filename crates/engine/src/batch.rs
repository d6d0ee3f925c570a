//! Checking batches, and finding identical inputs in them.

use sparing_model::{Architecture, AttentionPosition, Batch, Error, HeadRows, Sequence, Wanted};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The longest input, in tokens: the model's own limit, and what the position table has rows for.
pub(crate) fn limit(architecture: &Architecture) -> Option<usize> {
    let rows = architecture.embeddings.positions.as_ref().map(|p| p.rows.saturating_sub(p.offset));
    [architecture.max_tokens, rows].into_iter().flatten().min()
}

/// Refuses what the program cannot run, in one line that says why.
pub(crate) fn check(architecture: &Architecture, batch: &Batch) -> Result<(), Error> {
    for (number, sequence) in batch.sequences.iter().enumerate() {
        check_sequence(architecture, number, sequence)?;
    }
    let Wanted::Rows(wanted) = &batch.wanted else { return Ok(()) };
    if architecture.head.rows != HeadRows::All {
        return Err(Error::new(
            "this head answers once per sequence; rows can be chosen only for heads that answer per token",
        ));
    }
    if wanted.len() != batch.sequences.len() {
        let (lists, sequences) = (wanted.len(), batch.sequences.len());
        return Err(Error::new(format!("{lists} lists of wanted rows for {sequences} sequences; give one each")));
    }
    for (number, (rows, sequence)) in wanted.iter().zip(&batch.sequences).enumerate() {
        if let Some(row) = rows.iter().find(|row| **row >= sequence.ids.len()) {
            let tokens = sequence.ids.len();
            return Err(Error::new(format!("sequence {number}: row {row} is wanted but there are {tokens} tokens")));
        }
    }
    Ok(())
}

fn check_sequence(architecture: &Architecture, number: usize, sequence: &Sequence) -> Result<(), Error> {
    let tokens = sequence.ids.len();
    let embeddings = &architecture.embeddings;
    if tokens == 0 {
        return Err(Error::new(format!("sequence {number} is empty; give it one token at least")));
    }
    if let Some(limit) = limit(architecture).filter(|limit| tokens > *limit) {
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

/// Whether token types change the result at all.
pub(crate) fn reads_types(architecture: &Architecture) -> bool {
    let relative = |position: &AttentionPosition| matches!(position, AttentionPosition::Relative { .. });
    architecture.embeddings.token_types.is_some() || architecture.layers.iter().any(|l| relative(&l.attention.position))
}

/// Which sequences of a batch are computed, and which only repeat them.
#[derive(Default)]
pub(crate) struct Once {
    seen: HashMap<u64, usize>,
    /// The sequences to compute.
    pub(crate) computed: Vec<usize>,
    /// For each sequence: itself, or the earlier one it repeats.
    pub(crate) like: Vec<usize>,
}

impl Once {
    /// Looks through a batch. `on`: identical ones are found; else every sequence is computed.
    pub(crate) fn fill(&mut self, batch: &Batch, on: bool, types: bool) {
        self.seen.clear();
        self.computed.clear();
        self.like.clear();
        for (number, sequence) in batch.sequences.iter().enumerate() {
            let mut like = number;
            if on && batch.sequences.len() > 1 {
                let mut hasher = DefaultHasher::new();
                sequence.ids.hash(&mut hasher);
                if types && sequence.types.iter().any(|t| *t != 0) {
                    sequence.types.hash(&mut hasher);
                }
                if let Wanted::Rows(rows) = &batch.wanted {
                    rows[number].hash(&mut hasher);
                }
                let known = *self.seen.entry(hasher.finish()).or_insert(number);
                if same(batch, known, number, types) {
                    like = known;
                }
            }
            if like == number {
                self.computed.push(number);
            }
            self.like.push(like);
        }
    }
}

/// Whether two sequences of a batch have the same answer by necessity.
fn same(batch: &Batch, a: usize, b: usize, types: bool) -> bool {
    let (one, two) = (&batch.sequences[a], &batch.sequences[b]);
    let zero = |s: &Sequence| s.types.iter().all(|t| *t == 0);
    let rows = match &batch.wanted {
        Wanted::Rows(rows) => rows[a] == rows[b],
        Wanted::Head | Wanted::Hidden => true,
    };
    rows && one.ids == two.ids && (!types || one.types == two.types || zero(one) && zero(two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_found_where_types_and_rows_agree() {
        let of = |ids: &[u32], types: &[u32]| Sequence { ids: ids.to_vec(), types: types.to_vec() };
        let sequences =
            vec![of(&[1, 2], &[]), of(&[1, 2], &[0, 1]), of(&[1, 2], &[0, 0]), of(&[1, 2], &[0, 1]), of(&[2], &[])];
        let mut batch = Batch { sequences, wanted: Wanted::Head };
        let mut once = Once::default();
        once.fill(&batch, true, true);
        assert_eq!((&once.computed[..], &once.like[..]), (&[0, 1, 4][..], &[0, 1, 0, 1, 4][..]));
        once.fill(&batch, true, false);
        assert_eq!(once.computed, [0, 4], "types that nobody reads make no difference");
        once.fill(&batch, false, true);
        assert_eq!(once.computed, [0, 1, 2, 3, 4]);
        batch.wanted = Wanted::Rows(vec![vec![0], vec![0], vec![1], vec![0], vec![0]]);
        once.fill(&batch, true, true);
        assert_eq!(once.like, [0, 1, 2, 1, 4]);
    }
}
