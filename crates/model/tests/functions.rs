//! Models whose functions are replaced: a plan that is missing is noticed, and networks of removed blocks are gone.

mod common;

use common::*;
use serde_json::{Value, json};
use sparing_model::{Edits, Functions, LayerEdit, Model, OwnedTensor, Relu, SoftmaxNetwork};
use std::collections::BTreeMap;

/// A BERT of two layers.
fn bert() -> (Value, Model) {
    let mut config = bert_config();
    config["num_hidden_layers"] = json!(2);
    let mut tensors = bert_tensors("bert.");
    let second = tensors.iter().filter(|tensor| tensor.name.contains("layer.0."));
    let second =
        second.map(|tensor| OwnedTensor { name: tensor.name.replace("layer.0.", "layer.1."), ..tensor.clone() });
    tensors.extend(second.collect::<Vec<_>>());
    let model = load(files(&config, &tensors)).unwrap();
    (config, model)
}

fn replaced(functions: &Functions) -> (Value, Model) {
    let (config, model) = bert();
    let fill = &mut |_: &str, shape: &[usize]| vec![1.0; shape.iter().product()];
    (config, model.with_functions(functions, fill).unwrap())
}

/// The model's directory, with another plan in the place of its own.
fn directory(config: &Value, model: &Model, plan: Option<Value>) -> BTreeMap<String, Vec<u8>> {
    let tensors: Vec<OwnedTensor> = model.weights.names().map(|name| model.weights.owned(name).unwrap()).collect();
    let mut files = files(config, &tensors);
    files.extend(plan.map(|plan| ("sparing.json".to_string(), plan.to_string().into_bytes())));
    files
}

fn all(shared: bool, keys: Option<usize>) -> Functions {
    Functions::all(SoftmaxNetwork { tokens: 5, shared, keys })
}

#[test]
fn replaced_functions_without_their_plan_are_refused() {
    let norms = Functions { power_norm: true, ..Functions::default() };
    let softmax = Functions { softmax: all(false, None).softmax, ..Functions::default() };
    let (phi, own, shared) =
        ("LayerNorm.running_phi\"", "attention.self.softmax.hidden.weight\"", "\"softmax.hidden.weight\"");
    for (functions, plan, named) in [
        (all(false, None), None, phi),
        (all(false, None), Some(json!({})), phi),
        (all(false, None), Some(json!({"functions": {"relu": "all", "power_norm": true, "clip": true}})), own),
        (all(true, None), Some(json!({"functions": {"power_norm": true}})), shared),
        (all(false, Some(3)), Some(json!({"functions": {"power_norm": true}})), own),
        (norms.clone(), Some(json!({"functions": {"relu": "all"}})), phi),
        (softmax.clone(), Some(json!({"precision": "int8"})), own),
    ] {
        let (config, model) = replaced(&functions);
        let message = error(directory(&config, &model, plan));
        assert!(message.contains(named) && message.contains("sparing.json"), "{message} lacks {named}");
    }
    // Whatever is replaced, with its own plan it is read; and so is a tensor that is called alike.
    let relu = Functions { relu: Some(Relu::ALL), ..Functions::default() };
    for functions in [all(false, None), all(true, None), all(false, Some(3)), norms, softmax, relu] {
        let (config, model) = replaced(&functions);
        load(directory(&config, &model, Some(serde_json::to_value(&model.plan).unwrap()))).unwrap();
    }
    let (config, model) = bert();
    for name in ["head.softmax.weight", "head.mysoftmax.hidden.weight", "head.norunning_phi", "running_phi.weight"] {
        let mut tensors: Vec<OwnedTensor> = model.weights.names().map(|n| model.weights.owned(n).unwrap()).collect();
        tensors.push(counting(name, &[2], 0));
        load(files(&config, &tensors)).unwrap();
    }
}

#[test]
fn networks_go_with_the_last_attention_that_has_them() {
    let gone = LayerEdit { heads: Some(vec![]), ..LayerEdit::default() };
    let remove = |model: &Model, layer: usize| model.pruned(&Edits { layers: [(layer, gone.clone())].into() }).unwrap();
    let networks = |model: &Model| {
        let names = model.weights.names().filter(|name| name.contains("softmax."));
        names.map(str::to_string).collect::<Vec<_>>()
    };
    for (shared, keys) in [(false, None), (true, None), (false, Some(3)), (true, Some(3))] {
        let (config, model) = replaced(&all(shared, keys));
        let first = remove(&model, 0);
        assert!(!networks(&first).iter().any(|name| name.contains("layer.0.")), "{:?}", networks(&first));
        let left = networks(&model).into_iter().filter(|name| !name.contains("layer.0."));
        assert_eq!(networks(&first), left.collect::<Vec<_>>(), "shared {shared}, {keys:?} keys");
        assert!(first.architecture.layers[0].attention.network.is_none());
        let both = remove(&first, 1);
        assert_eq!(networks(&both), Vec::<String>::new());
        for pruned in [&first, &both] {
            let read = load(directory(&config, pruned, Some(serde_json::to_value(&pruned.plan).unwrap()))).unwrap();
            assert_eq!(read.architecture, pruned.architecture);
        }
        // A file from before they went is read all the same.
        load(directory(&config, &model, Some(serde_json::to_value(&both.plan).unwrap()))).unwrap();
    }
}
