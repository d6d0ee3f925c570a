//! `sparing train finetune`.

use super::common::{EconomyArgs, HowArgs, OutArgs, QuantizeArgs};
use super::report;
use super::watch::watched;
use crate::args::{ColumnArgs, positive, task};
use crate::failure::Failure;
use crate::load::{self, HeadArg};
use clap::Args;
use sparing_model::Model;
use sparing_tasks::{Dataset, Select, Split, Task};
use sparing_train::{Finetune, device, holdout};
use std::path::PathBuf;

/// Trains a model on labelled texts: GLUE's tasks, SQuAD, or your own table
///
/// The head that the labels need is made if the model has none (or another): labels, a number (STS-B), labels of words,
/// answers. After every epoch the dev set is scored, the best model is kept, and what was written is scored once more
/// with the engine.
#[derive(Debug, Args)]
#[command(mut_arg("max_tokens", |arg| arg.help("Cut texts to this many tokens, special tokens included [default: --positions, else 128]")))]
#[command(after_help = "\
Examples:
  sparing train finetune MODEL --task sst2 --data glue --out sst2-model
  sparing train finetune MODEL --task mrpc --data glue/MRPC --out mrpc --lr 3e-5 --seed 0,1,2,3,4
  sparing train finetune MODEL --data mine.csv --text review --label stars --out mine
  sparing train finetune MODEL --task sst2 --data glue --out int8-model --bits 8   ready for int8
  sparing train finetune MODEL --task sst2 --data glue --out lean --attention exact,drop=0.7
  sparing train finetune MODEL --data long.jsonl --window 256 --positions 1024 --out windows
Ctrl-C saves and stops; the same command with --resume goes on.")]
pub struct FinetuneArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision
    #[arg(value_name = "MODEL")]
    model: String,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    out: OutArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    windows: WindowArgs,

    #[command(flatten)]
    economy: EconomyArgs,

    #[command(flatten)]
    quantize: QuantizeArgs,
}

impl FinetuneArgs {
    /// The most tokens of a text. Whoever asks for positions has texts for them.
    fn tokens(&self) -> usize {
        self.how.max_tokens.or(self.windows.positions).unwrap_or(self.how.tokens())
    }
}

/// A model for longer texts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Windows")]
pub struct WindowArgs {
    /// Begin with the model as a Longformer of the same weights (BERT and RoBERTa): a token sees N / 2 neighbours on either side, the
    /// first token and all others see each other
    #[arg(long, value_name = "N")]
    window: Option<usize>,

    /// Repeat the position table so that texts of N tokens fit, and cut them to N if --max-tokens says nothing else
    /// [default: as it is]
    #[arg(long, value_name = "N", value_parser = positive)]
    positions: Option<usize>,
}

impl WindowArgs {
    fn check(&self) -> Result<(), Failure> {
        match (self.window, self.positions) {
            (Some(window), _) if window == 0 || window % 2 == 1 => {
                Err(Failure::Usage(format!("--window {window}: an even number from 2 on is expected, such as 256")))
            }
            (None, Some(_)) => Err(Failure::Usage("--positions: only with --window, such as 256".to_string())),
            _ => Ok(()),
        }
    }

    fn apply(&self, model: Model) -> Result<Model, Failure> {
        Ok(match self.window {
            Some(window) => model.windowed(window, self.positions)?,
            None => model,
        })
    }
}

/// What to learn from.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// The task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad; without it --data is your own table
    #[arg(long, value_name = "TASK", value_parser = task)]
    task: Option<Task>,

    /// The task's folder (or the one above it), or your table (.csv, .tsv, .jsonl, .json, .parquet)
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Another folder or table to choose the best model by [default: the task's dev part; a tenth of your table]
    #[arg(long, value_name = "PATH")]
    dev: Option<PathBuf>,

    #[command(flatten)]
    columns: ColumnArgs,

    /// Learn from the first N examples only
    #[arg(long, value_name = "N", value_parser = positive)]
    limit: Option<usize>,
}

impl DataArgs {
    /// Training and dev part.
    pub fn read(&self) -> Result<(Dataset, Dataset), Failure> {
        let select = Select { limit: self.limit, ..Select::default() };
        let Some(data) = &self.data else {
            return Err(Failure::Usage("--data is missing: say what to learn from".to_string()));
        };
        let dev_path = self.dev.as_ref().unwrap_or(data);
        if let Some(task) = self.task {
            let train = Dataset::read(task, data, Split::Train, &select)?;
            return Ok((train, Dataset::read(task, dev_path, Split::Dev, &Select::default())?));
        }
        let columns = self.columns.columns();
        let train = Dataset::table(data, &columns, &select)?;
        match &self.dev {
            Some(path) => Ok((train, Dataset::table(path, &columns, &Select::default())?)),
            // Always the same tenth: seeds and runs stay comparable.
            None => Ok(holdout(train, 0.1, 0)?),
        }
    }
}

/// Runs the command.
pub fn finetune(args: &FinetuneArgs) -> Result<(), Failure> {
    let options = args.how.options()?;
    args.windows.check()?;
    let device = device(&args.how.device)?;
    let model = args.windows.apply(load::open_sound(&args.model, Some(HeadArg::Hidden))?)?;
    let (train, dev) = args.data.read()?;
    let job = Finetune {
        model: &model,
        train: &train,
        dev: Some(&dev),
        options,
        seeds: args.how.seed.clone(),
        max_tokens: Some(args.tokens()),
        attention: args.economy.attention.clone(),
        quantization: args.quantize.rounding(),
        device,
        place: args.out.place()?,
    };
    let summary = watched(&args.how.seed, |watch| job.run(watch))?;
    report::print(&summary, &args.out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        finetune: FinetuneArgs,
    }

    #[test]
    fn texts_are_cut_to_the_positions_asked_for() {
        let tokens = |more: &[&str]| {
            let args = [&["finetune", "MODEL", "--out", "out"], more].concat();
            Asked::try_parse_from(args).unwrap_or_else(|e| panic!("{e}")).finetune.tokens()
        };
        let windows = ["--window", "256", "--positions", "1024"];
        assert_eq!(tokens(&[]), 128);
        assert_eq!(tokens(&windows), 1024);
        assert_eq!(tokens(&[&windows[..], &["--max-tokens", "512"]].concat()), 512);
    }
}
