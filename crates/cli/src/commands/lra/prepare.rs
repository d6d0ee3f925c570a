//! `sparing lra prepare`.

use crate::args::positive;
use crate::console::Out;
use crate::failure::Failure;
use crate::table::{Align, Table, bytes};
use crate::{interrupt, progress};
use clap::Args;
use serde::Serialize;
use sparing_tasks::lra::{Part, Task, Wanted, make};
use std::path::PathBuf;

/// Makes the data of a task: by rules, or from public files
///
/// ListOps, Pathfinder and Path-X are made by rules from a seed, the same on every machine. Text, image and
/// wikipedia-retrieval read `imdb/`, `cifar10/` and `wikipedia/` in --data (plain or `.zst`). What is written is
/// small enough to carry: bytes, deflated.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra prepare listops --out lra
  sparing lra prepare image text --data data --out lra
  sparing lra prepare listops --min-length 4 --length 30 --examples 2000 --out short")]
pub struct PrepareArgs {
    /// listops, text, wikipedia-retrieval, image, pathfinder, path-x
    #[arg(value_name = "TASK", required = true, value_parser = super::task)]
    tasks: Vec<Task>,

    /// Directory with public data
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Directory for the result: a folder per task with train.lra, dev.lra and test.lra
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Examples to train on [default: as published; 10000 for wikipedia-retrieval, 20000 for path-x]
    #[arg(long, value_name = "N", value_parser = positive)]
    examples: Option<usize>,

    /// Longest sequence [default: as published]
    #[arg(long, value_name = "N", value_parser = positive)]
    length: Option<usize>,

    /// Shortest expression of ListOps [default: 500]
    #[arg(long, value_name = "N")]
    min_length: Option<usize>,

    /// Decides what is drawn
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Print one JSON object per file
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    task: &'static str,
    part: &'static str,
    examples: usize,
    mean_length: f64,
    bytes: u64,
    path: PathBuf,
}

/// Runs the command.
pub fn prepare(args: &PrepareArgs) -> Result<(), Failure> {
    if let (Some(_), Some(other)) = (args.min_length, args.tasks.iter().find(|task| **task != Task::Listops)) {
        let name = other.name();
        return Err(Failure::Usage(format!("--min-length is for listops, not for {name}; prepare {name} without it")));
    }
    let mut out = Out::new();
    let mut table = Table::new(&[
        ("task", Align::Left),
        ("part", Align::Left),
        ("examples", Align::Right),
        ("mean length", Align::Right),
        ("file", Align::Right),
    ]);
    let wanted = |task: Task| {
        let usual = Wanted::of(task);
        let wanted = Wanted {
            seed: args.seed,
            shortest: args.min_length.unwrap_or(usual.shortest),
            examples: args.examples.unwrap_or(usual.examples),
            length: args.length.unwrap_or(usual.length),
        };
        let checked = wanted.check(task, args.data.as_deref());
        checked.map(|()| (task, wanted)).map_err(|e| Failure::Usage(e.to_string()))
    };
    // Nothing is made of a task before all of them are known to make sense.
    let wanted = args.tasks.iter().map(|task| wanted(*task)).collect::<Result<Vec<_>, _>>()?;
    for (task, wanted) in &wanted {
        let folder = args.out.join(task.name());
        std::fs::create_dir_all(&folder).map_err(|e| Failure::from(e).at(folder.display()))?;
        for part in Part::ALL {
            let bar = progress::bar(wanted.examples as u64, &format!("{} {}", task.name(), part.name()));
            let mut told = |done: usize| {
                bar.set_position(done as u64);
                !interrupt::asked()
            };
            let set = make(*task, part, wanted, args.data.as_deref(), &mut told).map_err(interrupt::told)?;
            bar.finish_and_clear();
            let path = folder.join(format!("{}.lra", part.name()));
            let size = set.write(&path)?;
            let tokens: usize = set.lengths().iter().sum();
            let mean = tokens as f64 / set.len().max(1) as f64;
            let made = Made {
                task: task.name(),
                part: part.name(),
                examples: set.len(),
                mean_length: mean,
                bytes: size,
                path,
            };
            if args.json {
                out.json(&made)?;
            } else {
                let cells = [made.task, made.part].map(str::to_string);
                let numbers = [made.examples.to_string(), format!("{mean:.0}"), bytes(size as f64)];
                table.row(cells.into_iter().chain(numbers));
            }
            interrupt::check()?;
        }
    }
    if !args.json {
        out.text(&table.text(out.paint))?;
    }
    out.flush()
}
