//! `sparing study mca`: results that survive, tables from them, and bad input in one line.

mod common;

use common::{fixture, sparing};
use serde_json::Value;
use std::path::Path;

const PAIRS: &str = "sentence1\tsentence2\tgold_label\na joy from start to end\tfunny\tentailment\na dull film\tthin\tneutral\n\
    the plot is thin\ta joy\tcontradiction\nfunny and warm\ta film\tneutral\n";

/// A model that knows MNLI's labels, and a folder with MNLI's files.
fn subject() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (model, glue) = (folder.path().join("model"), folder.path().join("glue"));
    std::fs::create_dir_all(&model).unwrap();
    for entry in std::fs::read_dir(fixture("bert-classify-text")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["id2label"] = serde_json::json!({"0": "entailment", "1": "neutral", "2": "contradiction"});
    config.as_object_mut().unwrap().remove("label2id");
    std::fs::write(model.join("config.json"), config.to_string()).unwrap();
    std::fs::create_dir_all(glue.join("MNLI")).unwrap();
    for part in ["dev_matched.tsv", "train.tsv"] {
        std::fs::write(glue.join("MNLI").join(part), PAIRS).unwrap();
    }
    let text = |path: &Path| path.display().to_string();
    let (model, glue) = (text(&model), text(&glue));
    (folder, model, glue)
}

#[test]
fn a_study_goes_on_where_it_was() {
    let (folder, model, glue) = subject();
    let out = folder.path().join("study");
    let (subject, out_text) = (format!("mnli={model}"), out.display().to_string());
    let fixed = ["study", "mca", "--model", &subject, "--data", &glue, "--out", &out_text, "--seeds", "3"];
    let run = |more: &[&str]| sparing(&[&fixed[..], &["--rounds", "1", "--json"], more].concat()).json_lines();
    let first = run(&["--alpha", "0.5,2"]);
    // 2 alphas, 2 lengths, 2 precisions.
    assert_eq!(first.len(), 8);
    for line in &first {
        assert_eq!((&line["rows"], &line["seeds"], &line["task"]), (&4.into(), &3.into(), &"mnli".into()), "{line}");
        for field in ["authors", "values", "attention_ratio", "whole", "time", "padding"] {
            assert!(line[field].as_f64().unwrap() > 0.0, "{field}: {line}");
        }
        let score = &line["scores"][0];
        assert!(score["metric"] == "accuracy" && score["half"].is_number(), "{line}");
    }
    let results = out.join("results.jsonl");
    let whole = std::fs::read_to_string(&results).unwrap();
    assert_eq!(whole.lines().count(), 8);
    // Nothing is measured twice.
    let known = run(&["--alpha", "0.5,2"]);
    assert_eq!(std::fs::read_to_string(&results).unwrap(), whole);
    // Killed in the middle of the last line: that one alone is measured again, and its draws are the same.
    std::fs::write(&results, &whole[..whole.len() - 40]).unwrap();
    let again = run(&["--alpha", "0.5,2"]);
    assert_eq!(again[..7], known[..7]);
    let mean = |line: &Value| line["scores"][0]["mean"].as_f64().unwrap();
    assert!(again[7]["attention"] == known[7]["attention"] && (mean(&again[7]) - mean(&known[7])).abs() < 1e-12);
    // More of it is added to what is there; nothing is drawn by graded, so one seed is enough.
    let more = run(&[
        "--alpha",
        "2",
        "--samplers",
        "graded",
        "--length",
        "actual",
        "--precision",
        "f32",
        "--attention",
        "exact,drop=0.6",
    ]);
    assert_eq!(more.len(), 10);
    assert_eq!((&more[8]["attention"], &more[8]["seeds"]), (&"graded:2,strict".into(), &1.into()));
    assert_eq!((&more[9]["attention"], &more[9]["way"]), (&"exact,drop=0.6".into(), &Value::Null));
    let alone = run(&["--samplers", "none", "--precision", "f32", "--attention", "exact,skip=0.5"]);
    assert_eq!((alone.len(), &alone[10]["attention"]), (11, &"exact,skip=0.5".into()));
    let tables = std::fs::read_to_string(out.join("mca.md")).unwrap();
    for part in ["## Table 1: BERT", "the paper's BERT | 83.60", "model (4 rows, 3 seeds)", "exact,drop=0.6"] {
        assert!(tables.contains(part), "{part}\n{tables}");
    }
    std::fs::remove_file(out.join("mca.md")).unwrap();
    let said = sparing(&["study", "mca", "table", "--out", &out_text]).ok();
    assert!(said.contains("graded:2,strict") && said.contains("figures written"), "{said}");
    assert_eq!(std::fs::read_to_string(out.join("mca.md")).unwrap(), tables);
    assert!(std::fs::read_to_string(out.join("figure2-mnli.svg")).unwrap().ends_with("</svg>\n"));
}

#[test]
fn big_tasks_get_fewer_seeds_and_tables_of_your_own_are_taken() {
    let (folder, model, _) = subject();
    let mine = folder.path().join("imdb.tsv");
    std::fs::write(&mine, PAIRS).unwrap();
    let (subject, out) = (format!("{}={model}", mine.display()), folder.path().join("study").display().to_string());
    let args = ["study", "mca", "--student", &subject, "--out", &out, "--inputs", "12", "--rounds", "1", "--json"];
    let lines = sparing(&[&args[..], &["--alpha", "1", "--precision", "f32"]].concat()).json_lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["seeds"], &lines[0]["task"], &lines[0]["part"]),
        (&3.into(), &"imdb".into(), &"student".into())
    );
    let tables = std::fs::read_to_string(folder.path().join("study/mca.md")).unwrap();
    assert!(tables.contains("## Table 2: DistilBERT") && !tables.contains("## Table 1"), "{tables}");
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let (folder, model, glue) = subject();
    let out = folder.path().join("study").display().to_string();
    let fixed = ["study", "mca", "--out", &out, "--data", &glue];
    let fails = |code: i32, more: &[&str], parts: &[&str]| {
        let message = sparing(&[&fixed[..], more].concat()).error(code);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let subject = format!("mnli={model}");
    fails(2, &[], &["--model TASK=DIR"]);
    fails(2, &["--model", &model], &["TASK=DIR is expected"]);
    fails(2, &["--model", &format!("sst9={model}")], &["--model sst9", "no task is called \"sst9\""]);
    fails(2, &["--model", &format!("squad={model}")], &["a task of GLUE"]);
    fails(1, &["--model", "mnli=no/such/model/there"], &["no/such/model/there"]);
    fails(1, &["--model", &format!("rte={model}")], &["RTE"]);
    for alpha in ["0", "-1", "nan", "x"] {
        fails(2, &["--model", &subject, "--alpha", alpha], &[&format!("--alpha {alpha}"), "above 0"]);
    }
    fails(2, &["--model", &subject, "--samplers", "best"], &["--samplers", "best"]);
    let message = sparing(&["study", "mca", "--model", &subject]).error(2);
    assert!(message.contains("--out"), "{message}");
    let message = sparing(&["study", "mca", "table", "--out", &out]).error(1);
    assert!(message.contains("no results"), "{message}");
    assert!(!Path::new(&out).join("results.jsonl").exists());
}
