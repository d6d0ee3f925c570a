//! Times that belong together: what is measured of the whole, and the parts that go with it.

use crate::{Gain, Interval, PartTime, Report, Verification};

/// What to say of times that were not measured again with the whole.
const SCALED: &str = "measured once more: the speed of the whole and of the model as it came is new; times of parts, techniques and other \
                      candidates are those of the first measurement, scaled with it";

impl Interval {
    fn times(self, factor: f64) -> Interval {
        Interval { low: self.low * factor, high: self.high * factor }
    }
}

impl Gain {
    /// Makes gains add up to the share of the time that was saved.
    pub fn add_up(gains: &mut [Gain], saved: f64) {
        let factor = saved / gains.iter().map(|gain| gain.time).sum::<f64>();
        for gain in gains {
            // Nothing was saved or told apart: nothing is made up.
            if !factor.is_finite() || factor <= 0.0 {
                (gain.time, gain.time_interval) = (0.0, None);
                continue;
            }
            gain.time *= factor;
            gain.time_interval = gain.time_interval.map(|interval| interval.times(factor));
        }
    }
}

impl PartTime {
    /// Makes parts add up to the milliseconds of the whole.
    pub fn add_up(parts: &mut [PartTime], ms: f64) {
        let sum: f64 = parts.iter().map(|part| part.ms).sum();
        parts.iter_mut().for_each(|part| part.ms *= ms / sum);
    }
}

impl Report {
    /// Puts what was measured again in the place of what was measured before, and says so. Other candidates were raced against the chosen
    /// one, or foreseen beside it: their times go with its. What techniques save goes with what all save together, and stays as it was
    /// where that is nothing: another time it may be something again.
    pub fn retime(&mut self, found: Verification, baseline_ms: f64) {
        let before = self.chosen().map_or(1.0, |chosen| chosen.time_ratio);
        let after = if self.chosen().is_some() { found.time_ratio } else { 1.0 };
        self.baseline.time_ms = baseline_ms;
        for (number, one) in self.candidates.iter_mut().enumerate() {
            one.time_ratio *= after / before;
            one.time_interval = one.time_interval.map(|interval| interval.times(after / before));
            if self.chosen == Some(number) {
                (one.time_ratio, one.time_interval) = (after, found.time_interval);
            }
            one.time_ms = baseline_ms / one.time_ratio;
        }
        let saved = 1.0 - 1.0 / found.time_ratio;
        if saved * self.gained() > 0.0 {
            Gain::add_up(&mut self.gains, saved);
        }
        PartTime::add_up(&mut self.parts_before, baseline_ms);
        PartTime::add_up(&mut self.parts_after, baseline_ms / found.time_ratio);
        self.verification = Some(found);
        self.notes.retain(|note| note != SCALED);
        self.notes.push(SCALED.into());
    }

    /// The share of the time that techniques save, all together.
    fn gained(&self) -> f64 {
        self.gains.iter().map(|gain| gain.time).sum()
    }

    /// Whether that is what was measured of the whole, as far as a page shows it.
    pub(crate) fn gains_add_up(&self) -> bool {
        let saved = |found: &Verification| 1.0 - 1.0 / found.time_ratio;
        self.verification.as_ref().is_none_or(|found| (self.gained() - saved(found)).abs() < 0.005)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Candidate;

    #[test]
    fn gains_add_up_to_what_was_saved() {
        let gain = |time| Gain { time, ..Gain::default() };
        let mut gains = [gain(0.5), gain(0.0), gain(0.125)];
        Gain::add_up(&mut gains, 0.75);
        assert_eq!(gains.map(|gain| gain.time), [0.6, 0.0, 0.15]);
        // Nothing was told apart: nothing is made up.
        let mut nothing = [gain(0.0)];
        Gain::add_up(&mut nothing, 0.3);
        assert_eq!(nothing[0].time, 0.0);
        // What was foreseen of a model that is not faster by the clock was not gained.
        for saved in [0.0, -0.2] {
            let mut foreseen = [gain(0.25), gain(0.5)];
            Gain::add_up(&mut foreseen, saved);
            assert_eq!(foreseen.map(|gain| gain.time), [0.0, 0.0], "{saved}");
        }
    }

    #[test]
    fn what_is_measured_again_takes_everything_with_it() {
        let interval = |low, high| Some(Interval { low, high });
        let timed = |time_ratio, time_interval| Candidate {
            time_ratio,
            time_interval,
            time_ms: 12.0 / time_ratio,
            ..Candidate::default()
        };
        let part = |ms| PartTime { ms, ..PartTime::default() };
        let mut report = Report {
            baseline: timed(1.0, None),
            candidates: vec![timed(3.0, interval(1.5, 4.0)), timed(2.0, None), timed(4.0, interval(3.0, 5.0))],
            chosen: Some(2),
            gains: vec![Gain { time: 0.5, ..Gain::default() }, Gain { time: 0.25, ..Gain::default() }],
            parts_before: vec![part(9.0), part(3.0)],
            parts_after: vec![part(1.0), part(2.0)],
            ..Report::default()
        };
        let found = Verification { time_ratio: 2.0, time_interval: interval(1.9, 2.1), ..Verification::default() };
        report.retime(found.clone(), 8.0);
        let ratios: Vec<_> =
            report.candidates.iter().map(|one| (one.time_ratio, one.time_ms, one.time_interval)).collect();
        assert_eq!(ratios, [(1.5, 8.0 / 1.5, interval(0.75, 2.0)), (1.0, 8.0, None), (2.0, 4.0, interval(1.9, 2.1))]);
        assert_eq!((report.baseline.time_ratio, report.baseline.time_ms), (1.0, 8.0));
        assert_eq!(report.gains.iter().map(|gain| gain.time).sum::<f64>(), 0.5);
        assert_eq!(report.parts_before, [part(6.0), part(2.0)]);
        assert_eq!(report.parts_after.iter().map(|part| part.ms).sum::<f64>(), 4.0);
        assert_eq!(report.verification, Some(found.clone()));

        // What a busy machine takes away comes back.
        let mut moody = report.clone();
        let share = |report: &Report| report.gains[0].time / report.gains.iter().map(|gain| gain.time).sum::<f64>();
        let was = share(&moody);
        for ratio in [1.03, 0.99, 1.04] {
            moody.retime(Verification { time_ratio: ratio, ..found.clone() }, 8.0);
            assert!((share(&moody) - was).abs() < 1e-12 && moody.gains[0].time > 0.0, "{ratio}: {:?}", moody.gains);
            assert_eq!(moody.gains_add_up(), ratio > 1.0, "{ratio}");
        }
        assert!((moody.gained() - (1.0 - 1.0 / 1.04)).abs() < 1e-12);
        // A result that is slower, as all say.
        let mut slower = report.clone();
        slower.gains.iter_mut().for_each(|gain| gain.time = -gain.time);
        slower.retime(Verification { time_ratio: 0.8, ..found.clone() }, 8.0);
        assert!((slower.gained() + 0.25).abs() < 1e-12 && slower.gains_add_up(), "{:?}", slower.gains);
        assert_eq!(moody.notes.iter().filter(|note| note.contains("measured once more")).count(), 1);

        // Where nothing was chosen, candidates were foreseen beside the model as it came.
        report.chosen = None;
        report.retime(Verification { time_ratio: 1.02, ..found }, 4.0);
        assert_eq!((report.candidates[0].time_ratio, report.candidates[2].time_ms), (1.5, 2.0));
    }
}
