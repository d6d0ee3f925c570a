//! A result that is measured once more: what the clock said of it on a busy machine need not be the last word.

use super::finish::{base_card, command, here, quoted, versions};
use super::{OptimizeArgs, given, resume, saved, show};
use crate::failure::Failure;
use crate::{console, interrupt, progress};
use sparing_engine::Engine;
use sparing_model::Model;
use sparing_optimize::Journal;
use sparing_report::{Report, Verification, Versions};
use std::path::Path;

/// Words of a command line that say nothing of what was searched for.
const MANNER: [&str; 4] = ["--again", "--json", "--resume", "--overwrite"];

/// Measures what is in `--out` and renews its report.
pub fn again(args: &OptimizeArgs) -> Result<(), Failure> {
    // A search that goes on would replace what is measured here.
    let _held = Journal::hold(&args.journal())?;
    let path = args.out.join("report.json");
    let refused = |why: String| Failure::new(format!("--again: {}: {why}", path.display()));
    let read = || std::fs::read_to_string(&path);
    let text = read()
        .map_err(|e| refused(format!("cannot be read ({e}); it is for what sparing optimize has saved in --out")))?;
    let earlier = Report::parse(&text).map_err(|e| refused(format!("is no report of sparing optimize ({e})")))?;
    let before = comparable(&earlier, &args.out).map_err(refused)?;
    let (data, model) = given(args)?;
    is_of(&earlier, &model, &resume::marks(&model, &[&data.unseen])?).map_err(refused)?;
    let spinner = progress::spinner("the speed of what was saved");
    let saved = Model::load(&args.out)?;
    let [first, second] = [&model, &saved].map(|model| Engine::compile(model, &args.engine()));
    let own = saved::race(args, &model, &data, &first?, &second?)?;
    interrupt::check()?;
    spinner.set_message("a fresh process measures what was saved");
    let measured = saved::by_fresh_process(&args.out);
    // Whatever went wrong after Ctrl-C did so because of it.
    interrupt::check()?;
    let measured = measured?;
    spinner.finish_and_clear();
    if (measured.score - before.score).abs() > 1e-6 * before.score.abs().max(1.0) || measured.bytes != before.bytes {
        return Err(refused(format!(
            "says score {:.4} and {} bytes, and there are score {:.4} and {} bytes: the model, the rows or the result are no longer what they \
             were; optimise again",
            before.score, before.bytes, measured.score, measured.bytes
        )));
    }
    if !read().is_ok_and(|now| now == text) {
        return Err(refused("was changed by something else while this measured; it is left as it is now".into()));
    }
    let mut report = earlier.clone();
    report.retime(measured.verification(&own), measured.baseline_ms);
    report.notes.retain(|note| !note.starts_with(saved::DOUBTFUL));
    report.notes.splice(0..0, measured.doubt());
    if !report.renew(&args.out, &base_card(args, &model), &earlier)? {
        let card = args.out.join("README.md");
        console::note(&format!("{}: is not as sparing optimize wrote it, and is left as it is", card.display()));
    }
    show::show(args, &report, &args.out)
}

/// What was measured before, of a report whose times can be told beside new ones; else why they cannot.
fn comparable(report: &Report, place: &Path) -> Result<Verification, String> {
    let before = essence(&report.command);
    if before != essence(&command()) {
        let (before, place) = (before.join(" "), quoted(&place.display().to_string()));
        return Err(format!(
            "is of another command, and would be mixed up; give that one: {before} --out {place} --again"
        ));
    }
    let machine = &report.machine;
    if *machine != here() {
        return Err(format!(
            "is of another machine ({}, {} cores, {}), whose clock chose the plan; optimise here too",
            machine.cpu, machine.cores, machine.isa
        ));
    }
    if report.versions != versions() {
        let [then, now] = [&report.versions, &versions()].map(named);
        return Err(format!(
            "is of another program ({then}; this is {now}), which chose the plan; optimise with this one too"
        ));
    }
    let none = "says nothing of what a fresh process measured, so there is nothing to measure again; optimise again";
    report.verification.clone().ok_or_else(|| none.to_string())
}

/// Whether a report is of this model as it came, and of rows with these marks; else why it is not.
fn is_of(report: &Report, model: &Model, marks: &str) -> Result<(), String> {
    // Reports of earlier versions have no marks.
    let same = match report.marks.is_empty() {
        true => report.baseline.bytes == model.weights.size_in_bytes() as u64,
        false => report.marks == marks,
    };
    match same {
        true => Ok(()),
        false => Err("is of another model, or of other rows, under the same name; optimise again".into()),
    }
}

/// A program in words.
fn named(versions: &Versions) -> String {
    let Versions { sparing, commit, build } = versions;
    let parts = [Some(sparing), commit.as_ref(), build.as_ref()];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What a command line says of what is searched for: all but how, and where the result goes.
fn essence(command: &str) -> Vec<&str> {
    let mut words = words(command).into_iter();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--out" => _ = words.next(),
            _ if MANNER.contains(&word) || word.starts_with("--out=") || word.starts_with("'--out=") => {}
            _ => all.push(word),
        }
    }
    all
}

/// The words of a command line as [`quoted`] writes them: between single quotes a space is part of one.
fn words(command: &str) -> Vec<&str> {
    let (mut inside, mut escaped) = (false, false);
    let ends = |letter: char| {
        inside ^= letter == '\'' && !escaped;
        escaped = letter == '\\' && !inside;
        letter == ' ' && !inside
    };
    command.split(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::essence;

    #[test]
    fn what_is_asked_for_is_told_from_how_and_where() {
        let before = essence("sparing optimize m --seed 2 --out fast --overwrite --json");
        for same in
            ["--seed 2 --out fast-2", "--out 'my own/fast' --seed 2", "'--out=my own' --seed 2", "--out=/x --seed 2"]
        {
            assert_eq!(before, essence(&format!("sparing optimize m --again {same}")), "{same}");
        }
        for other in ["--seed 3 --out fast", "--seed 2 --data 'a --out b'", "--seed 2 --data --out", "--seed"] {
            assert_ne!(before, essence(&format!("sparing optimize m --again {other}")), "{other}");
        }
        assert_eq!(essence(r"m --data 'it'\''s mine.csv' --out o"), ["m", "--data", r"'it'\''s mine.csv'"]);
    }
}
