//! The outcome in one sentence.

use crate::format::{count, is_zero, percent, ratio, short_percent, speeds};
use crate::{Candidate, Ended, Focus, Metric, Report};
use serde::{Deserialize, Serialize};

/// The outcome in one sentence, and what to think of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// Plain words: "1.9× faster (1.8 to 2.0), 2.1× smaller, 0.20 points (0.2%) lower on unseen data: within your budget of 0.5%".
    pub sentence: String,
    /// Whether that is what was asked for.
    pub verdict: Verdict,
    /// What the data cannot tell, if that matters.
    pub doubt: Option<String>,
}

/// Whether the outcome is what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The loss is within the budget.
    Within,
    /// The loss is beyond the budget.
    Beyond,
    /// Nobody can say: a score is missing, or a single row's answer is worth more than the budget.
    Unknown,
    /// Nothing was better than the model as it came.
    Unchanged,
}

/// A candidate's score beside the baseline's, on the same rows.
pub(crate) struct Loss {
    /// The candidate's score less the baseline's.
    pub change: f64,
    /// What was lost, relative to the baseline's score; negative if something was gained.
    pub relative: f64,
    /// On rows that the search never saw.
    pub unseen: bool,
}

impl Report {
    /// The outcome in one sentence, and another one if the search did not come to its end.
    pub fn headline(&self) -> Headline {
        let mut headline = self.best_so_far();
        headline.sentence += match self.ended {
            Ended::Whole => "",
            Ended::Stopped => " The search was stopped before its end.",
            Ended::Failed => " Fine-tuning failed, so the search ended early.",
        };
        headline
    }

    fn best_so_far(&self) -> Headline {
        let Some(chosen) = self.chosen() else {
            let sentence = match self.candidates.len() {
                0 => "Nothing was tried: the model is as it came.".to_owned(),
                1 => "The one candidate that was tried is no better: the model is as it came.".to_owned(),
                n => format!("None of {n} candidates is better: the model is as it came."),
            };
            return Headline { sentence, verdict: Verdict::Unchanged, doubt: None };
        };
        let budget = short_percent(self.budget);
        let outcome = self.outcome(chosen);
        let loss = self.loss(chosen);
        let within = loss.as_ref().map(|loss| loss.relative <= self.budget + 1e-9);
        let unseen = loss.as_ref().is_some_and(|loss| loss.unseen);
        let (sentence, verdict) = match within {
            _ if !chosen.meets_budget => {
                (format!("No candidate met your budget of {budget}; this is the best one: {outcome}."), Verdict::Beyond)
            }
            None => (format!("{}.", first_upper(&outcome)), Verdict::Unknown),
            Some(true) if unseen && self.is_blind() => {
                let rows = count(self.task.report_rows);
                (
                    format!(
                        "Not known whether it keeps your budget of {budget}, for {rows} unseen rows are too few to tell: {outcome}."
                    ),
                    Verdict::Unknown,
                )
            }
            Some(true) => (format!("{}: within your budget of {budget}.", first_upper(&outcome)), Verdict::Within),
            Some(false) if unseen => {
                let searched = self.relative_loss(self.baseline.search_score, chosen.search_score);
                let searched = match searched <= self.budget + 1e-9 {
                    true => ", although the search data were within it".to_owned(),
                    // It was let pass all the same, within a standard error.
                    false => {
                        format!("; on the search data {} was lost, which could have been luck", percent(searched, 1))
                    }
                };
                (format!("{}: beyond your budget of {budget}{searched}.", first_upper(&outcome)), Verdict::Beyond)
            }
            Some(false) => (format!("{}: beyond your budget of {budget}.", first_upper(&outcome)), Verdict::Beyond),
        };
        Headline { sentence, verdict, doubt: self.doubt(chosen) }
    }

    /// Whether one answer of all unseen rows is worth more than the budget: then no loss within it could be seen.
    fn is_blind(&self) -> bool {
        let (rows, share) = (self.task.report_rows as f64, self.baseline.score.unwrap_or(f64::NAN).abs());
        self.task.metric.is_share && rows > 0.0 && 1.0 > self.budget * share * rows
    }

    /// Fills in [`Report::verdict`] and [`Report::lost`].
    pub fn judge(&mut self) {
        self.verdict = Some(self.headline().verdict);
        self.lost =
            self.chosen().and_then(|chosen| self.loss(chosen)).filter(|loss| loss.unseen).map(|loss| loss.relative);
    }

    /// "1.9× faster (1.8 to 2.0), 2.1× smaller, 0.20 points (0.2%) lower on unseen data".
    fn outcome(&self, chosen: &Candidate) -> String {
        let mut time = compared(chosen.time_ratio, "faster", "slower", "as fast as before");
        if let Some(interval) = chosen.time_interval.filter(|_| chosen.time_ratio >= 1.0) {
            time += &format!(" ({})", speeds(&interval));
        }
        let size = compared(self.size_ratio(chosen), "smaller", "larger", "as large as before");
        let mut words = if self.focus == Focus::Size { vec![size, time] } else { vec![time, size] };
        if let Some(loss) = self.loss(chosen) {
            words.push(loss.words(&self.task.metric));
        }
        words.join(", ")
    }

    /// The baseline's bytes over the candidate's.
    pub(crate) fn size_ratio(&self, candidate: &Candidate) -> f64 {
        match candidate.bytes {
            0 => f64::NAN,
            bytes => self.baseline.bytes as f64 / bytes as f64,
        }
    }

    /// The loss on unseen rows, or on searched ones where nothing else was measured.
    pub(crate) fn loss(&self, candidate: &Candidate) -> Option<Loss> {
        let (before, after, unseen) = match (self.baseline.score, candidate.score) {
            (Some(before), Some(after)) => (before, after, true),
            _ => (self.baseline.search_score, candidate.search_score, false),
        };
        let (change, relative) = (after - before, self.relative_loss(before, after));
        (change.is_finite() && relative.is_finite()).then_some(Loss { change, relative, unseen })
    }

    fn relative_loss(&self, before: f64, after: f64) -> f64 {
        let lost = if self.task.metric.lower_is_better { after - before } else { before - after };
        if lost == 0.0 { 0.0 } else { lost / before.abs() }
    }

    /// What the data cannot rule out: a loss beyond the budget at the bad end of the interval of the change.
    fn doubt(&self, chosen: &Candidate) -> Option<String> {
        let (before, change) = (self.baseline.score?, chosen.change?);
        let bad = if self.task.metric.lower_is_better { change.high } else { change.low };
        let worst = self.relative_loss(before, before + bad);
        let now = self.loss(chosen)?.relative;
        (worst.is_finite() && now <= self.budget && worst > self.budget).then(|| {
            format!("{} unseen rows cannot rule out a loss of {}.", count(self.task.report_rows), percent(worst, 1))
        })
    }
}

impl Loss {
    /// "0.20 points (0.2%) lower on unseen data".
    fn words(&self, metric: &Metric) -> String {
        let place = if self.unseen { "on unseen data" } else { "on the search data" };
        let size = metric.size_of(self.change);
        if is_zero(&size) {
            return format!("the same {} {place}", metric.name);
        }
        let direction = if self.change > 0.0 { "higher" } else { "lower" };
        match metric.is_share {
            // The budget is a share of the score.
            true => format!("{size} points ({}) {direction} {place}", percent(self.relative.abs(), 1)),
            false => format!("{} {size} {direction} {place}", metric.name),
        }
    }
}

/// "1.92× faster", "1.2× slower", or that nothing changed.
pub(crate) fn compared(times: f64, more: &str, less: &str, same: &str) -> String {
    if !times.is_finite() || times <= 0.0 {
        return format!("not known whether {more}");
    }
    let word = direction(times, more, less, same);
    if word == same { same.to_owned() } else { format!("{} {word}", ratio(times.max(1.0 / times))) }
}

/// The word for a ratio: up to half a percent is no difference.
pub(crate) fn direction<'a>(times: f64, more: &'a str, less: &'a str, same: &'a str) -> &'a str {
    match times {
        times if times >= 1.005 => more,
        times if times <= 0.995 => less,
        _ => same,
    }
}

/// With a capital letter.
pub(crate) fn first_upper(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Task};

    fn report() -> Report {
        let metric = Metric { name: "accuracy".into(), is_share: true, lower_is_better: false };
        let scored = |score, bytes, time_ratio| Candidate {
            search_score: score,
            score: Some(score),
            bytes,
            time_ratio,
            meets_budget: true,
            ..Candidate::default()
        };
        Report {
            budget: 0.005,
            task: Task { metric, report_rows: 872, ..Task::default() },
            baseline: scored(0.912, 210, 1.0),
            candidates: vec![scored(0.910, 100, 1.9)],
            chosen: Some(0),
            ..Report::default()
        }
    }

    fn said(report: &Report) -> (String, Verdict) {
        let headline = report.headline();
        (headline.sentence, headline.verdict)
    }

    #[test]
    fn every_outcome_is_said_as_it_is() {
        let mut report = report();
        let within =
            "1.90× faster, 2.10× smaller, 0.20 points (0.2%) lower on unseen data: within your budget of 0.5%.";
        assert_eq!(said(&report), (within.into(), Verdict::Within));

        report.task.report_rows = 60;
        report.candidates[0].score = Some(0.912);
        let blind = "Not known whether it keeps your budget of 0.5%, for 60 unseen rows are too few to tell: 1.90× faster, 2.10× smaller, the same accuracy on unseen data.";
        assert_eq!(said(&report), (blind.into(), Verdict::Unknown));
        (report.task.report_rows, report.candidates[0].score) = (872, Some(0.910));

        report.focus = Focus::Size;
        assert!(said(&report).0.starts_with("2.10× smaller, 1.90× faster,"));
        report.focus = Focus::Speed;

        report.candidates[0].score = Some(0.905);
        report.candidates[0].search_score = 0.906;
        assert!(
            said(&report)
                .0
                .ends_with("beyond your budget of 0.5%; on the search data 0.7% was lost, which could have been luck.")
        );
        report.candidates[0].search_score = 0.910;
        let beyond = "1.90× faster, 2.10× smaller, 0.70 points (0.8%) lower on unseen data: beyond your budget of 0.5%, although the search data were within it.";
        assert_eq!(said(&report), (beyond.into(), Verdict::Beyond));

        report.candidates[0].score = None;
        report.candidates[0].search_score = 0.912;
        report.candidates[0].time_ratio = 0.8;
        let searched = "1.25× slower, 2.10× smaller, the same accuracy on the search data: within your budget of 0.5%.";
        assert_eq!(said(&report), (searched.into(), Verdict::Within));

        report.candidates[0].meets_budget = false;
        let best = "No candidate met your budget of 0.5%; this is the best one: 1.25× slower, 2.10× smaller, the same accuracy on the search data.";
        assert_eq!(said(&report), (best.into(), Verdict::Beyond));

        report.chosen = None;
        assert_eq!(said(&report).1, Verdict::Unchanged);
        report.candidates.clear();
        report.chosen = Some(3);
        assert_eq!(said(&report), ("Nothing was tried: the model is as it came.".into(), Verdict::Unchanged));
    }

    #[test]
    fn lower_is_better_where_it_is() {
        let mut report = report();
        report.task.metric = Metric { name: "perplexity".into(), is_share: false, lower_is_better: true };
        (report.baseline.score, report.candidates[0].score) = (Some(20.0), Some(20.2));
        assert!(said(&report).0.contains("perplexity 0.200 higher on unseen data: beyond your budget"));
        report.candidates[0].score = Some(19.0);
        assert_eq!(said(&report).1, Verdict::Within);
    }

    #[test]
    fn speeds_have_their_interval() {
        let mut report = report();
        report.candidates[0].time_interval = Some(Interval { low: 1.804, high: 2.0 });
        assert!(said(&report).0.starts_with("1.90× faster (1.80 to 2.00), 2.10× smaller"));
        report.candidates[0].time_interval = Some(Interval { low: f64::NAN, high: 2.0 });
        assert!(!said(&report).0.contains("NaN"));
    }

    #[test]
    fn a_search_that_ended_early_says_so() {
        let mut report = report();
        let whole = said(&report);
        for (ended, told) in [(Ended::Stopped, "was stopped before its end."), (Ended::Failed, "Fine-tuning failed")] {
            report.ended = ended;
            let (sentence, verdict) = said(&report);
            assert!(sentence.starts_with(&whole.0) && sentence.contains(told), "{sentence}");
            assert_eq!(verdict, whole.1, "what was found is as good as it is");
            report.chosen = None;
            assert!(said(&report).0.contains(told));
            report.chosen = Some(0);
        }
        let json = report.json();
        assert!(json.contains(r#""ended": "failed""#), "{json}");
        assert_eq!(Report::parse("{}").unwrap().ended, Ended::Whole, "as reports of earlier versions have it");
    }

    #[test]
    fn missing_numbers_are_no_success() {
        let mut report = report();
        report.candidates[0].score = Some(f64::NAN);
        report.candidates[0].time_ratio = f64::INFINITY;
        report.candidates[0].bytes = 0;
        let (sentence, verdict) = said(&report);
        assert_eq!(verdict, Verdict::Unknown);
        assert!(!sentence.contains("NaN") && !sentence.contains("inf"), "{sentence}");
    }

    #[test]
    fn doubt_is_told_where_the_interval_leaves_the_budget() {
        let mut report = report();
        assert_eq!(report.headline().doubt, None);
        report.candidates[0].change = Some(Interval { low: -0.012, high: 0.006 });
        assert_eq!(report.headline().doubt.as_deref(), Some("872 unseen rows cannot rule out a loss of 1.3%."));
        report.candidates[0].change = Some(Interval { low: -0.003, high: 0.001 });
        assert_eq!(report.headline().doubt, None);
    }
}
