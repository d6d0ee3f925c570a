//! Moving rows: gathering those the head reads, putting global results back, pooling a sequence into one row.

use super::tokens::merge_rows;
use super::{number, rows};
use crate::arena::Arena;
use crate::program::{PoolKind, RowSet, View};
use sparing_kernels::{Buffer, Chunks, Element, Elements, ElementsMut, Rows, RowsMut, Team};

/// Copies row `from_row` of one to `to_row` of the other, same element types.
pub(super) fn copy_row(from: Rows, from_row: usize, to: &mut RowsMut, to_row: usize) {
    let (width, from_at, to_at) = (from.width(), from_row * from.stride(), to_row * to.stride());
    match (from.data(), to.data()) {
        (Elements::F32(from), ElementsMut::F32(to)) => {
            to[to_at..to_at + width].copy_from_slice(&from[from_at..from_at + width]);
        }
        (Elements::Bf16(from), ElementsMut::Bf16(to)) => {
            to[to_at..to_at + width].copy_from_slice(&from[from_at..from_at + width]);
        }
        _ => unreachable!("both buffers follow the precision, or neither"),
    }
}

/// Takes a full buffer out of the arena to write to it while others are read.
pub(super) fn taking<R>(full: &mut [Buffer], view: View, f: impl FnOnce(&[Buffer], &mut Buffer) -> R) -> R {
    let mut taken = std::mem::replace(&mut full[number(view)], Buffer::new(Element::F32));
    let result = f(full, &mut taken);
    full[number(view)] = taken;
    result
}

pub(super) fn gather(arena: &mut Arena, set: RowSet, from: View, to: View) {
    let Arena { full, layout, .. } = arena;
    let chosen = layout.rows(set);
    taking(full, to, |full, buffer| {
        let from = rows(full, from, layout.count(RowSet::All));
        let mut out = buffer.rows_mut(chosen.len(), to.stride).columns(to.start..to.end);
        for (i, row) in chosen.iter().enumerate() {
            copy_row(from, *row, &mut out, i);
        }
    });
}

pub(super) fn scatter(arena: &mut Arena, set: RowSet, from: View, to: View) {
    let Arena { full, layout, .. } = arena;
    let places = layout.places(set);
    let into = if set == RowSet::SelectedGlobals { RowSet::Selected } else { RowSet::All };
    taking(full, to, |full, buffer| {
        let from = rows(full, from, places.len());
        let mut out = buffer.rows_mut(layout.count(into), to.stride).columns(to.start..to.end);
        for (i, row) in places.iter().enumerate() {
            copy_row(from, i, &mut out, *row);
        }
    });
}

/// Merges rows of these buffers, which hold all tokens, moves those that stay to the beginning, and forgets the others.
pub(super) fn drop_rows(arena: &mut Arena, buffers: &[View]) {
    let Arena { full, layout, choice, .. } = arena;
    let tokens = layout.count(RowSet::All);
    if layout.staying.len() == tokens {
        return;
    }
    layout.join_sizes();
    let staying = &layout.staying;
    for view in buffers {
        merge_rows(&mut full[number(*view)], *view, layout, &mut choice.row);
        let mut rows = full[number(*view)].rows_mut(tokens, view.stride);
        let width = view.stride;
        // Rows only ever move towards the beginning, so none is overwritten before it moved.
        let pairs = staying.iter().enumerate().filter(|(to, from)| to != *from);
        match rows.data() {
            ElementsMut::F32(all) => {
                pairs.for_each(|(to, from)| all.copy_within(from * width..(from + 1) * width, to * width));
            }
            ElementsMut::Bf16(all) => {
                pairs.for_each(|(to, from)| all.copy_within(from * width..(from + 1) * width, to * width));
            }
        }
    }
    layout.keep_staying();
}

pub(super) fn pool(team: &Team, arena: &mut Arena, kind: PoolKind, from: View, to: View) {
    let Arena { full, layout, .. } = arena;
    let sequences = &layout.sequences;
    taking(full, to, |full, buffer| {
        let from = rows(full, from, layout.count(RowSet::All));
        let out = Chunks::new(buffer.rows_mut(sequences.len(), to.stride), sequences.len().div_ceil(Chunks::MOST));
        let chunk = sequences.len().div_ceil(Chunks::MOST);
        team.run(sequences.len().div_ceil(chunk), &|task, _| {
            let mut out = out.take(task);
            for (i, tokens) in sequences[task * chunk..].iter().take(chunk).enumerate() {
                let out = out.row_f32(i);
                out.copy_from_slice(from.row_f32(tokens.start));
                for row in tokens.clone().skip(1) {
                    let pairs = out.iter_mut().zip(from.row_f32(row));
                    match kind {
                        PoolKind::Mean => pairs.for_each(|(a, b)| *a += b),
                        PoolKind::Max => pairs.for_each(|(a, b)| *a = a.max(*b)),
                    }
                }
                if kind == PoolKind::Mean {
                    let scale = 1.0 / tokens.len() as f32;
                    out.iter_mut().for_each(|a| *a *= scale);
                }
            }
        });
    });
}
