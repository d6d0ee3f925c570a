//! Every level and every choice against the slow reference.

use super::*;
use crate::attention::attend_at;
use crate::reference::{self, numbers};
use crate::rows::{bf16_to_f32, f32_to_bf16};
use proptest::prelude::*;

const EVERY: [By; 4] = [By::Sign, By::Norm, By::Value(0.8), By::Grouped];

/// Numbers on a grid: sums of squares are exact in any order, bf16 holds them, and there are ties and zeros.
fn grid(seed: u64, len: usize) -> Vec<f32> {
    numbers(seed, len, 2.0).into_iter().map(|x| (4.0 * x).round() / 4.0).collect()
}

/// Packed q, k and v.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    width: usize,
    spans: Vec<Span>,
}

impl Data {
    fn new(lengths: &[(usize, usize)], width: usize, seed: u64) -> Data {
        let (mut q, mut k, mut spans) = (0, 0, Vec::new());
        for (queries, keys) in lengths {
            spans.push(Span { queries: q..q + queries, keys: k..k + keys, ..Span::default() });
            (q, k) = (q + queries, k + keys);
        }
        let [q, k, v] = [(0, q), (1, k), (2, k)].map(|(i, rows)| grid(3 * seed + i, rows * width));
        Data { q, k, v, width, spans }
    }

    fn rows(&self) -> [Rows<'_>; 3] {
        [&self.q, &self.k, &self.v].map(|data| Rows::f32(data, self.width))
    }

    fn run(&self, level: Level, attention: &Attention, choice: &Choice, threads: usize) -> Vec<f32> {
        let (team, scratch) = (Team::new(threads), PerWorker::new(threads, Scratch::default));
        let mut out = vec![f32::NAN; self.q.len()];
        let place = Place::of(&mut RowsMut::f32(&mut out, self.width));
        attend_chosen_at(level, &team, attention, choice, self.rows(), &self.spans, place, &scratch);
        out
    }

    fn run_bf16(&self, level: Level, attention: &Attention, choice: &Choice) -> Vec<f32> {
        let (team, scratch) = (Team::new(2), PerWorker::new(2, Scratch::default));
        let narrow = [&self.q, &self.k, &self.v].map(|d| d.iter().map(|x| f32_to_bf16(*x)).collect::<Vec<_>>());
        let mut out = vec![0u16; self.q.len()];
        let place = Place::of(&mut RowsMut::bf16(&mut out, self.width));
        let rows = [0, 1, 2].map(|i| Rows::bf16(&narrow[i], self.width));
        attend_chosen_at(level, &team, attention, choice, rows, &self.spans, place, &scratch);
        out.into_iter().map(bf16_to_f32).collect()
    }
}

fn plain(heads: usize, head_width: usize, causal: bool) -> Attention<'static> {
    let scale = 1.0 / (head_width as f32).sqrt();
    Attention { heads, head_width, scale, causal, window: None, bias: ScoreBias::None, indices: &[] }
}

fn compare(data: &Data, attention: &Attention, choice: &Choice) {
    let ([q, k, v], by) = (data.rows(), choice.by);
    let mut want = vec![0f32; data.q.len()];
    reference::attend_chosen(attention, choice, q, k, v, &data.spans, RowsMut::f32(&mut want, data.width));
    for level in Level::all_available() {
        let got = data.run(level, attention, choice, 2);
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!((g - w).abs() <= 2e-5, "{level:?} {by:?} at {i} of {:?}: {g} for {w}", data.spans);
        }
        assert_eq!(got, data.run(level, attention, choice, 1), "{level:?} {by:?}: threads");
        for (g, w) in data.run_bf16(level, attention, choice).iter().zip(&want) {
            assert!((g - w).abs() <= 0.15, "{level:?} {by:?} bf16: {g} for {w}");
        }
    }
}

#[test]
fn as_many_keys_as_there_are_is_exact_to_the_bit() {
    let data = Data::new(&[(33, 33), (1, 20), (7, 34)], 24, 1);
    let (team, scratch) = (Team::new(2), PerWorker::new(2, Scratch::default));
    for (causal, level) in
        [false, true].into_iter().flat_map(|c| Level::all_available().into_iter().map(move |l| (c, l)))
    {
        let attention = plain(2, 12, causal);
        let mut want = vec![0f32; data.q.len()];
        let [q, k, v] = data.rows();
        let place = Place::of(&mut RowsMut::f32(&mut want, 24));
        attend_at(level, &team, &attention, q, k, v, &data.spans, place, None, &scratch);
        for by in EVERY {
            let choice = Choice { by, keep: &|n| n, pinned: &[] };
            assert_eq!(data.run(level, &attention, &choice, 2), want, "{level:?} {by:?}");
        }
    }
}

#[test]
fn a_bias_is_that_of_the_kept_keys() {
    let table = numbers(3, 2 * 81, 2.0);
    for by in EVERY {
        let attention = Attention { bias: ScoreBias::ByDistance { table: &table, reach: 40 }, ..plain(2, 8, false) };
        let pinned: Vec<bool> = (0..60).map(|i| i == 0 || i == 23).collect();
        let choice = Choice { by, keep: &|_| 5, pinned: &pinned };
        compare(&Data::new(&[(24, 24), (36, 36)], 16, 7), &attention, &choice);
        let of_keys = Attention { bias: ScoreBias::ByKey(&table[..60]), ..attention };
        compare(&Data::new(&[(24, 24), (36, 36)], 16, 8), &of_keys, &choice);
    }
}

#[test]
fn a_causal_query_gets_nothing_from_the_future() {
    let (n, attention) = (40, plain(1, 8, true));
    for by in EVERY {
        let choice = Choice { by, keep: &|_| 8, pinned: &[] };
        let mut data = Data::new(&[(n, n)], 8, 5);
        for level in Level::all_available() {
            let before = data.run(level, &attention, &choice, 1);
            for p in [0, 9, 25] {
                let future = data.v.split_off((p + 1) * 8);
                data.v.resize(n * 8, 1e3);
                let after = data.run(level, &attention, &choice, 1);
                // What is masked weighs 2^-126, in exact attention too.
                let off = before[..(p + 1) * 8].iter().zip(&after).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(off < 1e-30, "{level:?} {by:?} {p}: {off}");
                data.v.truncate((p + 1) * 8);
                data.v.extend(future);
            }
        }
    }
}

#[test]
fn a_quarter_of_what_a_causal_model_keeps_stands_in_the_first_quarter() {
    let data = Data::new(&[(64, 64)], 8, 2);
    let [q, k, _] = data.rows();
    for by in [By::Sign, By::Norm, By::Value(1.0)] {
        let choice = Choice { by, keep: &|_| 16, pinned: &[] };
        let seen = reference::chosen(&plain(1, 8, true), &choice, q, k, &data.spans[0], 0);
        assert_eq!(seen[63].len(), 16);
        assert!(seen[15].len() >= 4, "{by:?}: {:?}", seen[63]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 40 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_choice_matches_the_reference(
        lengths in prop::collection::vec((1usize..if cfg!(miri) { 5 } else { 70 }, 0usize..if cfg!(miri) { 3 } else { 30 }), 1..4),
        heads in 1usize..4,
        head_width in 1usize..if cfg!(miri) { 5 } else { 140 },
        keep in 1usize..40,
        by in 0..EVERY.len(),
        pins in any::<bool>(),
        causal in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let lengths: Vec<_> = lengths.into_iter().map(|(q, more)| (q, q + more)).collect();
        let data = Data::new(&lengths, heads * head_width, seed);
        let pinned: Vec<bool> = (0..data.k.len() / data.width).map(|i| i % 11 == 0).collect();
        let choice = Choice { by: EVERY[by], keep: &|_| keep, pinned: if pins { &pinned } else { &[] } };
        compare(&data, &plain(heads, head_width, causal), &choice);
    }
}
