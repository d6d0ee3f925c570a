//! A scale from numbers to places, with ticks at round numbers.

use sparing_markup::round_step;

/// Numbers from `low` to `high`, drawn from place `from` to place `to`.
pub(super) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Covers the finite ones of the numbers and a little more on both sides; never empty.
    pub(super) fn around(numbers: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (low, high) = numbers
            .into_iter()
            .filter(|number| number.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| (low.min(number), high.max(number)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let room = match high - low {
            // Beyond what a float can tell apart there is nothing to draw either.
            span if span > high.abs().max(low.abs()) * 1e-9 => span * 0.07,
            _ => high.abs().max(1e-6) * 0.1,
        };
        Axis { low: low - room, high: high + room, from, to }
    }

    /// The place of a number; beyond the ends at the ends.
    pub(super) fn place(&self, number: f64) -> f64 {
        let share = ((number - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + (self.to - self.from) * share
    }

    /// Whether the number is on the axis.
    pub(super) fn holds(&self, number: f64) -> bool {
        (self.low..=self.high).contains(&number)
    }

    /// About five round numbers on the axis, and how many decimals tell them apart.
    pub(super) fn ticks(&self) -> (Vec<f64>, usize) {
        let step = round_step((self.high - self.low) / 5.0);
        let first = (self.low / step).ceil();
        let ticks = (0..8).map(|i| (first + f64::from(i)) * step).filter(|tick| self.holds(*tick)).collect();
        (ticks, (-step.log10().floor()).clamp(0.0, 12.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_axis() {
        for (low, high) in [(0.0, 1.0), (0.88, 0.914), (21.0, 43.0), (1e-7, 3e-7), (-5.0, 5e9), (7.0, 7.0), (0.0, 0.0)]
        {
            let axis = Axis::around([low, high, f64::NAN], 10.0, 110.0);
            let (ticks, _) = axis.ticks();
            assert!((2..=8).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| axis.holds(*tick) && (10.0..=110.0).contains(&axis.place(*tick))));
            assert!(axis.place(low) > 10.0 && axis.place(high) < 110.0);
        }
        assert_eq!(Axis::around([0.88, 0.914], 0.0, 1.0).ticks(), (vec![0.88, 0.89, 0.9, 0.91], 2));
        let empty = Axis::around([], 0.0, 1.0);
        assert!(empty.place(f64::INFINITY) == 1.0 && empty.ticks().0.len() > 1);
    }
}
