//! Loading must not take noticeable time. Writes 340 MB, so only on request: `cargo test -- --ignored`.

use serde_json::json;
use sparing_model::{Architecture, HeadChoice, Model, OwnedTensor, write_directory};
use std::time::Instant;

#[test]
#[ignore = "writes 340 MB"]
fn every_matrix_of_bert_base_is_read_in_under_a_second() {
    let config = json!({"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100}).to_string();
    let a = Architecture::from_config(config.as_bytes(), Some(HeadChoice::Hidden), &|name| !name.starts_with("bert."))
        .unwrap();
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let bytes = vec![0x3c; shape.iter().product::<usize>() * 4];
        tensors.push(OwnedTensor::raw(name, sparing_model::Dtype::F32, shape, bytes));
    };
    add(a.embeddings.word.clone(), &[100, 768]);
    add("embeddings.position_embeddings.weight".into(), &[512, 768]);
    add("embeddings.token_type_embeddings.weight".into(), &[2, 768]);
    let norm = a.embeddings.norm.as_ref().unwrap();
    let norms = a.layers.iter().flat_map(|l| [&l.attention_norm, &l.ffns[0].norm]).chain([norm]);
    for norm in norms {
        add(norm.weight.clone(), &[768]);
        add(norm.bias.clone(), &[768]);
    }
    for layer in &a.layers {
        let t = &layer.attention;
        for linear in [&t.query, &t.key, &t.value, &t.output, &layer.ffns[0].up, &layer.ffns[0].down] {
            let bias = linear.bias.as_ref().unwrap().name.clone();
            add(bias.replace(".bias", ".weight"), &[linear.outputs, linear.inputs]);
            add(bias, &[linear.outputs]);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("base");
    write_directory(&directory, &[("config.json", config.as_bytes())], &tensors).unwrap();
    drop(tensors);

    let start = Instant::now();
    let model = Model::load(&directory).unwrap();
    let loaded = start.elapsed();
    let mut numbers = 0;
    for layer in &model.architecture.layers {
        let t = &layer.attention;
        for linear in [&t.query, &t.key, &t.value, &t.output, &layer.ffns[0].up, &layer.ffns[0].down] {
            numbers += model.weights.matrix(linear).unwrap().len();
        }
    }
    let read = start.elapsed();
    eprintln!("{loaded:?} to load, {read:?} to have read {numbers} numbers");
    assert!(read.as_secs_f32() < 1.0, "{read:?}");
}
