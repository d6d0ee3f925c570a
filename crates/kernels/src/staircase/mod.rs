//! Rows times weights where every row has a budget of its own: the staircase.
//!
//! Encoding the values of attention may cost less for tokens that nobody attends to (Monte-Carlo Attention, Kim and Ko
//! 2022). A head's tokens are sorted by budget, so that neighbours need about as much work, and taken a vector's width at a
//! time: **a lane is a token**. The tokens' rows are laid out side by side once per head, `[inputs][lanes]`, which costs a
//! small part of the dense product, and then
//! - a *drawn* head takes input `index[step]` at every step, as far as the panel's largest budget goes; lanes whose own
//!   budget ended earlier add zero. The drawn rows of the weights were gathered, scaled and packed when they were drawn;
//! - a *graded* head computes as many directions of its basis as the panel's largest budget buys, clears those that a lane's
//!   own budget does not, and turns the rest back;
//! - full rows go through the ordinary packed product, to the same bits.
//!
//! A token's result depends on its own row and budget only, never on who shares its panel.

mod climb;
mod stairs;

use crate::epilogue::Place;
use crate::simd::Level;
use crate::{
    Aligned, Buffer, Element, Elements, Epilogue, PackedMatrix, PerWorker, Rows, RowsMut, Scratch, Team, gemm,
};
pub use stairs::{Drawn, Graded};
use std::ops::Range;

/// Full rows taken together: as many as the product lays out at a time.
const FULL_ROWS: usize = 84;

/// A row and what may be spent on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pick {
    /// The row, of x and of the result.
    pub row: u32,
    /// Drawn: steps. Graded: directions.
    pub budget: u32,
    /// Drawn: the estimator's factor, see [`Drawn`].
    pub factor: f32,
}

/// What is computed for some rows of one head.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// The product itself.
    Full(&'a PackedMatrix),
    /// Sums over drawn inputs.
    Drawn(&'a Drawn),
    /// The first directions of a basis.
    Graded(&'a Graded),
    /// Nothing: the rows are the bias alone.
    Constant,
}

/// Rows of one head that are computed one way.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The head: its columns in the result begin at `head * width`.
    pub head: usize,
    /// How.
    pub way: Way<'a>,
    /// Which rows, largest budgets first. No row occurs twice in a head.
    pub picks: &'a [Pick],
    /// Added to every result, one number per column of the head.
    pub bias: &'a [f32],
}

/// Working memory of one thread.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Rows converted to f32, or gathered for a full product.
    staging: Aligned<f32>,
    gathered: Option<Buffer>,
    product: Option<Buffer>,
    /// `[inputs][lanes]`.
    panel: Aligned<f32>,
    /// What was drawn of it, `[draws][lanes]`; or all of it as bf16 pairs.
    drawn: Aligned<f32>,
    /// Directions of a graded panel, `[directions][lanes]`.
    directions: Aligned<f32>,
    /// `[width][lanes]`.
    result: Aligned<f32>,
    /// `[lanes][width]`.
    rows: Aligned<f32>,
    seen: Vec<u64>,
    tasks: Vec<Task>,
}

/// Some picks of a part.
struct Task {
    part: usize,
    picks: Range<usize>,
}

/// Largest budgets first, in the order of the rows where they are equal.
pub fn sort(picks: &mut [Pick]) {
    // One integer to compare.
    picks.sort_unstable_by_key(|pick| (!pick.budget as u64) << 32 | pick.row as u64);
}

/// Encodes rows of x: for every part, head and pick, `width` columns of the result. `width` is that of one head. Elements
/// of the result that no part mentions stay as they are.
///
/// # Panics
/// If a row or a head is outside the result, a row occurs twice in a head, or shapes do not fit.
pub fn encode(team: &Team, x: Rows, width: usize, parts: &[Part], mut out: RowsMut, scratch: &PerWorker<Scratch>) {
    encode_at(Level::active(), team, x, width, parts, &mut out, scratch);
}

fn encode_at(
    level: Level,
    team: &Team,
    x: Rows,
    width: usize,
    parts: &[Part],
    out: &mut RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    let mut space = std::mem::take(&mut scratch.get(0).staircase);
    check(x, width, parts, out, &mut space.seen);
    space.tasks.clear();
    let lanes = level.panel() / 2;
    for (part, info) in parts.iter().enumerate() {
        let step = if matches!(info.way, Way::Full(_)) { FULL_ROWS } else { lanes };
        let count = info.picks.len();
        space.tasks.extend((0..count).step_by(step).map(|i| Task { part, picks: i..count.min(i + step) }));
    }
    let tasks = std::mem::take(&mut space.tasks);
    scratch.get(0).staircase = space;
    let (element, place) = (out.element(), Place::of(out));
    team.run(tasks.len(), &|number, worker| {
        let Task { part, picks } = &tasks[number];
        let part = &parts[*part];
        let picks = &part.picks[picks.clone()];
        let mut scratch = scratch.get(worker);
        if let Way::Full(matrix) = part.way {
            return full(x, matrix, part, picks, width, element, place, &mut scratch);
        }
        // SAFETY: `check` compared rows, heads and shapes, and found no row twice in a head: tasks write different
        // elements. The level is available.
        unsafe { climb::panel(level, x, width, part, picks, place, &mut scratch.staircase) }
    });
    scratch.get(0).staircase.tasks = tasks;
}

fn check(x: Rows, width: usize, parts: &[Part], out: &RowsMut, seen: &mut Vec<u64>) {
    let heads = out.width() / width.max(1);
    assert!(width > 0 && heads * width == out.width(), "{} columns are no heads of {width}", out.width());
    assert_eq!(x.count(), out.count(), "rows");
    seen.clear();
    seen.resize((heads * x.count()).div_ceil(64), 0);
    for part in parts {
        assert!(part.head < heads && part.bias.len() == width, "head {} of {heads}", part.head);
        let (outputs, inputs, most) = match part.way {
            Way::Full(matrix) => (matrix.outputs(), matrix.inputs(), usize::MAX),
            Way::Drawn(drawn) => (drawn.weights.outputs, drawn.inputs, drawn.index.len()),
            Way::Graded(graded) => (graded.back.outputs, graded.directions.steps, graded.directions.outputs),
            Way::Constant => (width, x.width(), usize::MAX),
        };
        assert_eq!((outputs, inputs), (width, x.width()), "shape of head {}", part.head);
        for pick in part.picks {
            let row = pick.row as usize;
            assert!(row < x.count() && pick.budget as usize <= most, "{pick:?}");
            let at = part.head * x.count() + row;
            assert!(seen[at / 64] >> (at % 64) & 1 == 0, "row {row} occurs twice in head {}", part.head);
            seen[at / 64] |= 1 << (at % 64);
        }
    }
}

/// The ordinary product of some rows: gathered, multiplied, put back.
fn full(
    x: Rows,
    matrix: &PackedMatrix,
    part: &Part,
    picks: &[Pick],
    width: usize,
    element: Element,
    out: Place,
    scratch: &mut Scratch,
) {
    let mut space = std::mem::take(&mut scratch.staircase);
    let gathered = fitting(&mut space.gathered, x.element());
    let mut rows = gathered.rows_mut(picks.len(), x.width());
    for (i, pick) in picks.iter().enumerate() {
        // SAFETY: a row of the buffer that was just made, borrowed exclusively.
        unsafe { copy(x, pick.row as usize, Place::of(&mut rows), i, 0) };
    }
    let product = fitting(&mut space.product, element);
    let epilogue = Epilogue { bias: Some(part.bias), ..Epilogue::default() };
    gemm(rows.as_rows(), matrix, &epilogue, product.rows_mut(picks.len(), width), scratch);
    let result = product.rows(picks.len(), width);
    for (i, pick) in picks.iter().enumerate() {
        // SAFETY: `check` made sure of the row and the head; no other task writes this row of this head.
        unsafe { copy(result, i, out, pick.row as usize, part.head * width) };
    }
    scratch.staircase = space;
}

/// Copies a row to a row of the same element type, from `column` on.
///
/// # Safety
/// The place has that row and those columns, and nobody else touches them.
unsafe fn copy(from: Rows, row: usize, to: Place, to_row: usize, column: usize) {
    let (at, width) = (row * from.stride(), from.width());
    // SAFETY: the source is sliced with bounds checks; the rest is the caller's promise.
    unsafe {
        let to_at = to.at(to_row, column);
        match from.data() {
            Elements::F32(data) => data[at..at + width].as_ptr().copy_to_nonoverlapping(to_at.cast(), width),
            Elements::Bf16(data) => data[at..at + width].as_ptr().copy_to_nonoverlapping(to_at.cast(), width),
        }
    }
}

/// The buffer, made anew if it holds other elements.
fn fitting(buffer: &mut Option<Buffer>, element: Element) -> &mut Buffer {
    let fits =
        matches!((&*buffer, element), (Some(Buffer::F32(_)), Element::F32) | (Some(Buffer::Bf16(_)), Element::Bf16));
    if !fits {
        *buffer = None;
    }
    buffer.get_or_insert_with(|| Buffer::new(element))
}

#[cfg(test)]
mod tests;
