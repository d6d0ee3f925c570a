//! `sparing lra bench`: the time and memory of one attention block by length.

use super::memory::Meter;
use crate::args::positive;
use crate::commands::bench::Format;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::stats::{Random, Sample};
use crate::table::{Align, Table, bytes, count, csv_line, seconds};
use crate::{interrupt, progress};
use clap::Args;
use serde::Serialize;
use sparing_train::attention::{Kind, Sizes};
use sparing_train::lra::BlockClock;
use sparing_train::{device, device_memory};
use std::process::Command;

/// Measures one attention block forward by length: maps to queries, keys and values, attention, the output map
///
/// Mechanisms take turns, in an order drawn anew each round; the ratio is the median over rounds of full attention's time
/// to theirs, so that a busy machine touches all of them alike. Memory is the peak of a process of its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra bench                                       all mechanisms at 1024, 2048 and 4096 tokens
  sparing lra bench --attention local,linear --length 4096 --repeats 11
  sparing lra bench --length 1024,4096,16384 --device cuda -o md")]
pub struct BenchArgs {
    /// Mechanisms by name, or files NAME.json; all: every one there is. Full attention is always measured
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    attention: Vec<String>,

    /// Tokens
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1024,2048,4096", value_parser = positive)]
    length: Vec<usize>,

    /// Sequences
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    batch: usize,

    /// Width of rows
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    width: usize,

    /// Heads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    heads: usize,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    repeats: usize,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,

    /// Format of the result
    #[arg(short = 'o', long = "format", value_enum, value_name = "FORMAT", default_value = "table")]
    format: Format,

    /// Print the peak memory of one run of one mechanism at one length, and nothing else
    #[arg(long, hide = true)]
    peak: bool,
}

#[derive(Serialize)]
struct Row {
    attention: String,
    length: usize,
    milliseconds: f64,
    /// Full attention's time to this one's.
    faster: f64,
    peak_bytes: u64,
    /// Peak memory over the size of the dense matrix of scores.
    of_dense: f64,
    operations: u64,
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if !args.width.is_multiple_of(args.heads) {
        return Err(Failure::Usage(format!("--width {}: not a multiple of {} heads", args.width, args.heads)));
    }
    let mut kinds = match args.attention.iter().any(|name| name == "all") {
        true => sparing_train::attention::catalogue()?,
        false => args.attention.iter().map(|name| super::mechanism(name)).collect::<Result<Vec<_>, _>>()?,
    };
    if args.peak {
        return peak(args, &kinds);
    }
    let full = match kinds.iter().position(|(name, _)| name == "full") {
        Some(place) => kinds.remove(place),
        None => super::mechanism("full")?,
    };
    kinds.insert(0, full);
    let bar = progress::bar((args.length.len() * args.repeats) as u64, "rounds");
    let mut rows = Vec::new();
    for length in &args.length {
        rows.extend(at_length(args, &kinds, *length, &bar)?);
    }
    bar.finish_and_clear();
    print(args, &rows)
}

fn sizes(args: &BenchArgs, length: usize) -> Sizes {
    Sizes { length, width: args.width, attention_width: args.width, heads: args.heads }
}

fn at_length(
    args: &BenchArgs,
    kinds: &[(String, Kind)],
    length: usize,
    bar: &indicatif::ProgressBar,
) -> Result<Vec<Row>, Failure> {
    let place = device(&args.device)?;
    let mut clocks = Vec::new();
    for (name, kind) in kinds {
        let clock = BlockClock::new(kind, sizes(args, length), args.batch, &place)?;
        // The first run compiles kernels and starts threads.
        match clock.run() {
            Ok((_, operations)) => clocks.push((name, clock, operations, Vec::new())),
            Err(e) => console::note(&format!("{name} at {length} tokens: {e}")),
        }
        interrupt::check()?;
    }
    let mut random = Random::new(length as u64);
    for _ in 0..args.repeats {
        let mut order: Vec<usize> = (0..clocks.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let (seconds, _) = clocks[at].1.run()?;
            clocks[at].3.push(seconds);
            interrupt::check()?;
        }
        bar.inc(1);
    }
    let full: Vec<f64> = clocks.first().map(|clock| clock.3.clone()).unwrap_or_default();
    let dense = (4 * args.batch * args.heads * length * length) as f64;
    let mut rows = Vec::new();
    for (name, _, operations, times) in clocks {
        let ratios = full.iter().zip(&times).map(|(full, time)| full / time).collect();
        let peak_bytes = peak_of(args, name, length).unwrap_or(0);
        rows.push(Row {
            attention: name.clone(),
            length,
            milliseconds: 1e3 * Sample::new(times).median(),
            faster: Sample::new(ratios).median(),
            peak_bytes,
            of_dense: peak_bytes as f64 / dense,
            operations,
        });
    }
    Ok(rows)
}

/// Asks a process of its own.
fn peak_of(args: &BenchArgs, name: &str, length: usize) -> Option<u64> {
    let path = args.attention.iter().find(|given| given.ends_with(".json") && given.contains(name));
    let numbers = [("--length", length), ("--batch", args.batch), ("--width", args.width), ("--heads", args.heads)];
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["lra", "bench", "--peak", "--device", &args.device, "--attention", path.map_or(name, |p| p)]);
    numbers.iter().for_each(|(flag, number)| {
        command.arg(flag).arg(number.to_string());
    });
    let output = command.output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn peak(args: &BenchArgs, kinds: &[(String, Kind)]) -> Result<(), Failure> {
    let place = device(&args.device)?;
    let mut out = Out::new();
    for (_, kind) in kinds {
        // Threads and kernels first, at a length that takes no memory worth the name.
        BlockClock::new(kind, sizes(args, 64), 1, &place)?.run()?;
        let clock = BlockClock::new(kind, sizes(args, args.length[0]), args.batch, &place)?;
        let before = device_memory(&args.device).unwrap_or(0);
        let meter = Meter::new(&args.device);
        clock.run()?;
        let peak = if args.device == "cpu" { meter.peak() } else { meter.peak().saturating_sub(before) };
        out.line(&peak.to_string())?;
    }
    out.flush()
}

fn print(args: &BenchArgs, rows: &[Row]) -> Result<(), Failure> {
    let mut out = Out::new();
    let names =
        ["attention", "tokens", "time", "times as fast as full", "peak memory", "of dense scores", "operations"];
    match args.format {
        Format::Json => out.pretty(&rows)?,
        Format::Csv => {
            out.line("attention,length,milliseconds,faster,peak_bytes,of_dense,operations")?;
            for row in rows {
                let Row { attention, length, milliseconds, faster, peak_bytes, of_dense, operations } = row;
                let numbers = [format!("{milliseconds:.4}"), format!("{faster:.3}"), peak_bytes.to_string()];
                let rest = [format!("{of_dense:.5}"), operations.to_string()];
                let cells = [attention.clone(), length.to_string()].into_iter().chain(numbers).chain(rest);
                out.line(&csv_line(cells))?;
            }
        }
        Format::Table | Format::Md => {
            let columns: Vec<(&str, Align)> =
                names.iter().map(|n| (*n, if *n == "attention" { Align::Left } else { Align::Right })).collect();
            let mut table = Table::new(&columns);
            for row in rows {
                table.row([
                    row.attention.clone(),
                    row.length.to_string(),
                    seconds(row.milliseconds / 1e3),
                    format!("{:.2}x", row.faster),
                    bytes(row.peak_bytes as f64),
                    format!("{:.3}", row.of_dense),
                    count(row.operations as f64),
                ]);
            }
            let text = if args.format == Format::Md { table.markdown() } else { table.text(out.paint) };
            out.text(&text)?;
        }
    }
    out.flush()
}
