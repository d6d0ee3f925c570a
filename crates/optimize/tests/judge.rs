//! Judges ask wherever a model can answer, on a tiny model of the engine's fixtures.

use sparing_engine::{Engine, Options as EngineOptions};
use sparing_model::{Batch, Error, Executor, HeadKind, Model, Outputs, Precision};
use sparing_optimize::{Elsewhere, Judge, without_intervals};
use sparing_tasks::{Dataset, Label, Metric, Options, Select, Task};
use std::cell::Cell;
use std::path::Path;

fn model() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/bert-classify-text");
    let mut model = Model::load(&path).unwrap();
    model.plan.precision = Some(Precision::F32);
    model
}

fn rows() -> Dataset {
    let mut rows = Dataset::builtin("sst2", &Select { limit: Some(60), ..Select::default() }).unwrap();
    // The model has three labels, and knows none of them.
    rows.task = Task::Own;
    for (number, row) in rows.examples.iter_mut().enumerate() {
        row.label = Label::One((number % 3).to_string());
    }
    rows
}

fn judge<'a>(model: &Model, rows: &'a Dataset, elsewhere: Option<&'a Elsewhere<'a>>) -> Judge<'a> {
    let options = without_intervals(&Options { max_tokens: Some(16), ..Options::default() });
    let engine = EngineOptions { threads: 1, ..EngineOptions::default() };
    Judge::new(model, rows, options, engine, elsewhere, &mut || false).unwrap()
}

/// An engine with its answers times a number.
struct Times(Engine, f32);

impl Executor for Times {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let mut outputs = self.0.run(batch)?;
        outputs.sequences.iter_mut().flatten().for_each(|x| *x *= self.1);
        Ok(outputs)
    }
}

#[test]
fn answers_that_stay_but_are_less_sure_are_doubted() {
    let (model, rows) = (model(), rows());
    let asked = Cell::new(0);
    let less_sure = |candidate: &Model| {
        asked.set(asked.get() + 1);
        let engine = Engine::compile(candidate, &EngineOptions::default())?;
        let times = if asked.get() > 1 { 0.5 } else { 1.0 };
        Ok(Some(Box::new(Times(engine, times)) as Box<dyn Executor>))
    };
    let judge = judge(&model, &rows, Some(&less_sure));
    assert_eq!(judge.own().doubt, 0.0, "the baseline does not doubt itself");
    let verdict = judge.verdict(&model, &mut || false).unwrap();
    assert_eq!((verdict.agreement, verdict.lost), (1.0, 0.0));
    assert!(verdict.doubt > 0.0, "{verdict:?}");
}

#[test]
fn a_correlation_loses_nothing_by_another_scale() {
    let (mut model, mut rows) = (model(), rows());
    model.architecture.head.kind = HeadKind::Regress;
    for row in &mut rows.examples {
        row.label = Label::One(row.text.len().to_string());
    }
    let asked = Cell::new(0);
    let other_scale = |candidate: &Model| {
        asked.set(asked.get() + 1);
        let times = [1.0, 3.0, -1.0][asked.get().min(3) - 1];
        let engine = Engine::compile(candidate, &EngineOptions::default())?;
        Ok(Some(Box::new(Times(engine, times)) as Box<dyn Executor>))
    };
    let judge = judge(&model, &rows, Some(&other_scale));
    let own = *judge.own();
    assert_eq!(judge.metric(), Metric::Pearson);
    let verdicts = [(); 2].map(|()| judge.verdict(&model, &mut || false).unwrap());
    let [larger, turned] = verdicts;
    assert!((larger.loss - own.loss).abs() < 1e-6 && larger.divergence > 0.0, "{larger:?} {own:?}");
    // One of two that answer the opposite explains nothing, the other something.
    assert_eq!(own.loss.max(turned.loss), 1.0);
    assert!(own.loss.min(turned.loss) < 1.0, "{turned:?} {own:?}");
}

#[test]
fn candidates_answer_elsewhere_where_they_can() {
    let (model, rows) = (model(), rows());
    let asked = Cell::new(0);
    let contrary = |candidate: &Model| {
        // The baseline is asked first and answers in the engine; so do rounded ones.
        asked.set(asked.get() + 1);
        let can = asked.get() > 1 && candidate.plan.precision == Some(Precision::F32);
        let engine = || Engine::compile(candidate, &EngineOptions::default());
        Ok(can.then(engine).transpose()?.map(|engine| Box::new(Times(engine, -1.0)) as Box<dyn Executor>))
    };
    let judge = judge(&model, &rows, Some(&contrary));
    let verdict = judge.verdict(&model, &mut || false).unwrap();
    assert_eq!(verdict.agreement, 0.0, "the contrary one was asked");
    let mut rounded = self::model();
    rounded.plan.precision = Some(Precision::Bf16);
    assert!(judge.verdict(&rounded, &mut || false).unwrap().agreement > 0.5, "the engine was asked");
    assert_eq!(asked.get(), 3);
}

#[test]
fn an_engine_elsewhere_is_an_engine() {
    let (model, rows) = (model(), rows());
    let here = judge(&model, &rows, None);
    let again = |candidate: &Model| {
        let engine = Engine::compile(candidate, &EngineOptions { threads: 1, ..EngineOptions::default() })?;
        Ok(Some(Box::new(engine) as Box<dyn Executor>))
    };
    let there = judge(&model, &rows, Some(&again));
    assert_eq!(here.own(), there.own());
    assert_eq!(here.verdict(&model, &mut || false).unwrap(), there.verdict(&model, &mut || false).unwrap());
}

#[test]
fn a_candidate_whose_answers_are_no_numbers_is_never_good_enough() {
    let (model, rows) = (model(), rows());
    let asked = Cell::new(0);
    let broken = |candidate: &Model| {
        asked.set(asked.get() + 1);
        let times = if asked.get() > 1 { f32::NAN } else { 1.0 };
        Ok(Some(Box::new(Times(Engine::compile(candidate, &EngineOptions::default())?, times)) as Box<dyn Executor>))
    };
    let judge = judge(&model, &rows, Some(&broken));
    let verdict = judge.verdict(&model, &mut || false).unwrap();
    assert!(!verdict.within(f64::MAX) && verdict.loss.is_infinite(), "{verdict:?}");
    // As it came it cannot be optimised, and it is said where.
    let options = without_intervals(&Options::default());
    let told = Judge::new(&model, &rows, options, EngineOptions::default(), Some(&broken), &mut || false);
    let told = told.map(drop).unwrap_err().to_string();
    assert!(told.contains(" line ") && told.contains("not a number"), "{told}");
}
