//! Pruned models in Burn: what the engine computes, and a directory that can be trained on and saved again.

#[path = "common/fixtures.rs"]
mod fixtures;

use burn::tensor::Device;
use fixtures::{distance, fixture, fixtures};
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Edits, Executor, FfnEdit, LayerEdit, Model, Precision, Wanted};
use sparing_train::{BurnExecutor, Parameters, Prepared};

/// Layer by layer something else is removed; the same from layers that share weights.
fn edits(model: &Model, shift: usize) -> Edits {
    let layers = model.architecture.layers.iter().enumerate();
    let shared = model.architecture.family == sparing_model::Family::Albert;
    let edit = |(number, layer): (usize, &sparing_model::Layer)| {
        let heads = layer.attention.numbers();
        let turn = if shared { shift } else { number + shift };
        let heads = [vec![], heads[1..].to_vec(), heads.clone(), heads[..1].to_vec()][turn % 4].clone();
        let keep = |all: usize| [(1..all).step_by(2).collect(), vec![], (0..all).collect::<Vec<_>>()][turn % 3].clone();
        let ffns = layer
            .ffns
            .iter()
            .enumerate()
            .map(|(block, ffn)| (block, FfnEdit { neurons: Some(keep(ffn.up.outputs)), ..FfnEdit::default() }));
        (number, LayerEdit { heads: Some(heads), ffns: ffns.collect(), ..LayerEdit::default() })
    };
    Edits { layers: layers.map(edit).collect() }
}

#[test]
fn every_fixture_is_pruned_as_in_the_engine() {
    for (number, (name, model, golden)) in fixtures().into_iter().enumerate() {
        let pruned = model.pruned(&edits(&model, number)).unwrap();
        let options = Options { threads: 2, precision: Some(Precision::F32), ..Options::default() };
        let engine = Engine::compile(&pruned, &options).unwrap();
        let parameters = Parameters::from_weights(&pruned.weights, &Device::flex()).unwrap();
        let burn = BurnExecutor::new(&pruned.architecture, &parameters);
        for wanted in [Wanted::Head, Wanted::Hidden] {
            let batch = Batch { sequences: golden.sequences.clone(), wanted };
            let far = distance(&burn.run(&batch).unwrap().sequences, &engine.run(&batch).unwrap().sequences);
            assert!(far <= 1e-4, "{name}: {far:e} {:?}", pruned.plan.elements);
        }
    }
}

#[test]
fn what_is_prepared_for_training_is_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    for (shift, name) in ["bert-classify", "mpnet-classify", "gpt2-classify", "xlnet-classify", "mobilebert-classify"]
        .into_iter()
        .enumerate()
    {
        let (model, golden) = fixture(name);
        let pruned = model.pruned(&edits(&model, shift)).unwrap();
        let wanted = sparing_train::Wanted::Classify(pruned.architecture.head.labels.clone());
        let prepared = Prepared::new(&pruned, &wanted).unwrap();
        let (parameters, fresh) = prepared.parameters(&pruned.weights, 0, &Device::flex()).unwrap();
        assert_eq!(fresh, Vec::<String>::new(), "{name}");
        let plan = serde_json::to_vec(&pruned.plan).unwrap();
        let target = folder.path().join(name);
        prepared.write(&target, &parameters, &[("sparing.json", &plan)], None).unwrap();
        let saved = Model::load(&target).unwrap();
        let engine = |model: &Model| Engine::compile(model, &Options { threads: 1, ..Options::default() }).unwrap();
        let batch = Batch { sequences: golden.sequences, ..Batch::default() };
        assert_eq!(engine(&saved).run(&batch).unwrap(), engine(&pruned).run(&batch).unwrap(), "{name}");
    }
}
