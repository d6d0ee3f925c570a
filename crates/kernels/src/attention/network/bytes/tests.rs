//! How far rounding may lead, worked out step by step beside the network in double precision.

use super::super::tests::{case, run};
use super::super::{Element, Heads, Level, ShareNetwork};
use crate::pack::Grid;
use crate::simd::{Simd, kernel};
use proptest::prelude::*;

/// A number and the most that rounding may have moved it by.
#[derive(Clone, Copy, Default)]
struct Off {
    x: f64,
    by: f64,
}

impl Off {
    fn times(self, other: Off) -> Off {
        Off { x: self.x * other.x, by: self.x.abs() * other.by + self.by * (other.x.abs() + other.by) }
    }

    fn most(self) -> f64 {
        self.x.abs() + self.by
    }
}

impl std::iter::Sum for Off {
    fn sum<I: Iterator<Item = Off>>(all: I) -> Off {
        all.fold(Off::default(), |sum, off| Off { x: sum.x + off.x, by: sum.by + off.by })
    }
}

/// Steps of ranges that are rounded up are at most a quarter longer; and f32 rounds what is computed with them.
const LONGER: f64 = 1.25 * 1.0001;

/// Rows of one head, and half a step of every channel.
fn rounded(rows: &[&[f32]]) -> Vec<Vec<Off>> {
    let half = |c: usize| {
        let column = || rows.iter().map(|row| f64::from(row[c]));
        let (least, most) = (column().fold(f64::MAX, f64::min), column().fold(f64::MIN, f64::max));
        LONGER * (most - least) / 510.0 + 1e-6 * most.abs().max(least.abs())
    };
    let halves: Vec<f64> = (0..rows[0].len()).map(half).collect();
    let row = |row: &&[f32]| row.iter().zip(&halves).map(|(x, by)| Off { x: f64::from(*x), by: *by }).collect();
    rows.iter().map(row).collect()
}

/// `matrix[:, :rows] · rows`, both rounded.
fn mixed(matrix: &[f32], tokens: usize, rows: &[Vec<Off>]) -> Vec<Vec<Off>> {
    let slot = |of: &[f32]| {
        let by = of.iter().fold(0f64, |most, w| most.max(f64::from(w.abs()))) / 254.0 * 1.0001;
        let weights = || of.iter().map(move |w| Off { x: f64::from(*w), by });
        (0..rows[0].len()).map(|c| weights().zip(rows).map(|(w, row)| w.times(row[c])).sum()).collect()
    };
    matrix.chunks_exact(tokens).map(slot).collect()
}

/// What one head gives for one sequence, and how far off it may be.
fn bounded([q, k, v]: [&[&[f32]]; 3], (keys, bias, values, rest): (&[f32], &[f32], &[f32], &[f32])) -> Vec<Vec<Off>> {
    let (tokens, width) = (rest.len(), q[0].len());
    let queries = rounded(q);
    let (slot_keys, slot_values) = (mixed(keys, tokens, &rounded(k)), mixed(values, tokens, &rounded(v)));
    // What a query takes of a slot, by slot.
    let mut taken: Vec<Vec<Off>> = Vec::new();
    for (key, bias) in slot_keys.iter().zip(bias) {
        // A slot's key is scaled by the queries' steps, twice half of them, and then rounded to signed bytes.
        let most = key.iter().zip(&queries[0]).map(|(k, q)| 2.0 * q.by * k.most()).fold(0.0, f64::max);
        let by = 255.0 * width as f64 * LONGER * most / 254.0;
        let score = |query: &Vec<Off>| {
            let sum: Off = query.iter().zip(key).map(|(q, k)| q.times(*k)).sum();
            Off { x: (sum.x + f64::from(*bias)).max(0.0), by: sum.by + by + 1e-5 * (1.0 + sum.most()) }
        };
        let scores: Vec<Off> = queries.iter().map(score).collect();
        let half = LONGER * scores.iter().map(|score| score.most()).fold(0.0, f64::max) / 510.0;
        taken.push(scores.into_iter().map(|score| Off { by: score.by + half, ..score }).collect());
    }
    // What a byte of every slot stands for at most.
    let size = |of: &Vec<Off>| LONGER * of.iter().map(|taken| taken.most()).fold(0.0, f64::max) / 255.0;
    let sizes: Vec<f64> = taken.iter().map(size).collect();
    let channel = |query: usize, c: usize| {
        let most = slot_values.iter().zip(&sizes).map(|(v, size)| v[c].most() * size).fold(0.0, f64::max);
        let by = 255.0 * taken.len() as f64 * LONGER * most / 254.0;
        let sum: Off = taken.iter().zip(&slot_values).map(|(taken, v)| taken[query].times(v[c])).sum();
        let constant: f64 = v.iter().zip(rest).map(|(v, rest)| f64::from(v[c]) * f64::from(*rest)).sum();
        Off { x: sum.x + constant, by: sum.by + by + 1e-5 * (1.0 + sum.most()) }
    };
    (0..queries.len()).map(|query| (0..width).map(|c| channel(query, c)).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 32 }))]
    /// No number is further from the network in double precision than all roundings together can lead.
    #[test]
    fn rounding_leads_no_further_than_it_can(
        lengths in prop::collection::vec(3usize..=37, 1..4),
        heads in 1usize..3,
        width in prop_oneof![Just(8usize), Just(32), Just(40), 1usize..20],
        slots in 1usize..40,
        seed in 0u64..1000,
    ) {
        let case = case(&lengths, usize::MAX, heads, width, 37, slots, seed);
        let network = (&case.keys[..], &case.bias[..], &case.values[..], &case.rest[..]);
        let mut want = vec![Off::default(); case.q.len()];
        for span in &case.spans {
            for head in 0..heads {
                let rows = |x: &[f32], rows: std::ops::Range<usize>| -> Vec<Vec<f32>> {
                    rows.map(|row| x[(row * heads + head) * width..][..width].to_vec()).collect()
                };
                let [q, k, v] = [
                    rows(&case.q, span.queries.clone()),
                    rows(&case.k, span.keys.clone()),
                    rows(&case.v, span.keys.clone()),
                ];
                let [q, k, v] = [&q, &k, &v].map(|rows| rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
                for (row, results) in span.queries.clone().zip(bounded([&q, &k, &v], network)) {
                    want[(row * heads + head) * width..][..width].copy_from_slice(&results);
                }
            }
        }
        for level in Level::all_available() {
            for element in [Element::F32, Element::Bf16] {
                if element == Element::Bf16 && !level.multiplies_bf16() {
                    continue;
                }
                let heads = Heads { width, element, bytes: true };
                let mut network =
                    ShareNetwork::for_level(level, &case.keys, &case.bias, &case.values, &case.rest, heads);
                network.short = 0;
                for (i, (got, want)) in run(&case, &network, element).iter().zip(&want).enumerate() {
                    let far = (f64::from(*got) - want.x).abs();
                    prop_assert!(far <= want.by, "{level:?} {element:?} at {i}: {got} for {} ± {}", want.x, want.by);
                }
            }
        }
    }

    /// One number of queries, keys or values that overflowed is seen in what comes out, wherever it is; bytes have no infinity.
    #[test]
    fn overflow_is_not_hidden(
        lengths in prop::collection::vec(3usize..=37, 1..4),
        width in prop_oneof![Just(8usize), Just(32), Just(40), 1usize..20],
        slots in 1usize..40,
        seed in 0u64..1000,
        (which, place, value) in (0usize..3, any::<prop::sample::Index>(), prop::sample::select(vec![
            f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e32,
        ])),
    ) {
        let heads = 2;
        let mut case = case(&lengths, usize::MAX, heads, width, 37, slots, seed);
        let spoilt = [&mut case.q, &mut case.k, &mut case.v].into_iter().nth(which).unwrap();
        let place = place.index(spoilt.len());
        spoilt[place] = value;
        let (row, head) = (place / (heads * width), place / width % heads);
        for level in Level::all_available() {
            let of = Heads { width, element: Element::F32, bytes: true };
            let mut network = ShareNetwork::for_level(level, &case.keys, &case.bias, &case.values, &case.rest, of);
            network.short = 0;
            let got = run(&case, &network, Element::F32);
            for span in &case.spans {
                let there = if which == 0 { &span.queries } else { &span.keys };
                for other in 0..heads {
                    let results = span.queries.clone().flat_map(|row| &got[(row * heads + other) * width..][..width]);
                    let finite = results.clone().all(|x| x.is_finite());
                    let wanted = !(other == head && there.contains(&row));
                    prop_assert_eq!(finite, wanted, "{:?}: {} at {} of {}", level, value, place, which);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn quads<S: Simd>(from: &[f32; 64], signed: bool, down: &mut [u32; 16], across: &mut [u32; 16]) {
    // SAFETY: four vectors of at most sixteen lanes.
    unsafe {
        let four = [0, 1, 2, 3].map(|i| S::load(from.as_ptr().add(i * S::LANES)));
        let (down, across) = (down.as_mut_ptr(), across.as_mut_ptr());
        match signed {
            true => (S::store_quads::<true>(down, four), S::store_quads_across::<true>(across, 4, four)),
            false => (S::store_quads::<false>(down, four), S::store_quads_across::<false>(across, 4, four)),
        };
    }
}
kernel!(quads_at = quads(from: &[f32; 64], signed: bool, down: &mut [u32; 16], across: &mut [u32; 16]));

#[test]
fn quads_are_bytes_of_four_vectors_or_of_four_lanes() {
    // Halves, what lies beyond a byte, and what is far beyond.
    let from: [f32; 64] = std::array::from_fn(|i| match i % 8 {
        0 => 1e9,
        1 => -1e9,
        _ => (i as f32 - 32.0) * 9.5,
    });
    for level in Level::all_available() {
        let lanes = level.panel() / 2;
        for signed in [false, true] {
            let byte = |i: usize| match signed {
                true => from[i].round_ties_even().clamp(-128.0, 127.0) as i8 as u8,
                false => from[i].round_ties_even().clamp(0.0, 255.0) as u8,
            };
            let (mut down, mut across) = ([0; 16], [0; 16]);
            // SAFETY: the level is available.
            unsafe { quads_at(level, &from, signed, &mut down, &mut across) };
            for lane in 0..lanes {
                let want = [0, 1, 2, 3].map(|i| byte(i * lanes + lane));
                assert_eq!(down[lane].to_le_bytes(), want, "{level:?} {signed} lane {lane}");
                let (quad, vector) = (lane / 4, lane % 4);
                let want = [0, 1, 2, 3].map(|i| byte(vector * lanes + 4 * quad + i));
                assert_eq!(across[lane].to_le_bytes(), want, "{level:?} {signed} word {lane}");
            }
        }
    }
}

#[test]
fn ranges_are_covered_without_a_division() {
    for i in 0..4000 {
        let range = 1e-9 * 1.013f32.powi(i);
        let grid = Grid::undivided((-0.25 * range, 0.75 * range));
        assert!((grid.scale * grid.inverse - 1.0).abs() < 1e-6, "{range}");
        assert!(grid.scale * 255.0 >= 0.9999 * range && grid.scale * 255.0 <= 1.2501 * range, "{range}");
        let signed = Grid::undivided_signed(range);
        assert!(signed.scale * 127.0 >= 0.9999 * range && signed.scale * 127.0 <= 1.2501 * range, "{range}");
        if range > 1e12 {
            break;
        }
    }
    for (least, most) in [(0.0, 0.0), (-3.0, -3.0), (0.0, -5.0), (0.0, f32::NEG_INFINITY)] {
        let grid = Grid::undivided((least, most));
        assert!(grid.scale > 0.0 && grid.scale.is_finite() && grid.inverse.is_finite(), "{least} to {most}");
        assert_eq!(grid.least, least);
    }
    // Ranges that are none are not made one.
    let inf = f32::INFINITY;
    for (least, most) in [(f32::MIN, f32::MAX), (f32::NAN, 1.0), (0.0, f32::NAN), (-inf, 0.0), (0.0, inf), (inf, inf)] {
        let grid = Grid::undivided((least, most));
        assert!(grid.scale.is_nan() && grid.least.is_nan(), "{least} to {most}");
    }
}
