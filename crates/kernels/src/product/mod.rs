//! Products of two f32 matrices that both change from call to call, as training has them.
//!
//! The engine packs its weights once; here both sides are packed on the way. The right side is packed whole, by the whole
//! team; the left side block by block and part by part of the sum, into the thread's own second-level cache, where all
//! panels of the right side pass by it. On the way both may be rounded to bf16, where the machine multiplies that: twice as
//! many terms per instruction, and sums stay f32.

mod lay;

use crate::epilogue::{Finish, TileResult, finish_at};
use crate::rows::{Elements, Rows, RowsMut};
use crate::simd::Level;
use crate::tile::Tile;
use crate::words::side_by_side_at;
use crate::{Activation, Aligned, Format, Team};
use lay::{Groups, copy_groups_at, pair_groups_at, pairs_side_by_side_at, terms};
use std::ops::Range;

/// Most rows of the left side that are laid out at a time.
const BLOCK: usize = 126;

/// Rows of the right side that one task copies; an even number, so that no pair is torn apart.
const ROWS: usize = 64;

/// Most words of a sum between returns to memory.
const STEPS: usize = 640;

/// What a product that may be rounded to a format is multiplied in: f32 where the machine does not multiply bf16.
fn multiplied(level: Level, format: Format) -> Format {
    if level.multiplies_bf16() { format } else { Format::F32 }
}

/// A matrix of f32 as a side of a product: as it is stored, or turned (rows for columns).
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    rows: Rows<'a>,
    turned: bool,
}

impl<'a> Side<'a> {
    /// The matrix as it is stored.
    pub fn of(rows: Rows<'a>) -> Self {
        assert!(matches!(rows.data(), Elements::F32(_)), "sides are f32");
        Side { rows, turned: false }
    }

    /// Its transpose.
    pub fn turned(rows: Rows<'a>) -> Self {
        Side { turned: true, ..Side::of(rows) }
    }

    fn height(&self) -> usize {
        if self.turned { self.rows.width() } else { self.rows.count() }
    }

    fn width(&self) -> usize {
        if self.turned { self.rows.count() } else { self.rows.width() }
    }

    /// First element and the step between stored rows.
    fn address(&self) -> (*const u32, usize) {
        match self.rows.data() {
            Elements::F32(d) => (d.as_ptr().cast(), self.rows.stride()),
            Elements::Bf16(_) => unreachable!("sides are f32"),
        }
    }
}

/// What happens to a product before it is stored.
#[derive(Clone, Copy, Default)]
pub struct After<'a> {
    /// One number per column, added first.
    pub bias: Option<&'a [f32]>,
    /// The result is multiplied by this activation's slope at these numbers (one per element of the result).
    pub slope: Option<(Activation, Rows<'a>)>,
    /// Added to what is there instead of replacing it.
    pub accumulate: bool,
}

/// A right side, laid out in panels. Grown on first use and reused.
pub struct Panels {
    words: Aligned<u32>,
    format: Format,
    /// Terms of a sum.
    terms: usize,
    /// Words of a sum.
    height: usize,
    width: usize,
}

impl Default for Panels {
    fn default() -> Self {
        Panels { words: Aligned::default(), format: Format::F32, terms: 0, height: 0, width: 0 }
    }
}

/// An address that several threads use for different elements.
#[derive(Clone, Copy)]
struct Target(*mut u32);
// SAFETY: only an address; whoever writes through it keeps to its own elements.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// Address of a word.
    unsafe fn at(&self, number: usize) -> *mut u32 {
        // SAFETY: the caller's promise that the word exists.
        unsafe { self.0.add(number) }
    }
}

impl Panels {
    /// Lays a right side out, by the whole team.
    pub fn fill(&mut self, team: &Team, format: Format, side: Side) {
        let level = Level::active();
        self.fill_at(level, multiplied(level, format), Some(team), side);
    }

    fn fill_at(&mut self, level: Level, format: Format, team: Option<&Team>, side: Side) {
        let per = terms(format);
        (self.format, self.terms, self.width) = (format, side.height(), side.width());
        self.height = self.terms.div_ceil(per);
        let panel = level.panel();
        let panels = self.width.div_ceil(panel);
        // Sixteen words of slack: a short last panel is written in whole vectors.
        self.words.ensure(panels * panel * self.height + 16);
        let to = Target(self.words.as_mut_slice().as_mut_ptr());
        let (from, step) = side.address();
        let from = Target(from.cast_mut());
        let (all, height, width) = (self.terms, self.height, self.width);
        let run = |tasks: usize, one: &(dyn Fn(usize) + Sync)| match team {
            Some(team) => team.run(tasks, &|index, _| one(index)),
            None => (0..tasks).for_each(one),
        };
        if side.turned {
            run(panels, &|index| {
                let first = index * panel;
                // SAFETY: the side vouches for its elements; panel `index` has `height * panel` words of its own. Only the
                // last panel can be short, and its slack follows the last word.
                unsafe {
                    let (from, to) = (from.at(first * step), to.at(first * height));
                    let lay = if per == 1 { side_by_side_at } else { pairs_side_by_side_at };
                    lay(level, from, step, panel.min(width - first), all, to, panel);
                }
            });
        } else {
            run(all.div_ceil(ROWS), &|index| {
                let first = index * ROWS;
                // SAFETY: as above; each task has rows of its own in every panel.
                unsafe {
                    let (from, to) = (from.at(first * step), to.at(first / per * panel));
                    let groups = Groups { width: panel, last: width, step: panel * height, pitch: panel };
                    let copy = if per == 1 { copy_groups_at } else { pair_groups_at };
                    copy(level, from, step, ROWS.min(all - first), &groups, to);
                }
            });
        }
    }

    fn panel(&self, level: Level, index: usize, first: usize) -> *const u32 {
        self.words.as_slice()[(index * self.height + first) * level.panel()..].as_ptr()
    }
}

/// Working memory of one thread.
#[derive(Default)]
pub(crate) struct Space {
    left: Aligned<u32>,
    sums: Aligned<u32>,
}

/// Rows `block` of a product, all columns.
///
/// # Safety
/// `finish` is valid for these rows and the panels' columns, and nobody else touches them.
unsafe fn block_at(level: Level, block: Range<usize>, a: Side, b: &Panels, finish: &Finish, space: &mut Space) {
    let (tile, panel, per) = (Tile::of(level, b.format), level.panel(), terms(b.format));
    let (height, steps) = (block.len(), b.height);
    let panels = b.width.div_ceil(panel);
    let parts = steps.div_ceil(STEPS);
    let part = steps.div_ceil(parts);
    // With one part a tile's sums live in a small buffer; with several, the whole block's do.
    let (width, held) = if parts == 1 { (panel, tile.rows) } else { (panels * panel, height) };
    space.sums.ensure(width * held);
    space.left.ensure(height * part + 16);
    let sums = space.sums.as_mut_slice().as_mut_ptr();
    let left = space.left.as_mut_slice().as_mut_ptr();
    let (from, step) = a.address();
    // Height of the tile that begins at a row.
    let cut_at = |row: usize| tile.cuts(height).find(|(start, _)| *start == row).map_or(height - row, |(_, rows)| rows);
    for first in (0..steps).step_by(part) {
        let count = part.min(steps - first);
        let inner = per * first..b.terms.min(per * (first + count));
        // SAFETY: `left` and `sums` have room (see above), tiles are laid out in ascending order; the rest is the caller's
        // promise.
        unsafe {
            if a.turned {
                // Tiles of two heights, the longer ones first.
                let mut start = 0;
                while start < height {
                    let rows = cut_at(start);
                    let mut end = start + rows;
                    while end < height && cut_at(end) == rows {
                        end += rows;
                    }
                    let from = from.add(inner.start * step + block.start + start);
                    let groups = Groups { width: rows, last: end - start, step: rows * count, pitch: rows };
                    let copy = if per == 1 { copy_groups_at } else { pair_groups_at };
                    copy(level, from, step, inner.len(), &groups, left.add(start * count));
                    start = end;
                }
            } else {
                for (start, rows) in tile.cuts(height) {
                    let from = from.add((block.start + start) * step + inner.start);
                    let lay = if per == 1 { side_by_side_at } else { pairs_side_by_side_at };
                    lay(level, from, step, rows, inner.len(), left.add(start * count), rows);
                }
            }
            for index in 0..panels {
                let right = b.panel(level, index, first);
                for (start, rows) in tile.cuts(height) {
                    let c = if parts == 1 { sums } else { sums.add(start * width + index * panel) };
                    (tile.run)(rows, count, left.add(start * count), rows, right, c, width, first > 0);
                    if first + count == steps {
                        let column = index * panel;
                        let result = TileResult {
                            sums: c,
                            step: width,
                            row: block.start + start,
                            column,
                            rows,
                            columns: panel.min(b.width - column),
                            column_scales: (std::ptr::null(), std::ptr::null()),
                            row_scales: std::ptr::null(),
                        };
                        finish_at(level, finish, &result);
                    }
                }
            }
        }
    }
}

/// Working memory of products: one per thread of the team, and the right side's.
pub struct Products {
    spaces: crate::PerWorker<Space>,
    panels: Panels,
}

impl Products {
    /// For a team of so many threads.
    pub fn new(threads: usize) -> Self {
        Products { spaces: crate::PerWorker::new(threads, Space::default), panels: Panels::default() }
    }

    /// `out = after(a · b)`, by the whole team; `format` is what both may be rounded to.
    pub fn product(&mut self, team: &Team, format: Format, a: Side, b: Side, after: &After, out: RowsMut) {
        let mut panels = std::mem::take(&mut self.panels);
        panels.fill(team, format, b);
        self.with_panels(team, a, &panels, after, None, out);
        self.panels = panels;
    }

    /// `out = activation(a · b + bias)`; what goes into the activation is kept in `before`.
    pub fn activated(
        &mut self,
        team: &Team,
        format: Format,
        a: Side,
        b: Side,
        bias: Option<&[f32]>,
        activation: Activation,
        before: RowsMut,
        out: RowsMut,
    ) {
        let mut panels = std::mem::take(&mut self.panels);
        panels.fill(team, format, b);
        let after = After { bias, ..After::default() };
        self.with_panels(team, a, &panels, &after, Some((activation, before)), out);
        self.panels = panels;
    }

    fn with_panels(
        &self,
        team: &Team,
        a: Side,
        b: &Panels,
        after: &After,
        activated: Option<(Activation, RowsMut)>,
        mut out: RowsMut,
    ) {
        let finish = finish(a, b, after, activated, &mut out);
        let rows = out.count();
        // As many blocks for one thread as for the other.
        let least = rows.div_ceil(BLOCK);
        let blocks = least.next_multiple_of(team.threads()).min(rows.div_ceil(4)).max(1);
        team.run(blocks, &|index, worker| {
            let block = index * rows / blocks..(index + 1) * rows / blocks;
            // SAFETY: `finish` checked that everything covers the result; blocks are disjoint.
            unsafe { block_at(Level::active(), block, a, b, &finish, &mut self.spaces.get(worker)) };
        });
    }
}

fn finish(a: Side, b: &Panels, after: &After, activated: Option<(Activation, RowsMut)>, out: &mut RowsMut) -> Finish {
    assert_eq!(a.width(), b.terms, "terms of a sum");
    assert_eq!((out.count(), out.width()), (a.height(), b.width), "result");
    let same = |rows: &Rows| (rows.count(), rows.width()) == (out.count(), out.width());
    assert!(after.bias.is_none_or(|bias| bias.len() == b.width), "bias");
    assert!(after.slope.is_none_or(|(_, at)| same(&at)), "slope");
    assert!(activated.as_ref().is_none_or(|(_, before)| same(&before.as_rows())), "before");
    Finish::training(after, activated, out)
}

/// A small product on the calling thread, packed into the thread's own memory.
///
/// # Safety
/// `finish` is valid for the result's rows and columns, and nobody else touches them.
pub(crate) unsafe fn small(level: Level, a: Side, b: Side, panels: &mut Panels, space: &mut Space, finish: &Finish) {
    panels.fill_at(level, Format::F32, None, b);
    // SAFETY: the caller's promise.
    unsafe { filled(level, a, panels, space, finish) };
}

/// The same with a right side that is laid out.
///
/// # Safety
/// As in [`small`].
unsafe fn filled(level: Level, a: Side, panels: &Panels, space: &mut Space, finish: &Finish) {
    assert_eq!(a.width(), panels.terms, "terms of a sum");
    let rows = a.height();
    for start in (0..rows).step_by(BLOCK) {
        // SAFETY: the caller's promise.
        unsafe { block_at(level, start..rows.min(start + BLOCK), a, panels, finish, space) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, numbers};
    use crate::{bf16_to_f32, f32_to_bf16};
    use proptest::prelude::*;

    /// Every level, every way the sides can lie, and everything that can follow, against plain loops.
    fn compare(rows: usize, terms: usize, columns: usize, seed: u64) {
        let a = numbers(seed, rows * terms, 1.0);
        let b = numbers(seed + 1, terms * columns, 0.5);
        let bias = numbers(seed + 2, columns, 1.0);
        let at = numbers(seed + 3, rows * columns, 2.0);
        let old = numbers(seed + 4, rows * columns, 1.0);
        let turn = |m: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..rows * columns).map(|i| m[i % rows * columns + i / rows]).collect()
        };
        let (a_turned, b_turned) = (turn(&a, rows, terms), turn(&b, terms, columns));
        let rounded = |x: f32| f64::from(bf16_to_f32(f32_to_bf16(x)));
        let exact = |format: Format, r: usize, c: usize| -> f64 {
            let term = |k: usize| match (a[r * terms + k], b[k * columns + c]) {
                (a, b) if format == Format::Bf16 => rounded(a) * rounded(b),
                (a, b) => f64::from(a) * f64::from(b),
            };
            (0..terms).map(term).sum()
        };
        let most = 4e-6 * (terms as f32).sqrt() + 2e-6;
        for (level, format) in Level::all_available().into_iter().flat_map(|l| [(l, Format::F32), (l, Format::Bf16)]) {
            let format = multiplied(level, format);
            for kind in 0..4u32 {
                let left = match kind & 1 {
                    0 => Side::of(Rows::f32(&a, terms)),
                    _ => Side::turned(Rows::f32(&a_turned, rows)),
                };
                let right = match kind & 2 {
                    0 => Side::of(Rows::f32(&b, columns)),
                    _ => Side::turned(Rows::f32(&b_turned, terms)),
                };
                let after = After {
                    bias: (kind < 2).then_some(&bias),
                    slope: (kind % 2 == 1).then(|| (Activation::Gelu, Rows::f32(&at, columns))),
                    accumulate: kind > 1,
                };
                let mut got = old.clone();
                let (mut panels, mut space) = (Panels::default(), Space::default());
                let finish = Finish::training(&after, None, &mut RowsMut::f32(&mut got, columns));
                panels.fill_at(level, format, None, right);
                // SAFETY: available level, consistent shapes.
                unsafe { filled(level, left, &panels, &mut space, &finish) };
                for (i, got) in got.iter().enumerate() {
                    let (r, c) = (i / columns, i % columns);
                    let mut want = exact(format, r, c) as f32 + if kind < 2 { bias[c] } else { 0.0 };
                    if kind % 2 == 1 {
                        want *= reference::slope(Activation::Gelu, at[i]);
                    }
                    want += if kind > 1 { old[i] } else { 0.0 };
                    assert!(
                        (got - want).abs() <= most,
                        "{level:?} {format:?} {kind} {rows}x{terms}x{columns}: {got} for {want}"
                    );
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn long_sums_and_many_rows() {
        compare(2 * BLOCK + 5, 2 * STEPS + 3, 37, 1);
    }

    #[test]
    fn the_team_computes_the_same() {
        let (rows, terms, columns) = if cfg!(miri) { (5, 3, 4) } else { (300, 70, 65) };
        let a = numbers(1, rows * terms, 1.0);
        let b = numbers(2, terms * columns, 1.0);
        let bias = numbers(3, columns, 1.0);
        let team = Team::new(2);
        let mut products = Products::new(2);
        let (left, right) = (Side::of(Rows::f32(&a, terms)), Side::of(Rows::f32(&b, columns)));
        let (mut before, mut out) = (vec![0f32; rows * columns], vec![0f32; rows * columns]);
        let (to, kept) = (RowsMut::f32(&mut out, columns), RowsMut::f32(&mut before, columns));
        products.activated(&team, Format::F32, left, right, Some(&bias), Activation::Gelu, kept, to);
        for (i, (out, before)) in out.iter().zip(&before).enumerate() {
            let (r, c) = (i / columns, i % columns);
            let sum: f64 = (0..terms).map(|k| f64::from(a[r * terms + k] * b[k * columns + c])).sum();
            assert!((before - sum as f32 - bias[c]).abs() < 1e-4);
            assert!((out - reference::activate(Activation::Gelu, *before)).abs() < 1e-5);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 48 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_shape_matches(
            rows in 1usize..if cfg!(miri) { 6 } else { 60 },
            terms in 1usize..if cfg!(miri) { 9 } else { 100 },
            columns in 1usize..if cfg!(miri) { 20 } else { 80 },
            seed in 0u64..1000,
        ) {
            compare(rows, terms, columns, seed);
        }
    }
}
