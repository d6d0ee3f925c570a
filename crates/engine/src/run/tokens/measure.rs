//! What every token brings to others.

use super::super::rows;
use crate::arena::Arena;
use crate::program::{RowSet, Select};

/// Attention that a token gets times the length of its value, summed over heads and queries: how much of what attention
/// returns it is (Kobayashi et al. 2020, "Attention is Not Only a Weight", without the output projection).
pub(super) fn measure(step: &Select, arena: &mut Arena) {
    let Arena { full, layout, values: space, choice, .. } = arena;
    let (tokens, attend) = (layout.count(RowSet::All), &step.attend);
    let (v, pooled) = (rows(full, attend.v, tokens), space.importance.rows(attend.heads, tokens));
    choice.row.resize(v.width(), 0.0);
    choice.measures.clear();
    for token in 0..tokens {
        v.read_row(token, &mut choice.row);
        let heads = choice.row.chunks_exact(attend.head_width).enumerate();
        choice.measures.push(heads.map(|(head, value)| pooled.row_f32(head)[token] * length(value)).sum());
    }
}

/// `||value||`.
pub(super) fn length(value: &[f32]) -> f32 {
    dot(value, value).sqrt()
}

/// `a · b`, in lanes that the compiler can put into vectors.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}
