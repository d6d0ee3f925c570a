//! `sparing calibrate`: what a model's values look like on real texts, for samplers that want to know.

use crate::args::{TextColumnArgs, positive, split, task, threads};
use crate::console::Out;
use crate::failure::Failure;
use crate::{interrupt, load, progress};
use clap::Args;
use sparing_engine::Calibrator;
use sparing_model::{Batch, CALIBRATION_FILE, Calibration, Error, Executor, Model, Outputs, Wanted};
use sparing_tasks::{Dataset, Options, Progress, Select, Split, Task, visit};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Notes how a model's values vary on real texts: for --attention graded, calibrated, systematic and mean
///
/// Runs texts through the exact model and keeps, for every layer, the mean and the spread of what values are computed from,
/// and each head's directions of most variance. A few hundred texts are enough; labels are not needed. Take texts that are
/// not scored later: of a task, the train part is read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing calibrate MODEL --task sst2 --data glue          the train part; the file goes into MODEL
  sparing calibrate MODEL --data mine.csv --text review --out mine.safetensors
  sparing eval MODEL --task sst2 --attention graded:0.4    uses it")]
pub struct CalibrateArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision
    #[arg(value_name = "MODEL")]
    model: String,

    /// The task whose texts are read
    #[arg(long, value_name = "TASK", value_parser = task)]
    task: Option<Task>,

    /// The task's folder or file; without --task, your own table (.csv, .tsv, .jsonl, .json, .parquet)
    #[arg(long, value_name = "PATH")]
    data: PathBuf,

    /// Part of the task: train, dev or test
    #[arg(long, value_name = "SPLIT", default_value = "train", value_parser = split)]
    split: Split,

    #[command(flatten)]
    columns: TextColumnArgs,

    /// Read this many texts, drawn at random
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    samples: usize,

    /// Seed of what is drawn
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// The file to write [default: calibration.safetensors in the model directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Cut texts to this many tokens, special tokens included [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,

    /// Threads to compute with; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
}

/// Feeds whatever it is to run to the calibrator.
struct Watching(Mutex<Calibrator>);

impl Executor for Watching {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(&batch.sequences)?;
        let rows = |number: usize| match &batch.wanted {
            Wanted::Rows(rows) => rows[number].len(),
            Wanted::Head | Wanted::Hidden => 1,
        };
        Ok(Outputs { width: 1, sequences: (0..batch.sequences.len()).map(|i| vec![0.0; rows(i)]).collect() })
    }
}

/// Runs the command.
pub fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    interrupt::watch();
    let select = Select { sample: Some(args.samples), seed: args.seed, ..Select::default() };
    let dataset = match args.task {
        Some(task) => Dataset::read(task, &args.data, args.split, &select)?,
        None => Dataset::table(&args.data, &args.columns.columns(), &select)?,
    };
    let name = args.model.as_str();
    let out = match &args.out {
        Some(out) => out.clone(),
        None if Path::new(name).is_dir() => Path::new(name).join(CALIBRATION_FILE),
        None => return Err(Failure::Usage(format!("{name} is not a directory to write to; give --out FILE"))),
    };
    let model = load::open(name, None)?;
    if let Some(why) = model.architecture.no_shares() {
        return Err(Failure::new(format!("{name}: {why}; there is nothing to calibrate")));
    }
    let options = Options { max_tokens: args.max_tokens, context: args.max_tokens, ..Options::default() };
    let calibration = collect(&model, &dataset, &options, args.threads)?;
    calibration.write(&out)?;
    let mut lines = Out::new();
    let (tokens, layers) = (calibration.tokens, calibration.layers.len());
    lines.line(&format!("{}: {layers} layers from {tokens} tokens of {}", out.display(), dataset.source))?;
    // How much of the values' variance few directions hold is what graded lives on.
    for (number, layer) in calibration.layers.iter().enumerate() {
        if layer.eigenvalues.is_empty() {
            lines.line(&format!("layer {number}: no heads are left"))?;
            continue;
        }
        let share = kept(&layer.eigenvalues, layer.basis.len() / layer.eigenvalues.len());
        lines.line(&format!(
            "layer {number}: a quarter of the directions holds {:.0}% of the variance",
            100.0 * share
        ))?;
    }
    lines.flush()
}

/// Runs a dataset's texts through the exact model and notes what its values are computed from.
pub fn collect(model: &Model, dataset: &Dataset, options: &Options, threads: usize) -> Result<Calibration, Failure> {
    let encoder = model.tokenizer()?;
    let watching = Watching(Mutex::new(Calibrator::new(model, threads)?));
    let bar = progress::bar(0, "texts");
    let mut step = |p: &Progress| {
        bar.set_length(p.total as u64);
        bar.set_position(p.done as u64);
        !interrupt::asked()
    };
    let complete = visit(&watching, encoder, &model.architecture, dataset, options, &mut step);
    bar.finish_and_clear();
    interrupt::check()?;
    if !complete? {
        return Err(Failure::Interrupted);
    }
    Ok(watching.0.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?)
}

/// Share of the variance in the first quarter of every head's directions.
fn kept(eigenvalues: &[f32], width: usize) -> f64 {
    let sum = |values: &[f32]| values.iter().map(|v| *v as f64).sum::<f64>();
    let first: f64 = eigenvalues.chunks(width.max(1)).map(|head| sum(&head[..head.len().div_ceil(4)])).sum();
    first / sum(eigenvalues).max(1e-30)
}
