//! For tests: follows a dashed curve through the pixels of a picture, dash by dash, as somebody does who knows how curves are
//! drawn and where the dots are, but nothing else.

use super::{Point, Scene, ahead, distance};
use std::collections::HashSet;
use std::f64::consts::PI;

/// Curves that are followed at a time, the best so far.
const KEPT: usize = 40;
/// Turns that are tried after every dash, and half of the directions that are tried at first.
const TURNS: usize = 12;
/// Points of a dash at which brightness is looked at.
const LOOKS: usize = 6;
/// What a turn that is drawn e times less often costs beside a dash in the dark, which costs 1.
const UNLIKELY: f64 = 0.01;

/// A curve so far: the ends of its dashes, the direction of the last one, and how little is to be seen of it.
struct Traced {
    points: Vec<Point>,
    angle: f64,
    cost: f64,
}

/// What the likeliest curve costs that has as many dashes as long ones do and goes from one dot to the other: both ways are
/// tried, as a gap has the direction of the dash after it. Infinite if there is none.
pub(super) fn cost(scene: &Scene, pixels: &[u8], [one, two]: [Point; 2]) -> f64 {
    trace(scene, pixels, one, two).min(trace(scene, pixels, two, one))
}

fn trace(scene: &Scene, pixels: &[u8], from: Point, to: Point) -> f64 {
    let first = |number: usize| {
        let angle = PI * number as f64 / TURNS as f64;
        let end = ahead(from, angle, scene.dash);
        Traced { points: vec![from, end], angle, cost: darkness(scene, pixels, from, end) }
    };
    let mut curves: Vec<Traced> = (0..2 * TURNS).map(first).collect();
    for _ in 1..scene.dashes {
        let mut next: Vec<Traced> = curves.iter().flat_map(|curve| longer(scene, pixels, curve)).collect();
        next.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        // Of those that end alike only the best, so that they are not all of one kind.
        let mut seen = HashSet::new();
        next.retain(|curve| {
            let (x, y) = curve.points[curve.points.len() - 1];
            let half = |x: f64| (2.0 * x).round() as i64;
            seen.insert((half(x), half(y), half(3.0 * curve.angle / PI)))
        });
        next.truncate(KEPT);
        curves = next;
    }
    let missed = |curve: &Traced| (distance(curve.points[curve.points.len() - 1], to) / scene.dash).powi(2);
    curves.iter().map(|curve| curve.cost + missed(curve)).fold(f64::INFINITY, f64::min)
}

/// A curve with another dash, in all the ways that it may turn.
fn longer<'a>(scene: &'a Scene, pixels: &'a [u8], curve: &'a Traced) -> impl Iterator<Item = Traced> + 'a {
    (0..TURNS).filter_map(move |number| {
        let turn = PI / scene.continuity * ((number as f64 + 0.5) / TURNS as f64 - 0.5);
        let angle = curve.angle + turn;
        let from = ahead(curve.points[curve.points.len() - 1], angle, scene.gap);
        let to = ahead(from, angle, scene.dash);
        // A curve does not come back to itself, nor leave the picture; directions are rough, so that this is too.
        let inside = |x: f64| (scene.border - 1.0..=scene.side as f64 - scene.border).contains(&x);
        let before = &curve.points[..curve.points.len() - 1];
        let free = |point: Point| before.iter().all(|other| distance(*other, point) >= 0.8 * scene.apart);
        let possible = |point: Point| inside(point.0) && inside(point.1) && free(point);
        if !possible(from) || !possible(to) {
            return None;
        }
        let rare = -(scene.continuity * turn).cos().powi(2).max(1e-3).ln();
        let cost = curve.cost + darkness(scene, pixels, from, to) + UNLIKELY * rare;
        Some(Traced { points: [&curve.points[..], &[from, to]].concat(), angle, cost })
    })
}

/// How dark it is along a dash: the mean square of what is missing to white.
fn darkness(scene: &Scene, pixels: &[u8], from: Point, to: Point) -> f64 {
    let missing = |look: usize| {
        let share = (look as f64 + 0.5) / LOOKS as f64;
        (1.0 - brightness(scene, pixels, (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1)))).powi(2)
    };
    (0..LOOKS).map(missing).sum::<f64>() / LOOKS as f64
}

/// From 0 to 1, between the middles of four pixels.
fn brightness(scene: &Scene, pixels: &[u8], (x, y): Point) -> f64 {
    let inside = |x: f64| x >= 0.0 && x < scene.side as f64 - 1.0;
    if !inside(x) || !inside(y) {
        return 0.0;
    }
    let (column, row) = (x as usize, y as usize);
    let (right, down) = (x.fract(), y.fract());
    let at = |row: usize, column: usize| f64::from(pixels[row * scene.side + column]) / 255.0;
    let across = |row: usize| (1.0 - right) * at(row, column) + right * at(row, column + 1);
    (1.0 - down) * across(row) + down * across(row + 1)
}
