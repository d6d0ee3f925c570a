//! `sparing train transfer` and what draws and times its students.
#![cfg(feature = "train")]

mod common;

use common::{Ran, fixture, sparing};
use std::path::Path;

/// A teacher that tells the labels of a table, and a text to read before.
struct Work(tempfile::TempDir);

impl Work {
    fn new() -> Work {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..40).map(|i| format!("the film is {}\n", ["good,fine", "bad,poor"][i % 2])).collect();
        std::fs::write(folder.path().join("t.csv"), format!("text,label\n{lines}")).unwrap();
        std::fs::write(folder.path().join("plain.txt"), lines.replace('\n', "\n\n")).unwrap();
        let work = Work(folder);
        let how = ["--epochs", "6", "--lr", "5e-3", "--dropout", "0", "--batch", "8"];
        let model = fixture("bert-classify-text");
        sparing(
            &[&["train", "finetune", &model, "--data", &work.at("t.csv"), "--out", &work.at("teacher")][..], &how]
                .concat(),
        )
        .ok();
        work
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn transfer(&self, texts: &[&str], more: &[&str], out: &str) -> Ran {
        let begin = ["--begin-texts", "16", "--begin-steps", "3", "--steps", "8", "--batch", "8"];
        let (teacher, out) = (self.at("teacher"), self.at(out));
        let begin = if more.contains(&"--begin-texts") { &begin[2..] } else { &begin[..] };
        sparing(&[&["train", "transfer", "--teacher", &teacher, "--out", &out], texts, begin, more].concat())
    }
}

#[test]
fn a_student_reads_text_goes_on_with_a_task_and_is_drawn() {
    let work = Work::new();
    let (plain, table) = (work.at("plain.txt"), work.at("t.csv"));
    let (text, task) = (["--corpus", &plain], ["--data", table.as_str()]);
    work.transfer(&text, &["--max-tokens", "16"], "general").ok();
    let general = work.at("general");
    let going_on = ["--student", general.as_str()];
    work.transfer(&task, &going_on, "student").ok();
    assert!(sparing(&["run", &work.at("student"), "the film is bad"]).code == 0);
    let figures = work.at("figures");
    sparing(&["study", "functions", &work.at("teacher"), &work.at("student"), "--out", &figures]).ok();
    for name in ["attention.svg", "networks.svg", "growth.svg"] {
        assert!(Path::new(&figures).join(name).is_file(), "{name}");
    }
    // Keys that are projected have no picture, which is said.
    work.transfer(&task, &["--linear", "4"], "linear").ok();
    let other = work.at("other");
    let told = sparing(&["study", "functions", &work.at("teacher"), &work.at("linear"), "--out", &other]);
    assert!(told.err.contains("no attention.svg") && told.code == 0, "{}", told.err);
    assert!(!Path::new(&other).join("attention.svg").exists());
    // What a student has is not changed on the way, in silence least of all.
    for more in [["--to", "relu"], ["--softmax", "shared"], ["--linear", "4"]] {
        let message = work.transfer(&task, &[&going_on[..], &more].concat(), "never").error(2);
        assert!(message.contains(more[0]) && message.contains("leave it out"), "{message}");
    }
    let message = work.transfer(&task, &["--to", "relu", "--linear", "4"], "never").error(2);
    assert!(message.contains("--linear") && message.contains("--to"), "{message}");
    let message = work.transfer(&task, &["--begin-texts", "0"], "never").error(2);
    assert!(message.contains("--norm-warmup"), "{message}");
    assert!(!Path::new(&work.at("never")).exists());
}

#[test]
fn labels_alone_teach_within_bounds() {
    let work = Work::new();
    let table = work.at("t.csv");
    let told = work.transfer(&["--data", &table], &["--no-teacher", "--lr", "5e-5", "--json"], "alone");
    let summary: serde_json::Value = serde_json::from_str(&told.ok()).unwrap();
    assert_eq!(summary["complete"], true, "{summary}");
    let message = work.transfer(&["--corpus", &work.at("plain.txt")], &["--no-teacher"], "never").error(2);
    assert!(message.contains("needs labels"), "{message}");
}

#[test]
fn a_layer_is_timed_in_every_way() {
    let model = fixture("bert-classify-text");
    let told =
        sparing(&["study", "layer", &model, "--length", "8", "--keys", "4", "--repeats", "1", "-o", "json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row["exact_ms"].as_f64().unwrap() > 0.0 && row["shares"].as_object().unwrap().len() == 5, "{row}");
    }
    let message = sparing(&["study", "layer", &model, "--length", "4000"]).error(2);
    assert!(message.contains("--length 4000"), "{message}");
}
