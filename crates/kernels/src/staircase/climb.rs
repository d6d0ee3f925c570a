//! One panel of tokens, a lane each.

use super::stairs::{GRAIN, Stairs};
use super::{Part, Pick, Way, Workspace};
use crate::epilogue::Place;
use crate::rows::{Element, Elements, Rows};
use crate::simd::{Level, Simd, kernel};

/// Conditions of a drawn panel, by lane.
struct Lanes {
    budget: [f32; 16],
    factor: [f32; 16],
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
                lay_out::<S>(x, picks, space);
                if let Some(mean) = &drawn.mean {
                    let panel = space.panel.as_mut_slice().as_mut_ptr();
                    for (i, mean) in mean.iter().enumerate() {
                        let p = panel.add(i * S::LANES);
                        S::store(p, S::sub(S::load(p), S::splat(*mean)));
                    }
                }
                let mut lanes = Lanes { budget: [0.0; 16], factor: [0.0; 16] };
                for (i, pick) in picks.iter().enumerate() {
                    (lanes.budget[i], lanes.factor[i]) = (pick.budget as f32, pick.factor);
                }
                let (index, floor) = (drawn.index.as_ptr(), drawn.floor.as_ptr());
                let result = space.result.as_mut_slice().as_mut_ptr();
                for (first, rows) in &drawn.weights.tiles {
                    let (a, c) = (drawn.weights.tile(*first), result.add(first * S::LANES));
                    let b = space.panel.as_slice().as_ptr();
                    drawn_tile::<S>(*rows, most, a, b, index, floor, &lanes, c);
                }
            }
            Way::Graded(graded) if most > 0 => {
                lay_out::<S>(x, picks, space);
                let most_padded = most.next_multiple_of(GRAIN);
                space.directions.ensure(most_padded * S::LANES);
                let directions = space.directions.as_mut_slice().as_mut_ptr();
                let b = space.panel.as_slice().as_ptr();
                multiply::<S>(&graded.directions, most, graded.directions.steps, b, directions);
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

/// Rows side by side: `panel[input][lane]`.
#[inline(always)]
unsafe fn lay_out<S: Simd>(x: Rows, picks: &[Pick], space: &mut Workspace) {
    let inputs = x.width();
    space.panel.ensure(inputs * S::LANES);
    let mut rows = [std::ptr::null::<u32>(); 16];
    match x.data() {
        Elements::F32(data) => {
            for (row, pick) in rows.iter_mut().zip(picks) {
                *row = data[pick.row as usize * x.stride()..][..inputs].as_ptr().cast();
            }
        }
        Elements::Bf16(_) => {
            space.staging.ensure(16 * inputs);
            for (i, (row, pick)) in rows.iter_mut().zip(picks).enumerate() {
                let to = &mut space.staging.as_mut_slice()[i * inputs..(i + 1) * inputs];
                x.read_row(pick.row as usize, to);
                *row = to.as_ptr().cast();
            }
        }
    }
    let panel = space.panel.as_mut_slice().as_mut_ptr().cast::<u32>();
    let whole = inputs - inputs % S::LANES;
    // SAFETY: every row has `inputs` numbers, the panel as many vectors.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            S::transpose_rows(|i| rows[i].add(at), picks.len(), panel.add(at * S::LANES), S::LANES);
        }
        for at in whole..inputs {
            for (lane, row) in rows.iter().enumerate().take(S::LANES) {
                let word = if lane < picks.len() { row.add(at).read_unaligned() } else { 0 };
                *panel.add(at * S::LANES + lane) = word;
            }
        }
    }
}

/// `c[output][lane] = Σ (step < steps) a[output][step] b[step][lane]` for the first `outputs` outputs (padded to whole
/// grains).
#[inline(always)]
unsafe fn multiply<S: Simd>(weights: &Stairs, outputs: usize, steps: usize, b: *const f32, c: *mut f32) {
    for (first, laid_out) in weights.tiles.iter().take_while(|(first, _)| *first < outputs) {
        let rows = (outputs - first).next_multiple_of(GRAIN).min(*laid_out);
        // SAFETY: the tile has so many rows and steps; `c` has room for whole grains.
        unsafe { plain_tile::<S>(rows, steps, weights.tile(*first), *laid_out, b, c.add(first * S::LANES)) };
    }
}

/// Calls a tile of constant height.
macro_rules! by_rows {
    ($rows:expr, $tile:ident::<$s:ident>($($arg:expr),*)) => {
        match $rows {
            4 => $tile::<$s, 4>($($arg),*),
            8 => $tile::<$s, 8>($($arg),*),
            12 => $tile::<$s, 12>($($arg),*),
            16 => $tile::<$s, 16>($($arg),*),
            20 => $tile::<$s, 20>($($arg),*),
            24 => $tile::<$s, 24>($($arg),*),
            rows => unreachable!("tile of {rows} rows"),
        }
    };
}

#[inline(always)]
unsafe fn plain_tile<S: Simd>(rows: usize, steps: usize, a: *const f32, a_step: usize, b: *const f32, c: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { by_rows!(rows, plain::<S>(steps, a, a_step, b, c)) }
}

#[inline(always)]
unsafe fn plain<S: Simd, const MR: usize>(steps: usize, a: *const f32, a_step: usize, b: *const f32, c: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [S::splat(0.0); MR];
        for step in 0..steps {
            let (a, b) = (a.add(step * a_step), S::load(b.add(step * S::LANES)));
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = S::fma(S::splat(*a.add(i)), b, *sum);
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            S::store(c.add(i * S::LANES), *sum);
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn drawn_tile<S: Simd>(
    rows: usize,
    steps: usize,
    a: *const f32,
    b: *const f32,
    index: *const u32,
    floor: *const f32,
    lanes: &Lanes,
    c: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe { by_rows!(rows, drawn::<S>(steps, a, b, index, floor, lanes, c)) }
}

#[inline(always)]
unsafe fn drawn<S: Simd, const MR: usize>(
    steps: usize,
    a: *const f32,
    b: *const f32,
    index: *const u32,
    floor: *const f32,
    lanes: &Lanes,
    c: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (budget, factor) = (S::load(lanes.budget.as_ptr()), S::load(lanes.factor.as_ptr()));
        let (mut at, one) = (S::splat(0.0), S::splat(1.0));
        let mut sums = [S::splat(0.0); MR];
        for step in 0..steps {
            let x = S::load(b.add(*index.add(step) as usize * S::LANES));
            let x = S::mul(x, S::max(S::splat(*floor.add(step)), factor));
            let x = S::keep_below(x, at, budget);
            at = S::add(at, one);
            let a = a.add(step * MR);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = S::fma(S::splat(*a.add(i)), x, *sum);
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
