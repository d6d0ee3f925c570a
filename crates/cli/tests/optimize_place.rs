//! Where `sparing optimize` puts its result: nobody's files are lost, whenever they came there.

mod common;

use common::{copied, fixture, labelled, sparing};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Everything in a directory.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap_or_default())).collect()
}

/// A directory with these files.
fn put(directory: &Path, files: &[&str]) {
    std::fs::create_dir_all(directory).unwrap();
    files.iter().for_each(|file| std::fs::write(directory.join(file), "years of work").unwrap());
}

#[test]
fn a_model_with_other_peoples_files_beside_it_is_not_replaced() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 60);
    let folder = tempfile::tempdir().unwrap();
    let run = |out: &Path| {
        let args = ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--overwrite"];
        let how = ["--economies", "heads", "--trials", "1", "--max-loss", "20%", "--threads", "1"];
        sparing(&[&args[..], &how].concat())
    };
    let (own, app, thesis) = (folder.path().join("own"), folder.path().join("app"), folder.path().join("thesis"));
    run(&own).ok();
    run(&thesis).ok();
    put(&app, &["config.json", "app.js"]);
    put(&thesis, &["thesis.txt"]);
    for (out, named) in [(&app, "app.js"), (&thesis, "thesis.txt")] {
        let before = contents(out);
        let told = run(out).error(1);
        assert!(told.contains(named) && told.contains("not a model directory"), "{told}");
        assert_eq!(contents(out), before);
    }
    // Settings and a licence are no model either.
    let package = folder.path().join("package");
    put(&package, &["config.json", "LICENSE", "README.md"]);
    assert!(run(&package).error(1).contains("not a model directory"));
    assert_eq!(contents(&package).len(), 3);
    // What it saved itself it replaces, with whatever commands put beside it.
    sparing(&["calibrate", own.to_str().unwrap(), "--data", &data]).ok();
    put(&own, &["LICENSE.txt"]);
    run(&own).ok();
    assert!(!own.join("LICENSE.txt").exists() && own.join("report.html").is_file());
}

#[test]
fn rows_are_not_lost_to_what_is_made_with_them() {
    let (folder, model) = copied("bert-classify-text");
    let (_table, data) = labelled(&model, 60);
    let out = folder.path().join("m");
    let name = out.to_str().unwrap();
    // A name that a model's directory may hold.
    let rows = out.join("train.jsonl");
    let args = ["optimize", &model, "--out", name, "--economies", "heads", "--trials", "1", "--threads", "1"];
    sparing(&[&args[..], &["--data", &data]].concat()).ok();
    std::fs::write(&rows, "{}").unwrap();
    let inside = rows.to_str().unwrap();
    let before = contents(&out);
    for (given, flag) in [
        (vec!["--data", inside], "--data"),
        (vec!["--data", &data, "--unseen", inside], "--unseen"),
        (vec!["--data", &data, "--recover", "--train", inside], "--train"),
    ] {
        let told = sparing(&[&args[..], &given, &["--overwrite"]].concat()).error(2);
        assert!(told.contains(&format!("{flag} {inside} is there")) && told.contains("--out"), "{told}");
        assert_eq!(contents(&out), before);
    }
}

/// Whoever comes while the search runs keeps the place, and the result is beside it.
#[test]
fn what_came_while_it_searched_stays() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 600);
    let folder = tempfile::tempdir().unwrap();
    for (name, more, holds) in
        [("new", None, "thesis.txt"), ("old", Some("--overwrite"), "thesis.txt"), ("empty", None, "")]
    {
        let out = folder.path().join(name);
        let journal = folder.path().join(format!(".{name}.search.jsonl"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_sparing"))
            .args(["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--max-loss", "20%"])
            .args(more.into_iter().chain(["--threads", "1", "--trials", "4"]))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !journal.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!out.exists(), "{name}: too late to put anything there");
        put(&out, &[holds][..usize::from(!holds.is_empty())]);
        assert!(child.wait().unwrap().success(), "{name}");
        let beside = folder.path().join(format!("{name}-2"));
        if holds.is_empty() {
            assert!(out.join("report.html").is_file() && !beside.exists());
            continue;
        }
        assert_eq!(contents(&out).into_keys().collect::<Vec<_>>(), [holds], "{name}");
        // What is measured is what was saved.
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(beside.join("report.json")).unwrap()).unwrap();
        let told = report["notes"].to_string();
        assert!(told.contains("was taken") && told.contains(beside.to_str().unwrap()), "{told}");
        assert!(report["verification"]["bytes"].as_u64() > Some(0), "{report}");
        assert!(beside.join("model.safetensors").is_file() && !journal.exists(), "{name}");
    }
}

/// Two searches for one place: each keeps what it found.
#[test]
fn two_results_do_not_replace_each_other() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let begin = || {
        Command::new(env!("CARGO_BIN_EXE_sparing"))
            .args(["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--max-loss", "20%"])
            .args(["--economies", "heads", "--trials", "2", "--threads", "1"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let (mut first, mut second) = (begin(), begin());
    let ended = [first.wait().unwrap().success(), second.wait().unwrap().success()];
    // The second may have found the place taken before it began.
    let there = ["m", "m-2"].map(|name| folder.path().join(name).join("report.html").is_file());
    assert_eq!((ended.iter().filter(|ok| **ok).count(), there[0]), (1 + usize::from(there[1]), true), "{ended:?}");
}

#[cfg(unix)]
#[test]
fn an_interruption_after_the_search_is_answered_at_once() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 600);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sparing"))
        .args(["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--max-loss", "20%", "--json"])
        .args(["--threads", "1"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It is saved before it is measured.
    while !out.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.contains("its result is being finished"), "{told}");
    assert!(out.join("report.html").is_file());
}
