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

/// Decides who is merged into whom, among the tokens that may leave and do not.
pub(super) fn pair(step: &Select, full: &[Buffer], layout: &mut Layout, choice: &mut Choice) {
    let tokens = layout.count(RowSet::All);
    let (keys, width) = (rows(full, step.attend.k, tokens), step.attend.head_width);
    let Choice { leaving, ranked, directions, matches, row, .. } = choice;
    row.resize(keys.width(), 0.0);
    directions.clear();
    for token in 0..tokens {
        keys.read_row(token, row);
        directions.extend(direction(row, width));
    }
    for tokens in &layout.sequences {
        let there = tokens.clone().filter(|row| !leaving[*row]).count();
        ranked.clear();
        ranked.extend(movable(layout, tokens).filter(|row| !leaving[*row]));
        match_up(ranked, directions, width, step.tokens.merging(there), matches);
        for Match { from, into, .. } in &*matches {
            leaving[*from] = true;
            layout.merging.push(Merger { from: *from, into: *into, share: 0.0 });
        }
    }
}

/// Who of some tokens is merged into whom, by their keys `[tokens, heads * head_width]`: `most` pairs at most of one that
/// leaves and one that stays, as the engine chooses them.
pub fn like_tokens(keys: &[f32], heads: usize, head_width: usize, most: usize) -> Vec<(usize, usize)> {
    let each = keys.chunks_exact(heads * head_width).map(<[f32]>::to_vec);
    let directions: Vec<f32> = each.flat_map(|mut key| direction(&mut key, head_width).collect::<Vec<_>>()).collect();
    let tokens: Vec<usize> = (0..directions.len() / head_width).collect();
    let mut matches = Vec::new();
    match_up(&tokens, &directions, head_width, most, &mut matches);
    matches.iter().map(|Match { from, into, .. }| (*from, *into)).collect()
}

/// Tokens belong to two sets in turn; every one of the first finds the one of the second whose key, mean over heads, points
/// most the same way; the pairs that are most alike are merged. Of equals the earlier come first; what points nowhere is
/// like nobody.
fn match_up(tokens: &[usize], directions: &[f32], width: usize, most: usize, matches: &mut Vec<Match>) {
    let direction = |token: usize| &directions[token * width..(token + 1) * width];
    matches.clear();
    for from in tokens.iter().copied().step_by(2).filter(|_| most > 0) {
        let mut best: Option<Match> = None;
        for into in tokens.iter().copied().skip(1).step_by(2) {
            let likeness = dot(direction(from), direction(into));
            if likeness > best.map_or(f32::NEG_INFINITY, |best| best.likeness) {
                best = Some(Match { from, into, likeness });
            }
        }
        matches.extend(best);
    }
    matches.sort_unstable_by(|a, b| b.likeness.total_cmp(&a.likeness).then(a.from.cmp(&b.from)));
    matches.truncate(most);
}

/// Where a key `[heads * width]` points, mean over heads: a unit vector.
fn direction(key: &mut [f32], width: usize) -> impl Iterator<Item = f32> {
    let (sum, others) = key.split_at_mut(width);
    for head in others.chunks_exact(width) {
        sum.iter_mut().zip(head).for_each(|(sum, key)| *sum += key);
    }
    let scale = 1.0 / length(sum);
    sum.iter().map(move |x| x * scale)
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
