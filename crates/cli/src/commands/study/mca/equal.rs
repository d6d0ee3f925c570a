//! Samplers compared where they cost the same: what each loses where the paper's loses two points.

use super::results::Measured;
use sparing_model::Sampler;

/// Points that the paper's sampler loses where all are compared.
pub const POINTS: f64 = 2.0;

/// What one model loses by each sampler at the same number of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub task: String,
    pub model: String,
    pub precision: String,
    /// What inputs are padded to in equation 9.
    pub padded: Option<usize>,
    /// Times fewer operations of the value encoding on real tokens, where the paper's sampler loses [`POINTS`].
    pub reduction: f64,
    /// The alpha of the paper's sampler there.
    pub alpha: f64,
    /// Points that the others lose there; `None`: they were not measured that far.
    pub losses: Vec<(Sampler, Option<f64>)>,
}

impl Comparison {
    /// The sampler that loses least, and what.
    pub fn best(&self) -> Option<(Sampler, f64)> {
        let known = self.losses.iter().filter_map(|(sampler, loss)| Some((*sampler, (*loss)?)));
        known.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// One measured point of a sampler: reduction, loss, alpha.
type Point = [f64; 3];

/// A sampler's points by alpha, from the exact model on.
fn curve<'a>(measured: impl Iterator<Item = &'a Measured>) -> Vec<Point> {
    let point = |m: &Measured| m.cell.way.map(|way| [m.values, m.loss(), f64::from(way.alpha)]);
    let mut points: Vec<Point> = measured.filter_map(point).collect();
    points.push([1.0, 0.0, 0.0]);
    points.sort_by(|a, b| a[2].total_cmp(&b[2]));
    points
}

/// Where on the way from `a` to `b` coordinate `axis` reaches `value`, all else in proportion (reductions by their logarithm).
fn between(a: Point, b: Point, axis: usize, value: f64) -> Option<Point> {
    let scale = |x: f64| if axis == 0 { x.ln() } else { x };
    let (from, to) = (scale(a[axis]), scale(b[axis]));
    let share = (scale(value) - from) / (to - from);
    let inside = to > from && (0.0..=1.0).contains(&share);
    inside.then(|| {
        let mix = |x: f64, y: f64| x + share * (y - x);
        [mix(a[0].ln(), b[0].ln()).exp(), mix(a[1], b[1]), mix(a[2], b[2])]
    })
}

/// The first place on a curve where coordinate `axis` reaches a value.
fn reach(curve: &[Point], axis: usize, value: f64) -> Option<Point> {
    curve.windows(2).find_map(|pair| between(pair[0], pair[1], axis, value))
}

/// Every model, precision and length whose paper sampler was measured up to a loss of [`POINTS`], beside others.
pub fn compare(measured: &[Measured]) -> Vec<Comparison> {
    let mut comparisons: Vec<Comparison> = Vec::new();
    for one in measured {
        let Some(way) = one.cell.way.filter(|way| way.sampler == Sampler::Paper) else { continue };
        let alike = |m: &&Measured| {
            let (a, b) = (&m.cell, &one.cell);
            (&a.task, &a.model, &a.precision) == (&b.task, &b.model, &b.precision)
                && a.way.is_some_and(|other| other.padded == way.padded)
        };
        let of = |sampler: Sampler| {
            curve(measured.iter().filter(alike).filter(|m| m.cell.way.is_some_and(|way| way.sampler == sampler)))
        };
        let Some([reduction, _, alpha]) = reach(&of(Sampler::Paper), 1, POINTS) else { continue };
        // int8 saves time, not operations.
        let rivals = [Sampler::Calibrated, Sampler::Systematic, Sampler::Graded, Sampler::Mean];
        let losses = rivals.into_iter().map(|sampler| (sampler, of(sampler)));
        let losses: Vec<_> = losses
            .filter(|(_, curve)| curve.len() > 1)
            .map(|(sampler, curve)| (sampler, reach(&curve, 0, reduction).map(|point| point[1])))
            .collect();
        let comparison = Comparison {
            task: one.cell.task.clone(),
            model: one.cell.model.clone(),
            precision: one.cell.precision.clone(),
            padded: way.padded,
            reduction,
            alpha,
            losses,
        };
        if !comparison.losses.is_empty() && !comparisons.contains(&comparison) {
            comparisons.push(comparison);
        }
    }
    comparisons
}

#[cfg(test)]
mod tests {
    use super::super::results::Way;
    use super::super::results::tests::measured;
    use super::*;

    #[test]
    fn losses_are_read_where_operations_are_equal() {
        let at =
            |sampler, alpha, mean, values| measured("sst2", Way { sampler, alpha, padded: None }, (0.90, mean), values);
        let all = [
            at(Sampler::Paper, 0.2, 0.89, 2.0),
            at(Sampler::Paper, 0.4, 0.87, 8.0),
            at(Sampler::Graded, 0.2, 0.90, 2.0),
            at(Sampler::Graded, 0.4, 0.898, 8.0),
            at(Sampler::Mean, 0.2, 0.88, 3.0),
        ];
        let found = compare(&all);
        assert_eq!(found.len(), 1);
        // The paper's loses 1 point at 2x and 3 at 8x: 2 points half-way between their logarithms.
        assert!((found[0].reduction - 4.0).abs() < 1e-9 && (found[0].alpha - 0.3).abs() < 1e-6, "{:?}", found[0]);
        let (sampler, loss) = found[0].best().unwrap();
        assert!(sampler == Sampler::Graded && (loss - 0.1).abs() < 1e-9, "{loss}");
        assert_eq!(found[0].losses[1], (Sampler::Mean, None));
        assert!(compare(&all[..1]).is_empty());
    }
}
