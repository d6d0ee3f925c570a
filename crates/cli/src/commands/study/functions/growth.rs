//! How a layer's multiplications grow with the length of a text when a network stands in softmax's place.

use sparing_markup::{label, line, polyline, round_step, standalone};
use sparing_model::Architecture;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 130.0;
const BOTTOM: f64 = 50.0;
const LONGEST: f64 = 1024.0;

/// Sizes of a layer.
#[derive(Clone, Copy)]
struct Size {
    hidden: f64,
    ffn: f64,
    heads: f64,
}

impl Size {
    /// Multiplications of the exact layer for n tokens.
    fn exact(self, n: f64) -> f64 {
        self.maps(n) + 2.0 * n * n * self.hidden
    }

    fn maps(self, n: f64) -> f64 {
        n * self.hidden * (4.0 * self.hidden + 2.0 * self.ffn)
    }

    /// With networks for n tokens that are applied to scores, of k projected keys or of all.
    fn applied(self, n: f64, k: f64) -> f64 {
        let projections = if k < n { 2.0 * n * k * self.hidden } else { 0.0 };
        self.maps(n) + projections + 2.0 * n * k * self.hidden + 2.0 * self.heads * n * k * k
    }

    /// With networks that are mixed into keys and values, as the engine has them.
    fn mixed(self, n: f64, k: f64) -> f64 {
        self.maps(n) + 4.0 * n * k * self.hidden
    }
}

/// The share of multiplications that come on top of the exact layer's, by length.
pub(super) fn draw(architecture: &Architecture) -> String {
    let layer = architecture.layers.first();
    let size = Size {
        hidden: architecture.hidden as f64,
        ffn: layer.map_or(0, |layer| layer.ffns.iter().map(|ffn| ffn.up.outputs).sum()) as f64,
        heads: layer.map_or(1, |layer| layer.attention.heads) as f64,
    };
    let of = |ways: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        let lengths = (1..=64).map(|i| LONGEST * f64::from(i) / 64.0);
        lengths.map(|n| (n, 100.0 * (ways(n) / size.exact(n) - 1.0))).collect()
    };
    let lines = [
        ("applied to scores, as published", "#d55e00", of(&|n| size.applied(n, n))),
        ("the same, keys projected to half as many", "#e69f00", of(&|n| size.applied(n, n / 2.0))),
        ("mixed into keys and values, as the engine does", "#0072b2", of(&|n| size.mixed(n, n))),
        ("the same, keys projected to half as many", "#56b4e9", of(&|n| size.mixed(n, n / 2.0))),
    ];
    let values = || lines.iter().flat_map(|(_, _, points)| points.iter().map(|point| point.1));
    let (least, most) = (values().fold(0.0, f64::min), values().fold(1.0, f64::max));
    let step = round_step((most - least) / 6.0);
    let (low, high) = ((least / step).floor() * step, (most / step).ceil() * step);
    let across = |n: f64| LEFT + (WIDTH - LEFT - RIGHT) * n / LONGEST;
    let up = |share: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (share - low) / (high - low);
    let title = "Multiplications of a layer beside the exact one's";
    let subtitle = format!("{} wide, {} inside, {} heads; % more, by tokens", size.hidden, size.ffn, size.heads);
    let mut svg = standalone(WIDTH, HEIGHT, title, &subtitle);
    for mark in 0..=((high - low) / step).round() as usize {
        let share = low + step * mark as f64;
        let number = label(LEFT - 8.0, up(share) + 4.0, &format!("{share:.0}%"));
        svg = svg
            .with(line((LEFT, up(share)), (WIDTH - RIGHT, up(share))).set("stroke", "#d9dee3"))
            .with(number.set("text-anchor", "end").set("fill", "#818b98"));
    }
    for n in [128.0, 256.0, 512.0, LONGEST] {
        let number = label(across(n), HEIGHT - BOTTOM + 20.0, &n.to_string());
        svg = svg.with(number.set("text-anchor", "middle").set("fill", "#818b98"));
    }
    for (i, (name, colour, points)) in lines.iter().enumerate() {
        let at = points.iter().map(|(n, share)| (across(*n), up(*share)));
        let (column, row) = ((i / 2) as f64, (i % 2) as f64);
        svg = svg
            .with(polyline(at).set("stroke", *colour).set("stroke-width", 2.0))
            .with(label(20.0 + 330.0 * column, 80.0 + 20.0 * row, name).set("fill", *colour));
    }
    svg.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "For s = 128, the increase … is around 5.4%" (section 4.6, BERT-base).
    #[test]
    fn growth_is_the_papers_at_its_length() {
        let base = Size { hidden: 768.0, ffn: 3072.0, heads: 12.0 };
        let more = |count: f64| 100.0 * (count / base.exact(128.0) - 1.0);
        assert!((more(base.applied(128.0, 128.0)) - 5.4).abs() < 0.05);
        assert!((more(base.mixed(128.0, 128.0)) - 2.7).abs() < 0.05);
        assert!(more(base.mixed(128.0, 64.0)).abs() < 1e-9);
    }
}
