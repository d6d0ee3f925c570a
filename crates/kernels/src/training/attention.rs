//! Attention that keeps its probabilities, and the way back through it.
//!
//! One task is one sequence and head. The probabilities of a task lie together, `[queries, keys]`, heads of a sequence one
//! after the other: the way back reads them in the order in which they were written.

use super::Dropout;
use super::dropout::factors;
use crate::attention::{Attention, ScoreBias, Span};
use crate::epilogue::{Finish, Place};
use crate::math::exp2_negative;
use crate::product::{Panels, Side, Space, small};
use crate::simd::{Level, Simd, kernel};
use crate::{Aligned, PerWorker, Rows, RowsMut, Team};

/// Working memory of one thread.
#[derive(Default)]
pub struct AttentionSpace {
    panels: Panels,
    products: Space,
    kept: Aligned<f32>,
    scores: Aligned<f32>,
}

/// How many probabilities there are.
fn probabilities_of(attention: &Attention, spans: &[Span]) -> usize {
    spans.iter().map(|s| attention.heads * s.queries.len() * s.keys.len()).sum()
}

/// Softmax of the first `visible` scores times `scale`, in place; zero for the others.
#[inline(always)]
unsafe fn soften<S: Simd>(row: &mut [f32], visible: usize, scale: f32) {
    let (row, hidden) = row.split_at_mut(visible);
    hidden.fill(0.0);
    let scale = scale * std::f32::consts::LOG2_E;
    let whole = visible - visible % S::LANES;
    // SAFETY: every access is inside `row`.
    unsafe {
        let mut high = S::splat(f32::MIN);
        for at in (0..whole).step_by(S::LANES) {
            high = S::max(high, S::load(row.as_ptr().add(at)));
        }
        let most = row[whole..].iter().fold(S::largest(high), |m, x| m.max(*x));
        let (factor, less) = (S::splat(scale), S::splat(-most * scale));
        let mut sum = S::splat(0.0);
        let mut at = 0;
        while at < visible {
            let n = S::LANES.min(visible - at);
            let p = row.as_mut_ptr().add(at);
            S::store_n(p, exp2_negative::<S>(S::fma(S::load_n(p, n), factor, less)), n);
            sum = S::add(sum, S::load_n(p, n));
            at += n;
        }
        let inverse = S::splat(1.0 / S::sum(sum));
        let mut at = 0;
        while at < visible {
            let n = S::LANES.min(visible - at);
            let p = row.as_mut_ptr().add(at);
            S::store_n(p, S::mul(S::load_n(p, n), inverse), n);
            at += n;
        }
    }
}
kernel!(soften_at = soften(row: &mut [f32], visible: usize, scale: f32));

/// `kept = probabilities * factors of dropout`; `first` is the first probability's number.
#[inline(always)]
unsafe fn keep<S: Simd>(probabilities: &[f32], dropout: &Dropout, first: usize, kept: &mut [f32]) {
    // SAFETY: both slices have the same length.
    unsafe {
        factors::<S>(dropout, first, kept);
        let mut at = 0;
        while at < kept.len() {
            let n = S::LANES.min(kept.len() - at);
            let p = kept.as_mut_ptr().add(at);
            S::store_n(p, S::mul(S::load_n(p, n), S::load_n(probabilities.as_ptr().add(at), n)), n);
            at += n;
        }
    }
}
kernel!(keep_at = keep(probabilities: &[f32], dropout: &Dropout, first: usize, kept: &mut [f32]));

/// From the gradient of kept probabilities to that of unscaled scores, row by row in place: with p the probabilities and
/// k = p f the kept ones, `scale (k g - p Σ k g)`.
#[inline(always)]
unsafe fn unsoften<S: Simd>(probabilities: &[f32], kept: &[f32], gradient: &mut [f32], keys: usize, scale: f32) {
    for begin in (0..gradient.len()).step_by(keys) {
        // SAFETY: all slices have whole rows of `keys`.
        unsafe {
            let (p, k) = (probabilities.as_ptr().add(begin), kept.as_ptr().add(begin));
            let g = gradient.as_mut_ptr().add(begin);
            let mut sum = S::splat(0.0);
            let mut at = 0;
            while at < keys {
                let n = S::LANES.min(keys - at);
                let both = S::mul(S::load_n(k.add(at), n), S::load_n(g.add(at), n));
                sum = S::add(sum, both);
                S::store_n(g.add(at), both, n);
                at += n;
            }
            let (less, scale) = (S::splat(-S::sum(sum)), S::splat(scale));
            at = 0;
            while at < keys {
                let n = S::LANES.min(keys - at);
                let d = S::fma(S::load_n(p.add(at), n), less, S::load_n(g.add(at), n));
                S::store_n(g.add(at), S::mul(d, scale), n);
                at += n;
            }
        }
    }
}
kernel!(unsoften_at = unsoften(probabilities: &[f32], kept: &[f32], gradient: &mut [f32], keys: usize, scale: f32));

/// An address that tasks use for different elements.
#[derive(Clone, Copy)]
struct Shared(*mut f32);
// SAFETY: only an address; tasks keep to their own elements.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Address of an element.
    unsafe fn at(&self, number: usize) -> *mut f32 {
        // SAFETY: the caller's promise that the element exists.
        unsafe { self.0.add(number) }
    }
}

impl Place {
    /// The same matrix seen from another element.
    unsafe fn from(&self, row: usize, column: usize) -> Place {
        // SAFETY: the caller's promise that the element exists.
        Place { data: unsafe { self.at(row, column) }, ..*self }
    }
}

fn check(attention: &Attention, q: &Rows, k: &Rows, v: &Rows, spans: &[Span]) {
    assert!(attention.window.is_none() && matches!(attention.bias, ScoreBias::None), "plain attention only");
    let width = attention.heads * attention.head_width;
    assert!([q, k, v].iter().all(|rows| rows.width() == width), "heads * head width");
    let (mut queries, mut keys) = (0, 0);
    for span in spans {
        // Gradients are written, not added: nobody may share rows.
        assert!(span.queries.start >= queries && span.keys.start >= keys, "sequences follow one another");
        assert!(!span.keys.is_empty(), "a sequence has keys");
        (queries, keys) = (span.queries.end, span.keys.end);
    }
    assert!(queries <= q.count() && keys <= k.count() && keys <= v.count(), "spans inside the rows");
}

/// Where each sequence's probabilities begin.
fn offsets(attention: &Attention, spans: &[Span]) -> Vec<usize> {
    let mut sums = Vec::with_capacity(spans.len());
    let mut total = 0;
    for span in spans {
        sums.push(total);
        total += attention.heads * span.queries.len() * span.keys.len();
    }
    sums
}

/// `out = dropout(softmax(q kᵀ scale)) v` for every sequence and head; `probabilities` becomes the softmax.
pub fn attention(
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    dropout: Option<Dropout>,
    probabilities: &mut Vec<f32>,
    mut out: RowsMut,
    spaces: &PerWorker<AttentionSpace>,
) {
    check(attention, &q, &k, &v, spans);
    assert_eq!((out.count(), out.width()), (q.count(), q.width()), "result");
    probabilities.resize(probabilities_of(attention, spans), 0.0);
    let all = Shared(probabilities.as_mut_ptr());
    let (offsets, out) = (offsets(attention, spans), Place::of(&mut out));
    let level = Level::active();
    team.run(spans.len() * attention.heads, &|task, worker| {
        let (index, head) = (task / attention.heads, task % attention.heads);
        let span = &spans[index];
        let columns = head * attention.head_width..(head + 1) * attention.head_width;
        let (queries, keys) = (span.queries.len(), span.keys.len());
        if queries == 0 {
            return;
        }
        let [q, k, v] = [(q, &span.queries), (k, &span.keys), (v, &span.keys)]
            .map(|(rows, range)| rows.range(range.clone()).columns(columns.clone()));
        let first = offsets[index] + head * queries * keys;
        let AttentionSpace { panels, products, kept, .. } = &mut *spaces.get(worker);
        // SAFETY: the task's probabilities and the head's columns of the span's rows are its own; `check` compared the spans
        // with the rows, and the level is available.
        unsafe {
            let mine = std::slice::from_raw_parts_mut(all.at(first), queries * keys);
            let finish = Finish::plain(Place::of(&mut RowsMut::f32(mine, keys)));
            small(level, Side::of(q), Side::turned(k), panels, products, &finish);
            for (query, row) in mine.chunks_exact_mut(keys).enumerate() {
                let seen = if attention.causal { attention.position(span, query) + 1 } else { keys };
                soften_at(level, row, seen, attention.scale);
            }
            let mut used = &*mine;
            if let Some(dropout) = &dropout {
                kept.ensure(queries * keys);
                let kept = &mut kept.as_mut_slice()[..queries * keys];
                keep_at(level, mine, dropout, first, kept);
                used = kept;
            }
            let finish = Finish::plain(out.from(span.queries.start, columns.start));
            small(level, Side::of(Rows::f32(used, keys)), Side::of(v), panels, products, &finish);
        }
    });
}

/// Gradients of queries, keys and values from that of the result. Rows outside the spans stay as they are.
pub fn attention_gradient(
    team: &Team,
    attention: &Attention,
    (q, k, v): (Rows, Rows, Rows),
    spans: &[Span],
    dropout: Option<Dropout>,
    probabilities: &[f32],
    gradient: Rows,
    (mut dq, mut dk, mut dv): (RowsMut, RowsMut, RowsMut),
    spaces: &PerWorker<AttentionSpace>,
) {
    check(attention, &q, &k, &v, spans);
    assert_eq!(probabilities.len(), probabilities_of(attention, spans), "probabilities");
    assert_eq!((gradient.count(), gradient.width()), (q.count(), q.width()), "gradient");
    for (rows, to) in [(&q, &dq), (&k, &dk), (&v, &dv)] {
        assert_eq!((rows.count(), rows.width()), (to.count(), to.width()), "gradients");
    }
    let offsets = offsets(attention, spans);
    let [dq, dk, dv] = [&mut dq, &mut dk, &mut dv].map(Place::of);
    let level = Level::active();
    team.run(spans.len() * attention.heads, &|task, worker| {
        let (index, head) = (task / attention.heads, task % attention.heads);
        let span = &spans[index];
        let columns = head * attention.head_width..(head + 1) * attention.head_width;
        let (queries, keys) = (span.queries.len(), span.keys.len());
        let [q, k, v, gradient] = [(q, &span.queries), (k, &span.keys), (v, &span.keys), (gradient, &span.queries)]
            .map(|(rows, range)| rows.range(range.clone()).columns(columns.clone()));
        let first = offsets[index] + head * queries * keys;
        let mine = &probabilities[first..first + queries * keys];
        let AttentionSpace { panels, products, kept, scores } = &mut *spaces.get(worker);
        // SAFETY: the head's columns of the span's rows are the task's own; `check` compared the spans with the rows, and
        // the level is available.
        unsafe {
            let mut used = mine;
            if let Some(dropout) = &dropout {
                kept.ensure(queries * keys);
                let kept = &mut kept.as_mut_slice()[..queries * keys];
                keep_at(level, mine, dropout, first, kept);
                used = kept;
            }
            let finish = Finish::plain(dv.from(span.keys.start, columns.start));
            small(level, Side::turned(Rows::f32(used, keys)), Side::of(gradient), panels, products, &finish);
            scores.ensure(queries * keys);
            let scores = &mut scores.as_mut_slice()[..queries * keys];
            let finish = Finish::plain(Place::of(&mut RowsMut::f32(scores, keys)));
            small(level, Side::of(gradient), Side::turned(v), panels, products, &finish);
            unsoften_at(level, mine, used, scores, keys, attention.scale);
            let scores = Rows::f32(scores, keys);
            let finish = Finish::plain(dq.from(span.queries.start, columns.start));
            small(level, Side::of(scores), Side::of(k), panels, products, &finish);
            let finish = Finish::plain(dk.from(span.keys.start, columns.start));
            small(level, Side::turned(scores), Side::of(q), panels, products, &finish);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, numbers};

    fn plain(heads: usize, head_width: usize, causal: bool) -> Attention<'static> {
        let scale = 1.0 / (head_width as f32).sqrt();
        Attention { heads, head_width, scale, causal, window: None, bias: ScoreBias::None, indices: &[] }
    }

    fn spans(lengths: &[(usize, usize)]) -> Vec<Span> {
        let (mut q, mut k) = (0, 0);
        let span = |(queries, keys): &(usize, usize)| {
            let span = Span { queries: q..q + queries, keys: k..k + keys, ..Span::default() };
            (q, k) = (span.queries.end, span.keys.end);
            span
        };
        lengths.iter().map(span).collect()
    }

    /// The loss `Σ out · pull` in double precision, with given factors of the probabilities.
    fn loss(a: &Attention, [q, k, v]: [&[f32]; 3], spans: &[Span], factors: &[f32], pull: &[f32]) -> f64 {
        let width = a.heads * a.head_width;
        let at = |m: &[f32], row: usize, c: usize| f64::from(m[row * width + c]);
        let (mut loss, mut number) = (0.0, 0);
        for span in spans {
            for head in 0..a.heads {
                let columns = head * a.head_width..(head + 1) * a.head_width;
                for (i, query) in span.queries.clone().enumerate() {
                    let seen = if a.causal { a.position(span, i) + 1 } else { span.keys.len() };
                    let score = |key: usize| -> f64 {
                        let dot: f64 = columns.clone().map(|c| at(q, query, c) * at(k, span.keys.start + key, c)).sum();
                        (dot * f64::from(a.scale)).exp()
                    };
                    let scores: Vec<f64> = (0..seen).map(score).collect();
                    let sum: f64 = scores.iter().sum();
                    for (key, score) in scores.iter().enumerate() {
                        let p = score / sum * f64::from(factors[number + key]);
                        for c in columns.clone() {
                            loss += p * at(v, span.keys.start + key, c) * at(pull, query, c);
                        }
                    }
                    number += span.keys.len();
                }
            }
        }
        loss
    }

    fn compare(lengths: &[(usize, usize)], heads: usize, head_width: usize, causal: bool, share: Option<f64>) {
        let (a, spans) = (plain(heads, head_width, causal), spans(lengths));
        let width = heads * head_width;
        let (queries, keys) = spans.last().map_or((0, 0), |s| (s.queries.end, s.keys.end));
        let q = numbers(1, queries * width, 1.0);
        let (k, v) = (numbers(2, keys * width, 1.0), numbers(3, keys * width, 1.0));
        let pull = numbers(4, queries * width, 1.0);
        let dropout = share.map(|share| Dropout::new(5, share));
        let rows = |d| Rows::f32(d, width);
        let team = Team::new(2);
        let spaces = PerWorker::new(2, AttentionSpace::default);
        let (mut kept, mut out) = (Vec::new(), vec![f32::NAN; queries * width]);
        let to = RowsMut::f32(&mut out, width);
        attention(&team, &a, rows(&q), rows(&k), rows(&v), &spans, dropout, &mut kept, to, &spaces);
        if dropout.is_none() {
            let mut want = vec![0f32; queries * width];
            reference::attend(&a, rows(&q), rows(&k), rows(&v), &spans, RowsMut::f32(&mut want, width));
            assert!(out.iter().zip(&want).all(|(o, w)| (o - w).abs() < 1e-5));
        }
        let mut factors = vec![1f32; kept.len()];
        if let Some(dropout) = dropout {
            dropout.factors(0, &mut factors);
        }
        let all = [&q[..], &k[..], &v[..]];
        let got: f64 = out.iter().zip(&pull).map(|(o, p)| f64::from(*o) * f64::from(*p)).sum();
        let want = loss(&a, all, &spans, &factors, &pull);
        assert!((got - want).abs() < 1e-3 * (1.0 + want.abs()), "{got} for {want}");

        let mut gradients = [queries, keys, keys].map(|rows| vec![f32::NAN; rows * width]);
        let [dq, dk, dv] = &mut gradients;
        let to = (RowsMut::f32(dq, width), RowsMut::f32(dk, width), RowsMut::f32(dv, width));
        let from = (rows(&q), rows(&k), rows(&v));
        attention_gradient(&team, &a, from, &spans, dropout, &kept, rows(&pull), to, &spaces);
        let step = 1e-2f32;
        for which in 0..3 {
            let gradient = &gradients[which];
            for i in (0..gradient.len()).step_by(gradient.len().div_ceil(29)) {
                let moved = |by: f32| {
                    let mut new = all[which].to_vec();
                    new[i] += by;
                    let mut all = all;
                    all[which] = &new;
                    loss(&a, all, &spans, &factors, &pull)
                };
                let want = (moved(step) - moved(-step)) / f64::from(2.0 * step);
                let got = f64::from(gradient[i]);
                assert!((got - want).abs() < 1e-3 * (1.0 + want.abs()), "{which} at {i}: {got} for {want}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn gradients_are_differences() {
        compare(&[(1, 1)], 1, 1, false, None);
        compare(&[(5, 5), (3, 3)], 2, 4, false, None);
        compare(&[(7, 7), (33, 33), (1, 1)], 2, 8, true, Some(0.2));
        compare(&[(40, 40), (17, 17)], 3, 32, false, Some(0.1));
        // Fewer queries than keys: the last layer of a classifier.
        compare(&[(1, 9), (1, 20)], 2, 8, false, Some(0.1));
    }

    #[test]
    fn every_level_softens_alike() {
        for (len, seen) in [(1, 1), (7, 5), (16, 16), (37, 37), (40, 33)] {
            let scores = numbers(9, len, 4.0);
            let mut want: Vec<f32> = scores[..seen].iter().map(|s| s * 0.7).collect();
            reference::softmax(&mut want);
            want.resize(len, 0.0);
            for level in Level::all_available() {
                let mut got = scores.clone();
                // SAFETY: available level.
                unsafe { soften_at(level, &mut got, seen, 0.7) };
                assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 2e-6), "{level:?}: {got:?} for {want:?}");
                let (kept, mut gradient) = (numbers(4, len, 1.0), numbers(6, len, 1.0));
                let sum: f32 = kept.iter().zip(&gradient).map(|(k, g)| k * g).sum();
                let back: Vec<f32> = (0..len).map(|i| 0.5 * (kept[i] * gradient[i] - scores[i] * sum)).collect();
                // SAFETY: available level, one row.
                unsafe { unsoften_at(level, &scores, &kept, &mut gradient, len, 0.5) };
                assert!(gradient.iter().zip(&back).all(|(g, w)| (g - w).abs() < 1e-5), "{level:?}");
            }
        }
    }
}
