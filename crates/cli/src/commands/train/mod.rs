//! `sparing train`: a better or smaller model from one that is there.

#[cfg(feature = "train")]
mod average;
#[cfg(feature = "train")]
mod bench;
#[cfg(feature = "train")]
mod common;
#[cfg(feature = "train")]
mod distill;
#[cfg(feature = "train")]
mod finetune;
#[cfg(feature = "train")]
mod pretrain;
#[cfg(feature = "train")]
mod report;
#[cfg(feature = "train")]
mod ticket;
#[cfg(feature = "train")]
mod transfer;
#[cfg(feature = "train")]
pub mod watch;

use crate::failure::Failure;
use clap::Args;

/// Trains a model: fine-tune on labels, distil into a smaller one, pre-train on text
///
/// What comes out is a Hugging Face directory that `sparing run` and `sparing eval` take, with the log, the loss curve
/// and the score of the directory itself beside the weights.
#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(subcommand)]
    command: TrainCommand,
}

#[cfg(feature = "train")]
#[derive(Debug, clap::Subcommand)]
enum TrainCommand {
    Finetune(finetune::FinetuneArgs),
    Distill(distill::DistillArgs),
    Pretrain(pretrain::PretrainArgs),
    Ticket(ticket::TicketArgs),
    Transfer(transfer::TransferArgs),
    Average(average::AverageArgs),
    Bench(bench::BenchArgs),
}

/// Runs the command.
#[cfg(feature = "train")]
pub fn train(args: &TrainArgs) -> Result<(), Failure> {
    crate::interrupt::watch();
    match &args.command {
        TrainCommand::Finetune(args) => finetune::finetune(args),
        TrainCommand::Distill(args) => distill::distill(args),
        TrainCommand::Pretrain(args) => pretrain::pretrain(args),
        TrainCommand::Ticket(args) => ticket::ticket(args),
        TrainCommand::Transfer(args) => transfer::transfer(args),
        TrainCommand::Average(args) => average::average(args),
        TrainCommand::Bench(args) => bench::bench(args),
    }
}

/// Trains a model (not in this build: needs the cargo feature `train`)
#[cfg(not(feature = "train"))]
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// What a build with training would do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

/// Says what to do instead.
#[cfg(not(feature = "train"))]
pub fn train(_: &TrainArgs) -> Result<(), Failure> {
    absent()
}

/// Training is not in this build.
#[cfg(not(feature = "train"))]
pub fn absent() -> Result<(), Failure> {
    Err(Failure::new(
        "this program was built without training; build it with `cargo build --release --features train` \
         (and cuda or wgpu for a GPU: `--features train,cuda`)",
    ))
}
