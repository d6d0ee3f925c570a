//! How near the multiplication comes to the machine's peak.
//!
//! `cargo run --release -p sparing-kernels --example gemm [rows inputs outputs]` (default 128 768 3072): for each
//! precision, the median share of the peak that one thread reaches, both measured in turn in the same run.

use sparing_kernels::{
    Activation, Epilogue, Format, PackedMatrix, Rows, RowsMut, Scratch, f32_to_bf16, gemm, isa, peak,
};
use std::time::Instant;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [rows, inputs, outputs] = sizes[..].try_into().unwrap_or([128, 768, 3072]);
    println!("{rows} x {inputs} x {outputs}, {}, one thread", isa::active().name());
    println!(
        "| precision | peak Gop/s | plain Gop/s | of peak | with bias + GELU | of peak | bf16 in and out, bias + GELU | of peak |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let x: Vec<f32> = (0..rows * inputs).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let w: Vec<f32> = (0..outputs * inputs).map(|i| ((i * 104729) % 1000) as f32 / 5000.0 - 0.1).collect();
    let x16: Vec<u16> = x.iter().map(|x| f32_to_bf16(*x)).collect();
    let bias = vec![0.1f32; outputs];
    let mut scratch = Scratch::default();
    for format in [Format::F32, Format::Bf16, Format::Int8] {
        let packed = PackedMatrix::pack(&w, outputs, inputs, format);
        let mut y = vec![0f32; rows * outputs];
        let mut y16 = vec![0u16; rows * outputs];
        let operations = 2.0 * (rows * inputs * outputs) as f64;
        let fused = Epilogue { bias: Some(&bias), activation: Activation::Gelu, ..Epilogue::default() };
        let (mut peaks, mut times) = (vec![], [vec![], vec![], vec![]]);
        for _ in 0..15 {
            peaks.push(peak::operations_per_second(format));
            for _ in 0..5 {
                for (which, times) in times.iter_mut().enumerate() {
                    let (from, to) = match which {
                        2 => (Rows::bf16(&x16, inputs), RowsMut::bf16(&mut y16, outputs)),
                        _ => (Rows::f32(&x, inputs), RowsMut::f32(&mut y, outputs)),
                    };
                    let epilogue = if which == 0 { Epilogue::default() } else { fused };
                    let start = Instant::now();
                    gemm(from, &packed, &epilogue, to, &mut scratch);
                    times.push(operations / start.elapsed().as_secs_f64());
                }
            }
        }
        let median = |v: &mut Vec<f64>| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        };
        let peak = median(&mut peaks);
        print!("| {format:?} | {:.0} |", peak / 1e9);
        for times in &mut times {
            let speed = median(times);
            print!(" {:.0} | {:.1}% |", speed / 1e9, 100.0 * speed / peak);
        }
        println!();
    }
}
