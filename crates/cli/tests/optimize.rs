//! `sparing optimize` from the outside, on a tiny model.

mod common;

use common::{copied, file, fixture, labelled, sparing};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_is_saved_is_smaller_and_what_its_report_says() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    for (focus, more) in [("speed", "heads,width,precision"), ("size", "heads,width,bits"), ("accuracy", "heads,width")]
    {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("fast");
        let name = out.to_str().unwrap();
        let args = ["optimize", &model, "--data", &data, "--out", name, "--max-loss", "20%", "--group", "8"];
        let args = [&args[..], &["--focus", focus, "--economies", more]].concat();
        sparing(&args).ok();
        for file in ["config.json", "model.safetensors", "report.json", "report.html", "README.md"] {
            assert!(out.join(file).is_file(), "{focus}: {file}");
        }
        let report = json(&out.join("report.json"));
        // A third of what is not reported with calibrates.
        assert_eq!((&report["task"]["search_rows"], &report["task"]["report_rows"]), (&40.into(), &60.into()));
        assert!(report["candidates"].as_array().unwrap().len() > 5, "{focus}");
        assert!(["within", "beyond", "unchanged"].contains(&report["verdict"].as_str().unwrap()), "{focus}");
        let criterion = if focus == "accuracy" { "good enough on searched rows" } else { "within the budget of 20%" };
        assert!(report["criterion"].as_str().unwrap().starts_with(criterion), "{focus}");
        if let Some(chosen) = report["chosen"].as_u64() {
            let (chosen, base) = (&report["candidates"][chosen as usize], &report["baseline"]);
            assert!(chosen["bytes"].as_u64() <= base["bytes"].as_u64(), "{focus}: {chosen}");
            assert_eq!(report["verification"]["bytes"], chosen["bytes"], "{focus}");
            let score = |of: &serde_json::Value| of["score"].as_f64().unwrap();
            assert!((score(&report["verification"]) - score(chosen)).abs() < 1e-9, "{focus}");
            let lost = 1.0 - score(chosen) / score(base);
            assert!((report["lost"].as_f64().unwrap() - lost).abs() < 1e-9, "{focus}");
            assert_eq!(report["verdict"], if lost <= 0.2 + 1e-9 { "within" } else { "beyond" }, "{focus}");
            // All parts together take the time that is reported.
            for (parts, of) in [("parts_before", base), ("parts_after", chosen)] {
                let sum: f64 = report[parts].as_array().unwrap().iter().map(|part| part["ms"].as_f64().unwrap()).sum();
                assert!((sum / of["time_ms"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{focus}: {parts}");
            }
            // Nothing that was timed and may be chosen is clearly faster than what was.
            let interval = |of: &serde_json::Value| {
                [&of["time_interval"]["low"], &of["time_interval"]["high"]].map(|x| x.as_f64())
            };
            assert!(interval(chosen).iter().all(Option::is_some), "{focus}");
        } else {
            assert_eq!(focus, "accuracy", "nothing within 20% was found");
        }
        // It runs as any model does.
        sparing(&["run", name, "the film is good", "--json"]).ok();
        // The journal is gone once the report is there, and nothing is overwritten unasked.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(sparing(&args).error(1).contains("--overwrite"));
    }
}

/// Merging is looked for where it is asked for, with speed in focus.
#[test]
fn tokens_are_merged_where_that_is_asked_for() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 60);
    let folder = tempfile::tempdir().unwrap();
    let searched = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let args = ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--trials", "4"];
        sparing(&[&args[..], more].concat()).ok();
        json(&out.join("report.json"))["economies"].clone()
    };
    assert_eq!(searched("merged", &["--economies", "merge"]), serde_json::json!(["merge"]));
    let usual = searched("usual", &[]);
    assert!(!usual.as_array().unwrap().contains(&"merge".into()), "{usual}");
    let out = folder.path().join("small");
    let small = ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--focus", "size"];
    let message = sparing(&[&small[..], &["--economies", "merge"]].concat()).error(2);
    assert!(message.contains("--economies merge") && !out.exists(), "{message}");
}

#[test]
fn every_strategy_ends_with_a_model() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    for strategy in ["paper", "top-layers", "taylor", "random", "flat", "adaptive"] {
        let out = folder.path().join(strategy);
        let name = out.to_str().unwrap();
        let args = ["optimize", &model, "--data", &data, "--out", name, "--strategy", strategy, "--group", "16"];
        let shown =
            sparing(&[&args[..], &["--economies", "blocks,heads,width", "--max-loss", "20%", "--json"]].concat());
        let report = shown.json();
        assert_eq!(report["strategy"], strategy);
        assert!(!report["candidates"].as_array().unwrap().is_empty(), "{strategy}");
        // Slopes are asked for with elements dimmed, which is no way to save anything.
        assert!(!report["candidates"].to_string().contains("dimmed"), "{strategy}");
        assert!(out.join("model.safetensors").is_file(), "{strategy}");
    }
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let plan = |name: &str| {
        let out = folder.path().join(name);
        let args =
            ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--max-loss", "20%", "--group", "8"];
        // With speed in focus the clock has the last word.
        sparing(&[&args[..], &["--economies", "heads,width", "--focus", "size"]].concat()).ok();
        std::fs::read_to_string(out.join("sparing.json")).unwrap()
    };
    assert_eq!(plan("a"), plan("b"));
}

/// A search that has tried a few candidates and is still at it.
struct Search {
    child: Child,
    args: Vec<String>,
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
    journal: PathBuf,
    _places: [tempfile::TempDir; 3],
}

impl Search {
    fn begun() -> Search {
        let (copy, model) = copied("bert-classify-text");
        let (table, data) = labelled(&model, 3000);
        let folder = tempfile::tempdir().unwrap();
        let (out, journal) = (folder.path().join("m"), folder.path().join(".m.search.jsonl"));
        let args =
            ["optimize", &model, "--data", &data, "--out", out.to_str().unwrap(), "--group", "1", "--max-loss", "20%"];
        let args: Vec<String> = args.map(String::from).to_vec();
        let child = Command::new(env!("CARGO_BIN_EXE_sparing")).args(&args).spawn().unwrap();
        let (model, data, _places) = (model.into(), data.into(), [copy, table, folder]);
        let mut search = Search { child, args, model, data, out, journal, _places };
        while search.trials() < 2 && search.child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        search
    }

    /// How many candidates are in the journal.
    fn trials(&self) -> usize {
        std::fs::read_to_string(&self.journal).map_or(0, |text| text.matches("\"verdict\"").count())
    }

    /// Goes on to the end with what was tried before.
    fn resume(&self) {
        let output = Command::new(env!("CARGO_BIN_EXE_sparing")).args(&self.args).arg("--resume").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("were tried before"), "{told}");
    }
}

#[test]
fn a_search_that_was_killed_goes_on() {
    let mut search = Search::begun();
    let args: Vec<&str> = search.args.iter().map(String::as_str).collect();
    let told = sparing(&args).error(1);
    assert!(told.contains("another search is at it"), "{told}");
    search.child.kill().unwrap();
    search.child.wait().unwrap();
    assert!(!search.out.exists() && search.trials() >= 2, "it was killed too late");
    // Whatever was being written when it died.
    let text = std::fs::read_to_string(&search.journal).unwrap();
    std::fs::write(&search.journal, text + "{\"recipe\":{\"le").unwrap();
    search.resume();
    assert!(search.out.join("report.html").is_file() && !search.journal.exists());
}

#[test]
fn another_model_or_other_rows_are_another_search() {
    let mut search = Search::begun();
    search.child.kill().unwrap();
    search.child.wait().unwrap();
    assert!(search.trials() >= 2);
    let args: Vec<&str> = search.args.iter().map(String::as_str).chain(["--resume"]).collect();
    // The clock was asked about requests of one text.
    let told = sparing(&[&args[..], &["--batch", "4"]].concat()).error(1);
    assert!(told.contains("belongs to another search"), "{told}");
    let weights = search.model.join("model.safetensors");
    for file in [&weights, &search.data] {
        let before = std::fs::read(file).unwrap();
        let mut after = before.clone();
        if *file == weights {
            // The last byte of the last number is its sign and most of its exponent.
            *after.last_mut().unwrap() ^= 0x80;
        } else {
            after.truncate(after.len() - 100);
            after.truncate(after.iter().rposition(|byte| *byte == b'\n').unwrap() + 1);
        }
        std::fs::write(file, after).unwrap();
        let ran = sparing(&args);
        assert!(ran.code == 1 && ran.err.contains("belongs to another search"), "{file:?}: {}", ran.err);
        std::fs::write(file, before).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_search_that_was_stopped_is_saved_and_goes_on() {
    let mut search = Search::begun();
    assert!(Command::new("kill").args(["-INT", &search.child.id().to_string()]).status().unwrap().success());
    assert!(search.child.wait().unwrap().success());
    assert!(search.out.join("report.html").is_file() && search.journal.exists(), "what was tried is kept");
    let ended = || json(&search.out.join("report.json"))["ended"].clone();
    assert_eq!(ended(), "stopped");
    search.resume();
    assert!(!search.journal.exists());
    assert_eq!(ended(), "whole");
    // It is finished now.
    let again: Vec<&str> = search.args.iter().map(String::as_str).chain(["--resume"]).collect();
    assert!(sparing(&again).error(1).contains("no search to go on with"));
}

#[test]
fn a_model_is_not_written_over_itself() {
    let (folder, model) = copied("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let files = || std::fs::read_dir(&model).unwrap().count();
    let before = files();
    let same = folder.path().join(".").join("model").display().to_string();
    for out in [&model, &same] {
        let told = sparing(&["optimize", &model, "--data", &data, "--out", out, "--overwrite"]).error(2);
        assert!(told.contains("--out") && told.contains("give another directory"), "{told}");
    }
    assert_eq!(files(), before);
}

#[test]
fn the_card_keeps_the_licence_wherever_the_model_is_named() {
    let (folder, model) = copied("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let card = "---\nlicense: apache-2.0\nlanguage: en\n---\n# The model\n";
    std::fs::write(Path::new(&model).join("README.md"), card).unwrap();
    let out = folder.path().join("m");
    let args = ["optimize", "--data", &data, "--out", out.to_str().unwrap(), "--economies", "heads"];
    // Behind `--` nothing is a flag: what is measured in the end must not be either. Of a busy machine's clock nothing is asked.
    sparing(&[&args[..], &["--focus", "size", "--trials", "2", "--max-loss", "20%", "--", &model]].concat()).ok();
    let card = std::fs::read_to_string(out.join("README.md")).unwrap();
    assert!(card.contains("\nlicense: apache-2.0\n") && card.contains("\nlanguage:\n- en\n"), "{card}");
    assert!(card.contains("pipeline_tag: text-classification"), "{card}");
    let report = json(&out.join("report.json"));
    let chosen = &report["candidates"][report["chosen"].as_u64().unwrap() as usize];
    let [low, high] =
        [&chosen["search_interval"]["low"], &chosen["search_interval"]["high"]].map(|x| x.as_f64().unwrap());
    let off = 1.96 * chosen["luck"].as_f64().unwrap() * report["baseline"]["search_score"].as_f64().unwrap();
    assert!((chosen["search_score"].as_f64().unwrap() - off - low).abs() < 1e-9 && high <= 1.0, "{chosen}");
}

#[test]
fn other_peoples_files_are_seen_before_the_search() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    for more in [&[][..], &["--overwrite"]] {
        let args = ["optimize", &model, "--data", &data, "--out", folder.path().to_str().unwrap()];
        let told = sparing(&[&args[..], more].concat()).error(1);
        assert!(told.contains("not a model directory") && !told.contains("--overwrite"), "{told}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A place that nothing can be written to is told before the search, and one place is one place however it is written.
#[test]
fn the_place_of_the_result_is_looked_at_first() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let run = |out: &str, more: &[&str]| {
        let out = folder.path().join(out).display().to_string();
        let how = ["--economies", "heads", "--trials", "2", "--max-loss", "20%"];
        sparing(&[&["optimize", &model, "--data", &data, "--out", &out][..], &how, more].concat())
    };
    std::fs::write(folder.path().join("file"), "").unwrap();
    for (out, said) in [("file", "is a file"), ("file/", "is a file"), ("file/in", "file: is not a directory")] {
        let told = run(out, &[]).error(1);
        assert!(told.contains(said) && !told.contains("os error"), "{out}: {told}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nothing", folder.path().join("link")).unwrap();
        assert!(run("link", &[]).error(1).contains("link to something that is not there"));
        std::fs::remove_file(folder.path().join("link")).unwrap();
        assert!(
            sparing(&["optimize", &model, "--data", &data, "--out", "/proc/m"]).error(1).contains("/proc: nothing")
        );
    }
    run("m/", &[]).ok();
    run("m/.", &["--overwrite"]).ok();
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "m"]);
}

#[test]
fn what_the_model_was_before_is_told() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 60);
    let folder = tempfile::tempdir().unwrap();
    let [once, twice] = ["once", "twice"].map(|name| folder.path().join(name).display().to_string());
    let run = |model: &str, out: &str| {
        let args = ["optimize", model, "--data", &data, "--out", out, "--economies", "heads", "--trials", "1"];
        sparing(&[&args[..], &["--max-loss", "20%", "--threads", "1"]].concat())
    };
    let ran = run(&model, &once);
    assert!(ran.code == 0 && !ran.err.contains("optimised before"), "{}", ran.err);
    let ran = run(&once, &twice);
    assert!(ran.code == 0 && ran.err.contains("was optimised before and"), "{}", ran.err);
    let notes = json(Path::new(&twice).join("report.json").as_path())["notes"].to_string();
    assert!(notes.contains("was optimised before and"), "{notes}");
}

/// A model of sentiment has labels of its own, and another task's are taken in that order.
#[test]
fn another_tasks_model_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let rows =
        |i: usize| format!("{i}\tthe film {i} is good\tit is bad\t{}\n", ["entailment", "not_entailment"][i % 2]);
    std::fs::create_dir(folder.path().join("RTE")).unwrap();
    let table = format!("index\tsentence1\tsentence2\tlabel\n{}", (0..60).map(rows).collect::<String>());
    std::fs::write(folder.path().join("RTE/dev.tsv"), table).unwrap();
    let out = folder.path().join("fast").display().to_string();
    let data = folder.path().display().to_string();
    let args = ["optimize", "builtin", "--task", "rte", "--data", &data, "--out", &out, "--economies", "heads"];
    let ran = sparing(&[&args[..], &["--trials", "1", "--threads", "1"]].concat());
    assert!(ran.err.contains("are not called like the task's (entailment, not_entailment)"), "{}", ran.err);
}

#[test]
fn what_makes_no_sense_is_told_in_one_line() {
    let model = fixture("bert-classify-text");
    let (_few, few) = file("few.csv", "text,label\ngood,LABEL_1\nbad,LABEL_0\n");
    let rows: String = (0..40).map(|i| format!("text {i},{}\n", ["ham", "spam"][i % 2])).collect();
    let (_wrong, wrong) = file("wrong.csv", format!("text,label\n{rows}"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m").display().to_string();
    for (args, code, said) in
        [(vec!["--data", &few], 1, "too few"), (vec!["--data", &wrong], 1, "ham"), (vec![], 2, "--data")]
    {
        let told = sparing(&[&["optimize", &model, "--out", &out][..], &args].concat()).error(code);
        assert!(told.contains(said), "{args:?}: {told}");
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
    for (flag, value, said) in [
        ("--max-loss", "120%", "0.5%"),
        ("--max-loss", "0.5", "0.5% or 50%"),
        ("--max-loss", "inf", "such as 0.5%"),
        ("--max-loss", "0.1", "0.1% or 10%"),
        ("--from", "top", "an order of its own"),
        ("--thresholds", "1.01,1.02", "judges by --max-loss alone"),
        ("--thresholds", "1.02,1.01", "1.005,1.02"),
        ("--search-rows", "1", "10 at least"),
        ("--economies", "heads,hats", "there are blocks, heads"),
        ("--economies", "heads,relu", "see sparing train transfer"),
        ("--economies", "norms", "see sparing train transfer"),
        ("--economies", "softmax", "see sparing train transfer"),
        ("--economies", "ma", "see sparing train transfer"),
    ] {
        let ran = sparing(&["optimize", &model, "--data", &wrong, "--out", &out, flag, value]);
        assert!(ran.code == 2 && ran.err.lines().next().is_some_and(|line| line.contains(said)), "{}", ran.err);
    }
    for (strategy, economies, said) in [
        ("top-layers", "heads", "name blocks too"),
        ("paper", "keys", "name those too"),
        ("cost", "bits", "nothing comes of it"),
    ] {
        let args =
            ["optimize", &model, "--data", &wrong, "--out", &out, "--strategy", strategy, "--economies", economies];
        let told = sparing(&args).error(2);
        assert!(told.contains(said), "{strategy} {economies}: {told}");
    }
    let rows: String = (0..40).map(|i| format!("text {i},two\n")).collect();
    let (_never, never) = file("never.csv", format!("text,label\n{rows}"));
    let told = sparing(&["optimize", &model, "--data", &never, "--out", &out]).error(1);
    assert!(told.contains("never.csv") && told.contains("nothing to keep") && !Path::new(&out).exists(), "{told}");
    let told = sparing(&["optimize", "nosuchdir"]).error(2);
    assert!(told.contains("there is no directory nosuchdir here") && told.contains("--data"), "{told}");
}
