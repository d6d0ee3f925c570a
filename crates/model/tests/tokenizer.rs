//! WordPiece and byte-level BPE from their old files, truncation, windows, decoding.

mod common;

use common::*;
use proptest::prelude::*;
use serde_json::json;
use sparing_model::{Model, OwnedTensor};

const WORDS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfilm\nis\n##n\n##t\n,\ngood\nA\na\ncafe";

/// A BERT with this vocabulary; `settings` is tokenizer_config.json.
fn bert(words: &str, positions: usize, settings: &str) -> Model {
    let config = with(bert_config(), json!({"vocab_size": 20, "max_position_embeddings": positions}));
    let mut tensors = bert_tensors("");
    tensors[0] = counting(&tensors[0].name.clone(), &[20, 4], 0);
    tensors[1] = counting(&tensors[1].name.clone(), &[positions, 4], 0);
    let mut all = files(&config, &tensors);
    all.insert("vocab.txt".into(), words.as_bytes().to_vec());
    all.insert("tokenizer_config.json".into(), settings.as_bytes().to_vec());
    load(all).unwrap()
}

#[test]
fn word_piece() {
    let model = bert(WORDS, 20, "{}");
    let t = model.tokenizer().unwrap();
    let encoded = t.encode("The film isn't, Café!", None, None).unwrap();
    assert_eq!(encoded.tokens, ["[CLS]", "the", "film", "is", "##n", "[UNK]", "[UNK]", ",", "cafe", "[UNK]", "[SEP]"]);
    assert_eq!(encoded.offsets[8], (16, 21));
    assert_eq!(encoded.sequence.types, [0; 11]);
    let pair = t.encode("the [MASK]", Some("isnt"), None).unwrap();
    assert_eq!(pair.tokens, ["[CLS]", "the", "[MASK]", "[SEP]", "is", "##n", "##t", "[SEP]"]);
    assert_eq!(pair.sequence.types, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(pair.texts, [None, Some(0), Some(0), None, Some(1), Some(1), Some(1), None]);
    assert_eq!((t.mask_id(), t.special_ids().to_vec(), t.is_special(5)), (Some(4), vec![0, 1, 2, 3, 4], false));
    assert_eq!(t.decode(&pair.sequence.ids, true).unwrap(), "the isnt");
    let empty = t.encode("", None, None).unwrap();
    assert_eq!((empty.tokens.join(" "), empty.truncated), ("[CLS] [SEP]".to_string(), false));
}

#[test]
fn case_is_kept_where_the_settings_say_so() {
    let tokens = |settings| {
        bert(WORDS, 20, settings).tokenizer().unwrap().encode("A film", None, None).unwrap().tokens[1].clone()
    };
    assert_eq!(tokens("{}"), "a");
    assert_eq!(tokens("{\"do_lower_case\": false}"), "A");
}

#[test]
fn truncation_is_longest_first() {
    let model = bert(WORDS, 12, "{\"model_max_length\": 9}");
    let t = model.tokenizer().unwrap();
    assert_eq!(t.max_tokens(), Some(9));
    let lengths = |a: usize, b: usize, most| {
        let encoded = t.encode(&"the ".repeat(a), Some(&"film ".repeat(b)), most).unwrap();
        let of = |text| encoded.texts.iter().filter(|t| **t == Some(text)).count();
        (of(0), of(1), encoded.truncated)
    };
    assert_eq!(lengths(2, 4, None), (2, 4, false));
    assert_eq!(lengths(2, 40, None), (2, 4, true));
    assert_eq!(lengths(40, 2, None), (4, 2, true));
    assert_eq!(lengths(40, 40, None), (3, 3, true));
    // The caller may ask for less, not for more.
    assert_eq!(lengths(40, 1, Some(6)), (2, 1, true));
    assert_eq!(lengths(40, 1, Some(100)), (5, 1, true));
    assert!(t.encode("the", None, Some(2)).err().unwrap().to_string().contains("special"));
}

#[test]
fn windows_cover_the_context() {
    let model = bert(WORDS, 20, "{}");
    let t = model.tokenizer().unwrap();
    let context = "the film is good , ".repeat(6);
    let windows = t.encode_windows("a film", &context, Some(13), 3).unwrap();
    let mut covered = vec![false; context.len()];
    for window in &windows {
        assert!(window.sequence.ids.len() <= 13);
        assert_eq!(window.tokens[1..3], ["a", "film"]);
        for ((start, end), text) in window.offsets.iter().zip(&window.texts) {
            if *text == Some(1) {
                covered[*start..*end].fill(true);
            }
        }
    }
    assert!(context.bytes().zip(covered).all(|(byte, covered)| covered || byte == b' '));
    // Neighbours share three tokens of the context.
    let of = |i: usize| {
        let window = &windows[i];
        window.offsets.iter().zip(&window.texts).filter(|(_, t)| **t == Some(1)).map(|(o, _)| *o).collect::<Vec<_>>()
    };
    assert_eq!(of(0)[5..], of(1)[..3]);
    assert!(t.encode_windows("a film", &context, Some(13), 8).is_err());
    assert_eq!(t.encode_windows("a film", "", Some(13), 3).unwrap().len(), 1);
    // A question longer than half of the room is cut.
    assert!(t.encode_windows(&"film ".repeat(50), &context, Some(13), 1).unwrap().iter().all(|w| w.truncated));
}

/// GPT-2 or RoBERTa with a byte-level vocabulary of letters, "he", "the" and the leading space.
fn byte_level(config: serde_json::Value, tensors: Vec<OwnedTensor>) -> Model {
    let mut vocabulary = serde_json::Map::new();
    for token in ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "t", "h", "e", "Ġ", "he", "the", "Ġthe"]
    {
        vocabulary.insert(token.into(), json!(vocabulary.len()));
    }
    let mut all = files(&config, &tensors);
    all.insert("vocab.json".into(), serde_json::to_vec(&vocabulary).unwrap());
    all.insert("merges.txt".into(), "#version: 0.2\nh e\nt he\nĠ the\n".as_bytes().to_vec());
    load(all).unwrap()
}

#[test]
fn byte_level_bpe_of_gpt2() {
    let config =
        json!({"model_type": "gpt2", "vocab_size": 13, "n_positions": 6, "n_embd": 4, "n_layer": 0, "n_head": 2});
    let mut all = tensors(&[("wte.weight", &[13, 4]), ("wpe.weight", &[6, 4])]);
    all.extend(norm("ln_f", 4));
    let model = byte_level(config, all);
    let t = model.tokenizer().unwrap();
    let encoded = t.encode("the the het", None, None).unwrap();
    assert_eq!(encoded.tokens, ["the", "Ġthe", "Ġ", "he", "t"]);
    assert!(encoded.sequence.types.is_empty());
    assert_eq!(t.decode(&encoded.sequence.ids, true).unwrap(), "the the het");
    assert_eq!(t.end_id(), Some(5));
    assert!(t.encode("", None, None).err().unwrap().to_string().contains("no tokens"));
    let mut step = t.stream(true);
    let text: String = encoded.sequence.ids.iter().filter_map(|id| step(*id).unwrap()).collect();
    assert_eq!(text, "the the het");
}

#[test]
fn byte_level_bpe_of_roberta() {
    let config = json!({
        "model_type": "roberta", "vocab_size": 13, "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 0,
        "max_position_embeddings": 20, "type_vocab_size": 1, "intermediate_size": 4
    });
    let mut all = tensors(&[
        ("embeddings.word_embeddings.weight", &[13, 4]),
        ("embeddings.position_embeddings.weight", &[20, 4]),
        ("embeddings.token_type_embeddings.weight", &[1, 4]),
    ]);
    all.extend(norm("embeddings.LayerNorm", 4));
    let model = byte_level(config, all);
    let t = model.tokenizer().unwrap();
    let pair = t.encode("the <mask>", Some("he"), None).unwrap();
    assert_eq!(pair.tokens, ["<s>", "the", "<mask>", "</s>", "</s>", "he", "</s>"]);
    assert!(pair.sequence.types.is_empty());
    assert_eq!((t.max_tokens(), t.mask_id()), (Some(18), Some(4)));
}

#[test]
fn models_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Model>();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text whatsoever: never longer than asked, and every offset is a piece of its text.
    #[test]
    fn arbitrary_text(text in ".{0,200}", pair in prop::option::of("(\\PC|the|film| ){0,60}"), most in 4usize..20) {
        thread_local!(static MODEL: Model = bert(WORDS, 20, "{}"));
        MODEL.with(|model| {
            let encoded = model.tokenizer().unwrap().encode(&text, pair.as_deref(), Some(most)).unwrap();
            let n = encoded.sequence.ids.len();
            assert!(n <= most && n == encoded.tokens.len() && n == encoded.offsets.len() && n == encoded.texts.len());
            for ((start, end), from) in encoded.offsets.iter().zip(&encoded.texts) {
                match from {
                    Some(0) => assert!(text.get(*start..*end).is_some()),
                    Some(_) => assert!(pair.as_ref().unwrap().get(*start..*end).is_some()),
                    None => {}
                }
            }
        });
    }
}
