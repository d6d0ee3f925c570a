//! The loss curve as a picture.

use crate::log::Line;
use sparing_markup::{Element, circle, label, line, polyline, standalone};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 50.0;
/// More points than this nobody sees.
const MOST_POINTS: usize = 1500;
/// Losses, and scores.
const BLUE: &str = "#0072b2";
const ORANGE: &str = "#d55e00";

/// Losses (faint), their running mean, and the headline metric of every evaluation.
pub(crate) fn svg(title: &str, lines: &[Line]) -> String {
    let losses: Vec<(f64, f64)> = lines
        .iter()
        .filter_map(|l| if let Line::Step { step, loss, .. } = l { Some((*step as f64, *loss)) } else { None })
        .collect();
    let scores: Vec<(f64, f64)> = lines
        .iter()
        .filter_map(|l| match l {
            Line::Evaluation { step, metrics } => Some((*step as f64, metrics.first()?.value)),
            _ => None,
        })
        .collect();
    let metric = lines.iter().find_map(|l| match l {
        Line::Evaluation { metrics, .. } => metrics.first().map(|v| v.metric.name()),
        _ => None,
    });
    let last = losses.last().map_or(1.0, |l| l.0);
    draw(title, &losses, &scores, metric, last).to_string()
}

fn draw(title: &str, losses: &[(f64, f64)], scores: &[(f64, f64)], metric: Option<&str>, last: f64) -> Element {
    let (low, high) = range(losses);
    let (from, to) = range(scores);
    let across = |step: f64| LEFT + (WIDTH - LEFT - RIGHT) * step / last;
    let up = |share: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
    let mut svg = standalone(WIDTH, HEIGHT, title, "");
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        let y = up(share);
        let loss = format!("{:.3}", low + (high - low) * share);
        let step = format!("{:.0}", last * share);
        let grey = label(across(last * share), HEIGHT - BOTTOM + 20.0, &step).set("fill", "#818b98");
        svg = svg
            .with(line((LEFT, y), (WIDTH - RIGHT, y)).set("stroke", "#d9dee3"))
            .with(label(LEFT - 8.0, y + 4.0, &loss).set("text-anchor", "end").set("fill", BLUE))
            .with(grey.set("text-anchor", "middle"));
        if metric.is_some() {
            let score = format!("{:.3}", from + (to - from) * share);
            svg = svg.with(label(WIDTH - RIGHT + 8.0, y + 4.0, &score).set("fill", ORANGE));
        }
    }
    let of_loss = |p: &(f64, f64)| (across(p.0), up((p.1 - low) / (high - low)));
    let of_score = |p: &(f64, f64)| (across(p.0), up((p.1 - from) / (to - from)));
    svg.with(curve(losses.iter().map(of_loss)).set("stroke", "#9ecae8"))
        .with(curve(smooth(losses).iter().map(of_loss)).set("stroke", BLUE).set("stroke-width", 2.0))
        .with(curve(scores.iter().map(of_score)).set("stroke", ORANGE).set("stroke-width", 1.5))
        .extend(scores.iter().map(of_score).map(|(x, y)| circle(x, y, 3.5).set("fill", ORANGE)))
        .with(label(20.0, 56.0, "loss by update, and its running mean").set("fill", BLUE))
        .extend(metric.map(|metric| label(300.0, 56.0, &format!("{metric} on the dev set")).set("fill", ORANGE)))
}

/// At most [`MOST_POINTS`] of the points as a line.
fn curve(points: impl ExactSizeIterator<Item = (f64, f64)>) -> Element {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    polyline(points.step_by(every))
}

/// Exponential mean over about a twentieth of the curve.
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 20.0).max(1.0);
    let mut mean = points.first().map_or(0.0, |p| p.1);
    points
        .iter()
        .map(|p| {
            mean = keep * mean + (1.0 - keep) * p.1;
            (p.0, mean)
        })
        .collect()
}

/// From least to most, never empty.
fn range(points: &[(f64, f64)]) -> (f64, f64) {
    let least = points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    match (least.is_finite(), most - least > 1e-9) {
        (false, _) => (0.0, 1.0),
        (true, true) => (least, most),
        (true, false) => (least - 0.5, least + 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_drawn_whatever_the_log_holds() {
        let step = |step| Line::Step { step, epoch: 0.1, loss: 1.0 / step as f64, rate: 1e-5, norm: 1.0, tokens: 9 };
        let lines: Vec<Line> = (1..4000).map(step).collect();
        let picture = svg("a < b", &lines);
        assert!(picture.contains("a &lt; b") && picture.ends_with("</svg>\n"));
        assert!(!picture.contains("NaN") && picture.len() < 100_000);
        assert!(!svg("", &[]).contains("NaN"));
        assert!(!svg("", &lines[..1]).contains("NaN"));
    }
}
