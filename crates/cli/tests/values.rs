//! `sparing inspect MODEL "text" --attention …`: what economised values do to a text.

mod common;

use common::{Ran, file, fixture, sparing};
use serde_json::Value;

const TEXT: &str = "a joy from start to end";

fn inspect(attention: &str, more: &[&str]) -> Ran {
    let model = fixture("bert-classify-text");
    sparing(&[&["inspect", &model, TEXT, "--attention", attention], more].concat())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Begin and end of every element agree, attributes are quoted, and no character of a text escapes.
fn assert_well_formed(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text}");
        for (at, _) in text.match_indices('&') {
            assert!(["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"].iter().any(|e| text[at..].starts_with(e)), "{text}");
        }
        let end = rest[start..].find('>').unwrap() + start;
        let tag = &rest[start + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2) && !tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_kind_is_examined() {
    let (_data_folder, data) = file("mine.csv", "text\na joy from start to end\na dull film\nthe plot is thin\n");
    let (folder, _) = file("unused", "");
    let calibration = folder.path().join("c.safetensors").display().to_string();
    sparing(&["calibrate", &fixture("bert-classify-text"), "--data", &data, "--text", "text", "--out", &calibration])
        .ok();
    for kind in ["mca", "calibrated", "systematic", "graded", "mean", "int8"] {
        let more = ["--json", "--calibration", &calibration];
        let json = inspect(&format!("{kind}:2,strict"), &more).json();
        let tokens = json["tokens"].as_array().unwrap();
        let layers = json["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 2, "{kind}");
        assert!(tokens.len() > 5 && tokens[0]["text"] == "[CLS]", "{kind}: {tokens:?}");
        for layer in layers {
            let spent = numbers(&layer["spent"]);
            assert_eq!(spent.len(), tokens.len(), "{kind}");
            assert!(spent.iter().all(|share| (0.0..=1.0).contains(share)), "{kind}: {spent:?}");
            let mean = spent.iter().sum::<f64>() / spent.len() as f64;
            assert!((layer["share"].as_f64().unwrap() - mean).abs() < 1e-5, "{kind}: {layer}");
            assert!(layer["bound"].as_f64().unwrap() > 0.0 && layer["error"].as_f64().unwrap() >= 0.0, "{layer}");
        }
        let answer = &json["answer"];
        let probability = |which: &str| answer[which]["probability"].as_f64().unwrap();
        assert!(
            ["exact", "economised"].iter().all(|which| (0.0..=1.0).contains(&probability(which))),
            "{kind}: {answer}"
        );
        assert_eq!(answer["same"], answer["exact"]["label"] == answer["economised"]["label"]);
        assert!(json["run"]["values_flops"].as_u64() <= json["run"]["values_flops_exact"].as_u64(), "{kind}");
    }
    let message = inspect("graded:0.4", &[]).error(1);
    assert!(message.contains("sparing calibrate"), "{message}");
}

#[test]
fn a_tiny_alpha_is_exact() {
    for attention in ["mca:1e-30", "mca:1e-30,strict"] {
        let json = inspect(attention, &["--json"]).json();
        assert_eq!(json["share"], 1.0, "{json}");
        assert_eq!(json["answer"]["exact"], json["answer"]["economised"]);
        assert_eq!(json["answer"]["relative_change"], 0.0);
        for layer in json["layers"].as_array().unwrap() {
            assert!(numbers(&layer["spent"]).iter().all(|share| *share == 1.0), "{layer}");
            assert!(layer["relative_error"].as_f64().unwrap() < 1e-6, "{layer}");
        }
    }
}

#[test]
fn exact_layers_and_seeds_are_told() {
    let json = inspect("mca:2,strict,seed=7,layer0=exact", &["--json"]).json();
    assert_eq!((&json["seed"], &json["attention"]), (&7.into(), &"mca:2,strict,seed=7,layer0=exact".into()));
    let layers = json["layers"].as_array().unwrap();
    assert_eq!(
        (&layers[0]["alpha"], &layers[0]["bound"], &layers[0]["share"]),
        (&Value::Null, &Value::Null, &1.0.into())
    );
    assert_eq!(layers[1]["alpha"], 2.0);
    assert!(layers[1]["relative_error"].as_f64().unwrap() > 0.0);
    let other = inspect("mca:2,strict,seed=8,layer0=exact", &["--json"]).json();
    assert_ne!(json["layers"][1]["error"], other["layers"][1]["error"]);
}

#[test]
fn people_see_tokens_errors_and_the_answer() {
    let shown = inspect("mca:2,strict", &[]).ok();
    for part in ["[CLS]", "[SEP]", "relative error", "Theorem 2's bound", "answer: ", "economised", "fewer FLOPs"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains('\x1b'), "{shown}");
    let shown = inspect("int8:2,strict", &[]).ok();
    assert!(shown.contains("(for mca)"), "{shown}");
}

#[test]
fn the_picture_is_well_formed() {
    let (folder, _) = file("unused", "");
    let path = folder.path().join("values.svg").display().to_string();
    let model = fixture("bert-classify-text");
    let long = "a <b> & \"joy\" from \u{1}start to end ".repeat(12);
    for (text, attention) in [(TEXT, "mca:2,strict"), (&long, "mca:2,layer0=exact"), ("", "mca:1e-30"), ("x", "int8:1")]
    {
        sparing(&["inspect", &model, text, "--attention", attention, "--svg", &path]).ok();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains(">layer 1</text>") && svg.contains(">[CLS]</text>"), "{text}");
    }
    let ran = sparing(&["inspect", &model, TEXT, "--attention", "mca:2", "--svg", "no/such/folder/p.svg"]);
    assert!(ran.error(1).contains("cannot be written"));
}

#[test]
fn every_head_has_an_answer() {
    for (name, part) in [("bert-mlm-text", "tokens get the same answer"), ("gpt2-causal-text", "tokens get the same")] {
        let shown = sparing(&["inspect", &fixture(name), "a joy from start", "--attention", "mca:2,strict"]).ok();
        assert!(shown.contains(part), "{name}: {shown}");
    }
    let answer = fixture("bert-answer-text");
    let ran = sparing(&["inspect", &answer, "Who?", "--pair", "a joy", "--attention", "mca:2,strict", "--json"]).json();
    assert!(ran["answer"]["exact"]["first_token"].is_u64() && ran["pair"] == "a joy", "{ran}");
    for (name, key) in [("bert-token", "best"), ("bert-regress", "values"), ("bert-multilabel", "labels")] {
        let (_folder, model) = common::with_vocabulary(name);
        let ran = sparing(&["inspect", &model, "the cat sat", "--attention", "mca:2,strict", "--json"]).json();
        assert!(ran["answer"]["exact"][key].is_array(), "{name}: {}", ran["answer"]);
    }
    let (_folder, model) = common::with_vocabulary("bert-hidden");
    let shown = sparing(&["inspect", &model, "the cat sat", "--attention", "mca:2,strict"]).ok();
    assert!(shown.contains("output changed by"), "{shown}");
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let model = fixture("bert-classify-text");
    let usage = |args: &[&str], part: &str| {
        let message = sparing(args).error(2);
        assert!(message.contains(part), "{message}");
    };
    usage(&["inspect", &model, "--attention", "mca:0.4"], "give one");
    usage(&["inspect", &model, "a film"], "--attention");
    usage(&["inspect", &model, "a film", "--attention", "exact"], "--attention");
    usage(&["inspect", &model, "a film", "--attention", "mca:0.4", "--length", "4"], "--length");
    usage(&["inspect", &model, "a film", "--attention", "mca:0.4", "--repeats", "4"], "--repeats");
    usage(&["inspect", "a film", "another film", "--attention", "mca:0.4"], "--pair");
    usage(&["inspect", &model, "--pair", "a film"], "--data");
    usage(&["inspect", &fixture("gpt2-causal-text"), "a", "--pair", "b", "--attention", "mca:0.4"], "--pair");
    let message = inspect("mca:0.4,layer9=0.2", &[]).error(1);
    assert!(message.contains("no layer 9"), "{message}");
    let message = inspect("graded:0.4", &["--calibration", "no-such-file"]).error(1);
    assert!(message.contains("no-such-file"), "{message}");
    let no_words = sparing(&["inspect", &fixture("bert-classify"), "a film", "--attention", "mca:0.4"]).error(1);
    assert!(no_words.contains("tokenizer"), "{no_words}");
    let (_folder, mobile) = common::with_vocabulary("mobilebert-classify");
    let message = sparing(&["inspect", &mobile, "the cat", "--attention", "mca:0.4"]).error(1);
    assert!(message.contains("bottleneck"), "{message}");
}

#[test]
fn without_a_model_the_built_in_one_reads_the_text() {
    let json = sparing(&["inspect", "a joy from start to end", "--attention", "mca:0.4", "--json"]).json();
    assert_eq!(json["layers"].as_array().unwrap().len(), 6);
    assert_eq!(json["answer"]["exact"]["label"], "positive");
}
