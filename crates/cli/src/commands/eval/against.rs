//! `sparing eval --against`: the same examples, answered by another precision or another model.

use super::{EvalArgs, Watch};
use crate::args::{MachineArgs, PrecisionArg};
use crate::console::Out;
use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::{interrupt, load};
use clap::ValueEnum;
use serde::Serialize;
use sparing_engine::Engine;
use sparing_model::{AttentionPlan, HeadKind, Model};
use sparing_tasks::{Agreement, Comparison, Dataset, Interval, Options, Progress, Report};

/// What answers are compared with.
#[derive(Debug, Clone)]
pub enum Rival {
    /// The same model in another precision, without economies of attention.
    Precision(PrecisionArg),
    /// Another model, as its plan says.
    Model(String),
}

/// A precision's name, or else a model's.
pub fn rival(text: &str) -> Result<Rival, String> {
    match PrecisionArg::from_str(text, false) {
        Ok(precision) => Ok(Rival::Precision(precision)),
        Err(_) if text.is_empty() => Err("a precision or a model is expected".into()),
        Err(_) => Ok(Rival::Model(text.into())),
    }
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Against {
    /// The other model; the same one in another precision if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    precision: &'static str,
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Found {
    Agreement(Agreement),
    Scores {
        /// The other one's score first; one comparison per metric.
        comparisons: Vec<Comparison>,
        complete: bool,
        /// Of the intervals.
        confidence: f64,
    },
}

impl Against {
    /// Asks a rival for the examples that the engine has answered with this report.
    pub fn ask(
        rival: &Rival,
        args: &EvalArgs,
        (model, engine): (&Model, &Engine),
        dataset: &Dataset,
        report: &Report,
        options: &Options,
    ) -> Result<Against, Failure> {
        match rival {
            Rival::Precision(precision) => in_precision(*precision, args, (model, engine), dataset, options),
            Rival::Model(name) => of_model(name, args, model, dataset, report, options),
        }
    }

    /// Whether everything was run.
    pub fn is_complete(&self) -> bool {
        match &self.found {
            Found::Agreement(agreement) => agreement.complete,
            Found::Scores { complete, .. } => *complete,
        }
    }

    /// Prints it for people; `precision`: of the answers that are compared.
    pub fn print(&self, precision: &str, out: &mut Out) -> Result<(), Failure> {
        let partial = if self.is_complete() { "" } else { " (PARTIAL: interrupted)" };
        out.line("")?;
        match &self.found {
            Found::Agreement(agreement) => {
                let title = format!("{precision} against {}, {} answers{partial}", self.precision, agreement.n);
                out.line(&out.paint.strong(&title))?;
                print_agreement(agreement, out)
            }
            Found::Scores { comparisons, confidence, .. } => {
                let name = self.model.as_deref().unwrap_or_default();
                let n = comparisons.first().map_or(0, |one| one.n);
                let title = format!("against {name} ({}), {n} examples{partial}", self.precision);
                out.line(&out.paint.strong(&title))?;
                print_scores(comparisons, *confidence, out)
            }
        }
    }
}

/// Compares the engine with one of another precision, answer by answer.
fn in_precision(
    precision: PrecisionArg,
    args: &EvalArgs,
    (model, engine): (&Model, &Engine),
    dataset: &Dataset,
    options: &Options,
) -> Result<Against, Failure> {
    let other = MachineArgs { precision: Some(precision), ..args.machine };
    let attention = Some(AttentionPlan::default());
    let exact = Engine::compile(model, &sparing_engine::Options { attention, ..other.options() })?;
    let encoder = model.tokenizer()?;
    let mut watch = Watch::new(dataset.examples.len());
    let mut step = |p: &Progress| watch.step(p, "agreement, ");
    let found = sparing_tasks::agreement(&exact, engine, encoder, &model.architecture, dataset, options, &mut step);
    watch.end();
    let found = Found::Agreement(found.map_err(interrupt::told)?);
    Ok(Against { model: None, precision: exact.precision().name(), found })
}

/// Has another model answer the examples, and compares the scores.
fn of_model(
    name: &str,
    args: &EvalArgs,
    model: &Model,
    dataset: &Dataset,
    report: &Report,
    options: &Options,
) -> Result<Against, Failure> {
    let told = |e: sparing_model::Error| Failure::from(e).at(format!("--against {name}"));
    let other = load::open(name, args.model.head)?;
    let (head, own) = (&other.architecture.head, &model.architecture.head);
    if std::mem::discriminant(&head.kind) != std::mem::discriminant(&own.kind) {
        return Err(Failure::new(format!("--against {name}: has another kind of head; give a model of the same task")));
    }
    let labelled = matches!(own.kind, HeadKind::Classify | HeadKind::MultiLabel | HeadKind::TokenClassify);
    if labelled && head.labels.len() != own.labels.len() {
        let counts = format!("has {} labels, where there are {} here", head.labels.len(), own.labels.len());
        return Err(Failure::new(format!("--against {name}: {counts}; give a model of the same task")));
    }
    let machine = MachineArgs { precision: None, ..args.machine };
    let engine = Engine::compile(&other, &machine.options()).map_err(told)?;
    let mut watch = Watch::new(dataset.examples.len());
    let mut step = |p: &Progress| watch.step(p, "the other model, ");
    let encoder = other.tokenizer().map_err(told)?;
    let answered = sparing_tasks::evaluate(&engine, encoder, &other.architecture, dataset, options, &mut step);
    watch.end();
    let answered = answered.map_err(|e| interrupt::told(e).at(format!("--against {name}")))?;
    let compare = |value: &sparing_tasks::Value| answered.compare(report, value.metric, &options.bootstrap);
    // A metric that is not defined for one of the two cannot be compared.
    let comparisons = report.values.iter().filter_map(|value| compare(value).ok()).collect();
    let confidence = options.bootstrap.confidence;
    let found = Found::Scores { comparisons, complete: answered.complete, confidence };
    Ok(Against { model: Some(load::short_name(name)), precision: engine.precision().name(), found })
}

fn print_agreement(a: &Agreement, out: &mut Out) -> Result<(), Failure> {
    let mut table = Table::new(&[("agreement", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.row([name.to_string(), value]);
        }
    };
    row("same top answer", a.same_top.map(|s| format!("{:.2}%", s * 100.0)));
    row("mean KL divergence (nats)", a.mean_kl.map(small));
    row("99% of KL divergences below", a.kl_99.map(small));
    row("mean cosine", a.mean_cosine.map(|c| format!("{c:.6}")));
    row("largest difference of an output", Some(small(a.max_abs_difference)));
    row("mean difference of an output", Some(small(a.mean_abs_difference)));
    out.text(&table.text(out.paint))
}

fn print_scores(comparisons: &[Comparison], confidence: f64, out: &mut Out) -> Result<(), Failure> {
    let interval = format!("{:.0}% interval", 100.0 * confidence);
    let columns = ["metric", "the other", "here", "change", &interval];
    let aligned = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    let mut table = Table::new(&std::array::from_fn::<_, 5, _>(|i| (columns[i], aligned[i])));
    for one in comparisons {
        let (factor, digits, unit) = if one.metric.is_share() { (100.0, 2, "%") } else { (1.0, 4, "") };
        let score = |x: f64| format!("{:.digits$}{unit}", factor * x);
        let change = |x: f64| format!("{:+.digits$}", factor * x);
        let range = |i: Interval| format!("{} to {}", change(i.low), change(i.high));
        table.row([
            one.metric.name().to_string(),
            score(one.first),
            score(one.second),
            change(one.difference),
            one.interval.map(range).unwrap_or_default(),
        ]);
    }
    out.text(&table.text(out.paint))?;
    let Some(m) = comparisons.iter().find_map(|one| one.mcnemar) else { return Ok(()) };
    out.line(&format!(
        "right here alone: {}, there alone: {}; a difference like that or larger comes by luck with p = {:.2} (McNemar)",
        m.only_second, m.only_first, m.p
    ))
}

/// Three significant digits, however small.
fn small(x: f64) -> String {
    if x == 0.0 || (0.001..1e6).contains(&x.abs()) { format!("{x:.4}") } else { format!("{x:.2e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(small(0.000_012_3), "1.23e-5");
        assert_eq!(small(0.25), "0.2500");
        assert_eq!(small(0.0), "0.0000");
    }

    #[test]
    fn precisions_are_told_from_models() {
        assert!(matches!(rival("int8"), Ok(Rival::Precision(PrecisionArg::Int8))));
        assert!(matches!(rival("./int8"), Ok(Rival::Model(name)) if name == "./int8"));
        assert!(rival("").is_err());
    }
}
