//! A tokenizer.json that contradicts itself: an error that names the file or an answer, never a panic.

mod common;

use common::*;
use serde_json::{Value, json};
use sparing_model::Model;

/// Sound: WordPiece of a few words with BERT's template.
fn sound() -> Value {
    let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    let added = |id: u32, name: &str| {
        json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
               "special": true})
    };
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "##s"];
    let vocabulary: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(id, w)| (w.to_string(), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(2, "[CLS]"), added(3, "[SEP]")],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]"), text("A", 0), special("[SEP]")],
            "pair": [special("[CLS]"), text("A", 0), special("[SEP]"), text("B", 1), special("[SEP]")],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
            }
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary
        }
    })
}

fn read(definition: &[u8]) -> Result<Model, sparing_model::Error> {
    let config = with(bert_config(), json!({"vocab_size": 20, "max_position_embeddings": 12}));
    let mut tensors = bert_tensors("");
    tensors[0] = counting(&tensors[0].name.clone(), &[20, 4], 0);
    tensors[1] = counting(&tensors[1].name.clone(), &[12, 4], 0);
    let mut all = files(&config, &tensors);
    all.insert("tokenizer.json".into(), definition.to_vec());
    load(all)
}

/// Everything that a tokenizer is asked for; the errors.
fn used(definition: &Value) -> Vec<String> {
    let model = match read(definition.to_string().as_bytes()) {
        Ok(model) => model,
        Err(e) => return vec![e.to_string()],
    };
    let t = model.tokenizer().unwrap();
    let (mut errors, mut ids) = (vec![], (0..20).collect::<Vec<u32>>());
    for text in ["The film's", "", " ", "é\u{301}ﷺ \u{0}日本", "<s>ab##c", "aaaa [CLS] [SEP]x", "abababab"] {
        for (pair, most) in [(None, None), (None, Some(4)), (Some("film a"), None), (Some("s"), Some(9))] {
            match t.encode(text, pair, most) {
                Ok(encoded) => {
                    assert!(encoded.sequence.ids.len() <= most.unwrap_or(12), "{definition}");
                    ids.extend(encoded.sequence.ids);
                }
                Err(e) => errors.push(e),
            }
        }
        errors.extend(t.encode_windows("film", text, None, 1).err());
    }
    for skip in [false, true] {
        errors.extend(t.decode(&ids, skip).err());
        let mut step = t.stream(skip);
        for id in &ids {
            errors.extend(step(*id).err());
            errors.extend(t.decode(&[*id], skip).err());
        }
    }
    errors.into_iter().map(|e| e.to_string()).collect()
}

/// The sound tokenizer with other parts. Another model goes without special tokens.
fn changed(fields: Value) -> Value {
    let bare = json!({"added_tokens": [], "post_processor": null});
    with(if fields.get("model").is_some() { with(sound(), bare) } else { sound() }, fields)
}

fn bpe(fields: Value) -> Value {
    let plain = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "<s>": 4, "s": 5}, "merges": ["a b"]
    });
    changed(json!({"model": with(plain, fields)}))
}

fn unigram(fields: Value) -> Value {
    let plain = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]});
    changed(json!({"model": with(plain, fields)}))
}

fn word_piece(fields: Value) -> Value {
    changed(json!({"model": with(sound()["model"].clone(), fields), "pre_tokenizer": null}))
}

fn template(fields: Value) -> Value {
    changed(json!({"post_processor": with(sound()["post_processor"].clone(), fields)}))
}

fn precompiled(table: Value) -> Value {
    changed(json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}}))
}

fn added(tokens: &[Value]) -> Value {
    let plain = json!({"id": 8, "content": "the", "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": false});
    changed(
        json!({"added_tokens": tokens.iter().map(|fields| with(plain.clone(), fields.clone())).collect::<Vec<_>>()}),
    )
}

fn a_text(name: &str) -> Value {
    json!({"Sequence": {"id": name, "type_id": 0}})
}

#[test]
fn what_makes_the_library_panic_is_an_error_about_the_file() {
    let strip = |token: &str| json!({"type": "Strip", "content": token, "start": 3, "stop": 9});
    let bert = json!({"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 2]});
    let whole = sound()["post_processor"].clone();
    let cases = [
        (precompiled(json!("")), "charsmap"),
        (precompiled(json!("AAAA")), "charsmap"),
        (precompiled(json!("!!")), "Invalid byte 33"),
        // A trie that points outside of itself: found only when a text is looked up.
        (precompiled(json!("BAAAAAAAAAAAAAAA")), "the len is 1"),
        (precompiled(json!(null)), "invalid type: null"),
        (changed(json!({"normalizer": {"type": "Precompiled"}})), "missing field"),
        (changed(json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}})), "chunk size"),
        (template(json!({"single": [a_text("B")]})), "the len is 1"),
        (template(json!({"special_tokens": {}})), "no entry"),
        (changed(json!({"post_processor": {"type": "Sequence", "processors": [whole, bert, whole]}})), "not yet"),
        (bpe(json!({"continuing_subword_prefix": "####"})), "start byte index 4"),
        (bpe(json!({"continuing_subword_prefix": "#", "vocab": {"a": 0, "é": 1}, "merges": ["a é"]})), "char boundary"),
        (with(bpe(json!({})), json!({"decoder": strip("s")})), ""),
        (with(bpe(json!({"vocab": {"": 0, "a": 1}, "merges": []})), json!({"decoder": strip("s")})), ""),
        (changed(json!({"decoder": {"type": "BPEDecoder", "suffix": ""}})), ""),
    ];
    for (definition, expected) in cases {
        let errors = used(&definition);
        let told = errors.iter().find(|e| e.starts_with("tokenizer.json: damaged or at odds with itself"));
        assert!(told.is_some_and(|e| e.contains(expected) && !e.contains('\n')), "{definition}: {errors:?}");
    }
}

#[test]
fn what_would_take_all_memory_is_refused() {
    let doubling = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let looking = json!({"type": "Replace", "pattern": {"Regex": "(?=a)"}, "content": "a"});
    let forty = |list: &str, step: &Value| json!({"type": "Sequence", list: vec![step; 40]});
    let pairs = |part: &str, list: &str, first: &Value, then: &Value| {
        changed(json!({part: forty(list, &json!({"type": "Sequence", list: [first, then]}))}))
    };
    let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
    let spaced = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false});
    let letters = json!({"type": "FixedLength", "length": 1});
    let endless = json!({"[CLS]": {"id": "[CLS]", "ids": vec![2; 2000], "tokens": vec!["[CLS]"; 2000]},
                         "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}});
    let cases = [
        (changed(json!({"normalizer": forty("normalizers", &doubling)})), "its normalizer could make"),
        (changed(json!({"normalizer": forty("normalizers", &looking)})), "its normalizer could make"),
        (changed(json!({"normalizer": forty("normalizers", &json!({"type": "ByteLevel"}))})), "its normalizer could"),
        (changed(json!({"normalizer": {"type": "Prepend", "prepend": "x".repeat(9000)}})), "its normalizer could make"),
        (
            changed(
                json!({"pre_tokenizer": forty("pretokenizers", &json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}))}),
            ),
            "its pre_tokenizer could make",
        ),
        // A character before every piece, and every piece a character.
        (pairs("pre_tokenizer", "pretokenizers", &letters, &metaspace), "its pre_tokenizer could make"),
        (
            changed(json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": vec![&spaced; 6]}})),
            "its pre_tokenizer could make",
        ),
        // What one step writes another makes longer.
        (pairs("normalizer", "normalizers", &replace("ل", "ﷺ"), &json!({"type": "NFKD"})), "its normalizer could make"),
        (
            pairs("normalizer", "normalizers", &replace("ⱥ", "ȺȺ"), &json!({"type": "Lowercase"})),
            "its normalizer could",
        ),
        // Neither alone.
        (
            changed(json!({"normalizer": replace("a", &"a".repeat(999)), "pre_tokenizer": spaced})),
            "its normalizer and pre_tokenizer together could make",
        ),
        (changed(json!({"decoder": forty("decoders", &doubling)})), "its decoder could make"),
        (template(json!({"single": [a_text("A"), a_text("A")]})), "repeats the text"),
        (template(json!({"pair": [a_text("A"), a_text("B"), a_text("B")]})), "repeats the text"),
        (template(json!({"special_tokens": endless})), "adds 2001 special tokens"),
    ];
    for (definition, expected) in cases {
        let message = read(definition.to_string().as_bytes()).err().expect("must not load").to_string();
        assert!(message.starts_with("tokenizer.json: ") && message.contains(expected), "{message} lacks {expected}");
    }
}

/// Odd, but the library copes today: an answer or an error of one line, and no panic that became one.
#[test]
fn what_is_merely_odd_never_panics() {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let split = |regex: &str, behavior: &str| {
        let pattern = json!({"Regex": regex});
        changed(json!({"pre_tokenizer": {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": true}}))
    };
    let normal = |step: Value| changed(json!({"normalizer": step}));
    let decoder = |step: Value| changed(json!({"decoder": step}));
    let cases = [
        sound(),
        normal(json!("x")),
        normal(json!({})),
        normal(json!({"precompiled_charsmap": "AAAA"})),
        normal(replace(json!({"String": ""}), "xx")),
        normal(replace(json!({"Regex": "x*"}), "é")),
        normal(replace(json!({"Regex": "(a|a|b)*(?=c)\\1d"}), "")),
        normal(replace(json!({"Regex": "("}), "")),
        normal(replace(json!({"Regex": "[\\s\\S]"}), "")),
        normal(json!({"type": "Prepend", "prepend": ""})),
        split("", "MergedWithPrevious"),
        split("(?<=a)", "MergedWithNext"),
        split("x*", "Contiguous"),
        split("[", "Removed"),
        changed(json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "", "prepend_scheme": "always"}})),
        changed(json!({"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ""}})),
        changed(
            json!({"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 9}}),
        ),
        changed(json!({"truncation": {"direction": "Left", "max_length": 0, "strategy": "OnlySecond", "stride": 0}})),
        changed(json!({"padding": {"strategy": {"Fixed": u32::MAX}, "direction": "Right", "pad_to_multiple_of": 0,
                                   "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}})),
        template(json!({"single": [], "pair": []})),
        template(json!({"pair": [a_text("B")]})),
        template(json!({"single": [{"Sequence": {"id": "A", "type_id": u32::MAX}}]})),
        template(json!({"special_tokens": {"[CLS]": {"id": "x", "ids": [u32::MAX, 3], "tokens": ["[CLS]"]},
                                           "[SEP]": {"id": "y", "ids": [], "tokens": ["[SEP]", ""]}}})),
        changed(json!({"post_processor": {"type": "Sequence", "processors": []}})),
        changed(json!({"post_processor": {"type": "BertProcessing", "sep": ["x", u32::MAX], "cls": ["y", 2]}})),
        decoder(json!(3)),
        decoder(json!({"type": "WordPiece", "prefix": "", "cleanup": true})),
        decoder(json!({"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": true})),
        decoder(replace(json!({"Regex": "x*"}), "é")),
        added(&[json!({"content": ""}), json!({"content": "", "special": true, "id": 9})]),
        added(&[
            json!({"content": " ", "lstrip": true, "rstrip": true}),
            json!({"content": "  ", "rstrip": true, "id": 9}),
        ]),
        added(&[json!({"id": 5}), json!({"id": 6}), json!({"id": 5, "content": "a"})]),
        added(&[json!({"content": "new", "id": u32::MAX})]),
        with(added(&[json!({"normalized": true})]), json!({"normalizer": replace(json!({"Regex": "."}), "")})),
        word_piece(json!({"unk_token": "?"})),
        word_piece(json!({"vocab": {}})),
        word_piece(json!({"vocab": {"a": 19, "[UNK]": 3}})),
        word_piece(json!({"vocab": {"a": 1, "": 3, "[UNK]": 1}, "continuing_subword_prefix": ""})),
        word_piece(json!({"max_input_chars_per_word": u64::MAX})),
        changed(json!({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0}}})),
        changed(json!({"model": null})),
        bpe(json!({"merges": ["x y"]})),
        bpe(json!({"merges": ["a c"]})),
        bpe(json!({"merges": ["a"]})),
        bpe(json!({"merges": [["a", "b"], ["a", "b", "c"]]})),
        bpe(json!({"unk_token": "?", "fuse_unk": true})),
        bpe(json!({"byte_fallback": true})),
        bpe(json!({"byte_fallback": true, "vocab": {"<0xE6>": 0, "a": 1}, "merges": []})),
        with(
            bpe(json!({"vocab": {"<0xé>": 0, "<0x+1>": 1, "<0xFF>": 2, "a": 3}, "merges": []})),
            json!({"decoder": {"type": "ByteFallback"}}),
        ),
        bpe(json!({"dropout": 7.5})),
        bpe(json!({"vocab": {"": 0, "a": 1, "b": 2}, "merges": [["a", ""], ["", "a"], ["", ""]]})),
        bpe(json!({"vocab": {"a": 0, "b": 0, "ab": 0, "aa": 0}, "merges": ["a b", "a a"]})),
        bpe(json!({"vocab": {"a": 1, "b": 7, "ab": 19}})),
        unigram(json!({"unk_id": 9})),
        unigram(json!({"unk_id": null})),
        unigram(json!({"vocab": []})),
        unigram(json!({"vocab": [["a", 0.0], ["a", 1.0], ["", 3.0]]})),
        unigram(json!({"vocab": [["<unk>", -1.7e308], ["a", -1.7e308], ["b", -1.7e308]]})),
        unigram(json!({"byte_fallback": true, "vocab": [["<unk>", 0.0], ["<0xC3>", 0.0]]})),
    ];
    for definition in cases {
        let wrong = |e: &String| e.contains('\n') || e.contains("damaged or at odds");
        let found = used(&definition).into_iter().find(wrong);
        assert_eq!(found, None, "{definition}");
    }
    assert_eq!(used(&sound()), [""; 0]);
}
