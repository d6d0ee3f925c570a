//! Where the time goes, before and after.

use super::table::{Cell, Table};
use super::{columns, figure, titled};
use crate::format::{NONE, percent, time};
use crate::{PartTime, Report};
use sparing_markup::{Element, drawing, label, rect};

const WIDTH: f64 = 420.0;
const BAR: f64 = 40.0;
const ROW: f64 = 76.0;
/// Parts that have a colour of their own.
const COLOURS: usize = 9;

/// Two bars on one scale, and their numbers.
pub(super) fn section(report: &Report) -> Option<Element> {
    let names = names(&report.parts_before, &report.parts_after);
    if names.is_empty() {
        return None;
    }
    let bars = [("before", &report.parts_before), ("after", &report.parts_after)];
    let bars: Vec<_> = bars.into_iter().filter(|(_, parts)| !parts.is_empty()).collect();
    let most = bars.iter().map(|(_, parts)| total(*parts)).fold(0.0, f64::max);
    let words: Vec<String> = bars.iter().map(|(name, parts)| format!("{name} {}", time(total(*parts)))).collect();
    let mut svg = drawing(WIDTH, bars.len() as f64 * ROW, "Time by part of the network", &words.join(", "));
    for (i, (name, parts)) in bars.iter().enumerate() {
        svg = bar(svg, i as f64 * ROW, name, parts, &names, most);
    }
    let mut table = Table::new("Time by part of the network", &["part", "before", "after"]);
    for (i, name) in names.iter().enumerate() {
        let times = [&report.parts_before, &report.parts_after].map(|parts| share(parts, name));
        let name = Cell::from(*name).swatch(colour(i)).below(meaning(name).into());
        table = table.row("", [name].into_iter().chain(times));
    }
    let section = titled(
        "Where the time goes",
        "Both bars have the same scale. Shares are those of a profile, part by part; all parts together take the time that was measured.",
    );
    Some(section.with(columns([figure("Time by part of the network", svg), table.element()])))
}

/// What a part is, where its name does not say.
fn meaning(part: &str) -> &'static str {
    if part == "importance" { "what choosing tokens costs" } else { "" }
}

/// Every part once: those before in their order, then what is new after.
fn names<'a>(before: &'a [PartTime], after: &'a [PartTime]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for part in before.iter().chain(after) {
        if !names.contains(&part.part.as_str()) {
            names.push(&part.part);
        }
    }
    names
}

fn bar(mut svg: Element, y: f64, name: &str, parts: &[PartTime], names: &[&str], most: f64) -> Element {
    let whole = total(parts);
    svg = svg.with(label(0.0, y + 20.0, &format!("{name}: {}", time(whole))).set("class", "word"));
    let mut x = 0.0;
    for (i, part) in names.iter().enumerate() {
        let ms = spent(parts, part);
        let width = if most > 0.0 { WIDTH * ms / most } else { 0.0 };
        if width <= 0.0 {
            continue;
        }
        let share = percent(ms / whole, 0);
        let tip = format!("{part}: {}, {} of {name}", time(ms), percent(ms / whole, 1));
        svg = svg.with(rect(x, y + 28.0, width, BAR).set("class", format!("segment part{}", colour(i))).tip(&tip));
        if width > 36.0 {
            let text = label(x + width / 2.0, y + 28.0 + BAR / 2.0 + 4.0, &share).set("text-anchor", "middle");
            svg = svg.with(text.set("class", format!("inside part{}", colour(i))));
        }
        x += width;
    }
    svg
}

fn share(parts: &[PartTime], name: &str) -> Cell {
    if parts.iter().all(|part| part.part != name) {
        return NONE.into();
    }
    let ms = spent(parts, name);
    Cell::from(time(ms)).below(percent(ms / total(parts), 1))
}

/// Milliseconds of all parts of this name that have a time.
fn spent(parts: &[PartTime], name: &str) -> f64 {
    total(parts.iter().filter(|part| part.part == name))
}

fn total<'a>(parts: impl IntoIterator<Item = &'a PartTime>) -> f64 {
    parts.into_iter().map(|part| part.ms).filter(|ms| ms.is_finite() && *ms > 0.0).sum()
}

/// The last colour is everybody's who comes too late.
fn colour(part: usize) -> usize {
    part.min(COLOURS - 1)
}
