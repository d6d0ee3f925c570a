//! Whatever is wrong with a directory: one line that names it, never a panic.

mod common;

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use sparing_model::{Dtype, LoadOptions, Model, OwnedTensor, Weights};

/// A safetensors file with this header and so many bytes of data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn weights_error(bytes: Vec<u8>) -> String {
    let mut all = files(&bert_config(), &bert_tensors(""));
    all.insert("model.safetensors".into(), bytes);
    error(all)
}

#[test]
fn headers_that_lie() {
    let f32 =
        |start: usize, end: usize| format!("{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{start},{end}]}}");
    let cases = [
        (vec![], "HeaderTooSmall|header too small|too small"),
        (vec![1, 2, 3], "small"),
        (u64::MAX.to_le_bytes().to_vec(), "large"),
        (1000u64.to_le_bytes().to_vec(), "length"),
        (raw("{", 0), "JSON|EOF|deserial"),
        (raw("[]", 0), ""),
        (raw(&format!("{{\"a\":{}}}", f32(0, 8)), 4), ""),
        (raw(&format!("{{\"a\":{}}}", f32(0, 800)), 8), ""),
        (raw(&format!("{{\"a\":{}}}", f32(8, 0)), 8), ""),
        (raw(&format!("{{\"a\":{}}}", f32(4, 12)), 12), ""),
        (raw(&format!("{{\"a\":{},\"b\":{}}}", f32(0, 8), f32(4, 12)), 12), ""),
        (raw(&format!("{{\"a\":{},\"a\":{}}}", f32(0, 8), f32(0, 8)), 8), "listed twice"),
        (raw("{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8), ""),
        (raw("{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551615,2],\"data_offsets\":[0,8]}}", 8), ""),
        (raw("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8), ""),
    ];
    for (bytes, expected) in cases {
        let message = weights_error(bytes);
        assert!(message.starts_with("model.safetensors: not a sound safetensors file: "), "{message}");
        let lower = message.to_lowercase();
        assert!(expected.split('|').any(|e| lower.contains(&e.to_lowercase())), "{message} lacks {expected}");
    }
}

#[test]
fn every_truncation_is_noticed() {
    let whole = serialise(&bert_tensors(""));
    for length in (0..whole.len()).step_by(7) {
        weights_error(whole[..length].to_vec());
    }
}

#[test]
fn missing_and_misshapen_tensors_are_named_with_both_shapes() {
    for i in 0..bert_tensors("").len() {
        let mut tensors = bert_tensors("");
        let missing = tensors.remove(i);
        let message = error(files(&bert_config(), &tensors));
        // Without the word table the prefix cannot be told.
        assert!(
            message.contains(missing.name.rsplit("bert.").next().unwrap()) && message.contains("missing"),
            "{message}"
        );

        let mut tensors = bert_tensors("");
        tensors[i] = counting(&missing.name, &[3, 1, 7], 0);
        let message = error(files(&bert_config(), &tensors));
        assert!(message.contains(&missing.name) && message.contains("[3, 1, 7]"), "{message}");
        assert!(message.contains(&format!("{:?}", missing.shape)), "{message} lacks {:?}", missing.shape);
    }
}

#[test]
fn weights_of_other_element_types() {
    let mut tensors = bert_tensors("");
    let last = tensors.len() - 1;
    tensors[last] = OwnedTensor::raw("classifier.bias", Dtype::I8, &[3], vec![0; 3]);
    let message = error(files(&bert_config(), &tensors));
    assert!(message.contains("classifier.bias") && message.contains("I8") && message.contains("BF16"), "{message}");
}

#[test]
fn configurations_that_cannot_be() {
    let cases = [
        (json!({"model_type": "t5"}), "\"model_type\" is \"t5\"; supported are bert"),
        (json!({"model_type": null}), "\"model_type\" is \"\""),
        (json!({"model_type": 3}), "\"model_type\" is 3"),
        (json!({"architectures": ["BertForMultipleChoice"]}), "BertForMultipleChoice"),
        (json!({"architectures": []}), "architectures"),
        (json!({"architectures": "BertModel"}), "architectures"),
        (json!({"hidden_size": 0}), "\"hidden_size\" is 0"),
        (json!({"hidden_size": -4}), "\"hidden_size\" is -4"),
        (json!({"hidden_size": 1e18}), "\"hidden_size\" is 1e"),
        (json!({"hidden_size": "768"}), "\"hidden_size\" is \"768\""),
        (json!({"num_attention_heads": 0}), "\"num_attention_heads\" is 0"),
        (json!({"num_attention_heads": 3}), "\"num_attention_heads\" is 3; it must divide"),
        (json!({"num_hidden_layers": u64::MAX}), "num_hidden_layers"),
        (json!({"num_hidden_layers": 1000}), "encoder.layer.1.attention"),
        (json!({"vocab_size": 1 << 24}), "word_embeddings.weight\" has shape [9, 4]"),
        (json!({"max_position_embeddings": 0}), "max_position_embeddings"),
        (json!({"layer_norm_eps": "small"}), "layer_norm_eps"),
        (json!({"layer_norm_eps": -1}), "layer_norm_eps"),
        (json!({"hidden_act": "quick_gelu"}), "\"hidden_act\" is \"quick_gelu\"; supported are gelu"),
        (json!({"position_embedding_type": "relative_key"}), "\"position_embedding_type\" is \"relative_key\""),
        (json!({"is_decoder": true}), "\"is_decoder\" is true"),
        (json!({"add_cross_attention": true}), "add_cross_attention"),
        (json!({"pruned_heads": {"0": [1]}}), "pruned_heads"),
        (json!({"problem_type": "ranking"}), "\"problem_type\" is \"ranking\""),
        (json!({"id2label": {"0": "a", "2": "b"}}), "id2label"),
        (json!({"id2label": {}}), "id2label"),
        (json!({"id2label": {"x": "a"}}), "id2label"),
        (json!({"id2label": ["a"]}), "id2label"),
    ];
    for (fields, expected) in cases {
        let message = error(files(&with(bert_config(), fields.clone()), &bert_tensors("")));
        assert!(expected.split('|').any(|e| message.contains(e)), "{fields}: {message} lacks {expected}");
    }
}

#[test]
fn settings_of_other_families() {
    let refused = |config: Value| {
        let result = sparing_model::Architecture::from_config(config.to_string().as_bytes(), None, &|_| false);
        result.expect_err("must be refused").to_string()
    };
    for (config, expected) in [
        (
            json!({"model_type": "xlnet", "architectures": ["XLNetForQuestionAnswering"]}),
            "XLNetForQuestionAnsweringSimple",
        ),
        (json!({"model_type": "xlnet", "d_model": 8, "n_head": 2, "d_head": 3}), "\"d_head\" is 3"),
        (json!({"model_type": "xlnet", "d_model": 4096, "n_head": 2048}), "\"n_head\" is 2048"),
        (json!({"model_type": "xlnet", "attn_type": "both"}), "attn_type"),
        (json!({"model_type": "xlnet", "bi_data": true}), "bi_data"),
        (json!({"model_type": "longformer", "attention_window": [4, 4]}), "attention_window"),
        (json!({"model_type": "longformer", "attention_window": 3}), "attention_window"),
        (json!({"model_type": "longformer", "num_attention_heads": 1}), "at most 512"),
        (json!({"model_type": "mobilebert", "embedding_size": 60000}), "embedding_size"),
        (json!({"model_type": "mobilebert", "normalization_type": "rms"}), "normalization_type"),
        (json!({"model_type": "mobilebert", "key_query_shared_bottleneck": false}), "key_query_shared_bottleneck"),
        (json!({"model_type": "mobilebert", "num_feedforward_networks": 0}), "num_feedforward_networks"),
        (json!({"model_type": "albert", "inner_group_num": 1000}), "inner_group_num"),
        (json!({"model_type": "albert", "num_hidden_groups": 0}), "num_hidden_groups"),
        (json!({"model_type": "mpnet", "relative_attention_num_buckets": 8}), "relative_attention_num_buckets"),
        (json!({"model_type": "roberta", "max_position_embeddings": 2}), "max_position_embeddings"),
        (json!({"model_type": "gpt2", "n_embd": 60000}), "\"n_inner\" is absent; it would be 240000"),
        (json!({"model_type": "gpt2", "n_inner": 70000}), "\"n_inner\" is 70000"),
        (json!({"model_type": "gpt2", "add_cross_attention": true}), "add_cross_attention"),
        (json!({"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]}), "GPT2DoubleHeadsModel"),
        (json!({"model_type": "distilbert", "n_heads": 5}), "\"n_heads\" is 5"),
    ] {
        let message = refused(config.clone());
        assert!(message.contains(expected), "{config}: {message}");
    }
}

#[test]
fn files_that_are_not_there_or_not_what_they_seem() {
    let whole = || files(&bert_config(), &bert_tensors(""));
    let without = |name: &str| {
        let mut all = whole();
        all.remove(name);
        all
    };
    let plus = |name: &str, text: &[u8]| {
        let mut all = whole();
        all.insert(name.to_string(), text.to_vec());
        all
    };
    assert!(error(without("config.json")).contains("config.json is not there"));
    assert!(error(without("model.safetensors")).contains("model.safetensors is not there"));
    let mut pickle = without("model.safetensors");
    pickle.insert("pytorch_model.bin".into(), vec![]);
    assert!(error(pickle).contains("save_pretrained"));
    for (name, text, expected) in [
        ("config.json", &b"{\"model_type\": \"bert\""[..], "config.json: not valid JSON"),
        ("config.json", b"[1]", "not a JSON object"),
        ("config.json", b"\xff\xfe", "not valid JSON"),
        ("sparing.json", b"{\"precision\": \"f7\"}", "sparing.json"),
        ("sparing.json", b"{\"surprise\": 1}", "sparing.json"),
        ("sparing.json", b"{\"quantization\": {\"bits\": {\"ffn\": 99}}}", "99 bits"),
        ("sparing.json", b"{\"quantization\": {\"bits\": {\"knee\": 8}}}", "knee"),
        ("sparing.json", b"{\"quantization\": {\"activations\": {\"bits\": 1}}}", "1 bits"),
        (
            "sparing.json",
            b"{\"quantization\": {\"activations\": {\"bits\": 8, \"ranges\": {\"a\": [2, 1]}}}}",
            "the range of \"a\" is 2 to 1",
        ),
        (
            "sparing.json",
            b"{\"quantization\": {\"activations\": {\"bits\": 8, \"ranges\": {\"a\": [1e99, 1]}}}}",
            "range",
        ),
        ("tokenizer.json", b"{}", "tokenizer.json"),
        ("tokenizer.json", b"\xff", "tokenizer.json"),
        ("vocab.txt", b"[PAD]\n\xff", "vocab.txt: not valid UTF-8"),
        ("vocab.txt", b"", "[UNK]"),
        ("vocab.txt", b"[UNK]\nword", "[CLS]"),
        ("modules.json", b"{}", "modules.json"),
        ("modules.json", b"[{\"type\": \"x.Pooling\", \"path\": \"../up\"}]", "modules.json"),
        ("modules.json", b"[{\"type\": \"x.Asym\"}]", "x.Asym"),
        ("tokenizer_config.json", b"nonsense", "tokenizer_config.json"),
    ] {
        let mut all = plus(name, text);
        if name == "tokenizer_config.json" {
            all.insert("vocab.txt".into(), b"[UNK]\n[CLS]\n[SEP]".to_vec());
        }
        let message = error(all);
        assert!(message.contains(expected), "{name}: {message} lacks {expected}");
    }
    for (index, expected) in [
        ("{}", "weight_map"),
        ("{\"weight_map\": {}}", "empty"),
        ("{\"weight_map\": {\"a\": \"../../etc/passwd\"}}", "not a file name inside"),
        ("{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "not a file name inside"),
        ("{\"weight_map\": {\"a\": 1}}", "does not name a file"),
        ("{\"weight_map\": {\"a\": \"gone.safetensors\"}}", "gone.safetensors"),
        ("not json", "not valid JSON"),
    ] {
        let mut all = without("model.safetensors");
        all.insert("model.safetensors.index.json".into(), index.as_bytes().to_vec());
        let message = error(all);
        assert!(message.contains(expected), "{index}: {message}");
    }
}

#[test]
fn a_tensor_in_two_shards() {
    let mut all = files(&bert_config(), &[]);
    all.remove("model.safetensors");
    let index = json!({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}});
    all.insert("model.safetensors.index.json".into(), index.to_string().into_bytes());
    for name in ["1.safetensors", "2.safetensors"] {
        all.insert(name.into(), serialise(&tensors(&[("a", &[2])])));
    }
    let message = error(all);
    assert!(message.contains("\"a\" is both in 1.safetensors and in 2.safetensors"), "{message}");
}

#[test]
fn a_tokenizer_of_another_model() {
    let mut all = files(&bert_config(), &bert_tensors(""));
    let vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne";
    all.insert("vocab.txt".into(), vocabulary.as_bytes().to_vec());
    let message = error(all);
    assert!(message.contains("token \"e\" has id 9, the word table has 9 rows"), "{message}");
}

#[test]
fn directories_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Model::load(&folder.path().join("none")).err().unwrap().to_string().contains("is not a directory"));
    assert!(Model::load(folder.path()).err().unwrap().to_string().contains("config.json is not there"));
    std::fs::write(folder.path().join("config.json"), bert_config().to_string()).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), b"").unwrap();
    // An empty file cannot be mapped everywhere; the message still names it.
    assert!(Model::load(folder.path()).err().unwrap().to_string().contains("model.safetensors"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any few bytes of the configuration or the header may be changed: it loads or it says why.
    #[test]
    fn mutated_directories_never_panic(
        changes in prop::collection::vec((any::<bool>(), 0usize..2600, any::<u8>()), 1..6)
    ) {
        let mut all = files(&bert_config(), &bert_tensors("bert."));
        for (config, place, byte) in changes {
            let bytes = all.get_mut(if config { "config.json" } else { "model.safetensors" }).unwrap();
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if let Err(e) = load(all) {
            prop_assert!(!e.to_string().contains('\n'));
        }
    }

    /// Numbers in the configuration may be anything.
    #[test]
    fn arbitrary_numbers_never_panic(
        kind in prop::sample::select(vec!["bert", "distilbert", "roberta", "albert", "mpnet", "electra", "mobilebert", "longformer", "xlnet", "gpt2"]),
        field in prop::sample::select(vec![
            "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings",
            "type_vocab_size", "embedding_size", "num_hidden_groups", "inner_group_num", "intra_bottleneck_size", "attention_window",
            "num_feedforward_networks", "d_head", "clamp_len", "n_inner", "pad_token_id", "sep_token_id", "layer_norm_eps",
        ]),
        number in prop_oneof![Just(json!(u64::MAX)), Just(json!(-1)), (0u64..70_000).prop_map(|n| json!(n)), any::<f64>().prop_map(|n| json!(n))],
    ) {
        let config = with(bert_config(), json!({"model_type": kind, "architectures": null, field: number}));
        let options = LoadOptions::default();
        let mut all = files(&config, &bert_tensors("bert."));
        all.insert("vocab.txt".into(), b"[UNK]\n[CLS]\n[SEP]".to_vec());
        let _ = Model::load_from_memory(all, &options);
    }

    /// Safetensors files of random bytes.
    #[test]
    fn random_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Weights::from_bytes(bytes);
    }
}
