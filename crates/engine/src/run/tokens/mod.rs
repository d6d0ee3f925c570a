//! Choosing tokens by what they bring to others: which ones leave, which ones are merged, which ones stay busy.

mod keep;
mod measure;
mod merge;

use super::Machine;
use crate::arena::Arena;
use crate::layout::Layout;
use crate::program::{RowSet, Select};
use merge::Match;
pub use merge::like_tokens;
pub(super) use merge::merge_rows;
use sparing_model::Pooling;
use std::ops::Range;

/// What a choice of tokens goes by, and what came of it, by row of the batch.
#[derive(Default)]
pub(crate) struct Choice {
    /// What a token brings to others.
    measures: Vec<f32>,
    /// Whether it leaves.
    leaving: Vec<bool>,
    /// Where its key points, a vector of a head's width.
    directions: Vec<f32>,
    /// Tokens of one sequence that may leave, in some order, and those of them that are alike.
    ranked: Vec<usize>,
    matches: Vec<Match>,
    /// A row of a buffer, or two.
    pub(super) row: Vec<f32>,
}

impl Machine {
    /// Fills the layout's staying, merging and busy rows. Looks at each sequence by itself, so an answer never depends on
    /// what else is in the batch.
    pub(super) fn select(&self, step: &Select, arena: &mut Arena) {
        let wanted = &step.tokens;
        if wanted.measures() {
            self.importance(&step.attend, Pooling::Mean, arena);
            measure::measure(step, arena);
        }
        let Arena { full, layout, choice, .. } = arena;
        choice.leaving.clear();
        choice.leaving.resize(layout.count(RowSet::All), false);
        if wanted.drop > 0.0 {
            for tokens in &layout.sequences {
                let even = even_share(choice, tokens);
                for row in movable(layout, tokens) {
                    choice.leaving[row] = below(choice, row, even, wanted.drop);
                }
            }
        }
        if wanted.keeps_some() {
            keep::keep(wanted, layout, choice);
        }
        layout.merging.clear();
        if wanted.merge > 0.0 {
            merge::pair(step, full, layout, choice);
        }
        let (mut staying, mut busy) = (std::mem::take(&mut layout.staying), std::mem::take(&mut layout.busy));
        staying.clear();
        busy.clear();
        for tokens in &layout.sequences {
            let even = if wanted.skip > 0.0 { even_share(choice, tokens) } else { 1.0 };
            for row in tokens.clone().filter(|row| !choice.leaving[*row]) {
                let idle = wanted.skip > 0.0 && below(choice, row, even, wanted.skip);
                if !idle || always_stays(layout, tokens, row) {
                    busy.push(staying.len());
                }
                staying.push(row);
            }
        }
        (layout.staying, layout.busy) = (staying, busy);
    }
}

/// The mean measure of a sequence's tokens.
fn even_share(choice: &Choice, tokens: &Range<usize>) -> f32 {
    choice.measures[tokens.clone()].iter().sum::<f32>() / tokens.len() as f32
}

/// Whether a token brings less than a share of the mean. What is not a number does not.
fn below(choice: &Choice, row: usize, even: f32, cut: f32) -> bool {
    choice.measures[row] / even < cut
}

/// The ends of a sequence and of its parts: what heads read, and separators.
pub(super) fn always_stays(layout: &Layout, tokens: &Range<usize>, row: usize) -> bool {
    row == tokens.start || row + 1 == tokens.end || layout.types[row] != layout.types[row + 1]
}

/// The rows of a sequence that may leave.
fn movable<'a>(layout: &'a Layout, tokens: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
    tokens.clone().filter(|row| !always_stays(layout, tokens, *row))
}
