//! Whom `sparing eval --against` asks. It is opened, checked and compiled before anything is scored: what is wrong with it is told at once.

use super::against::{Against, Found};
use super::{EvalArgs, Watch, guess};
use crate::args::{MachineArgs, PrecisionArg};
use crate::failure::Failure;
use crate::{console, interrupt, load};
use clap::ValueEnum;
use sparing_engine::Engine;
use sparing_model::{AttentionPlan, HeadKind, Model};
use sparing_tasks::{Bootstrap, Comparison, Dataset, Gold, Options, Pairing, Progress, Report, Task};
use std::path::Path;

/// What answers are compared with.
#[derive(Debug, Clone)]
pub enum Rival {
    /// The same model in another precision, without economies of attention.
    Precision(PrecisionArg),
    /// Another model, as its plan says.
    Model(String),
}

/// A precision's name, or else a model's. A directory that is called like a precision is `./f32`.
pub fn rival(text: &str) -> Result<Rival, String> {
    let name = match text.to_lowercase().as_str() {
        "fp32" | "float32" => "f32",
        "bfloat16" => "bf16",
        _ => text,
    };
    match PrecisionArg::from_str(name, true) {
        Ok(precision) => Ok(Rival::Precision(precision)),
        Err(_) if text.is_empty() => Err("a precision or a model is expected".into()),
        Err(_) => Ok(Rival::Model(text.into())),
    }
}

/// A rival that only has to answer.
pub struct Ready {
    engine: Engine,
    other: Option<Other>,
}

/// Another model.
struct Other {
    name: String,
    model: Model,
    /// How the labels here belong to its own.
    labels: Pairing,
}

impl Ready {
    /// Makes a rival ready for a model and the rows it is scored on.
    pub fn new(rival: &Rival, args: &EvalArgs, model: &Model, dataset: &Dataset) -> Result<Ready, Failure> {
        match rival {
            Rival::Precision(precision) => {
                let machine = MachineArgs { precision: Some(*precision), ..args.machine };
                let attention = Some(AttentionPlan::default());
                let options = sparing_engine::Options { attention, ..machine.options() };
                Ok(Ready { engine: Engine::compile(model, &options)?, other: None })
            }
            Rival::Model(name) => {
                let told = |e: sparing_model::Error| Failure::from(e).at(format!("--against {name}"));
                let other = load::open(name, args.model.head).map_err(|failure| unopened(name, failure))?;
                let labels = check(name, model, &other, dataset)?;
                other.tokenizer().map_err(told)?;
                let machine = MachineArgs { precision: None, ..args.machine };
                let engine = Engine::compile(&other, &machine.options()).map_err(told)?;
                Ok(Ready { engine, other: Some(Other { name: name.clone(), model: other, labels }) })
            }
        }
    }

    /// Asks for the examples that the engine has answered with this report.
    pub fn ask(
        &self,
        (model, engine): (&Model, &Engine),
        dataset: &Dataset,
        report: &Report,
        options: &Options,
    ) -> Result<Against, Failure> {
        let precision = self.engine.precision().name();
        let (found, name) = match &self.other {
            None => (self.agreement((model, engine), dataset, options)?, None),
            Some(other) => (self.scores(other, dataset, report, options)?, Some(load::short_name(&other.name))),
        };
        Ok(Against::new(name, precision, found))
    }

    /// Compares the engine with this one of another precision, answer by answer.
    fn agreement(
        &self,
        (model, engine): (&Model, &Engine),
        dataset: &Dataset,
        options: &Options,
    ) -> Result<Found, Failure> {
        let encoder = model.tokenizer()?;
        let mut watch = Watch::new(dataset.examples.len());
        let mut step = |p: &Progress| watch.step(p, "agreement, ");
        let architecture = &model.architecture;
        let found = sparing_tasks::agreement(&self.engine, engine, encoder, architecture, dataset, options, &mut step);
        watch.end();
        Ok(Found::Agreement(found.map_err(interrupt::told)?))
    }

    /// Has the other model answer the examples, and compares the scores.
    fn scores(
        &self,
        Other { name, model, labels }: &Other,
        dataset: &Dataset,
        report: &Report,
        options: &Options,
    ) -> Result<Found, Failure> {
        let at = || format!("--against {name}");
        let encoder = model.tokenizer()?;
        let mut watch = Watch::new(dataset.examples.len());
        let mut step = |p: &Progress| watch.step(p, "the other model, ");
        let architecture = &model.architecture;
        let answered = sparing_tasks::evaluate(&self.engine, encoder, architecture, dataset, options, &mut step);
        watch.end();
        let mut answered = answered.map_err(|e| interrupt::told(e).at(at()))?;
        // What is said of the rows has been said.
        for note in answered.notes.iter().filter(|note| !report.notes.contains(note)) {
            console::note(&format!("{}: {note}", at()));
        }
        if let Some(doubt) = guess::worse(&answered, dataset, &architecture.head.labels) {
            console::warning(&format!("{}: {doubt}", at()));
        }
        if dataset.task == Task::Own {
            // F1 is about the same class on both sides, wherever the other has it.
            answered.labels.positive = labels.of(report.labels.positive);
        }
        let (comparisons, whys) = compared(&answered, report, &options.bootstrap);
        whys.iter().for_each(|why| console::note(&format!("{}: {why}", at())));
        let confidence = options.bootstrap.confidence;
        Ok(Found::Scores { comparisons, n: answered.n, complete: answered.complete, confidence })
    }
}

/// A name that is neither a directory nor the Hub's may have been meant for a precision.
fn unopened(name: &str, failure: Failure) -> Failure {
    let known: Vec<_> = PrecisionArg::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
    let known: Vec<_> = known.iter().map(|value| value.get_name()).collect();
    match name.contains(['/', '\\']) || Path::new(name).exists() {
        true => failure.at(format!("--against {name}")),
        false => failure.at(format!("--against {name}: no precision ({}), and no model", known.join(", "))),
    }
}

/// Refuses a model that cannot be asked the same, and says how its labels belong to those here.
fn check(name: &str, model: &Model, other: &Model, dataset: &Dataset) -> Result<Pairing, Failure> {
    let refused = |why: String| Err(Failure::new(format!("--against {name}: {why}")));
    let (own, head) = (&model.architecture.head, &other.architecture.head);
    if std::mem::discriminant(&head.kind) != std::mem::discriminant(&own.kind) {
        return refused("has another kind of head; give a model of the same task".into());
    }
    let labelled = matches!(own.kind, HeadKind::Classify | HeadKind::MultiLabel | HeadKind::TokenClassify);
    if labelled && head.labels.len() != own.labels.len() {
        let counts = format!("has {} labels, where there are {} here", head.labels.len(), own.labels.len());
        return refused(format!("{counts}; give a model of the same task"));
    }
    let labels = Pairing::new(&own.labels, &head.labels);
    let [ours, theirs] = [own, head].map(|head| shown(&head.labels));
    if labelled && labels == Pairing::Strangers {
        console::warning(&format!(
            "--against {name}: its labels ({theirs}) are not those here ({ours}): taken in that order"
        ));
    }
    let gold = |head: &sparing_model::Head| dataset.gold(head.kind, &head.labels, &mut Vec::new());
    let here = gold(own)?;
    let there = gold(head).map_err(|e| Failure::from(e).at(format!("--against {name}")))?;
    // A name in a row means the same to both; a number, or another name, is taken by its place in each.
    let differs = |(here, there): (&Gold, &Gold)| match (&labels, here, there) {
        (Pairing::Names(_), Gold::Class(here), Gold::Class(there)) => labels.of(*here) != *there,
        (Pairing::Names(_), Gold::Labels(here), Gold::Labels(there)) => {
            let mut here: Vec<usize> = here.iter().map(|label| labels.of(*label)).collect();
            here.sort_unstable();
            here != *there
        }
        (Pairing::Names(_), Gold::Tags(here, _), Gold::Tags(there, _)) => {
            here.iter().zip(there).any(|(here, there)| labels.of(*here) != *there)
        }
        _ => false,
    };
    if !here.iter().zip(&there).any(differs) {
        return Ok(labels);
    }
    let what_to_do = match dataset.task {
        Task::Own => format!("say what they mean with --labels 0={}, …", own.labels.first().map_or("", String::as_str)),
        task => format!("give two models with the label names of {}", task.name()),
    };
    let why = format!("has its labels in another order ({theirs}) than here ({ours}), and the rows do not name them");
    refused(format!("{why}; {what_to_do}"))
}

/// The first labels, as many as fit on a line.
fn shown(labels: &[String]) -> String {
    let more = if labels.len() > LISTED { ", …" } else { "" };
    format!("{}{more}", labels[..labels.len().min(LISTED)].join(", "))
}

/// More labels than these are not listed.
const LISTED: usize = 8;

/// A row per metric, and why some of them have no interval, each reason once.
fn compared(other: &Report, here: &Report, bootstrap: &Bootstrap) -> (Vec<Comparison>, Vec<String>) {
    let mut whys: Vec<String> = Vec::new();
    let mut compare = |value: &sparing_tasks::Value| match other.compare(here, value.metric, bootstrap) {
        Ok(found) => found.widened(),
        Err(e) => {
            let why = e.to_string();
            if !whys.contains(&why) {
                whys.push(why);
            }
            Comparison::apart(other, here, value.metric)
        }
    };
    let rows = here.values.iter().map(&mut compare).collect();
    (rows, whys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_tasks::{Labels, Metric, Outcome, Value};

    #[test]
    fn what_cannot_be_compared_keeps_its_row_and_says_why() {
        let report = |answer: fn(usize) -> f64, correlation: f64| {
            let outcomes = (0..20).map(|i| Outcome::Score { gold: i as f64, predicted: answer(i) }).collect();
            let value = |metric, value| Value { metric, value, interval: None };
            Report {
                task: Task::Stsb,
                source: "f".into(),
                values: vec![value(Metric::Pearson, correlation), value(Metric::Spearman, correlation)],
                n: 20,
                complete: true,
                examples: (0..20).collect(),
                outcomes,
                labels: Labels::default(),
                seconds: 1.0,
                encoding_seconds: 0.0,
                tokens: 20,
                bootstrap: Bootstrap::default(),
                notes: Vec::new(),
            }
        };
        let (constant, good) = (report(|_| 2.5, f64::NAN), report(|i| i as f64, 1.0));
        let (rows, whys) = compared(&constant, &good, &Bootstrap::default());
        let shown: Vec<_> = rows.iter().map(|row| (row.first.is_nan(), row.second, row.interval)).collect();
        assert_eq!(shown, [(true, 1.0, None); 2]);
        assert!(whys.len() == 2 && whys.iter().all(|why| why.contains("is not defined")), "{whys:?}");
        assert_eq!(compared(&good, &good, &Bootstrap::default()).1, Vec::<String>::new());
    }

    #[test]
    fn precisions_are_told_from_models() {
        for (text, precision) in [
            ("int8", PrecisionArg::Int8),
            ("F32", PrecisionArg::F32),
            ("fp32", PrecisionArg::F32),
            ("FP32", PrecisionArg::F32),
            ("BFloat16", PrecisionArg::Bf16),
        ] {
            assert!(matches!(rival(text), Ok(Rival::Precision(found)) if found == precision), "{text}");
        }
        assert!(matches!(rival("./int8"), Ok(Rival::Model(name)) if name == "./int8"));
        assert!(matches!(rival("Org/F32"), Ok(Rival::Model(name)) if name == "Org/F32"));
        assert!(rival("").is_err());
    }
}
