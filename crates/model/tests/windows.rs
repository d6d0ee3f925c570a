//! BERT with windows, on weights written here: names, positions, and what is refused.

mod common;

use common::*;
use serde_json::json;
use sparing_model::*;

fn values(model: &Model, name: &str) -> Vec<f32> {
    let tensor = model.weights.tensor(name).unwrap();
    let mut values = vec![0.0; tensor.len()];
    tensor.read(0, &mut values);
    values
}

#[test]
fn positions_are_repeated_behind_the_padding_token() {
    for (padding, first) in [(json!(0), 1), (json!(3), 4), (json!(null), 1)] {
        for prefix in ["bert.", ""] {
            let config = with(bert_config(), json!({"pad_token_id": padding}));
            let model = load(files(&config, &bert_tensors(prefix))).unwrap();
            let windowed = model.windowed(2, Some(12)).unwrap();
            let table = windowed.architecture.embeddings.positions.as_ref().unwrap();
            assert_eq!((table.rows, table.offset), (12 + first, first));
            let old = values(&model, &format!("{prefix}embeddings.position_embeddings.weight"));
            let new = values(&windowed, "longformer.embeddings.position_embeddings.weight");
            for token in 0..12 {
                let (here, there) = ((first + token) * 4, token % 5 * 4);
                assert_eq!(new[here..here + 4], old[there..there + 4], "token {token}");
            }
        }
    }
}

#[test]
fn global_projections_are_copies_and_the_head_comes_along() {
    let model = load(files(&bert_config(), &bert_tensors("bert."))).unwrap();
    let windowed = model.windowed(2, None).unwrap();
    for part in ["query.weight", "key.bias", "value.weight"] {
        let (name, kind) = part.split_once('.').unwrap();
        let at = "encoder.layer.0.attention.self";
        let old = values(&model, &format!("bert.{at}.{part}"));
        assert_eq!(values(&windowed, &format!("longformer.{at}.{part}")), old);
        assert_eq!(values(&windowed, &format!("longformer.{at}.{name}_global.{kind}")), old);
    }
    assert_eq!(values(&windowed, "classifier.dense.weight"), values(&model, "bert.pooler.dense.weight"));
    assert_eq!(values(&windowed, "classifier.out_proj.weight"), values(&model, "classifier.weight"));
    assert_eq!(windowed.architecture.head.global_tokens, GlobalTokens::First);
    assert_eq!(windowed.architecture.layers[0].attention.window.as_ref().unwrap().one_sided, 1);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let model = load(files(&bert_config(), &bert_tensors("bert."))).unwrap();
    let refused = |model: &Model, window, positions, part: &str| {
        let message = model.windowed(window, positions).err().expect("refused").to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    };
    refused(&model, 0, None, "even number");
    refused(&model, 7, None, "even number");
    refused(&model, usize::MAX - 1, None, "even number");
    refused(&model, 2, Some(4), "fewer than the model's 5");
    refused(&model, 2, Some(usize::MAX), "too many");
    let windowed = model.windowed(2, None).unwrap();
    refused(&windowed, 2, None, "only BERT and RoBERTa");
    let far = with(bert_config(), json!({"pad_token_id": u64::MAX}));
    refused(&load(files(&far, &bert_tensors("bert."))).unwrap(), 2, None, "pad_token_id");
    let made = Model::new(model.architecture.clone(), Plan::default(), model.weights.clone());
    refused(&made, 2, None, "config.json");
    let economised = Plan { attention: Some("mca:0.4".parse().unwrap()), ..Plan::default() };
    refused(&Model::new(model.architecture.clone(), economised, model.weights.clone()), 2, None, "sparing.json");
}
