//! Merging tokens into others that are like them (Bolya et al. 2023, "Token Merging: Your ViT But Faster").

use super::super::rows;
use super::measure::{dot, length};
use super::{Choice, movable};
use crate::layout::{Layout, Merger};
use crate::program::{RowSet, Select, View};
use sparing_kernels::Buffer;

/// A token and the one that it is most like.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    from: usize,
    into: usize,
    /// Cosine of their keys.
    likeness: f32,
}

/// Decides who is merged into whom. Tokens that may leave, and do not, belong to two sets in turn; every one of the first
/// finds the one of the second whose key, mean over heads, points most the same way; the pairs that are most alike are
/// merged. Of equals the earlier come first; what points nowhere is like nobody.
pub(super) fn pair(step: &Select, full: &[Buffer], layout: &mut Layout, choice: &mut Choice) {
    let width = step.attend.head_width;
    point(step, full, layout.count(RowSet::All), choice);
    let Choice { leaving, ranked, directions, matches, .. } = choice;
    let direction = |row: usize| &directions[row * width..(row + 1) * width];
    for tokens in &layout.sequences {
        let there = tokens.clone().filter(|row| !leaving[*row]).count();
        let most = step.tokens.merging(there);
        ranked.clear();
        ranked.extend(movable(layout, tokens).filter(|row| !leaving[*row]));
        matches.clear();
        for from in ranked.iter().copied().step_by(2).filter(|_| most > 0) {
            let mut best: Option<Match> = None;
            for into in ranked.iter().copied().skip(1).step_by(2) {
                let likeness = dot(direction(from), direction(into));
                if likeness > best.map_or(f32::NEG_INFINITY, |best| best.likeness) {
                    best = Some(Match { from, into, likeness });
                }
            }
            matches.extend(best);
        }
        matches.sort_unstable_by(|a, b| b.likeness.total_cmp(&a.likeness).then(a.from.cmp(&b.from)));
        for Match { from, into, .. } in matches.iter().take(most) {
            leaving[*from] = true;
            layout.merging.push(Merger { from: *from, into: *into, share: 0.0 });
        }
    }
}

/// Where every token's key points, mean over heads: unit vectors `[tokens, head_width]`.
fn point(step: &Select, full: &[Buffer], tokens: usize, choice: &mut Choice) {
    let keys = rows(full, step.attend.k, tokens);
    let width = step.attend.head_width;
    choice.row.resize(keys.width(), 0.0);
    choice.directions.clear();
    for token in 0..tokens {
        keys.read_row(token, &mut choice.row);
        let (sum, others) = choice.row.split_at_mut(width);
        for head in others.chunks_exact(width) {
            sum.iter_mut().zip(head).for_each(|(sum, key)| *sum += key);
        }
        let scale = 1.0 / length(sum);
        choice.directions.extend(sum.iter().map(|x| x * scale));
    }
}

/// Makes rows that stay the weighted means of themselves and those that are merged into them, in one buffer of all tokens.
pub(in crate::run) fn merge_rows(buffer: &mut Buffer, view: View, layout: &Layout, pair: &mut Vec<f32>) {
    let mut all = buffer.rows_mut(layout.count(RowSet::All), view.stride);
    pair.resize(2 * view.stride, 0.0);
    let (from, into) = pair.split_at_mut(view.stride);
    for merger in &layout.merging {
        all.as_rows().read_row(merger.from, from);
        all.as_rows().read_row(merger.into, into);
        into.iter_mut().zip(&*from).for_each(|(into, from)| *into += merger.share * (from - *into));
        all.write_row(merger.into, into);
    }
}
