//! `sparing optimize --recover`: what is wrong with its rows, and a training that fails.
#![cfg(feature = "train")]

mod common;

use common::{file, fixture, labelled, labelled_in, sparing};
use std::path::Path;

#[test]
fn labels_that_do_not_fit_are_told_before_the_search() {
    let model = fixture("bert-classify-text");
    let (table, data) = labelled(&model, 120);
    let rows: String = (0..40).map(|i| format!("text {i},{}\n", ["ham", "spam"][i % 2])).collect();
    let (_wrong, wrong) = file("wrong.csv", format!("review,stars\n{rows}"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m").display().to_string();
    let recover =
        |train: &str| sparing(&["optimize", &model, "--data", &data, "--out", &out, "--recover", "--train", train]);
    let told = recover(&wrong).error(1);
    assert!(told.contains("wrong.csv") && told.contains("ham"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // The same file is the same file, whatever it is called.
    let again = table.path().join("..").join(table.path().file_name().unwrap()).join("mine.csv");
    let told = recover(again.to_str().unwrap()).error(2);
    assert!(told.contains("training needs others"), "{told}");
}

/// What is learnt by heart proves nothing.
#[test]
fn rows_that_are_searched_or_reported_with_are_not_trained_with() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m").display().to_string();
    let recover = |train: &str| {
        let args = ["optimize", &model, "--data", &data, "--out", &out, "--recover", "--train", train, "--json"];
        let how = ["--rounds", "1", "--epochs", "1", "--economies", "heads", "--trials", "2", "--threads", "1"];
        sparing(&[&args[..], &how, &["--max-loss", "20%"]].concat())
    };
    // A copy of the rows is the same rows under another name.
    let (_copy, copy) = labelled_in(&model, 0..30);
    let told = recover(&copy).error(1);
    assert!(told.contains("rows are left without") && !Path::new(&out).exists(), "{told}");
    let (_some, some) = labelled_in(&model, 90..240);
    let notes = recover(&some).json()["notes"].to_string();
    assert!(notes.contains("rows left out, for training may not see"), "{notes}");
}

#[test]
fn a_training_that_failed_goes_on_once_it_can() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let (_other, rows) = labelled_in(&model, 200..300);
    let folder = tempfile::tempdir().unwrap();
    let there = |name: &str| folder.path().join(name);
    // Something is in the way of the first training.
    std::fs::create_dir(there(".m.rounds")).unwrap();
    std::fs::write(there(".m.rounds/round-1-before"), "").unwrap();
    let out = there("m").display().to_string();
    let args = ["optimize", &model, "--data", &data, "--out", &out, "--group", "4", "--json", "--resume"];
    let how = ["--recover", "--train", &rows, "--rounds", "1", "--epochs", "1", "--economies", "heads,width"];
    let run = || sparing(&[&args[..], &how, &["--max-loss", "20%"]].concat());
    let ran = run();
    // A script sees it in the report, a person at the end of what is told.
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("warning: ") && last.contains("round-1-before"), "{}", ran.err);
    let report = ran.json();
    assert_eq!(report["ended"], "failed");
    assert!(report["failure"].as_str().unwrap().contains("round-1-before"), "{}", report["failure"]);
    let card = std::fs::read_to_string(there("m/README.md")).unwrap();
    assert!(card.contains("Fine-tuning failed, so the search ended early."), "{card}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("fine-tuning failed") && notes.contains("round-1-before") && notes.contains("--resume"));
    assert!(!notes.contains("stopped"), "{notes}");
    let is_there = |name: &str| Path::exists(&there(name));
    assert!(is_there("m/report.json") && is_there(".m.search.jsonl") && is_there(".m.rounds"));
    std::fs::remove_file(there(".m.rounds/round-1-before")).unwrap();
    let ran = run();
    assert!(ran.err.contains("were tried before"), "{}", ran.err);
    assert!(!ran.err.contains("warning: "), "{}", ran.err);
    let report = ran.json();
    assert!(report["ended"] == "whole" && report["failure"].is_null());
    assert!(!report["notes"].to_string().contains("failed"), "{}", report["notes"]);
    assert!(report["candidates"].to_string().contains("fine-tuned"));
    assert!(!is_there(".m.search.jsonl") && !is_there(".m.rounds"));
}

/// The published way: what the queue took, by trials that are trained for a moment, is trained to the end.
#[test]
fn what_the_queue_took_is_trained_to_the_end() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let (_other, rows) = labelled_in(&model, 200..300);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m").display().to_string();
    let args = ["optimize", &model, "--data", &data, "--out", &out, "--group", "4", "--strategy", "paper"];
    let how = ["--analysis", "finetune", "--recover", "--train", &rows, "--epochs", "1"];
    let ran = sparing(&[&args[..], &how, &["--economies", "blocks,heads,width", "--max-loss", "40%"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let last = ran.err.lines().rfind(|line| line.contains(" last: ")).unwrap_or_default();
    assert!(last.contains("after training"), "{}", ran.err);
}

/// Where all that the queue took is too much, half of it is trained, and so on: at most as many trainings as are asked for.
#[test]
fn where_all_that_was_taken_is_too_much_less_of_it_is_trained() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let (_other, rows) = labelled_in(&model, 200..300);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m").display().to_string();
    let args = ["optimize", &model, "--data", &data, "--out", &out, "--strategy", "paper", "--thresholds", "1000,1001"];
    let how = ["--recover", "--train", &rows, "--epochs", "1", "--lr", "0", "--economies", "blocks", "--rounds", "2"];
    let ran = sparing(&[&args[..], &how, &["--max-loss", "0.1%", "--json"]].concat());
    let trained = |line: &&str| line.contains(" after training");
    let name = |line: &str| line.split([' ', ':']).nth(1).unwrap_or_default().to_string();
    let names: Vec<String> = ran.err.lines().filter(trained).map(name).collect();
    assert_eq!(names, ["last", "first-2"], "{}", ran.err);
    let report = ran.json();
    assert!(report["notes"].to_string().contains("by its own thresholds the strategy went as far as"), "{report}");
}
