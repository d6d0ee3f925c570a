//! `sparing train pretrain`.

use super::common::{HowArgs, OutArgs, QuantizeArgs};
use super::report;
use super::watch::watched;
use crate::failure::Failure;
use crate::load::{self, HeadArg};
use clap::{Args, ValueEnum};
use sparing_model::Family;
use sparing_tasks::{Dataset, Select, Split, Task};
use sparing_train::{PairTask, Prepared, Pretrain, Wanted, device};
use std::path::{Path, PathBuf};

/// Trains a model on plain text: masked words, or the next word for GPT-2
///
/// MODEL gives the tokenizer, the shape and the numbers to begin with (--scratch: only the first two). Texts are files
/// with documents divided by blank lines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing train pretrain MODEL --corpus wiki.txt --out adapted --lr 1e-4
  sparing train pretrain MODEL --scratch --corpus a.txt b.txt --dev valid.txt --out fresh
  sparing train pretrain ALBERT --pairs order --corpus wiki.txt --out albert2")]
pub struct PretrainArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision
    #[arg(value_name = "MODEL")]
    model: String,

    /// Text files
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    corpus: Vec<PathBuf>,

    /// A text to choose the best model by
    #[arg(long, value_name = "FILE")]
    dev: Option<PathBuf>,

    /// Also ask about pairs of texts (BERT, ALBERT): in order or swapped, next or from elsewhere
    #[arg(long, value_enum, value_name = "TASK")]
    pairs: Option<PairArg>,

    /// Begin with fresh numbers
    #[arg(long)]
    scratch: bool,

    #[command(flatten)]
    out: OutArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    quantize: QuantizeArgs,
}

/// What is asked about pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PairArg {
    /// In order or swapped (ALBERT's sentence-order prediction)
    Order,
    /// Next or from elsewhere (BERT's next-sentence prediction)
    Next,
}

/// Runs the command.
pub fn pretrain(args: &PretrainArgs) -> Result<(), Failure> {
    let options = args.how.options()?;
    let device = device(&args.how.device)?;
    let mut corpus = Vec::new();
    for path in &args.corpus {
        corpus.extend(documents(path)?);
    }
    let dev = args.dev.as_ref().map(|path| Dataset::read(Task::Language, path, Split::Dev, &Select::default()));
    let dev = dev.transpose()?;
    let model = load::open_sound(&args.model, Some(HeadArg::Hidden))?;
    let causal = matches!(model.architecture.family, Family::Gpt2);
    if causal && args.pairs.is_some() {
        return Err(Failure::Usage("--pairs: only for models that fill masks; leave it out".to_string()));
    }
    let prepared = Prepared::new(&model, if causal { &Wanted::CausalLm } else { &Wanted::MaskedLm })?;
    let job = Pretrain {
        model: &model,
        prepared,
        scratch: args.scratch,
        corpus: &corpus,
        pairs: args.pairs.map(|pairs| match pairs {
            PairArg::Order => PairTask::SentenceOrder,
            PairArg::Next => PairTask::NextSentence,
        }),
        dev: dev.as_ref(),
        options,
        seeds: args.how.seed.clone(),
        max_tokens: args.how.tokens(),
        quantization: args.quantize.rounding(),
        device,
        place: args.out.place()?,
    };
    let summary = watched(&args.how.seed, |watch| job.run(watch))?;
    report::print(&summary, &args.out)
}

/// Documents of a file, divided by blank lines.
pub(super) fn documents(path: &Path) -> Result<Vec<String>, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::new(format!("{}: cannot be read ({e})", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let sound = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
        Failure::new(format!("{} line {line}: not valid UTF-8; save it as UTF-8", path.display()))
    })?;
    let mut found: Vec<String> = Vec::new();
    let mut current = String::new();
    for line in text.lines().chain([""]) {
        if !line.trim().is_empty() {
            current.push_str(line);
            current.push('\n');
        } else if !current.is_empty() {
            found.push(std::mem::take(&mut current));
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!("{}: holds no text", path.display())));
    }
    Ok(found)
}
