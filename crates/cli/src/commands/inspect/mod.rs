//! `sparing inspect`: what a network is made of and where its cost lies.

mod cost;
mod economies;
mod picture;
mod report;

use crate::args::{MachineArgs, ModelOrShapeArgs, positive};
use crate::commands::bench;
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::interrupt;
use clap::Args;
use sparing_engine::Engine;
use sparing_model::Model;
use std::path::PathBuf;

/// Shows parameters, FLOPs and measured time by part and by layer, and what the exact economies save
///
/// The economies change no answer: no padding is computed, the last layer computes only the rows that the head reads,
/// and identical inputs of a batch are computed once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing inspect --shape bert-base                       a published shape, nothing downloaded
  sparing inspect MODEL --length 128,512 --svg cost.svg   a picture of the cost at two lengths
  sparing inspect MODEL --data reviews.csv --batch 16     with the lengths of your own texts
  sparing inspect MODEL --layers                          the layers one by one")]
pub struct InspectArgs {
    #[command(flatten)]
    model: ModelOrShapeArgs,

    /// Tokens per sequence; the picture has bars for each of a list [default: 128]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    length: Vec<usize>,

    /// Sequences per run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    batch: usize,

    /// Take the lengths of these texts instead: a table, or a file with one text per line
    #[arg(long, value_name = "FILE", conflicts_with = "length")]
    data: Option<PathBuf>,

    /// Column of --data that holds the text
    #[arg(long, value_name = "COLUMN", requires = "data")]
    text: Option<String>,

    /// Column of --data that holds the second text
    #[arg(long, value_name = "COLUMN", requires = "data")]
    pair: Option<String>,

    /// Timed runs; the median is shown
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive)]
    repeats: usize,

    /// Show every layer
    #[arg(long)]
    layers: bool,

    /// Write a picture: bars of parameters, FLOPs and time divided among the parts
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    interrupt::watch();
    let model = args.model.open()?;
    let lengths = bench::lengths(&model.architecture, &args.length)?;
    let engine = Engine::compile(&model, &args.machine.options())?;
    let works = match &args.data {
        Some(path) => vec![cost::Work::from_texts(&texts(args, path, &model)?, args.batch)],
        None => lengths.iter().map(|&n| cost::Work::uniform(&model.architecture, args.batch, n)).collect(),
    };
    let mut costs = Vec::new();
    for work in &works {
        interrupt::check()?;
        costs.push(cost::Cost::measure(&engine, work, args.repeats)?);
    }
    let report = report::Report::new(args.model.name(), &model, &engine, costs);
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
