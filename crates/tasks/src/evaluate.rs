//! Runs a model over a dataset and measures it.

use crate::answer::{AnswerOptions, AnswerScorer};
use crate::batches::{self, Progress, Unit};
use crate::bootstrap::Bootstrap;
use crate::encode::Encode;
use crate::gold::{plain, what_it_does};
use crate::outcome::{Labels, Metric, Outcome};
use crate::perplexity::LossScorer;
use crate::report::{Report, values};
use crate::scorer::{self, CosineScorer, Scorer, TextScorer, WordScorer};
use crate::{Dataset, Gold, Label, Task};
use sparing_model::{Architecture, Error, Executor, HeadKind};
use std::time::Instant;

/// How to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Longer inputs are cut to this many tokens; `None`: what the model takes.
    pub max_tokens: Option<usize>,
    /// At most this many tokens are run together.
    pub tokens_per_batch: usize,
    /// How intervals are drawn.
    pub bootstrap: Bootstrap,
    /// Language modelling: tokens of a window; `None`: what the model takes, at most 1024.
    pub context: Option<usize>,
    /// Language modelling: how far windows move on; `None`: half the context.
    pub stride: Option<usize>,
    /// How answers are searched for. [`AnswerOptions::may_be_unanswerable`] is set by the data.
    pub answer: AnswerOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_tokens: None,
            tokens_per_batch: 2048,
            bootstrap: Bootstrap::default(),
            context: None,
            stride: None,
            answer: AnswerOptions::default(),
        }
    }
}

impl Options {
    pub(crate) fn limit(&self, architecture: &Architecture) -> Option<usize> {
        match (self.max_tokens, architecture.max_tokens) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Runs the model over the dataset. `progress` is called after every batch; if it returns false, what was
/// done so far is measured and [`Report::complete`] is false.
pub fn evaluate(
    executor: &dyn Executor,
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Report, Error> {
    let head = &architecture.head;
    let mut notes = dataset.notes.clone();
    suits(dataset.task, head.kind)?;
    let gold = dataset.gold(head.kind, &head.labels, &mut notes)?;
    let start = Instant::now();
    let (units, mut scorer) = prepare(encoder, architecture, dataset, options, gold)?;
    let encoding_seconds = start.elapsed().as_secs_f64();
    if units.is_empty() {
        return Err(Error::new(format!("{}: nothing in it to be scored", dataset.source)));
    }
    let spent = batches::run(&[executor], &units, options.tokens_per_batch, progress, |group, outputs| {
        let outputs = &outputs[0];
        for (&unit, output) in group.iter().zip(&outputs.sequences) {
            if let Some(example) = scorer.example(unit) {
                scorer::check_numbers(output, &|| dataset.at(&dataset.examples[example]))?;
            }
            scorer.take(unit, output, outputs.width)?;
        }
        Ok(())
    })?;
    let (examples, outcomes): (Vec<usize>, Vec<Outcome>) = scorer.finish().into_iter().unzip();
    if outcomes.is_empty() {
        return Err(Error::new("cancelled before the first example was done"));
    }
    let labels = Labels { count: head.labels.len(), positive: positive(dataset.task, &head.labels) };
    let metrics = metrics(dataset, head.kind, &head.labels);
    Ok(Report {
        task: dataset.task,
        source: dataset.source.clone(),
        values: values(&metrics, &outcomes, labels, &options.bootstrap),
        n: outcomes.len(),
        complete: spent.complete,
        examples,
        outcomes,
        labels,
        seconds: spent.seconds,
        encoding_seconds,
        tokens: spent.tokens,
        bootstrap: options.bootstrap,
        notes,
    })
}

/// Runs an executor over a dataset's inputs and looks at nothing: for executors that watch themselves. Labels are not
/// needed. False if `progress` asked to stop.
pub fn visit(
    executor: &dyn Executor,
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<bool, Error> {
    let units = units(encoder, architecture, dataset, options)?;
    let spent = batches::run(&[executor], &units, options.tokens_per_batch, progress, |_, _| Ok(()))?;
    Ok(spent.complete)
}

/// Whether a model with this head can do the task.
pub(crate) fn suits(task: Task, kind: HeadKind) -> Result<(), Error> {
    let fits = match task {
        Task::Squad | Task::SquadV2 => kind == HeadKind::Answer,
        Task::Language => matches!(kind, HeadKind::CausalLm | HeadKind::MaskedLm),
        Task::Stsb => matches!(kind, HeadKind::Regress | HeadKind::Embed { .. }),
        Task::Own => kind != HeadKind::Hidden,
        _ => kind == HeadKind::Classify,
    };
    if fits {
        return Ok(());
    }
    Err(Error::new(format!("the task {} cannot be done with a model that {}", task.name(), what_it_does(kind))))
}

/// The inputs to run, and who scores them.
fn prepare(
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    gold: Vec<Gold>,
) -> Result<(Vec<Unit>, Box<dyn Scorer>), Error> {
    let head = &architecture.head;
    let limit = options.limit(architecture);
    match head.kind {
        kind if scorer::one_row(kind) => {
            let units = scorer::texts(dataset, encoder, limit)?;
            let scorer = TextScorer { outcomes: vec![None; gold.len()], gold, labels: head.labels.len() };
            Ok((units, Box::new(scorer)))
        }
        HeadKind::Embed { .. } => {
            let units = scorer::separate_texts(dataset, encoder, limit)?;
            let scorer = CosineScorer { gold, embeddings: vec![None; units.len()] };
            Ok((units, Box::new(scorer)))
        }
        HeadKind::TokenClassify => {
            let (units, scorer) = WordScorer::prepare(dataset, encoder, limit, &gold, &head.labels)?;
            Ok((units, Box::new(scorer)))
        }
        _ => {
            let (units, scorer) = windowed(encoder, architecture, dataset, options, Some(&gold))?;
            Ok((units, scorer))
        }
    }
}

/// Heads that read a text in windows.
fn windowed(
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    gold: Option<&[Gold]>,
) -> Result<(Vec<Unit>, Box<dyn Scorer>), Error> {
    let limit = options.limit(architecture);
    let context = options.context.unwrap_or(1024).min(limit.unwrap_or(1024));
    match architecture.head.kind {
        HeadKind::Answer => {
            let answer = answer_options(architecture, dataset, options);
            let (units, scorer) = AnswerScorer::prepare(dataset, encoder, gold, &answer)?;
            Ok((units, Box::new(scorer)))
        }
        HeadKind::CausalLm => {
            let stride = options.stride.unwrap_or((context / 2).max(1));
            let (units, scorer) = LossScorer::causal(dataset, encoder, context, stride)?;
            Ok((units, Box::new(scorer)))
        }
        HeadKind::MaskedLm => {
            let seed = options.bootstrap.seed;
            let (units, scorer) = LossScorer::masked(dataset, encoder, context, seed)?;
            Ok((units, Box::new(scorer)))
        }
        kind => Err(Error::new(format!("a model that {} has nothing to be scored by", what_it_does(kind)))),
    }
}

/// How answers are searched for in this dataset.
pub(crate) fn answer_options(architecture: &Architecture, dataset: &Dataset, options: &Options) -> AnswerOptions {
    let mut answer = options.answer;
    answer.window = answer.window.min(options.limit(architecture).unwrap_or(usize::MAX));
    answer.may_be_unanswerable |= may_be_unanswerable(dataset);
    answer
}

/// The inputs of a dataset without regard to labels.
pub(crate) fn units(
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
) -> Result<Vec<Unit>, Error> {
    match architecture.head.kind {
        HeadKind::Answer | HeadKind::CausalLm | HeadKind::MaskedLm => {
            Ok(windowed(encoder, architecture, dataset, options, None)?.0)
        }
        _ => scorer::texts(dataset, encoder, options.limit(architecture)),
    }
}

pub(crate) fn may_be_unanswerable(dataset: &Dataset) -> bool {
    let none = |label: &Label| matches!(label, Label::Answers(answers) if answers.is_empty());
    dataset.task == Task::SquadV2 || dataset.examples.iter().any(|e| none(&e.label))
}

/// The label that F1 is about: the task's second, wherever the model has it.
pub(crate) fn positive(task: Task, labels: &[String]) -> usize {
    let name = task.labels().get(1);
    let same = |label: &String| name.is_some_and(|name| plain(name) == plain(label));
    labels.iter().position(same).unwrap_or(1)
}

/// What to measure, the headline first.
pub(crate) fn metrics(dataset: &Dataset, kind: HeadKind, labels: &[String]) -> Vec<Metric> {
    let fixed = dataset.task.metrics();
    if !fixed.is_empty() {
        return fixed.to_vec();
    }
    match kind {
        HeadKind::Classify if labels.len() == 2 => {
            vec![Metric::Accuracy, Metric::F1, Metric::F1Macro, Metric::Matthews]
        }
        HeadKind::MultiLabel => vec![Metric::F1Micro, Metric::F1Macro, Metric::Accuracy],
        HeadKind::Regress => vec![Metric::Pearson, Metric::Spearman, Metric::MeanSquaredError],
        HeadKind::Embed { .. } => vec![Metric::Spearman, Metric::Pearson],
        HeadKind::TokenClassify if labels.iter().any(|l| l.starts_with("B-") || l.starts_with("I-")) => {
            vec![Metric::EntityF1, Metric::Accuracy]
        }
        HeadKind::TokenClassify => vec![Metric::Accuracy],
        HeadKind::Answer if may_be_unanswerable(dataset) => Task::SquadV2.metrics().to_vec(),
        HeadKind::Answer => Task::Squad.metrics().to_vec(),
        HeadKind::CausalLm => vec![Metric::Perplexity, Metric::WordPerplexity, Metric::BitsPerByte, Metric::Accuracy],
        HeadKind::MaskedLm => vec![Metric::Perplexity, Metric::Accuracy],
        _ => vec![Metric::Accuracy, Metric::F1Macro, Metric::Matthews],
    }
}
