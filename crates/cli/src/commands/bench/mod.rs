//! `sparing bench`: latency and throughput over a sweep.

mod measure;
mod report;
mod worker;

use crate::args::{MachineArgs, ModelOrShapeArgs, PrecisionArg, positive, threads};
use crate::commands::lra::{self, AttentionArgs};
use crate::failure::Failure;
use crate::{attention, interrupt};
use clap::{Args, Subcommand, ValueEnum};
use sparing_model::{Architecture, AttentionPlan, Batch, HeadKind, Sequence, Wanted};
use std::path::PathBuf;

/// Measures latency and throughput by batch, length, precision and threads
///
/// Every combination is timed once per round, the order drawn anew each round, so that a machine that slows down or
/// speeds up in between touches all of them alike. Inputs are token ids, all different; there is no padding.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing bench --shape bert-base               a published shape, nothing downloaded
  sparing bench MODEL --batch 1,8,32 --length 32,128 --precision f32,bf16,int8
  sparing bench MODEL --threads 1,2,4 -o md     a table for a README
  sparing bench MODEL --attention exact --attention graded:0.4
  sparing bench --shape minilm-l6 --length 4096 --batch 1 --attention exact --attention sign:128
  sparing bench MODEL --output hidden -o json   all rows of the last layer, no head; for scripts
  sparing bench attention --length 4096         mechanisms of attention instead of a model")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    instead: Option<Instead>,

    #[command(flatten)]
    model: ModelOrShapeArgs,

    /// Sequences per run
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8", value_parser = positive)]
    batch: Vec<usize>,

    /// Tokens per sequence [default: 128]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    length: Vec<usize>,

    /// Precisions: f32, bf16, int8, auto [default: what the model's plan says, else f32]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    precision: Vec<PrecisionArg>,

    /// Threads; 0 means all cores
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", value_parser = threads)]
    threads: Vec<usize>,

    /// How values are computed, as in `sparing run`; may be given several times [default: what the model's plan says]
    #[arg(long, value_name = "HOW", value_parser = attention::plan)]
    attention: Vec<AttentionPlan>,

    /// The calibration to use [default: calibration.safetensors in the model directory]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,

    /// Timed runs of every combination
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = positive)]
    repeats: usize,

    /// What is computed: head, what the model is used for (language models: one row per sequence); hidden, the last
    /// hidden state of every token
    #[arg(long, value_enum, value_name = "WHAT", default_value = "head")]
    output: Output,

    /// Format of the result
    #[arg(short = 'o', long = "format", value_enum, value_name = "FORMAT", default_value = "table")]
    format: Format,

    /// Seed of the order of runs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Answer requests on standard input instead: see bench/
    #[arg(long, hide = true)]
    worker: bool,
}

/// What else can be measured.
#[derive(Debug, Subcommand)]
enum Instead {
    Attention(Box<AttentionArgs>),
}

/// What a run computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// What the head answers.
    #[value(alias = "classifier")]
    Head,
    /// The last hidden state of every token.
    #[value(alias = "encoder")]
    Hidden,
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Output::Head => "head",
            Output::Hidden => "hidden",
        }
    }
}

/// How the result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Format {
    Table,
    Md,
    Csv,
    Json,
}

impl BenchArgs {
    /// The machine options of one combination.
    fn machine(&self, precision: Option<PrecisionArg>, threads: usize) -> MachineArgs {
        MachineArgs { threads, precision }
    }

    /// Ways to compute values asked for; `None` stands for the plan's.
    fn attentions(&self) -> Vec<Option<AttentionPlan>> {
        if self.attention.is_empty() { vec![None] } else { self.attention.iter().cloned().map(Some).collect() }
    }

    /// Precisions asked for; `None` stands for the plan's.
    fn precisions(&self) -> Vec<Option<PrecisionArg>> {
        if self.precision.is_empty() { vec![None] } else { self.precision.iter().copied().map(Some).collect() }
    }
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(Instead::Attention(args)) = &args.instead {
        return lra::attention(args);
    }
    if args.worker {
        return worker::serve(args);
    }
    interrupt::watch();
    let model = args.model.open_for(&args.length)?;
    let lengths = lengths(&model.architecture, &args.length)?;
    check_tokens(&args.batch, &lengths)?;
    let sweep = measure::Sweep::compile(args, &lengths, &model)?;
    let rows = sweep.measure(args.repeats, args.seed)?;
    let report = report::Report::new(args, rows);
    report.print(args.format)?;
    interrupt::check()
}

/// Tokens of the largest batch. queries, keys and values of BERT-base alone take 10 GB for so many.
const MOST_TOKENS: usize = 1 << 20;

/// A batch of different inputs: ids `(i * 7919 + 13) mod 30000`, which all peers are given too.
pub fn batch_of(architecture: &Architecture, batch: usize, length: usize, output: Output) -> Batch {
    let vocabulary = architecture.embeddings.vocabulary.clamp(1, 30_000) as u64;
    let id = |i: u64| ((i * 7919 + 13) % vocabulary) as u32;
    let sequence = |b: usize| {
        let first = (b * length) as u64;
        Sequence { ids: (first..first + length as u64).map(id).collect(), types: Vec::new() }
    };
    let wanted = match (output, architecture.head.kind) {
        (Output::Hidden, _) => Wanted::Hidden,
        // A language model is asked for one row: the next token, or the masked one.
        (Output::Head, HeadKind::CausalLm | HeadKind::MaskedLm) => Wanted::Rows(vec![vec![length - 1]; batch]),
        (Output::Head, _) => Wanted::Head,
    };
    Batch { sequences: (0..batch).map(sequence).collect(), wanted }
}

/// The lengths asked for, or 128 as far as the model takes it.
pub fn lengths(architecture: &Architecture, asked: &[usize]) -> Result<Vec<usize>, Failure> {
    if asked.is_empty() {
        return Ok(vec![architecture.max_tokens.map_or(128, |most| most.min(128))]);
    }
    asked.iter().try_for_each(|&length| check_length(architecture, length))?;
    Ok(asked.to_vec())
}

/// Refuses batches that few memories hold, before anything is compiled.
fn check_tokens(batches: &[usize], lengths: &[usize]) -> Result<(), Failure> {
    let largest = |numbers: &[usize]| numbers.iter().copied().max().unwrap_or(0);
    let (batch, length) = (largest(batches), largest(lengths));
    if batch.saturating_mul(length) > MOST_TOKENS {
        let why = format!("with {length} tokens each, more than the {MOST_TOKENS} tokens that run at a time");
        return Err(Failure::Usage(format!("--batch {batch}: {why}; give less of either")));
    }
    Ok(())
}

/// Refuses what the model cannot take, before anything is compiled.
fn check_length(architecture: &Architecture, length: usize) -> Result<(), Failure> {
    match architecture.max_tokens {
        Some(most) if length > most => {
            Err(Failure::Usage(format!("--length {length}: the model takes at most {most} tokens")))
        }
        _ => Ok(()),
    }
}
