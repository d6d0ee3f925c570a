//! `sparing optimize`: a faster, smaller or more accurate model within the loss that is accepted.

mod again;
mod asked;
mod choose;
mod clock;
mod data;
mod finish;
mod found;
mod notes;
mod place;
#[cfg(feature = "train")]
mod recover;
mod resume;
mod saved;
mod searching;
mod show;
mod teller;
mod tutor;

use crate::args::{ModelArgs, PrecisionArg, positive, threads};
use crate::failure::Failure;
use crate::load::BUILTIN;
use crate::{console, interrupt, load};
use asked::{economy, share};
use clap::{Args, ValueEnum};
use data::DataArgs;
use place::Begun;
use sparing_engine::Options as EngineOptions;
use sparing_model::{Model, Precision};
use sparing_optimize::{Economy, Strategy, Thresholds};
use sparing_report::Focus;
use sparing_tasks::{Bootstrap, Options};
use std::path::{Path, PathBuf};
use tutor::TutorArgs;

/// Makes a model faster, smaller or more accurate, within the loss of accuracy that you accept
///
/// Looks for parts of a fine-tuned model that its task does not need: blocks, heads, neurons, tokens, bits. What is left
/// makes up for what is gone, every combination is tried on rows that are searched with, and the result is scored on rows that
/// the search never saw, by a process that knows nothing but the saved directory.
///
/// Leaves a directory for sparing run, eval and serve, with report.html, report.json and a model card in it. Other programs cannot read
/// its weights once something was removed from them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing optimize                                              the built-in model and data
  sparing optimize MODEL --data mine.csv --text review --label stars --max-loss 1% --out fast
  sparing optimize MODEL --task sst2 --data glue --out fast     a GLUE task, at most 0.5% worse
  sparing optimize MODEL --data mine.csv --out small --focus size --max-loss 1%
  sparing optimize MODEL --data mine.csv --out f32 --economies blocks,heads,width,tokens
  sparing optimize MODEL --data mine.csv --out paper --strategy paper      the published method
  sparing optimize MODEL --data mine.csv --out tuned --recover --train more.csv --device cuda

After Ctrl-C the best model so far is written; after that or a kill, the same command with --resume
goes on. If the machine was busy, the same command with --again measures the result once more.

Exit codes: 0 a model was saved and measured, even if the search was stopped or a training failed
(report.json and --json: `ended` is whole, stopped or failed; `verdict` is within if it keeps the
budget), 1 error, 2 wrong usage, 130 interrupted before anything was found.")]
pub struct OptimizeArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Directory for the optimised model
    #[arg(long, value_name = "DIR", default_value = "optimized")]
    out: PathBuf,

    /// Replace the model in --out (a directory that holds anything else is left alone)
    #[arg(long)]
    overwrite: bool,

    /// Go on with a search that was stopped
    #[arg(long)]
    resume: bool,

    /// Search nothing: measure what is in --out once more and renew its report. For the same command as before, when a machine that was busy
    /// no longer is; nothing comes of its --overwrite or --resume then
    #[arg(long)]
    again: bool,

    /// What matters most
    #[arg(long, value_enum, value_name = "FOCUS", default_value = "speed")]
    focus: FocusArg,

    /// Share of the score that may be lost, such as 0.5%. With --focus accuracy nothing may be lost on searched rows, and this is how much
    /// doubt there may be and what the report judges unseen ones by
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = share)]
    max_loss: f64,

    /// What may be economised: blocks, heads, width, tokens, merge, keys, values, precision, bits [default: all but merge
    /// that suit the focus and can pay at the lengths of the data]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = economy)]
    economies: Vec<Economy>,

    /// How plans are searched for
    #[arg(long, value_enum, value_name = "STRATEGY", default_value = "cost")]
    strategy: StrategyArg,

    /// Neurons of a weight group [default: 128 with --strategy cost, else 256, as published]
    #[arg(long, value_name = "N", value_parser = positive)]
    group: Option<usize>,

    /// Strategies that go layer by layer begin with this end of the network [default: bottom for language models, whose upper layers
    /// matter most, else top]
    #[arg(long, value_enum, value_name = "END")]
    from: Option<EndArg>,

    /// Strategies that go from element to element: it may be removed if the loss stays below so many times the model's own, and
    /// approximated below so many [default: 1.005,1.02, as published]
    #[arg(long, value_name = "PRUNE,APPROXIMATE", value_parser = asked::thresholds)]
    thresholds: Option<Thresholds>,

    /// Accept a step only if most rows do not get worse by it
    #[arg(long)]
    most_rows: bool,

    /// Try at most this many candidates; seeing what each part is worth comes before and does not count
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = positive)]
    trials: usize,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    tutor: TutorArgs,

    /// Precision of the model as it comes [default: as its plan says, else f32]
    #[arg(long, value_enum, value_name = "PRECISION", help_heading = "Machine")]
    precision: Option<PrecisionArg>,

    /// Texts of a request that is timed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, help_heading = "Machine")]
    batch: usize,

    /// Threads to compute with; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads, help_heading = "Machine")]
    threads: usize,

    /// Seed of everything drawn
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,

    /// Measure what was saved there, and print that
    #[arg(long, hide = true, value_name = "DIR")]
    measure: Option<PathBuf>,
}

/// What matters most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FocusArg {
    /// The least time within the accepted loss
    Speed,
    /// The fewest bytes within the accepted loss
    Size,
    /// The least loss; smaller and faster where that costs nothing
    Accuracy,
}

/// How plans are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StrategyArg {
    /// By what a step saves for what it changes, the rest making up for it
    Cost,
    /// The published method: a queue of elements against two thresholds
    Paper,
    /// Whole layers from the top
    TopLayers,
    /// The queue, ordered by the slope of the loss
    Taylor,
    /// The queue in random order
    Random,
    /// The queue without granularity
    Flat,
    /// The queue with thresholds that widen
    Adaptive,
}

/// An end of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EndArg {
    /// The last layer
    Top,
    /// The first layer
    Bottom,
}

/// Runs the command.
pub fn optimize(args: &OptimizeArgs) -> Result<(), Failure> {
    interrupt::watch();
    if let Some(place) = &args.measure {
        let (data, model) = given(args)?;
        return saved::measure(args, place, &model, &data);
    }
    if args.again {
        return again::again(args);
    }
    let begun = Begun::now(args)?;
    args.check_idle()?;
    tutor::check(&args.tutor)?;
    let (mut data, model) = given(args)?;
    args.check_menu(&model)?;
    #[cfg(feature = "train")]
    let rows = args.tutor.recover.then(|| args.train_rows(&model, &mut data)).transpose()?;
    // Nobody wants to hear of it after the search.
    let head = &model.architecture.head;
    let mut notes = Vec::new();
    data.unseen.gold(head.kind, &head.labels, &mut notes)?;
    #[cfg(feature = "train")]
    rows.as_ref().map(|rows| rows.gold(head.kind, &head.labels, &mut vec![])).transpose()?;
    notes.extend(lost_before(args.model.name()));
    data.search.notes.iter().chain(&notes).for_each(|note| console::note(note));
    data.unseen.notes.extend(notes);
    let settings = args.settings(&model);
    #[cfg(feature = "train")]
    let elsewhere = tutor::elsewhere(&args.tutor)?;
    #[cfg(feature = "train")]
    let elsewhere = elsewhere.as_deref();
    #[cfg(not(feature = "train"))]
    let elsewhere = None;
    #[cfg(not(feature = "train"))]
    let rows: Option<sparing_tasks::Dataset> = None;
    let read: Vec<_> = [&data.search, &data.calibration].into_iter().chain(&rows).collect();
    let mut journal = resume::journal(args, &settings, &resume::marks(&model, &read)?)?;
    let _held = journal.held();
    let prepared = searching::Work::prepare(args, &model, &data, &settings, elsewhere, &mut journal)
        .and_then(|work| has_something_to_keep(&work, &data).map(|()| work))
        .and_then(|work| Ok((finish::as_it_came(args, &data, &work)?, work)));
    let (before, work) = prepared.inspect_err(|failure| {
        if journal.is_empty() {
            let _ = std::fs::remove_file(args.journal());
        }
        if matches!(failure, Failure::Interrupted) {
            console::note("nothing was found yet, and nothing is written");
        }
    })?;
    let searched = || {
        #[cfg(feature = "train")]
        let mut found = match &rows {
            Some(rows) => recover::search(args, &data, rows, &settings, &work, journal)?,
            None => work.search(&settings, journal, None)?,
        };
        #[cfg(not(feature = "train"))]
        let mut found = work.search(&settings, journal, None)?;
        interrupt::answer(
            "the search is over, and its result is being finished; Ctrl-C again leaves at once without it",
        );
        work.lighten(&settings, &mut found)?;
        finish::finish(args, &data, &settings, &work, found, &before, &begun)
    };
    let (report, place) = searched().inspect_err(|failure: &Failure| {
        if !matches!(failure, Failure::Interrupted) && args.journal().exists() {
            console::note("what was tried is not lost: once that is mended, the same command with --resume goes on");
        }
    })?;
    show::show(args, &report, &place)
}

/// What it is about: rows, and the model as it comes.
fn given(args: &OptimizeArgs) -> Result<(data::Data, Model), Failure> {
    // What can be wrong with the files is told before a large model is read.
    let rows = args.data.read(args.model.name() == BUILTIN).map_err(|failure| args.or_no_directory(failure))?;
    let mut model = match args.measure {
        Some(_) => load::read(args.model.name(), args.model.head)?,
        None => args.model.open_sound()?,
    };
    let came = args.precision.map(PrecisionArg::resolve).or(model.plan.precision);
    model.plan.precision = came.or(Some(Precision::F32));
    if came != Some(Precision::Int8) {
        model.plan.bf16.clear();
    }
    let calibrates = args.strategy() == Strategy::Cost;
    Ok((args.data.divide(rows, model.architecture.head.kind, calibrates, args.seed)?, model))
}

/// What was lost when the model was optimised before, as its report has it: losses add up.
fn lost_before(model: &str) -> Option<String> {
    let directory = Some(Path::new(model)).filter(|_| model != BUILTIN)?;
    let text = std::fs::read_to_string(directory.join("report.json")).ok()?;
    let before = sparing_report::Report::parse(&text).ok()?;
    let change = match 100.0 * before.lost? {
        lost if lost.abs() < 0.05 => "lost nothing".to_string(),
        lost if lost > 0.0 => format!("lost {lost:.1}%"),
        gained => format!("gained {:.1}%", -gained),
    };
    let rows = "of its score on unseen rows then, by the report that lies beside it";
    Some(format!("{model} was optimised before and {change} {rows}: this search goes by what is left"))
}

/// Refuses a model whose answers are worth nothing on the rows that are searched with.
fn has_something_to_keep(work: &searching::Work<'_>, data: &data::Data) -> Result<(), Failure> {
    let (metric, score, rows) = (work.judge.metric(), work.judge.own().score, work.judge.rows());
    let usual = work.judge.most_frequent().filter(|_| metric == sparing_tasks::Metric::Accuracy);
    let label = |class: usize| work.shop.model.architecture.head.labels.get(class).map_or("", String::as_str);
    // Some models are little better than that; nobody is clearly worse but by mistake.
    let clearly = 4.0 * (0.25 / rows.max(1) as f64).sqrt();
    let beside = match usual {
        Some((class, share)) if score + clearly < share => {
            format!(", less than always answering {:?} ({share:.4})", label(class))
        }
        _ if metric.higher_is_better() && (score.is_nan() || score <= 0.0) => String::new(),
        _ => return Ok(()),
    };
    let (source, name) = (&data.search.source, metric.name());
    let why = "there is nothing to keep; do its labels and these belong together (else --labels theirs=its), and are --text and --label right?";
    Err(Failure::new(format!("{source}: the model as it came has {name} {score:.4} on searched rows{beside}: {why}")))
}

impl OptimizeArgs {
    fn focus(&self) -> Focus {
        match self.focus {
            FocusArg::Speed => Focus::Speed,
            FocusArg::Size => Focus::Size,
            FocusArg::Accuracy => Focus::Accuracy,
        }
    }

    fn strategy(&self) -> Strategy {
        match self.strategy {
            StrategyArg::Cost => Strategy::Cost,
            StrategyArg::Paper => Strategy::Paper,
            StrategyArg::TopLayers => Strategy::TopLayers,
            StrategyArg::Taylor => Strategy::Taylor,
            StrategyArg::Random => Strategy::Random,
            StrategyArg::Flat => Strategy::Flat,
            StrategyArg::Adaptive => Strategy::Adaptive,
        }
    }

    /// Rows to fine-tune with, for a model that can be.
    #[cfg(feature = "train")]
    fn train_rows(&self, model: &Model, data: &mut data::Data) -> Result<sparing_tasks::Dataset, Failure> {
        let trainable = sparing_train::check_head(model.architecture.head.kind);
        trainable.map_err(|e| Failure::Usage(format!("--recover: {e}")))?;
        let mut rows = self.data.train(&self.tutor, data, self.seed)?;
        let noted = rows.notes.len();
        rows.keep_scorable(model.architecture.head.kind)?;
        rows.notes.iter().skip(noted).for_each(|note| console::note(note));
        Ok(rows)
    }

    /// Wrong usage may come of a directory that is not there and so is taken for a name on the Hub.
    fn or_no_directory(&self, failure: Failure) -> Failure {
        let name = self.model.name();
        match failure {
            Failure::Usage(_) if name != BUILTIN && !std::path::Path::new(name).exists() => Failure::Usage(format!(
                "there is no directory {name} here; if it is a name on the Hub: {}",
                failure.message().unwrap_or("")
            )),
            other => other,
        }
    }

    fn engine(&self) -> EngineOptions {
        EngineOptions { threads: self.threads, ..EngineOptions::default() }
    }

    fn evaluation(&self) -> Options {
        let bootstrap = Bootstrap { seed: self.seed, ..Bootstrap::default() };
        Options { max_tokens: self.data.max_tokens, bootstrap, ..Options::default() }
    }

    /// Where the search keeps what it tried.
    fn journal(&self) -> PathBuf {
        self.hidden("search.jsonl")
    }

    /// Where trainings are kept until the result is saved.
    fn rounds(&self) -> PathBuf {
        self.hidden("rounds")
    }

    /// A path beside the result that nobody sees.
    fn hidden(&self, what: &str) -> PathBuf {
        let name = self.out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.out.with_file_name(format!(".{name}.{what}"))
    }
}

/// What to call the model.
fn name(args: &OptimizeArgs) -> String {
    load::short_name(args.model.name())
}
