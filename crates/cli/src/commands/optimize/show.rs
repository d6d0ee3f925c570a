//! What came of it, in a few lines or as JSON.

use super::OptimizeArgs;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::table::{Align, Table};
use sparing_report::{Candidate, Report};
use std::path::Path;

/// Shows the report of the model in this place.
pub fn show(args: &OptimizeArgs, report: &Report, place: &Path) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        out.text(&report.json())?;
        out.flush()?;
        warn(report);
        return Ok(());
    }
    let headline = report.headline();
    out.line(&out.paint.strong(&headline.sentence))?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("score on unseen rows", Align::Right),
        ("95% interval", Align::Right),
        ("ms a request", Align::Right),
        ("speed", Align::Right),
        ("MB of weights", Align::Right),
    ]);
    table.row(row("as it came", &report.baseline));
    if let Some(chosen) = report.chosen() {
        table.row(row("optimised", chosen));
    }
    out.text(&table.text(out.paint))?;
    if let Some(chosen) = report.chosen() {
        out.line(&format!("what was done: {}", chosen.what))?;
    }
    out.line(&format!("{} is the model; its report is {}", place.display(), place.join("report.html").display()))?;
    out.flush()?;
    for note in &report.notes {
        console::note(note);
    }
    warn(report);
    Ok(())
}

/// The last word of a search that did not do all that was asked: what it found is good, so it ends well all the same.
fn warn(report: &Report) {
    if let Some(why) = &report.failure {
        console::warning(&format!("not all was done, for fine-tuning failed ({why}); --resume goes on"));
    }
}

fn row(name: &str, candidate: &Candidate) -> Vec<String> {
    let score = |x: f64| format!("{x:.4}");
    vec![
        name.to_string(),
        candidate.score.map_or("-".into(), score),
        candidate.interval.map_or("-".into(), |i| format!("{:.4} to {:.4}", i.low, i.high)),
        format!("{:.2}", candidate.time_ms),
        candidate.time_interval.map_or("1".into(), |i| format!("{:.2} to {:.2}", i.low, i.high)),
        format!("{:.1}", candidate.bytes as f64 / 1e6),
    ]
}
