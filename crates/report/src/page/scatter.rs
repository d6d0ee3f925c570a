//! Everything that was tried: score against time and against size.

use super::axis::Axis;
use super::{columns, figure, titled};
use crate::format::{bytes, percent, ratio, short_percent, significant, time};
use crate::headline::first_upper;
use crate::{Candidate, Report};
use sparing_markup::{Element, circle, drawing, label, line, polyline, rect};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 406.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 254.0;

/// What a candidate costs, one of two ways.
struct Cost {
    caption: &'static str,
    axis: &'static str,
    of: fn(&Candidate) -> f64,
}

/// Both pictures and what their marks mean.
pub(super) fn section(report: &Report) -> Option<Element> {
    if report.candidates.is_empty() {
        return None;
    }
    let lead = format!(
        "{} on the searched rows. Up and to the left is better. Point at a mark to see what it is. Colour says whether a candidate \
         is within the budget, which goes by its doubt and not by its score alone (see the frontier below): so one above the \
         dashed line may be beyond it.",
        first_upper(&report.task.metric.name)
    );
    let costs = [
        Cost { caption: "Score against time", axis: "time, ms", of: |candidate| candidate.time_ms },
        Cost { caption: "Score against size", axis: "size, MB", of: |candidate| candidate.bytes as f64 / 1e6 },
    ];
    let pictures = costs.iter().map(|cost| figure(cost.caption, picture(report, cost)));
    Some(titled("What was tried", &lead).with(legend()).with(columns(pictures)))
}

fn picture(report: &Report, cost: &Cost) -> Element {
    let up = if report.task.metric.lower_is_better { -1.0 } else { 1.0 };
    let score = |candidate: &Candidate| up * candidate.search_score;
    let all = || report.candidates.iter().chain([&report.baseline]);
    let across = Axis::around(all().map(cost.of), LEFT, RIGHT);
    let floor = floor(report, up);
    let ends = [Some(&report.baseline), report.chosen()].into_iter().flatten().filter_map(|c| c.search_interval);
    let ends = ends.flat_map(|interval| [up * interval.low, up * interval.high]);
    let upward = Axis::around(all().map(score).chain(ends).filter(|score| *score >= floor), BOTTOM, TOP);
    let point = |candidate: &Candidate| (across.place((cost.of)(candidate)), upward.place(score(candidate)));
    let known = |candidate: &Candidate| (cost.of)(candidate).is_finite() && score(candidate).is_finite();

    let description = format!(
        "{} candidates, the model as it came and the chosen one; the table of the frontier below has the numbers.",
        report.candidates.len()
    );
    let mut svg = drawing(WIDTH, HEIGHT, cost.caption, &description);
    svg = axes(svg, report, cost, &across, &upward, up);
    svg = budget_line(svg, report, &upward, up);
    let frontier = frontier(all().filter(|c| known(c)).map(|c| ((cost.of)(c), score(c))).collect());
    let line = frontier.iter().map(|(cost, score)| (across.place(*cost), upward.place(*score)));
    svg = svg.with(polyline(line).set("class", "frontier"));
    let chosen = report.chosen();
    for candidate in
        report.candidates.iter().filter(|c| known(c) && !chosen.is_some_and(|chosen| std::ptr::eq(*c, chosen)))
    {
        let (x, y) = point(candidate);
        let class = class(candidate);
        let mark = match (upward.holds(score(candidate)), candidate.on_frontier) {
            (false, _) => down(x, BOTTOM - 4.0).set("class", "mark below"),
            (true, true) => circle(x, y, 5.0).set("class", class).set("tabindex", "0"),
            (true, false) => circle(x, y, 3.0).set("class", class),
        };
        svg = svg.with(mark.tip(&tip(report, candidate)));
    }
    let marked = [(Some(&report.baseline), "before", "mark baseline"), (chosen, "chosen", "mark chosen")];
    let marked: Vec<_> =
        marked.into_iter().filter_map(|(c, name, class)| Some((c.filter(|c| known(c))?, name, class))).collect();
    for (candidate, _, class) in &marked {
        svg = svg.with(whisker(candidate, point(candidate).0, &upward, up));
        let (x, y) = point(candidate);
        let shape = if *class == "mark chosen" { circle(x, y, 7.0) } else { diamond(x, y, 7.0) };
        svg = svg.with(shape.set("class", *class).set("tabindex", "0").tip(&tip(report, candidate)));
    }
    let places: Vec<_> = marked.iter().map(|(candidate, ..)| point(candidate)).collect();
    svg.extend(
        marked
            .iter()
            .zip(names(&places))
            .map(|((_, name, _), (x, y, anchor))| label(x, y, name).set("class", "name").set("text-anchor", anchor)),
    )
}

/// The worst score that still has a place of its own: a hopeless candidate must not flatten the rest.
fn floor(report: &Report, up: f64) -> f64 {
    let base = up * report.baseline.search_score;
    let chosen = report.chosen().map_or(base, |chosen| up * chosen.search_score);
    let span = (8.0 * report.budget * base.abs()).max(2.5 * (base - chosen));
    if span.is_finite() && span > 0.0 { base - span } else { f64::NEG_INFINITY }
}

fn axes(mut svg: Element, report: &Report, cost: &Cost, across: &Axis, upward: &Axis, up: f64) -> Element {
    let metric = &report.task.metric;
    let (ticks, decimals) = upward.ticks();
    for tick in ticks {
        let y = upward.place(tick);
        let text = if metric.is_share {
            percent(up * tick, decimals.saturating_sub(2))
        } else {
            format!("{:.decimals$}", up * tick)
        };
        svg = svg
            .with(line((LEFT, y), (RIGHT, y)).set("class", "grid"))
            .with(label(LEFT - 6.0, y + 4.0, &text).set("text-anchor", "end"));
    }
    let (ticks, _) = across.ticks();
    for tick in ticks.into_iter().filter(|tick| *tick >= 0.0) {
        let x = across.place(tick);
        svg = svg
            .with(line((x, BOTTOM), (x, BOTTOM + 5.0)).set("class", "axis"))
            .with(label(x, BOTTOM + 19.0, &tick_text(tick)).set("text-anchor", "middle"));
    }
    svg.with(line((LEFT, BOTTOM), (RIGHT, BOTTOM)).set("class", "axis"))
        .with(label(RIGHT, HEIGHT - 8.0, cost.axis).set("class", "unit").set("text-anchor", "end"))
        .with(label(4.0, 14.0, &metric.name).set("class", "unit"))
}

/// A round number as short as it is.
fn tick_text(tick: f64) -> String {
    let text = significant(tick);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn budget_line(svg: Element, report: &Report, upward: &Axis, up: f64) -> Element {
    let base = up * report.baseline.search_score;
    let least = base - report.budget * base.abs();
    if !least.is_finite() || !upward.holds(least) {
        return svg;
    }
    let y = upward.place(least);
    let words = format!("- - a score {} lower", short_percent(report.budget));
    // Above the picture, where no mark is.
    svg.with(rect(LEFT, y, RIGHT - LEFT, BOTTOM - y).set("class", "lost"))
        .with(line((LEFT, y), (RIGHT, y)).set("class", "budget"))
        .with(label(RIGHT, 14.0, &words).set("class", "unit over").set("text-anchor", "end"))
}

/// The interval of a score as a vertical line.
fn whisker(candidate: &Candidate, x: f64, upward: &Axis, up: f64) -> Element {
    let group = Element::new("g").set("class", "whisker");
    let Some(interval) = candidate.search_interval else { return group };
    let (low, high) = (upward.place(up * interval.low), upward.place(up * interval.high));
    group.with(line((x, low), (x, high))).extend([low, high].map(|y| line((x - 3.0, y), (x + 3.0, y))))
}

/// The points (cost, score) that none other beats in both, by cost, as the steps of a stair.
fn frontier(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut stair: Vec<(f64, f64)> = Vec::new();
    for (cost, score) in points {
        match stair.last().copied() {
            Some((_, best)) if score <= best => {}
            Some((_, best)) => stair.extend([(cost, best), (cost, score)]),
            None => stair.push((cost, score)),
        }
    }
    stair
}

/// Where the names of marked points stand: above them, within the picture, and not one on the other.
fn names(points: &[(f64, f64)]) -> Vec<(f64, f64, &'static str)> {
    let near = matches!(points, [a, b] if (a.0 - b.0).abs() < 64.0 && (a.1 - b.1).abs() < 18.0);
    let place = |(i, (x, y)): (usize, &(f64, f64))| {
        let below = (near && i == 0) || y - 14.0 < TOP - 14.0;
        let (x, anchor) = match x {
            x if *x < LEFT + 30.0 => (LEFT + 2.0, "start"),
            x if *x > RIGHT - 30.0 => (RIGHT, "end"),
            x => (*x, "middle"),
        };
        (x, if below { y + 22.0 } else { y - 12.0 }, anchor)
    };
    points.iter().enumerate().map(place).collect()
}

/// A candidate in a few lines.
fn tip(report: &Report, candidate: &Candidate) -> String {
    let metric = &report.task.metric;
    let budget = if candidate.meets_budget { "within the budget" } else { "beyond the budget" };
    let budget = if std::ptr::eq(candidate, &report.baseline) { "the model as it came" } else { budget };
    let doubt = candidate.doubt.map_or_else(String::new, |doubt| format!(", doubt {}", percent(doubt, 2)));
    let foreseen = if candidate.is_timed() || std::ptr::eq(candidate, &report.baseline) { "" } else { "~" };
    format!(
        "{}: {}\n{} {} on searched rows{doubt}\n{foreseen}{} ({}), {}\n{budget}",
        candidate.name,
        candidate.what,
        metric.name,
        metric.show(candidate.search_score),
        time(candidate.time_ms),
        ratio(candidate.time_ratio),
        bytes(candidate.bytes)
    )
}

fn legend() -> Element {
    let key = |name: &str, mark: Element| {
        let svg = Element::new("svg").set("viewBox", "0 0 18 18").set("aria-hidden", "true").with(mark);
        Element::new("li").with(svg).text(name)
    };
    Element::new("ul").set("class", "legend").extend([
        key("before", diamond(9.0, 9.0, 7.0).set("class", "mark baseline")),
        key("chosen", circle(9.0, 9.0, 7.0).set("class", "mark chosen")),
        key("within", circle(9.0, 9.0, 5.0).set("class", "mark within timed")),
        key("beyond", circle(9.0, 9.0, 5.0).set("class", "mark beyond timed")),
        key("time foreseen, not measured", circle(9.0, 9.0, 5.0).set("class", "mark within")),
        key("not on the frontier", circle(9.0, 9.0, 3.0).set("class", "mark within timed")),
        key("far below", down(9.0, 9.0).set("class", "mark below")),
    ])
}

/// Filled where it is timed, hollow where it is foreseen; coloured by whether it is within the budget.
fn class(candidate: &Candidate) -> &'static str {
    match (candidate.meets_budget, candidate.is_timed()) {
        (true, true) => "mark within timed",
        (true, false) => "mark within",
        (false, true) => "mark beyond timed",
        (false, false) => "mark beyond",
    }
}

fn diamond(x: f64, y: f64, size: f64) -> Element {
    let points = format!("{:.1},{y:.1} {x:.1},{:.1} {:.1},{y:.1} {x:.1},{:.1}", x - size, y - size, x + size, y + size);
    Element::new("polygon").set("points", points)
}

/// A small triangle that points down, off the picture.
fn down(x: f64, y: f64) -> Element {
    let points = format!("{:.1},{:.1} {:.1},{:.1} {x:.1},{:.1}", x - 4.0, y - 3.0, x + 4.0, y - 3.0, y + 4.0);
    Element::new("polygon").set("points", points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_is_a_stair_of_what_nothing_beats() {
        let points = vec![(3.0, 0.9), (1.0, 0.5), (2.0, 0.4), (2.0, 0.8), (4.0, 0.9)];
        assert_eq!(frontier(points), [(1.0, 0.5), (2.0, 0.5), (2.0, 0.8), (3.0, 0.8), (3.0, 0.9)]);
        assert!(frontier(Vec::new()).is_empty());
    }

    #[test]
    fn names_of_near_points_stand_apart() {
        let places = names(&[(200.0, 100.0), (210.0, 102.0)]);
        assert!(places[0].1 > places[1].1 + 20.0);
        assert_eq!(names(&[(LEFT, 100.0)])[0].2, "start");
    }
}
