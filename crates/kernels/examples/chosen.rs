//! Time of attention over chosen keys beside exact attention: choosing, gathering and attending, all heads. `floor` is
//! attention over as many keys without choosing and gathering them: what choosing could reach at best.
//!
//! `cargo run --release -p sparing-kernels --example chosen [rounds] [f32|bf16] [threads]`

use sparing_kernels::attention::{Attention, By, Choice, ScoreBias, Span, attend, attend_chosen};
use sparing_kernels::{Buffer, Element, PerWorker, Scratch, Team};
use std::time::Instant;

const HEADS: usize = 12;

/// Normal numbers (SplitMix64 and the sum of twelve).
fn fill(buffer: &mut Buffer, rows: usize, width: usize, mut state: u64) {
    let mut unit = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut to = buffer.rows_mut(rows, width);
    let mut row = vec![0f32; width];
    for i in 0..rows {
        row.iter_mut().for_each(|x| *x = (0..12).map(|_| unit()).sum::<f32>() - 6.0);
        to.write_row(i, &row);
    }
}

/// Median and least.
fn sum_up(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let rounds: usize = argument(1).and_then(|r| r.parse().ok()).unwrap_or(15);
    let element = if argument(2).is_some_and(|format| format == "bf16") { Element::Bf16 } else { Element::F32 };
    let threads: usize = argument(3).and_then(|t| t.parse().ok()).unwrap_or(1);
    let (team, scratch) = (Team::new(threads), PerWorker::new(threads, Scratch::default));
    println!(
        "{element:?}, {HEADS} heads, {threads} threads, median of {rounds} interleaved rounds, ms (times faster than exact, by medians and by least times)"
    );
    let names = ["exact", "floor", "sign", "norm", "value", "grouped"];
    println!("{:>6} {:>5} {:>5} {}", "tokens", "width", "keep", names.map(|name| format!("{name:>20}")).join(""));
    for width in [32, 64] {
        for (tokens, keep) in [(128, 16), (512, 64), (1024, 128), (4096, 128)] {
            let mut buffers = [(); 4].map(|()| Buffer::new(element));
            for (i, buffer) in buffers.iter_mut().enumerate() {
                fill(buffer, tokens, HEADS * width, i as u64);
            }
            let [q, k, v, out] = &mut buffers;
            let [q, k, v] = [q, k, v].map(|buffer| buffer.rows(tokens, HEADS * width));
            let zeros = vec![0; tokens];
            let scale = 1.0 / (width as f32).sqrt();
            let (bias, indices) = (ScoreBias::None, &zeros[..]);
            let attention =
                Attention { heads: HEADS, head_width: width, scale, causal: false, window: None, bias, indices };
            let whole = Span { queries: 0..tokens, keys: 0..tokens, ..Span::default() };
            let part = Span { keys: 0..keep, positions: 0..tokens, ..whole.clone() };
            let mut times = names.map(|_| Vec::new());
            for round in 0..rounds + 2 {
                for (way, times) in times.iter_mut().enumerate() {
                    let out = out.rows_mut(tokens, HEADS * width);
                    let chosen = |by: By, out| {
                        let choice = Choice { by, keep: &|_| keep, pinned: &[] };
                        attend_chosen(&team, &attention, &choice, q, k, v, std::slice::from_ref(&whole), out, &scratch);
                    };
                    let began = Instant::now();
                    match way {
                        0 => attend(&team, &attention, q, k, v, std::slice::from_ref(&whole), out, &scratch),
                        1 => attend(&team, &attention, q, k, v, std::slice::from_ref(&part), out, &scratch),
                        2 => chosen(By::Sign, out),
                        3 => chosen(By::Norm, out),
                        4 => chosen(By::Value(1.0), out),
                        _ => chosen(By::Grouped, out),
                    }
                    if round >= 2 {
                        times.push(began.elapsed().as_secs_f64() * 1e3);
                    }
                }
            }
            let times = times.map(sum_up);
            let cells = times.map(|[median, least]| {
                let ratios = (times[0][0] / median, times[0][1] / least);
                format!("{:>20}", format!("{median:.2} ({:.1}, {:.1})", ratios.0, ratios.1))
            });
            println!("{tokens:>6} {width:>5} {keep:>5} {}", cells.join(""));
        }
    }
}
