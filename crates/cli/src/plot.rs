//! A picture of how one number depends on another: points with intervals, joined by lines.

use crate::svg::{COLOURS, LETTER};
use sparing_markup::{Element, label, line, polyline, round_step, standalone};

/// Lines over two axes.
pub struct Plot {
    /// Above the picture.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// What goes from left to right.
    pub x: String,
    /// What goes from bottom to top.
    pub y: String,
    /// In the order of the legend.
    pub lines: Vec<Line>,
}

/// One line.
pub struct Line {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
    /// Not joined: single points of reference.
    pub apart: bool,
}

/// One point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// From the left.
    pub x: f64,
    /// From the bottom.
    pub y: f64,
    /// Half the height of its interval.
    pub half: Option<f64>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
const HEIGHT: f64 = 330.0;

/// What the picture spans: the least and largest of an axis, and its marks.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// Spans the numbers, ending on marks of 1, 2 or 5 times a power of ten.
    fn new(numbers: impl Iterator<Item = f64> + Clone) -> Axis {
        let finite = numbers.filter(|n| n.is_finite());
        let (mut low, mut high) =
            (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if high - low < 1e-9 * high.abs().max(1.0) {
            (low, high) = (low - 0.5, high + 0.5);
        }
        let step = round_step((high - low) / 6.0);
        Axis { low: (low / step).floor() * step, high: (high / step).ceil() * step, step }
    }

    fn share(&self, number: f64) -> f64 {
        (number - self.low) / (self.high - self.low)
    }

    fn marks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let count = ((self.high - self.low) / self.step).round() as usize;
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=count).map(move |i| self.low + i as f64 * self.step).map(move |n| (n, format!("{n:.digits$}")))
    }
}

impl Plot {
    /// The whole picture.
    pub fn svg(&self) -> String {
        let places = self.legend();
        let rows = places.last().map_or(0.0, |(row, _)| row + 1.0);
        let height = TOP + HEIGHT + 52.0 + rows * 22.0;
        let svg = standalone(WIDTH, height, &self.title, &self.subtitle);
        self.with_lines(svg, &places).to_string()
    }

    fn with_lines(&self, mut svg: Element, places: &[(f64, f64)]) -> Element {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::new(points().map(|p| p.x));
        let y = Axis::new(points().flat_map(|p| [p.y - p.half.unwrap_or(0.0), p.y + p.half.unwrap_or(0.0)]));
        let across = |number: f64| LEFT + (WIDTH - LEFT - RIGHT) * x.share(number);
        let up = |number: f64| TOP + HEIGHT * (1.0 - y.share(number));
        let bottom = TOP + HEIGHT;
        for (number, told) in x.marks() {
            let at = across(number);
            svg = svg.with(line((at, TOP), (at, bottom)).set("stroke", "#eaeef2")).with(text(
                at,
                bottom + 16.0,
                "middle",
                "#818b98",
                &told,
            ));
        }
        for (number, told) in y.marks() {
            let at = up(number);
            svg = svg.with(line((LEFT, at), (WIDTH - RIGHT, at)).set("stroke", "#d9dee3")).with(text(
                LEFT - 8.0,
                at + 4.0,
                "end",
                "#818b98",
                &told,
            ));
        }
        svg = svg.with(text(WIDTH - RIGHT, bottom + 36.0, "end", "#59636e", &self.x)).with(text(
            20.0,
            TOP - 8.0,
            "start",
            "#59636e",
            &self.y,
        ));
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()].0;
            if !line.apart && line.points.len() > 1 {
                let path = polyline(line.points.iter().map(|p| (across(p.x), up(p.y))));
                svg = svg.with(path.set("stroke", colour).set("stroke-width", 1.8));
            }
            for point in &line.points {
                let (at, height) = (across(point.x), up(point.y));
                if let Some(half) = point.half.filter(|half| *half > 0.0) {
                    let (low, high, left) = (up(point.y - half), up(point.y + half), at - 4.0);
                    let path = format!("M{at:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h8M{left:.1} {high:.1}h8");
                    svg = svg.with(Element::new("path").set("d", path).set("stroke", colour));
                }
                svg = svg.with(marker(number, (at, height), &format!("{}: {}", line.name, point.told())));
            }
        }
        for ((number, line), (row, from)) in self.lines.iter().enumerate().zip(places) {
            let height = bottom + 58.0 + row * 22.0;
            svg = svg.with(marker(number, (from + 6.0, height), &line.name)).with(text(
                from + 18.0,
                height + 4.5,
                "start",
                "#1f2328",
                &line.name,
            ));
        }
        svg
    }

    /// Row and left edge of each legend entry, flowing over as many rows as needed.
    fn legend(&self) -> Vec<(f64, f64)> {
        let mut places = Vec::new();
        let (mut row, mut x) = (0.0, LEFT);
        for line in &self.lines {
            let width = 36.0 + line.name.chars().count() as f64 * LETTER;
            if x + width > WIDTH - RIGHT && x > LEFT {
                (row, x) = (row + 1.0, LEFT);
            }
            places.push((row, x));
            x += width;
        }
        places
    }
}

impl Point {
    fn told(&self) -> String {
        let half = self.half.map_or(String::new(), |half| format!(" ± {half:.2}"));
        format!("{:.2}, {:.2}{half}", self.x, self.y)
    }
}

/// Lines differ in form as well as in colour.
fn marker(number: usize, (x, y): (f64, f64), told: &str) -> Element {
    let path = match number % 4 {
        0 => format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", x - 5.0),
        1 => format!("M{:.1} {:.1}h9v9h-9z", x - 4.5, y - 4.5),
        2 => format!("M{x:.1} {:.1}l6 10h-12z", y - 6.0),
        _ => format!("M{x:.1} {:.1}l6 6l-6 6l-6 -6z", y - 6.0),
    };
    Element::new("path").set("d", path).set("fill", COLOURS[number % COLOURS.len()].0).tip(told)
}

fn text(x: f64, y: f64, anchor: &'static str, colour: &'static str, text: &str) -> Element {
    label(x, y, text).set("text-anchor", anchor).set("fill", colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_marks_around_every_number() {
        for (numbers, low, high, marks) in [
            (vec![0.2, 1.0], 0.2, 1.0, 5),
            (vec![50.8, 90.3], 50.0, 100.0, 6),
            (vec![1.0, 12.7], 0.0, 14.0, 8),
            (vec![3.0], 2.4, 3.6, 7),
            (vec![f64::NAN], 0.0, 1.0, 6),
        ] {
            let axis = Axis::new(numbers.iter().copied());
            assert!((axis.low - low).abs() < 1e-9 && (axis.high - high).abs() < 1e-9, "{} {}", axis.low, axis.high);
            assert_eq!(axis.marks().count(), marks, "{numbers:?}");
        }
    }

    #[test]
    fn points_intervals_and_names_are_drawn() {
        let point = |x, y, half| Point { x, y, half };
        let line = |name: &str, apart| Line {
            name: name.into(),
            points: vec![point(0.2, 90.0, Some(0.5)), point(1.0, 80.0, None)],
            apart,
        };
        let plot = Plot {
            title: "a <b>".into(),
            subtitle: String::new(),
            x: "alpha".into(),
            y: "accuracy".into(),
            lines: vec![line("f32", false), line("bf16", true)],
        };
        let svg = plot.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches("h8\" stroke").count(), 2, "one interval on each line");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains(">bf16</text>") && svg.contains("0.20, 90.00 ± 0.50"));
    }
}
