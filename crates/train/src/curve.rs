//! The loss curve as a picture: plain SVG 1.1 with its own light background.

use crate::log::Line;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 50.0;
/// More points than this nobody sees.
const MOST_POINTS: usize = 1500;

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
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut out, title, &losses, &scores, metric, last);
    out
}

fn draw(
    out: &mut String,
    title: &str,
    losses: &[(f64, f64)],
    scores: &[(f64, f64)],
    metric: Option<&str>,
    last: f64,
) -> std::fmt::Result {
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"12\" role=\"img\">"
    )?;
    let title = escape(title);
    writeln!(out, "<title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>")?;
    writeln!(out, "<text x=\"20\" y=\"32\" font-size=\"18\" font-weight=\"600\" fill=\"#1f2328\">{title}</text>")?;
    let (low, high) = range(losses);
    let (from, to) = range(scores);
    let across = |step: f64| LEFT + (WIDTH - LEFT - RIGHT) * step / last;
    let up = |share: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        let y = up(share);
        writeln!(out, "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#d9dee3\"/>", WIDTH - RIGHT)?;
        let loss = low + (high - low) * share;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#0072b2\">{loss:.3}</text>",
            LEFT - 8.0,
            y + 4.0
        )?;
        if metric.is_some() {
            let score = from + (to - from) * share;
            let x = WIDTH - RIGHT + 8.0;
            writeln!(out, "<text x=\"{x}\" y=\"{}\" fill=\"#d55e00\">{score:.3}</text>", y + 4.0)?;
        }
        let (x, step) = (across(last * share), last * share);
        let y = HEIGHT - BOTTOM + 20.0;
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#818b98\">{step:.0}</text>")?;
    }
    let place = |p: &(f64, f64)| (across(p.0), up((p.1 - low) / (high - low)));
    line(out, "#9ecae8", 1.0, losses.iter().map(place))?;
    line(out, "#0072b2", 2.0, smooth(losses).iter().map(place))?;
    let place = |p: &(f64, f64)| (across(p.0), up((p.1 - from) / (to - from)));
    line(out, "#d55e00", 1.5, scores.iter().map(place))?;
    for (x, y) in scores.iter().map(place) {
        writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#d55e00\"/>")?;
    }
    writeln!(out, "<text x=\"20\" y=\"56\" fill=\"#0072b2\">loss by update, and its running mean</text>")?;
    if let Some(metric) = metric {
        writeln!(out, "<text x=\"300\" y=\"56\" fill=\"#d55e00\">{} on the dev set</text>", escape(metric))?;
    }
    writeln!(out, "</svg>")
}

/// At most [`MOST_POINTS`] of the points as a line.
fn line(
    out: &mut String,
    colour: &str,
    width: f64,
    points: impl ExactSizeIterator<Item = (f64, f64)>,
) -> std::fmt::Result {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    write!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" points=\"")?;
    for (x, y) in points.step_by(every) {
        write!(out, "{x:.1},{y:.1} ")?;
    }
    writeln!(out, "\"/>")
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
