//! `sparing eval`: how well a model does a task, with what certainty and at what speed.

mod against;
mod certified;
mod certify;
mod guess;
mod predictions;
mod report;
mod rival;
mod running;

use crate::args::{ColumnArgs, MachineArgs, ModelArgs, positive, split, task};
use crate::attention::AttentionArgs;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::load::{self, BUILTIN};
use crate::{interrupt, progress};
use against::Against;
use certify::CertifyArgs;
use clap::Args;
use report::Summary;
use rival::{Ready, Rival};
use running::Running;
use sparing_engine::Engine;
use sparing_model::{Executor, Model};
use sparing_tasks::{Bootstrap, Dataset, Options, Progress, Report, Select, Split, Task};
use std::path::PathBuf;

/// Scores a model on a task: metrics with intervals, speed, agreement with the exact model
///
/// Tasks: cola, sst2, mrpc, stsb, qqp, mnli, mnli_mismatched, qnli, rte, wnli (GLUE's official files), squad, squad_v2,
/// language (perplexity of a text). Or your own table: give --data FILE and name its columns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing eval                                      the built-in model on SST-2's dev set
  sparing eval MODEL --task sst2                    the 872 sentences that come with the program
  sparing eval MODEL --task mrpc --data glue/MRPC   the task's folder, or the one above it
  sparing eval MODEL --data mine.csv --text review --label stars
  sparing eval MODEL --task sst2 --precision int8 --against f32
  sparing eval fast --data other.csv --against MODEL                is fast as good on other rows?
  sparing eval MODEL --task sst2 --attention graded:0.4             values where they matter
  sparing eval MODEL --task sst2 --precision int8 --certify 0.99    exact where int8 is unsure
  sparing eval MODEL --task squad --data dev-v1.1.json --limit 500 --predictions answers.jsonl")]
pub struct EvalArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// The task [default for the built-in model: sst2]
    #[arg(long, value_name = "TASK", value_parser = task)]
    task: Option<Task>,

    /// The task's folder or file; without --task, your own table (.csv, .tsv, .jsonl, .json, .parquet)
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Part of the dataset: train, dev or test
    #[arg(long, value_name = "SPLIT", default_value = "dev", value_parser = split)]
    split: Split,

    #[command(flatten)]
    columns: ColumnArgs,

    /// Take only the first N examples
    #[arg(long, value_name = "N", value_parser = positive)]
    limit: Option<usize>,

    /// Take N examples drawn at random
    #[arg(long, value_name = "N", value_parser = positive)]
    sample: Option<usize>,

    /// Seed of everything drawn: samples, masks, intervals
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Also compare with this precision's answers (f32 is the exact model), or with another model: are its scores better, or is it luck?
    #[arg(long, value_name = "PRECISION|MODEL", value_parser = rival::rival)]
    against: Option<Rival>,

    /// Write what came of every example, one JSON object per line
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Cut texts to this many tokens, special tokens included [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,

    /// Run texts together until they have this many tokens
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive)]
    batch_tokens: usize,

    /// Language modelling: how many tokens a window moves on [default: half a window]
    #[arg(long, value_name = "N", value_parser = positive)]
    stride: Option<usize>,

    #[command(flatten)]
    certify: CertifyArgs,

    #[command(flatten)]
    attention: AttentionArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs the command.
pub fn eval(args: &EvalArgs) -> Result<(), Failure> {
    interrupt::watch();
    if let Some(target) = args.certify.target()? {
        return certify::eval(args, target);
    }
    // What can be wrong with the data is told before a large model is read.
    let mut dataset = dataset(args)?;
    let model = args.model.open()?;
    dataset.keep_scorable(model.architecture.head.kind)?;
    let longest = model.architecture.longest_input();
    if let Some((asked, most)) = args.max_tokens.zip(longest).filter(|(asked, most)| asked > most) {
        console::note(&format!("--max-tokens {asked}: the model takes {most} at most; longer texts are cut there"));
    }
    let engine = Engine::compile(&model, &args.attention.apply(args.machine.options(), &model)?)?;
    let options = options(args);
    let rival = args.against.as_ref().map(|rival| Ready::new(rival, args, &model, &dataset)).transpose()?;
    let report = score(args, &engine, &model, &dataset, &options)?;
    let rival = rival.filter(|_| report.complete);
    let asked = rival.map(|rival| rival.ask((&model, &engine), &dataset, &report, &options)).transpose();
    // Whatever became of the other, this one's scores are there to be seen.
    let (against, failure) = match asked {
        Ok(against) => (against, None),
        Err(failure) => (None, Some(failure)),
    };
    let complete = report.complete && against.as_ref().is_none_or(Against::is_complete);
    let summary = Summary::new(name(args), &dataset, &engine, report, against);
    show(args, &summary, complete)?;
    failure.map_or(Ok(()), Err)
}

/// What to call the model.
fn name(args: &EvalArgs) -> String {
    load::short_name(args.model.name())
}

/// Runs an executor over the dataset and measures it.
fn score(
    args: &EvalArgs,
    executor: &dyn Executor,
    model: &Model,
    dataset: &Dataset,
    options: &Options,
) -> Result<Report, Failure> {
    let encoder = model.tokenizer()?;
    let mut watch = Watch::new(dataset.examples.len());
    let running = Running::new(executor, model, dataset, args.max_tokens, watch.is_shown());
    let mut step = |p: &Progress| watch.step(p, &running.score());
    let report = sparing_tasks::evaluate(&running, encoder, &model.architecture, dataset, options, &mut step);
    watch.end();
    let report = report.map_err(interrupt::told)?;
    for note in &report.notes {
        console::note(note);
    }
    if let Some(doubt) = guess::worse(&report, dataset, &model.architecture.head.labels) {
        console::warning(&doubt);
    }
    if let Some(path) = &args.predictions {
        predictions::write(path, dataset, &report, &model.architecture.head.labels)?;
    }
    Ok(report)
}

fn show(args: &EvalArgs, summary: &Summary, complete: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        out.pretty(summary)?
    } else {
        summary.print(&mut out)?
    }
    out.flush()?;
    if complete { Ok(()) } else { Err(Failure::Interrupted) }
}

fn dataset(args: &EvalArgs) -> Result<Dataset, Failure> {
    let select = Select { limit: args.limit, sample: args.sample, seed: args.seed };
    Ok(match (args.task, &args.data) {
        (Some(task), Some(path)) => Dataset::read(task, path, args.split, &select)?,
        (Some(task), None) => Dataset::builtin(task.name(), &select)?,
        (None, Some(path)) => Dataset::table(path, &args.columns.columns(), &select)?,
        (None, None) if args.model.name() == BUILTIN => Dataset::builtin(Task::Sst2.name(), &select)?,
        (None, None) => return Err(Failure::Usage("give --task or --data: what should be scored?".to_string())),
    })
}

fn options(args: &EvalArgs) -> Options {
    Options {
        max_tokens: args.max_tokens,
        tokens_per_batch: args.batch_tokens,
        bootstrap: Bootstrap { seed: args.seed, ..Bootstrap::default() },
        context: args.max_tokens,
        stride: args.stride,
        ..Options::default()
    }
}

/// A progress bar that also listens to Ctrl-C.
struct Watch(indicatif::ProgressBar);

impl Watch {
    fn new(examples: usize) -> Watch {
        Watch(progress::bar(examples as u64, "inputs"))
    }

    /// Whether anybody sees it.
    fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Shows how far we are; false after Ctrl-C.
    fn step(&mut self, p: &Progress, what: &str) -> bool {
        // A text may have several windows: the number of inputs is known only now.
        self.0.set_length(p.total as u64);
        self.0.set_position(p.done as u64);
        if p.seconds > 0.0 {
            self.0.set_message(format!("{what}{:.0} tokens/s", p.tokens as f64 / p.seconds));
        }
        !interrupt::asked()
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
