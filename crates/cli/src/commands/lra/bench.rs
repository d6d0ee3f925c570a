//! `sparing bench attention`, or `sparing lra bench`: the time and memory of one attention block by length.

use super::caught::caught;
use super::memory::Meter;
use crate::args::positive;
use crate::commands::bench::Format;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::stats::{Random, Sample};
use crate::table::{Align, Table, bytes, count, csv_line, seconds};
use crate::{interrupt, progress};
use clap::Args;
use cpu_time::ProcessTime;
use serde::Serialize;
use sparing_train::attention::{Kind, Sizes, catalogue};
use sparing_train::lra::BlockClock;
use sparing_train::{device, device_memory};
use std::process::Command;
use std::time::Instant;

/// Measures one attention block forward by length: maps to queries, keys and values, attention, the output map
///
/// Mechanisms take turns, in an order drawn anew each round; a ratio is the median over rounds of full attention's time
/// to theirs, so that a busy machine touches all of them alike; by CPU time it hardly touches them. Alone: with
/// queries, keys and values there already. Memory is the peak of a block in a process of its own, on a GPU what that
/// process has reserved for it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing bench attention                                 all mechanisms at 1K, 2K and 4K tokens
  sparing bench attention --attention local,linear --length 4096 --repeats 11
  sparing bench attention --length 1024,4096,16384 --device cuda -o md
  sparing lra bench -o json                               the same command by its other name")]
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
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
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
    alone_milliseconds: f64,
    /// Full attention's time to this one's: of the block, and of attention alone.
    faster: Option<f64>,
    alone_faster: Option<f64>,
    /// The same by CPU time; none where a GPU computes.
    cpu_faster: Option<f64>,
    alone_cpu_faster: Option<f64>,
    /// None where it is not known.
    peak_bytes: Option<u64>,
    /// That over the size of the dense matrix of scores.
    of_dense: Option<f64>,
    operations: u64,
}

/// Seconds and CPU seconds of every round.
#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Times {
    fn add(&mut self, job: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let (start, cpu) = (Instant::now(), ProcessTime::try_now()?);
        job()?;
        self.wall.push(start.elapsed().as_secs_f64());
        self.cpu.push(cpu.try_elapsed()?.as_secs_f64());
        Ok(())
    }

    /// How many times as long others took, round by round.
    fn ratio(others: &[f64], own: &[f64]) -> f64 {
        Sample::new(others.iter().zip(own).map(|(other, own)| other / own.max(1e-9)).collect()).median()
    }
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if !args.width.is_multiple_of(args.heads) {
        return Err(Failure::Usage(format!("--width {}: not a multiple of {} heads", args.width, args.heads)));
    }
    let known = catalogue()?;
    let mut kinds = super::mechanisms(&args.attention, &known)?;
    if args.peak {
        return peak(args, &kinds);
    }
    let full = match kinds.iter().position(|(name, _)| name == "full") {
        Some(place) => kinds.remove(place),
        None => super::mechanism("full", &known)?,
    };
    kinds.insert(0, full);
    let bar = progress::bar((args.length.len() * args.repeats) as u64, "rounds");
    // What is measured is shown, whatever comes after it.
    let mut rows = Vec::new();
    let measured = args.length.iter().try_for_each(|length| {
        rows.extend(at_length(args, &kinds, *length, &bar)?);
        Ok(())
    });
    bar.finish_and_clear();
    if measured.is_ok() || !rows.is_empty() {
        print(args, &rows)?;
    }
    measured
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
    let mut blocks = Vec::new();
    for (name, kind) in kinds {
        // The first run compiles kernels and starts threads.
        let first = caught(|| {
            let clock = BlockClock::new(kind, sizes(args, length), args.batch, &place)?;
            let operations = clock.block()?;
            Ok((name, clock, operations))
        });
        match first {
            Ok(block) => blocks.push(block),
            Err(e) => console::note(&format!("{name} at {length} tokens: {e}")),
        }
        interrupt::check()?;
    }
    let mut times: Vec<[Times; 2]> = blocks.iter().map(|_| Default::default()).collect();
    let mut random = Random::new(length as u64);
    for _ in 0..args.repeats {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let clock = &blocks[at].1;
            times[at][0].add(|| Ok(clock.block().map(|_| ())?))?;
            let alone = clock.attention()?;
            times[at][1].add(|| Ok(alone()?))?;
            interrupt::check()?;
        }
        bar.inc(1);
    }
    let dense = (4 * args.batch * args.heads * length * length) as f64;
    let on_cpu = args.device == "cpu";
    // It may have failed: then there is nothing to compare with.
    let full = blocks.iter().position(|(name, ..)| *name == "full").map(|at| &times[at]);
    let row = |((name, _, operations), own): (&(&String, BlockClock, u64), &[Times; 2])| {
        let peak_bytes = peak_of(args, name, length);
        let wall = |which: usize| full.map(|full| Times::ratio(&full[which].wall, &own[which].wall));
        let cpu = |which: usize| full.filter(|_| on_cpu).map(|full| Times::ratio(&full[which].cpu, &own[which].cpu));
        Row {
            attention: name.to_string(),
            length,
            milliseconds: 1e3 * Sample::new(own[0].wall.clone()).median(),
            alone_milliseconds: 1e3 * Sample::new(own[1].wall.clone()).median(),
            faster: wall(0),
            alone_faster: wall(1),
            cpu_faster: cpu(0),
            alone_cpu_faster: cpu(1),
            peak_bytes,
            of_dense: peak_bytes.map(|peak| peak as f64 / dense),
            operations: *operations,
        }
    };
    Ok(blocks.iter().zip(&times).map(row).collect())
}

/// Asks a process of its own.
fn peak_of(args: &BenchArgs, name: &str, length: usize) -> Option<u64> {
    let path = args.attention.iter().find(|given| given.ends_with(".json") && super::stem(given) == name);
    let numbers = [("--length", length), ("--batch", args.batch), ("--width", args.width), ("--heads", args.heads)];
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["lra", "bench", "--peak", "--device", &args.device, "--attention", path.map_or(name, |p| p)]);
    numbers.iter().for_each(|(flag, number)| {
        command.arg(flag).arg(number.to_string());
    });
    let output = command.output().ok()?;
    // 0 is what is said where nothing is known.
    String::from_utf8(output.stdout).ok()?.trim().parse().ok().filter(|peak| *peak > 0)
}

fn peak(args: &BenchArgs, kinds: &[(String, Kind)]) -> Result<(), Failure> {
    let place = device(&args.device)?;
    let mut out = Out::new();
    for (_, kind) in kinds {
        // Threads and kernels first, at a length that takes no memory worth the name.
        BlockClock::new(kind, sizes(args, 64), 1, &place)?.block()?;
        let clock = BlockClock::new(kind, sizes(args, args.length[0]), args.batch, &place)?;
        let before = device_memory(&args.device).unwrap_or(0);
        let meter = Meter::new(&args.device);
        clock.block()?;
        let peak = if args.device == "cpu" { meter.peak() } else { meter.peak().saturating_sub(before) };
        out.line(&peak.to_string())?;
    }
    out.flush()
}

fn print(args: &BenchArgs, rows: &[Row]) -> Result<(), Failure> {
    let mut out = Out::new();
    let shown = |ratio: Option<f64>| ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}x"));
    match args.format {
        Format::Json => out.pretty(&rows)?,
        Format::Csv => {
            out.line(&csv_line(CSV.map(str::to_string)))?;
            for row in rows {
                let number = |x: f64| format!("{x:.4}");
                let maybe = |x: Option<f64>| x.map(number).unwrap_or_default();
                let times = [row.milliseconds, row.alone_milliseconds].map(number);
                let ratios = [maybe(row.faster), maybe(row.alone_faster)];
                let rest = [
                    maybe(row.cpu_faster),
                    maybe(row.alone_cpu_faster),
                    row.peak_bytes.map(|peak| peak.to_string()).unwrap_or_default(),
                ];
                let last = [maybe(row.of_dense), row.operations.to_string()];
                let first = [row.attention.clone(), row.length.to_string()];
                out.line(&csv_line(first.into_iter().chain(times).chain(ratios).chain(rest).chain(last)))?;
            }
        }
        Format::Table | Format::Md => {
            let mut table = Table::new(&[
                ("attention", Align::Left),
                ("tokens", Align::Right),
                ("block", Align::Right),
                ("times as fast as full", Align::Right),
                ("by CPU time", Align::Right),
                ("alone", Align::Right),
                ("times as fast", Align::Right),
                ("by CPU time", Align::Right),
                ("memory", Align::Right),
                ("of dense scores", Align::Right),
                ("operations", Align::Right),
            ]);
            for row in rows {
                table.row([
                    row.attention.clone(),
                    row.length.to_string(),
                    seconds(row.milliseconds / 1e3),
                    shown(row.faster),
                    shown(row.cpu_faster),
                    seconds(row.alone_milliseconds / 1e3),
                    shown(row.alone_faster),
                    shown(row.alone_cpu_faster),
                    row.peak_bytes.map_or("–".to_string(), |peak| bytes(peak as f64)),
                    row.of_dense.map_or("–".to_string(), |share| format!("{share:.3}")),
                    count(row.operations as f64),
                ]);
            }
            let text = if args.format == Format::Md { table.markdown() } else { table.text(out.paint) };
            out.text(&text)?;
        }
    }
    out.flush()
}

/// The columns of CSV, named as JSON's fields are.
const CSV: [&str; 11] = [
    "attention",
    "length",
    "milliseconds",
    "alone_milliseconds",
    "faster",
    "alone_faster",
    "cpu_faster",
    "alone_cpu_faster",
    "peak_bytes",
    "of_dense",
    "operations",
];
