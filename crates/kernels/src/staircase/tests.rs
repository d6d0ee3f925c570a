//! Every level against sums written out.

use super::*;
use crate::reference::{self, numbers};
use crate::{Format, bf16_to_f32, f32_to_bf16};
use proptest::prelude::*;

/// A small problem: x, the weights of one head and what is drawn.
struct Problem {
    rows: usize,
    inputs: usize,
    width: usize,
    x: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    mean: Vec<f32>,
    index: Vec<u32>,
    scale: Vec<f32>,
    floor: Vec<f32>,
    basis: Vec<f32>,
}

impl Problem {
    fn new(rows: usize, inputs: usize, width: usize, seed: u64) -> Problem {
        let n = |i: u64, len: usize| numbers(seed * 16 + i, len, 1.0);
        let index = n(5, inputs).iter().map(|u| ((u + 1.0) / 2.0 * inputs as f32) as u32 % inputs as u32).collect();
        Problem {
            rows,
            inputs,
            width,
            x: n(0, rows * inputs),
            weights: n(1, width * inputs),
            bias: n(2, width),
            mean: n(3, inputs),
            index,
            scale: n(6, inputs).iter().map(|u| u.abs() + 0.1).collect(),
            floor: n(7, inputs).iter().map(|u| u.max(0.0)).collect(),
            basis: n(8, width * width),
        }
    }

    /// All rows in two heads; every row one of the ways, budgets of all sizes.
    fn run(&self, level: Level, way: impl Fn(Level) -> Owned, seed: u64, threads: usize) -> Vec<f32> {
        let owned = way(level);
        let picks: Vec<Pick> = self.picks(seed, owned.most(self));
        let (one, two) = picks.split_at(picks.len() / 2);
        let all = |head, picks| Part { head, way: owned.way(), picks, bias: &self.bias };
        let parts = [all(0, &picks), all(1, two), all(1, one)];
        let team = Team::new(threads);
        let scratch = PerWorker::new(threads, Scratch::default);
        let mut got = vec![f32::NAN; self.rows * 2 * self.width];
        let mut out = RowsMut::f32(&mut got, 2 * self.width);
        encode_at(level, &team, Rows::f32(&self.x, self.inputs), self.width, &parts, &mut out, &scratch);
        let x16: Vec<u16> = self.x.iter().map(|x| f32_to_bf16(*x)).collect();
        let mut got16 = vec![0u16; got.len()];
        let mut out = RowsMut::bf16(&mut got16, 2 * self.width);
        encode_at(level, &team, Rows::bf16(&x16, self.inputs), self.width, &parts, &mut out, &scratch);
        let scale = got.iter().fold(1f32, |m, x| m.max(x.abs()));
        for (a, b) in got.iter().zip(&got16) {
            assert!((a - bf16_to_f32(*b)).abs() <= 0.1 * scale, "{level:?} bf16: {} for {a}", bf16_to_f32(*b));
        }
        got
    }

    /// Budgets from none to all, largest first.
    fn picks(&self, seed: u64, most: usize) -> Vec<Pick> {
        let random = numbers(seed, self.rows, 1.0);
        let mut picks: Vec<Pick> = random
            .iter()
            .enumerate()
            .map(|(row, u)| {
                let budget = ((u + 1.0) / 2.0 * (most + 1) as f32) as u32;
                Pick { row: row as u32, budget: budget.min(most as u32), factor: u.abs() }
            })
            .collect();
        picks.sort_by_key(|pick| std::cmp::Reverse(pick.budget));
        picks
    }
}

enum Owned {
    Full(PackedMatrix),
    Drawn(Drawn),
    Graded(Graded),
    Constant,
}

impl Owned {
    fn way(&self) -> Way<'_> {
        match self {
            Owned::Full(m) => Way::Full(m),
            Owned::Drawn(d) => Way::Drawn(d),
            Owned::Graded(g) => Way::Graded(g),
            Owned::Constant => Way::Constant,
        }
    }

    fn most(&self, p: &Problem) -> usize {
        if matches!(self, Owned::Graded(_)) { p.width } else { p.inputs }
    }
}

fn compare(rows: usize, inputs: usize, width: usize, seed: u64) {
    let p = Problem::new(rows, inputs, width, seed);
    let x = Rows::f32(&p.x, inputs);
    let mean = seed.is_multiple_of(2).then_some(&p.mean[..]);
    for (level, pairs) in Level::all_available().into_iter().flat_map(|level| [(level, false), (level, true)]) {
        let drawn = |level| {
            Owned::Drawn(Drawn::pack_for(level, &p.weights, width, inputs, &p.index, &p.scale, &p.floor, mean, pairs))
        };
        let graded =
            |level| Owned::Graded(Graded::pack_for(level, &p.weights, width, inputs, &p.basis, &p.mean, pairs));
        let full = |level| Owned::Full(PackedMatrix::pack_for(level, &p.weights, width, inputs, Format::F32));
        let check = |name: &str, got: &[f32], want: &dyn Fn(&Pick, usize) -> f32, most: usize| {
            let picks = p.picks(seed, most);
            let wanted = |pick: &Pick, c: usize| want(pick, c % width);
            let largest = picks.iter().flat_map(|pick| (0..width).map(|c| want(pick, c).abs())).fold(1f32, f32::max);
            let tolerance = if pairs { 0.03 } else { 1e-4 } * largest;
            for pick in &picks {
                for c in 0..2 * width {
                    let (got, want) = (got[pick.row as usize * 2 * width + c], wanted(pick, c));
                    assert!((got - want).abs() <= tolerance, "{level:?} {name} {pick:?} {c}: {got} for {want}");
                }
            }
        };
        let draw = |pick: &Pick, c: usize| {
            let sum = reference::drawn(
                x,
                pick.row as usize,
                pick.budget as usize,
                pick.factor,
                &p.index,
                &p.floor,
                mean,
                |k| p.weights[c * inputs + p.index[k] as usize] * p.scale[k],
            );
            sum + p.bias[c]
        };
        let got = p.run(level, drawn, seed, 2);
        check("drawn", &got, &draw, inputs);
        assert_eq!(got, p.run(level, drawn, seed, 1), "threads change nothing");
        let grade = |pick: &Pick, c: usize| {
            let w = reference::graded(x, pick.row as usize, pick.budget as usize, &p.weights, &p.basis, &p.mean, c);
            w + p.bias[c]
        };
        check("graded", &p.run(level, graded, seed, 2), &grade, width);
        check("constant", &p.run(level, |_| Owned::Constant, seed, 2), &|_, c| p.bias[c], inputs);
        let mut want = vec![0f32; rows * width];
        let epilogue = Epilogue { bias: Some(&p.bias), ..Epilogue::default() };
        let packed = PackedMatrix::pack_for(level, &p.weights, width, inputs, Format::F32);
        gemm(x, &packed, &epilogue, RowsMut::f32(&mut want, width), &mut Scratch::default());
        let got = p.run(level, full, seed, 2);
        for (got, want) in got.chunks(2 * width).zip(want.chunks(width)) {
            assert_eq!(&got[..width], want, "the product itself, to the bit");
        }
    }
}

#[test]
fn a_token_alone_gets_what_it_gets_in_company() {
    let p = Problem::new(40, 50, 24, 3);
    for level in Level::all_available() {
        let drawn = Drawn::pack_for(level, &p.weights, 24, 50, &p.index, &p.scale, &p.floor, None, false);
        let team = Team::new(1);
        let scratch = PerWorker::new(1, Scratch::default);
        let picks = p.picks(9, 50);
        let run = |picks: &[Pick]| {
            let mut got = vec![0f32; 40 * 24];
            let part = Part { head: 0, way: Way::Drawn(&drawn), picks, bias: &p.bias };
            let mut out = RowsMut::f32(&mut got, 24);
            encode_at(level, &team, Rows::f32(&p.x, 50), 24, &[part], &mut out, &scratch);
            got
        };
        let all = run(&picks);
        for pick in &picks {
            let row = pick.row as usize * 24..(pick.row as usize + 1) * 24;
            assert_eq!(run(std::slice::from_ref(pick))[row.clone()], all[row], "{level:?}");
        }
    }
}

#[test]
#[should_panic(expected = "twice")]
fn a_row_that_occurs_twice_is_refused() {
    let pick = Pick { row: 1, budget: 0, factor: 0.0 };
    let part = Part { head: 0, way: Way::Constant, picks: &[pick, pick], bias: &[0.0; 2] };
    let (x, mut out) = (vec![0f32; 6], vec![0f32; 4]);
    let scratch = PerWorker::new(1, Scratch::default);
    encode(&Team::new(1), Rows::f32(&x, 3), 2, &[part], RowsMut::f32(&mut out, 2), &scratch);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 48 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_shape_matches_the_reference(
        rows in 1usize..if cfg!(miri) { 5 } else { 45 },
        inputs in 1usize..if cfg!(miri) { 9 } else { 90 },
        width in 1usize..if cfg!(miri) { 10 } else { 70 },
        seed in 0u64..1000,
    ) {
        compare(rows, inputs, width, seed);
    }
}
