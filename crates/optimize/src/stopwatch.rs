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
    /// The second's milliseconds for one request, median of the rounds.
    pub ms: f64,
    /// The first's.
    pub first_ms: f64,
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
        for round in 0..rounds.max(1) {
            let (mut a, mut b) = (0.0, 0.0);
            for (number, request) in self.requests.iter().enumerate() {
                if (round + number) % 2 == 0 {
                    a += seconds_of(first, request)?;
                    b += seconds_of(second, request)?;
                } else {
                    b += seconds_of(second, request)?;
                    a += seconds_of(first, request)?;
                }
            }
            ratios.push(a / b);
            firsts.push(a);
            seconds.push(b);
        }
        let each = 1e3 / self.requests.len().max(1) as f64;
        Ok(Timed { ratio: median(ratios), ms: median(seconds) * each, first_ms: median(firsts) * each })
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
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
