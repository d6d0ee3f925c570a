//! Choosing tokens by what they bring to others: which ones leave, which ones stay busy.

use super::{Machine, rows};
use crate::arena::Arena;
use crate::layout::Layout;
use crate::program::{RowSet, Select};
use sparing_model::Pooling;
use std::ops::Range;

impl Machine {
    /// Fills the layout's staying and busy rows. Looks at each sequence by itself, so an answer never depends on what else
    /// is in the batch.
    pub(super) fn select(&self, step: &Select, arena: &mut Arena) {
        self.importance(&step.attend, Pooling::Mean, arena);
        measure(step, arena);
        let Arena { layout, values: space, .. } = arena;
        let (mut staying, mut busy) = (std::mem::take(&mut layout.staying), std::mem::take(&mut layout.busy));
        staying.clear();
        busy.clear();
        for tokens in &layout.sequences {
            let even = space.measures[tokens.clone()].iter().sum::<f32>() / tokens.len() as f32;
            for row in tokens.clone() {
                let share = space.measures[row] / even;
                // What is not a number stays.
                let below = |cut: f32| share < cut && !always_stays(layout, tokens, row);
                if below(step.drop) {
                    continue;
                }
                if !below(step.skip) {
                    busy.push(staying.len());
                }
                staying.push(row);
            }
        }
        (layout.staying, layout.busy) = (staying, busy);
    }
}

/// The ends of a sequence and of its parts: what heads read, and separators.
pub(super) fn always_stays(layout: &Layout, tokens: &Range<usize>, row: usize) -> bool {
    row == tokens.start || row + 1 == tokens.end || layout.types[row] != layout.types[row + 1]
}

/// Attention that a token gets times the length of its value, summed over heads and queries: how much of what attention
/// returns it is (Kobayashi et al. 2020, "Attention is Not Only a Weight", without the output projection).
fn measure(step: &Select, arena: &mut Arena) {
    let Arena { full, layout, values: space, .. } = arena;
    let (tokens, attend) = (layout.count(RowSet::All), &step.attend);
    let (v, pooled) = (rows(full, attend.v, tokens), space.importance.rows(attend.heads, tokens));
    space.row.resize(v.width(), 0.0);
    space.measures.clear();
    for token in 0..tokens {
        v.read_row(token, &mut space.row);
        let heads = space.row.chunks_exact(attend.head_width).enumerate();
        space.measures.push(heads.map(|(head, value)| pooled.row_f32(head)[token] * length(value)).sum());
    }
}

/// `||value||`, in lanes that the compiler can put into vectors.
fn length(value: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let (whole, rest) = value.as_chunks::<16>();
    for part in whole {
        lanes.iter_mut().zip(part).for_each(|(lane, x)| *lane += x * x);
    }
    (lanes.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>()).sqrt()
}
