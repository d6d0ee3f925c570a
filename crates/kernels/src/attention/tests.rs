//! Every level and both ways against the reference.

use super::*;
use crate::reference::{self, numbers};
use crate::rows::{bf16_to_f32, f32_to_bf16};
use proptest::prelude::*;

/// Every pooling against pooled probabilities of the reference.
fn compare_importance(attention: &Attention, q: Rows, k: Rows, spans: &[Span], tolerance: f32) {
    let (team, scratch) = (Team::new(2), PerWorker::new(2, Scratch::default));
    let keys = k.count();
    for pooling in [Pooling::Max, Pooling::Sum, Pooling::Median] {
        let mut want = vec![0f32; attention.heads * keys];
        for (s, span) in spans.iter().enumerate() {
            for head in 0..attention.heads {
                let all: Vec<Vec<f32>> = (0..span.queries.len())
                    .map(|i| reference::probabilities(attention, q, k, (s, span), head, i))
                    .collect();
                for key in 0..span.keys.len() {
                    let mut column: Vec<f32> = all.iter().map(|row| row[key]).collect();
                    column.sort_by(f32::total_cmp);
                    want[head * keys + span.keys.start + key] = match pooling {
                        Pooling::Max => column[column.len() - 1],
                        Pooling::Sum => column.iter().sum(),
                        Pooling::Median => column[column.len() / 2],
                    };
                }
            }
        }
        for level in Level::all_available() {
            let mut got = vec![0f32; want.len()];
            let place = Place::of(&mut RowsMut::f32(&mut got, keys));
            importance::importance_at(level, &team, attention, q, k, spans, pooling, place, None, &scratch);
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (g - w).abs() <= tolerance * (1.0 + w),
                    "{level:?} {pooling:?} at {i} of {spans:?}: {g} for {w}"
                );
            }
        }
    }
}

fn compare(attention: &Attention, lengths: &[(usize, usize)], spans: &[Span], seed: u64) {
    let width = attention.heads * attention.head_width;
    let (queries, keys) = lengths.iter().fold((0, 0), |(q, k), (a, b)| (q + a, k + b));
    let [q, k, v] = [(0, queries), (1, keys), (2, keys)].map(|(i, rows)| numbers(seed + i, rows * width, 2.0));
    let mut want = vec![0f32; queries * width];
    let rows = |d| Rows::f32(d, width);
    reference::attend(attention, rows(&q), rows(&k), rows(&v), spans, RowsMut::f32(&mut want, width));
    let to16 = |d: &[f32]| d.iter().map(|x| f32_to_bf16(*x)).collect::<Vec<_>>();
    let (q16, k16, v16) = (to16(&q), to16(&k), to16(&v));
    compare_importance(attention, rows(&q), rows(&k), spans, 2e-5);
    compare_kept(attention, rows(&q), rows(&k), rows(&v), spans);
    let narrow = |d| Rows::bf16(d, width);
    compare_kept(attention, narrow(&q16), narrow(&k16), narrow(&v16), spans);
    compare_importance(attention, Rows::bf16(&q16, width), Rows::bf16(&k16, width), spans, 1e-3);
    let team = Team::new(2);
    let scratch = PerWorker::new(2, Scratch::default);
    for level in Level::all_available() {
        let mut got = vec![f32::NAN; queries * width];
        let place = Place::of(&mut RowsMut::f32(&mut got, width));
        attend_at(level, &team, attention, rows(&q), rows(&k), rows(&v), spans, place, None, &scratch);
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!((g - w).abs() <= 2e-5, "{level:?} at {i} of {spans:?}: {g} for {w}");
        }
        let mut got = vec![0u16; queries * width];
        let place = Place::of(&mut RowsMut::bf16(&mut got, width));
        let rows = |d| Rows::bf16(d, width);
        attend_at(level, &team, attention, rows(&q16), rows(&k16), rows(&v16), spans, place, None, &scratch);
        for (g, w) in got.iter().zip(&want) {
            // bf16 scores of size ~10 err by a few hundredths.
            assert!((bf16_to_f32(*g) - w).abs() <= 0.15, "{level:?} bf16: {} for {w}", bf16_to_f32(*g));
        }
    }
}

/// Attention from kept probabilities is the same to the bit.
fn compare_kept(attention: &Attention, q: Rows, k: Rows, v: Rows, spans: &[Span]) {
    let width = attention.heads * attention.head_width;
    let (team, scratch) = (Team::new(2), PerWorker::new(2, Scratch::default));
    for level in Level::all_available() {
        let mut kept = Kept::default();
        let mut pooled = vec![0f32; attention.heads * k.count()];
        let place = Place::of(&mut RowsMut::f32(&mut pooled, k.count()));
        importance::importance_at(level, &team, attention, q, k, spans, Pooling::Max, place, Some(&mut kept), &scratch);
        let run = |kept: Option<&Kept>| {
            let mut got = vec![0f32; q.count() * width];
            let place = Place::of(&mut RowsMut::f32(&mut got, width));
            attend_at(level, &team, attention, q, k, v, spans, place, kept, &scratch);
            got
        };
        assert_eq!(run(Some(&kept)), run(None), "{level:?} {spans:?}");
    }
}

/// Spans of packed sequences with the given numbers of (queries, keys).
fn spans(lengths: &[(usize, usize)]) -> Vec<Span> {
    let (mut q, mut k) = (0, 0);
    lengths
        .iter()
        .map(|(queries, keys)| {
            let span = Span { queries: q..q + queries, keys: k..k + keys, ..Span::default() };
            (q, k) = (span.queries.end, span.keys.end);
            span
        })
        .collect()
}

fn plain(heads: usize, head_width: usize) -> Attention<'static> {
    let scale = 1.0 / (head_width as f32).sqrt();
    Attention { heads, head_width, scale, causal: false, window: None, bias: ScoreBias::None, indices: &[] }
}

#[test]
#[cfg_attr(miri, ignore)]
fn several_blocks_of_keys() {
    let lengths = [(40, 1301), (1, 900), (35, 35)];
    compare(&plain(2, 16), &lengths, &spans(&lengths), 5);
    compare(&Attention { causal: true, ..plain(2, 16) }, &lengths, &spans(&lengths), 6);
}

#[test]
#[cfg_attr(miri, ignore)]
fn windows_with_global_keys() {
    for (n, window) in [(70, 3), (700, 20), (1300, 40)] {
        let indices: Vec<usize> = [0, 1, 7, n - 2].to_vec();
        let span = Span { queries: 0..n, keys: 0..n, positions: 0..0, globals: 0..4 };
        let attention = Attention { window: Some(window), indices: &indices, ..plain(2, 12) };
        compare(&attention, &[(n, n)], &[span], n as u64);
    }
}

#[test]
fn queries_at_chosen_positions() {
    let indices = [4, 0, 17, 9, 2];
    let span = Span { queries: 0..5, keys: 0..19, positions: 0..5, globals: 0..0 };
    let table = numbers(3, 2 * 39, 2.0);
    let bias = ScoreBias::ByDistance { table: &table, reach: 19 };
    compare(&Attention { indices: &indices, bias, ..plain(2, 8) }, &[(5, 19)], std::slice::from_ref(&span), 1);
    compare(&Attention { indices: &indices, causal: true, ..plain(2, 8) }, &[(5, 19)], &[span], 2);
}

#[test]
fn a_bias_that_depends_on_the_query() {
    let fill = |span: usize, head: usize, query: usize, out: &mut [f32]| {
        for (key, out) in out.iter_mut().enumerate() {
            *out = ((span + 2 * head + 3 * query + 5 * key) % 7) as f32 * 0.3;
        }
    };
    let lengths = [(7, 7), (2, 9)];
    compare(&Attention { bias: ScoreBias::PerQuery(&fill), ..plain(2, 6) }, &lengths, &spans(&lengths), 1);
}

#[test]
fn a_bias_of_every_key() {
    for lengths in [vec![(7, 7), (2, 9), (70, 70)], vec![(40, 601), (1, 3)]] {
        let keys = lengths.iter().map(|(_, keys)| keys).sum();
        let bias = numbers(9, keys, 2.0);
        let attention = Attention { bias: ScoreBias::ByKey(&bias), ..plain(2, 6) };
        compare(&attention, &lengths, &spans(&lengths), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 48 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_lengths_match_the_reference(
        lengths in prop::collection::vec((1usize..if cfg!(miri) { 5 } else { 80 }, 0usize..if cfg!(miri) { 3 } else { 60 }), 1..4),
        heads in 1usize..4,
        head_width in 1usize..if cfg!(miri) { 5 } else { 70 },
        causal in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let lengths: Vec<_> = lengths.into_iter().map(|(q, more)| (q, q + more)).collect();
        compare(&Attention { causal, ..plain(heads, head_width) }, &lengths, &spans(&lengths), seed);
    }
}
