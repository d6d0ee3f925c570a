//! Time of the value encoding X·W_v by the staircase beside the dense packed kernel: everything included (sorting, laying
//! out, gathering full rows, writing back); weights are packed and draws gathered beforehand, as in the engine.
//!
//! `cargo run --release -p sparing-kernels --example staircase [rounds] [f32|bf16]`

use sparing_kernels::staircase::{Drawn, Graded, Part, Pick, Way, encode, sort};
use sparing_kernels::{Chunks, Epilogue, Format, PackedMatrix, PerWorker, Rows, RowsMut, Scratch, Team, gemm};
use std::time::Instant;

const INPUTS: usize = 768;
const HEADS: usize = 12;
const WIDTH: usize = 64;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// One head: weights for full rows, for draws and for directions.
struct Head {
    full: PackedMatrix,
    drawn: Drawn,
    graded: Graded,
}

/// Log-normal budgets (as attention's maxima squared are, about), capped at the inputs, whose mean is `inputs / less`.
fn budgets(random: &mut Random, tokens: usize, less: f64) -> Vec<u32> {
    let z: Vec<f64> = (0..HEADS * tokens).map(|_| random.normal()).collect();
    let at = |mu: f64| -> Vec<u32> {
        z.iter().map(|z| ((mu + 1.2 * z).exp().ceil() as u32).clamp(1, INPUTS as u32)).collect()
    };
    let (mut low, mut high) = (-5.0, 30.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        let mean = at(middle).iter().map(|r| *r as f64).sum::<f64>() / z.len() as f64;
        if mean * less < INPUTS as f64 { low = middle } else { high = middle }
    }
    at(0.5 * (low + high))
}

#[derive(Clone, Copy)]
enum Kind {
    Drawn,
    Graded,
}

/// Sorts by budget and encodes.
fn staircase(
    team: &Team,
    kind: Kind,
    x: Rows,
    heads: &[Head],
    budgets: &[u32],
    bias: &[f32],
    out: RowsMut,
    picks: &mut Vec<Vec<Pick>>,
    scratch: &PerWorker<Scratch>,
) {
    let tokens = x.count();
    // Above three quarters of the inputs the product itself is cheaper.
    let full_from = (INPUTS * 3 / 4) as u32;
    picks.resize_with(HEADS, Vec::new);
    for (head, picks) in picks.iter_mut().enumerate() {
        picks.clear();
        picks.extend(budgets[head * tokens..(head + 1) * tokens].iter().enumerate().map(|(row, r)| Pick {
            row: row as u32,
            budget: *r,
            factor: 1.0 / *r as f32,
        }));
        sort(picks);
        if let Kind::Graded = kind {
            for pick in picks.iter_mut().filter(|pick| pick.budget < full_from) {
                pick.budget = pick.budget * WIDTH as u32 / (INPUTS + WIDTH) as u32;
            }
        }
    }
    let mut parts = Vec::new();
    for (number, (head, picks)) in heads.iter().zip(&*picks).enumerate() {
        let cut = picks.partition_point(|pick| pick.budget >= full_from);
        let (full, rest) = picks.split_at(cut);
        let bias = &bias[number * WIDTH..(number + 1) * WIDTH];
        parts.push(Part { head: number, way: Way::Full(&head.full), picks: full, bias });
        let way = match kind {
            Kind::Drawn => Way::Drawn(&head.drawn),
            Kind::Graded => Way::Graded(&head.graded),
        };
        parts.push(Part { head: number, way, picks: rest, bias });
    }
    encode(team, x, WIDTH, &parts, out, scratch);
}

fn dense(team: &Team, x: Rows, weights: &PackedMatrix, bias: &[f32], out: RowsMut, scratch: &PerWorker<Scratch>) {
    let chunk = 64;
    let count = x.count();
    let chunks = Chunks::new(out, chunk);
    team.run(count.div_ceil(chunk), &|index, worker| {
        let rows = x.range(index * chunk..count.min((index + 1) * chunk));
        let epilogue = Epilogue { bias: Some(bias), ..Epilogue::default() };
        gemm(rows, weights, &epilogue, chunks.take(index), &mut scratch.get(worker));
    });
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|r| r.parse().ok()).unwrap_or(60);
    let mut random = Random(1);
    let mut numbers =
        |len: usize, scale: f64| -> Vec<f32> { (0..len).map(|_| (random.normal() * scale) as f32).collect() };
    let outputs = HEADS * WIDTH;
    let weights = numbers(outputs * INPUTS, 0.04);
    let bias = numbers(outputs, 0.1);
    let narrow = std::env::args().nth(2).is_some_and(|format| format == "bf16");
    let format = if narrow { Format::Bf16 } else { Format::F32 };
    let packed = PackedMatrix::pack(&weights, outputs, INPUTS, format);
    let basis = numbers(WIDTH * WIDTH, 0.1);
    let mean = numbers(INPUTS, 0.1);
    let x_most = numbers(512 * INPUTS, 1.0);
    let mut random = Random(2);
    let index: Vec<u32> = (0..INPUTS).map(|_| (random.unit() * INPUTS as f64) as u32).collect();
    let (scale, floor) = (vec![INPUTS as f32; INPUTS], vec![0.0; INPUTS]);
    let heads: Vec<Head> = weights
        .chunks(WIDTH * INPUTS)
        .map(|w| Head {
            full: PackedMatrix::pack(w, WIDTH, INPUTS, format),
            drawn: Drawn::pack(w, WIDTH, INPUTS, &index, &scale, &floor, None, narrow),
            graded: Graded::pack(w, WIDTH, INPUTS, &basis, &mean, narrow),
        })
        .collect();
    println!(
        "{format:?}, {INPUTS} inputs, {HEADS} heads of {WIDTH}, median of {rounds} interleaved rounds, ms (ratio to dense)"
    );
    println!("{:>6} {:>8} {:>6} {:>9} {:>16} {:>16}", "tokens", "threads", "less", "dense", "drawn", "graded");
    for threads in [1, 2] {
        let team = Team::new(threads);
        let scratch = PerWorker::new(threads, Scratch::default);
        for tokens in [128, 512] {
            let x = Rows::f32(&x_most[..tokens * INPUTS], INPUTS);
            let mut out = vec![0f32; tokens * outputs];
            let mut picks = Vec::new();
            for less in [1.0, 1.5, 2.0, 4.0, 8.0] {
                let budgets = budgets(&mut random, tokens, less);
                let mut times = [const { Vec::new() }; 3];
                for round in 0..rounds + 3 {
                    for (way, times) in times.iter_mut().enumerate() {
                        let out = RowsMut::f32(&mut out, outputs);
                        let began = Instant::now();
                        match way {
                            0 => dense(&team, x, &packed, &bias, out, &scratch),
                            1 => staircase(&team, Kind::Drawn, x, &heads, &budgets, &bias, out, &mut picks, &scratch),
                            _ => staircase(&team, Kind::Graded, x, &heads, &budgets, &bias, out, &mut picks, &scratch),
                        }
                        if round >= 3 {
                            times.push(began.elapsed().as_secs_f64() * 1e3);
                        }
                    }
                }
                let [dense, drawn, graded] = times.map(|mut t| median(&mut t));
                let ratio = |t: f64| format!("{t:.3} ({:.2})", t / dense);
                println!("{tokens:>6} {threads:>8} {less:>6} {dense:>9.3} {:>16} {:>16}", ratio(drawn), ratio(graded));
            }
        }
    }
}
