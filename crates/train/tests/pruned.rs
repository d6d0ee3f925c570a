//! Pruned models in Burn: what the engine computes, and a directory that can be trained on and saved again.

#[path = "common/fixtures.rs"]
mod fixtures;

use burn::tensor::Device;
use fixtures::{distance, fixture, fixtures};
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Edits, Executor, FfnEdit, LayerEdit, Model, Precision, Wanted};
use sparing_train::{BurnExecutor, Mode, Network, PaddedBatch, Parameters, Prepared};

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

#[test]
fn gradients_are_those_of_the_reference() {
    let device = Device::flex().autodiff();
    for (name, model, golden) in fixtures().into_iter().filter(|(name, ..)| name.ends_with("-classify")) {
        for shift in 0..3 {
            let pruned = model.pruned(&edits(&model, shift)).unwrap();
            let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
            let batch = PaddedBatch::new(&golden.sequences, longest, &device);
            let gradients = |network: Network| {
                let parameters = Parameters::from_weights(&pruned.weights, &device).unwrap();
                let output = network.forward(&parameters, &batch, Mode::default()).unwrap().output;
                let mut grads = output.slice([0..golden.sequences.len(), 0..1, 0..1]).tanh().sum().backward();
                let of = |(name, p): (&str, &sparing_train::Parameter)| {
                    let values = p.value.grad_remove(&mut grads)?.into_data().try_to_vec::<f32>().unwrap();
                    Some((name.to_string(), values))
                };
                parameters.iter().filter_map(of).collect::<Vec<_>>()
            };
            let fast = gradients(Network::new(&pruned.architecture));
            let slow = gradients(Network::reference(&pruned.architecture));
            assert!(fast.iter().map(|(name, _)| name).eq(slow.iter().map(|(name, _)| name)), "{name}");
            let constants = pruned.architecture.layers.iter().flat_map(|layer| &layer.ffns).map(|ffn| &ffn.down);
            for bias in constants.filter_map(|down| down.stored_bias()) {
                assert!(
                    fast.iter().any(|(name, g)| *name == bias.name && g.iter().any(|g| *g != 0.0)),
                    "{}",
                    bias.name
                );
            }
            // Beside the largest: those of key biases are zero but for rounding.
            let numbers = |all: Vec<(String, Vec<f32>)>| all.into_iter().map(|(_, g)| g).collect::<Vec<_>>();
            let far = distance(&numbers(fast), &numbers(slow));
            assert!(far <= 1e-4, "{name} {:?}: {far:e}", pruned.plan.elements);
        }
    }
}
