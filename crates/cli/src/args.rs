//! The command line, and the options that several commands share.

use crate::commands::{
    bench, calibrate, completions, eval, inspect, lra, optimize, quantize, run, serve, study, train,
};
use crate::failure::Failure;
use crate::load::{self, HeadArg};
use crate::shapes::Shape;
use crate::{console, machine};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sparing_engine::{Options, auto_precision};
use sparing_model::{Model, Precision};
use sparing_tasks::{Columns, Renames, Split, Task};

/// Headings and literals in bold, nothing garish.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Shown when there is nothing to do: short enough to be read.
pub const WELCOME: &str = "\
sparing makes Hugging Face Transformers cheaper at an accuracy you choose, proves it, and runs them fast on the CPU.

  sparing optimize                faster or smaller, at most 0.5% worse: searched, measured, with a report;
                                  your own: sparing optimize MODEL --data mine.csv --text review --label stars
  sparing run MODEL \"a text\"      classify, embed, fill in, answer, generate: whatever the model is made for
  sparing eval MODEL --task sst2  score with its interval, speed, agreement of bf16 and int8 with the exact model
  sparing inspect MODEL           parameters, FLOPs and time by part, as table and picture
  sparing bench MODEL             latency and throughput by batch, length, precision and threads
  sparing quantize MODEL          weights in 2 to 8 bits, and what that costs in accuracy
  sparing serve MODEL             HTTP: the routes of text-embeddings-inference and OpenAI, and a page to try it
  sparing study mca --model …     a published experiment done again, its numbers beside ours

MODEL is a directory in Hugging Face layout or a Hub id such as org/name. optimize, run, eval, inspect, bench and serve take
the model that comes with the program if none is given, which tells whether a review is positive:

  sparing run \"a joy from start to end\"

`sparing help COMMAND` explains one command.";

/// Makes Hugging Face Transformers cheaper at an accuracy you choose, proves it, and runs them fast on the CPU
#[derive(Debug, Parser)]
#[command(name = "sparing", version, styles = STYLES, max_term_width = 110)]
#[command(after_help = "\
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted.

Environment:
  SPARING_ISA=portable|avx2|avx512         forces an instruction set
  HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE     where the Hub and its cache are
  NO_COLOR                                 turns colour off")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::RunArgs),
    Eval(eval::EvalArgs),
    Inspect(inspect::InspectArgs),
    Bench(bench::BenchArgs),
    Calibrate(calibrate::CalibrateArgs),
    Optimize(Box<optimize::OptimizeArgs>),
    Quantize(quantize::QuantizeArgs),
    Serve(serve::ServeArgs),
    Study(study::StudyArgs),
    Train(Box<train::TrainArgs>),
    Lra(Box<lra::LraArgs>),
    Completions(completions::CompletionsArgs),
}

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision [default: builtin, MiniLM-L6 that
    /// tells whether a review is positive]
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,

    /// Use another head than the one the model names; its weights must be there
    #[arg(long, value_enum, value_name = "HEAD")]
    pub head: Option<HeadArg>,
}

impl ModelArgs {
    /// Reads the model.
    pub fn open(&self) -> Result<Model, Failure> {
        load::open(self.name(), self.head)
    }

    /// The same for work that takes long, see [`load::open_sound`].
    pub fn open_sound(&self) -> Result<Model, Failure> {
        load::open_sound(self.name(), self.head)
    }

    /// The model's name as it was given.
    pub fn name(&self) -> &str {
        self.model.as_deref().unwrap_or(load::BUILTIN)
    }
}

/// Which model, where random weights do as well.
#[derive(Debug, Args)]
pub struct ModelOrShapeArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision [default: builtin, MiniLM-L6 that
    /// tells whether a review is positive]
    #[arg(value_name = "MODEL", conflicts_with = "shape")]
    pub model: Option<String>,

    /// A published shape with random weights instead of a model: nothing is downloaded
    #[arg(long, value_enum, value_name = "SHAPE")]
    pub shape: Option<Shape>,
}

impl ModelOrShapeArgs {
    /// Reads or makes the model.
    pub fn open(&self) -> Result<Model, Failure> {
        self.open_for(&[])
    }

    /// Reads or makes the model. A shape is made for texts of these lengths.
    pub fn open_for(&self, lengths: &[usize]) -> Result<Model, Failure> {
        match (&self.model, self.shape) {
            (_, Some(shape)) => shape.model_for(lengths.iter().copied().max().unwrap_or(0)),
            (name, None) => load::open(name.as_deref().unwrap_or(load::BUILTIN), None),
        }
    }

    /// What to call it.
    pub fn name(&self) -> String {
        match (&self.model, self.shape) {
            (_, Some(shape)) => format!("{} (random weights)", shape.name()),
            (name, None) => load::short_name(name.as_deref().unwrap_or(load::BUILTIN)),
        }
    }
}

/// How to compute.
#[derive(Debug, Clone, Copy, Args)]
pub struct MachineArgs {
    /// Threads to compute with; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads, help_heading = "Machine")]
    pub threads: usize,

    /// Precision of the weights; by default what the model's plan says, else f32, the exact model.
    /// auto: bf16 where the machine multiplies it faster, else f32
    #[arg(long, value_enum, value_name = "PRECISION", help_heading = "Machine")]
    pub precision: Option<PrecisionArg>,
}

impl MachineArgs {
    /// For the engine.
    pub fn options(self) -> Options {
        Options { threads: self.threads, precision: self.precision.map(PrecisionArg::resolve), ..Options::default() }
    }
}

/// A precision, or the choice left to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum PrecisionArg {
    F32,
    Bf16,
    Int8,
    Auto,
}

impl PrecisionArg {
    /// The precision meant on this machine.
    pub fn resolve(self) -> Precision {
        match self {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::Bf16 => Precision::Bf16,
            PrecisionArg::Int8 => Precision::Int8,
            PrecisionArg::Auto => auto_precision(),
        }
    }
}

/// Which columns of the user's own table hold texts. For commands with a `--task`.
#[derive(Debug, Args)]
pub struct TextColumnArgs {
    /// Column of your table that holds the text [default: guessed by its name, and said]
    #[arg(long, value_name = "COLUMN", conflicts_with = "task")]
    text: Option<String>,

    /// Column of your table that holds the second text
    #[arg(long, value_name = "COLUMN", conflicts_with = "task")]
    pair: Option<String>,
}

impl TextColumnArgs {
    /// For the reader of tables.
    pub fn columns(&self) -> Columns {
        Columns { text: self.text.clone(), pair: self.pair.clone(), ..Columns::default() }
    }
}

/// Which columns of the user's own table hold texts and labels.
#[derive(Debug, Args)]
pub struct ColumnArgs {
    #[command(flatten)]
    pub texts: TextColumnArgs,

    /// Column of your table that holds the label
    #[arg(long, value_name = "COLUMN", conflicts_with = "task")]
    label: Option<String>,

    /// What your table calls a label and what the model does, where they differ: 0=positive,1=negative
    #[arg(long, value_name = "THEIRS=MODEL'S", value_parser = renames, conflicts_with = "task")]
    labels: Option<Renames>,
}

impl ColumnArgs {
    /// For the reader of tables.
    pub fn columns(&self) -> Columns {
        Columns { label: self.label.clone(), renamed: self.labels.clone().unwrap_or_default(), ..self.texts.columns() }
    }
}

/// Names of labels, the table's and the model's.
fn renames(text: &str) -> Result<Renames, String> {
    Renames::parse(text).map_err(|e| e.to_string())
}

/// A task by its name.
pub fn task(name: &str) -> Result<Task, String> {
    Task::parse(name).map_err(|e| e.to_string())
}

/// A part of a dataset by its name.
pub fn split(name: &str) -> Result<Split, String> {
    Split::parse(name).map_err(|e| e.to_string())
}

/// A number of threads, and no more than there are cores: more would wait for each other.
pub fn threads(text: &str) -> Result<usize, String> {
    let cores = machine::cores();
    match text.parse::<usize>() {
        Ok(n) if n > cores => {
            console::note(&format!(
                "--threads {n}: this machine has {cores} core{}, so many threads it is",
                if cores == 1 { "" } else { "s" }
            ));
            Ok(cores)
        }
        Ok(n) => Ok(n),
        _ => Err("a number of threads is expected; 0 means all cores".to_string()),
    }
}

/// A number from one on.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=1 << 30).contains(&n) => Ok(n),
        _ => Err("a whole number from 1 on is expected".to_string()),
    }
}

/// A place to compute. Whether this program was built for it is found out when it is asked for.
pub fn device_name(text: &str) -> Result<String, String> {
    match text {
        "cpu" | "cuda" | "wgpu" => Ok(text.to_string()),
        _ => Err("there are cpu, cuda and wgpu".to_string()),
    }
}
