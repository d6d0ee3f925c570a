//! `sparing quantize`: fewer bits for the weights, measured on what was saved.

mod data;
mod report;

use crate::args::{positive, threads};
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::{bits, files, interrupt, load, progress};
use clap::{Args, ValueEnum};
use report::{Scored, Summary};
use sparing_engine::{Engine, Options as EngineOptions};
use sparing_model::{Bits, Model, Precision};
use sparing_quantize::{Quantize, ScaleChoice, Statistics, calibrate};
use sparing_tasks::{Bootstrap, Dataset, Options, Progress, agreement, evaluate};
use std::path::PathBuf;

/// Stores weights in fewer bits: a smaller model that runs on integers, and what that costs in accuracy
///
/// Every row of a matrix becomes integers of 2 to 8 bits and one scale. Without data each scale is the one with the least
/// squared error. With --calibrate the model first reads some examples: then errors count by how large the numbers are that a
/// weight is multiplied with, and biases take over the mean error. Norms and biases stay f32.
///
/// What comes out is a model directory like any other: it runs in int8 unless asked otherwise (weights of fewer bits are
/// widened when they are packed: they save bytes, not time). What is scored is the directory that was written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing quantize MODEL --out small                            8 bits, no data needed
  sparing quantize MODEL --out small --task sst2 --calibrate glue         fitted to its train part
  sparing quantize MODEL --out mine --calibrate mine.csv --text review --label stars
  sparing quantize MODEL --out tiny --bits embeddings=4,attention=8,ffn=6,head=8
  sparing quantize MODEL --out fixed --task sst2 --calibrate glue --activations static")]
pub struct QuantizeArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision
    #[arg(value_name = "MODEL")]
    model: String,

    /// Directory for the quantised model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Replace the model in --out
    #[arg(long)]
    overwrite: bool,

    /// Bits of the weights, 2 to 8: one number, or embeddings=4,attention=8,ffn=6,head=8; parts that are not named stay
    /// as they are
    #[arg(long, value_name = "BITS", default_value = "8", value_parser = bits::parse)]
    bits: Bits,

    /// How scales are chosen
    #[arg(long, value_enum, value_name = "HOW", default_value = "search")]
    scales: ScalesArg,

    /// How weights are rounded
    #[arg(long, value_enum, value_name = "HOW", default_value = "nearest")]
    rounding: RoundingArg,

    /// How int8 rounds what a matrix is multiplied with
    #[arg(long, value_enum, value_name = "HOW", default_value = "token")]
    activations: ActivationsArg,

    #[command(flatten)]
    data: data::DataArgs,

    /// Cut texts to this many tokens, special tokens included [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,

    /// Threads to compute with; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How scales are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScalesArg {
    /// The least squared error, weighted by the calibration data if there are any
    Search,
    /// The row's largest weight is the largest integer
    Largest,
}

/// How weights are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoundingArg {
    /// Each to the nearest integer
    Nearest,
    /// One after the other, the rest making up for the error (GPTQ): for 5 bits and fewer; needs --calibrate
    Compensated,
}

/// How int8 rounds what a matrix is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActivationsArg {
    /// Over each token's own range
    Token,
    /// Over one range per matrix, from the calibration data
    Static,
}

/// Runs the command.
pub fn quantize(args: &QuantizeArgs) -> Result<(), Failure> {
    interrupt::watch();
    if args.activations == ActivationsArg::Static && !args.data.calibrates() {
        return Err(Failure::Usage("--activations static: the ranges come from data; give --calibrate".to_string()));
    }
    if args.rounding == RoundingArg::Compensated && !args.data.calibrates() {
        return Err(Failure::Usage("--rounding compensated: it goes by data; give --calibrate".to_string()));
    }
    files::free(&args.out, args.overwrite)?;
    // What can be wrong with the data is told before a large model is read.
    let mut data = args.data.read()?;
    let mut model = load::open(&args.model, None)?;
    if let Some(scoring) = &mut data.scoring {
        scoring.keep_scorable(model.architecture.head.kind)?;
    }
    let before = model.weights.file_bytes();
    let exact = match data.is_empty() {
        true => None,
        false => Some(engine(&model, Some(Precision::F32), args.threads)?),
    };
    let statistics = match (&data.calibration, &exact) {
        (Some(dataset), Some(exact)) => Some(statistics(args, exact, &model, dataset)?),
        _ => None,
    };
    let job = Quantize {
        model: &model,
        bits: args.bits,
        layers: Default::default(),
        choice: match args.scales {
            ScalesArg::Search => ScaleChoice::Searched,
            ScalesArg::Largest => ScaleChoice::Largest,
        },
        statistics: statistics.as_ref(),
        fixed_ranges: args.activations == ActivationsArg::Static,
    };
    let bar = progress::bar(0, "weights");
    let changed = job.run(&mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    let changed = changed?.ok_or(Failure::Interrupted)?;
    model.weights = model.weights.replace(changed.tensors)?;
    model.plan = changed.plan;
    interrupt::check()?;
    model.save(&args.out)?;
    let saved = Model::load(&args.out)?;
    let mut summary = Summary::new(load::short_name(&args.model), args, &saved, &changed.parts, before);
    summary.calibration = data.calibration.as_ref().map(|d| (d.source.clone(), d.examples.len()).into());
    if let (Some(exact), Some(dataset)) = (&exact, &data.scoring) {
        summary.scored = Some(score(args, exact, &saved, dataset)?);
    }
    let mut out = Out::new();
    if args.json {
        out.pretty(&summary)?
    } else {
        summary.print(&mut out)?
    }
    out.flush()
}

fn engine(model: &Model, precision: Option<Precision>, threads: usize) -> Result<Engine, Failure> {
    Ok(Engine::compile(model, &EngineOptions { threads, precision, ..EngineOptions::default() })?)
}

fn options(args: &QuantizeArgs) -> Options {
    let bootstrap = Bootstrap { seed: args.data.seed, ..Bootstrap::default() };
    Options { max_tokens: args.max_tokens, context: args.max_tokens, bootstrap, ..Options::default() }
}

/// What the exact model's linear maps read.
fn statistics(args: &QuantizeArgs, exact: &Engine, model: &Model, dataset: &Dataset) -> Result<Statistics, Failure> {
    let mut watch = Watch::new("calibration inputs");
    let found = calibrate(exact, model, dataset, &options(args), args.rounding == RoundingArg::Compensated, &mut |p| {
        watch.step(p)
    });
    watch.end();
    found.map_err(interrupt::told)?.ok_or(Failure::Interrupted)
}

/// The saved model beside the exact one.
fn score(args: &QuantizeArgs, exact: &Engine, saved: &Model, dataset: &Dataset) -> Result<Scored, Failure> {
    let engine = engine(saved, None, args.threads)?;
    let (encoder, options) = (saved.tokenizer()?, options(args));
    let run = |what: &str, engine: &Engine| {
        let mut watch = Watch::new(what);
        let report = evaluate(engine, encoder, &saved.architecture, dataset, &options, &mut |p| watch.step(p));
        watch.end();
        let report = report.map_err(interrupt::told)?;
        if report.complete { Ok(report) } else { Err(Failure::Interrupted) }
    };
    let (first, second) = (run("inputs, exact model", exact)?, run("inputs, quantised model", &engine)?);
    for note in &second.notes {
        console::note(note);
    }
    let mut watch = Watch::new("inputs, agreement");
    let found = agreement(exact, &engine, encoder, &saved.architecture, dataset, &options, &mut |p| watch.step(p));
    watch.end();
    let found = found.map_err(interrupt::told)?;
    interrupt::check()?;
    Scored::new(&first, &second, found)
}

/// A progress bar that also listens to Ctrl-C.
struct Watch(indicatif::ProgressBar);

impl Watch {
    fn new(what: &str) -> Watch {
        Watch(progress::bar(0, what))
    }

    fn step(&mut self, p: &Progress) -> bool {
        self.0.set_length(p.total as u64);
        self.0.set_position(p.done as u64);
        !interrupt::asked()
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
