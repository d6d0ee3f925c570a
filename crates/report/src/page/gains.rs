//! What each technique saves: from all of the time and bytes down to what is left.

use super::{columns, figure, titled};
use crate::Report;
use crate::format::{percent, short_percent};
use sparing_markup::{Element, drawing, label, line, rect};

const WIDTH: f64 = 420.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 356.0;
const ROW: f64 = 28.0;
const BAR: f64 = 18.0;
/// Letters that fit to the left of the bars.
const LETTERS: usize = 22;

const LEAD: &str = "Each technique takes its share off what the one above it left.";

const RACED: &str =
    "Each was raced against the step above it; what the clock cannot tell from nothing counts as nothing.";

const FORESEEN: &str = "The clock could not tell the steps apart on this machine: they are what the search foresaw of them, their sum is what \
                        was measured.";

const APART: &str = "They do not add up to the speed of the whole as it was measured last, by which it cannot be told what each of them saves.";

/// One row: from how much to how much.
struct Step<'a> {
    name: &'a str,
    class: &'static str,
    from: f64,
    to: f64,
    value: String,
}

/// Both pictures: time and bytes.
pub(super) fn section(report: &Report) -> Option<Element> {
    if report.gains.is_empty() {
        return None;
    }
    let time = report.gains.iter().map(|gain| (gain.technique.as_str(), gain.time));
    let bytes = report.gains.iter().map(|gain| (gain.technique.as_str(), gain.bytes));
    let pictures = [
        figure("Time", picture("Time saved by each technique", time.collect())),
        figure("Size", picture("Bytes saved by each technique", bytes.collect())),
    ];
    let lead = format!("{LEAD} {}", basis(report));
    Some(titled("Where the savings come from", &lead).with(columns(pictures)))
}

/// Where the shares come from.
fn basis(report: &Report) -> &'static str {
    match report.gains.iter().all(|gain| gain.time_interval.is_some()) {
        _ if !report.gains_add_up() => APART,
        true => RACED,
        false => FORESEEN,
    }
}

fn picture(title: &str, shares: Vec<(&str, f64)>) -> Element {
    let steps = steps(&shares);
    let most = steps.iter().map(|step| step.from.max(step.to)).fold(1.0, f64::max);
    let height = steps.len() as f64 * ROW + 6.0;
    let words: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {}", percent(*share, 1))).collect();
    let place = |share: f64| LEFT + (RIGHT - LEFT) * share.max(0.0) / most;
    let mut svg = drawing(WIDTH, height, title, &words.join(", "));
    for (i, step) in steps.iter().enumerate() {
        let y = 3.0 + i as f64 * ROW;
        let (low, high) = (step.from.min(step.to), step.from.max(step.to));
        let width = (place(high) - place(low)).max(1.0);
        let tip = format!("{}: {}", step.name, step.value);
        svg = svg
            .with(
                label(LEFT - 8.0, y + 17.0, &shortened(step.name))
                    .set("text-anchor", "end")
                    .set("class", "word")
                    .tip(step.name),
            )
            .with(rect(place(low), y + 4.0, width, BAR).set("rx", 2.0).set("class", step.class).tip(&tip))
            .with(
                label(place(most.min(high)).max(place(low) + width) + 6.0, y + 17.0, &step.value).set("class", "value"),
            );
        if i + 1 < steps.len() {
            let x = place(step.to);
            svg = svg.with(line((x, y + 4.0 + BAR), (x, y + 4.0 + ROW)).set("class", "axis"));
        }
    }
    svg
}

/// Before, every technique, and what is left.
fn steps<'a>(shares: &[(&'a str, f64)]) -> Vec<Step<'a>> {
    let mut left = 1.0;
    let mut steps = vec![Step { name: "before", class: "bar whole", from: 0.0, to: 1.0, value: "100%".into() }];
    for (name, share) in shares {
        let share = if share.is_finite() { *share } else { 0.0 };
        let (class, value) = match share {
            share if share < 0.0 => ("bar cost", format!("+{}", short(-share))),
            0.0 => ("bar saved", "0%".to_owned()),
            share => ("bar saved", format!("−{}", short(share))),
        };
        steps.push(Step { name, class, from: left, to: left - share, value });
        left -= share;
    }
    steps.push(Step { name: "after", class: "bar rest", from: 0.0, to: left, value: short(left.max(0.0)) });
    steps
}

/// A percentage as long as it needs to be.
fn short(share: f64) -> String {
    if share >= 0.001 { percent(share, 1) } else { short_percent(share) }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_do_not_add_up_are_not_said_to() {
        use crate::{Gain, Verification};
        let said = |time: f64, time_ratio: f64| {
            let verification = Some(Verification { time_ratio, ..Verification::default() });
            let gains = vec![Gain { time, ..Gain::default() }];
            basis(&Report { gains, verification, ..Report::default() })
        };
        assert_eq!([said(0.5, 2.0), said(0.03, 0.97), said(0.0, 1.3)], [FORESEEN, APART, APART]);
    }

    #[test]
    fn steps_end_at_what_is_left() {
        let steps = steps(&[("heads", 0.3), ("checks", -0.1), ("broken", f64::NAN)]);
        assert_eq!(
            steps.iter().map(|s| s.value.as_str()).collect::<Vec<_>>(),
            ["100%", "−30.0%", "+10.0%", "0%", "80.0%"]
        );
        assert!((steps[4].to - 0.8).abs() < 1e-12);
    }
}
