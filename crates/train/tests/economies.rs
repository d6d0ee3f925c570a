//! Economies of attention in Burn: what the engine computes with the same plan.

#[path = "common/fixtures.rs"]
mod fixtures;

use burn::tensor::Device;
use fixtures::{Golden, calibrated, distance, fixture, fixtures};
use sparing_engine::{Engine, Options};
use sparing_model::{AttentionPlan, Batch, Calibration, Executor, Model, Precision, Wanted};
use sparing_train::{BurnExecutor, Capture, Mode, Network, PaddedBatch, Parameters};
use std::sync::Arc;

/// Every fixture that can do what the plan says, with its layers twice, so that more of them choose.
fn able(plan: &AttentionPlan) -> Vec<(String, Model, Golden)> {
    let deeper = |(name, mut model, golden): (String, Model, Golden)| {
        let layers = model.architecture.layers.clone();
        model.architecture.layers.extend(layers);
        (name, model, golden)
    };
    let found = fixtures().into_iter().map(deeper);
    found.filter(|(_, model, _)| plan.check_for(&model.architecture).is_ok()).collect()
}

#[test]
fn tokens_and_keys_are_chosen_as_in_the_engine() {
    for text in [
        "exact,drop=0.9",
        "exact,skip=1",
        "exact,drop=0.8,skip=1.1",
        "exact,drop=0.9,drop0=0,skip2=1",
        "exact,keep=0.7",
        "exact,keep=0.9,keep1=0.6,keep2=3",
        "exact,keep=0.8,drop=0.7,skip=0.9",
        "exact,merge=0.3",
        "exact,merge=0.5,merge1=0.1,skip=0.9",
        "exact,drop1=0.7,keep=0.9,merge=0.25",
        "exact,merge0=0.3,keys=3,ends,keys0=exact",
        "sign:3",
        "norm:3,ends",
        "value:3,threshold=0.5",
        "grouped:1",
        "sign:4,ends,keys0=exact,keys1=2",
        "exact,drop=0.9,drop1=0,drop2=0,keys=3,ends,keys0=exact",
    ] {
        let plan: AttentionPlan = text.parse().unwrap();
        let (mut tried, mut economised) = (0, 0);
        for (name, model, golden) in able(&plan) {
            let options =
                Options { precision: Some(Precision::F32), attention: Some(plan.clone()), ..Options::default() };
            let engine = Engine::compile(&model, &options).unwrap();
            let parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
            let burn = BurnExecutor::new(&model.architecture, &parameters).with_attention(&plan, None).unwrap();
            let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
            let (got, want) = (burn.run(&batch).unwrap(), engine.run(&batch).unwrap());
            let far = distance(&got.sequences, &want.sequences);
            assert!(far <= 1e-4, "{name} {text}: {far:e}");
            let hidden = Batch { wanted: Wanted::Hidden, ..batch };
            match (burn.run(&hidden), engine.run(&hidden)) {
                (Ok(got), Ok(want)) => assert!(distance(&got.sequences, &want.sequences) <= 1e-4, "{name} {text}"),
                (Err(got), Err(want)) => assert_eq!(got.to_string(), want.to_string()),
                _ => panic!("{name} {text}: only one of them refuses hidden states"),
            }
            tried += 1;
            economised += usize::from(engine.spending().skipped > 0);
        }
        assert!(tried > 3 && economised > 3, "{text}: {economised} of {tried} fixtures saved anything");
    }
}

/// Both executors on a model with a plan.
fn both(model: &Model, plan: &AttentionPlan, calibration: Arc<Calibration>) -> (BurnExecutor, Engine) {
    let (attention, precision) = (Some(plan.clone()), Some(Precision::F32));
    let options = Options { precision, attention, calibration: Some(calibration.clone()), ..Options::default() };
    let engine = Engine::compile(model, &options).unwrap();
    let parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
    let burn = BurnExecutor::new(&model.architecture, &parameters);
    (burn.with_attention(plan, Some(calibration)).unwrap(), engine)
}

#[test]
fn values_are_sampled_as_in_the_engine() {
    // A token alone gets all attention: with alpha 1 its budget would be 1 or 2, as rounding has it.
    let plans = [
        "mca:0.97,strict",
        "mca:0.8,seed=5",
        "mca:0.97,strict,pooling=mean,seed=3,layer0=exact",
        "mca:0.97,strict,pooling=median,padded=16",
        "calibrated:0.97,strict,seed=2",
        "systematic:0.97,strict",
        "graded:0.97,strict",
        "graded:0.9",
        "mean:0.97",
        "mca:0.97,strict,drop=0.8,skip=1",
        "graded:0.97,strict,skip=1",
    ];
    let mut failed = Vec::new();
    for text in plans {
        let plan: AttentionPlan = text.parse().unwrap();
        let (mut tried, mut economised) = (0, 0);
        for (name, model, golden) in able(&plan) {
            let (burn, engine) = both(&model, &plan, calibrated(&model, &golden));
            let rows = golden.sequences.iter().map(|s| vec![s.ids.len() - 1, 0]).collect();
            for wanted in [Wanted::Head, Wanted::Hidden, Wanted::Rows(rows)] {
                let batch = Batch { sequences: golden.sequences.clone(), wanted };
                if batch.check(&model.architecture).is_err() || plan.check_wanted(&batch.wanted).is_err() {
                    continue;
                }
                let (got, want) = (burn.run(&batch).unwrap(), engine.run(&batch).unwrap());
                let far = distance(&got.sequences, &want.sequences);
                if far > 2e-4 {
                    failed.push(format!("{name} {text} {:?}: {far:e}", batch.wanted));
                }
            }
            tried += 1;
            let spent = engine.spending();
            economised += usize::from(spent.values < spent.values_exact);
        }
        assert!(tried > 5 && economised > 5, "{text}: {economised} of {tried} fixtures saved anything");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn values_that_are_precise_enough_are_exact() {
    for sampler in ["mca", "calibrated", "systematic", "graded", "mean"] {
        let plan: AttentionPlan = format!("{sampler}:1e-20,strict").parse().unwrap();
        for (name, model, golden) in able(&plan) {
            let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
            let (burn, _) = both(&model, &plan, calibrated(&model, &golden));
            let exact = both(&model, &AttentionPlan::default(), calibrated(&model, &golden)).0;
            let far = distance(&burn.run(&batch).unwrap().sequences, &exact.run(&batch).unwrap().sequences);
            assert!(far <= 1e-4, "{name} {sampler}: {far:e}");
        }
    }
}

#[test]
fn what_cannot_be_trained_with_is_said() {
    let (model, golden) = fixture("bert-classify");
    let parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
    for (text, part) in [("int8:0.5", "has no gradient"), ("graded:0.5", "sparing calibrate")] {
        let burn = BurnExecutor::new(&model.architecture, &parameters);
        let burn = burn.with_attention(&text.parse().unwrap(), None).unwrap();
        let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
        let message = burn.run(&batch).unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{text}: {message}");
    }
}

#[test]
fn cuts_that_nobody_is_below_change_nothing() {
    let plan: AttentionPlan = "exact,drop=1e-30,keep=1000,skip=1e-30".parse().unwrap();
    for (name, model, golden) in able(&plan) {
        let parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
        let exact = BurnExecutor::new(&model.architecture, &parameters);
        let batch = Batch { sequences: golden.sequences, wanted: Wanted::Head };
        let want = exact.run(&batch).unwrap();
        let got = exact.with_attention(&plan, None).unwrap().run(&batch).unwrap();
        assert!(distance(&got.sequences, &want.sequences) <= 1e-5, "{name}");
    }
}

#[test]
fn who_left_is_seen_by_nobody() {
    let plan: AttentionPlan = "exact,drop=1,drop1=0,drop2=0".parse().unwrap();
    let (_, model, golden) = able(&plan).into_iter().find(|(name, ..)| name == "bert-classify").unwrap();
    let device = Device::flex();
    let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
    let batch = PaddedBatch::new(&golden.sequences, longest + 3, &device);
    let network = Network::new(&model.architecture).with_attention(&plan, None).unwrap();
    let capture = Capture { hidden: true, attention: true };
    let forward = network.forward(&parameters, &batch, Mode { capture, ..Mode::default() }).unwrap();
    let layers = model.architecture.layers.len();
    assert_eq!(
        (forward.present.len(), forward.hidden.len(), forward.attention.len()),
        (layers + 1, layers + 1, layers)
    );
    let there = |layer: usize| forward.present[layer].clone().into_data().try_to_vec::<bool>().unwrap();
    let (all, left) = (there(0), there(1));
    assert_eq!(all, batch.mask.clone().into_data().try_to_vec::<bool>().unwrap());
    assert!(left.iter().zip(&all).all(|(now, before)| *before || !*now));
    let count = |of: &[bool]| of.iter().filter(|there| **there).count();
    assert!(count(&left) < count(&all), "nobody left");
    for layer in 1..layers {
        assert_eq!(there(layer + 1), left);
        let attention = forward.attention[layer].clone().unwrap();
        let [count, heads, length, _] = attention.dims();
        let values = attention.into_data().try_to_vec::<f32>().unwrap();
        for (at, seen) in values.iter().enumerate() {
            let (number, key) = (at / (heads * length * length), at % length);
            assert!(number < count && (left[number * length + key] || *seen == 0.0), "layer {layer}: {key} is seen");
        }
    }
}
