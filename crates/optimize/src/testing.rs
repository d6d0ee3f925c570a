//! A search on a tiny model, for tests.

use crate::search::{Search, Settings};
use crate::{Costs, Economy, Journal, Judge, Prices, Stopwatch, Strategy, Workshop, without_intervals};
use sparing_engine::{Engine, Options};
use sparing_model::{Model, Precision, Sequence};
use sparing_report::Focus;
use sparing_tasks::{Dataset, Label, Select, Task};
use std::path::Path;

/// Two layers of two heads, and texts of up to 40 tokens.
pub(crate) fn model() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/bert-classify-text");
    let mut model = Model::load(&path).unwrap();
    model.plan.precision = Some(Precision::F32);
    model
}

pub(crate) fn settings(strategy: Strategy, focus: Focus, menu: &[Economy]) -> Settings {
    Settings {
        focus,
        strategy,
        menu: menu.to_vec(),
        budget: 0.9,
        group: 16,
        bottom_first: false,
        thresholds: Default::default(),
        most_rows: false,
        seed: 0,
        trials: 99,
        last_steps: true,
    }
}

/// Begins a search whose requests are texts of so many tokens.
pub(crate) fn searching<T>(
    model: &Model,
    settings: &Settings,
    tokens: u32,
    ask: impl FnOnce(&mut Search<'_>) -> T,
) -> T {
    searching_with(model, settings, tokens, &[], ask)
}

/// The same on a machine where precisions are so many times faster.
pub(crate) fn searching_with<T>(
    model: &Model,
    settings: &Settings,
    tokens: u32,
    faster: &[(Precision, f64)],
    ask: impl FnOnce(&mut Search<'_>) -> T,
) -> T {
    let mut rows = Dataset::builtin("sst2", &Select { limit: Some(60), ..Select::default() }).unwrap();
    // The model has three labels, and knows none of them.
    rows.task = Task::Own;
    for (number, row) in rows.examples.iter_mut().enumerate() {
        row.label = Label::One((number % 3).to_string());
    }
    let engine = Options { threads: 1, ..Options::default() };
    let limit = sparing_tasks::Options { max_tokens: Some(40), ..sparing_tasks::Options::default() };
    let judge = Judge::new(model, &rows, without_intervals(&limit), engine.clone(), None, &mut || false).unwrap();
    let shop = Workshop::new(model).unwrap();
    let text = Sequence { ids: (1..=tokens).collect(), types: vec![0; tokens as usize] };
    let watch = Stopwatch::new(vec![text; 4], 1, 4);
    let baseline = Engine::compile(model, &engine).unwrap();
    let mut journal = Journal::default();
    let costs = Costs::measure(model, &shop.anatomy, &watch, &engine, &baseline, &[], &mut journal).unwrap();
    let costs = costs.with_precisions(faster);
    ask(&mut Search {
        shop: &shop,
        judge: &judge,
        glance: None,
        costs: &costs,
        watch: &watch,
        prices: Prices::default(),
        settings,
        journal,
        tried: Vec::new(),
        looks: 0,
        given_up: Vec::new(),
        tell: &mut |_| {},
        stop: &mut || false,
        tune: None,
    })
}
