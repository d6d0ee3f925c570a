//! `sparing train ticket`.

use super::common::{HowArgs, OutArgs};
use super::finetune::DataArgs;
use super::watch::watched_as;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::load::{self, HeadArg};
use crate::table::{Align, Table, bytes};
use clap::Args;
use sparing_tasks::Value;
use sparing_train::{RoundKind, Ticket, TicketSummary, device};

/// Share of the weights that a round takes out.
const PER_ROUND: f64 = 0.1;

/// Looks for a lottery ticket: few of a pre-trained model's weights that train as well as all
///
/// Trains the model, takes the smallest weights out of attention, feed-forward blocks and pooler together, puts the others
/// back to what they were before training, trains again, and so on; then trains as many weights drawn at random. What comes
/// out is stored sparsely: a smaller file. It is not faster, the engine multiplies zeros too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing train ticket MODEL --task rte --data glue --out ticket     half of the weights goes
  sparing train ticket MODEL --task mrpc --data glue --out ticket --sparsity 0.7 --rounds 3
Ctrl-C saves and stops; the same command with --resume goes on, round by round.")]
pub struct TicketArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision
    #[arg(value_name = "MODEL")]
    model: String,

    /// Share of the weights that is gone in the end
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    sparsity: f64,

    /// Rounds to take them out in [default: a tenth of the weights each]
    #[arg(long, value_name = "N", value_parser = crate::args::positive)]
    rounds: Option<usize>,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    out: OutArgs,

    #[command(flatten)]
    how: HowArgs,
}

/// Runs the command.
pub fn ticket(args: &TicketArgs) -> Result<(), Failure> {
    if !(args.sparsity > 0.0 && args.sparsity < 1.0) {
        return Err(Failure::Usage(format!("--sparsity {}: a share above 0 and below 1 is expected", args.sparsity)));
    }
    if args.how.seed.len() > 1 {
        return Err(Failure::Usage("--seed: a search has one seed".to_string()));
    }
    let options = args.how.options()?;
    let device = device(&args.how.device)?;
    let (train, dev) = args.data.read()?;
    let model = load::open_sound(&args.model, Some(HeadArg::Hidden))?;
    // A share such as 0.3 is a little more than three tenths.
    let rounds = args.rounds.unwrap_or_else(|| (args.sparsity / PER_ROUND - 1e-9).ceil() as usize);
    let job = Ticket {
        model: &model,
        train: &train,
        dev: &dev,
        options,
        max_tokens: Some(args.how.tokens()),
        sparsity: args.sparsity,
        rounds,
        device,
        place: args.out.place()?,
    };
    let names = job.plan().iter().map(|(kind, sparsity)| name(*kind, *sparsity)).collect();
    let summary = watched_as(names, |watch| job.run(watch))?;
    print(&summary, &args.out)
}

/// `ticket, 30% gone`.
fn name(kind: RoundKind, sparsity: f64) -> String {
    match kind {
        RoundKind::Dense => "dense".to_string(),
        RoundKind::Ticket => format!("ticket, {:.0}% gone", 100.0 * sparsity),
        RoundKind::Random => format!("random, {:.0}% gone", 100.0 * sparsity),
    }
}

/// Prints what was found. Unfinished: says how to go on, and ends as interrupted.
fn print(summary: &TicketSummary, args: &OutArgs) -> Result<(), Failure> {
    summary.notes.iter().for_each(|note| console::note(note));
    let mut out = Out::new();
    if args.json {
        out.pretty(summary)?;
    } else {
        let mut table = Table::new(&[
            ("weights", Align::Left),
            ("left", Align::Right),
            ("file", Align::Right),
            ("score of the saved model", Align::Left),
        ]);
        for round in &summary.rounds {
            let scores = round.saved.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
            let left = format!("{:.0}%", 100.0 * (1.0 - round.sparsity));
            table.row([name(round.kind, round.sparsity), left, bytes(round.bytes as f64), scores]);
        }
        out.text(&table.text(out.paint))?;
        if summary.complete {
            let (directory, all) = (summary.directory.display(), summary.prunable);
            out.line("")?;
            out.line(&format!("{directory}: the ticket, of {all} weights that may go; ticket.json holds this table"))?;
        }
    }
    out.flush()?;
    if summary.complete {
        return Ok(());
    }
    console::note("saved; go on with the same command and --resume");
    Err(Failure::Interrupted)
}
