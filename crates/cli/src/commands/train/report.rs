//! What came of training, as a table and as JSON.

use super::common::OutArgs;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::table::{Align, Table, seconds};
use sparing_tasks::Mean;
use sparing_tasks::Value;
use sparing_train::Summary;

/// Prints the summary. Unfinished: says how to go on, and ends as interrupted.
pub fn print(summary: &Summary, out_args: &OutArgs) -> Result<(), Failure> {
    summary.notes.iter().for_each(|note| console::note(note));
    let mut out = Out::new();
    if out_args.json {
        out.pretty(summary)?;
    } else {
        people(summary, &mut out)?;
    }
    out.flush()?;
    if summary.complete {
        return Ok(());
    }
    console::note("saved; go on with the same command and --resume");
    Err(Failure::Interrupted)
}

fn people(summary: &Summary, out: &mut Out) -> Result<(), Failure> {
    if summary.runs.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("seed", Align::Right),
        ("updates", Align::Right),
        ("kept", Align::Right),
        ("loss", Align::Right),
        ("time", Align::Right),
        ("tokens/s", Align::Right),
        ("score of the saved model", Align::Left),
    ]);
    for run in &summary.runs {
        let scores = run.saved.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        table.row([
            run.seed.to_string(),
            run.steps.to_string(),
            run.kept.to_string(),
            format!("{:.4}", run.late_loss),
            seconds(run.seconds),
            crate::table::count(run.tokens as f64 / run.seconds),
            scores,
        ]);
    }
    out.text(&table.text(out.paint))?;
    if summary.runs.len() > 1 {
        out.line("")?;
        for mean in &summary.means {
            out.line(&out.paint.strong(&shown(mean, summary.runs.len())))?;
        }
    }
    if let [run] = summary.runs.as_slice() {
        out.line("")?;
        out.line(&format!("{}: the model, train.jsonl, loss.svg, training.json", run.directory.display()))?;
    }
    Ok(())
}

/// `accuracy 90.02 ± 0.31% (5 seeds, 95% t-interval)`.
fn shown(mean: &Mean, seeds: usize) -> String {
    let (scale, digits, sign) = if mean.metric.is_share() { (100.0, 2, "%") } else { (1.0, 4, "") };
    let half = mean.half.map(|h| format!(" ± {:.digits$}", h * scale)).unwrap_or_default();
    let (name, value) = (mean.metric.name(), mean.mean * scale);
    format!("{name} {value:.digits$}{half}{sign} ({seeds} seeds, 95% t-interval)")
}
