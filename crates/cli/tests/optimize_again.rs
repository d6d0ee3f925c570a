//! `sparing optimize --again`: the clock is asked once more, and nothing else changes.

mod common;

use common::{command, copied, fixture, labelled, sparing};
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
    let mut newer = after.clone();
    newer["versions"]["sparing"] = "99.0".into();
    let mut unmeasured = after.clone();
    unmeasured["verification"] = Value::Null;
    let mut another = after.clone();
    another["marks"] = "of another".into();
    let mut unmarked = after.clone();
    unmarked.as_object_mut().unwrap().remove("marks");
    unmarked["baseline"]["bytes"] = 7.into();
    for (report, said) in [
        (elsewhere.to_string(), "another machine (an abacus"),
        (other.to_string(), "5 bytes"),
        (newer.to_string(), "another program (99.0"),
        (unmeasured.to_string(), "nothing to measure again"),
        (another.to_string(), "another model, or of other rows"),
        (unmarked.to_string(), "another model, or of other rows"),
        ("[".into(), "is no report"),
    ] {
        std::fs::write(out.join("report.json"), &report).unwrap();
        let told = run(&["--again"]).error(1);
        assert!(told.contains(said), "{told}");
        assert_eq!(read("report.json"), report);
    }
}

/// A result that may be measured again, and what was asked for.
struct Result {
    _folders: [tempfile::TempDir; 3],
    model: std::path::PathBuf,
    out: std::path::PathBuf,
    args: Vec<String>,
}

impl Result {
    fn new(more: &[&str]) -> Result {
        let (folder, model) = copied("bert-classify-text");
        let (table, data) = labelled(&model, 60);
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("fast");
        let args = ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--economies", "heads"];
        let few = ["--trials", "1", "--max-loss", "20%", "--threads", "1"];
        let args: Vec<String> = [&args[..], &few, more].concat().iter().map(|arg| arg.to_string()).collect();
        let result = Result { _folders: [folder, table, place], model: model.into(), out, args };
        sparing(&result.with(&[])).ok();
        result
    }

    fn with<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.args.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.out.join(file)).unwrap()
    }
}

#[test]
fn a_card_that_somebody_has_written_to_stays() {
    // How it was asked for the first time is nothing to be told apart by.
    let result = Result::new(&["--overwrite"]);
    sparing(&result.with(&["--again"])).ok();
    let card = result.read("README.md");
    assert!(card.contains("measured once more") && result.read("report.html").contains("measured once more"));
    std::fs::write(result.out.join("README.md"), format!("{card}\nMine.\n")).unwrap();
    let ran = sparing(&result.with(&["--again"]));
    assert!(ran.code == 0 && ran.err.contains("README.md: is not as sparing optimize wrote it"), "{}", ran.err);
    assert!(result.read("README.md").ends_with("\nMine.\n"));
}

#[test]
fn another_model_in_its_place_is_not_measured_against() {
    let result = Result::new(&[]);
    let report = result.read("report.json");
    let weights = result.model.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // The sign of the last number.
    *bytes.last_mut().unwrap() ^= 0x80;
    std::fs::write(&weights, bytes).unwrap();
    let told = sparing(&result.with(&["--again"])).error(1);
    assert!(told.contains("another model") && result.read("report.json") == report, "{told}");

    // The same weights, of another network.
    let result = Result::new(&[]);
    let report = result.read("report.json");
    let config = result.model.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    for (published, another) in [("\"gelu\"", "\"relu\""), ("\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 1e-5")] {
        assert!(text.contains(published), "{text}");
        std::fs::write(&config, text.replace(published, another)).unwrap();
        let told = sparing(&result.with(&["--again"])).error(1);
        assert!(told.contains("another model") && result.read("report.json") == report, "{told}");
    }
    std::fs::write(&config, text).unwrap();
    // Of other words.
    let vocabulary = result.model.join("vocab.txt");
    let words = std::fs::read_to_string(&vocabulary).unwrap();
    std::fs::write(&vocabulary, words.replace("\ngood\n", "\nbest\n")).unwrap();
    let told = sparing(&result.with(&["--again"])).error(1);
    assert!(told.contains("another model") && result.read("report.json") == report, "{told}");
    std::fs::write(&vocabulary, words).unwrap();

    // It may lie somewhere else by now.
    let moved = result.out.with_file_name("elsewhere");
    std::fs::rename(&result.out, &moved).unwrap();
    let (old, new) = (result.out.to_str().unwrap(), moved.to_str().unwrap());
    let args: Vec<&str> = result.with(&["--again"]).iter().map(|arg| if *arg == old { new } else { *arg }).collect();
    sparing(&args).ok();
}

#[test]
fn nothing_is_measured_again_while_a_search_is_at_it() {
    let result = Result::new(&[]);
    let journal = std::fs::File::create(result.out.with_file_name(".fast.search.jsonl")).unwrap();
    journal.lock().unwrap();
    let told = sparing(&result.with(&["--again"])).error(1);
    assert!(told.contains("another search is at it"), "{told}");
    drop(journal);
    sparing(&result.with(&["--again"])).ok();
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_leaves_the_report_as_it_was() {
    let result = Result::new(&[]);
    let report = result.read("report.json");
    let mut again = command(&result.with(&["--again"]));
    let mut child = again.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // Until it listens to Ctrl-C (signal 2, the second bit of what is caught).
    let number = child.id();
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    };
    while !listens() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it listened");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), result.read("report.json") == report), (Some(130), true), "{told}");
    assert!(told.contains("error: interrupted"), "{told}");
}
