//! The survey's picture: score against speed, memory as the area.

use super::labels::{Wanted, places};
use crate::svg::COLOURS;
use sparing_markup::{Element, circle, label, line, round_step, standalone};

/// One mechanism.
pub struct Dot {
    /// Beside the dot.
    pub name: String,
    /// Updates per second.
    pub speed: f64,
    /// Percent.
    pub score: f64,
    /// Most memory.
    pub bytes: f64,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 60.0;
/// The largest dot's radius, and the least.
const LARGEST: f64 = 34.0;
const LEAST: f64 = 3.0;
/// A name that moved less than this needs no line to its dot.
const NEAR: f64 = 8.0;

/// The whole picture; the subtitle says what scores, speed and memory are of.
pub fn scatter(dots: &[Dot], subtitle: &str) -> String {
    let most = |of: fn(&Dot) -> f64| dots.iter().map(of).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let speed = most(|dot| dot.speed).max(1e-9) * 1.1;
    let memory = most(|dot| dot.bytes).max(1.0);
    let lowest = dots.iter().map(|dot| dot.score).filter(|x| x.is_finite()).fold(100.0, f64::min);
    let highest = most(|dot| dot.score);
    let room = (highest - lowest).max(1.0) * 0.15;
    let (low, high) = ((lowest - room).max(0.0), highest + room);
    let x = |speed_of: f64| LEFT + (WIDTH - LEFT - RIGHT) * speed_of / speed;
    let y = |score: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (score - low) / (high - low);
    let mut svg = standalone(WIDTH, HEIGHT, "Score, speed and memory of attention mechanisms", subtitle);
    for mark in marks(0.0, speed) {
        let grid = line((x(mark), TOP), (x(mark), HEIGHT - BOTTOM)).set("stroke", "#d9dee3");
        svg = svg.with(grid).with(axis(x(mark), HEIGHT - BOTTOM + 18.0, mark, "middle"));
    }
    for mark in marks(low, high) {
        let grid = line((LEFT, y(mark)), (WIDTH - RIGHT, y(mark))).set("stroke", "#d9dee3");
        svg = svg.with(grid).with(axis(LEFT - 8.0, y(mark) + 4.0, mark, "end"));
    }
    let below = label((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0, "updates per second").set("text-anchor", "middle");
    svg = svg.with(below).with(label(LEFT - 50.0, TOP - 10.0, "score, %"));
    // Small dots over large ones.
    let mut order: Vec<&Dot> = dots.iter().collect();
    order.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    let radius = |dot: &Dot| LEAST + (LARGEST - LEAST) * (dot.bytes / memory).max(0.0).sqrt();
    for (number, dot) in order.iter().enumerate() {
        let (fill, _) = COLOURS[number % COLOURS.len()];
        let tip =
            format!("{}: {:.1}%, {:.2} updates/s, {}", dot.name, dot.score, dot.speed, crate::table::bytes(dot.bytes));
        let shape = circle(x(dot.speed), y(dot.score), radius(dot)).set("fill", fill).set("fill-opacity", 0.55);
        svg = svg.with(shape.set("stroke", "#1f2328").tip(&tip));
    }
    let above = |dot: &Dot| y(dot.score) - radius(dot) - 3.0;
    let wanted: Vec<Wanted<'_>> =
        order.iter().map(|dot| Wanted { name: &dot.name, x: x(dot.speed), y: above(dot) }).collect();
    let found = places(&wanted, (LEFT, WIDTH - RIGHT), (TOP, HEIGHT - BOTTOM));
    for (dot, (at, base)) in order.into_iter().zip(found) {
        // Where a name had to move away, a line leads to its dot.
        if (base - above(dot)).abs() > NEAR {
            let end = if base < y(dot.score) { base + 3.0 } else { base - 9.0 };
            svg = svg
                .with(line((at, end), (x(dot.speed), y(dot.score))).set("stroke", "#8c959f").set("stroke-width", 0.6));
        }
        let name = label(at, base, &dot.name).set("text-anchor", "middle");
        svg = svg.with(name.set("font-size", 11.0).set("fill", "#1f2328"));
    }
    svg.to_string()
}

/// Round numbers between two.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let step = round_step(((high - low) / 6.0).max(1e-12));
    let first = (low / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|mark| *mark <= high).take(20).collect()
}

fn axis(x: f64, y: f64, mark: f64, anchor: &'static str) -> Element {
    let text = if mark.fract() == 0.0 { format!("{mark:.0}") } else { format!("{mark:.2}") };
    label(x, y, &text).set("text-anchor", anchor).set("font-size", 11.0).set("fill", "#59636e")
}
