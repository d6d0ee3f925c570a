//! `sparing run`: texts in, what the model's head makes of them out.

mod answer;
mod certificate;
mod fill;
mod generate;
mod labels;
mod tags;
mod vectors;

use crate::args::{MachineArgs, ModelArgs, positive};
use crate::attention::AttentionArgs;
use crate::cascade::Engines;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::inputs::{self, Input, Inputs};
use crate::interrupt;
use clap::Args;
use serde::Serialize;
use sparing_engine::Engine;
use sparing_model::{Batch, Encoded, Executor, HeadKind, Model, Tokenizer, Wanted};
use sparing_tasks::{Cascade, Pair};
use std::cell::Cell;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

/// Runs a model on texts: classify, tag, embed, fill in, answer or generate, as its head says
///
/// Texts come from the arguments, from a file, or, where neither is given, from standard input: one per line, and
/// answers follow as soon as they are known. A text that is too long for the model is cut, which is said once on
/// standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing run \"a joy from start to end\"                        the built-in model: is it positive?
  sparing run MODEL \"a gripping, funny film\"                    a classifier: labels
  sparing run MODEL \"The capital of France is [MASK].\"          a masked model: words for the gap
  sparing run MODEL \"Who wrote it?\" --context-file article.txt  the passage that answers
  sparing run MODEL \"Once upon a time\" --temperature 0.8        text, as it is made
  sparing run MODEL \"A man sleeps.\" --pair \"He is awake.\"       a pair of texts
  sparing run MODEL --file reviews.csv --text review --json     one JSON object per row
  cat lines.txt | sparing run MODEL --json | jq .label          a pipe

In JSON, start and end count characters (Unicode code points) of the text.")]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Texts to run
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    texts: Vec<String>,

    /// File of texts: .csv, .tsv, .jsonl, .json or .parquet with columns, anything else one text per line
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Column of --file that holds the text [default: guessed by its name, and said]
    #[arg(long = "text", value_name = "COLUMN")]
    column: Option<String>,

    /// The second text of a pair; for a --file with columns, the column that holds it
    #[arg(long, value_name = "TEXT|COLUMN")]
    pair: Option<String>,

    /// The text that questions are about; for a --file with columns, the column that holds it
    #[arg(long, value_name = "TEXT|COLUMN", conflicts_with_all = ["pair", "context_file"])]
    context: Option<String>,

    /// File that holds the text that questions are about
    #[arg(long, value_name = "FILE", conflicts_with = "pair")]
    context_file: Option<PathBuf>,

    /// Questions may have no answer in the text (models trained for it, as on SQuAD v2)
    #[arg(long)]
    unanswerable: bool,

    /// Print one JSON object per text
    #[arg(long)]
    json: bool,

    /// Show at most this many labels, words or answers
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = positive)]
    top: usize,

    /// Probability from which on a label counts, for models with several labels at once
    #[arg(long, value_name = "P", default_value_t = 0.5, allow_negative_numbers = true)]
    threshold: f32,

    /// Cut texts to this many tokens, special tokens included [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,

    /// Run texts together until they have this many tokens
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive)]
    batch_tokens: usize,

    #[command(flatten)]
    generate: generate::GenerateArgs,

    #[command(flatten)]
    certificate: certificate::CertificateArgs,

    #[command(flatten)]
    attention: AttentionArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Everything a head's module needs.
struct Session<'a> {
    args: &'a RunArgs,
    model: &'a Model,
    tokenizer: &'a Tokenizer,
    engine: &'a Engine,
    /// The engine, or a cascade over it.
    executor: &'a dyn Executor,
    /// One text from the command line: its answer may take several lines.
    single: bool,
    told_truncation: Cell<bool>,
    told_emptiness: Cell<bool>,
}

/// An input with its tokens.
struct Item {
    input: Input,
    encoded: Encoded,
}

/// Which token rows are wanted of an input.
type Rows<'a> = &'a dyn Fn(&Item) -> Result<Vec<usize>, Failure>;
/// Prints what came of an input: its values, and the width of one row of them.
type Show<'a> = &'a mut dyn FnMut(&Item, &[f32], usize, &mut Out) -> Result<(), Failure>;

/// One line of JSON: the text and what came of it.
#[derive(Serialize)]
struct Line<'a, A: Serialize> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    tokens: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(flatten)]
    answer: A,
}

/// Runs the command.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    interrupt::watch();
    let args = &text_first(args);
    let model = args.model.open()?;
    let tokenizer = model.tokenizer()?;
    check(args, model.architecture.head.kind)?;
    let options = args.attention.apply(args.machine.options(), &model)?;
    let certificate = args.certificate.read(args, &model, &options)?;
    let mut inputs = inputs(args)?;
    let Some(certificate) = certificate else {
        let engine = Engine::compile(&model, &options)?;
        return answer(args, &model, tokenizer, &engine, &engine, &mut inputs);
    };
    let engines = Engines::compile(&model, &options)?;
    let (cheap, exact) = (engines.cheap(), engines.exact());
    let pair = Pair { cheap: &cheap, exact: &exact, decision: certificate.decision };
    let cascade = Cascade::new(pair, certificate.escalate);
    let result = answer(args, &model, tokenizer, &engines.cheap, &cascade, &mut inputs);
    certificate::tell(&certificate, cascade.tally());
    result
}

/// Shows what an executor makes of all inputs; the engine is for what only it can do.
fn answer(
    args: &RunArgs,
    model: &Model,
    tokenizer: &Tokenizer,
    engine: &Engine,
    executor: &dyn Executor,
    inputs: &mut Inputs,
) -> Result<(), Failure> {
    let single = args.texts.len() == 1;
    let (told_truncation, told_emptiness) = (Cell::new(false), Cell::new(false));
    let session = Session { args, model, tokenizer, engine, executor, single, told_truncation, told_emptiness };
    let mut out = Out::new();
    let result = match model.architecture.head.kind {
        HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress => labels::run(&session, inputs, &mut out),
        HeadKind::TokenClassify => tags::run(&session, inputs, &mut out),
        HeadKind::Hidden | HeadKind::Embed { .. } => vectors::run(&session, inputs, &mut out),
        HeadKind::MaskedLm => fill::run(&session, inputs, &mut out),
        HeadKind::Answer => answer::run(&session, inputs, &mut out),
        HeadKind::CausalLm => generate::run(&session, inputs, &mut out),
    };
    // Whatever happened, what was done is shown.
    out.flush()?;
    result?;
    interrupt::check()
}

/// `sparing run "a text"`: what stands in the model's place may be a text.
fn text_first(mut args: RunArgs) -> RunArgs {
    if let Some(text) = inputs::text_first(&mut args.model.model) {
        args.texts.insert(0, text);
    }
    args
}

/// Options that this model has no use for, and those it cannot do without.
fn check(args: &RunArgs, kind: HeadKind) -> Result<(), Failure> {
    let context = args.context.is_some() || args.context_file.is_some();
    let usage = |text: &str| Err(Failure::Usage(text.to_string()));
    if args.column.is_some() && args.file.is_none() {
        return usage("--text names a column of --file, which is missing; texts themselves go without a flag");
    }
    match kind {
        HeadKind::Answer if context || args.pair.is_some() || args.file.is_some() => Ok(()),
        HeadKind::Answer => usage("the model answers questions about a text; give it with --context or --context-file"),
        _ if context => {
            usage("--context is for models that answer questions; this one does not (use --pair for a second text)")
        }
        HeadKind::CausalLm if args.pair.is_some() => usage("--pair: a model that generates text takes no second text"),
        _ => Ok(()),
    }
}

/// Texts from where the user says, each with its second text.
fn inputs(args: &RunArgs) -> Result<Inputs, Failure> {
    let second = args.pair.as_ref().or(args.context.as_ref());
    let inputs = match &args.file {
        Some(path) if path.as_os_str() == "-" => Inputs::from_lines(std::io::stdin(), "stdin"),
        Some(path) => Inputs::from_file(path, args.column.as_deref(), second.map(String::as_str))?,
        None if !args.texts.is_empty() => Inputs::from_texts(&args.texts),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Usage("no text; give one, or --file FILE, or pipe lines into sparing".to_string()));
        }
        None => Inputs::from_lines(std::io::stdin(), "stdin"),
    };
    Ok(match &args.context_file {
        Some(path) => inputs.with_pair(Some(read_context(path)?)),
        None if inputs.has_columns => inputs,
        None => inputs.with_pair(second.cloned()),
    })
}

fn read_context(path: &PathBuf) -> Result<String, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| failed(&format_args!("cannot be read ({e})")))?;
    file.take(1 << 30).read_to_end(&mut bytes).map_err(|e| failed(&format_args!("cannot be read ({e})")))?;
    String::from_utf8(bytes)
        .map_err(|e| failed(&format_args!("not valid UTF-8 (byte {})", e.utf8_error().valid_up_to() + 1)))
}

impl Session<'_> {
    /// Tokenises an input; says once if something had to be cut.
    fn encode(&self, input: Input) -> Result<(Item, usize), Failure> {
        let input =
            if self.model.architecture.head.kind == HeadKind::MaskedLm { fill::with_mask(self, input) } else { input };
        let encoded = self
            .tokenizer
            .encode(&input.text, input.pair.as_deref(), self.args.max_tokens)
            .map_err(|e| Failure::from(e).at(&input.place))?;
        self.tell_truncation(&encoded, &input.place);
        self.tell_emptiness(&encoded, &input.place);
        let tokens = encoded.sequence.ids.len();
        Ok((Item { input, encoded }, tokens))
    }

    fn tell_truncation(&self, encoded: &Encoded, place: &str) {
        if encoded.truncated && !self.told_truncation.replace(true) {
            let tokens = encoded.sequence.ids.len();
            console::note(&format!("{place} was cut to {tokens} tokens; later ones that are cut are not mentioned"));
        }
    }

    /// Special tokens alone, padding among them, are computed like any others, and mean nothing.
    fn tell_emptiness(&self, encoded: &Encoded, place: &str) {
        // Where words are what comes out, none need go in.
        let needs_words = !matches!(self.model.architecture.head.kind, HeadKind::MaskedLm | HeadKind::CausalLm);
        let is_empty = encoded.sequence.ids.iter().all(|id| self.tokenizer.is_special(*id));
        if needs_words && is_empty && !self.told_emptiness.replace(true) {
            console::note(&format!(
                "{place} has no words: what comes out says nothing of it; later ones without words are not mentioned"
            ));
        }
    }

    /// What is not a number is no answer, whatever label would be the largest.
    fn check_numbers(&self, input: &Input, values: &[f32]) -> Result<(), Failure> {
        // A vocabulary may rule words out.
        let fills = self.model.architecture.head.kind == HeadKind::MaskedLm;
        let sound = |x: &f32| x.is_finite() || (fills && *x == f32::NEG_INFINITY);
        match values.iter().find(|x| !sound(x)) {
            None => Ok(()),
            Some(x) => Err(overflow(*x).at(named(input))),
        }
    }

    /// Runs all inputs in batches; `rows` says which token rows are wanted of each, `show` prints what came of one.
    fn each(&self, inputs: &mut Inputs, out: &mut Out, rows: Option<Rows<'_>>, show: Show<'_>) -> Result<(), Failure> {
        loop {
            let prepare = |input: Input| {
                let (item, tokens) = self.encode(input)?;
                let rows = rows.map(|rows| rows(&item)).transpose()?;
                Ok(((item, rows), tokens))
            };
            let batch = inputs.batch(self.args.batch_tokens, prepare)?;
            if batch.is_empty() {
                return Ok(());
            }
            let (items, rows): (Vec<Item>, Vec<Option<Vec<usize>>>) = batch.into_iter().unzip();
            let wanted = rows.into_iter().collect::<Option<Vec<_>>>().map_or(Wanted::Head, Wanted::Rows);
            let sequences = items.iter().map(|item| item.encoded.sequence.clone()).collect();
            let outputs = self.executor.run(&Batch { sequences, wanted })?;
            for (item, values) in items.iter().zip(&outputs.sequences) {
                self.check_numbers(&item.input, values)?;
                show(item, values, outputs.width, out)?;
            }
            // Whoever reads us gets answers as they come.
            out.flush()?;
        }
    }
}

impl Item {
    /// The line of JSON for this item.
    fn line<A: Serialize>(&self, answer: A) -> Line<'_, A> {
        Line {
            text: &self.input.text,
            pair: self.input.pair.as_deref(),
            tokens: self.encoded.sequence.ids.len(),
            truncated: self.encoded.truncated,
            answer,
        }
    }

    /// The text, shortened to what is left of the line behind `used` columns.
    fn excerpt(&self, used: usize) -> String {
        console::shorten(&self.input.text, console::columns().saturating_sub(used))
    }
}

/// Where a text is, and how it begins.
fn named(input: &Input) -> String {
    format!("{} (\"{}\")", input.place, console::shorten(&input.text, 40))
}

fn overflow(score: f32) -> Failure {
    Failure::new(format!(
        "score is {score}: the model's weights are damaged, or its numbers overflow in this precision"
    ))
}

/// `exp(x - max) / sum`: probabilities from logits.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

/// Numbers of the `k` largest values, largest first.
fn largest(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let descending = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k, descending);
        order.truncate(k);
    }
    order.sort_by(descending);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_even_for_large_logits() {
        let p = softmax(&[1000.0, 1001.0, 999.0]);
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(p[1] > p[0] && p[0] > p[2]);
    }

    #[test]
    fn the_largest_come_first() {
        assert_eq!(largest(&[0.1, 0.9, 0.5, 0.9], 3), [1, 3, 2]);
        assert_eq!(largest(&[0.1, 0.9], 5), [1, 0]);
        assert!(largest(&[], 5).is_empty());
    }
}
