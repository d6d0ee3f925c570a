//! `sparing optimize` on networks that are not like BERT: layers that share weights, language models, blocks without heads.

mod common;

use common::{copied, file, fixture, piped, sparing, with_vocabulary};
use serde_json::Value;
use std::path::Path;

/// Texts of a small vocabulary, each once.
fn texts(count: usize) -> Vec<String> {
    let words = ["the", "cat", "sat", "on", "mat", "new", "york"];
    let digits = |i: usize| [i % 7, i / 7 % 7, i / 49 % 7, (i * 3 + i / 7) % 7, (i * 5) % 7];
    let text = |i: usize| digits(i)[..3 + i % 3].iter().map(|word| words[*word]).collect::<Vec<_>>().join(" ");
    (0..count).map(text).collect()
}

/// They are labelled as a model itself would, mostly.
fn labelled(model: &str) -> (tempfile::TempDir, String) {
    let texts = texts(120);
    let answers = piped(&["run", model, "--json"], texts.join("\n").as_bytes()).json_lines();
    let row = |(i, (text, answer)): (usize, (&String, &Value))| {
        format!("{text},{}\n", if i.is_multiple_of(11) { "one" } else { answer["label"].as_str().unwrap() })
    };
    let rows: String = texts.iter().zip(&answers).enumerate().map(row).collect();
    file("mine.csv", format!("text,label\n{rows}"))
}

fn optimize(model: &str, data: &str, out: &Path, more: &[&str]) -> Value {
    // Threads wait for each other longer than so little takes.
    let args = ["optimize", model, "--data", data, "--out", out.to_str().unwrap(), "--threads", "1"];
    sparing(&[&args[..], &["--json", "--trials", "6"], more].concat()).json()
}

#[test]
fn layers_that_share_their_weights_are_optimised_as_one() {
    let (_copy, model) = with_vocabulary("albert-classify");
    let (_table, data) = labelled(&model);
    let folder = tempfile::tempdir().unwrap();
    for (focus, loss) in [("speed", &["--max-loss", "60%"][..]), ("size", &["--max-loss", "60%"]), ("accuracy", &[])] {
        let out = folder.path().join(focus);
        let report = optimize(&model, &data, &out, &[&["--focus", focus], loss].concat());
        let tried = report["candidates"].as_array().unwrap();
        assert!(tried.iter().any(|one| one["plan"]["left"].is_object()), "{focus}: no part of it was removed");
        for one in tried {
            let what = one["what"].as_str().unwrap();
            // Three layers have one tensor, and so the same bits.
            if let Some((_, bits)) = what.split_once("attention by layer in ") {
                let bits: Vec<&str> = bits.split(',').next().unwrap().split(' ').collect();
                assert!(bits.len() == 3 && bits.iter().all(|one| *one == bits[0]), "{what}");
            }
        }
        sparing(&["run", out.to_str().unwrap(), "the cat sat", "--json"]).ok();
    }
}

#[test]
fn language_models_need_texts_and_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    let (_table, data) = file("texts.csv", format!("text\n{}\n", texts(60).join("\n")));
    for model in ["gpt2-causal-text", "bert-mlm-text"] {
        let how = ["--focus", "size", "--economies", "bits", "--max-loss", "20%"];
        let report = optimize(&fixture(model), &data, &folder.path().join(model), &how);
        assert_eq!(report["task"]["report_rows"], 30, "{model}");
        assert!(report["chosen"].is_u64(), "{model}: {report}");
    }
    // Who answers with labels needs them.
    let out = folder.path().join("none").display().to_string();
    let told = sparing(&["optimize", &fixture("bert-classify-text"), "--data", &data, "--out", &out]).error(1);
    assert!(told.contains("texts.csv: no column looks like a label; name it with --label (there are: text)"), "{told}");
}

#[cfg(feature = "train")]
#[test]
fn a_head_that_cannot_be_trained_is_told_before_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let (_table, data) = file("texts.csv", format!("text\n{}\n", texts(60).join("\n")));
    let out = folder.path().join("m").display().to_string();
    let args = ["optimize", &fixture("gpt2-causal-text"), "--data", &data, "--out", &out];
    let ran = sparing(&[&args[..], &["--recover", "--train", &data]].concat());
    assert!(!ran.err.contains("budget"), "it searched: {}", ran.err);
    let told = ran.error(2);
    assert!(told.contains("--recover: this head cannot be fine-tuned"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A model that was optimised is a model like any other, whatever it lost.
#[test]
fn what_has_no_heads_left_is_optimised_again() {
    let (_copy, model) = copied("bert-classify-text");
    let (_table, data) = common::labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let (first, less) = (folder.path().join("first"), folder.path().join("less"));
    let name = first.to_str().unwrap();
    let how = ["--economies", "blocks", "--max-loss", "90%"];
    optimize(&model, &data, &first, &how);
    let plan: Value = serde_json::from_slice(&std::fs::read(first.join("sparing.json")).unwrap()).unwrap();
    let layers = plan["elements"]["layers"].as_object().unwrap();
    assert!(layers.values().any(|layer| layer["heads"] == serde_json::json!([])), "{plan}");
    // All economies: values are calibrated, what maps read is summed up, and bits are rounded.
    for focus in ["speed", "size"] {
        optimize(name, &data, &less, &["--focus", focus, "--max-loss", "60%", "--overwrite"]);
    }
    let told = sparing(&["calibrate", name, "--data", &data]).ok();
    assert!(told.contains("no heads are left"), "{told}");
    sparing(&["eval", name, "--data", &data, "--attention", "graded:0.4"]).ok();
    let bits = folder.path().join("bits").display().to_string();
    sparing(&["quantize", name, "--out", &bits, "--calibrate", &data, "--rounding", "compensated"]).ok();
}
