//! Recipes become models, on a tiny model of the engine's fixtures.

use sparing_engine::{Calibrator, Engine, Options};
use sparing_model::{AttentionPlan, Batch, Bits, Executor, LayerBits, Model, Precision, Sequence};
use sparing_optimize::{Kind, Left, Prices, Recipe, Running, Stopwatch, Workshop};
use sparing_quantize::{calibrate, targets};
use sparing_tasks::{Dataset, Options as Evaluation, Select};
use std::path::Path;

fn model() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/bert-classify-text");
    Model::load(&path).unwrap()
}

fn texts() -> Dataset {
    Dataset::builtin("sst2", &Select { limit: Some(120), ..Select::default() }).unwrap()
}

fn sequences(model: &Model) -> Batch {
    let tokenizer = model.tokenizer().unwrap();
    let limit = model.architecture.longest_input();
    let encode = |e: &sparing_tasks::Example| tokenizer.encode(&e.text, None, limit).unwrap().sequence;
    Batch { sequences: texts().examples.iter().take(40).map(encode).collect(), ..Batch::default() }
}

fn exact() -> Options {
    Options { precision: Some(Precision::F32), threads: 1, ..Options::default() }
}

fn answers(model: &Model, batch: &Batch) -> Vec<f32> {
    Engine::compile(model, &exact()).unwrap().run(batch).unwrap().sequences.concat()
}

/// With every site prepared for half of its units.
fn prepared(model: &Model) -> Workshop<'_> {
    let engine = Engine::compile(model, &exact()).unwrap();
    let options = Evaluation::default();
    let statistics = calibrate(&engine, model, &texts(), &options, true, &mut |_| true).unwrap().unwrap();
    let mut shop = Workshop::new(model).unwrap();
    assert!(shop.prepare(statistics, &|site| vec![site.units.len() / 2], &|_, _| true).unwrap());
    shop
}

fn halves(shop: &Workshop<'_>) -> Recipe {
    let sites = shop.anatomy.sites.iter().enumerate();
    Recipe { left: sites.map(|(i, site)| (i, Left::Best(site.units.len() / 2))).collect(), ..Recipe::default() }
}

#[test]
fn layers_are_stored_in_their_own_bits() {
    let model = model();
    let shop = prepared(&model);
    let mut recipe = Recipe { bits: Some(Bits::all(6)), ..halves(&shop) };
    recipe.set_bits(sparing_quantize::Part::Ffn, Some(1), 3);
    assert_eq!(recipe.layer_bits[&1], LayerBits { attention: None, ffn: Some(3) });
    let made = shop.make(&recipe).unwrap();
    for target in targets(&made.architecture) {
        let bits = made.weights.tensor(&target.name).unwrap().quantized().unwrap().bits();
        let word = target.name == made.architecture.embeddings.word;
        let want = match (target.part, target.layer) {
            (sparing_quantize::Part::Ffn, Some(1)) => 3,
            (sparing_quantize::Part::Embeddings, _) if !word => 8,
            _ => 6,
        };
        assert_eq!(bits, want, "{}", target.name);
    }
    assert_eq!(made.plan.quantization.as_ref().unwrap().layers, recipe.layer_bits);
    // What was rounded before is what a new workshop rounds.
    let batch = sequences(&model);
    let first = answers(&made, &batch);
    assert_eq!(answers(&shop.make(&recipe).unwrap(), &batch), first);
    assert_eq!(answers(&prepared(&model).make(&recipe).unwrap(), &batch), first);
}

#[test]
fn rounding_errors_of_narrower_blocks_are_made_up_for() {
    let model = model();
    let (knowing, batch) = (prepared(&model), sequences(&model));
    let recipe = halves(&knowing);
    let want = answers(&knowing.shape(&recipe).unwrap(), &batch);
    let far = |recipe: &Recipe, shop: &Workshop<'_>| -> f64 {
        let found = answers(&shop.make(recipe).unwrap(), &batch);
        found.iter().zip(&want).map(|(a, b)| f64::from(a - b).powi(2)).sum()
    };
    // The maps behind what was cut, and nothing else; against the same numbers, rounded without knowing what is read.
    let bits = Bits { attention: Some(3), ffn: Some(3), ..Bits::default() };
    let coarse = Recipe { bits: Some(bits), ..recipe.clone() };
    let pruned = knowing.shape(&recipe).unwrap();
    let blind = Workshop::new(&pruned).unwrap();
    let plain = Recipe { bits: Some(bits), ..Recipe::default() };
    let (with, without) = (far(&coarse, &knowing), far(&plain, &blind));
    assert!(with < 0.8 * without, "{with} {without}");
}

#[test]
fn a_calibration_goes_with_the_heads_that_are_left() {
    let model = model();
    let mut shop = prepared(&model);
    let batch = sequences(&model);
    let mut calibrator = Calibrator::new(&model, 1).unwrap();
    calibrator.add(&batch.sequences).unwrap();
    let whole = calibrator.finish().unwrap();
    shop.calibrate(whole.clone());
    let attention: AttentionPlan = "graded:0.8,strict".parse().unwrap();
    let site = shop.anatomy.of_kind(Kind::Attention).next().unwrap();
    let recipe = Recipe {
        left: [(site, Left::Best(shop.anatomy.sites[site].units.len() / 2))].into(),
        attention: Some(attention),
        ..Recipe::default()
    };
    let made = shop.make(&recipe).unwrap();
    let own = made.calibration().unwrap().unwrap();
    let layer = shop.anatomy.sites[site].layers[0];
    assert_eq!(2 * own.layers[layer].eigenvalues.len(), whole.layers[layer].eigenvalues.len());
    let other = layer + 1;
    assert_eq!(own.layers[other], whole.layers[other]);
    // It is saved, and what is read back answers alike.
    let folder = tempfile::tempdir().unwrap();
    made.save(&folder.path().join("m")).unwrap();
    let saved = Model::load(&folder.path().join("m")).unwrap();
    assert_eq!(saved.calibration().unwrap().unwrap(), own);
    assert_eq!(answers(&saved, &batch), answers(&made, &batch));
    assert_ne!(answers(&saved, &batch), answers(&shop.make(&Recipe { attention: None, ..recipe }).unwrap(), &batch));
}

#[test]
fn one_economy_less_is_the_same_without_it() {
    let recipe = Recipe {
        attention: Some("graded:0.4,drop=0,drop1=0.5".parse().unwrap()),
        precision: Some(Precision::Int8),
        ..Recipe::default()
    };
    let without = Running::Tokens.without(&recipe, false).unwrap();
    assert_eq!(without.attention, Some("graded:0.4".parse().unwrap()));
    assert_eq!(without.precision, recipe.precision);
    assert!(Running::Tokens.without(&without, false).is_none() && Running::Keys.without(&recipe, false).is_none());
    assert_eq!(Running::Values.without(&without, false).unwrap(), Recipe { attention: None, ..recipe.clone() });
    // Tokens that leave and tokens that are merged are given up one by one.
    let both = Recipe { attention: Some("exact,drop=0,drop1=0.5,merge=0.1".parse().unwrap()), ..recipe.clone() };
    let attention = |of: Running, from: &Recipe| of.without(from, false).map(|without| without.attention);
    assert_eq!(attention(Running::Tokens, &both), Some(Some("exact,merge=0.1".parse().unwrap())));
    assert_eq!(attention(Running::Merge, &both), Some(Some("exact,drop=0,drop1=0.5".parse().unwrap())));
    let merged = Running::Tokens.without(&both, false).unwrap();
    assert_eq!(attention(Running::Tokens, &merged), None);
    assert_eq!((attention(Running::Merge, &merged), attention(Running::Merge, &recipe)), (Some(None), None));
    // Where the model came with some, exact has to be said.
    let said = Running::Values.without(&without, true).unwrap();
    assert!(said.attention.is_some_and(|attention| attention.is_exact()));
}

#[test]
fn what_is_not_on_the_menu_never_pays() {
    let model = model();
    let shop = prepared(&model);
    let short = |s: Sequence| Sequence { ids: s.ids[..8].to_vec(), types: s.types.into_iter().take(8).collect() };
    let watch = Stopwatch::new(sequences(&model).sequences.into_iter().map(short).collect(), 1, 4);
    let prices = Prices::measure(&shop, &Recipe::default(), &watch, &exact(), &[]).unwrap();
    assert!(Running::ALL.iter().all(|what| !prices.pays(*what)));
    // Without a calibration values have no budgets, and these texts have no more keys than are kept.
    let some = [Running::Values, Running::Keys];
    let prices = Prices::measure(&shop, &Recipe::default(), &watch, &exact(), &some).unwrap();
    assert!(Running::ALL.iter().all(|what| !prices.pays(*what)));
}

#[test]
fn what_comes_rounded_stays_so_and_its_plan_says_what_is_stored() {
    let model = model();
    let few = Recipe { bits: Some(Bits::all(3)), ..Recipe::default() };
    let came = prepared(&model).make(&few).unwrap();
    let shop = prepared(&came);
    assert!(shop.came_rounded() && !prepared(&model).came_rounded());
    // Eight bits were asked for, and three are there.
    let made = shop.make(&Recipe { bits: Some(Bits::all(8)), ..Recipe::default() }).unwrap();
    assert_eq!(made.weights.size_in_bytes(), came.weights.size_in_bytes());
    assert_eq!(made.plan.quantization.unwrap().bits, Bits::all(3));
}
