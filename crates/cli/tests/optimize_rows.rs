//! Which rows `sparing optimize` searches with and reports on, and the order and the rule by which it goes.

mod common;

use common::{fixture, labelled, sparing};
use serde_json::Value;
use std::path::Path;

/// Two tables without a text in common.
fn tables(folder: &Path, model: &str) -> [String; 2] {
    let (_whole, whole) = labelled(model, 180);
    let text = std::fs::read_to_string(whole).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    [("mine.csv", &rows[..120]), ("unseen.csv", &rows[120..])].map(|(name, rows)| {
        let path = folder.join(name);
        std::fs::write(&path, format!("{head}\n{}\n", rows.join("\n"))).unwrap();
        path.display().to_string()
    })
}

fn optimize(folder: &Path, model: &str, name: &str, more: &[&str]) -> Value {
    let out = folder.join(name).display().to_string();
    let args = ["optimize", model, "--out", &out, "--group", "16", "--json"];
    sparing(&[&args[..], more].concat()).json()
}

#[test]
fn rows_for_the_report_alone_are_in_no_search() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let [data, unseen] = tables(folder.path(), &model);
    let optimize = |name: &str, unseen: &str| {
        optimize(
            folder.path(),
            &model,
            name,
            &["--data", &data, "--unseen", unseen, "--economies", "heads", "--trials", "2"],
        )
    };
    let rows = |report: &Value| [&report["task"]["search_rows"], &report["task"]["report_rows"]].map(Value::as_u64);
    let report = optimize("apart", &unseen);
    // A third of those that are not reported with calibrates.
    assert_eq!(rows(&report), [Some(80), Some(60)]);
    // Three of them are searched with too: not any more.
    let some: Vec<String> = std::fs::read_to_string(&data).unwrap().lines().skip(1).take(3).map(String::from).collect();
    std::fs::write(&unseen, std::fs::read_to_string(&unseen).unwrap() + &some.join("\n") + "\n").unwrap();
    let report = optimize("mixed", &unseen);
    assert_eq!(rows(&report), [Some(78), Some(63)]);
    assert!(report["notes"].to_string().contains("3 rows left out"), "{}", report["notes"]);
    // The same file is the same file, whatever it is called.
    let again = folder.path().join("..").join(folder.path().file_name().unwrap()).join("mine.csv");
    let again = again.display().to_string();
    let out = folder.path().join("none").display().to_string();
    for same in [&data, &again] {
        let told = sparing(&["optimize", &model, "--data", &data, "--unseen", same, "--out", &out]).error(2);
        assert!(told.contains("--unseen") && told.contains("searched with"), "{told}");
    }
    // A copy leaves nothing to search with.
    let copy = folder.path().join("copy.csv").display().to_string();
    std::fs::copy(&data, &copy).unwrap();
    let told = sparing(&["optimize", &model, "--data", &data, "--unseen", &copy, "--out", &out]).error(1);
    assert!(told.contains("mine.csv: 0 rows are left"), "{told}");
}

/// What calibrates has texts alone, so there is nothing to rename in it.
#[test]
fn labels_of_other_names_are_searched_with_beside_a_table_to_calibrate_with() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let [data, texts] = tables(folder.path(), &model);
    let theirs = std::fs::read_to_string(&data).unwrap().replace("LABEL_1", "Good");
    std::fs::write(&data, theirs).unwrap();
    let how = ["--data", &data, "--calibrate", &texts, "--labels", "good=one", "--economies", "heads"];
    let report = optimize(folder.path(), &model, "renamed", &[&how[..], &["--trials", "1"]].concat());
    assert_eq!(report["task"]["search_rows"], 60);
}

#[test]
fn a_strategy_begins_with_the_end_that_it_is_told() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let [data, _] = tables(folder.path(), &model);
    let first = |end: &str| {
        let how = [
            "--data",
            &data,
            "--strategy",
            "paper",
            "--from",
            end,
            "--economies",
            "blocks",
            "--focus",
            "size",
            "--trials",
            "1",
        ];
        let report = optimize(folder.path(), &model, end, &how);
        let sites: Vec<usize> = report["candidates"][0]["plan"]["left"]
            .as_object()
            .unwrap()
            .keys()
            .map(|key| key.parse().unwrap())
            .collect();
        sites[0]
    };
    let (top, bottom) = (first("top"), first("bottom"));
    assert!(bottom < top, "{bottom} {top}");
}

#[test]
fn most_rows_may_not_get_worse_if_that_matters() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let [data, _] = tables(folder.path(), &model);
    let how = ["--data", &data, "--max-loss", "90%", "--focus", "size", "--economies", "blocks", "--trials", "12"];
    let any = optimize(folder.path(), &model, "any", &how);
    let most = optimize(folder.path(), &model, "most", &[&how[..], &["--most-rows"]].concat());
    // Most of these rows are answered with less confidence once a block is gone.
    assert!(any["chosen"].is_u64() && most["chosen"].is_null(), "{} {}", any["chosen"], most["chosen"]);
    assert!(most["notes"].to_string().contains("makes most rows worse"), "{}", most["notes"]);
}

#[test]
fn what_needs_training_says_so_and_why() {
    let told = sparing(&["optimize", "--strategy", "paper", "--analysis", "finetune"]).error(2);
    assert!(told.contains("--recover") && told.contains("evaluation alone"), "{told}");
}
