//! How much faster one engine is than another: both take turns on the same requests.

use sparing_engine::{Engine, PartTime};
use sparing_model::{Batch, Error, Executor, Sequence};
use std::collections::BTreeMap;
use std::time::Instant;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// The first engine's time over the second's: median of the rounds.
    pub ratio: f64,
    /// Where it lies with 95% confidence, as far as the rounds tell; see [`median_interval`].
    pub interval: [f64; 2],
    /// The second's milliseconds for one request, median of the rounds.
    pub ms: f64,
    /// The first's.
    pub first_ms: f64,
    /// The first engine's time over the second's where each request counts by its quickest run: what the machine can do,
    /// whatever else it was at. A busy one slows every run of the median, but seldom all runs of a request.
    pub undisturbed: f64,
    /// The first engine's time over what its requests take that way: how much the machine was at something else.
    pub slowed: f64,
}

/// Requests to time engines with.
pub struct Stopwatch {
    requests: Vec<Batch>,
}

impl Stopwatch {
    /// Requests of `batch` texts each, at most `most` of them, spread evenly over the lengths there are.
    pub fn new(mut sequences: Vec<Sequence>, batch: usize, most: usize) -> Stopwatch {
        sequences.sort_by_key(|sequence| sequence.ids.len());
        let (all, wanted) = (sequences.len(), (batch * most).min(sequences.len()));
        let chosen: Vec<Sequence> = (0..wanted).map(|i| sequences[(2 * i + 1) * all / (2 * wanted)].clone()).collect();
        let request = |texts: &[Sequence]| Batch { sequences: texts.to_vec(), ..Batch::default() };
        Stopwatch { requests: chosen.chunks(batch.max(1)).map(request).collect() }
    }

    /// Number of requests in a round.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Tokens of every text.
    pub fn lengths(&self) -> Vec<usize> {
        self.requests.iter().flat_map(|b| &b.sequences).map(|s| s.ids.len()).collect()
    }

    /// Tokens of a request, on average.
    pub fn tokens(&self) -> f64 {
        self.lengths().iter().sum::<usize>() as f64 / self.requests.len().max(1) as f64
    }

    /// Times two engines, `rounds` times through all requests. They take turns request by request, so that whatever else the
    /// machine is at disturbs both alike; who begins changes from request to request.
    pub fn race(&self, first: &Engine, second: &Engine, rounds: usize) -> Result<Timed, Error> {
        self.round(first)?;
        self.round(second)?;
        let (mut ratios, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        let mut quickest = vec![[f64::INFINITY; 2]; self.requests.len()];
        for round in 0..rounds.max(1) {
            let (mut a, mut b) = (0.0, 0.0);
            for (number, request) in self.requests.iter().enumerate() {
                let took = if (round + number) % 2 == 0 {
                    let first = seconds_of(first, request)?;
                    [first, seconds_of(second, request)?]
                } else {
                    let second = seconds_of(second, request)?;
                    [seconds_of(first, request)?, second]
                };
                quickest[number].iter_mut().zip(took).for_each(|(least, took)| *least = least.min(took));
                (a, b) = (a + took[0], b + took[1]);
            }
            ratios.push(a / b);
            firsts.push(a);
            seconds.push(b);
        }
        let each = 1e3 / self.requests.len().max(1) as f64;
        let interval = median_interval(ratios.clone());
        let [a, b] = [0, 1].map(|which| quickest.iter().map(|pair| pair[which]).sum::<f64>());
        let (first, second) = (median(firsts), median(seconds));
        Ok(Timed {
            ratio: median(ratios),
            interval,
            ms: second * each,
            first_ms: first * each,
            undisturbed: a / b,
            slowed: first / a,
        })
    }

    /// Milliseconds of one request by part of the network, layers together or apart.
    pub fn parts(&self, engine: &Engine, rounds: usize) -> Result<BTreeMap<(Option<usize>, &'static str), f64>, Error> {
        let mut all: BTreeMap<(Option<usize>, &'static str), Vec<f64>> = BTreeMap::new();
        self.round(engine)?;
        for _ in 0..rounds.max(1) {
            let mut sums: BTreeMap<(Option<usize>, &'static str), f64> = BTreeMap::new();
            for request in &self.requests {
                for PartTime { layer, part, seconds } in engine.profile(request)?.1 {
                    *sums.entry((layer, part)).or_default() += seconds * 1e3 / self.requests.len() as f64;
                }
            }
            sums.into_iter().for_each(|(part, ms)| all.entry(part).or_default().push(ms));
        }
        Ok(all.into_iter().map(|(part, ms)| (part, median(ms))).collect())
    }

    /// Goes through all requests once, for caches and branches.
    fn round(&self, engine: &Engine) -> Result<(), Error> {
        self.requests.iter().try_for_each(|request| engine.run(request).map(drop))
    }
}

fn seconds_of(engine: &Engine, request: &Batch) -> Result<f64, Error> {
    let start = Instant::now();
    engine.run(request)?;
    Ok(start.elapsed().as_secs_f64())
}

/// The middle one, or the mean of the two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Where the median of what these were drawn from lies with 95% confidence, whatever its distribution: the narrowest pair of
/// the values, as far from one end as from the other, that fewer than a twentieth of all draws leave it outside of. All of them
/// where there are too few (below six) for that.
pub fn median_interval(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // Chances that at most `cut` of n fall below the median: each does with one half.
    let (mut cut, mut chance, mut below) = (0, 0.5f64.powi(n as i32), 0.0);
    for k in 0..n / 2 {
        below += chance;
        if 2.0 * below > 0.05 {
            break;
        }
        cut = k;
        chance *= (n - k) as f64 / (k + 1) as f64;
    }
    let end = |place: Option<usize>| place.and_then(|place| values.get(place)).copied().unwrap_or(f64::NAN);
    [end(Some(cut)), end(n.checked_sub(1 + cut))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_lengths() {
        let sequence = |n: usize| Sequence { ids: vec![1; n], types: vec![] };
        let watch = Stopwatch::new((1..=100).rev().map(sequence).collect(), 2, 5);
        let lengths: Vec<usize> = watch.requests.iter().flat_map(|b| &b.sequences).map(|s| s.ids.len()).collect();
        assert_eq!(lengths, [6, 16, 26, 36, 46, 56, 66, 76, 86, 96]);
        assert_eq!((watch.requests(), watch.tokens()), (5, 102.0));
        assert_eq!(Stopwatch::new(vec![sequence(3)], 1, 64).requests(), 1);
    }

    #[test]
    fn intervals_of_medians_as_tables_of_the_sign_test_have_them() {
        let counted = |n: usize| median_interval((1..=n).rev().map(|x| x as f64).collect());
        // Places from the ends: Table of the binomial with one half, at most 2.5% on a side.
        assert_eq!(
            [5, 6, 8, 9, 11, 12, 20].map(counted),
            [[1.0, 5.0], [1.0, 6.0], [1.0, 8.0], [2.0, 8.0], [2.0, 10.0], [3.0, 10.0], [6.0, 15.0]]
        );
        assert_eq!(median_interval(vec![7.0]), [7.0, 7.0]);
        assert!(median_interval(vec![])[0].is_nan());
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
