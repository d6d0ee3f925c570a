//! Size in focus ends in int8 where that is good enough, and what came in int8 stays so; what runs in int8 is stored so.

mod common;

use common::{fixture, labelled, sparing};
use serde_json::Value;
use std::path::Path;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_is_small_on_disk_is_small_in_memory_and_stays_so() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let optimize = |model: &str, name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let args = ["optimize", model, "--data", &data, "--out", out.to_str().unwrap(), "--max-loss", "20%"];
        sparing(&[&args[..], &["--group", "8", "--trials", "6"], more].concat()).ok();
        (json(&out.join("sparing.json")), json(&out.join("report.json")), out.to_str().unwrap().to_string())
    };
    let (plan, report, small) = optimize(&model, "small", &["--focus", "size", "--economies", "heads,bits"]);
    assert_eq!(plan["precision"], "int8", "{}", report["notes"]);
    let chosen = &report["candidates"][report["chosen"].as_u64().unwrap() as usize];
    assert!(chosen["what"].as_str().unwrap().contains("int8"), "{chosen}");
    let memory = |of: &Value| of["memory_bytes"].as_u64().unwrap();
    assert!(2 * memory(chosen) < memory(&report["baseline"]), "{chosen} {}", report["baseline"]);
    // Where bits may not be saved, floats stay floats.
    let (plan, ..) = optimize(&model, "floats", &["--focus", "size", "--economies", "heads"]);
    assert_ne!(plan["precision"], "int8");
    // What is optimised once more goes on from int8, whatever is in focus, unless told otherwise.
    let (plan, report, _) = optimize(&small, "again", &["--focus", "size", "--economies", "heads"]);
    assert_eq!(plan["precision"], "int8", "{}", report["notes"]);
    assert!(memory(&report["baseline"]) <= memory(chosen), "{}", report["baseline"]);
    let (plan, ..) = optimize(&small, "fast", &["--economies", "heads"]);
    assert_eq!(plan["precision"], "int8");
    let (plan, ..) = optimize(&small, "exact", &["--economies", "heads", "--precision", "f32"]);
    assert_ne!(plan["precision"], "int8");
}

/// Whether a precision is faster on a model this small is the clock's to say: it comes in int8 here, in floats that are rounded as they
/// are read.
#[test]
fn what_runs_in_int8_is_saved_in_8_bits() {
    let (_table, data) = labelled(&fixture("bert-classify-text"), 120);
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    for file in std::fs::read_dir(fixture("bert-classify-text")).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
    }
    std::fs::write(model.join("sparing.json"), br#"{"precision": "int8", "bf16": {"1": {"ffn": true}}}"#).unwrap();
    let out = folder.path().join("out");
    let args = ["optimize", model.to_str().unwrap(), "--data", &data, "--out", out.to_str().unwrap()];
    sparing(&[&args[..], &["--max-loss", "20%", "--economies", "heads", "--trials", "6"]].concat()).ok();
    let (plan, report) = (json(&out.join("sparing.json")), json(&out.join("report.json")));
    assert_eq!((&plan["precision"], &plan["bf16"]["1"]["ffn"]), (&"int8".into(), &true.into()), "{plan}");
    if report["chosen"].is_null() {
        // Nothing was chosen, and so nothing is stored otherwise: fewer heads are not faster on a model this small whenever others run.
        assert!(report["notes"].to_string().contains("slower by the clock"), "{}", report["notes"]);
        return;
    }
    let chosen = &report["candidates"][report["chosen"].as_u64().unwrap() as usize];
    assert!(chosen["what"].as_str().unwrap().contains("bits"), "{chosen}");
    let bytes = |of: &Value| of["bytes"].as_u64().unwrap();
    assert!(2 * bytes(chosen) < bytes(&report["baseline"]), "{chosen} {}", report["baseline"]);
    assert_eq!(report["verification"]["bytes"], chosen["bytes"]);
}
