//! `sparing train distill`.

use super::common::{EconomyArgs, HowArgs, OutArgs, QuantizeArgs};
use super::finetune::DataArgs;
use super::report;
use super::watch::watched;
use crate::args::positive;
use crate::failure::Failure;
use crate::load::{self, HeadArg};
use clap::{Args, ValueEnum};
use sparing_train::{Distill, Mapping, Prepared, StudentShape, Teaching, Wanted, device};

/// Teaches a smaller model what a larger one answers
///
/// The teacher is a model fine-tuned on the task. The student is another model (--student), or made in the teacher's
/// image: fewer layers, narrower, or with layers that share their weights; where shapes allow it begins with the
/// teacher's numbers. What is taught is a sum of losses, each with its weight.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing train distill --teacher sst2-model --layers 3 --task sst2 --data glue --out small
  sparing train distill --teacher T --layers 4 --width 312 --ffn 1200 --task rte --data D --out tiny
  sparing train distill --teacher T --share --soft 0.9 --hard 0.1 --task rte --data glue --out one
  sparing train distill --teacher T --student S --task sst2 --data glue --out S2")]
pub struct DistillArgs {
    /// The model to learn from: a directory or Hub id, fine-tuned on the task
    #[arg(long, value_name = "MODEL")]
    teacher: String,

    /// The model that learns [default: made in the teacher's image]
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["layers", "width", "ffn", "heads", "share"])]
    student: Option<String>,

    /// The student's number of layers
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Student")]
    layers: Option<usize>,

    /// The student's width
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Student")]
    width: Option<usize>,

    /// Inner width of the student's feed-forward blocks
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Student")]
    ffn: Option<usize>,

    /// The student's number of heads
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Student")]
    heads: Option<usize>,

    /// All layers of the student share one set of weights, as in ALBERT
    #[arg(long, help_heading = "Student")]
    share: bool,

    /// Width of the word embeddings with --share
    #[arg(long, value_name = "N", requires = "share", value_parser = positive, help_heading = "Student")]
    embedding: Option<usize>,

    /// Which teacher layer a student's layer begins as and learns from
    #[arg(long, value_enum, value_name = "MAPPING", default_value = "uniform", help_heading = "Student")]
    mapping: MappingArg,

    #[command(flatten)]
    teaching: TeachingArgs,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    out: OutArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    economy: EconomyArgs,

    #[command(flatten)]
    quantize: QuantizeArgs,
}

/// Which teacher layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MappingArg {
    /// Spread evenly
    Uniform,
    /// The teacher's last layers
    Last,
}

/// Weights of the losses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Losses (weights; 0 leaves one out)")]
pub struct TeachingArgs {
    /// The labels themselves
    #[arg(long, value_name = "X", default_value_t = 0.5)]
    hard: f64,

    /// Cross-entropy with the teacher's softened answers
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    soft: f64,

    /// Divergence from the teacher's softened answers [default: 0.5, or 0 with --soft or --logits]
    #[arg(long, value_name = "X")]
    kl: Option<f64>,

    /// How much answers are softened
    #[arg(long, value_name = "T", default_value_t = 2.0)]
    temperature: f64,

    /// Squared difference of logits (the one for regression)
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    logits: f64,

    /// Squared difference of hidden states, through a learned map where widths differ
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    hidden: f64,

    /// Squared difference of attention probabilities
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    attention_mse: f64,

    /// Divergence of attention probabilities
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    attention_kl: f64,
}

impl TeachingArgs {
    fn teaching(&self, mapping: Mapping) -> Result<Teaching, Failure> {
        let alone = self.soft == 0.0 && self.logits == 0.0;
        let divergence = self.kl.unwrap_or(if alone { 0.5 } else { 0.0 });
        let weights =
            [self.hard, self.soft, divergence, self.logits, self.hidden, self.attention_mse, self.attention_kl];
        if weights.iter().any(|w| !w.is_finite() || *w < 0.0) || weights.iter().all(|w| *w == 0.0) {
            return Err(Failure::Usage("losses have weights from 0 on, at least one of them above".to_string()));
        }
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return Err(Failure::Usage("--temperature: a number above 0 is expected".to_string()));
        }
        Ok(Teaching {
            hard: self.hard,
            soft: self.soft,
            divergence,
            temperature: self.temperature,
            logits: self.logits,
            hidden: self.hidden,
            attention: self.attention_mse,
            attention_divergence: self.attention_kl,
            mapping,
        })
    }
}

/// Runs the command.
pub fn distill(args: &DistillArgs) -> Result<(), Failure> {
    let options = args.how.options()?;
    let device = device(&args.how.device)?;
    let mapping = match args.mapping {
        MappingArg::Uniform => Mapping::Uniform,
        MappingArg::Last => Mapping::Last,
    };
    let teaching = args.teaching.teaching(mapping)?;
    let (train, dev) = args.data.read()?;
    let teacher = load::open_sound(&args.teacher, None)?;
    let other = args.student.as_ref().map(|name| load::open_sound(name, Some(HeadArg::Hidden))).transpose()?;
    let student = match &other {
        Some(model) => Prepared::new(model, &Wanted::for_dataset(&train, &mut Vec::new())?)?,
        None => {
            let DistillArgs { layers, width, ffn, heads, share, embedding, .. } = *args;
            let shape = StudentShape { layers, width, ffn, heads, share, embedding };
            if shape == StudentShape::default() {
                return Err(Failure::Usage(
                    "say how the student differs: --layers, --width, --share, or --student".into(),
                ));
            }
            Prepared::student(&teacher, &shape, mapping)?
        }
    };
    let job = Distill {
        teacher: &teacher,
        student,
        origin: other.as_ref().unwrap_or(&teacher),
        train: &train,
        dev: Some(&dev),
        teaching,
        options,
        seeds: args.how.seed.clone(),
        max_tokens: Some(args.how.tokens()),
        attention: args.economy.attention.clone(),
        quantization: args.quantize.rounding(),
        device,
        place: args.out.place()?,
    };
    let summary = watched(&args.how.seed, |watch| job.run(watch))?;
    report::print(&summary, &args.out)
}
