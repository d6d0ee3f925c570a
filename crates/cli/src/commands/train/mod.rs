//! `sparing train`: a better or smaller model from one that is there.

mod average;
mod bench;
mod common;
mod distill;
mod finetune;
mod pretrain;
mod report;
mod ticket;
mod transfer;
pub mod watch;

use crate::failure::Failure;
use clap::Args;

/// Trains a model: fine-tune on labels, distil into a smaller one, pre-train on text
///
/// What comes out is a Hugging Face directory that `sparing run` and `sparing eval` take, with the log, the loss curve
/// and the score of the directory itself beside the weights.
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(subcommand)]
    command: TrainCommand,
}

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
