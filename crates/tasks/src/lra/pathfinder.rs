//! Pathfinder (Linsley et al. 2018, <https://arxiv.org/abs/1805.08315>): whether two dots are the ends of one dashed curve.
//!
//! A generator of our own by the published idea: two long curves, two dots, and shorter curves that distract. Positive:
//! the dots are at both ends of one long curve; negative: each is at an end of another one.

use super::{INTERRUPTED, Part, Set, Task, Wanted};
use crate::random::Random;
use sparing_model::Error;
use std::f64::consts::PI;

/// How pictures are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scene {
    /// Pixels of a side.
    pub side: usize,
    /// Dashes of the two long curves.
    pub dashes: usize,
    /// Curves of a third of that length.
    pub distractors: usize,
}

/// Pixels of a dash, and between two of one curve.
const DASH: f64 = 2.0;
const GAP: f64 = 1.5;
/// Pixels between two curves, at least.
const APART: f64 = 2.5;
/// The most a curve turns from dash to dash.
const TURN: f64 = 0.45;
/// Pixels that nothing is drawn in along the border.
const BORDER: f64 = 2.0;
/// A dot's radius.
const DOT: f64 = 1.3;

type Point = (f64, f64);

impl Scene {
    /// The scene of a task.
    pub fn of(task: Task) -> Scene {
        match task {
            Task::PathX => Scene { side: 128, dashes: 26, distractors: 14 },
            _ => Scene { side: 32, dashes: 6, distractors: 3 },
        }
    }

    /// A picture, row by row, and whether its dots are connected.
    pub(crate) fn draw(&self, random: &mut Random) -> (Vec<u8>, bool) {
        let (curves, dots, connected) = self.place(random);
        (self.pixels(&curves, dots), connected)
    }

    /// Curves, dots, and whether these are connected.
    fn place(&self, random: &mut Random) -> (Vec<Vec<Point>>, [Point; 2], bool) {
        loop {
            let mut curves: Vec<Vec<Point>> = Vec::new();
            let long = (0..2).all(|_| self.curve(self.dashes, random, &mut curves, 60));
            if !long {
                continue;
            }
            for _ in 0..self.distractors {
                self.curve((self.dashes / 3).max(2), random, &mut curves, 20);
            }
            let connected = random.below(2) == 1;
            let (first, second) = (&curves[0], &curves[1]);
            let dots = if connected { [first[0], first[first.len() - 1]] } else { [first[0], second[0]] };
            return (curves, dots, connected);
        }
    }

    /// Adds a curve of so many dashes that is apart from all others; false if none was found in so many trials. Its points
    /// are the ends of its dashes.
    fn curve(&self, dashes: usize, random: &mut Random, curves: &mut Vec<Vec<Point>>, trials: usize) -> bool {
        let uniform = |random: &mut Random| random.below(1 << 30) as f64 / (1u64 << 30) as f64;
        let inner = self.side as f64 - 2.0 * BORDER - 1.0;
        'trial: for _ in 0..trials {
            let mut at = (BORDER + inner * uniform(random), BORDER + inner * uniform(random));
            let mut angle = 2.0 * PI * uniform(random);
            let mut points: Vec<Point> = Vec::with_capacity(2 * dashes);
            for _ in 0..dashes {
                let end = (at.0 + DASH * angle.cos(), at.1 + DASH * angle.sin());
                for point in [at, end] {
                    let inside = |x: f64| (BORDER..=BORDER + inner).contains(&x);
                    let near = |other: &Point| distance(point, *other) < APART;
                    // Its own last dashes are near by nature.
                    let own = &points[..points.len().saturating_sub(3)];
                    let crossed = curves.iter().flatten().chain(own).any(near);
                    if !inside(point.0) || !inside(point.1) || crossed {
                        continue 'trial;
                    }
                }
                points.extend([at, end]);
                angle += TURN * (2.0 * uniform(random) - 1.0);
                at = (end.0 + GAP * angle.cos(), end.1 + GAP * angle.sin());
            }
            curves.push(points);
            return true;
        }
        false
    }

    /// Dashes and dots as brightness by their distance from a pixel's middle.
    fn pixels(&self, curves: &[Vec<Point>], dots: [Point; 2]) -> Vec<u8> {
        let mut bright = vec![0f64; self.side * self.side];
        let mut paint = |a: Point, b: Point, radius: f64| {
            let low = |x: f64, y: f64| ((x.min(y) - radius - 1.0).floor().max(0.0)) as usize;
            let high = |x: f64, y: f64| ((x.max(y) + radius + 1.0).ceil() as usize).min(self.side - 1);
            for row in low(a.1, b.1)..=high(a.1, b.1) {
                for column in low(a.0, b.0)..=high(a.0, b.0) {
                    let far = from_segment((column as f64, row as f64), a, b);
                    let shade = (radius + 0.5 - far).clamp(0.0, 1.0);
                    let pixel = &mut bright[row * self.side + column];
                    *pixel = pixel.max(shade);
                }
            }
        };
        for dash in curves.iter().flat_map(|points| points.chunks_exact(2)) {
            paint(dash[0], dash[1], 0.4);
        }
        dots.into_iter().for_each(|dot| paint(dot, dot, DOT));
        bright.into_iter().map(|shade| (255.0 * shade).round() as u8).collect()
    }
}

fn distance(a: Point, b: Point) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

fn from_segment(point: Point, a: Point, b: Point) -> f64 {
    let (along, length) = ((b.0 - a.0, b.1 - a.1), distance(a, b));
    if length == 0.0 {
        return distance(point, a);
    }
    let share = ((point.0 - a.0) * along.0 + (point.1 - a.1) * along.1) / (length * length);
    let share = share.clamp(0.0, 1.0);
    distance(point, (a.0 + share * along.0, a.1 + share * along.1))
}

pub(crate) fn make(task: Task, part: Part, wanted: &Wanted, told: &mut dyn FnMut(usize) -> bool) -> Result<Set, Error> {
    let scene = Scene::of(task);
    let number = Part::ALL.iter().position(|p| *p == part).unwrap_or(0) as u64;
    let mut random = Random::new(wanted.seed.wrapping_mul(3).wrapping_add(number));
    let mut set = Set::new(task);
    for _ in 0..wanted.count(part) {
        let (pixels, connected) = scene.draw(&mut random);
        set.push(&[&pixels], u8::from(connected));
        if set.len().is_multiple_of(1000) && !told(set.len()) {
            return Err(Error::new(INTERRUPTED));
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels that can be reached from a bright one over bright ones at most three pixels away: curves are further apart
    /// than their dashes, nearly always.
    fn reached(pixels: &[u8], side: usize, from: usize) -> Vec<bool> {
        let mut seen = vec![false; pixels.len()];
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let (row, column) = ((at / side) as isize, (at % side) as isize);
            for (r, c) in (-2..=2).flat_map(|r| (-2..=2).map(move |c| (row + r, column + c))) {
                let inside = (0..side as isize).contains(&r) && (0..side as isize).contains(&c);
                let next = (r * side as isize + c) as usize;
                if inside && pixels[next] > 60 && !seen[next] {
                    open.push(next);
                }
            }
        }
        seen
    }

    /// The label is in the picture: a walk from dot to dot along dashes tells it far better than chance.
    #[test]
    fn dots_are_connected_or_not() {
        let scene = Scene::of(Task::Pathfinder);
        let mut random = Random::new(1);
        let (mut right, mut positive, count) = (0, 0, 200);
        for _ in 0..count {
            let (curves, dots, connected) = scene.place(&mut random);
            let pixels = scene.pixels(&curves, dots);
            assert_eq!(pixels.len(), 1024);
            let [first, last] = dots.map(|dot| dot.1.round() as usize * 32 + dot.0.round() as usize);
            let walk = reached(&pixels, 32, first)[last];
            right += u32::from(walk == connected);
            positive += u32::from(connected);
        }
        assert!((70..130).contains(&positive), "{positive}");
        assert!(right > 150, "{right} of {count}");
    }

    #[test]
    fn the_seed_decides() {
        let wanted = Wanted { examples: 20, length: 1024, shortest: 0, seed: 9 };
        let of = |part| make(Task::Pathfinder, part, &wanted, &mut |_| true).unwrap();
        assert_eq!(of(Part::Train), of(Part::Train));
        assert_ne!(of(Part::Dev).example(0), of(Part::Test).example(0));
        let large = Scene::of(Task::PathX).draw(&mut Random::new(2)).0;
        assert_eq!(large.len(), 128 * 128);
    }
}
