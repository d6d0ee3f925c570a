//! A result that is measured once more: what the clock said of it on a busy machine need not be the last word.

use super::finish::{base_card, command, here};
use super::{OptimizeArgs, given, saved, show};
use crate::failure::Failure;
use crate::progress;
use sparing_engine::Engine;
use sparing_model::Model;
use sparing_report::Report;

/// Words of a command line that say nothing of what was searched for.
const MANNER: [&str; 4] = ["--again", "--json", "--resume", "--overwrite"];

/// Measures what is in `--out` and renews its report.
pub fn again(args: &OptimizeArgs) -> Result<(), Failure> {
    let path = args.out.join("report.json");
    let refused = |why: String| Failure::new(format!("--again: {}: {why}", path.display()));
    let text = std::fs::read_to_string(&path)
        .map_err(|e| refused(format!("cannot be read ({e}); it is for what sparing optimize has saved in --out")))?;
    let mut report = Report::parse(&text).map_err(|e| refused(format!("is no report of sparing optimize ({e})")))?;
    if essence(&report.command) != essence(&command()) {
        let why = format!("is of another command, and would be mixed up; give that one: {} --again", report.command);
        return Err(refused(why));
    }
    let here = here();
    if report.machine != here {
        let why = format!(
            "is of another machine ({}, {} cores, {}), whose clock chose the plan; optimise here too",
            report.machine.cpu, report.machine.cores, report.machine.isa
        );
        return Err(refused(why));
    }
    let (data, model) = given(args)?;
    let spinner = progress::spinner("the speed of what was saved");
    let saved = Model::load(&args.out)?;
    let [first, second] = [&model, &saved].map(|model| Engine::compile(model, &args.engine()));
    let own = saved::race(args, &model, &data, &first?, &second?)?;
    spinner.set_message("a fresh process measures what was saved");
    let measured = saved::by_fresh_process(&args.out)?;
    spinner.finish_and_clear();
    let before = report.verification.take().unwrap_or_default();
    if (measured.score - before.score).abs() > 1e-6 * before.score.abs().max(1.0) || measured.bytes != before.bytes {
        return Err(refused(format!(
            "says score {:.4} and {} bytes, and there are score {:.4} and {} bytes: the model, the rows or the result are no longer what they \
             were; optimise again",
            before.score, before.bytes, measured.score, measured.bytes
        )));
    }
    report.retime(measured.verification(&own), measured.baseline_ms);
    report.notes.retain(|note| !note.starts_with(saved::DOUBTFUL));
    report.notes.splice(0..0, measured.doubt());
    report.save(&args.out, &base_card(args, &model))?;
    show::show(args, &report, &args.out)
}

/// What a command line says of what is searched for.
fn essence(command: &str) -> Vec<&str> {
    command.split(' ').filter(|word| !MANNER.contains(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::essence;

    #[test]
    fn what_is_asked_for_is_told_from_how() {
        let before = essence("sparing optimize m --seed 2 --out fast --overwrite --json");
        assert_eq!(before, essence("sparing optimize m --again --seed 2 --out fast"));
        assert_ne!(before, essence("sparing optimize m --again --seed 3 --out fast"));
    }
}
