//! The frontier and everything else that was tried, as tables.

use super::table::{Cell, Table};
use super::{details, titled};
use crate::format::{NONE, bytes, count, percent, ratio, speeds, time};
use crate::{Candidate, Report};
use sparing_markup::Element;

/// The frontier, and the rest when it is asked for.
pub(super) fn section(report: &Report) -> Option<Element> {
    if report.candidates.is_empty() {
        return None;
    }
    let is_chosen = |candidate: &Candidate| report.chosen().is_some_and(|chosen| std::ptr::eq(chosen, candidate));
    let best = || report.candidates.iter().filter(|candidate| candidate.on_frontier || is_chosen(candidate));
    let lead = "What nothing else beats in score, time and size at once. Times with a ~ are foreseen, not measured. For another \
                trade run the command again with another --max-loss or --focus.";
    let beaten = match report.chosen() {
        Some(chosen) if !chosen.on_frontier => " The chosen one is here too, though something beats it.",
        _ => "",
    };
    let mut section = titled("The frontier", &format!("{lead}{beaten}"));
    if !report.criterion.is_empty() {
        let words = format!("✓ {}. The verdict at the top goes by the score on unseen rows alone.", report.criterion);
        section = section.with(Element::new("p").set("class", "lead").text(&words));
    }
    if best().next().is_some() {
        section = section.with(table(report, "The frontier", best()));
    }
    let all = format!("All {} candidates", count(report.candidates.len()));
    Some(section.with(details(&all, table(report, "All candidates", report.candidates.iter()))))
}

fn table<'a>(report: &'a Report, name: &str, candidates: impl Iterator<Item = &'a Candidate>) -> Element {
    let metric = &report.task.metric;
    let searched = format!("{}, searched", metric.name);
    let unseen = format!("{}, unseen", metric.name);
    let columns = [
        "candidate",
        &searched,
        &unseen,
        "time",
        "size",
        "weights in memory",
        "same answers",
        "within, on searched rows",
    ];
    let mut rows: Vec<&Candidate> = candidates.collect();
    rows.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
    let rows = [&report.baseline].into_iter().chain(rows);
    let table = rows.fold(Table::new(name, &columns).wide(), |table, candidate| {
        let chosen = report.chosen().is_some_and(|chosen| std::ptr::eq(chosen, candidate));
        table.row(if chosen { "chosen" } else { "" }, row(report, candidate, chosen))
    });
    table.element()
}

fn row(report: &Report, candidate: &Candidate, chosen: bool) -> [Cell; 8] {
    let metric = &report.task.metric;
    let is_baseline = std::ptr::eq(candidate, &report.baseline);
    let name = match (is_baseline, chosen) {
        (true, _) => "before".to_owned(),
        (_, true) => format!("{} (chosen)", candidate.name),
        _ => candidate.name.clone(),
    };
    let score = |score: Option<f64>, interval: &Option<crate::Interval>| {
        let cell = Cell::from(score.map_or_else(|| NONE.into(), |score| metric.show(score)));
        cell.below(interval.as_ref().map_or_else(String::new, |interval| metric.show_interval(interval)))
    };
    let times = |times: f64| if is_baseline { String::new() } else { ratio(times) };
    let foreseen = if is_baseline || candidate.is_timed() { "" } else { "~" };
    let speed = match &candidate.time_interval {
        Some(interval) if !is_baseline => format!("{} ({})", ratio(candidate.time_ratio), speeds(interval)),
        _ => times(candidate.time_ratio),
    };
    let budget = match (is_baseline, candidate.meets_budget) {
        (true, _) => "",
        (_, true) => "✓ within",
        (_, false) => "✗ beyond",
    };
    let doubt = candidate.doubt.filter(|_| !is_baseline).map(|doubt| format!("doubt {}", percent(doubt, 2)));
    [
        Cell::from(name).below(candidate.what.clone()),
        score(Some(candidate.search_score), &candidate.search_interval),
        score(candidate.score, &candidate.interval),
        Cell::from(format!("{foreseen}{}", time(candidate.time_ms))).below(speed),
        Cell::from(bytes(candidate.bytes)).below(times(report.size_ratio(candidate))),
        candidate.memory_bytes.map_or_else(|| NONE.into(), bytes).into(),
        candidate.agreement.map_or_else(|| NONE.into(), |share| percent(share, 1)).into(),
        Cell::from(budget).below(doubt.unwrap_or_default()),
    ]
}
