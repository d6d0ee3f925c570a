//! Who is fastest, by the clock: whoever seemed so defends the place against the others, one after the other.

use crate::Timed;
use std::collections::BTreeMap;

/// By how much a challenger has to be faster, with everything the clock is unsure of counted against it.
pub(crate) const CLEARLY: f64 = 1.02;

/// A candidate's number, or `None` for the model as it came.
pub type Contestant = Option<usize>;

/// How fast contestants are beside the winner.
#[derive(Debug, Clone, PartialEq)]
pub struct Contest {
    /// Who is left.
    pub winner: Contestant,
    /// The winner's time over that of each candidate that was in it, and the interval of that: 1 is as fast, less is slower.
    pub speeds: BTreeMap<usize, (f64, [f64; 2])>,
}

impl Contest {
    /// Times the winner against the model as it came. Where it is slower than that, with everything the clock is unsure of in its favour
    /// and then once more, nobody has won, and all are measured by that model.
    pub fn or_nobody<E>(mut self, race: &mut dyn FnMut(usize) -> Result<Timed, E>) -> Result<Contest, E> {
        let Some(winner) = self.winner else { return Ok(self) };
        let slower = |timed: &Timed| CLEARLY * timed.interval[1] < 1.0;
        if !slower(&race(winner)?) {
            return Ok(self);
        }
        let again = race(winner)?;
        if slower(&again) {
            self.winner = None;
            self.speeds.values_mut().for_each(|speed| *speed = scaled(*speed, again.ratio, again.interval));
        }
        Ok(self)
    }
}

/// Has the first defend its place. `challengers` come in this order, each with whether it may take it; those that may not are only
/// timed. `race` times its first contestant against its second, and says nothing of one that cannot be in it. Whoever seems to win has to do so again: on a busy machine a thread
/// can be in the way of one engine for as long as it lives, and rounds do not tell. What was raced against somebody who lost the
/// place later is known by way of that one.
pub fn contest<E>(
    first: Contestant,
    challengers: &[(usize, bool)],
    race: &mut dyn FnMut(Contestant, usize) -> Result<Option<Timed>, E>,
) -> Result<Contest, E> {
    let mut winner = first;
    let mut speeds: BTreeMap<usize, (f64, [f64; 2])> = first.map(|first| (first, ITSELF)).into_iter().collect();
    for (challenger, may_win) in challengers.iter().filter(|(number, _)| Some(*number) != first) {
        let Some(mut timed) = race(winner, *challenger)? else { continue };
        let mut wins = *may_win && timed.interval[0] > CLEARLY;
        if wins {
            let Some(again) = race(winner, *challenger)? else { continue };
            wins = again.interval[0] > CLEARLY;
            timed = if again.ratio < timed.ratio { again } else { timed };
        }
        if wins {
            // From now on all are measured by the new one, as well as that is known of the old one.
            let [low, high] = timed.interval;
            speeds.values_mut().for_each(|speed| *speed = scaled(*speed, 1.0 / timed.ratio, [1.0 / high, 1.0 / low]));
            winner = Some(*challenger);
        }
        speeds.insert(*challenger, if wins { ITSELF } else { (timed.ratio, timed.interval) });
    }
    Ok(Contest { winner, speeds })
}

/// As fast as itself.
const ITSELF: (f64, [f64; 2]) = (1.0, [1.0; 2]);

/// A speed beside something else than before, of which the speed beside that is known.
fn scaled((ratio, [low, high]): (f64, [f64; 2]), by: f64, within: [f64; 2]) -> (f64, [f64; 2]) {
    (ratio * by, [low * within[0], high * within[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A race with this ratio, and an interval of a share to both sides.
    fn timed(ratio: f64, unsure: f64) -> Timed {
        let interval = [ratio * (1.0 - unsure), ratio * (1.0 + unsure)];
        Timed { ratio, interval, ms: 1.0, first_ms: ratio, undisturbed: ratio, slowed: 1.0 }
    }

    /// Races of contestants with these times, each with an interval of a share to both sides.
    fn raced(first: Contestant, challengers: &[(usize, bool)], ms: &[f64], unsure: f64) -> Contest {
        let of = |who: Contestant| who.map_or(10.0, |number| ms[number]);
        let mut race = |a: Contestant, b: usize| Ok::<_, std::fmt::Error>(Some(timed(of(a) / ms[b], unsure)));
        contest(first, challengers, &mut race).unwrap()
    }

    #[test]
    fn the_fastest_wins_and_the_rest_are_measured_by_it() {
        let all = [(0, true), (1, true), (2, true), (3, true)];
        let found = raced(Some(0), &all, &[4.0, 3.0, 5.0, 2.0], 0.05);
        assert_eq!(found.winner, Some(3));
        let speeds: Vec<f64> = found.speeds.values().map(|(ratio, _)| *ratio).collect();
        for (speed, ms) in speeds.iter().zip([4.0, 3.0, 5.0, 2.0]) {
            assert!((speed - 2.0 / ms).abs() < 1e-12, "{speeds:?}");
        }
        assert!(found.speeds.values().all(|(ratio, [low, high])| low <= ratio && ratio <= high));
        // Who lost the place is known as well as the race it lost, those it had beaten by two.
        let wide = |number: usize| found.speeds[&number].1[1] / found.speeds[&number].1[0];
        let once = 1.05f64 / 0.95;
        for (number, expected) in [(0, once * once), (1, once), (2, once * once), (3, 1.0)] {
            assert!((wide(number) - expected).abs() < 1e-9, "{number}: {}", wide(number));
        }
    }

    #[test]
    fn nobody_is_replaced_by_luck() {
        // 8% faster, but the clock may be off by 10%.
        assert_eq!(raced(Some(0), &[(1, true)], &[4.0, 3.7], 0.1).winner, Some(0));
        assert_eq!(raced(Some(0), &[(1, true)], &[4.0, 3.7], 0.01).winner, Some(1));
        // 1% is not worth another plan.
        assert_eq!(raced(Some(0), &[(1, true)], &[4.0, 3.96], 0.0).winner, Some(0));
    }

    #[test]
    fn who_wins_once_has_to_win_again() {
        for (ratios, winner, speed) in
            [([2.0, 0.9], Some(0), 0.9), ([2.0, 1.5], Some(1), 1.0), ([1.5, 2.0], Some(1), 1.0)]
        {
            let mut left = ratios.into_iter();
            let mut race =
                |_: Contestant, _: usize| left.next().map(|ratio| Some(timed(ratio, 0.01))).ok_or("a third race");
            let found = contest(Some(0), &[(1, true)], &mut race).unwrap();
            assert_eq!((found.winner, found.speeds[&1].0), (winner, speed));
        }
    }

    #[test]
    fn a_second_race_that_cannot_tell_is_no_second_win() {
        let mut left = [timed(1.4, 0.07), timed(1.5, 0.4)].into_iter();
        let mut race = |_: Contestant, _: usize| left.next().map(Some).ok_or("a third race");
        assert_eq!(contest(Some(0), &[(1, true)], &mut race).unwrap().winner, Some(0));
    }

    #[test]
    fn what_is_slower_than_the_model_as_it_came_has_not_won() {
        let found = raced(Some(0), &[(1, true)], &[12.5, 25.0], 0.0);
        let after = |ratios: &[f64]| {
            let mut left = ratios.iter();
            found.clone().or_nobody(&mut |_| left.next().map(|ratio| timed(*ratio, 0.1)).ok_or("a third race")).unwrap()
        };
        assert_eq!(after(&[0.95]).winner, Some(0), "it may be luck");
        assert_eq!(after(&[0.5, 1.0]).winner, Some(0), "it was once");
        let nobody = after(&[0.7, 0.8]);
        assert_eq!((nobody.winner, nobody.speeds[&0].0, nobody.speeds[&1].0), (None, 0.8, 0.4));
    }

    #[test]
    fn who_cannot_be_in_it_is_left_out() {
        let mut race = |_: Contestant, b: usize| Ok::<_, std::fmt::Error>((b != 1).then(|| timed(0.5, 0.0)));
        let found = contest(Some(0), &[(1, true), (2, true)], &mut race).unwrap();
        assert_eq!((found.winner, found.speeds.keys().copied().collect::<Vec<_>>()), (Some(0), vec![0, 2]));
    }

    #[test]
    fn who_may_not_win_does_not() {
        let found = raced(Some(1), &[(0, false), (1, true)], &[1.0, 4.0], 0.0);
        assert_eq!((found.winner, found.speeds[&0].0), (Some(1), 4.0));
        // Nobody defends it: all are measured by the model as it came.
        let found = raced(None, &[(0, false)], &[2.0], 0.1);
        assert_eq!((found.winner, found.speeds[&0].0), (None, 5.0));
    }
}
