//! Is one model better than another on the same examples, or is it luck?

use crate::bootstrap::{Bootstrap, Interval};
use crate::outcome::{Metric, Outcome};
use crate::report::Report;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// The difference between two reports on the same examples, the second minus the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What is compared.
    pub metric: Metric,
    /// The first's value over the shared examples.
    pub first: f64,
    /// The second's value over the shared examples.
    pub second: f64,
    /// `second - first`; NaN where the two are not of the same examples.
    pub difference: f64,
    /// Paired bootstrap interval of the difference.
    pub interval: Option<Interval>,
    /// Number of shared examples.
    pub n: usize,
    /// McNemar's exact test, where a prediction is either right or wrong.
    pub mcnemar: Option<McNemar>,
}

/// McNemar's exact test of two classifiers on the same examples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct McNemar {
    /// Examples only the first gets right.
    pub only_first: usize,
    /// Examples only the second gets right.
    pub only_second: usize,
    /// Two-sided probability of a difference this large or larger by luck.
    pub p: f64,
}

impl Report {
    /// Compares this report (the first) with another on the examples that both hold.
    pub fn compare(&self, second: &Report, metric: Metric, bootstrap: &Bootstrap) -> Result<Comparison, Error> {
        if self.task != second.task || self.source != second.source {
            return Err(Error::new(format!(
                "reports of different data cannot be compared ({} of {} and {} of {})",
                self.task.name(),
                self.source,
                second.task.name(),
                second.source
            )));
        }
        let (a, b) = shared(self, second);
        if a.is_empty() {
            return Err(Error::new("the two reports share no examples"));
        }
        if !same_windows(self, second, &a, &b) {
            return Err(Error::new(
                "the two read the text in other windows (tokenizer, context or stride differ), so their losses cannot be paired",
            ));
        }
        // Labels are numbers in each model's own order.
        let first_of = |picks: &[usize]| metric.measure(&a, picks, self.labels);
        let second_of = |picks: &[usize]| metric.measure(&b, picks, second.labels);
        let all: Vec<usize> = (0..a.len()).collect();
        let (first_value, second_value) = (first_of(&all), second_of(&all));
        if first_value.is_nan() || second_value.is_nan() {
            return Err(Error::new(format!("{} is not defined for these reports", metric.name())));
        }
        let draws = bootstrap.draw(a.len(), 1, |picks| vec![second_of(picks) - first_of(picks)]);
        let right = |outcomes: &[Outcome]| -> Option<Vec<bool>> { outcomes.iter().map(Outcome::right).collect() };
        Ok(Comparison {
            metric,
            first: first_value,
            second: second_value,
            difference: second_value - first_value,
            interval: bootstrap.interval(&draws[0]),
            n: a.len(),
            mcnemar: right(&a).zip(right(&b)).map(|(a, b)| mcnemar(&a, &b)),
        })
    }
}

impl Comparison {
    /// What two reports say of a metric each, where they cannot be paired; NaN where one of them does not say.
    pub fn apart(first: &Report, second: &Report, metric: Metric) -> Comparison {
        let [first_value, second_value] = [first, second].map(|report| report.value(metric).unwrap_or(f64::NAN));
        Comparison {
            metric,
            first: first_value,
            second: second_value,
            difference: f64::NAN,
            interval: None,
            n: first.n,
            mcnemar: None,
        }
    }

    /// The same for people: rows that all stay do not say that nothing ever changes, though drawing them again and again does. Of n
    /// others up to three may, with 95% confidence.
    pub fn widened(mut self) -> Comparison {
        if let Some(interval) = self.interval.as_mut().filter(|i| i.low == i.high && self.metric.is_share()) {
            let others = (3.0 / self.n.max(1) as f64).min(1.0);
            (interval.low, interval.high) = (interval.low - others, interval.high + others);
        }
        self
    }
}

/// Whether losses are of the same pieces of text: windows are numbered, and where one ends goes by the tokenizer, the context and the stride.
fn same_windows(first: &Report, second: &Report, a: &[Outcome], b: &[Outcome]) -> bool {
    let size = |outcome: &Outcome| match outcome {
        Outcome::Loss { tokens, bytes, .. } => Some((*tokens, *bytes)),
        _ => None,
    };
    let are_losses = a.first().is_some_and(|outcome| size(outcome).is_some());
    // Whoever was interrupted has not seen them all.
    let whole = first.complete && second.complete;
    let same_number = !whole || first.examples == second.examples;
    !are_losses || same_number && a.iter().zip(b).all(|(a, b)| size(a) == size(b))
}

/// Outcomes of the examples in both reports, in the same order.
fn shared(a: &Report, b: &Report) -> (Vec<Outcome>, Vec<Outcome>) {
    let mut pairs = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while i < a.examples.len() && j < b.examples.len() {
        match a.examples[i].cmp(&b.examples[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                pairs.0.push(a.outcomes[i].clone());
                pairs.1.push(b.outcomes[j].clone());
                (i, j) = (i + 1, j + 1);
            }
        }
    }
    pairs
}

/// McNemar's test with the exact binomial distribution.
pub fn mcnemar(first: &[bool], second: &[bool]) -> McNemar {
    let only = |a: &[bool], b: &[bool]| a.iter().zip(b).filter(|(a, b)| **a && !**b).count();
    let (only_first, only_second) = (only(first, second), only(second, first));
    McNemar { only_first, only_second, p: sign_test(only_first, only_second) }
}

/// Two-sided sign test: `min(1, 2 P(X <= min(a, b)))`, X binomial with `a + b` fair draws.
fn sign_test(a: usize, b: usize) -> f64 {
    let n = a + b;
    let mut log_term = -(n as f64) * std::f64::consts::LN_2; // ln of C(n, 0) / 2^n
    let mut sum = log_term.exp();
    for i in 0..a.min(b) {
        log_term += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
        sum += log_term.exp();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy.stats.binomtest(min(a, b), a + b, 0.5).pvalue, SciPy 1.17.1.
    #[test]
    fn sign_test_as_scipy() {
        for (a, b, want) in
            [(5, 12, 0.143463134765625), (0, 0, 1.0), (3, 3, 1.0), (10, 1, 0.01171875), (300, 350, 0.05452994175892356)]
        {
            assert!((sign_test(a, b) - want).abs() < 1e-10, "{a} {b}");
            assert_eq!(sign_test(a, b), sign_test(b, a));
        }
        assert!(sign_test(100_000, 101_000) < 0.05);
    }

    #[test]
    fn counts_who_alone_is_right() {
        let m = mcnemar(&[true, true, false, false, true], &[true, false, true, false, false]);
        assert_eq!((m.only_first, m.only_second), (2, 1));
    }
}
