//! How near the multiplication comes to the machine's peak.
//!
//! `cargo run --release -p sparing-kernels --example gemm [rows inputs outputs]` (default 128 768 3072): for each
//! precision, the median share of the peak that one thread reaches, both measured in turn in the same run.

use sparing_kernels::{Activation, Epilogue, Format, PackedMatrix, Rows, RowsMut, Scratch, gemm, isa, peak};
use std::time::Instant;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [rows, inputs, outputs] = sizes[..].try_into().unwrap_or([128, 768, 3072]);
    println!("{rows} x {inputs} x {outputs}, {}, one thread", isa::active().name());
    println!("| precision | peak Gop/s | plain Gop/s | of peak | with bias + GELU | of peak |");
    println!("|---|---|---|---|---|---|");
    let x: Vec<f32> = (0..rows * inputs).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let w: Vec<f32> = (0..outputs * inputs).map(|i| ((i * 104729) % 1000) as f32 / 5000.0 - 0.1).collect();
    let bias = vec![0.1f32; outputs];
    let mut scratch = Scratch::default();
    for format in [Format::F32, Format::Bf16, Format::Int8] {
        let packed = PackedMatrix::pack(&w, outputs, inputs, format);
        let mut y = vec![0f32; rows * outputs];
        let operations = 2.0 * (rows * inputs * outputs) as f64;
        let mut time = |epilogue: &Epilogue| {
            let start = Instant::now();
            gemm(Rows::f32(&x, inputs), &packed, epilogue, RowsMut::f32(&mut y, outputs), &mut scratch);
            operations / start.elapsed().as_secs_f64()
        };
        let fused = Epilogue { bias: Some(&bias), activation: Activation::Gelu, residual: None };
        let (mut plain, mut with, mut peaks) = (vec![], vec![], vec![]);
        for _ in 0..15 {
            peaks.push(peak::operations_per_second(format));
            for _ in 0..5 {
                plain.push(time(&Epilogue::default()));
                with.push(time(&fused));
            }
        }
        let median = |v: &mut Vec<f64>| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        };
        let (p, a, b) = (median(&mut peaks), median(&mut plain), median(&mut with));
        println!(
            "| {format:?} | {:.0} | {:.0} | {:.1}% | {:.0} | {:.1}% |",
            p / 1e9,
            a / 1e9,
            100.0 * a / p,
            b / 1e9,
            100.0 * b / p
        );
    }
}
