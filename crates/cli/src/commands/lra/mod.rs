//! `sparing lra`: Long Range Arena with any attention.

#[cfg(feature = "train")]
mod bench;
#[cfg(feature = "train")]
mod memory;
#[cfg(feature = "train")]
mod prepare;
#[cfg(feature = "train")]
mod scatter;
#[cfg(feature = "train")]
mod table;
#[cfg(feature = "train")]
mod train;

use crate::failure::Failure;
use clap::Args;

/// Long Range Arena: trains, times and compares attention mechanisms on long sequences
///
/// One encoder, any of the mechanisms, all tasks of the benchmark; see docs/zoo.md.
#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub struct LraArgs {
    #[command(subcommand)]
    command: LraCommand,
}

#[cfg(feature = "train")]
#[derive(Debug, clap::Subcommand)]
enum LraCommand {
    Prepare(prepare::PrepareArgs),
    Train(train::TrainArgs),
    Table(table::TableArgs),
    Bench(bench::BenchArgs),
}

/// Runs the command.
#[cfg(feature = "train")]
pub fn lra(args: &LraArgs) -> Result<(), Failure> {
    crate::interrupt::watch();
    match &args.command {
        LraCommand::Prepare(args) => prepare::prepare(args),
        LraCommand::Train(args) => train::train(args),
        LraCommand::Table(args) => table::table(args),
        LraCommand::Bench(args) => bench::bench(args),
    }
}

/// Long Range Arena (not in this build: needs the cargo feature `train`)
#[cfg(not(feature = "train"))]
#[derive(Debug, Args)]
pub struct LraArgs {
    /// What a build with training would do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

/// Says what to do instead.
#[cfg(not(feature = "train"))]
pub fn lra(_: &LraArgs) -> Result<(), Failure> {
    crate::commands::train::absent()
}

/// A task by its name.
#[cfg(feature = "train")]
fn task(name: &str) -> Result<sparing_tasks::lra::Task, String> {
    sparing_tasks::lra::Task::parse(name).map_err(|e| e.to_string())
}

/// A mechanism by its name, or of a JSON file.
#[cfg(feature = "train")]
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
