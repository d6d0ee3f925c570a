//! Scores, then the network, then values: for short texts a panel of queries at a time, for one or two queries row by row.

use super::super::few::{dots, weigh};
use super::super::{Job, Workspace};
use super::product::{Goal, Left, Panels, multiply_at};
use super::{ShareNetwork, Space, lay_side_by_side, panels_at, place, place_of};
use crate::epilogue::Place;
use crate::simd::{Simd, kernel};
use crate::tile::Tile;
use crate::words::steps;
use crate::{Aligned, Rows};

/// # Safety
/// The job is as for [`super::attend_network`], with as many keys as are short or fewer.
pub(super) unsafe fn attend(job: &Job, network: &ShareNetwork, space: &mut Space) {
    let (level, format, element) = (network.level, network.format(), network.element());
    let (count, slots, width) = (job.k.count(), network.slots, job.k.width());
    let (keys_padded, slots_padded, width_padded) =
        (network.padded(count), network.padded(slots), network.padded(width));
    let tile = Tile::of(level, format);
    lay_side_by_side(level, network.pairs, job.k, &mut space.keys);
    space.laid_out.ensure(steps(format, count) * width_padded);
    space.scores.ensure(tile.rows * keys_padded);
    space.inner.ensure(tile.rows * slots_padded);
    space.zeros.ensure(keys_padded.max(width_padded));
    // SAFETY: room was made for all keys, slots and the width; the network's matrices have a word of every short key.
    unsafe {
        panels_at(level, job.v, space.laid_out.as_mut_slice().as_mut_ptr());
        let panels = |words: &Aligned<u32>, depth: usize, steps: usize| Panels {
            words: words.as_slice().as_ptr(),
            depth,
            steps,
        };
        let [of_width, of_keys, of_slots, of_tokens] = [width, count, slots, network.tokens].map(|n| steps(format, n));
        let keys = panels(&space.keys, of_width, of_width);
        let hidden = panels(&network.key_panels, of_tokens, of_keys);
        let output = panels(&network.short_values, of_slots, of_slots);
        let values = panels(&space.laid_out, of_keys, of_keys);
        let scores = place(&mut space.scores, element, keys_padded);
        let inner = place(&mut space.inner, element, slots_padded);
        let zeros = space.zeros.as_slice().as_ptr();
        let goal = |start: *const f32, relu: bool, columns: usize, to: Place| Goal { start, relu, columns, to };
        let queries = space.queries(network, job.q);
        for (first, rows) in tile.cuts(job.q.count()) {
            multiply_at(level, rows, queries.from(first), keys, goal(zeros, false, keys_padded, scores));
            multiply_at(level, rows, Left::at(scores), hidden, goal(network.bias.as_ptr(), true, slots_padded, inner));
            multiply_at(level, rows, Left::at(inner), output, goal(network.rest.as_ptr(), false, keys_padded, scores));
            multiply_at(level, rows, Left::at(scores), values, goal(zeros, false, width, place_of(job, first)));
        }
    }
}

/// One or two queries.
#[inline(always)]
unsafe fn few<S: Simd>(job: &Job, network: &ShareNetwork, space: &mut Workspace) {
    let (keys, width, tokens) = (job.k.count(), job.k.width(), network.tokens);
    space.scores.ensure(keys);
    space.bias.ensure(keys);
    space.rows.ensure(width);
    for query in 0..job.q.count() {
        let row = &mut space.rows.as_mut_slice()[..width];
        let scores = &mut space.scores.as_mut_slice()[..keys];
        let shares = &mut space.bias.as_mut_slice()[..keys];
        job.q.read_row(query, row);
        shares.copy_from_slice(&network.rest[..keys]);
        // SAFETY: a row of the network's matrices has as many numbers as there are keys, or more.
        unsafe {
            dots::<S>(job.k, row, 1.0, scores);
            for slot in 0..network.slots {
                let (from, to) = (slot * tokens, slot * tokens + keys);
                let mut inner = [0.0];
                dots::<S>(Rows::f32(&network.keys[from..to], keys), scores, 1.0, &mut inner);
                let inner = (inner[0] + network.bias[slot]).max(0.0);
                if inner > 0.0 {
                    add::<S>(inner, &network.values[from..to], shares);
                }
            }
            weigh::<S>(job, query, shares, 1.0);
        }
    }
}
kernel!(pub(super) few_at = few(job: &Job, network: &ShareNetwork, space: &mut Workspace));

/// `to += scale · from`.
#[inline(always)]
unsafe fn add<S: Simd>(scale: f32, from: &[f32], to: &mut [f32]) {
    let mut at = 0;
    while at < to.len() {
        let n = S::LANES.min(to.len() - at);
        // SAFETY: within both slices, which are of one length.
        unsafe {
            let p = to.as_mut_ptr().add(at);
            S::store_n(p, S::fma(S::load_n(from.as_ptr().add(at), n), S::splat(scale), S::load_n(p, n)), n);
        }
        at += n;
    }
}
