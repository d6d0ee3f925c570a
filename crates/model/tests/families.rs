//! Names, shapes and layouts that set families apart, on weights written here.

mod common;

use common::*;
use serde_json::json;
use sparing_model::*;

#[test]
fn bert_with_and_without_prefix() {
    for prefix in ["bert.", ""] {
        let model = load(files(&bert_config(), &bert_tensors(prefix))).unwrap();
        let a = &model.architecture;
        assert_eq!(a.embeddings.word, format!("{prefix}embeddings.word_embeddings.weight"));
        assert_eq!((a.head.kind, a.head.rows, a.head.stages.len()), (HeadKind::Classify, HeadRows::First, 2));
        assert_eq!(a.head.labels, ["bad", "good", "so-so"]);
        assert_eq!(a.layers[0].attention.scale, 0.5f32.sqrt());
        assert_eq!(model.weights.matrix(&a.layers[0].ffns[0].up).unwrap()[..5], [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert!(model.tokenizer().err().unwrap().to_string().contains("tokenizer.json"));
    }
}

#[test]
fn old_names_of_norms() {
    let mut tensors = bert_tensors("bert.");
    for tensor in &mut tensors {
        tensor.name =
            tensor.name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    }
    let model = load(files(&bert_config(), &tensors)).unwrap();
    assert!(model.architecture.layers[0].attention_norm.weight.ends_with("LayerNorm.gamma"));
}

#[test]
fn tensors_that_are_not_weights_are_tolerated() {
    let mut tensors = bert_tensors("bert.");
    let ids = (0i64..5).flat_map(i64::to_le_bytes).collect();
    let name = "bert.embeddings.position_ids".to_string();
    tensors.push(OwnedTensor::raw(name.clone(), Dtype::I64, &[1, 5], ids));
    let model = load(files(&bert_config(), &tensors)).unwrap();
    assert_eq!(model.weights.vector(&name, 5).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn labels_and_problem_types_choose_the_kind() {
    let kind = |fields| {
        let config = with(bert_config(), fields);
        Architecture::from_config(config.to_string().as_bytes(), None, &|_| false).unwrap().head
    };
    assert_eq!(kind(json!({"id2label": {"0": "x"}})).kind, HeadKind::Regress);
    assert_eq!(
        kind(json!({"id2label": {"0": "x"}, "problem_type": "single_label_classification"})).kind,
        HeadKind::Classify
    );
    assert_eq!(kind(json!({"problem_type": "multi_label_classification"})).kind, HeadKind::MultiLabel);
    assert_eq!(kind(json!({"problem_type": "regression"})).kind, HeadKind::Regress);
    assert_eq!(kind(json!({"id2label": null})).labels, ["LABEL_0", "LABEL_1"]);
    assert_eq!(kind(json!({"architectures": null})).kind, HeadKind::Hidden);
    assert_eq!(kind(json!({"architectures": ["BertForQuestionAnswering"]})).kind, HeadKind::Answer);
    assert_eq!(kind(json!({"architectures": ["BertForPreTraining"]})).kind, HeadKind::MaskedLm);
}

#[test]
fn the_caller_may_ask_for_another_head() {
    let head = |head| {
        let options = LoadOptions { head: Some(head) };
        Model::load_from_memory(files(&bert_config(), &bert_tensors("bert.")), &options).map(|m| m.architecture.head)
    };
    assert_eq!(head(HeadChoice::Hidden).unwrap().kind, HeadKind::Hidden);
    let embed = head(HeadChoice::Embed).unwrap();
    assert_eq!((embed.kind, embed.rows), (HeadKind::Embed { normalise: true }, HeadRows::Mean));
    assert!(head(HeadChoice::Answer).err().unwrap().to_string().contains("qa_outputs.weight"));
    assert!(head(HeadChoice::CausalLm).err().unwrap().to_string().contains("CausalLm"));
}

#[test]
fn gpt2_splits_its_fused_projection() {
    let config = json!({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 7, "n_positions": 6, "n_embd": 4,
        "n_layer": 1, "n_head": 2, "scale_attn_by_inverse_layer_idx": true
    });
    let mut all = tensors(&[
        ("wte.weight", &[7, 4]),
        ("wpe.weight", &[6, 4]),
        ("h.0.attn.c_attn.weight", &[4, 12]),
        ("h.0.attn.c_attn.bias", &[12]),
        ("h.0.attn.c_proj.weight", &[4, 4]),
        ("h.0.attn.c_proj.bias", &[4]),
        ("h.0.mlp.c_fc.weight", &[4, 16]),
        ("h.0.mlp.c_fc.bias", &[16]),
        ("h.0.mlp.c_proj.weight", &[16, 4]),
        ("h.0.mlp.c_proj.bias", &[4]),
    ]);
    for name in ["h.0.ln_1", "h.0.ln_2", "ln_f"] {
        all.extend(norm(name, 4));
    }
    let model = load(files(&config, &all)).unwrap();
    let a = &model.architecture;
    let attention = &a.layers[0].attention;
    // Row o of the key's matrix is column 4 + o of the stored tensor.
    assert_eq!(model.weights.matrix(&attention.key).unwrap()[..8], [4.0, 16.0, 28.0, 40.0, 5.0, 17.0, 29.0, 41.0]);
    assert_eq!(model.weights.bias(attention.value.bias.as_ref().unwrap(), 4).unwrap(), [8.0, 9.0, 10.0, 11.0]);
    assert!(attention.causal && a.layers[0].norm_first && a.final_norm.is_some());
    // Tied: the word table is the decoder.
    let decoder = a.head.stages[0].linear.as_ref().unwrap();
    assert_eq!(decoder.weight, Matrix::Tensor { name: "wte.weight".into(), in_out: false, slice: None });
    assert_eq!(
        (a.max_tokens, a.head.kind, a.layers[0].ffns[0].activation),
        (Some(6), HeadKind::CausalLm, Activation::GeluTanh)
    );
}

#[test]
fn mobilebert_joins_two_tensors_into_its_decoder() {
    let weights = Weights::from_tensors(&tensors(&[("words", &[5, 2]), ("rest", &[3, 5])])).unwrap();
    let part = |name: &str, in_out| Matrix::Tensor { name: name.into(), in_out, slice: None };
    let joined = Matrix::ConcatInputs(vec![(part("words", false), 2), (part("rest", true), 3)]);
    let decoder = Linear { weight: joined, bias: None, inputs: 5, outputs: 5 };
    let matrix = weights.matrix(&decoder).unwrap();
    assert_eq!(matrix[..10], [0.0, 1.0, 0.0, 5.0, 10.0, 2.0, 3.0, 1.0, 6.0, 11.0]);
    assert!(weights.matrix(&Linear { inputs: 6, ..decoder }).is_err());
}

#[test]
fn xlnet_merges_trailing_axes_both_ways() {
    let weights = Weights::from_tensors(&tensors(&[("q", &[2, 3, 2])])).unwrap();
    let matrix = |in_out, inputs, outputs| {
        let weight = Matrix::Tensor { name: "q".into(), in_out, slice: None };
        weights.matrix(&Linear { weight, bias: None, inputs, outputs }).unwrap()
    };
    assert_eq!(matrix(false, 6, 2), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(matrix(true, 2, 6), [0.0, 6.0, 1.0, 7.0, 2.0, 8.0, 3.0, 9.0, 4.0, 10.0, 5.0, 11.0]);
}

#[test]
fn albert_layers_share_their_weights() {
    let config = json!({
        "model_type": "albert", "architectures": ["AlbertModel"], "hidden_size": 4, "num_attention_heads": 2, "embedding_size": 2,
        "intermediate_size": 6, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2
    });
    let a = Architecture::from_config(config.to_string().as_bytes(), None, &|_| false).unwrap();
    let groups: Vec<_> =
        a.layers.iter().map(|l| l.attention_norm.weight.split('.').nth(3).unwrap().to_string()).collect();
    assert_eq!(groups.join(""), "0000001111");
    assert_eq!(a.embeddings.projection.as_ref().map(|p| (p.inputs, p.outputs)), Some((2, 4)));
}

#[test]
fn positions_begin_after_the_padding_index() {
    let architecture = |kind: &str| {
        let config = with(bert_config(), json!({"model_type": kind, "architectures": null}));
        Architecture::from_config(config.to_string().as_bytes(), None, &|_| false).unwrap()
    };
    for (kind, family, offset) in [
        ("roberta", Family::Roberta, 2),
        ("xlm-roberta", Family::Roberta, 2),
        ("camembert", Family::Roberta, 2),
        ("mpnet", Family::MpNet, 2),
        ("longformer", Family::Longformer, 2),
        ("electra", Family::Electra, 0),
    ] {
        let a = architecture(kind);
        assert_eq!(
            (a.family, a.embeddings.positions.unwrap().offset, a.max_tokens),
            (family, offset, Some(5 - offset)),
            "{kind}"
        );
    }
}

#[test]
fn sentence_encoders() {
    let dense = tensors(&[("linear.weight", &[2, 4]), ("linear.bias", &[2])]);
    let module = |path: &str, kind: &str| json!({"path": path, "type": format!("sentence_transformers.models.{kind}")});
    let modules = json!([
        module("", "Transformer"),
        module("1_Pooling", "Pooling"),
        module("2_Dense", "Dense"),
        module("3_Normalize", "Normalize")
    ]);
    let mut all = files(&with(bert_config(), json!({"architectures": ["BertModel"]})), &bert_tensors(""));
    let mut add = |name: &str, text: String| all.insert(name.to_string(), text.into_bytes());
    add("modules.json", modules.to_string());
    add(
        "1_Pooling/config.json",
        json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}).to_string(),
    );
    add(
        "2_Dense/config.json",
        json!({"in_features": 4, "out_features": 2, "activation_function": "torch.nn.modules.activation.Tanh"})
            .to_string(),
    );
    all.insert("2_Dense/model.safetensors".to_string(), serialise(&dense));
    let model = load(all.clone()).unwrap();
    let head = &model.architecture.head;
    assert_eq!((head.rows, head.kind), (HeadRows::First, HeadKind::Embed { normalise: true }));
    assert_eq!((head.stages.len(), head.stages[0].activation), (1, Activation::Tanh));
    assert_eq!(model.weights.matrix(head.stages[0].linear.as_ref().unwrap()).unwrap().len(), 8);

    let two = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}).to_string();
    all.insert("1_Pooling/config.json".to_string(), two.into_bytes());
    assert!(error(all.clone()).contains("pooling_mode_mean_tokens"));
    all.insert("1_Pooling/config.json".to_string(), b"{\"pooling_mode\": \"max\"}".to_vec());
    assert_eq!(load(all).unwrap().architecture.head.rows, HeadRows::Max);
}
