//! Tiny models written by hand.
#![allow(dead_code)]

use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use sparing_model::{Error, LoadOptions, Model, OwnedTensor};
use std::collections::BTreeMap;

/// A tensor whose elements count up from `first`.
pub fn counting(name: &str, shape: &[usize], first: usize) -> OwnedTensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (first + i) as f32).collect();
    OwnedTensor::f32(name, shape, &values)
}

/// Tensors by name and shape.
pub fn tensors(list: &[(&str, &[usize])]) -> Vec<OwnedTensor> {
    list.iter().map(|(name, shape)| counting(name, shape, 0)).collect()
}

/// `name.weight` of `[outputs, inputs]` and `name.bias`.
pub fn linear(name: &str, outputs: usize, inputs: usize) -> Vec<OwnedTensor> {
    vec![counting(&format!("{name}.weight"), &[outputs, inputs], 0), counting(&format!("{name}.bias"), &[outputs], 0)]
}

/// `name.weight` and `name.bias` of this width.
pub fn norm(name: &str, width: usize) -> Vec<OwnedTensor> {
    vec![counting(&format!("{name}.weight"), &[width], 0), counting(&format!("{name}.bias"), &[width], 0)]
}

/// The configuration of a BERT of one layer with a classifier.
pub fn bert_config() -> Value {
    json!({
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 9, "hidden_size": 4,
        "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6, "max_position_embeddings": 5,
        "type_vocab_size": 2, "id2label": {"0": "bad", "1": "good", "2": "so-so"}
    })
}

/// Its weights, base-model tensors behind `prefix`.
pub fn bert_tensors(prefix: &str) -> Vec<OwnedTensor> {
    let at = format!("{prefix}encoder.layer.0");
    let mut all = vec![
        counting(&format!("{prefix}embeddings.word_embeddings.weight"), &[9, 4], 0),
        counting(&format!("{prefix}embeddings.position_embeddings.weight"), &[5, 4], 0),
        counting(&format!("{prefix}embeddings.token_type_embeddings.weight"), &[2, 4], 0),
    ];
    all.extend(norm(&format!("{prefix}embeddings.LayerNorm"), 4));
    for part in ["self.query", "self.key", "self.value", "output.dense"] {
        all.extend(linear(&format!("{at}.attention.{part}"), 4, 4));
    }
    all.extend(norm(&format!("{at}.attention.output.LayerNorm"), 4));
    all.extend(linear(&format!("{at}.intermediate.dense"), 6, 4));
    all.extend(linear(&format!("{at}.output.dense"), 4, 6));
    all.extend(norm(&format!("{at}.output.LayerNorm"), 4));
    all.extend(linear(&format!("{prefix}pooler.dense"), 4, 4));
    all.extend(linear("classifier", 3, 4));
    all
}

fn view(t: &OwnedTensor) -> TensorView<'_> {
    TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()
}

/// The bytes of a safetensors file.
pub fn serialise(tensors: &[OwnedTensor]) -> Vec<u8> {
    let views: Vec<(&str, TensorView<'_>)> = tensors.iter().map(|t| (t.name.as_str(), view(t))).collect();
    safetensors::serialize(views, None).unwrap()
}

/// A directory in memory.
pub fn files(config: &Value, tensors: &[OwnedTensor]) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        ("config.json".to_string(), config.to_string().into_bytes()),
        ("model.safetensors".to_string(), serialise(tensors)),
    ])
}

/// Loads a directory in memory.
pub fn load(files: BTreeMap<String, Vec<u8>>) -> Result<Model, Error> {
    Model::load_from_memory(files, &LoadOptions::default())
}

/// The error a directory in memory gives; one line.
pub fn error(files: BTreeMap<String, Vec<u8>>) -> String {
    let message = load(files).err().expect("must not load").to_string();
    assert!(!message.contains('\n'), "more than one line: {message}");
    message
}

/// `value` with these fields set (or, if null, taken out).
pub fn with(mut value: Value, fields: Value) -> Value {
    for (name, field) in fields.as_object().unwrap() {
        if field.is_null() {
            value.as_object_mut().unwrap().remove(name);
        } else {
            value[name] = field.clone();
        }
    }
    value
}
