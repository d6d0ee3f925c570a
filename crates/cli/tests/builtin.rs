//! The model that comes with the program: everything works with nothing at hand.

mod common;

use common::{piped, sparing};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_text_needs_no_model() {
    let told = sparing(&["run", "a joy from start to end"]).ok();
    assert!(told.contains("positive"), "{told}");
    let told = sparing(&["run", "--json", "a joy from start to end", "dull, long and never funny"]).ok();
    let labels: Vec<Value> = told.lines().map(|line| json(line)["label"].clone()).collect();
    assert_eq!(labels, ["positive", "negative"]);
    let told = piped(&["run", "--json"], b"an utter waste of time\n").ok();
    assert_eq!(json(&told)["label"], "negative");
    // By name it can stand before a text of one word.
    assert!(sparing(&["run", "builtin", "wonderful"]).ok().contains("positive"));
}

#[test]
fn a_wrong_name_is_not_taken_for_a_text() {
    let message = sparing(&["run", "no-such-model"]).error(1);
    assert!(message.contains("no-such-model"), "{message}");
    let message = sparing(&["eval", "no-such-model"]).error(2);
    assert!(message.contains("--task"), "{message}");
}

#[test]
fn it_scores_what_its_readme_says() {
    let report = json(&sparing(&["eval", "--json"]).ok());
    let accuracy = report["metrics"][0]["value"].as_f64().unwrap();
    let readme = include_str!("../../builtin/model/README.md");
    let right = (accuracy * 872.0).round();
    assert!(readme.contains(&format!("{right} of 872")), "{right} right");
    assert!(accuracy >= 0.905, "{accuracy}");
}

#[test]
fn it_is_inspected_and_timed() {
    assert!(sparing(&["inspect"]).ok().contains("the built-in model"));
    let told = sparing(&["bench", "--batch", "1", "--length", "8", "--repeats", "1"]).ok();
    assert!(told.contains("the built-in model"), "{told}");
}
