//! How near the products of training come to the machine's peak.
//!
//! `cargo run --release -p sparing-kernels --example product [rows inputs outputs]` (default 2304 384 1536): of a linear map
//! the way forward, the gradient of its input and of its weight, packing included; the median share of the peak that one
//! thread reaches, both measured in turn in the same run.

use sparing_kernels::{After, Format, Products, Rows, RowsMut, Side, Team, peak};
use std::time::Instant;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [rows, inputs, outputs] = sizes[..].try_into().unwrap_or([2304, 384, 1536]);
    let numbers = |n: usize| (0..n).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect::<Vec<f32>>();
    let (mut x, mut w, mut y) = (numbers(rows * inputs), numbers(outputs * inputs), numbers(rows * outputs));
    let (team, mut products) = (Team::new(1), Products::new(1));
    let operations = 2.0 * (rows * inputs * outputs) as f64;
    let mut shares = [vec![], vec![], vec![]];
    let mut peaks = vec![];
    for _ in 0..15 {
        let peak = peak::operations_per_second(Format::F32);
        peaks.push(peak);
        for (which, shares) in shares.iter_mut().enumerate() {
            let start = Instant::now();
            let after = After::default();
            match which {
                0 => {
                    let (a, b) = (Side::of(Rows::f32(&x, inputs)), Side::turned(Rows::f32(&w, inputs)));
                    products.product(&team, a, b, &after, RowsMut::f32(&mut y, outputs));
                }
                1 => {
                    let (a, b) = (Side::of(Rows::f32(&y, outputs)), Side::of(Rows::f32(&w, inputs)));
                    products.product(&team, a, b, &after, RowsMut::f32(&mut x, inputs));
                }
                _ => {
                    let (a, b) = (Side::turned(Rows::f32(&y, outputs)), Side::of(Rows::f32(&x, inputs)));
                    products.product(&team, a, b, &after, RowsMut::f32(&mut w, inputs));
                }
            }
            shares.push(operations / start.elapsed().as_secs_f64() / peak);
        }
    }
    let median = |v: &mut Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let [forward, input, weight] = shares.each_mut().map(|s| 100.0 * median(s));
    println!("{rows} x {inputs} x {outputs}, f32, one thread, peak {:.0} Gop/s", median(&mut peaks) / 1e9);
    println!("of peak: forward {forward:.1}%, gradient of the input {input:.1}%, of the weight {weight:.1}%");
}
