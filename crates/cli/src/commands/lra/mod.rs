//! `sparing lra`: Long Range Arena with any attention.

mod bench;
mod memory;
mod prepare;
mod scatter;
mod table;
mod train;

use crate::failure::Failure;
use clap::Args;

/// Long Range Arena: trains, times and compares attention mechanisms on long sequences
///
/// One encoder, any of the mechanisms, all tasks of the benchmark; see docs/zoo.md.
#[derive(Debug, Args)]
pub struct LraArgs {
    #[command(subcommand)]
    command: LraCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LraCommand {
    Prepare(prepare::PrepareArgs),
    Train(train::TrainArgs),
    Table(table::TableArgs),
    Bench(bench::BenchArgs),
}

/// Runs the command.
pub fn lra(args: &LraArgs) -> Result<(), Failure> {
    crate::interrupt::watch();
    match &args.command {
        LraCommand::Prepare(args) => prepare::prepare(args),
        LraCommand::Train(args) => train::train(args),
        LraCommand::Table(args) => table::table(args),
        LraCommand::Bench(args) => bench::bench(args),
    }
}

/// A task by its name.
fn task(name: &str) -> Result<sparing_tasks::lra::Task, String> {
    sparing_tasks::lra::Task::parse(name).map_err(|e| e.to_string())
}

/// A mechanism by its name, or of a JSON file.
fn mechanism(name: &str) -> Result<(String, sparing_train::attention::Kind), Failure> {
    use sparing_train::attention::catalogue;
    let known = catalogue()?;
    if let Some(found) = known.iter().find(|(known, _)| known == name) {
        return Ok(found.clone());
    }
    let names = || known.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    if !name.ends_with(".json") {
        return Err(Failure::Usage(format!(
            "no attention is called {name:?}; there are {}, and your own file NAME.json",
            names()
        )));
    }
    let text = std::fs::read_to_string(name).map_err(|e| Failure::new(format!("{name}: cannot be read ({e})")))?;
    let kind = serde_json::from_str(&text).map_err(|e| Failure::new(format!("{name}: not an attention ({e})")))?;
    let short = std::path::Path::new(name).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    Ok((short, kind))
}
