//! What a candidate's answers are worth on the rows that the search may look at.

use crate::median;
use crate::running::Counted;
use serde::{Deserialize, Serialize};
use sparing_engine::{Engine, Options as EngineOptions};
use sparing_model::{Error, Executor, Model};
use sparing_report::Focus;
use sparing_tasks::{Bootstrap, Dataset, Metric, Options, Outcome, Report, evaluate, kl};

/// Resamples that say how far a score may be off.
const RESAMPLES: usize = 200;
/// Share of a normal distribution within one standard deviation.
const ONE_SIGMA: f64 = 0.6827;
/// Standard errors that are put on top of what is lost: more is lost 5 times of 100. The best of many candidates has had luck
/// with the rows it was chosen by.
const CAUTION: f64 = 1.645;

/// Rows that none of those that were seen is like: what happens to none of n rows happens to up to three of n others, with 95% confidence.
const ABSENT: f64 = 3.0;

/// What a candidate's answers are worth, beside the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The headline metric.
    pub score: f64,
    /// Share of the baseline's score that is lost; negative where it is better.
    pub lost: f64,
    /// What is lost by the baseline's own belief, with 95% confidence: how much less it believes in the candidate's answers
    /// than in its own. It has less luck in it than the score, which hangs on the few rows where the two answer differently.
    /// Where there is no belief to go by (numbers, tags, spans), the score that is lost, with 95% confidence.
    pub doubt: f64,
    /// How far `lost` may be off by luck: its standard error.
    pub luck: f64,
    /// Mean loss (cross-entropy, squared error, nats).
    pub loss: f64,
    /// Mean divergence from the baseline's answers.
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
    /// Whether no more than this share of the score is lost: by belief, and by the score as far as it can tell.
    pub fn within(&self, budget: f64) -> bool {
        self.lost <= budget + self.luck + 1e-9 && self.doubt <= budget + 1e-9
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
        let (baseline, counted) = asked(model, dataset, &options, &engine, elsewhere, stop)?;
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
        if focus == Focus::Accuracy {
            return "good enough on searched rows: a score that is not below the original model's".into();
        }
        let budget = format!("{}%", (1e5 * budget).round() / 1e3);
        let score = match self.believes() {
            true => format!(
                "its doubt is at most {budget} (what is lost by the original model's own belief, with 95% confidence; it has less luck \
                 in it than the score), and the score that is lost too, give or take one standard error"
            ),
            false => format!("its doubt (the score that is lost, with 95% confidence) is at most {budget}"),
        };
        format!(
            "within the budget of {budget} on searched rows: {score}; of a model that was fine-tuned, the score alone"
        )
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
        let (report, counted) = asked(model, self.dataset, &self.options, &self.engine, self.elsewhere, stop)?;
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
        let [loss, divergence, doubt, squared, agreement, not_worse] = sums.map(|sum| sum / n);
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

/// Matthews' correlation of answers with what is true with a probability each.
fn correlation(rows: impl Iterator<Item = (f64, bool)>) -> f64 {
    // [answered no, answered yes] x [untrue, true]
    let mut counts = [[0.0; 2]; 2];
    for (truth, yes) in rows {
        counts[usize::from(yes)][0] += 1.0 - truth;
        counts[usize::from(yes)][1] += truth;
    }
    let [[right_no, missed], [wrong_yes, right_yes]] = counts;
    let sides = (right_yes + wrong_yes) * (right_yes + missed) * (right_no + wrong_yes) * (right_no + missed);
    if sides > 0.0 { (right_yes * right_no - wrong_yes * missed) / sides.sqrt() } else { 0.0 }
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
const NO_NUMBER: Verdict = Verdict {
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

fn is_number(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Class { logits, .. } | Outcome::Labels { logits, .. } => logits.iter().all(|logit| logit.is_finite()),
        Outcome::Score { predicted, .. } => predicted.is_finite(),
        Outcome::Loss { nats, .. } => nats.is_finite(),
        Outcome::Tags { .. } | Outcome::Answer { .. } => true,
    }
}

/// What runs a model elsewhere, if there is such a place and it can.
pub fn executor(elsewhere: Option<&Elsewhere<'_>>, model: &Model) -> Result<Option<Box<dyn Executor>>, Error> {
    elsewhere.map_or(Ok(None), |elsewhere| elsewhere(model))
}

/// All answers of a model, from wherever it can run, and what was chosen not to be computed.
fn asked(
    model: &Model,
    dataset: &Dataset,
    options: &Options,
    engine: &EngineOptions,
    elsewhere: Option<&Elsewhere<'_>>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(Report, Counted), Error> {
    if let Some(executor) = executor(elsewhere, model)? {
        return Ok((answers(&*executor, model, dataset, options, stop)?, Counted::default()));
    }
    let engine = Engine::compile(model, engine)?;
    let report = answers(&engine, model, dataset, options, stop)?;
    Ok((report, Counted::by(&engine)))
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

/// Nats for classes, squares for numbers, share of wrong answers for the rest.
fn loss(outcome: &Outcome) -> f64 {
    match outcome {
        Outcome::Class { gold, logits, .. } => -softmax(logits).get(*gold).copied().unwrap_or(0.0).max(1e-30).ln(),
        Outcome::Labels { gold, logits, .. } => {
            let one = |(i, x): (usize, &f32)| softplus(f64::from(if gold.contains(&i) { -x } else { *x }));
            logits.iter().enumerate().map(one).sum()
        }
        Outcome::Score { gold, predicted } => (gold - predicted).powi(2),
        Outcome::Tags { gold, predicted, .. } => {
            let wrong = gold.iter().zip(predicted).filter(|(g, p)| g != p).count();
            wrong as f64 / gold.len().max(1) as f64
        }
        Outcome::Answer { f1, .. } => 1.0 - f1,
        Outcome::Loss { nats, tokens, .. } => nats / (*tokens).max(1) as f64,
    }
}

/// Divergence, doubt and sameness of a candidate's answer beside the baseline's.
fn beside(a: &Outcome, b: &Outcome) -> (f64, f64, f64) {
    match (a, b) {
        (Outcome::Class { predicted: x, logits: p, .. }, Outcome::Class { predicted: y, logits: q, .. }) => {
            let belief = softmax(p);
            let doubt = belief.get(*x).zip(belief.get(*y)).map_or(0.0, |(x, y)| x - y);
            (kl(p, q), doubt, f64::from(u8::from(x == y)))
        }
        (Outcome::Labels { predicted: x, logits: p, .. }, Outcome::Labels { predicted: y, logits: q, .. }) => {
            let divergence = p.iter().zip(q).map(|(p, q)| kl(&[*p, 0.0], &[*q, 0.0])).sum();
            (divergence, 0.0, f64::from(u8::from(x == y)))
        }
        (Outcome::Score { predicted: x, .. }, Outcome::Score { predicted: y, .. }) => {
            ((x - y).powi(2), 0.0, f64::from(u8::from((x - y).abs() < 0.1)))
        }
        _ => {
            let difference = (loss(a) - loss(b)).abs();
            (difference, 0.0, f64::from(u8::from(difference < 1e-6)))
        }
    }
}

/// How far the baseline's answer leads the next best, what it costs by the baseline's belief to answer that instead, and how much of
/// the lead the candidate takes away. `None` for what is no class.
fn pushed(a: &Outcome, b: &Outcome) -> Option<((f64, f64), f64)> {
    let (Outcome::Class { predicted, logits: p, .. }, Outcome::Class { logits: q, .. }) = (a, b) else { return None };
    let best = |logits: &[f32]| {
        let others = logits.iter().enumerate().filter(|(class, _)| class != predicted);
        others.max_by(|x, y| x.1.total_cmp(y.1)).map(|(class, x)| (class, *x))
    };
    let lead = |logits: &[f32]| Some(f64::from(logits.get(*predicted)? - best(logits)?.1));
    let belief = softmax(p);
    let doubt = belief.get(*predicted)? - belief.get(best(p)?.0)?;
    Some(((lead(p)?, doubt), lead(p)? - lead(q)?))
}

/// Mean square of a row's doubt, if any row's answer could be pushed as far as any other's was: where all answers stay, some may
/// still have been pushed further than it takes to change others.
fn foreseen(mut leads: Vec<(f64, f64)>, pushed: &[f64]) -> f64 {
    leads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sums = vec![0.0];
    for (_, doubt) in &leads {
        sums.push(sums[sums.len() - 1] + doubt * doubt);
    }
    let overtaken = |push: &f64| sums[leads.partition_point(|(lead, _)| lead < push)];
    pushed.iter().map(overtaken).sum::<f64>() / (leads.len().max(1) as f64).powi(2)
}

/// What a row costs that is less sure than most that were seen (its lead is anywhere up to the middle one), if it is pushed as far as others
/// were, towards the other answer or away from it. Of two answers, the one that leads by x is believed `tanh(x / 2)` more.
fn unsure(leads: &[(f64, f64)], pushed: &[f64]) -> f64 {
    let middle = median(leads.iter().map(|(lead, _)| *lead).collect());
    // Twice the logarithm of cosh(push / 2), which itself would soon be out of bounds.
    let cost = |push: &f64| {
        let push = push.abs().min(middle);
        (push + 2.0 * ((-push).exp().ln_1p() - std::f64::consts::LN_2)) / middle
    };
    if middle > 0.0 { pushed.iter().map(cost).sum::<f64>() / pushed.len().max(1) as f64 } else { 0.0 }
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - largest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_by_hand() {
        let class = |gold, logits: [f32; 2]| Outcome::Class { gold, predicted: 0, logits: logits.to_vec() };
        assert!((loss(&class(0, [0.0, 0.0])) - 2f64.ln()).abs() < 1e-9);
        assert!((loss(&class(1, [0.0, 3.0])) - (-3f64).exp().ln_1p()).abs() < 1e-6);
        let labels = Outcome::Labels { gold: vec![1], predicted: vec![], logits: vec![0.0, 0.0] };
        assert!((loss(&labels) - 2.0 * 2f64.ln()).abs() < 1e-9);
        assert_eq!(loss(&Outcome::Score { gold: 2.0, predicted: 0.5 }), 2.25);
    }

    #[test]
    fn correlations_with_what_is_believed() {
        // Sure beliefs are labels: 3 of 4 answers right, 2 x 2 counts [[1, 0], [1, 2]].
        let sure = [(1.0, true), (1.0, true), (0.0, true), (0.0, false)];
        assert!((correlation(sure.into_iter()) - 2.0 / 12f64.sqrt()).abs() < 1e-12);
        // Half a belief counts half on either side, and answers that are all the same say nothing.
        assert_eq!(correlation([(0.5, true), (0.5, false)].into_iter()), 0.0);
        assert_eq!(correlation([(1.0, true), (0.0, true)].into_iter()), 0.0);
        // Where yes is rare, one doubtful yes less costs more of the correlation than of the answers.
        let rows = |last: bool| (0..20).map(move |i| if i == 19 { (0.9, last) } else { (0.02, false) });
        let rows = |last| rows(last).chain([(0.95, true)]);
        assert!(correlation(rows(true)) - correlation(rows(false)) > 3.0 * (0.8 / 21.0));
    }

    #[test]
    fn a_lead_is_taken_away_by_what_comes_closer() {
        let class = |logits: [f32; 3]| Outcome::Class { gold: 0, predicted: 1, logits: logits.to_vec() };
        let ((lead, doubt), push) = pushed(&class([0.0, 3.0, 1.0]), &class([2.5, 3.0, 1.0])).unwrap();
        // Two ahead of the third class, then half ahead of the first.
        let belief = softmax(&[0.0, 3.0, 1.0]);
        assert_eq!((lead, push), (2.0, 1.5));
        assert!((doubt - (belief[1] - belief[2])).abs() < 1e-12);
        // Further ahead than before: pushed the other way.
        assert!(pushed(&class([0.0, 3.0, 1.0]), &class([0.0, 9.0, 1.0])).unwrap().1 < 0.0);
        assert_eq!(pushed(&class([0.0; 3]), &Outcome::Score { gold: 0.0, predicted: 0.0 }), None);
    }

    #[test]
    fn answers_that_stay_are_pushed_all_the_same() {
        let leads = [(0.5, 0.2), (1.0, 0.4), (2.0, 0.7), (4.0, 0.9)];
        let rows = |pushes: [f64; 4]| foreseen(leads.to_vec(), &pushes);
        assert_eq!(rows([0.4, -1.0, 0.3, 0.0]), 0.0);
        // The sure one is pushed by three and stays; so far the other three would have gone.
        assert!((rows([0.4, -1.0, 0.3, 3.0]) - (0.04 + 0.16 + 0.49) / 16.0).abs() < 1e-12);
        assert_eq!(foreseen(vec![], &[]), 0.0);
    }

    #[test]
    fn rows_that_are_all_sure_say_nothing_of_those_that_are_not() {
        let leads = [(4.0, 0.96), (5.0, 0.98), (6.0, 0.99)];
        // Nobody is overtaken, whichever way they are pushed.
        assert_eq!(foreseen(leads.to_vec(), &[2.0, -2.0, 1.0]), 0.0);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let cost = |push: f64| 2.0 * (0.5 * push).cosh().ln() / 5.0;
        near(unsure(&leads, &[2.0, -2.0, 1.0]), (2.0 * cost(2.0) + cost(1.0)) / 3.0);
        // Further than the middle one's lead is as far as it goes.
        near(unsure(&leads, &[50.0, 9.0, 5.0]), cost(5.0));
        assert!(unsure(&leads, &[0.01; 3]) < 1e-5, "what hardly moves will not change");
        assert_eq!((unsure(&[], &[]), unsure(&[(0.0, 0.0)], &[1.0])), (0.0, 0.0));
    }

    #[test]
    fn what_is_not_a_number_is_never_good_enough() {
        let class = |logits: [f32; 2]| Outcome::Class { gold: 0, predicted: 0, logits: logits.to_vec() };
        assert!(is_number(&class([0.0, 1.0])) && !is_number(&class([0.0, f32::NAN])));
        assert!(!is_number(&Outcome::Score { gold: 0.0, predicted: f64::INFINITY }));
        assert!(!NO_NUMBER.within(0.9));
    }

    #[test]
    fn an_answer_the_baseline_half_believes_in_costs_little() {
        let class = |predicted, logits: [f32; 2]| Outcome::Class { gold: 0, predicted, logits: logits.to_vec() };
        let (_, sure, _) = beside(&class(0, [4.0, -4.0]), &class(1, [-1.0, 1.0]));
        let (_, unsure, same) = beside(&class(0, [0.1, 0.0]), &class(1, [-1.0, 1.0]));
        assert!(sure > 0.99 && unsure < 0.06 && same == 0.0, "{sure} {unsure}");
        assert_eq!(beside(&class(0, [1.0, 0.0]), &class(0, [1.0, 0.0])), (0.0, 0.0, 1.0));
    }
}
