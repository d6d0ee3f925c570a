//! Attention with a network of one hidden layer in softmax's place (MA-BERT).
//!
//! A network `W2 relu(W1 s + b1) + b2` of a query's scores `s = K q` is linear before and behind its ReLU. So there are two
//! ways. `slots`: W1 goes to the keys and W2 to the values, `relu(q K'ᵀ + b1) V' + b2 V` with `K' = W1 K` and `V' = W2ᵀ V`;
//! what was a key is a *slot* now, one for each inner number of the network. `scores`: scores, network, values, as written;
//! less work for texts that are much shorter than the network is wide, and for one or two queries. A sequence of n tokens
//! uses the first n columns of W1 and the first n rows of W2. `bytes`: slots, with everything that is multiplied rounded to
//! bytes.
//!
//! There is no exponential here, no division and no square root.

mod bytes;
mod product;
mod scores;
mod slots;

use super::{Attention, FEW, Job, ScoreBias, Span, check, each_head};
use crate::epilogue::Place;
use crate::rows::{Element, Elements};
use crate::simd::{Level, Simd, kernel};
use crate::words::{lay_out, steps};
use crate::{Aligned, Format, PerWorker, Rows, RowsMut, Scratch, Team, f32_to_bf16};
use bytes::{ByteSpace, Bytes};
use product::Left;

/// A network in softmax's place, as attention uses it.
pub struct ShareNetwork {
    tokens: usize,
    slots: usize,
    /// `[slots, tokens]`: what is mixed into a slot's key. Scores are not scaled: this is.
    keys: Vec<f32>,
    /// `[slots + 1, tokens]`: what is mixed into a slot's value, and then what every query takes of a token's value.
    values: Vec<f32>,
    /// `[slots]`, and zeros up to whole panels.
    bias: Vec<f32>,
    /// The last row of values, and zeros up to whole panels.
    rest: Vec<f32>,
    /// Texts up to this length go by their scores.
    short: usize,
    level: Level,
    /// Products in bf16 pairs.
    pairs: bool,
    /// Keys as the right side of a product: `[panels of slots][steps of tokens][panel]`.
    key_panels: Aligned<u32>,
    /// Values in bf16, rows of whole pairs; empty where products are of f32 or bytes.
    narrow_values: Vec<u16>,
    /// Values of short texts as its right side: `[panels of short tokens][steps of slots][panel]`.
    short_values: Aligned<u32>,
    /// The network in bytes, where slots are.
    bytes: Option<Bytes>,
}

/// What a network will see, and how it multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Of one head.
    pub width: usize,
    /// Of queries, keys and values.
    pub element: Element,
    /// Slots are made and met in bytes.
    pub bytes: bool,
}

/// Working memory.
#[derive(Default)]
pub(super) struct Space {
    /// Keys or values as one side of a product.
    laid_out: Aligned<u32>,
    /// A mixture that is to be paired.
    sums: Aligned<u32>,
    keys: Aligned<u32>,
    values: Aligned<u32>,
    /// Of a few queries.
    scores: Aligned<u32>,
    inner: Aligned<u32>,
    rest: Aligned<f32>,
    zeros: Aligned<f32>,
    queries: Aligned<u16>,
    bytes: ByteSpace,
}

impl Space {
    /// Queries as the left side of a product: as they are, unless an odd width leaves half of a word.
    fn queries(&mut self, network: &ShareNetwork, q: Rows) -> Left {
        let width = q.width();
        if !network.pairs || width.is_multiple_of(2) {
            return Left::of(q);
        }
        self.queries.ensure(q.count() * (width + 1));
        for (row, to) in self.queries.as_mut_slice().chunks_exact_mut(width + 1).take(q.count()).enumerate() {
            to.iter_mut().enumerate().for_each(|(c, to)| *to = if c < width { f32_to_bf16(q.get(row, c)) } else { 0 });
        }
        Left::of(Rows::bf16(&self.queries.as_slice()[..q.count() * (width + 1)], width + 1))
    }
}

/// Words as a matrix of elements.
fn place(words: &mut Aligned<u32>, element: Element, stride: usize) -> Place {
    Place { data: words.as_mut_slice().as_mut_ptr().cast(), element, stride }
}

/// Where the results of a job's queries go, from this one on.
fn place_of(job: &Job, query: usize) -> Place {
    let (row, column) = job.place(query);
    // SAFETY: only an address, of a query that the job has.
    Place { data: unsafe { job.out.at(row, column) }, ..job.out }
}

impl ShareNetwork {
    /// From `relu(keys · s + bias)ᵀ · values + rest` for a row s of unscaled scores: keys and values `[slots, tokens]`, bias
    /// `[slots]`, rest `[tokens]`.
    pub fn new(keys: &[f32], bias: &[f32], values: &[f32], rest: &[f32], heads: Heads) -> Self {
        ShareNetwork::for_level(Level::active(), keys, bias, values, rest, heads)
    }

    fn for_level(
        level: Level,
        keys: &[f32],
        bias: &[f32],
        values: &[f32],
        rest: &[f32],
        Heads { width: head_width, element, bytes }: Heads,
    ) -> ShareNetwork {
        let (tokens, slots) = (rest.len(), bias.len());
        assert!(tokens > 0 && slots > 0, "a network for no tokens");
        assert_eq!((keys.len(), values.len()), (slots * tokens, slots * tokens), "slots x tokens");
        let pairs = element == Element::Bf16 && level.multiplies_bf16();
        // n² (head width + slots) for scores and network against 2 n slots head width for slots. Bytes halve the latter;
        // with what rounding takes they are as fast at three quarters of that length.
        let quarters = if bytes { 3 } else { 4 };
        let short = (quarters * slots * head_width / (2 * (slots + head_width))).min(tokens);
        let turned: Vec<f32> =
            (0..short).flat_map(|token| values.iter().skip(token).step_by(tokens).copied()).collect();
        let key_panels = side_by_side(level, pairs, Rows::f32(keys, tokens));
        let short_values = side_by_side(level, pairs, Rows::f32(&turned, slots));
        let bytes = bytes.then(|| Bytes::new(level, keys, values, slots, tokens));
        let values = [values, rest].concat();
        let narrow = |row: &[f32]| -> Vec<u16> {
            let odd = (tokens % 2 == 1).then_some(0);
            row.iter().map(|x| f32_to_bf16(*x)).chain(odd).collect()
        };
        let narrow_values =
            if pairs && bytes.is_none() { values.chunks_exact(tokens).flat_map(narrow).collect() } else { Vec::new() };
        let whole = |numbers: &[f32]| {
            let zeros = numbers.len().next_multiple_of(level.panel()) - numbers.len();
            [numbers, &vec![0.0; zeros]].concat()
        };
        let (keys, bias, rest) = (keys.to_vec(), whole(bias), whole(rest));
        ShareNetwork {
            tokens,
            slots,
            keys,
            values,
            bias,
            rest,
            short,
            level,
            pairs,
            key_panels,
            narrow_values,
            short_values,
            bytes,
        }
    }

    /// The longest sequence.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Multiplications of one head for a sequence: so many until there are inner numbers, and as many from there on.
    pub fn products(&self, queries: usize, keys: usize, head_width: usize) -> usize {
        match self.by_scores(queries, keys) {
            true => queries * keys * (head_width + self.slots),
            false => (queries + keys) * self.slots * head_width,
        }
    }

    /// Whether slots are made and met in bytes.
    pub fn in_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Inner numbers of the network.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Numbers in it.
    pub fn parameters(&self) -> usize {
        2 * self.slots * self.tokens + self.slots + self.tokens
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.keys.len() + self.values.len() + self.bias.len() + self.rest.len())
            + self.key_panels.bytes()
            + 2 * self.narrow_values.len()
            + self.short_values.bytes()
            + self.bytes.as_ref().map_or(0, Bytes::held)
    }

    fn by_scores(&self, queries: usize, keys: usize) -> bool {
        queries <= FEW || keys <= self.short
    }

    fn format(&self) -> Format {
        if self.pairs { Format::Bf16 } else { Format::F32 }
    }

    fn element(&self) -> Element {
        if self.pairs { Element::Bf16 } else { Element::F32 }
    }

    /// Values as the left side of a product, a row per slot and one of the rest.
    fn value_rows(&self) -> Left {
        Left::of(match self.pairs {
            true => Rows::bf16(&self.narrow_values, self.tokens.next_multiple_of(2)),
            false => Rows::f32(&self.values, self.tokens),
        })
    }

    /// Columns in whole panels.
    fn padded(&self, columns: usize) -> usize {
        columns.next_multiple_of(self.level.panel())
    }
}

/// Rows as the right side of a product with their transpose: `[panels of rows][steps of the width][panel]`.
fn side_by_side(level: Level, pairs: bool, rows: Rows) -> Aligned<u32> {
    let mut to = Aligned::default();
    lay_side_by_side(level, pairs, rows, &mut to);
    to
}

fn lay_side_by_side(level: Level, pairs: bool, rows: Rows, to: &mut Aligned<u32>) {
    let format = if pairs { Format::Bf16 } else { Format::F32 };
    let (panel, words) = (level.panel(), steps(format, rows.width()));
    to.ensure(rows.count().next_multiple_of(panel) * words + 16);
    for first in (0..rows.count()).step_by(panel) {
        let count = panel.min(rows.count() - first);
        let to = &mut to.as_mut_slice()[first * words..];
        if count < panel {
            to[..words * panel].fill(0);
        }
        // SAFETY: room was just made.
        unsafe {
            lay_out(level, format, false, rows, first, count, to.as_mut_ptr(), panel, &mut Aligned::default(), None)
        };
    }
}

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
            match job.q.count() {
                0..=FEW => scores::few_at(network.level, job, network, space),
                _ if job.k.count() <= network.short => scores::attend(job, network, &mut space.network),
                _ => match &network.bytes {
                    Some(bytes) => bytes::attend(job, network, bytes, &mut space.network),
                    None => slots::attend(job, network, &mut space.network),
                },
            }
        }
    });
}

/// A panel's neighbouring rows as bf16 pairs, zeros beside an odd last one.
#[inline(always)]
unsafe fn pair_rows<S: Simd>(from: *const f32, rows: usize, to: *mut u32) {
    let panel = 2 * S::LANES;
    for row in (0..rows).step_by(2) {
        for at in [0, S::LANES] {
            // SAFETY: the caller's promise.
            unsafe {
                let low = S::load(from.add(row * panel + at));
                let high = if row + 1 < rows { S::load(from.add((row + 1) * panel + at)) } else { S::splat(0.0) };
                S::store_bf16_pairs(to.add(row / 2 * panel + at), low, high);
            }
        }
    }
}
kernel!(
    /// # Safety
    /// So many rows of a panel in `from`, and room for half of them in `to`.
    pair_rows_at = pair_rows(from: *const f32, rows: usize, to: *mut u32)
);

/// Rows as the right side of a product: `[panels of the width][rows or pairs of rows][panel]`.
#[inline(always)]
unsafe fn panels<S: Simd>(rows: Rows, to: *mut u32) {
    let (panel, count, width, stride) = (2 * S::LANES, rows.count(), rows.width(), rows.stride());
    // SAFETY: within `width` elements of every row; `to` has room for all panels.
    unsafe {
        match rows.data() {
            Elements::F32(from) => {
                for at in (0..width.next_multiple_of(panel)).step_by(S::LANES) {
                    let to = to.add(at / panel * count * panel + at % panel).cast::<f32>();
                    let n = S::LANES.min(width.saturating_sub(at));
                    for row in 0..count {
                        S::store(to.add(row * panel), S::load_n(from.as_ptr().wrapping_add(row * stride + at), n));
                    }
                }
            }
            Elements::Bf16(from) => {
                let pairs = count.div_ceil(2);
                for at in (0..width.next_multiple_of(panel)).step_by(S::LANES) {
                    let to = to.add(at / panel * pairs * panel + at % panel);
                    let n = S::LANES.min(width.saturating_sub(at));
                    for pair in 0..pairs {
                        let low = S::load_bf16_n(from.as_ptr().wrapping_add(2 * pair * stride + at), n);
                        let high = match 2 * pair + 1 < count {
                            true => S::load_bf16_n(from.as_ptr().wrapping_add((2 * pair + 1) * stride + at), n),
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

#[cfg(test)]
mod tests;
