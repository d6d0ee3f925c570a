//! `sparing inspect`: what a network is made of and where its cost lies; with a text, what economised values do to it.

mod chosen;
mod cost;
mod economies;
mod left;
mod picture;
mod report;
mod values;

use crate::args::{MachineArgs, ModelOrShapeArgs, positive};
use crate::attention::AttentionArgs;
use crate::commands::bench;
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::{Inputs, text_first};
use crate::interrupt;
use clap::Args;
use sparing_engine::Engine;
use sparing_model::Model;
use std::path::PathBuf;

/// Shows parameters, FLOPs and measured time by part and by layer, and what the exact economies save
///
/// The economies change no answer: no padding is computed, the last layer computes only the rows that the head reads,
/// and identical inputs of a batch are computed once.
///
/// With --attention: what that saves of attention's time and of the whole, beside exact attention. With a text besides: what is
/// spent on every token's values, layer by layer, the error that makes beside the bound the theory gives, and what becomes of
/// the answer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing inspect --shape bert-base                       a published shape, nothing downloaded
  sparing inspect MODEL --length 128,512 --svg cost.svg   a picture of the cost at two lengths
  sparing inspect MODEL --data reviews.csv --batch 16     with the lengths of your own texts
  sparing inspect MODEL --layers                          the layers one by one
  sparing inspect --shape minilm-l6 --length 4096 --attention exact,keys=auto   chosen keys
  sparing inspect MODEL \"a funny film\" --attention mca:0.4   what is spent on every token
  sparing inspect \"a funny film\" --attention mca:0.4 --svg v.svg   drawn; the built-in model

What --attention saves at a length is known for chosen keys; the rest goes by the text, and needs
one, or --data. A text in MODEL's place has spaces.")]
pub struct InspectArgs {
    #[command(flatten)]
    model: ModelOrShapeArgs,

    /// Look at what --attention does to this text
    #[arg(value_name = "TEXT")]
    words: Option<String>,

    /// Tokens per sequence; the picture has bars for each of a list [default: 128]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    length: Vec<usize>,

    /// Sequences per run [default: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    batch: Option<usize>,

    /// Take the lengths of these texts instead: a table, or a file with one text per line
    #[arg(long, value_name = "FILE", conflicts_with = "length")]
    data: Option<PathBuf>,

    /// Column of --data that holds the text
    #[arg(long, value_name = "COLUMN", requires = "data")]
    text: Option<String>,

    /// The second text of a pair; for --data, the column that holds it
    #[arg(long, value_name = "TEXT|COLUMN")]
    pair: Option<String>,

    /// Timed runs; the median is shown [default: 7]
    #[arg(long, value_name = "N", value_parser = positive)]
    repeats: Option<usize>,

    /// Show every layer
    #[arg(long)]
    layers: bool,

    /// Write a picture: bars of parameters, FLOPs and time divided among the parts; with a text, its tokens shaded by
    /// what was spent on them
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    attention: AttentionArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs the command.
pub fn inspect(mut args: InspectArgs) -> Result<(), Failure> {
    interrupt::watch();
    let first = text_first(&mut args.model.model);
    check(&args, first.is_some())?;
    match first.or_else(|| args.words.take()) {
        Some(text) => values::run(&args, &text),
        None => costs(&args),
    }
}

/// Options that do not go together.
fn check(args: &InspectArgs, first: bool) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_string()));
    if first && args.words.is_some() {
        return usage("two texts, and inspect looks at one; the second of a pair goes with --pair");
    }
    if first || args.words.is_some() {
        let given = [
            ("--length", !args.length.is_empty()),
            ("--batch", args.batch.is_some()),
            ("--data", args.data.is_some()),
            ("--repeats", args.repeats.is_some()),
            ("--layers", args.layers),
        ];
        return match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => usage(&format!("{name} is for the cost of a model; it does not go with a text")),
            None => Ok(()),
        };
    }
    let chosen = args.attention.attention.as_ref();
    if args.data.is_none() && chosen.is_some_and(|plan| plan.mca.is_some() || plan.tokens.is_some()) {
        return usage(
            "--attention: what tokens or values save goes by the text; give one (sparing inspect MODEL \"a text\" --attention …), or \
             --data FILE; at a --length alone there is only keys: exact,keys=64 or sign:64",
        );
    }
    if chosen.is_none() && args.attention.calibration.is_some() {
        return usage("--calibration is for --attention, which is missing");
    }
    match args.pair.is_some() && args.data.is_none() {
        true => usage("--pair is a second text, and the first is missing; or a column of --data, which is missing"),
        false => Ok(()),
    }
}

/// What the model is made of and what it costs.
fn costs(args: &InspectArgs) -> Result<(), Failure> {
    let (batch, repeats) = (args.batch.unwrap_or(1), args.repeats.unwrap_or(7));
    let model = args.model.open_for(&args.length)?;
    let lengths = bench::lengths(&model.architecture, &args.length)?;
    let engine = Engine::compile(&model, &args.machine.options())?;
    let works = match &args.data {
        Some(path) => vec![cost::Work::from_texts(&texts(args, path, &model)?, batch)],
        None => lengths.iter().map(|&n| cost::Work::uniform(&model.architecture, batch, n)).collect(),
    };
    let rivals = args.attention.attention.as_ref().map(|_| chosen::Rivals::compile(args, &model)).transpose()?;
    let mut costs = Vec::new();
    for work in &works {
        interrupt::check()?;
        let mut cost = cost::Cost::measure(&engine, work, repeats)?;
        cost.chosen = rivals.as_ref().map(|rivals| rivals.race(work, repeats)).transpose()?;
        costs.push(cost);
    }
    let report = report::Report::new(args.model.name(), &model, &engine, costs)?;
    if let Some(path) = &args.svg {
        picture::write(&report, path)?;
    }
    let mut out = Out::new();
    if args.json {
        out.pretty(&report)?
    } else {
        report.print(args.layers, &mut out)?
    }
    out.flush()
}

/// The tokens of all texts of a file.
fn texts(args: &InspectArgs, path: &std::path::Path, model: &Model) -> Result<Vec<sparing_model::Sequence>, Failure> {
    let tokenizer = model.tokenizer()?;
    let mut inputs = Inputs::from_file(path, args.text.as_deref(), args.pair.as_deref())?;
    let mut sequences = Vec::new();
    loop {
        let batch = inputs.batch(1 << 16, |input| {
            let encoded = tokenizer.encode(&input.text, input.pair.as_deref(), None);
            let sequence = encoded.map_err(|e| Failure::from(e).at(&input.place))?.sequence;
            let tokens = sequence.ids.len();
            Ok((sequence, tokens))
        })?;
        interrupt::check()?;
        if batch.is_empty() {
            break;
        }
        sequences.extend(batch);
    }
    if sequences.is_empty() {
        return Err(Failure::new(format!("{}: holds no texts", path.display())));
    }
    Ok(sequences)
}
