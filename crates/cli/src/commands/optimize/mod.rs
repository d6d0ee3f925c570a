//! `sparing optimize`: a faster, smaller or more accurate model within the loss that is accepted.

mod clock;
mod data;
mod finish;
#[cfg(feature = "train")]
mod recover;
mod saved;
mod searching;
mod show;
mod tutor;

use crate::args::{ModelArgs, PrecisionArg, positive, threads};
use crate::failure::Failure;
use crate::load::BUILTIN;
use crate::{console, files, interrupt, load};
use clap::{Args, ValueEnum};
use data::DataArgs;
use sparing_engine::Options as EngineOptions;
use sparing_model::{Model, Precision};
use sparing_optimize::{Economy, Settings, Strategy, bottom_first};
use sparing_report::Focus;
use sparing_tasks::{Bootstrap, Options};
use std::path::PathBuf;
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
  sparing optimize                                                    the built-in model on the built-in data
  sparing optimize MODEL --data mine.csv --text review --label stars --max-loss 1% --out fast   your own table
  sparing optimize MODEL --task sst2 --data glue --out fast           at most 0.5% worse, as fast as possible
  sparing optimize MODEL --task mrpc --data glue --out small --focus size --max-loss 1%
  sparing optimize MODEL --task rte --data glue --out f32 --economies blocks,heads,width,tokens   all in f32
  sparing optimize MODEL --task sst2 --data glue --out paper --strategy paper   the published method
  sparing optimize MODEL --task mrpc --data glue --out tuned --recover --device cuda   train in between, and go further

After Ctrl-C the best model so far is written; after that or a kill, the same command with --resume goes on.

Exit codes: 0 a model was saved and measured, even if the search was stopped or a training failed (report.json and
--json: `ended` is whole, stopped or failed; `verdict` is within if it keeps the budget), 1 error, 2 wrong usage, 130
interrupted before anything was found.")]
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

    /// What matters most
    #[arg(long, value_enum, value_name = "FOCUS", default_value = "speed")]
    focus: FocusArg,

    /// Share of the score that may be lost, such as 0.5%
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

    /// Measure what is in --out, and print that
    #[arg(long, hide = true)]
    measure: bool,
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
    let start = std::time::Instant::now();
    if !args.measure {
        free(args)?;
        tutor::check(&args.tutor)?;
    }
    // What can be wrong with the data is told before a large model is read.
    let data =
        args.data.read(args.model.name() == BUILTIN, args.seed).map_err(|failure| args.or_no_directory(failure))?;
    let mut model = args.model.open_sound()?;
    let came = args.precision.map(PrecisionArg::resolve).or(model.plan.precision);
    model.plan.precision = came.or(Some(Precision::F32));
    if came != Some(Precision::Int8) {
        model.plan.bf16.clear();
    }
    if args.measure {
        return saved::measure(args, &model, &data);
    }
    args.check_menu()?;
    #[cfg(feature = "train")]
    let rows = args.tutor.recover.then(|| args.data.train(&args.tutor, args.seed)).transpose()?;
    #[cfg(feature = "train")]
    if let Some(rows) = rows.as_ref().filter(|rows| data::alike(rows, &data.search) || data::alike(rows, &data.unseen))
    {
        let why = "these rows are searched or reported with; training needs others";
        return Err(Failure::Usage(format!("--train {}: {why}", rows.source)));
    }
    // Nobody wants to hear of it after the search.
    let head = &model.architecture.head;
    data.unseen.gold(head.kind, &head.labels, &mut vec![])?;
    #[cfg(feature = "train")]
    rows.as_ref().map(|rows| rows.gold(head.kind, &head.labels, &mut vec![])).transpose()?;
    for note in &data.search.notes {
        console::note(note);
    }
    let settings = args.settings(&model);
    #[cfg(feature = "train")]
    let elsewhere = tutor::elsewhere(&args.tutor)?;
    #[cfg(feature = "train")]
    let elsewhere = elsewhere.as_deref();
    #[cfg(not(feature = "train"))]
    let elsewhere = None;
    let work = searching::Work::prepare(args, &model, &data, &settings, elsewhere).inspect_err(|failure| {
        if matches!(failure, Failure::Interrupted) {
            console::note("nothing was found yet, and nothing is written");
        }
    })?;
    let score = work.judge.own().score;
    if work.judge.metric().higher_is_better() && (score.is_nan() || score <= 0.0) {
        let (rows, name) = (&data.search.source, work.judge.metric().name());
        let why =
            "there is nothing to keep; do its labels and these belong together, and are --text and --label right?";
        return Err(Failure::new(format!(
            "{rows}: the model as it came has {name} {score:.4} on searched rows: {why}"
        )));
    }
    #[cfg(not(feature = "train"))]
    let rows: Option<sparing_tasks::Dataset> = None;
    let read: Vec<_> = [&data.search, &data.calibration].into_iter().chain(&rows).collect();
    let marks = searching::marks(&model, &read)?;
    #[cfg(feature = "train")]
    let mut found = match &rows {
        Some(rows) => recover::search(args, &data, rows, &settings, &work, &marks)?,
        None => work.search(args, &settings, &marks, None)?,
    };
    #[cfg(not(feature = "train"))]
    let mut found = work.search(args, &settings, &marks, None)?;
    work.lighten(&settings, &mut found)?;
    let report = finish::finish(args, &data, &settings, &work, found, start)?;
    show::show(args, &report)
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

    /// Refuses economies that nothing would come of.
    fn check_menu(&self) -> Result<(), Failure> {
        let (focus, strategy) = (self.focus(), self.strategy());
        let idle: Vec<&str> = self.economies.iter().filter(|e| !e.suits(focus, strategy)).map(|e| e.name()).collect();
        match idle.is_empty() {
            true => Ok(()),
            false => Err(Failure::Usage(format!(
                "--economies {}: nothing comes of it with this focus and strategy; bits are for --focus size, precision for speed, keys for speed without --strategy top-layers, tokens, merge and values for speed with --strategy cost",
                idle.join(",")
            ))),
        }
    }

    fn settings(&self, model: &Model) -> Settings {
        let (focus, strategy) = (self.focus(), self.strategy());
        let usual = || Economy::ALL.into_iter().filter(|economy| economy.is_usual()).collect();
        let asked = if self.economies.is_empty() { usual() } else { self.economies.clone() };
        let menu = asked.into_iter().filter(|economy| economy.suits(focus, strategy)).collect();
        // Few and short layers have few neurons to group.
        let width = model.architecture.layers.iter().flat_map(|l| &l.ffns).map(|f| f.up.outputs).max().unwrap_or(1);
        Settings {
            focus,
            budget: self.max_loss,
            strategy,
            menu,
            group: self.group.unwrap_or(strategy.group()).min(width.div_ceil(4).max(1)),
            bottom_first: match self.from {
                Some(end) => end == EndArg::Bottom,
                None => bottom_first(model.architecture.head.kind),
            },
            most_rows: self.most_rows,
            seed: self.seed,
            trials: self.trials,
            last_steps: !self.tutor.recover,
        }
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

/// Refuses to lose anything.
fn free(args: &OptimizeArgs) -> Result<(), Failure> {
    if args.out.file_name().is_none() {
        return Err(Failure::Usage(format!("--out {}: give a directory's name", args.out.display())));
    }
    if overwrites_its_source(args) {
        let why = "the model to optimise is there, and would be lost; give another directory";
        return Err(Failure::Usage(format!("--out {}: {why}", args.out.display())));
    }
    // One that was stopped goes on, and one that was stopped while its result was being measured too.
    let goes_on = args.resume && args.journal().exists();
    if args.resume && !goes_on && args.out.exists() && !args.overwrite {
        return Err(Failure::new(format!(
            "--resume: there is no search to go on with beside {}; what is there is finished",
            args.out.display()
        )));
    }
    files::free(&args.out, args.overwrite || goes_on)
}

/// Whether writing the result would remove the model that it is made from.
fn overwrites_its_source(args: &OptimizeArgs) -> bool {
    let source = Some(args.model.name()).filter(|name| *name != BUILTIN);
    let source = source.and_then(|name| std::fs::canonicalize(name).ok());
    // A directory is replaced with all that is in it.
    source.zip(std::fs::canonicalize(&args.out).ok()).is_some_and(|(source, out)| source.starts_with(out))
}

/// `0.5%`; `0.005` too, as long as nobody can have meant percent.
fn share(text: &str) -> Result<f64, String> {
    let expected = "a share below 100% is expected, such as 0.5%";
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| expected.to_string());
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => 0.01 * number(percent)?,
        None => match number(text)? {
            share if share >= 0.1 => {
                return Err(format!("{text}% or {}%? Write it with a percent sign", 100.0 * share));
            }
            share => share,
        },
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(expected.into()) }
}

fn economy(text: &str) -> Result<Economy, String> {
    let names = Economy::ALL.map(Economy::name);
    let found = Economy::ALL.into_iter().find(|economy| economy.name() == text.trim());
    found.ok_or_else(|| match text.trim() {
        "ma" | "functions" | "softmax" | "relu" | "norm" | "norms" | "power_norm" | "clip" => {
            "a model must learn to do without a function, so it is not searched for; see sparing train transfer"
                .to_string()
        }
        _ => format!("there are {}", names.join(", ")),
    })
}

/// What to call the model.
fn name(args: &OptimizeArgs) -> String {
    load::short_name(args.model.name())
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn half_a_percent_is_not_half() {
        assert_eq!(["0.5%", "0", "0.005", " 20 %"].map(|text| share(text).unwrap()), [0.005, 0.0, 0.005, 0.2]);
        for (text, said) in [
            ("0.5", "0.5% or 50%"),
            ("0.1", "0.1% or 10%"),
            ("1", "1% or 100%"),
            ("100%", "below"),
            ("-1%", "below"),
            ("x", "such as"),
        ] {
            let told = share(text).unwrap_err();
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}
