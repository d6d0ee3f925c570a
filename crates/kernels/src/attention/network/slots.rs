//! Keys and values become slots, then a few queries at a time.

use super::super::Job;
use super::super::strip::lay_out_values_at;
use super::product::{Goal, Left, Panels, multiply_at};
use super::{ShareNetwork, Space, pair_rows_at, panels_at, place, place_of};
use crate::epilogue::Place;
use crate::rows::{Element, Rows};
use crate::tile::Tile;
use crate::words::steps;

/// # Safety
/// The job is as for [`super::attend_network`], with as many keys as the network takes or fewer.
pub(super) unsafe fn attend(job: &Job, network: &ShareNetwork, space: &mut Space) {
    let (level, slots, width) = (network.level, network.slots, job.k.width());
    let tile = Tile::of(level, network.format());
    let padded = network.padded(slots);
    space.inner.ensure(tile.rows * padded);
    // SAFETY: room was made for all slots; a mixture has a word of every slot and step.
    unsafe {
        space.mix_keys(network, job.k);
        space.mix_values(network, job.v);
        let (words, steps) = (steps(network.format(), width), steps(network.format(), slots));
        let keys = Panels { words: space.keys.as_slice().as_ptr(), depth: words, steps: words };
        let depth = if network.pairs { steps } else { slots + 1 };
        let values = Panels { words: space.values.as_slice().as_ptr(), depth, steps };
        let inner = place(&mut space.inner, network.element(), padded);
        let to_inner = Goal { start: network.bias.as_slice().as_ptr(), relu: true, columns: padded, to: inner };
        let queries = space.queries(network, job.q);
        for (first, rows) in tile.cuts(job.q.count()) {
            multiply_at(level, rows, queries.from(first), keys, to_inner);
            let (start, to) = (space.rest.as_slice().as_ptr(), place_of(job, first));
            let to_out = Goal { start, relu: false, columns: width, to };
            multiply_at(level, rows, Left::at(inner), values, to_out);
        }
    }
}

impl Space {
    /// `K'ᵀ = Kᵀ W1ᵀ` as `[panels of slots][steps of the width][panel]`.
    ///
    /// # Safety
    /// The network's level is available; no more rows than its tokens, of its elements.
    unsafe fn mix_keys(&mut self, network: &ShareNetwork, rows: Rows) {
        let (format, panel, width) = (network.format(), network.level.panel(), rows.width());
        let tile = Tile::of(network.level, format);
        let (all, used, columns) =
            (steps(format, network.tokens), steps(format, rows.count()), network.padded(network.slots));
        self.laid_out.ensure(used * width + 16);
        self.keys.ensure(steps(format, width) * columns);
        let to = if network.pairs { &mut self.sums } else { &mut self.keys };
        to.ensure(width * columns);
        let (from, to) = (self.laid_out.as_mut_slice().as_mut_ptr(), to.as_mut_slice().as_mut_ptr());
        // SAFETY: room was just made; a panel of the network has `all` steps, of which the first are used.
        unsafe {
            lay_out_values_at(network.level, rows, from);
            for first in (0..columns).step_by(panel) {
                let (b, to) = (network.key_panels.as_slice().as_ptr().add(first * all), to.add(first * width));
                for (channel, count) in tile.cuts(width) {
                    (tile.run)(count, used, from.add(channel), width, b, to.add(channel * panel), panel, false);
                }
                if network.pairs {
                    let pairs = self.keys.as_mut_slice().as_mut_ptr().add(first * steps(format, width));
                    pair_rows_at(network.level, to.cast(), width, pairs);
                }
            }
        }
    }

    /// `V' = W2ᵀ V` as `[panels of the width][steps of slots][panel]`, and what every query takes of the values;
    /// in f32 that stands behind the slots.
    ///
    /// # Safety
    /// As for [`Space::mix_keys`].
    unsafe fn mix_values(&mut self, network: &ShareNetwork, rows: Rows) {
        let (format, panel, slots) = (network.format(), network.level.panel(), network.slots);
        let (used, columns, tile) =
            (steps(format, rows.count()), network.padded(rows.width()), Tile::of(network.level, format));
        self.laid_out.ensure(used * columns);
        self.zeros.ensure(columns);
        self.rest.ensure(columns);
        self.values.ensure(steps(format, slots) * columns);
        let to = if network.pairs { &mut self.sums } else { &mut self.values };
        to.ensure((slots + 1) * columns);
        let to = to.as_mut_slice().as_mut_ptr();
        let start = self.zeros.as_slice().as_ptr();
        // SAFETY: room was just made.
        unsafe {
            panels_at(network.level, rows, self.laid_out.as_mut_slice().as_mut_ptr());
            for first in (0..columns).step_by(panel) {
                let words = self.laid_out.as_slice().as_ptr().add(first * used);
                let (right, to) = (Panels { words, depth: used, steps: used }, to.add(first * (slots + 1)));
                for (slot, count) in tile.cuts(slots + 1) {
                    let to = Place { data: to.add(slot * panel).cast(), element: Element::F32, stride: panel };
                    let goal = Goal { start, relu: false, columns: panel, to };
                    multiply_at(network.level, count, network.value_rows().from(slot), right, goal);
                }
                let rest = self.rest.as_mut_slice().as_mut_ptr().add(first);
                rest.copy_from_nonoverlapping(to.add(slots * panel).cast(), panel);
                if network.pairs {
                    let pairs = self.values.as_mut_slice().as_mut_ptr().add(first * steps(format, slots));
                    pair_rows_at(network.level, to.cast(), slots, pairs);
                }
            }
        }
    }
}
