//! `sparing optimize`: a faster, smaller or more accurate model within the loss that is accepted.

mod clock;
mod data;
mod finish;
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
use clap::{Args, ValueEnum};
use data::DataArgs;
use place::Begun;
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

    /// Share of the score that may be lost, such as 0.5%. With --focus accuracy nothing may be lost on searched rows, and this is what the
    /// report judges unseen ones by
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
    let begun = Begun::now(args)?;
    args.check_idle()?;
    tutor::check(&args.tutor)?;
    #[cfg_attr(not(feature = "train"), allow(unused_mut))]
    let (mut data, model) = given(args)?;
    args.check_menu(&model)?;
    #[cfg(feature = "train")]
    let rows = args.tutor.recover.then(|| args.train_rows(&model, &mut data)).transpose()?;
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
    #[cfg(feature = "train")]
    let mut found = match &rows {
        Some(rows) => recover::search(args, &data, rows, &settings, &work, journal)?,
        None => work.search(&settings, journal, None)?,
    };
    #[cfg(not(feature = "train"))]
    let mut found = work.search(&settings, journal, None)?;
    interrupt::answer("the search is over, and its result is being finished; Ctrl-C again leaves at once without it");
    work.lighten(&settings, &mut found)?;
    let (report, place) = finish::finish(args, &data, &settings, &work, found, &before, &begun)?;
    show::show(args, &report, &place)
}

/// What it is about: rows, and the model as it comes.
fn given(args: &OptimizeArgs) -> Result<(data::Data, Model), Failure> {
    // What can be wrong with the files is told before a large model is read.
    let rows = args.data.read(args.model.name() == BUILTIN).map_err(|failure| args.or_no_directory(failure))?;
    let mut model = args.model.open_sound()?;
    let came = args.precision.map(PrecisionArg::resolve).or(model.plan.precision);
    model.plan.precision = came.or(Some(Precision::F32));
    if came != Some(Precision::Int8) {
        model.plan.bf16.clear();
    }
    let calibrates = args.strategy() == Strategy::Cost;
    Ok((args.data.divide(rows, model.architecture.head.kind, calibrates, args.seed)?, model))
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
    let why = "there is nothing to keep; do its labels and these belong together, and are --text and --label right?";
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

    /// Refuses options that nothing would come of.
    fn check_idle(&self) -> Result<(), Failure> {
        let (strategy, tutor) = (self.strategy(), &self.tutor);
        let has_end = !matches!(strategy, Strategy::Cost | Strategy::Random | Strategy::TopLayers);
        let in_rounds = strategy == Strategy::Cost;
        for (is_idle, why) in [
            (
                self.from.is_some() && !has_end,
                "--from: this strategy has an order of its own; it is for paper, taylor, flat and adaptive",
            ),
            (
                tutor.analysis_rows.is_some() && tutor.analysis == tutor::AnalysisArg::Evaluate,
                "--analysis-rows: these are for --analysis finetune, which trains trials; evaluation has --search-rows",
            ),
            (tutor.rounds.is_some() && !in_rounds, "--rounds: this strategy trains once, at its end; leave it out"),
        ] {
            if is_idle {
                return Err(Failure::Usage(why.into()));
            }
        }
        Ok(())
    }

    /// Refuses economies that nothing would come of.
    fn check_menu(&self, model: &Model) -> Result<(), Failure> {
        let running: Vec<&str> = self.economies.iter().filter(|e| e.is_running()).map(|e| e.name()).collect();
        if let Some(why) = model.architecture.no_shares().filter(|_| !running.is_empty()) {
            return Err(Failure::Usage(format!("--economies {}: {why}; leave it out", running.join(","))));
        }
        let (focus, strategy) = (self.focus(), self.strategy());
        let asked = |economy: Economy| self.economies.contains(&economy);
        let small = asked(Economy::Heads) || asked(Economy::Width);
        if strategy == Strategy::TopLayers && small && !asked(Economy::Blocks) {
            let why = "--strategy top-layers removes whole blocks or nothing; name blocks too";
            return Err(Failure::Usage(format!("--economies: {why}")));
        }
        if strategy != Strategy::Cost && asked(Economy::Keys) && !asked(Economy::Blocks) && !asked(Economy::Heads) {
            let why = "this strategy chooses keys where it looked for blocks or heads to remove; name those too";
            return Err(Failure::Usage(format!("--economies keys: {why}")));
        }
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
            group: self.group.unwrap_or_else(|| strategy.group().min(width.div_ceil(4).max(1))),
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

/// `0.5%`; `0.005` too, as long as nobody can have meant percent.
fn share(text: &str) -> Result<f64, String> {
    let expected = "a share below 100% is expected, such as 0.5%";
    let number = |text: &str| {
        text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| expected.to_string())
    };
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
            ("inf", "such as"),
            ("-inf%", "such as"),
            ("nan", "such as"),
        ] {
            let told = share(text).unwrap_err();
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}
