//! `sparing optimize --again`: the clock is asked once more, and nothing else changes.

mod common;

use common::{fixture, labelled, sparing};
use serde_json::Value;

#[test]
fn a_result_is_measured_again() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 60);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fast");
    let run = |more: &[&str]| {
        let args = ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--economies", "heads"];
        sparing(&[&args[..], &["--trials", "1", "--max-loss", "20%", "--threads", "1"], more].concat())
    };
    let told = run(&["--again"]).error(1);
    assert!(told.contains("report.json") && told.contains("has saved in --out"), "{told}");
    run(&[]).ok();
    let read = |file: &str| std::fs::read_to_string(out.join(file)).unwrap();
    let report = || serde_json::from_str::<Value>(&read("report.json")).unwrap();
    let weights = std::fs::read(out.join("model.safetensors")).unwrap();

    // As a busy machine may have left it.
    let before = report();
    let mut busy = before.clone();
    busy["verification"]["time_ratio"] = 77.0.into();
    busy["notes"] = serde_json::json!(["the machine was busy: says this test", "something else"]);
    std::fs::write(out.join("report.json"), busy.to_string()).unwrap();
    run(&["--again", "--json"]).ok();
    let after = report();
    assert!(after["verification"]["time_ratio"].as_f64().unwrap() < 70.0, "{after}");
    let notes = after["notes"].to_string();
    assert!(notes.contains("something else") && !notes.contains("says this test"), "{notes}");
    assert!(read("report.html").contains("something else") && !read("report.html").contains("says this test"));
    for same in ["command", "chosen", "seconds", "elements", "verdict", "lost"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    assert_eq!(after["verification"]["score"], before["verification"]["score"]);
    assert_eq!(std::fs::read(out.join("model.safetensors")).unwrap(), weights);

    // What does not belong together is not mixed up.
    let told = run(&["--again", "--seed", "7"]).error(1);
    assert!(told.contains("another command") && told.contains("--again"), "{told}");
    let mut elsewhere = after.clone();
    elsewhere["machine"]["cpu"] = "an abacus".into();
    let mut other = after.clone();
    other["verification"]["bytes"] = 5.into();
    for (report, said) in [
        (elsewhere.to_string(), "another machine (an abacus"),
        (other.to_string(), "5 bytes"),
        ("[".into(), "is no report"),
    ] {
        std::fs::write(out.join("report.json"), &report).unwrap();
        let told = run(&["--again"]).error(1);
        assert!(told.contains(said), "{told}");
        assert_eq!(read("report.json"), report);
    }
}
