//! The outcome: the headline, the large numbers, before and after, and what else the user should know.

use super::table::{Cell, Table};
use super::{subject, titled};
use crate::format::{NONE, bytes, confidently, count, percent, ratio, speeds, time};
use crate::headline::{compared, direction};
use crate::{Candidate, Interval, Report, Verdict, Verification};
use sparing_markup::Element;

/// The headline and the large numbers.
pub(super) fn header(report: &Report) -> Element {
    let headline = report.headline();
    let (class, badge) = match headline.verdict {
        Verdict::Within => ("good", "Within budget"),
        Verdict::Beyond => ("bad", "Beyond budget"),
        Verdict::Unknown => ("unsure", "Not known"),
        Verdict::Unchanged => ("unsure", "Unchanged"),
    };
    let line = Element::new("p")
        .set("class", "eyebrow")
        .with(Element::new("span").set("class", format!("badge {class}")).text(badge))
        .text(&subject(&report.model, &report.task));
    let mut header = Element::new("header").with(line).with(Element::new("h1").text(&headline.sentence));
    if let Some(doubt) = &headline.doubt {
        header = header.with(Element::new("p").set("class", "doubt").text(doubt));
    }
    match report.chosen() {
        Some(chosen) => header.with(tiles(report, chosen)),
        None => header,
    }
}

fn tiles(report: &Report, chosen: &Candidate) -> Element {
    let before = &report.baseline;
    let metric = &report.task.metric;
    let mut tiles = vec![
        tile(
            &large(chosen.time_ratio),
            direction(chosen.time_ratio, "faster", "slower", "as fast as before"),
            &speed_below(before, chosen),
        ),
        tile(
            &large(report.size_ratio(chosen)),
            direction(report.size_ratio(chosen), "smaller", "larger", "as large as before"),
            &format!("{} → {}", bytes(before.bytes), bytes(chosen.bytes)),
        ),
    ];
    if let Some(loss) = report.loss(chosen) {
        let (from, to, rows) = match (loss.unseen, before.score, chosen.score) {
            (true, Some(from), Some(to)) => (from, to, "unseen rows"),
            _ => (before.search_score, chosen.search_score, "searched rows"),
        };
        let change = metric.show_change(loss.change).replace(metric.unit(), "");
        let unit = if metric.is_share { format!("points of {}", metric.name) } else { metric.name.clone() };
        tiles.push(tile(&change, &unit, &format!("{} → {}, {rows}", metric.show(from), metric.show(to))));
    }
    if let Some(agreement) = chosen.agreement {
        tiles.push(tile(&percent(agreement, 1), "same answers", "as the model gave before"));
    }
    Element::new("div").set("class", "tiles").extend(tiles)
}

/// Both times, and where the speed lies.
fn speed_below(before: &Candidate, chosen: &Candidate) -> String {
    let times = format!("{} → {}", time(before.time_ms), time(chosen.time_ms));
    chosen.time_interval.as_ref().map_or(times.clone(), |interval| format!("{times}; {} times", speeds(interval)))
}

/// A ratio that is at least one: the words beside it say in which direction.
fn large(times: f64) -> String {
    ratio(if times < 1.0 { 1.0 / times } else { times })
}

fn tile(number: &str, unit: &str, below: &str) -> Element {
    Element::new("div")
        .set("class", "tile")
        .with(Element::new("p").with(Element::new("b").text(number)).text(" ").with(Element::new("span").text(unit)))
        .with(Element::new("small").text(below))
}

/// The table of before and after, and what a fresh process measured.
pub(super) fn before_and_after(report: &Report) -> Option<Element> {
    let (before, task) = (&report.baseline, &report.task);
    let metric = &task.metric;
    let after = report.chosen();
    let columns: &[&str] = if after.is_some() { &["", "before", "after", "change"] } else { &["", "before"] };
    let score = |score: Option<f64>, interval: &Option<Interval>| -> Cell {
        let cell = Cell::from(score.map_or_else(|| NONE.to_owned(), |score| metric.show(score)));
        match interval {
            Some(interval) => cell.below(metric.show_interval(interval)),
            None => cell,
        }
    };
    let change = |from: Option<f64>, to: Option<f64>| from.zip(to).map_or(f64::NAN, |(from, to)| to - from);
    let mut table = Table::new("Before and after", columns);
    let mut row = |name: Cell, old: Cell, new: &dyn Fn(&Candidate) -> [Cell; 2]| {
        let cells = [name, old].into_iter().chain(after.into_iter().flat_map(new));
        let rows = std::mem::replace(&mut table, Table::new("", &[]));
        table = rows.row("", cells);
    };
    if before.score.is_some() {
        row(
            Cell::from(metric.name.as_str()).below(format!("{} unseen rows", count(task.report_rows))),
            score(before.score, &before.interval),
            &|after| {
                let cell = Cell::from(metric.show_change(change(before.score, after.score)));
                let cell = match &after.change {
                    Some(interval) => cell.below(metric.show_interval(interval)),
                    None => cell,
                };
                [score(after.score, &after.interval), cell]
            },
        );
    }
    row(
        Cell::from(metric.name.as_str()).below(format!("{} searched rows", count(task.search_rows))),
        score(Some(before.search_score), &before.search_interval),
        &|after| {
            let change = metric.show_change(after.search_score - before.search_score);
            [score(Some(after.search_score), &after.search_interval), change.into()]
        },
    );
    row(Cell::from("time").below(report.timing.clone()), time(before.time_ms).into(), &|after| {
        let change = Cell::from(compared(after.time_ratio, "faster", "slower", "the same"));
        [time(after.time_ms).into(), change.below(after.time_interval.as_ref().map_or_else(String::new, speeds))]
    });
    row(Cell::from("size").below("saved weights".into()), bytes(before.bytes).into(), &|after| {
        [bytes(after.bytes).into(), compared(report.size_ratio(after), "smaller", "larger", "the same").into()]
    });
    if let Some(memory) = before.memory_bytes {
        row(
            Cell::from("weights in memory").below("packed for this machine; requests come on top".into()),
            bytes(memory).into(),
            &|after| {
                let less = after.memory_bytes.map_or(f64::NAN, |after| memory as f64 / after as f64);
                let change = if less.is_finite() { compared(less, "less", "more", "the same") } else { NONE.into() };
                [after.memory_bytes.map_or_else(|| NONE.into(), bytes).into(), change.into()]
            },
        );
    }
    let lead = format!(
        "Below each score and speed: where the true value lies{}, as far as these rows and rounds tell; of searched rows, beside the score before.",
        confidently(report.confidence)
    );
    let section = titled("Before and after", &lead).with(table.element());
    Some(match (after, &report.verification) {
        (Some(after), Some(found)) => section.with(verified(report, after, found)),
        _ => section,
    })
}

/// What a fresh process measured from the saved directory.
fn verified(report: &Report, after: &Candidate, found: &Verification) -> Element {
    let speed = found.time_interval.as_ref().map_or_else(String::new, |interval| format!(" ({})", speeds(interval)));
    let measured = format!(
        " A fresh process loaded the saved directory and measured {} {} on unseen rows, {} the speed{speed} and {} of weights.",
        report.task.metric.name,
        report.task.metric.show(found.score),
        ratio(found.time_ratio),
        bytes(found.bytes)
    );
    let own = found.search_time.as_ref().map_or_else(String::new, |own| {
        format!(" The search's own process raced the copy that it saved: {}.", speeds(own))
    });
    let (class, verdict) = if found.confirms(after) {
        ("verified", "Verified.")
    } else {
        ("verified doubt", "Not the same when measured again.")
    };
    Element::new("p").set("class", class).with(Element::new("b").text(verdict)).text(&(measured + &own))
}

/// What the user should be told.
pub(super) fn notes(report: &Report) -> Option<Element> {
    let notes = report.notes.iter().map(|note| Element::new("li").text(note));
    (!report.notes.is_empty()).then(|| titled("Notes", "").with(Element::new("ul").extend(notes)))
}
