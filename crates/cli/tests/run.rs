//! `sparing run` with every kind of head, in words and in JSON.

mod common;

use common::{copied, file, fixture, piped, sparing, spoilt_in, with_number, with_vocabulary};
use serde_json::Value;

#[test]
fn a_classifier_names_labels() {
    let model = fixture("bert-classify-text");
    let one = sparing(&["run", &model, "a gorgeous , witty film"]).ok();
    assert_eq!(one.lines().count(), 3);
    assert!(one.lines().all(|line| line.ends_with('%')), "{one}");
    let two = sparing(&["run", &model, "a film", "a plot"]).ok();
    assert!(two.lines().count() == 2 && two.lines().all(|line| line.contains("%  a ")), "{two}");
}

#[test]
fn probabilities_are_those_of_the_python_reference() {
    let model = fixture("bert-classify-text");
    let golden: Value = serde_json::from_slice(&std::fs::read(format!("{model}/golden.json")).unwrap()).unwrap();
    for example in golden["texts"].as_array().unwrap() {
        let mut args = vec!["run", &model, "--json", example["text"].as_str().unwrap()];
        args.extend(example["pair"].as_str().iter().flat_map(|pair| ["--pair", pair]));
        let answer = &sparing(&args).json_lines()[0];
        let logits: Vec<f64> = example["outputs"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let sum: f64 = logits.iter().map(|x| x.exp()).sum();
        for score in answer["scores"].as_array().unwrap() {
            let i = ["zero", "one", "two"].iter().position(|l| *l == score["label"]).unwrap();
            let difference = score["score"].as_f64().unwrap() - logits[i].exp() / sum;
            assert!(difference.abs() < 1e-4, "{example} {answer}");
        }
        assert_eq!(answer["tokens"], example["ids"].as_array().unwrap().len());
    }
}

#[test]
fn several_labels_and_numbers() {
    let (_folder, model) = with_vocabulary("bert-multilabel");
    let answer = &sparing(&["run", &model, "the cat", "--json", "--threshold", "0"]).json_lines()[0];
    assert_eq!(answer["labels"].as_array().unwrap().len(), answer["scores"].as_array().unwrap().len());
    let none = &sparing(&["run", &model, "the cat", "--json", "--threshold", "1.1"]).json_lines()[0];
    assert_eq!(none["labels"].as_array().unwrap().len(), 0);
    assert!(sparing(&["run", &model, "the cat", "--threshold", "0"]).ok().contains('✓'));

    let (_folder, model) = with_vocabulary("bert-regress");
    let answer = &sparing(&["run", &model, "the cat", "--json"]).json_lines()[0];
    let shown: f64 = sparing(&["run", &model, "the cat"]).ok().trim().parse().unwrap();
    assert!((answer["value"].as_f64().unwrap() - shown).abs() < 1e-4);
}

#[test]
fn a_tagger_labels_words() {
    let (_folder, model) = with_vocabulary("bert-token");
    let answer = &sparing(&["run", &model, "the cats  sat.", "--json"]).json_lines()[0];
    let words: Vec<(&str, u64, u64)> = answer["words"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| (w["text"].as_str().unwrap(), w["start"].as_u64().unwrap(), w["end"].as_u64().unwrap()))
        .collect();
    assert_eq!(words, [("the", 0, 3), ("cats", 4, 8), ("sat", 10, 13), (".", 13, 14)]);
    assert!(sparing(&["run", &model, "the cats"]).ok().starts_with("text"));
}

#[test]
fn vectors() {
    let model = fixture("bert-embed-mean");
    let lines = sparing(&["run", &model, "a film", "a plot", "--json"]).json_lines();
    let vector: Vec<f64> = lines[0]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    let shown = sparing(&["run", &model, "a film", "a plot"]).ok();
    assert!(shown.contains("cosine similarity") && shown.contains("1.000"), "{shown}");

    let (_folder, model) = with_vocabulary("bert-hidden");
    let hidden = &sparing(&["run", &model, "the cat sat", "--json"]).json_lines()[0]["hidden"];
    assert_eq!(hidden.as_array().unwrap().len(), 5);
    assert!(sparing(&["run", &model, "the cat sat"]).ok().starts_with("5 tokens x "));
}

#[test]
fn gaps_are_filled() {
    let model = fixture("bert-mlm-text");
    let answer = &sparing(&["run", &model, "a [MASK] of <mask> !", "--json", "--top", "3"]).json_lines()[0];
    let masks = answer["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    assert!(masks.iter().all(|mask| mask.as_array().unwrap().len() == 3));
    let filled = masks[0][0]["filled"].as_str().unwrap();
    assert!(filled.contains(masks[0][0]["token"].as_str().unwrap().trim_start_matches("##")), "{answer}");
    assert!(sparing(&["run", &model, "the [MASK] is good ."]).ok().starts_with("word"));
    assert_eq!(piped(&["run", &model], b"the [MASK]\na [MASK]\n").ok().lines().count(), 2);
}

#[test]
fn questions_are_answered_from_the_text() {
    let model = fixture("bert-answer-text");
    let context = "the film is good . ".repeat(30);
    let answer = &sparing(&["run", &model, "is it good", "--context", &context, "--json"]).json_lines()[0];
    let (start, end) = (answer["start"].as_u64().unwrap() as usize, answer["end"].as_u64().unwrap() as usize);
    assert_eq!(&context[start..end], answer["answer"].as_str().unwrap());
    assert!(answer["windows"].as_u64().unwrap() > 1, "{answer}");
    let (_folder, path) = file("article.txt", &context);
    let shown = sparing(&["run", &model, "is it good", "--context-file", &path]).ok();
    assert!(shown.contains("score"), "{shown}");
}

#[test]
fn text_is_generated_and_sampling_is_seeded() {
    let model = fixture("gpt2-causal-text");
    let generate = |extra: &[&str]| {
        let mut args = vec!["run", &model, "The film is good", "--max-new-tokens", "8", "--json"];
        args.extend(extra);
        sparing(&args).json_lines()[0].clone()
    };
    let greedy = generate(&[]);
    assert_eq!(greedy["new_tokens"], 8);
    assert_eq!(greedy["stopped"], "length");
    assert_eq!(generate(&["--temperature", "2", "--seed", "5"]), generate(&["--temperature", "2", "--seed", "5"]));
    assert_ne!(generate(&["--temperature", "2", "--seed", "5"]), generate(&["--temperature", "2", "--seed", "6"]));
    let shown = sparing(&["run", &model, "The film", "--max-new-tokens", "3", "--temperature", "1"]);
    assert!(shown.err.contains("seed 0"), "{}", shown.err);
    assert!(shown.ok().starts_with("The film"));
}

#[test]
fn texts_come_from_files_and_pipes() {
    let model = fixture("bert-classify-text");
    let from_pipe = piped(&["run", &model, "--json"], "a film\n\nthe plot\r\n".as_bytes()).json_lines();
    let texts: Vec<&str> = from_pipe.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a film", "", "the plot"]);
    let (_a, lines) = file("texts.txt", "a film\n\nthe plot");
    assert_eq!(sparing(&["run", &model, "--json", "--file", &lines]).json_lines(), from_pipe);
    assert_eq!(piped(&["run", &model, "--json", "--file", "-"], b"a film\n\nthe plot").json_lines(), from_pipe);

    let (_b, csv) = file("texts.csv", "id,review,about\n1,a film,x\n2,\"the, plot\",y\n");
    let rows = sparing(&["run", &model, "--json", "--file", &csv, "--text", "review", "--pair", "about"]).json_lines();
    assert_eq!(rows[1]["text"], "the, plot");
    assert_eq!(rows[1]["pair"], "y");
    let (_c, jsonl) = file("texts.jsonl", "{\"review\": \"a film\"}\n{\"review\": \"the plot\"}\n");
    let ran = sparing(&["run", &model, "--json", "--file", &jsonl]);
    assert!(ran.err.starts_with("note: ") && ran.err.contains("guessed"), "{}", ran.err);
    assert_eq!(ran.json_lines().len(), 2);
}

#[test]
fn every_precision_answers() {
    let model = fixture("bert-classify-text");
    for precision in ["f32", "bf16", "int8", "auto"] {
        let answer =
            &sparing(&["run", &model, "a film", "--json", "--precision", precision, "--threads", "2"]).json_lines()[0];
        assert!(answer["score"].as_f64().unwrap() > 0.3, "{precision}: {answer}");
    }
}

#[test]
fn batches_do_not_change_answers() {
    let model = fixture("bert-classify-text");
    let lines = "a film\nthe plot is thin\na film\nthey call her a classic\n".repeat(8);
    let one = piped(&["run", &model, "--json", "--batch-tokens", "1"], lines.as_bytes()).json_lines();
    let many = piped(&["run", &model, "--json"], lines.as_bytes()).json_lines();
    for (a, b) in one.iter().zip(&many) {
        assert_eq!((&a["text"], &a["label"]), (&b["text"], &b["label"]));
        assert!((a["score"].as_f64().unwrap() - b["score"].as_f64().unwrap()).abs() < 1e-5);
    }
    assert_eq!((one.len(), many.len()), (32, 32));
}

/// A model that makes no number of a text that holds this token.
fn spoilt(model: &str, token: usize) -> (tempfile::TempDir, String) {
    let word = sparing_model::Model::load(model.as_ref()).unwrap().architecture.embeddings.word;
    spoilt_in(model, &word, token)
}

/// Whatever the head, the text is named, what came before it is shown, and nothing is shown for it.
#[test]
fn what_is_not_a_number_is_no_answer() {
    let written = |name: &str| {
        let words = std::fs::read_to_string(format!("{}/vocab.txt", fixture(name))).unwrap();
        spoilt(&fixture(name), words.lines().position(|word| word == "bad").unwrap())
    };
    // "york" is the twelfth of the words that such a vocabulary has.
    let small = |name: &str| spoilt(&with_vocabulary(name).1, 11);
    let (good, bad) = (["the film is good", "the film is bad"], ["the cat sat", "new york"]);
    for ((_folder, model), texts) in [
        (written("bert-classify-text"), good),
        (written("bert-embed-mean"), good),
        (small("bert-multilabel"), bad),
        (small("bert-regress"), bad),
        (small("bert-token"), bad),
        (small("bert-hidden"), bad),
    ] {
        for json in [false, true] {
            let args = [&["run", &model, texts[0], texts[1]][..], if json { &["--json"] } else { &[] }].concat();
            let ran = sparing(&args);
            assert!(!ran.out.is_empty() && !ran.out.contains("null") && !ran.out.contains("NaN"), "{}", ran.out);
            if json {
                assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
            }
            let message = ran.error(1);
            assert!(message.starts_with(&format!("text 2 (\"{}\"): score is NaN", texts[1])), "{message}");
        }
    }
    // The word table of these two is a map of its own right, which is refused as a whole: what is there overflows.
    let overflows = |name: &str, norm: &str| with_number(&fixture(name), norm, 0, f32::MAX);
    let (_folder, model) = overflows("bert-mlm-text", "cls.predictions.transform.LayerNorm.weight");
    let message = sparing(&["run", &model, "the [MASK] is good"]).error(1);
    assert!(message.starts_with("text 1 (\"the [MASK] is good\"): score is inf"), "{message}");
    let (_folder, model) = written("bert-answer-text");
    let message = sparing(&["run", &model, "is it good", "--context", "the film is bad"]).error(1);
    assert!(message.starts_with("text 1 (\"is it good\"): score is NaN"), "{message}");
    let (_folder, model) = overflows("gpt2-causal-text", "transformer.ln_f.weight");
    let message = sparing(&["run", &model, "The film is good", "--json"]).error(1);
    assert!(message.starts_with("text 1 (\"The film is good\"): score is inf"), "{message}");
    // Where texts are lines, so is the place.
    let (_folder, model) = written("bert-classify-text");
    let message = piped(&["run", &model, "--json"], b"a film\na bad film\n").error(1);
    assert!(message.starts_with("stdin line 2 (\"a bad film\"): score is NaN"), "{message}");
}

/// Attention takes the largest of its scores, and ReLU the larger of a number and zero: what is no number would not come out as one.
#[test]
fn weights_that_are_no_numbers_are_refused_before_they_are_swallowed() {
    let model = fixture("bert-classify-text");
    for part in [
        "attention.self.query.weight",
        "attention.self.query.bias",
        "attention.self.key.weight",
        "intermediate.dense.weight",
        "intermediate.dense.bias",
        "output.LayerNorm.weight",
    ] {
        let tensor = format!("bert.encoder.layer.0.{part}");
        let (_folder, model) = spoilt_in(&model, &tensor, 3);
        for precision in ["f32", "bf16", "int8"] {
            let message = sparing(&["run", &model, "the film is good", "--precision", precision]).error(1);
            assert!(message.contains(&format!("tensor \"{tensor}\"")) && message.contains("not finite"), "{message}");
        }
    }
    // MobileBERT's norms have no statistics: their weights are scales.
    let (_folder, model) = with_vocabulary("mobilebert-classify");
    let tensor = "mobilebert.encoder.layer.0.attention.output.LayerNorm.weight";
    let (_folder, model) = spoilt_in(&model, tensor, 3);
    let message = sparing(&["run", &model, "the cat"]).error(1);
    assert!(message.contains(&format!("tensor \"{tensor}\"")) && message.contains("not finite"), "{message}");
    let (_folder, model) = spoilt(&fixture("bert-mlm-text"), 7);
    let message = sparing(&["run", &model, "the [MASK] is good"]).error(1);
    assert!(message.contains("word_embeddings") && message.contains("not finite"), "{message}");
}

#[test]
fn texts_without_words_are_told() {
    for (input, told) in [("a film\n\n", 1), ("[PAD] [PAD]\n[SEP]\n", 1), ("a film\n", 0)] {
        let ran = piped(&["run", &fixture("bert-classify-text"), "--json"], input.as_bytes());
        assert_eq!(ran.err.matches("has no words").count(), told, "{input}: {}", ran.err);
        assert_eq!(ran.ok().lines().count(), input.lines().count());
    }
    let ran = sparing(&["run", &fixture("bert-mlm-text"), "[MASK]"]);
    assert!(ran.code == 0 && !ran.err.contains("has no words"), "{}", ran.err);
}

#[test]
fn layers_that_the_configuration_leaves_out_are_told() {
    let (_folder, model) = copied("bert-classify-text");
    let path = std::path::Path::new(&model).join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(config["num_hidden_layers"], 2);
    let ran = sparing(&["run", &model, "the film is good"]);
    assert!(!ran.err.contains("layer"), "{}", ran.err);
    config["num_hidden_layers"] = 1.into();
    std::fs::write(&path, config.to_string()).unwrap();
    let ran = sparing(&["run", &model, "the film is good"]);
    assert!(ran.err.contains("says 1 layer, the weights hold 1 more"), "{}", ran.err);
    assert!(ran.ok().contains('%'));
    config["num_hidden_layers"] = 0.into();
    std::fs::write(&path, config.to_string()).unwrap();
    let ran = sparing(&["run", &model, "the film is good"]);
    assert!(ran.err.contains("says 0 layers, the weights hold 2 more"), "{}", ran.err);
}
