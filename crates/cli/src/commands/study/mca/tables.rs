//! Results in the paper's shape, with its numbers beside ours, as Markdown.

use super::equal::{self, POINTS};
use super::paper::{self, Published};
use super::results::{Measured, Part, Score};
use crate::failure::Failure;
use crate::files;
use crate::table::{Align, Table};
use sparing_model::Sampler;
use std::path::{Path, PathBuf};

/// Share of the score that may be lost where configurations are compared by the clock.
const MAY_LOSE: f64 = 0.005;

/// Rounds that a time must be the best of to be told.
const ROUNDS: usize = 3;

/// Writes all tables into the folder of a study.
pub fn write(measured: &[Measured], folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("mca.md");
    files::write(&path, markdown(measured).as_bytes())?;
    Ok(path)
}

/// All tables.
pub fn markdown(measured: &[Measured]) -> String {
    let published = paper::published();
    let mut text = String::from(
        "# Monte-Carlo Attention: what was published, and what we measure\n\n\
         The paper: Kim and Ko, \"Fast Monte-Carlo Approximation of the Attention Mechanism\", AAAI 2022. Scores are in points, ± is the half \
         width of the 95% interval over seeds. Ours are on dev sets with the models named.\n",
    );
    let mut section = |title: &str, words: &str, table: Option<Table>| {
        if let Some(table) = table {
            text += &format!("\n## {title}\n\n{words}\n\n{}", table.markdown());
        }
    };
    for part in Part::ALL {
        let inputs = match paper_sampler(measured, true).any(|m| m.cell.part == part) {
            true => "inputs padded to 128",
            false => "inputs as long as they are",
        };
        section(
            &format!("Table {}: {}", part.table(), part.published()),
            &format!(
                "The paper's sampler with {inputs}, f32. Times fewer FLOPs of the value encoding are as the authors count, padding included; \
                 in parentheses on real tokens."
            ),
            as_published(measured, &published, part),
        );
    }
    section(
        "What the reduction is made of",
        "Padding alone: tokens with padding to 128 beside real ones, which an engine without padding never computes. Its share is of the \
         logarithm of the reduction as the authors count.",
        made_of(measured),
    );
    section(
        "The actual length",
        "The paper's sampler with the real number of tokens in equation 9, f32; times fewer FLOPs of the value encoding on real tokens.",
        actual(measured),
    );
    section(
        "Samplers at equal operations",
        &format!(
            "At the operations where the paper's sampler loses {POINTS} points of the headline metric (between measured alphas in proportion): what the others lose \
             there. A third would be {:.2}.",
            POINTS / 3.0
        ),
        equal_operations(measured),
    );
    section(
        "In the clock",
        &format!(
            "The fastest configuration that keeps 99.5% of the exact score in the same precision, whatever it is: times faster by the clock, and in CPU time, which \
             other programs disturb less and which decides; of those timed in {ROUNDS} rounds at least."
        ),
        clock(measured),
    );
    section(
        "Every configuration",
        "Times fewer operations: of the value encoding as the authors count, the same on real tokens, of A·X·W, of the whole model. Time: times \
         faster than the exact engine in the same precision, interleaved, where it is the best of three rounds at least.",
        Some(everything(measured)),
    );
    text
}

fn points(score: &Score) -> String {
    let half = score.half.map_or(String::new(), |half| format!("±{:.1}", 100.0 * half));
    format!("{:.2}{half}", 100.0 * score.mean)
}

fn times(x: f64) -> String {
    format!("{x:.2}x")
}

/// Times faster, by the clock and in CPU time, if that was measured well enough to be told.
fn faster(m: &Measured) -> [String; 2] {
    if m.rounds >= ROUNDS { [times(m.time), times(m.cpu)] } else { Default::default() }
}

/// The alphas of the grid, ascending.
fn alphas<'a>(measured: impl Iterator<Item = &'a Measured>) -> Vec<f32> {
    let mut alphas: Vec<f32> = measured.filter_map(|m| m.cell.way.map(|way| way.alpha)).collect();
    alphas.sort_by(f32::total_cmp);
    alphas.dedup();
    alphas
}

/// Results of the paper's sampler in f32.
fn paper_sampler(measured: &[Measured], padded: bool) -> impl Iterator<Item = &Measured> + Clone {
    measured.iter().filter(move |m| {
        let way = m.cell.way.is_some_and(|way| way.sampler == Sampler::Paper && way.padded.is_some() == padded);
        way && m.cell.precision == "f32"
    })
}

/// One result per model and task, in order.
fn subjects<'a>(measured: impl Iterator<Item = &'a Measured>) -> Vec<&'a Measured> {
    let mut subjects: Vec<&Measured> = Vec::new();
    for m in measured {
        if !subjects.iter().any(|s| same_subject(s, m)) {
            subjects.push(m);
        }
    }
    subjects.sort_by_key(|m| m.cell.part);
    subjects
}

fn same_subject(a: &Measured, b: &Measured) -> bool {
    (a.cell.part, &a.cell.task, &a.cell.model) == (b.cell.part, &b.cell.task, &b.cell.model)
}

/// Whose results they are and what they rest on.
fn whose<'a>(subject: &Measured, all: impl Iterator<Item = &'a Measured> + Clone) -> String {
    let own = all.filter(|m| same_subject(m, subject));
    let span = |number: fn(&Measured) -> usize| {
        let numbers = own.clone().map(number);
        match (numbers.clone().min(), numbers.max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (least, _) => least.unwrap_or(0).to_string(),
        }
    };
    format!("{} ({} rows, {} seeds)", subject.cell.model, span(|m| m.cell.rows), span(|m| m.cell.seeds))
}

fn with_alphas(first: &[&str], alphas: &[f32]) -> Table {
    let titles: Vec<String> = alphas.iter().flat_map(|alpha| [format!("α={alpha}"), "FLOPs".to_string()]).collect();
    let left = first.iter().map(|title| (*title, Align::Left));
    Table::new(&left.chain(titles.iter().map(|title| (title.as_str(), Align::Right))).collect::<Vec<_>>())
}

fn as_published(measured: &[Measured], published: &[Published], part: Part) -> Option<Table> {
    let padded = |long: bool| paper_sampler(measured, !long).filter(move |m| m.cell.part == part);
    // Long documents are not padded.
    let long = padded(false).next().is_none();
    let alphas = alphas(padded(long));
    let mut table = with_alphas(&["task", "metric", "model", "exact"], &alphas);
    for subject in subjects(padded(long)) {
        for (number, score) in subject.scores.iter().enumerate() {
            let theirs = paper::find(published, part, &subject.cell.task, score.metric);
            // What the paper does not report needs no comparison, unless it reports nothing of the task.
            if theirs.is_none() && number > 0 {
                continue;
            }
            let name = [subject.cell.task.clone(), score.metric.name().to_string()];
            if let Some(theirs) = theirs {
                let cells = alphas.iter().flat_map(|alpha| {
                    let result = theirs.results.iter().find(|r| r.alpha == *alpha);
                    let shown = result.map(|r| [format!("{:.2}±{:.1}", r.mean, r.half), times(r.reduction)]);
                    shown.unwrap_or_default()
                });
                let first = [format!("the paper's {}", part.published()), format!("{:.2}", theirs.exact)];
                table.row(name.clone().into_iter().chain(first).chain(cells));
            }
            let cells = alphas.iter().flat_map(|alpha| {
                let at = |m: &&Measured| same_subject(m, subject) && m.cell.way.is_some_and(|way| way.alpha == *alpha);
                let found = padded(long).find(at).and_then(|m| Some((m, m.scores.get(number)?)));
                let shown =
                    found.map(|(m, score)| [points(score), format!("{} ({})", times(m.authors), times(m.values))]);
                shown.unwrap_or_default()
            });
            let first = [whose(subject, padded(long)), format!("{:.2}", 100.0 * score.exact)];
            table.row(name.into_iter().chain(first).chain(cells));
        }
    }
    (!alphas.is_empty()).then_some(table)
}

fn made_of(measured: &[Measured]) -> Option<Table> {
    let left = [("task", Align::Left), ("model", Align::Left)];
    let right = [
        "tokens",
        "padding alone",
        "alpha",
        "as the authors count",
        "padding's share",
        "on real tokens",
        "A·X·W",
        "whole model",
    ];
    let mut table = Table::new(&[&left[..], &right.map(|title| (title, Align::Right))[..]].concat());
    let mut any = false;
    for m in paper_sampler(measured, true) {
        any = true;
        table.row([
            m.cell.task.clone(),
            m.cell.model.clone(),
            format!("{:.1}", m.tokens),
            times(m.padding),
            m.cell.way.map_or(String::new(), |way| way.alpha.to_string()),
            times(m.authors),
            format!("{:.0}%", 100.0 * m.padding.ln() / m.authors.ln()),
            times(m.values),
            times(m.attention_ratio),
            format!("{:.3}x", m.whole),
        ]);
    }
    any.then_some(table)
}

fn actual(measured: &[Measured]) -> Option<Table> {
    let alphas = alphas(paper_sampler(measured, false));
    let mut table = with_alphas(&["task", "metric", "model", "exact"], &alphas);
    for subject in subjects(paper_sampler(measured, false)) {
        let Some(headline) = subject.headline() else { continue };
        let cells = alphas.iter().flat_map(|alpha| {
            let at = |m: &&Measured| same_subject(m, subject) && m.cell.way.is_some_and(|way| way.alpha == *alpha);
            let found = paper_sampler(measured, false).find(at);
            found.and_then(|m| Some([points(m.headline()?), times(m.values)])).unwrap_or_default()
        });
        let name = [
            subject.cell.task.clone(),
            headline.metric.name().to_string(),
            whose(subject, paper_sampler(measured, false)),
        ];
        table.row(name.into_iter().chain([format!("{:.2}", 100.0 * headline.exact)]).chain(cells));
    }
    (!alphas.is_empty()).then_some(table)
}

fn equal_operations(measured: &[Measured]) -> Option<Table> {
    let comparisons = equal::compare(measured);
    let left = ["task", "model", "precision", "length"].map(|title| (title, Align::Left));
    let right = ["paper's alpha", "FLOPs", "the others lose", "best", "at most a third"].map(|t| (t, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..]].concat());
    for c in &comparisons {
        let loss = |(sampler, loss): &(Sampler, Option<f64>)| match loss {
            Some(loss) => format!("{} {loss:.2}", sampler.name()),
            None => format!("{} not measured there", sampler.name()),
        };
        let (best, third) = match c.best() {
            Some((sampler, loss)) => (sampler.name(), if loss <= POINTS / 3.0 { "yes" } else { "no" }),
            None => ("", ""),
        };
        table.row([
            c.task.clone(),
            c.model.clone(),
            c.precision.clone(),
            c.padded.map_or("actual".to_string(), |n| n.to_string()),
            format!("{:.2}", c.alpha),
            times(c.reduction),
            c.losses.iter().map(loss).collect::<Vec<_>>().join(", "),
            best.to_string(),
            third.to_string(),
        ]);
    }
    (!comparisons.is_empty()).then_some(table)
}

fn clock(measured: &[Measured]) -> Option<Table> {
    let left = ["task", "model", "precision", "fastest"].map(|title| (title, Align::Left));
    let right =
        ["metric", "exact", "score", "FLOPs of the model", "time", "CPU time"].map(|title| (title, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..]].concat());
    let timed = || measured.iter().filter(|m| m.rounds >= ROUNDS);
    for subject in subjects(timed()) {
        let mut precisions: Vec<&str> = Vec::new();
        let all = || timed().filter(|m| same_subject(m, subject));
        for m in all() {
            if !precisions.contains(&m.cell.precision.as_str()) {
                precisions.push(&m.cell.precision);
            }
        }
        for precision in precisions {
            let keeps = |m: &&Measured| m.headline().is_some_and(|s| s.mean >= s.exact * (1.0 - MAY_LOSE));
            let alike = all().filter(|m| m.cell.precision == precision);
            let best = alike.clone().filter(keeps).max_by(|a, b| a.cpu.total_cmp(&b.cpu));
            let name = [subject.cell.task.clone(), subject.cell.model.clone(), precision.to_string()];
            let rest = match best.and_then(|m| Some((m, m.headline()?))) {
                Some((m, score)) => vec![
                    format!("`{}`", m.cell.attention),
                    score.metric.name().to_string(),
                    format!("{:.2}", 100.0 * score.exact),
                    points(score),
                    format!("{:.2}x", m.whole),
                    times(m.time),
                    times(m.cpu),
                ],
                None => vec![format!("none of {} keeps it", alike.count())],
            };
            table.row(name.into_iter().chain(rest));
        }
    }
    timed().next().is_some().then_some(table)
}

/// Every result, one per row.
pub fn everything(measured: &[Measured]) -> Table {
    let left = ["task", "model", "precision", "attention"].map(|title| (title, Align::Left));
    let right =
        ["rows", "seeds", "metric", "exact", "score", "authors", "values", "A·X·W", "model", "time", "CPU time"]
            .map(|title| (title, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..]].concat());
    for m in measured {
        let cell = &m.cell;
        let Some(score) = m.headline() else { continue };
        // Without a sampler there is no value encoding to count.
        let counted = |x: f64| if m.values == 1.0 && cell.way.is_none() { String::new() } else { times(x) };
        let counts = [
            cell.task.clone(),
            cell.model.clone(),
            cell.precision.clone(),
            cell.attention.clone(),
            cell.rows.to_string(),
            cell.seeds.to_string(),
            score.metric.name().to_string(),
            format!("{:.2}", 100.0 * score.exact),
            points(score),
            counted(m.authors),
            counted(m.values),
            counted(m.attention_ratio),
            format!("{:.3}x", m.whole),
        ];
        table.row(counts.into_iter().chain(faster(m)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::results::Way;
    use super::super::results::tests::{measured, padded};
    use super::*;

    #[test]
    fn ours_stand_under_the_papers() {
        let actual = Way { padded: None, ..padded(0.2) };
        let all = [
            measured("sst2", padded(0.2), (0.9002, 0.9), 1.19),
            measured("sst2", padded(0.4), (0.9002, 0.896), 1.45),
            measured("sst2", actual, (0.9002, 0.86), 2.35),
            measured("mine", padded(0.2), (0.7, 0.6), 1.1),
        ];
        let mut fewer = measured("sst2", Way { padded: None, ..padded(1.0) }, (0.9002, 0.5), 9.0);
        (fewer.cell.rows, fewer.cell.seeds) = (50, 8);
        let all = [&all[..], &[fewer]].concat();
        let text = markdown(&all);
        for part in [
            "## Table 1: BERT",
            "| task | metric | model | exact | α=0.2 | FLOPs | α=0.4 | FLOPs |",
            "| sst2 | accuracy | the paper's BERT | 92.43 | 92.26±0.0 | 5.58x | 92.04±0.0 | 6.71x |",
            "| sst2 | accuracy | tiny (100 rows, 8 seeds) | 90.02 | 90.00±0.2 | 5.95x (1.19x) | 89.60±0.2 | 7.25x (1.45x) |",
            // A task that the paper does not have, at an alpha that was not measured.
            "| mine | accuracy | tiny (100 rows, 8 seeds) | 70.00 | 60.00±0.2 | 5.50x (1.10x) |  |  |",
            "| sst2 | tiny | 25.0 | 5.00x | 0.2 | 5.95x | 90% | 1.19x | 1.25x | 1.012x |",
            "| sst2 | accuracy | tiny (50 to 100 rows, 8 seeds) | 90.02 | 86.00±0.2 | 2.35x |",
            // Of what keeps 99.5%: the padded ones, not the one that loses 4 points.
            "| sst2 | tiny | f32 | `paper:0.4,padded=128,strict` | accuracy | 90.02 | 89.60±0.2 | 1.01x | 1.01x | 1.02x |",
            "| mine | tiny | f32 | none of 1 keeps it |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("Table 2") && !text.contains("equal operations") && !text.contains("NaN"), "{text}");
    }
}
