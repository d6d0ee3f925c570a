//! `sparing study layer`: the time of an encoder layer with its functions replaced (MA-BERT's Table 5).

use crate::args::{ModelOrShapeArgs, positive};
use crate::commands::bench::{Format, Output, batch_of, lengths};
use crate::console::Out;
use crate::failure::Failure;
use crate::stats::{Random, Sample};
use crate::table::{Align, Table, csv_line};
use crate::{interrupt, progress};
use clap::Args;
use serde::Serialize;
use sparing_engine::{Economies, Engine, Options};
use sparing_model::{
    Activations, Batch, Error, Executor, Functions, Model, Precision, Quantization, Relu, SoftmaxNetwork,
};
use sparing_train::{PassClock, device};
use std::collections::BTreeMap;
use std::time::Instant;

/// Times an encoder layer with ReLU, PowerNorm and networks in the place of its functions, beside the exact layer
///
/// On the CPU by the engine, on another device by the trainer's kernels; in f32, bf16 and int8, where the device multiplies
/// bytes (CUDA: linear maps and networks are of bytes there, scores and mixed values of bf16). What is replaced has random
/// numbers: time does not depend on them. Candidates take turns within a round and a share is the median over rounds. A
/// layer's time is that of the whole encoder, embeddings included, over its layers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing study layer --shape minilm-l6 --threads 1
  sparing study layer --shape bert-base --length 128,512 --batch 64 --device cuda -o md")]
pub struct LayerArgs {
    #[command(flatten)]
    model: ModelOrShapeArgs,

    /// Tokens per text
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "32,128,512", value_parser = positive)]
    length: Vec<usize>,

    /// Texts per pass [default: so many that they have 512 tokens on the CPU, 16384 elsewhere]
    #[arg(long, value_name = "N", value_parser = positive)]
    batch: Option<usize>,

    /// The most tokens that networks in softmax's place take, as many as the text has at least [default: so many]
    #[arg(long, value_name = "N", value_parser = positive)]
    tokens: Option<usize>,

    /// Keys and values that are left where they are projected; not timed where a network takes no more tokens
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = positive)]
    keys: usize,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = positive)]
    repeats: usize,

    /// Threads of the CPU; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::threads)]
    threads: usize,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
    device: String,

    /// Format of the result
    #[arg(short = 'o', long = "format", value_enum, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

/// What is replaced, in the order of the columns.
const KINDS: [&str; 5] = ["relu", "norms", "softmax", "all", "all, fewer keys"];

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    length: usize,
    batch: usize,
    precision: Precision,
    /// Milliseconds of the exact layer.
    exact_ms: f64,
    /// The other layers' times as shares of it.
    shares: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    rows: Vec<Row>,
}

/// Runs the command.
pub fn layer(args: &LayerArgs) -> Result<(), Failure> {
    interrupt::watch();
    let exact = args.model.open()?;
    if exact.plan.functions.is_some() {
        return Err(Failure::new(format!("{}: its functions are replaced already", args.model.name())));
    }
    let device = if args.device == "cpu" { None } else { Some(device(&args.device)?) };
    let mut report = Report { model: args.model.name(), device: args.device.clone(), rows: Vec::new() };
    let lengths = lengths(&exact.architecture, &args.length)?;
    if let Some((tokens, length)) = args.tokens.zip(lengths.iter().max()).filter(|(tokens, length)| tokens < *length) {
        let why = format!("a network for so many takes no text of {length} (--length); give {length} or more");
        return Err(Failure::Usage(format!("--tokens {tokens}: {why}")));
    }
    for length in lengths {
        let tokens = if device.is_some() { 16384 } else { 512 };
        let count = args.batch.unwrap_or((tokens / length).max(1));
        let batch = batch_of(&exact.architecture, count, length, Output::Hidden);
        let models = models(&exact, args.tokens.unwrap_or(length), args.keys)?;
        match &device {
            Some(device) => {
                for precision in PRECISIONS {
                    let clocks = models.iter().map(|model| PassClock::new(model, &batch.sequences, precision, device));
                    let Some(clocks) = clocks.collect::<Result<Option<Vec<_>>, _>>()? else { continue };
                    let passes = |clock: &PassClock| clock.run(PASSES);
                    report.rows.push(row(args, &exact, &batch, precision, &clocks, passes)?);
                }
            }
            None => {
                let models =
                    models.into_iter().map(|model| with_ranges(model, &batch)).collect::<Result<Vec<_>, _>>()?;
                for precision in PRECISIONS {
                    let options = Options { threads: args.threads, precision: Some(precision), ..Options::default() };
                    let engines = models.iter().map(|model| Engine::compile(model, &options));
                    let engines = engines.collect::<Result<Vec<_>, _>>()?;
                    let pass = |engine: &Engine| {
                        let began = Instant::now();
                        std::hint::black_box(engine.run(&batch)?);
                        Ok(began.elapsed().as_secs_f64())
                    };
                    report.rows.push(row(args, &exact, &batch, precision, &engines, pass)?);
                }
            }
        }
    }
    print(args.format, &report)
}

/// The rows of a length.
const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Int8];
/// Passes between two waits for a device.
const PASSES: usize = 10;

/// The model as it is, then with its functions replaced as [`KINDS`] says; the last only where keys are fewer than tokens.
fn models(exact: &Model, tokens: usize, keys: usize) -> Result<Vec<Model>, Error> {
    let softmax = SoftmaxNetwork { tokens, shared: false, keys: None };
    let kinds: [Functions; KINDS.len() - 1] = [
        Functions { relu: Some(Relu::ALL), ..Functions::default() },
        Functions { power_norm: true, ..Functions::default() },
        Functions { softmax: Some(softmax), ..Functions::default() },
        Functions::all(softmax),
    ];
    let fewer = (keys < tokens).then(|| Functions::all(SoftmaxNetwork { keys: Some(keys), ..softmax }));
    let mut random = Random::new(7);
    let mut fill = |name: &str, shape: &[usize]| -> Vec<f32> {
        let mut number = || (random.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let count = shape.iter().product();
        // Shares of a text add up to about one: with more, many layers without a layer norm go beyond all bounds.
        let most = if name.contains("softmax.output") { 0.05 / tokens as f32 } else { 0.05 };
        if name.ends_with("running_phi") { vec![1.0; count] } else { (0..count).map(|_| most * number()).collect() }
    };
    let mut models = vec![Model::new(exact.architecture.clone(), exact.plan.clone(), exact.weights.clone())];
    for functions in kinds.iter().chain(&fewer) {
        models.push(exact.with_functions(functions, &mut fill)?);
    }
    Ok(models)
}

/// With the ranges of what linear maps read, so that int8 has nothing to find while it runs.
fn with_ranges(mut model: Model, batch: &Batch) -> Result<Model, Error> {
    let options = Options { economies: Economies::none(), ..Options::default() };
    let mut ranges: BTreeMap<String, [f32; 2]> = BTreeMap::new();
    Engine::compile(&model, &options)?.observe(batch, &mut |seen| {
        let range = ranges.entry(seen.weight.to_string()).or_insert([0.0, 0.0]);
        *range = seen.rows.iter().fold(*range, |[least, most], x| [least.min(*x), most.max(*x)]);
    })?;
    let activations = Activations { ranges, ..Activations::default() };
    model.plan.quantization = Some(Quantization { activations, ..Quantization::default() });
    Ok(model)
}

/// Times all candidates, the exact one first, in turns.
fn row<C>(
    args: &LayerArgs,
    exact: &Model,
    batch: &Batch,
    precision: Precision,
    candidates: &[C],
    pass: impl Fn(&C) -> Result<f64, Error>,
) -> Result<Row, Failure> {
    let mut times = vec![Vec::new(); candidates.len()];
    let bar = progress::bar(args.repeats as u64 + 1, "rounds");
    for round in 0..=args.repeats {
        for (candidate, times) in candidates.iter().zip(&mut times) {
            interrupt::check()?;
            let seconds = pass(candidate)?;
            // The first round warms up.
            if round > 0 {
                times.push(seconds);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let median = |values: Vec<f64>| Sample::new(values).median();
    let share = |own: &Vec<f64>| median(own.iter().zip(&times[0]).map(|(own, exact)| own / exact).collect());
    let shares = KINDS.into_iter().zip(times[1..].iter().map(share)).collect();
    let count = batch.sequences.len();
    let exact_ms = median(times[0].clone()) * 1e3 / (exact.architecture.layers.len() * count) as f64;
    Ok(Row { length: batch.sequences[0].ids.len(), batch: count, precision, exact_ms, shares })
}

fn print(format: Format, report: &Report) -> Result<(), Failure> {
    let mut out = Out::new();
    if format == Format::Json {
        out.pretty(report)?;
        return out.flush();
    }
    let columns: Vec<&str> = ["tokens", "texts", "precision", "exact, ms"].into_iter().chain(KINDS).collect();
    let cells = |row: &Row| {
        let shares = KINDS.map(|kind| row.shares.get(kind).map_or("–".to_string(), |share| format!("{share:.2}")));
        let precision = row.precision.name().to_string();
        let first = [row.length.to_string(), row.batch.to_string(), precision, format!("{:.4}", row.exact_ms)];
        first.into_iter().chain(shares).collect::<Vec<_>>()
    };
    if format == Format::Csv {
        out.line(&csv_line(columns.iter().map(|title| title.to_string())))?;
        for row in &report.rows {
            out.line(&csv_line(cells(row)))?;
        }
        return out.flush();
    }
    let aligned = columns.iter().map(|title| (*title, if *title == "precision" { Align::Left } else { Align::Right }));
    let mut table = Table::new(&aligned.collect::<Vec<_>>());
    report.rows.iter().for_each(|row| table.row(cells(row)));
    let heading = format!(
        "{}, {}: time of a layer for one text, and as a share of the exact layer's",
        report.model, report.device
    );
    if format == Format::Md {
        out.line(&format!("{heading}\n"))?;
        out.text(&table.markdown())?;
    } else {
        out.line(&out.paint.strong(&heading))?;
        out.text(&table.text(out.paint))?;
    }
    out.flush()
}
