//! `sparing study`: experiments of published work, done again and told beside what was published.

#[cfg(feature = "train")]
mod functions;
#[cfg(feature = "train")]
mod layer;
mod mca;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Repeats published experiments and writes tables and figures with the published numbers beside
#[derive(Debug, Args)]
pub struct StudyArgs {
    #[command(subcommand)]
    command: StudyCommand,
}

#[derive(Debug, Subcommand)]
enum StudyCommand {
    Mca(Box<mca::McaArgs>),
    #[cfg(feature = "train")]
    Functions(functions::FunctionsArgs),
    #[cfg(feature = "train")]
    Layer(layer::LayerArgs),
    #[cfg(not(feature = "train"))]
    Functions(super::absent::study::FunctionsArgs),
    #[cfg(not(feature = "train"))]
    Layer(super::absent::study::LayerArgs),
}

/// Runs the command.
pub fn study(args: &StudyArgs) -> Result<(), Failure> {
    match &args.command {
        StudyCommand::Mca(args) => mca::mca(args),
        #[cfg(feature = "train")]
        StudyCommand::Functions(args) => functions::functions(args),
        #[cfg(feature = "train")]
        StudyCommand::Layer(args) => layer::layer(args),
        #[cfg(not(feature = "train"))]
        StudyCommand::Functions(_) | StudyCommand::Layer(_) => Err(super::training()),
    }
}
