//! Finding identical inputs in a batch.

use sparing_model::{Architecture, AttentionPosition, Batch, Sequence, Wanted};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

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
