//! What a candidate's answers are worth on the rows that the search may look at.

use crate::belief::{beside, correlation, foreseen, is_number, loss, pushed, softmax, unsure};
use crate::running::Counted;
use serde::{Deserialize, Serialize};
use sparing_engine::{Engine, Options as EngineOptions};
use sparing_model::{Error, Executor, Model};
use sparing_report::Focus;
use sparing_tasks::{Bootstrap, Dataset, Metric, Options, Outcome, Report, Watched, evaluate};

/// Resamples that say how far a score may be off.
const RESAMPLES: usize = 200;
/// Share of a normal distribution within one standard deviation.
const ONE_SIGMA: f64 = 0.6827;
/// Standard errors that are put on top of what is lost: of one candidate more is lost once of a thousand times. Some sixty are judged by
/// the same rows and the best of them is taken, so that it has had luck with them: 99.9% each are some 95% for all.
const CAUTION: f64 = 3.09;

/// Rows that none of those that were seen is like: what happens to none of n rows happens to up to `ln 1000` of n others, with as much
/// confidence.
const ABSENT: f64 = 6.908;

/// What a candidate's answers are worth, beside the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The headline metric.
    #[serde(with = "crate::number")]
    pub score: f64,
    /// Share of the baseline's score that is lost; negative where it is better.
    #[serde(with = "crate::number")]
    pub lost: f64,
    /// What is lost by the baseline's own belief, with 99.9% confidence: how much less it believes in the candidate's answers
    /// than in its own. It has less luck in it than the score, which hangs on the few rows where the two answer differently.
    /// Where there is no belief to go by (numbers, tags, spans), the score that is lost, with 99.9% confidence.
    #[serde(with = "crate::number")]
    pub doubt: f64,
    /// How far `lost` may be off by luck: its standard error.
    #[serde(with = "crate::number")]
    pub luck: f64,
    /// Mean loss (cross-entropy, squared error, nats); of correlations, which know no scale, the share of what labels differ by that answers
    /// leave unexplained.
    #[serde(with = "crate::number")]
    pub loss: f64,
    /// Mean divergence from the baseline's answers.
    #[serde(with = "crate::number")]
    pub divergence: f64,
    /// Share of rows with the baseline's answer.
    pub agreement: f64,
    /// Share of rows whose loss is not larger than the baseline's.
    pub not_worse: f64,
    /// What was chosen not to be computed.
    #[serde(default)]
    pub counted: Counted,
}

impl Verdict {
    /// Whether no more than this share of the score is lost: by belief, whatever luck does, and by the score that was seen.
    pub fn within(&self, budget: f64) -> bool {
        self.lost <= budget + 1e-9 && self.doubt <= budget + 1e-9
    }
}

/// Runs models elsewhere than in the engine, where they would answer as they do in it; `None` for a model that would not.
pub type Elsewhere<'a> = dyn Fn(&Model) -> Result<Option<Box<dyn Executor>>, Error> + 'a;

/// The rows, and the baseline's answers.
pub struct Judge<'a> {
    dataset: &'a Dataset,
    elsewhere: Option<&'a Elsewhere<'a>>,
    options: Options,
    engine: EngineOptions,
    metric: Metric,
    baseline: Report,
    own: Verdict,
}

impl<'a> Judge<'a> {
    /// A judge by these rows. The baseline is the model as its plan says.
    pub fn new(
        model: &Model,
        dataset: &'a Dataset,
        options: Options,
        engine: EngineOptions,
        elsewhere: Option<&'a Elsewhere<'a>>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Judge<'a>, Error> {
        let (baseline, counted) = asked(model, dataset, &options, &engine, elsewhere, stop)??;
        let metric = baseline.values.first().map(|value| value.metric).unwrap_or(Metric::Accuracy);
        let mut judge = Judge { dataset, elsewhere, options, engine, metric, baseline, own: EMPTY };
        judge.own = Verdict { counted, ..judge.compare(&judge.baseline)? };
        Ok(judge)
    }

    /// The headline metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The baseline's.
    pub fn own(&self) -> &Verdict {
        &self.own
    }

    /// What it takes to be good enough, in a sentence.
    pub fn criterion(&self, focus: Focus, budget: f64) -> String {
        let budget = format!("{}%", (1e5 * budget).round() / 1e3);
        let doubt = match self.believes() {
            true => format!(
                "its doubt is at most {budget} (what is lost by the original model's own belief, with 99.9% confidence; it has less \
                 luck in it than the score)"
            ),
            false => format!("its doubt (the score that is lost, with 99.9% confidence) is at most {budget}"),
        };
        let trained = "of a model that was fine-tuned, the score alone";
        if focus == Focus::Accuracy {
            return format!(
                "good enough on searched rows: its score is not below the original model's, and {doubt}; {trained}"
            );
        }
        let score = if self.believes() { ", and so is the score that is lost" } else { "" };
        format!("within the budget of {budget} on searched rows: {doubt}{score}; {trained}")
    }

    /// Whether answers come with how far the baseline believes in them.
    fn believes(&self) -> bool {
        matches!(self.baseline.outcomes.first(), Some(Outcome::Class { .. }))
    }

    /// The class that is right most often, and the share of rows for which it is; `None` for other answers than classes.
    pub fn most_frequent(&self) -> Option<(usize, f64)> {
        self.baseline.most_frequent().map(|(class, count)| (class, count as f64 / self.rows().max(1) as f64))
    }

    /// How many rows it judges by.
    pub fn rows(&self) -> usize {
        self.baseline.n
    }

    /// What a candidate is worth.
    pub fn verdict(&self, model: &Model, stop: &mut dyn FnMut() -> bool) -> Result<Verdict, Error> {
        let found = asked(model, self.dataset, &self.options, &self.engine, self.elsewhere, stop)?;
        let Ok((report, counted)) = found else { return Ok(NO_NUMBER) };
        Ok(Verdict { counted, ..self.compare(&report)? })
    }

    /// How its engines are made.
    pub fn engine(&self) -> &EngineOptions {
        &self.engine
    }

    fn compare(&self, report: &Report) -> Result<Verdict, Error> {
        let value =
            |report: &Report| report.values.iter().find(|v| v.metric == self.metric).map_or(f64::NAN, |v| v.value);
        let (base, score) = (value(&self.baseline), value(report));
        let n = report.outcomes.len().max(1) as f64;
        if !report.outcomes.iter().all(is_number) {
            return Ok(NO_NUMBER);
        }
        let mut sums = [0.0; 6];
        for (a, b) in self.baseline.outcomes.iter().zip(&report.outcomes) {
            let (before, after) = (loss(a), loss(b));
            let (divergence, doubt, same) = beside(a, b);
            let not_worse = f64::from(u8::from(after <= before));
            let terms = [after, divergence, doubt, doubt * doubt, same, not_worse];
            sums.iter_mut().zip(terms).for_each(|(sum, x)| *sum += x);
        }
        let [mean, divergence, doubt, squared, agreement, not_worse] = sums.map(|sum| sum / n);
        let loss = match self.metric {
            // The other way around is not explained either.
            Metric::Pearson | Metric::Spearman => 1.0 - score.max(0.0).powi(2),
            _ => mean,
        };
        // Few rows where nobody changes their mind do not say that nobody ever will.
        let rows = self.baseline.outcomes.iter().zip(&report.outcomes);
        let (leads, pushes): (Vec<(f64, f64)>, Vec<f64>) = rows.filter_map(|(a, b)| pushed(a, b)).unzip();
        let unseen = ABSENT / n * unsure(&leads, &pushes);
        let foreseen = foreseen(leads, &pushes) - doubt * doubt;
        let error = ((squared - doubt * doubt).max(foreseen).max(0.0) / n).sqrt();
        let caution = (CAUTION * error).max(unseen);
        let on_top = if doubt > 0.0 { caution / doubt } else { 0.0 };
        let worse = if self.metric.higher_is_better() { base - score } else { score - base };
        let [lost, doubt, caution] = [worse, doubt, caution].map(|x| x / base.abs().max(1e-9));
        let believes = self.believes();
        let luck = match self.metric {
            // Rows that all stay do not say that nothing ever changes: less than one of them is never known.
            Metric::Accuracy if believes => ((1.0 - agreement).max(1.0 / n) / n).sqrt(),
            _ if self.metric.is_share() => self.resampled(report).max(1.0 / n),
            _ => self.resampled(report),
        } / base.abs().max(1e-9);
        let doubt = match self.metric {
            _ if !believes => lost + CAUTION * luck,
            Metric::Matthews => ((1.0 + on_top) * doubt.max(self.matthews_doubt(report))).max(caution),
            _ => doubt + caution,
        };
        Ok(Verdict { score, lost, doubt, luck, loss, divergence, agreement, not_worse, counted: Counted::default() })
    }
}

impl Judge<'_> {
    /// Standard error of the difference of two scores, by drawing rows again and again, the same ones for both. Nothing where a
    /// score is not defined.
    fn resampled(&self, report: &Report) -> f64 {
        let bootstrap = Bootstrap { resamples: RESAMPLES, confidence: ONE_SIGMA, seed: 0 };
        let interval = self.baseline.compare(report, self.metric, &bootstrap).ok().and_then(|found| found.interval);
        interval.map_or(0.0, |interval| (interval.high - interval.low) / 2.0)
    }

    /// Share of Matthews' correlation that is lost where the baseline's belief stands for the labels: answers that hardly
    /// matter to accuracy may matter to a correlation.
    fn matthews_doubt(&self, report: &Report) -> f64 {
        let believed = |outcome: &Outcome| match outcome {
            Outcome::Class { logits, .. } => softmax(logits).get(1).copied().unwrap_or(0.0),
            _ => 0.0,
        };
        let correlation = |answers: &Report| {
            let rows = self.baseline.outcomes.iter().zip(&answers.outcomes);
            correlation(rows.map(|(a, b)| (believed(a), matches!(b, Outcome::Class { predicted: 1, .. }))))
        };
        let own = correlation(&self.baseline);
        (own - correlation(report)) / own.abs().max(1e-9)
    }
}

pub(crate) const EMPTY: Verdict = Verdict {
    score: 0.0,
    lost: 0.0,
    doubt: 0.0,
    luck: 0.0,
    loss: 0.0,
    divergence: 0.0,
    agreement: 1.0,
    not_worse: 1.0,
    counted: Counted { tokens: 0.0, values: 0.0 },
};

/// Of answers some of which are not numbers: nothing that is compared with them would say so.
pub(crate) const NO_NUMBER: Verdict = Verdict {
    score: f64::NAN,
    lost: f64::INFINITY,
    doubt: f64::INFINITY,
    luck: 0.0,
    loss: f64::INFINITY,
    divergence: f64::INFINITY,
    agreement: 0.0,
    not_worse: 0.0,
    counted: Counted { tokens: 0.0, values: 0.0 },
};

/// What runs a model elsewhere, if there is such a place and it can.
pub fn executor(elsewhere: Option<&Elsewhere<'_>>, model: &Model) -> Result<Option<Box<dyn Executor>>, Error> {
    elsewhere.map_or(Ok(None), |elsewhere| elsewhere(model))
}

/// All answers of a model, from wherever it can run, and what was chosen not to be computed. The inner error says which are no
/// numbers.
fn asked(
    model: &Model,
    dataset: &Dataset,
    options: &Options,
    engine: &EngineOptions,
    elsewhere: Option<&Elsewhere<'_>>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Result<(Report, Counted), Error>, Error> {
    let mut numbers = |executor: &dyn Executor| {
        let watched = Watched::new(executor);
        match answers(&watched, model, dataset, options, stop) {
            Err(e) if watched.is_broken() => Ok(Err(e)),
            report => report.map(Ok),
        }
    };
    if let Some(executor) = executor(elsewhere, model)? {
        return Ok(numbers(&*executor)?.map(|report| (report, Counted::default())));
    }
    let engine = match Engine::compile(model, engine) {
        // Weights that are no numbers have no other answers.
        Err(e) if model.weights.check_finite().is_err() => return Ok(Err(e)),
        engine => engine?,
    };
    Ok(numbers(&engine)?.map(|report| (report, Counted::by(&engine))))
}

/// All answers of a model.
pub fn answers(
    executor: &dyn Executor,
    model: &Model,
    dataset: &Dataset,
    options: &Options,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Report, Error> {
    let report = evaluate(executor, model.tokenizer()?, &model.architecture, dataset, options, &mut |_| !stop())?;
    if report.complete { Ok(report) } else { Err(Error::new("stopped")) }
}

/// Options of evaluation without intervals, which a search does not look at.
pub fn without_intervals(options: &Options) -> Options {
    Options { bootstrap: Bootstrap { resamples: 0, ..options.bootstrap }, ..options.clone() }
}

#[cfg(test)]
mod tests {
    use super::NO_NUMBER;

    #[test]
    fn what_is_not_a_number_is_never_good_enough() {
        assert!(!NO_NUMBER.within(0.9) && !NO_NUMBER.within(f64::MAX));
    }
}
