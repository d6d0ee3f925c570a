//! What a network in softmax's place costs beside softmax, in bf16 and in bytes.
//!
//! `cargo run --release -p sparing-kernels --example network`: one thread, heads of MiniLM and BERT-base; the least of
//! many rounds in which all take turns.

use sparing_kernels::attention::{Attention, Heads, ScoreBias, ShareNetwork, Span, attend, attend_network};
use sparing_kernels::{Element, PerWorker, Rows, RowsMut, Scratch, Team, f32_to_bf16, isa};
use std::time::Instant;

const ROUNDS: usize = 400;

fn main() {
    println!("{}, one thread", isa::active().name());
    println!("| heads x width | length | softmax, us | network, bf16 | bytes |");
    println!("|---|---|---|---|---|");
    let team = Team::new(1);
    let scratch = PerWorker::new(1, Scratch::default);
    if !isa::has_bf16(isa::active()) {
        return println!("this machine does not multiply bf16");
    }
    let numbers = |count: usize, most: f32| -> Vec<f32> {
        (0..count).map(|i| (((i * 7919) % 997) as f32 / 500.0 - 1.0) * most).collect()
    };
    for (heads, width) in [(12, 32), (12, 64)] {
        for (length, tokens) in [(40, 128), (48, 128), (64, 128), (128, 128), (512, 512)] {
            let all = heads * width;
            let qkv: Vec<u16> = numbers(length * 3 * all, 1.0).iter().map(|x| f32_to_bf16(*x)).collect();
            let rows = Rows::bf16(&qkv, 3 * all);
            let [q, k, v] = [0, 1, 2].map(|i| rows.columns(i * all..(i + 1) * all));
            let attention = Attention {
                heads,
                head_width: width,
                scale: 1.0 / (width as f32).sqrt(),
                causal: false,
                window: None,
                bias: ScoreBias::None,
                indices: &[],
            };
            let (matrix, row) = (numbers(tokens * tokens, 0.1), numbers(tokens, 0.1));
            let networks = [false, true].map(|bytes| {
                let heads = Heads { width, element: Element::Bf16, bytes };
                ShareNetwork::new(&matrix, &row, &matrix, &row, heads)
            });
            let spans = [Span { queries: 0..length, keys: 0..length, ..Span::default() }];
            let mut out = vec![0u16; length * all];
            let mut best = [f64::MAX; 3];
            for _ in 0..ROUNDS {
                for (i, best) in best.iter_mut().enumerate() {
                    let began = Instant::now();
                    let out = RowsMut::bf16(&mut out, all);
                    match i {
                        0 => attend(&team, &attention, q, k, v, &spans, out, &scratch),
                        _ => attend_network(&team, &attention, &networks[i - 1], q, k, v, &spans, out, &scratch),
                    }
                    *best = best.min(began.elapsed().as_secs_f64());
                }
            }
            let [exact, shares @ ..] = best;
            let [wide, bytes] = shares.map(|time| time / exact);
            println!("| {heads} x {width} | {length} of {tokens} | {:.1} | {wide:.2} | {bytes:.2} |", exact * 1e6);
        }
    }
}
