//! Attention with a network of one hidden layer in softmax's place (MA-BERT).
//!
//! A network `W2 relu(W1 s + b1) + b2` of a query's scores `s = K q` is linear before and behind its ReLU. So W1 goes to the
//! keys and W2 to the values: `relu(q K'ᵀ + b1) V'` with `K' = W1 K` and `V' = W2ᵀ V`. What was a key is a *slot* now, one for
//! each inner number of the network, and one more that is always 1 and holds `b2 V`. A sequence of n tokens uses the first n
//! columns of both matrices. One or two queries are cheaper the other way round: scores, network, values.
//!
//! There is no exponential here, no division and no square root.

use super::few::{dots, weigh};
use super::strip::{Strip, write_result_at};
use super::{Attention, FEW, Job, ScoreBias, Span, Workspace, check, each_head};
use crate::epilogue::Place;
use crate::rows::{Element, Elements};
use crate::simd::{Level, Simd, kernel};
use crate::tile::Tile;
use crate::words::{lay_out, steps};
use crate::{Aligned, Buffer, Format, PerWorker, Rows, RowsMut, Scratch, Team};

/// A network in softmax's place, as attention uses it.
pub struct ShareNetwork {
    tokens: usize,
    /// The constant one included.
    slots: usize,
    /// `[slots, tokens]`: what is mixed into a slot's key. Scores are not scaled: this is.
    keys: Vec<f32>,
    /// `[slots, tokens]`: what is mixed into a slot's value.
    values: Vec<f32>,
    /// `[slots]`.
    bias: Vec<f32>,
    level: Level,
    /// Products in bf16 pairs.
    pairs: bool,
    laid_out: [Aligned<u32>; 2],
}

/// Working memory.
pub(super) struct Space {
    panels: Aligned<u32>,
    sums: Aligned<f32>,
    mixed: [Buffer; 2],
}

impl Default for Space {
    fn default() -> Self {
        let mixed = [0, 1].map(|_| Buffer::new(Element::F32));
        Space { panels: Aligned::default(), sums: Aligned::default(), mixed }
    }
}

impl ShareNetwork {
    /// From `relu(keys · s + bias)ᵀ · values + rest` for a row s of unscaled scores: keys and values `[slots, tokens]`, bias
    /// `[slots]`, rest `[tokens]`. `element`: of the queries, keys and values that it will see.
    pub fn new(keys: &[f32], bias: &[f32], values: &[f32], rest: &[f32], element: Element) -> Self {
        ShareNetwork::for_level(Level::active(), keys, bias, values, rest, element)
    }

    fn for_level(
        level: Level,
        keys: &[f32],
        bias: &[f32],
        values: &[f32],
        rest: &[f32],
        element: Element,
    ) -> ShareNetwork {
        let (tokens, slots) = (rest.len(), bias.len() + 1);
        assert!(tokens > 0, "a network for no tokens");
        assert_eq!((keys.len(), values.len()), (bias.len() * tokens, bias.len() * tokens), "slots x tokens");
        let keys = [keys, &vec![0.0; tokens]].concat();
        let values = [values, rest].concat();
        let bias = [bias, &[1.0]].concat();
        let pairs = element == Element::Bf16 && level.multiplies_bf16();
        let format = format(pairs);
        let tile = Tile::of(level, format);
        let words = steps(format, tokens);
        let laid_out = [&keys, &values].map(|matrix| {
            let (mut to, mut staging) = (Aligned::<u32>::default(), Aligned::default());
            to.ensure(slots * words + 16);
            for (first, count) in tile.cuts(slots) {
                // SAFETY: room for all slots and the slack; tiles in ascending order.
                unsafe {
                    let to = to.as_mut_slice().as_mut_ptr().add(first * words);
                    let rows = Rows::f32(matrix, tokens);
                    lay_out(level, format, false, rows, first, count, to, count, &mut staging, None);
                }
            }
            to
        });
        ShareNetwork { tokens, slots, keys, values, bias, level, pairs, laid_out }
    }

    /// The longest sequence.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Keys and values that are left of a sequence's, the constant one included.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let laid_out = self.laid_out.iter().map(|words| words.as_slice().len()).sum::<usize>();
        4 * (self.keys.len() + self.values.len() + self.bias.len() + laid_out)
    }

    /// `[slots, width]` into `out`: rows mixed by the laid-out matrix `which` (0: keys, 1: values).
    ///
    /// # Safety
    /// The level is available; no more rows than tokens, of the element that the network was made for.
    unsafe fn mix(&self, which: usize, rows: Rows, panels: &mut Aligned<u32>, sums: &mut Aligned<f32>, out: RowsMut) {
        let (format, panel, width) = (format(self.pairs), self.level.panel(), rows.width());
        let tile = Tile::of(self.level, format);
        let (all, used) = (steps(format, self.tokens), steps(format, rows.count()));
        let count = width.div_ceil(panel);
        panels.ensure(count * used * panel + 16);
        sums.ensure(self.slots * count * panel);
        // SAFETY: room was just made; a tile of the laid-out matrix has `all` steps, of which the first are used.
        unsafe {
            panels_at(self.level, rows, panels.as_mut_slice().as_mut_ptr());
            for (first, height) in tile.cuts(self.slots) {
                let a = self.laid_out[which].as_slice().as_ptr().add(first * all);
                for index in 0..count {
                    let b = panels.as_slice().as_ptr().add(index * used * panel);
                    let c = sums.as_mut_slice().as_mut_ptr().add((first * count + index) * panel).cast();
                    (tile.run)(height, used, a, height, b, c, count * panel, false);
                }
            }
        }
        let mut out = out;
        for (slot, sums) in sums.as_slice().chunks_exact(count * panel).take(self.slots).enumerate() {
            out.write_row(slot, &sums[..width]);
        }
    }
}

fn format(pairs: bool) -> Format {
    if pairs { Format::Bf16 } else { Format::F32 }
}

/// Rows as the right side of a tile: panel by panel `[rows or pairs of rows][panel]`.
#[inline(always)]
unsafe fn panels<S: Simd>(rows: Rows, to: *mut u32) {
    let (panel, count, width, stride) = (2 * S::LANES, rows.count(), rows.width(), rows.stride());
    // SAFETY: within `width` elements of every row; `to` has room for all panels.
    unsafe {
        match rows.data() {
            Elements::F32(from) => {
                for (index, at) in (0..width).step_by(S::LANES).enumerate() {
                    let to = to.add(index / 2 * count * panel + index % 2 * S::LANES).cast::<f32>();
                    let n = S::LANES.min(width - at);
                    for row in 0..count {
                        S::store(to.add(row * panel), S::load_n(from.as_ptr().add(row * stride + at), n));
                    }
                }
            }
            Elements::Bf16(from) => {
                let pairs = count.div_ceil(2);
                for (index, at) in (0..width).step_by(S::LANES).enumerate() {
                    let to = to.add(index / 2 * pairs * panel + index % 2 * S::LANES);
                    let n = S::LANES.min(width - at);
                    for pair in 0..pairs {
                        let low = S::load_bf16_n(from.as_ptr().add(2 * pair * stride + at), n);
                        let high = match 2 * pair + 1 < count {
                            true => S::load_bf16_n(from.as_ptr().add((2 * pair + 1) * stride + at), n),
                            false => S::splat(0.0),
                        };
                        S::store_bf16_pairs(to.add(pair * panel), low, high);
                    }
                }
            }
        }
    }
}
kernel!(panels_at = panels(rows: Rows, to: *mut u32));

/// `out = network(q kᵀ) v` for every span and head, by the whole team. Every query sees all keys; there is no bias, and the
/// scale is the network's. Sequences have at most [`ShareNetwork::tokens`] keys.
pub fn attend_network(
    team: &Team,
    attention: &Attention,
    network: &ShareNetwork,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    mut out: RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    check(attention, &q, &k, &v, spans, &out);
    assert!(!attention.causal && attention.window.is_none(), "every query sees all keys");
    assert!(matches!(attention.bias, ScoreBias::None), "no bias");
    assert!(spans.iter().all(|span| span.keys.len() <= network.tokens), "sequences fit the network");
    assert_eq!(k.element() == Element::Bf16, network.pairs, "the network is made for these elements");
    each_head(team, attention, [q, k, v], spans, Place::of(&mut out), scratch, &|_, job, space| {
        // SAFETY: the network's level is available, and the job is as `each_head` promises.
        unsafe {
            if job.q.count() <= FEW {
                few_at(network.level, job, network, space);
            } else {
                by_slots(job, network, space);
            }
        }
    });
}

/// Keys and values become slots, then a panel of queries at a time.
///
/// # Safety
/// The job is as for [`super::attend`].
unsafe fn by_slots(job: &Job, network: &ShareNetwork, space: &mut Workspace) {
    let (width, slots, level) = (job.k.width(), network.slots, network.level);
    // Moved out so that the rest can be lent to the strip.
    let mut own = std::mem::take(&mut space.mixed);
    let Space { panels, sums, mixed } = &mut own;
    for (which, rows) in [job.k, job.v].into_iter().enumerate() {
        if mixed[which].rows(0, width).element() != rows.element() {
            mixed[which] = Buffer::new(rows.element());
        }
        // SAFETY: as asserted by `attend_network`.
        unsafe { network.mix(which, rows, panels, sums, mixed[which].rows_mut(slots, width)) };
    }
    let [k, v] = mixed;
    let job = Job { k: k.rows(slots, width), v: v.rows(slots, width), ..*job };
    let strip = Strip::new(level, &job);
    let panel = strip.panel;
    space.scores.ensure((slots + 2) * panel);
    space.result.ensure(width.next_multiple_of(16) * panel + 4 * panel);
    space.rows.ensure(width.next_multiple_of(16) * panel);
    // SAFETY: room was made for all slots and the width.
    unsafe {
        strip.lay_out_keys(space);
        strip.lay_out_values(space);
        for first in (0..job.q.count()).step_by(panel) {
            let count = panel.min(job.q.count() - first);
            strip.prepare(first, count, space);
            strip.scores(0..slots, space);
            relu_at(level, &network.bias, network.pairs, space.scores.as_mut_slice().as_mut_ptr());
            let (values, scores) = (space.values.as_slice().as_ptr(), space.scores.as_slice().as_ptr());
            strip.weigh(steps(format(network.pairs), slots), values, scores.cast(), false, space);
            write_result_at(level, &job, first, count, space);
        }
    }
    space.mixed = own;
}

/// `relu(scores + bias)` in place, `[slots][panel]`; as bf16 pairs of slots where values are.
#[inline(always)]
unsafe fn relu<S: Simd>(bias: &[f32], pairs: bool, scores: *mut f32) {
    let (panel, slots) = (2 * S::LANES, bias.len());
    let one = |lane: usize, slot: usize| {
        // SAFETY: a row of scores per slot.
        unsafe { S::max(S::splat(0.0), S::add(S::load(scores.add(slot * panel + lane)), S::splat(bias[slot]))) }
    };
    for lane in [0, S::LANES] {
        // SAFETY: as above; a pair takes the place of a row that has been read already.
        unsafe {
            if pairs {
                for slot in (0..slots).step_by(2) {
                    let high = if slot + 1 < slots { one(lane, slot + 1) } else { S::splat(0.0) };
                    S::store_bf16_pairs(scores.add(slot / 2 * panel + lane).cast(), one(lane, slot), high);
                }
            } else {
                for slot in 0..slots {
                    S::store(scores.add(slot * panel + lane), one(lane, slot));
                }
            }
        }
    }
}
kernel!(relu_at = relu(bias: &[f32], pairs: bool, scores: *mut f32));

/// Scores, then the network, then values: for one or two queries.
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
        shares.fill(0.0);
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
kernel!(few_at = few(job: &Job, network: &ShareNetwork, space: &mut Workspace));

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::numbers;
    use crate::{bf16_to_f32, f32_to_bf16};
    use proptest::prelude::*;

    /// The network applied to every row of scores, in double precision.
    fn slow(
        (q, k, v): (&[f32], &[f32], &[f32]),
        (heads, width): (usize, usize),
        spans: &[Span],
        (keys, bias, values, rest): (&[f32], &[f32], &[f32], &[f32]),
    ) -> Vec<f32> {
        let (all, tokens, slots) = (heads * width, rest.len(), bias.len());
        let mut out = vec![0.0; q.len()];
        for span in spans {
            for (query, head) in span.queries.clone().flat_map(|q| (0..heads).map(move |h| (q, h))) {
                let at = |row: usize| row * all + head * width..row * all + (head + 1) * width;
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
                let mut scores = vec![0.0; tokens];
                for (i, key) in span.keys.clone().enumerate() {
                    scores[i] = dot(&q[at(query)], &k[at(key)]);
                }
                let inner: Vec<f64> = (0..slots)
                    .map(|s| (0..tokens).map(|t| f64::from(keys[s * tokens + t]) * scores[t]).sum::<f64>())
                    .zip(bias)
                    .map(|(x, b)| (x + f64::from(*b)).max(0.0))
                    .collect();
                for (i, key) in span.keys.clone().enumerate() {
                    let share: f64 = (0..slots).map(|s| inner[s] * f64::from(values[s * tokens + i])).sum();
                    let share = share + f64::from(rest[i]);
                    for (out, v) in out[at(query)].iter_mut().zip(&v[at(key)]) {
                        *out += (share * f64::from(*v)) as f32;
                    }
                }
            }
        }
        out
    }

    fn compare(lengths: &[usize], queries: usize, heads: usize, width: usize, tokens: usize, slots: usize, seed: u64) {
        let all = heads * width;
        let mut spans = Vec::new();
        let (mut key, mut query) = (0, 0);
        for n in lengths {
            let m = queries.min(*n);
            spans.push(Span { queries: query..query + m, keys: key..key + n, ..Span::default() });
            (key, query) = (key + n, query + m);
        }
        let round = |x: Vec<f32>| x.into_iter().map(|x| bf16_to_f32(f32_to_bf16(x))).collect::<Vec<f32>>();
        let [q, k, v] = [query, key, key].map(|rows| rows * all);
        let [q, k, v] = [(1, q), (2, k), (3, v)].map(|(i, n)| round(numbers(seed + i, n, 1.0)));
        let (a, b) = (numbers(seed + 4, slots * tokens, 0.2), numbers(seed + 5, slots * tokens, 0.2));
        let (bias, rest) = (numbers(seed + 6, slots, 0.5), numbers(seed + 7, tokens, 0.1));
        let want = slow((&q, &k, &v), (heads, width), &spans, (&a, &bias, &b, &rest));
        let most = want.iter().fold(0f32, |m, x| m.max(x.abs())).max(1e-3);
        let attention = Attention {
            heads,
            head_width: width,
            scale: 1.0,
            causal: false,
            window: None,
            bias: ScoreBias::None,
            indices: &[],
        };
        let team = Team::new(2);
        let scratch = PerWorker::new(2, Scratch::default);
        for level in Level::all_available() {
            for element in [Element::F32, Element::Bf16] {
                if element == Element::Bf16 && !level.multiplies_bf16() {
                    continue;
                }
                let network = ShareNetwork::for_level(level, &a, &bias, &b, &rest, element);
                let mut got = vec![f32::NAN; q.len()];
                let narrow = [&q, &k, &v].map(|x| x.iter().map(|x| f32_to_bf16(*x)).collect::<Vec<u16>>());
                let [q, k, v] = match element {
                    Element::F32 => [&q, &k, &v].map(|x| Rows::f32(x, all)),
                    Element::Bf16 => narrow.each_ref().map(|x| Rows::bf16(x, all)),
                };
                let out = RowsMut::f32(&mut got, all);
                attend_network(&team, &attention, &network, q, k, v, &spans, out, &scratch);
                let tolerance = if element == Element::F32 { 1e-5 } else { 2e-2 };
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let far = (got - want).abs() / most;
                    assert!(far <= tolerance, "{level:?} {element:?} {lengths:?} at {i}: {got} for {want}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]
        #[test]
        fn slots_are_the_network_applied_to_scores(
            lengths in prop::collection::vec(1usize..=37, 1..4),
            queries in prop_oneof![Just(1usize), Just(2), Just(usize::MAX)],
            heads in 1usize..3,
            width in prop_oneof![Just(8usize), Just(32), Just(40), Just(64), 1usize..20],
            slots in 1usize..40,
            seed in 0u64..1000,
        ) {
            compare(&lengths, queries, heads, width, 37, slots, seed);
        }
    }
}
