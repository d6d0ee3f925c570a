//! How near the products of training come to the machine's peak.
//!
//! `cargo run --release -p sparing-kernels --example product [rows inputs outputs]` (default 2304 384 1536): of a linear map
//! the way forward, the gradient of its input and of its weight, packing included, in f32 and rounded to bf16 on the way in; the
//! median share of the format's peak that one thread reaches, both measured in turn in the same run.

use sparing_kernels::{After, Format, Products, Rows, RowsMut, Side, Team, isa, peak};
use std::time::Instant;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [rows, inputs, outputs] = sizes[..].try_into().unwrap_or([2304, 384, 1536]);
    let numbers = |n: usize| (0..n).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect::<Vec<f32>>();
    let (mut x, mut w, mut y) = (numbers(rows * inputs), numbers(outputs * inputs), numbers(rows * outputs));
    let (team, mut products) = (Team::new(1), Products::new(1));
    let operations = 2.0 * (rows * inputs * outputs) as f64;
    let formats = if isa::has_bf16(isa::active()) { vec![Format::F32, Format::Bf16] } else { vec![Format::F32] };
    let mut rates = vec![[vec![], vec![], vec![], vec![]]; formats.len()];
    for _ in 0..15 {
        for (format, [peaks, forward, input, weight]) in formats.iter().zip(&mut rates) {
            peaks.push(peak::operations_per_second(*format));
            for (which, rates) in [forward, input, weight].into_iter().enumerate() {
                let start = Instant::now();
                let (a, b, to) = match which {
                    0 => {
                        let (a, b) = (Side::of(Rows::f32(&x, inputs)), Side::turned(Rows::f32(&w, inputs)));
                        (a, b, RowsMut::f32(&mut y, outputs))
                    }
                    1 => {
                        let (a, b) = (Side::of(Rows::f32(&y, outputs)), Side::of(Rows::f32(&w, inputs)));
                        (a, b, RowsMut::f32(&mut x, inputs))
                    }
                    _ => {
                        let (a, b) = (Side::turned(Rows::f32(&y, outputs)), Side::of(Rows::f32(&x, inputs)));
                        (a, b, RowsMut::f32(&mut w, inputs))
                    }
                };
                products.product(&team, *format, a, b, &After::default(), to);
                rates.push(operations / start.elapsed().as_secs_f64());
            }
        }
    }
    for (format, rates) in formats.iter().zip(&mut rates) {
        let [peak, forward, input, weight] = rates.each_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let share = |rate: f64| format!("{:.0} Gop/s, {:.1}%", rate / 1e9, 100.0 * rate / peak);
        println!("{rows} x {inputs} x {outputs}, {format:?}, one thread, peak {:.0} Gop/s", peak / 1e9);
        println!(
            "  forward {}; gradient of the input {}, of the weight {}",
            share(forward),
            share(input),
            share(weight)
        );
    }
}
