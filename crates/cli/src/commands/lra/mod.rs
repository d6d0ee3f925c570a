//! `sparing lra`: Long Range Arena with any attention.

mod bench;
mod caught;
mod labels;
mod memory;
mod prepare;
mod scatter;
mod speed;
mod speeds;
mod table;
mod train;

pub use bench::BenchArgs as AttentionArgs;

use crate::failure::Failure;
use clap::Args;
use sparing_tasks::lra::Task;
use sparing_train::attention::Kind;
use sparing_train::lra::{CONFIGURATIONS, Training, recipes};
use std::path::Path;

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
    Speed(speed::SpeedArgs),
}

/// Runs the command.
pub fn lra(args: &LraArgs) -> Result<(), Failure> {
    crate::interrupt::watch();
    match &args.command {
        LraCommand::Prepare(args) => prepare::prepare(args),
        LraCommand::Train(args) => train::train(args),
        LraCommand::Table(args) => table::table(args),
        LraCommand::Bench(args) => bench::bench(args),
        LraCommand::Speed(args) => speed::speed(args),
    }
}

/// Runs `sparing bench attention`, which is `sparing lra bench`.
pub fn attention(args: &AttentionArgs) -> Result<(), Failure> {
    crate::interrupt::watch();
    bench::bench(args)
}

/// A task by its name.
fn task(name: &str) -> Result<Task, String> {
    Task::parse(name).map_err(|e| e.to_string())
}

/// What a configuration, by its name or of a file NAME.json, is called and has for a task.
fn configuration(config: &str, task: Task) -> Result<(String, Training), Failure> {
    let text = match config.ends_with(".json") {
        true => {
            Some(std::fs::read_to_string(config).map_err(|e| Failure::new(format!("{config}: cannot be read ({e})")))?)
        }
        false => None,
    };
    if text.is_none() && !CONFIGURATIONS.contains(&config) {
        return Err(Failure::Usage(format!(
            "--config {config}: there are {}, and your own file NAME.json",
            CONFIGURATIONS.join(" and ")
        )));
    }
    let recipes = recipes(config, text.as_deref())?;
    Ok((stem(config), Training::of(&recipes, task)?.clone()))
}

/// A file's name without its ending.
fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

/// Mechanisms by their names in a catalogue or of files; all: every one there is.
fn mechanisms(names: &[String], known: &[(String, Kind)]) -> Result<Vec<(String, Kind)>, Failure> {
    match names.iter().any(|name| name == "all") {
        true => Ok(known.to_vec()),
        false => names.iter().map(|name| mechanism(name, known)).collect(),
    }
}

/// A mechanism by its name, or of a JSON file.
fn mechanism(name: &str, known: &[(String, Kind)]) -> Result<(String, Kind), Failure> {
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
    Ok((stem(name), kind))
}

/// `block 64, random 3`.
fn knobs(kind: &Kind) -> String {
    let value = serde_json::to_value(kind).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    let shown = fields.filter(|(name, _)| *name != "kind" && *name != "seed").map(|(name, value)| {
        let value = value.to_string();
        format!("{name} {}", value.replace(['"', '[', ']'], ""))
    });
    shown.collect::<Vec<_>>().join(", ")
}
