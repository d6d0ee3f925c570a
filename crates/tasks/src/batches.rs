//! Runs many inputs through an executor, alike lengths together, in batches of a bounded number of tokens.

use crate::random::Random;
use sparing_model::{Batch, Error, Executor, Outputs, Sequence, Wanted};
use std::time::Instant;

/// One input of an executor.
pub(crate) struct Unit {
    pub sequence: Sequence,
    /// The token rows that are wanted; `None`: what the head reads.
    pub rows: Option<Vec<usize>>,
}

/// How far an evaluation is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Inputs done (examples, windows of texts).
    pub done: usize,
    /// Inputs in all.
    pub total: usize,
    /// Tokens done.
    pub tokens: usize,
    /// Tokens in all.
    pub total_tokens: usize,
    /// Seconds spent in the executor.
    pub seconds: f64,
}

/// What a run took.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    pub seconds: f64,
    pub tokens: usize,
    pub complete: bool,
}

/// Groups of units: alike lengths together, at most `budget` tokens each (but at least one unit).
/// The groups come in a random but fixed order, so that a cancelled run has seen short and long inputs alike.
pub(crate) fn groups(units: &[Unit], budget: usize) -> Vec<Vec<usize>> {
    let length = |i: usize| units[i].sequence.ids.len();
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(length(i)));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut tokens = usize::MAX;
    for i in order {
        if tokens.saturating_add(length(i)) > budget {
            groups.push(Vec::new());
            tokens = 0;
        }
        tokens += length(i);
        if let Some(last) = groups.last_mut() {
            last.push(i);
        }
    }
    let mut random = Random::new(groups.len() as u64);
    for i in (1..groups.len()).rev() {
        groups.swap(i, random.below(i + 1));
    }
    groups
}

/// Runs the units group by group; `sink` gets the units' numbers and every executor's outputs.
pub(crate) fn run(
    executors: &[&dyn Executor],
    units: &[Unit],
    budget: usize,
    progress: &mut dyn FnMut(&Progress) -> bool,
    mut sink: impl FnMut(&[usize], &[Outputs]) -> Result<(), Error>,
) -> Result<Spent, Error> {
    let total_tokens = units.iter().map(|u| u.sequence.ids.len()).sum();
    let mut now = Progress { done: 0, total: units.len(), tokens: 0, total_tokens, seconds: 0.0 };
    let mut complete = progress(&now);
    if complete {
        for group in groups(units, budget) {
            let batch = batch(units, &group);
            let start = Instant::now();
            let outputs = executors.iter().map(|e| checked(e.run(&batch)?, &batch)).collect::<Result<Vec<_>, _>>()?;
            now.seconds += start.elapsed().as_secs_f64();
            sink(&group, &outputs)?;
            now.done += group.len();
            now.tokens += batch.sequences.iter().map(|s| s.ids.len()).sum::<usize>();
            if !progress(&now) && now.done < now.total {
                complete = false;
                break;
            }
        }
    }
    Ok(Spent { seconds: now.seconds, tokens: now.tokens, complete })
}

pub(crate) fn batch(units: &[Unit], group: &[usize]) -> Batch {
    let rows: Option<Vec<Vec<usize>>> = group.iter().map(|&i| units[i].rows.clone()).collect();
    Batch {
        sequences: group.iter().map(|&i| units[i].sequence.clone()).collect(),
        wanted: rows.map_or(Wanted::Head, Wanted::Rows),
    }
}

/// An executor's outputs are checked once here, so that those who read them can index.
pub(crate) fn checked(outputs: Outputs, batch: &Batch) -> Result<Outputs, Error> {
    let whole = outputs.width > 0
        && outputs.sequences.len() == batch.sequences.len()
        && outputs.sequences.iter().enumerate().all(|(i, s)| {
            let rows = s.len() / outputs.width;
            let wanted = match &batch.wanted {
                Wanted::Rows(rows) => rows[i].len(),
                _ => rows,
            };
            rows > 0 && s.len() % outputs.width == 0 && rows == wanted
        });
    if !whole {
        return Err(Error::new(format!(
            "the executor returned {} outputs of width {} for {} inputs, or rows that were not asked for",
            outputs.sequences.len(),
            outputs.width,
            batch.sequences.len()
        )));
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(length: usize) -> Unit {
        Unit { sequence: Sequence { ids: vec![1; length], types: vec![] }, rows: None }
    }

    proptest::proptest! {
        #[test]
        fn every_unit_once_within_budget(lengths in proptest::collection::vec(1..40usize, 0..60), budget in 1..100usize) {
            let units: Vec<Unit> = lengths.iter().map(|&n| unit(n)).collect();
            let groups = groups(&units, budget);
            let mut seen: Vec<usize> = groups.iter().flatten().copied().collect();
            seen.sort_unstable();
            proptest::prop_assert_eq!(seen, (0..units.len()).collect::<Vec<_>>());
            for group in groups {
                let tokens: usize = group.iter().map(|&i| lengths[i]).sum();
                proptest::prop_assert!(!group.is_empty() && (tokens <= budget || group.len() == 1));
            }
        }
    }

    struct Wrong;
    impl Executor for Wrong {
        fn run(&self, _: &Batch) -> Result<Outputs, Error> {
            Ok(Outputs { width: 2, sequences: vec![vec![0.0; 3]] })
        }
    }

    #[test]
    fn misshapen_outputs_are_an_error() {
        let e = run(&[&Wrong], &[unit(3)], 9, &mut |_| true, |_, _| Ok(())).unwrap_err();
        assert!(e.to_string().starts_with("the executor returned 1 outputs"));
    }
}
