//! `sparing train bench`: the time of one update.

use crate::args::{ModelOrShapeArgs, positive};
use crate::console::Out;
use crate::failure::Failure;
use crate::stats::Sample;
use crate::{interrupt, progress};
use clap::Args;
use serde::Serialize;
use sparing_model::Architecture;
use sparing_train::{OperationTime, StepClock, StepShape, device, operation_times};
use std::io::{BufRead, Write};

/// Measures the time of one training update: forward, backward, optimizer
///
/// Updates follow each other as in training; their mean is taken over a round, the median over rounds. Then a few are
/// done with the device waited for after each part, to show where the time goes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing train bench --shape bert-base --batch 64 --length 128 --device cuda --bf16
  sparing train bench MODEL --batch 32 --length 64 --json")]
pub struct BenchArgs {
    #[command(flatten)]
    model: ModelOrShapeArgs,

    /// Sequences per update
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive)]
    batch: usize,

    /// Tokens per sequence
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive)]
    length: usize,

    /// Dropout of hidden states and attention
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    dropout: f64,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
    device: String,

    /// Multiply matrices in bf16
    #[arg(long)]
    bf16: bool,

    /// Updates before the timed ones: the first ones compile and choose kernels
    #[arg(long, value_name = "N", default_value_t = 3)]
    warmup: usize,

    /// Updates in a round
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    updates: usize,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive)]
    repeats: usize,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Answer each line of standard input with the milliseconds of an update in a round: see bench/
    #[arg(long, hide = true)]
    worker: bool,

    /// Time single operations at these sizes instead, with --json as one object per line
    #[arg(long, hide = true, conflicts_with = "worker")]
    operations: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    #[serde(flatten)]
    shape: StepShape,
    warm_up_s: f64,
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
    tokens_per_second: f64,
    /// With a wait after each, so that their sum is more than the whole.
    forward_ms: f64,
    backward_ms: f64,
    update_ms: f64,
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if !(0.0..1.0).contains(&args.dropout) {
        return Err(Failure::Usage(format!("--dropout {}: a number from 0 to 1 is expected", args.dropout)));
    }
    let architecture = args.model.open()?.architecture;
    let shape = StepShape { batch: args.batch, length: args.length, dropout: args.dropout, bf16: args.bf16 };
    if args.operations {
        return operations(args, &architecture, shape);
    }
    let mut clock = StepClock::new(&architecture, shape, device(&args.device)?)?;
    let start = std::time::Instant::now();
    clock.run(args.warmup)?;
    let warm_up_s = start.elapsed().as_secs_f64();
    if args.worker {
        return serve(args, &mut clock);
    }
    let bar = progress::bar(args.repeats as u64, "rounds");
    let mut rounds = Vec::new();
    let mut parts = Vec::new();
    for _ in 0..args.repeats {
        rounds.push(clock.run(args.updates)? * 1e3);
        parts.push(clock.parts()?);
        bar.inc(1);
        interrupt::check()?;
    }
    bar.finish_and_clear();
    let median =
        |part: fn(&sparing_train::StepParts) -> f64| Sample::new(parts.iter().map(part).collect()).median() * 1e3;
    let rounds = Sample::new(rounds);
    let report = Report {
        model: args.model.name(),
        device: args.device.clone(),
        shape,
        warm_up_s,
        median_ms: rounds.median(),
        p10_ms: rounds.quantile(0.1),
        p90_ms: rounds.quantile(0.9),
        tokens_per_second: (args.batch * args.length) as f64 / rounds.median() * 1e3,
        forward_ms: median(|p| p.forward),
        backward_ms: median(|p| p.backward),
        update_ms: median(|p| p.update),
    };
    let mut out = Out::new();
    if args.json {
        out.pretty(&report)?;
    } else {
        let precision = if args.bf16 { "bf16" } else { "f32" };
        out.line(&format!(
            "{}: an update of {} x {} tokens on {} in {precision} takes {:.1} ms ({:.1} to {:.1}), {} tokens/s",
            report.model,
            args.batch,
            args.length,
            args.device,
            report.median_ms,
            report.p10_ms,
            report.p90_ms,
            crate::table::count(report.tokens_per_second)
        ))?;
        out.line(&format!(
            "forward {:.1} ms, backward {:.1} ms, optimizer {:.1} ms, each waited for; {warm_up_s:.1} s to warm up",
            report.forward_ms, report.backward_ms, report.update_ms
        ))?;
    }
    out.flush()?;
    Ok(())
}

/// Prints each operation's time as soon as it is known.
fn operations(args: &BenchArgs, architecture: &Architecture, shape: StepShape) -> Result<(), Failure> {
    let mut out = Out::new();
    operation_times(architecture, shape, device(&args.device)?, |time: OperationTime| {
        if args.json {
            out.json(&time)?;
        } else {
            let OperationTime { name, sizes, precision, milliseconds, tflops } = &time;
            let rate = tflops.map(|rate| format!("{rate:8.1} Tflop/s")).unwrap_or_default();
            out.line(&format!("{name:28} {sizes:>22} {precision:4} {milliseconds:9.3} ms {rate}"))?;
        }
        out.flush()?;
        interrupt::check()
    })
}

/// Times a round whenever asked, for comparisons that take turns.
fn serve(args: &BenchArgs, clock: &mut StepClock) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "READY")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(out, "{:.4}", clock.run(args.updates)? * 1e3)?;
        out.flush()?;
    }
    Ok(())
}
