//! One panel of tokens, a lane each.

use super::stairs::{Drawn, GRAIN, Stairs};
use super::{Part, Pick, Way, Workspace};
use crate::epilogue::Place;
use crate::rows::{Element, Elements, Rows};
use crate::simd::{Level, Simd, kernel};

/// Calls a tile of constant height.
macro_rules! by_rows {
    ($rows:expr, $tile:ident::<$s:ident, $pairs:literal>($($arg:expr),*)) => {
        match $rows {
            4 => $tile::<$s, $pairs, 4>($($arg),*),
            8 => $tile::<$s, $pairs, 8>($($arg),*),
            12 => $tile::<$s, $pairs, 12>($($arg),*),
            16 => $tile::<$s, $pairs, 16>($($arg),*),
            20 => $tile::<$s, $pairs, 20>($($arg),*),
            24 => $tile::<$s, $pairs, 24>($($arg),*),
            rows => unreachable!("tile of {rows} rows"),
        }
    };
}

/// Computes the picks (as many as lanes at most) and writes their rows.
///
/// # Safety
/// The level is available; rows and head of the picks exist in x and `out`, and nobody else touches them.
pub(super) unsafe fn panel(
    level: Level,
    x: Rows,
    width: usize,
    part: &Part,
    picks: &[Pick],
    out: Place,
    space: &mut Workspace,
) {
    // SAFETY: the caller's promise.
    unsafe { panel_at(level, x, width, part, picks, out, space) }
}

#[inline(always)]
unsafe fn panel_of<S: Simd>(x: Rows, width: usize, part: &Part, picks: &[Pick], out: Place, space: &mut Workspace) {
    let padded = width.next_multiple_of(16);
    space.result.ensure(padded * S::LANES);
    // Sorted, but a caller who does not sort loses time, not correctness.
    let most = picks.iter().map(|pick| pick.budget as usize).max().unwrap_or(0);
    // SAFETY: buffers are grown before they are used; the rest is the caller's promise.
    unsafe {
        match part.way {
            Way::Drawn(drawn) if most > 0 => {
                draw::<S>(x, drawn, picks, most, space);
                let result = space.result.as_mut_slice().as_mut_ptr();
                multiply::<S>(&drawn.weights, width, most, space.drawn.as_slice().as_ptr(), result);
            }
            Way::Graded(graded) if most > 0 => {
                let inputs = x.width();
                lay_out::<S>(x, picks, space);
                let mut b = space.panel.as_slice().as_ptr();
                if graded.directions.pairs {
                    space.drawn.ensure(inputs.div_ceil(2) * S::LANES);
                    let to = space.drawn.as_mut_slice().as_mut_ptr();
                    for pair in 0..inputs.div_ceil(2) {
                        let low = S::load(b.add(2 * pair * S::LANES));
                        let last = 2 * pair + 1 == inputs;
                        let high = if last { S::splat(0.0) } else { S::load(b.add((2 * pair + 1) * S::LANES)) };
                        S::store(to.add(pair * S::LANES), S::pairs(low, high));
                    }
                    b = to;
                }
                space.directions.ensure(most.next_multiple_of(GRAIN) * S::LANES);
                let directions = space.directions.as_mut_slice().as_mut_ptr();
                multiply::<S>(&graded.directions, most, inputs, b, directions);
                let budget: [f32; 16] = std::array::from_fn(|i| picks.get(i).map_or(0.0, |pick| pick.budget as f32));
                let budget = S::load(budget.as_ptr());
                for (q, middle) in graded.middle[..most].iter().enumerate() {
                    let p = directions.add(q * S::LANES);
                    let y = S::sub(S::load(p), S::splat(*middle));
                    S::store(p, S::keep_below(y, S::splat(q as f32), budget));
                }
                multiply::<S>(&graded.back, width, most, directions, space.result.as_mut_slice().as_mut_ptr());
            }
            Way::Drawn(_) | Way::Graded(_) | Way::Constant => {
                space.result.as_mut_slice()[..padded * S::LANES].fill(0.0)
            }
            Way::Full(_) => unreachable!("full rows are multiplied elsewhere"),
        }
        write::<S>(width, part, picks, out, space);
    }
}
kernel!(panel_at = panel_of(x: Rows, width: usize, part: &Part, picks: &[Pick], out: Place, space: &mut Workspace));

/// Draws below this share of the inputs are gathered number by number.
const FEW_DRAWS: usize = 6;

/// Addresses of the picked rows as f32.
fn find_rows(x: Rows, picks: &[Pick], rows: &mut [*const f32; 16], space: &mut Workspace) {
    let inputs = x.width();
    match x.data() {
        Elements::F32(data) => {
            for (row, pick) in rows.iter_mut().zip(picks) {
                *row = data[pick.row as usize * x.stride()..][..inputs].as_ptr();
            }
        }
        Elements::Bf16(_) => {
            space.staging.ensure(16 * inputs);
            for (i, (row, pick)) in rows.iter_mut().zip(picks).enumerate() {
                let to = &mut space.staging.as_mut_slice()[i * inputs..(i + 1) * inputs];
                x.read_row(pick.row as usize, to);
                *row = to.as_ptr();
            }
        }
    }
}

/// Rows side by side: `panel[input][lane]`.
#[inline(always)]
unsafe fn lay_out<S: Simd>(x: Rows, picks: &[Pick], space: &mut Workspace) {
    let inputs = x.width();
    space.panel.ensure(inputs * S::LANES);
    let mut rows = [std::ptr::null::<f32>(); 16];
    find_rows(x, picks, &mut rows, space);
    let panel = space.panel.as_mut_slice().as_mut_ptr().cast::<u32>();
    let whole = inputs - inputs % S::LANES;
    // SAFETY: every row has `inputs` numbers, the panel as many vectors.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            S::transpose_rows(|i| rows[i].add(at).cast(), picks.len(), panel.add(at * S::LANES), S::LANES);
        }
        for at in whole..inputs {
            for (lane, row) in rows.iter().enumerate().take(S::LANES) {
                let word = if lane < picks.len() { row.add(at).read().to_bits() } else { 0 };
                *panel.add(at * S::LANES + lane) = word;
            }
        }
    }
}

/// What is drawn of the rows, as the product wants it: `drawn[step][lane]`, zero where a lane's budget has ended.
#[inline(always)]
unsafe fn draw<S: Simd>(x: Rows, drawn: &Drawn, picks: &[Pick], most: usize, space: &mut Workspace) {
    let mut rows = [std::ptr::null::<f32>(); 16];
    // Few draws are gathered one by one; for many it is faster to lay the rows out and pick whole vectors.
    let few = most * FEW_DRAWS <= x.width();
    if few {
        find_rows(x, picks, &mut rows, space);
    } else {
        // SAFETY: the caller's promise.
        unsafe { lay_out::<S>(x, picks, space) };
    }
    space.drawn.ensure((most + 1) * S::LANES);
    let lane = |f: &dyn Fn(&Pick) -> f32| -> [f32; 16] { std::array::from_fn(|i| picks.get(i).map_or(0.0, f)) };
    let (budget, factor) = (lane(&|pick| pick.budget as f32), lane(&|pick| pick.factor));
    let source = Source { rows, count: picks.len(), panel: space.panel.as_slice().as_ptr() };
    // SAFETY: every drawn input is an input, every row has as many numbers; buffers have room for the vectors.
    unsafe {
        let lanes = (S::load(budget.as_ptr()), S::load(factor.as_ptr()));
        let to = space.drawn.as_mut_slice().as_mut_ptr();
        match (few, drawn.mean.is_some()) {
            (false, false) => draw_all::<S, false, false>(drawn, &source, lanes, most, to),
            (false, true) => draw_all::<S, false, true>(drawn, &source, lanes, most, to),
            (true, false) => draw_all::<S, true, false>(drawn, &source, lanes, most, to),
            (true, true) => draw_all::<S, true, true>(drawn, &source, lanes, most, to),
        }
    }
}

/// Where drawn numbers come from.
struct Source {
    rows: [*const f32; 16],
    count: usize,
    panel: *const f32,
}

#[inline(always)]
unsafe fn draw_all<S: Simd, const FEW: bool, const CENTRED: bool>(
    drawn: &Drawn,
    source: &Source,
    lanes: (S::F, S::F),
    most: usize,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if drawn.weights.pairs {
            for pair in 0..most.div_ceil(2) {
                let low = draw_one::<S, FEW, CENTRED>(drawn, source, lanes, 2 * pair);
                // Past the last draw the budgets of all lanes have ended; the draw itself must exist.
                let high = draw_one::<S, FEW, CENTRED>(drawn, source, lanes, (2 * pair + 1).min(drawn.index.len() - 1));
                let high = if 2 * pair + 1 < most { high } else { S::splat(0.0) };
                S::store(to.add(pair * S::LANES), S::pairs(low, high));
            }
        } else {
            for step in 0..most {
                S::store(to.add(step * S::LANES), draw_one::<S, FEW, CENTRED>(drawn, source, lanes, step));
            }
        }
    }
}

/// Input `index[step]` of all lanes: centred, weighted, zero where the budget has ended.
#[inline(always)]
unsafe fn draw_one<S: Simd, const FEW: bool, const CENTRED: bool>(
    drawn: &Drawn,
    source: &Source,
    (budget, factor): (S::F, S::F),
    step: usize,
) -> S::F {
    // SAFETY: the caller's promise.
    unsafe {
        let input = *drawn.index.as_ptr().add(step) as usize;
        let mut x = if FEW {
            let mut numbers = [0f32; 16];
            for (number, row) in numbers.iter_mut().zip(&source.rows[..source.count]) {
                *number = *row.add(input);
            }
            S::load(numbers.as_ptr())
        } else {
            S::load(source.panel.add(input * S::LANES))
        };
        if CENTRED {
            x = S::sub(x, S::splat(*drawn.mean.as_ref().unwrap_unchecked().as_ptr().add(input)));
        }
        let x = S::mul(x, S::max(S::splat(*drawn.floor.as_ptr().add(step)), factor));
        S::keep_below(x, S::splat(step as f32), budget)
    }
}

/// `c[output][lane] = Σ (step < steps) a[output][step] b[step][lane]` for the first `outputs` outputs (padded to whole
/// grains); with pairs, b holds pairs of steps.
#[inline(always)]
unsafe fn multiply<S: Simd>(weights: &Stairs, outputs: usize, steps: usize, b: *const f32, c: *mut f32) {
    for (first, laid_out) in weights.tiles.iter().take_while(|(first, _)| *first < outputs) {
        let rows = (outputs - first).next_multiple_of(GRAIN).min(*laid_out);
        // SAFETY: the tile has so many rows and steps; `c` has room for whole grains.
        unsafe {
            let (a, c) = (weights.tile(*first), c.add(first * S::LANES));
            if weights.pairs {
                by_rows!(rows, tile::<S, true>(steps.div_ceil(2), a, *laid_out, b, c));
            } else {
                by_rows!(rows, tile::<S, false>(steps, a, *laid_out, b, c));
            }
        }
    }
}

/// All sums of a tile stay in registers.
#[inline(always)]
unsafe fn tile<S: Simd, const PAIRS: bool, const MR: usize>(
    steps: usize,
    a: *const u32,
    a_step: usize,
    b: *const f32,
    c: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [S::splat(0.0); MR];
        for step in 0..steps {
            let (a, b) = (a.add(step * a_step), S::load(b.add(step * S::LANES)));
            for (i, sum) in sums.iter_mut().enumerate() {
                let a = *a.add(i);
                *sum = if PAIRS { S::dot_pairs(a, b, *sum) } else { S::fma(S::splat(f32::from_bits(a)), b, *sum) };
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            S::store(c.add(i * S::LANES), *sum);
        }
    }
}

/// Adds the bias and writes the lanes to their rows.
#[inline(always)]
unsafe fn write<S: Simd>(width: usize, part: &Part, picks: &[Pick], out: Place, space: &mut Workspace) {
    let padded = width.next_multiple_of(S::LANES);
    space.rows.ensure(padded * S::LANES);
    // SAFETY: `result` was grown to a multiple of 16 columns; `rows` just now.
    unsafe {
        let result = space.result.as_slice().as_ptr().cast::<u32>();
        let rows = space.rows.as_mut_slice().as_mut_ptr();
        for column in (0..padded).step_by(S::LANES) {
            let from = result.add(column * S::LANES);
            let count = S::LANES.min(width - column);
            S::transpose(from, S::LANES, count, rows.add(column).cast(), padded);
        }
        for (lane, pick) in picks.iter().enumerate() {
            let mut at = 0;
            while at < width {
                let n = S::LANES.min(width - at);
                let bias = S::load_n(part.bias.as_ptr().add(at), n);
                let y = S::add(S::load(rows.add(lane * padded + at)), bias);
                let p = out.at(pick.row as usize, part.head * width + at);
                match out.element {
                    Element::F32 => S::store_n(p.cast(), y, n),
                    Element::Bf16 => S::store_bf16_n(p.cast(), y, n),
                }
                at += n;
            }
        }
    }
}
