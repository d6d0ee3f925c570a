//! How near attention comes to the machine's peak, softmax included.
//!
//! `cargo run --release -p sparing-kernels --example attention`: one thread, BERT-base and MiniLM head widths; the floor is
//! the two products at the measured peak of the format they run in.

use sparing_kernels::attention::{Attention, ScoreBias, Span, attend};
use sparing_kernels::{Element, Format, PerWorker, Rows, RowsMut, Scratch, Team, f32_to_bf16, isa, peak};
use std::time::Instant;

fn main() {
    println!("{}, one thread", isa::active().name());
    println!("| heads x width | length | element | ms | of peak |");
    println!("|---|---|---|---|---|");
    let team = Team::new(1);
    let scratch = PerWorker::new(1, Scratch::default);
    let bf16 = isa::has_bf16(isa::active());
    for (heads, head_width) in [(12, 64), (12, 32)] {
        for length in [128, 512, 2048] {
            for element in [Element::F32, Element::Bf16] {
                let width = heads * head_width;
                let qkv: Vec<f32> = (0..length * 3 * width).map(|i| ((i * 7919) % 997) as f32 / 500.0 - 1.0).collect();
                let qkv16: Vec<u16> = qkv.iter().map(|x| f32_to_bf16(*x)).collect();
                let rows = match element {
                    Element::F32 => Rows::f32(&qkv, 3 * width),
                    Element::Bf16 => Rows::bf16(&qkv16, 3 * width),
                };
                let part = |i: usize| rows.columns(i * width..(i + 1) * width);
                let scale = 1.0 / (head_width as f32).sqrt();
                let attention = Attention {
                    heads,
                    head_width,
                    scale,
                    causal: false,
                    window: None,
                    bias: ScoreBias::None,
                    indices: &[],
                };
                let span = Span { queries: 0..length, keys: 0..length, ..Span::default() };
                let mut out = vec![0f32; length * width];
                let format = if bf16 && element == Element::Bf16 { Format::Bf16 } else { Format::F32 };
                let (mut times, mut peaks) = (vec![], vec![]);
                for _ in 0..9 {
                    peaks.push(peak::operations_per_second(format));
                    let start = Instant::now();
                    let spans = std::slice::from_ref(&span);
                    attend(
                        &team,
                        &attention,
                        part(0),
                        part(1),
                        part(2),
                        spans,
                        RowsMut::f32(&mut out, width),
                        &scratch,
                    );
                    times.push(start.elapsed().as_secs_f64());
                }
                let median = |v: &mut Vec<f64>| {
                    v.sort_by(f64::total_cmp);
                    v[v.len() / 2]
                };
                let (time, peak) = (median(&mut times), median(&mut peaks));
                let floor = 4.0 * (length * length * width) as f64 / peak;
                println!(
                    "| {heads} x {head_width} | {length} | {element:?} | {:.3} | {:.0}% |",
                    time * 1e3,
                    100.0 * floor / time
                );
            }
        }
    }
}
