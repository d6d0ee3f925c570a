//! `sparing eval`.

mod common;

use common::{copied, file, fixture, labelled, sparing, spoilt_in, with_vocabulary};
use serde_json::Value;

const TABLE: &str = "text,label\na film,zero\nthe plot,one\na classic,two\nthey call her,zero\n";

#[test]
fn a_table_is_scored_with_an_interval() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", TABLE);
    let shown = sparing(&["eval", &model, "--data", &csv, "--text", "text", "--label", "label"]).ok();
    assert!(shown.contains("95% interval") && shown.contains("accuracy") && shown.contains("4 examples"), "{shown}");
    let json = sparing(&["eval", &model, "--data", &csv, "--text", "text", "--label", "label", "--json"]).json();
    assert_eq!(json["examples"], 4);
    assert_eq!(json["complete"], true);
    let accuracy = json["metrics"].as_array().unwrap().iter().find(|m| m["metric"] == "accuracy").unwrap();
    let (low, value, high) = (accuracy["low"].as_f64(), accuracy["value"].as_f64(), accuracy["high"].as_f64());
    assert!(low <= value && value <= high, "{json}");
}

#[test]
fn rows_that_cannot_be_scored_and_a_missing_label_are_told_of() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", format!("{TABLE},one\n \t,two\nhalf a row,\n"));
    let ran = sparing(&["eval", &model, "--data", &csv, "--json"]);
    assert!(ran.err.contains("mine.csv: 2 rows without text and 1 without a label left out"), "{}", ran.err);
    assert_eq!(ran.json()["examples"], 4);
    let (_folder, csv) = file("other.csv", "text,verdict\na film,zero\n");
    let told = sparing(&["eval", &model, "--data", &csv]).error(1);
    assert!(told.ends_with("no column looks like a label; name it with --label (there are: text, verdict)"), "{told}");
}

#[test]
fn a_score_below_the_most_frequent_label_is_doubted() {
    let model = fixture("bert-classify-text");
    let (folder, csv) = file("mine.csv", TABLE);
    let path = folder.path().join("predictions.jsonl");
    sparing(&["eval", &model, "--data", &csv, "--predictions", path.to_str().unwrap()]).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    let given: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // Numbers of what the model does not say.
    let (wrong, name) = if given["predicted_label"] == "zero" { (1, "one") } else { (0, "zero") };
    let (_folder, csv) = file("wrong.csv", format!("text,label\na film,{wrong}\n"));
    let ran = sparing(&["eval", &model, "--data", &csv, "--json"]);
    let told =
        format!("warning: 0.0% right, less than always answering \"{name}\" (100.0%): is --label the right column");
    assert!(ran.err.contains(&told), "{}", ran.err);
    assert!(ran.err.contains("are 0, 1, 2 the model's zero, one, two?"), "{}", ran.err);
    ran.json();
}

#[test]
fn predictions_are_written_whole() {
    let model = fixture("bert-classify-text");
    let (folder, csv) = file("mine.csv", TABLE);
    let path = folder.path().join("predictions.jsonl");
    sparing(&["eval", &model, "--data", &csv, "--predictions", path.to_str().unwrap()]).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[1]["text"], "the plot");
    assert_eq!(lines[1]["gold_label"], "one");
    // Only the table and the predictions: no half-written file is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn precisions_are_compared() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", TABLE);
    let same = sparing(&["eval", &model, "--data", &csv, "--against", "f32", "--json"]).json();
    assert_eq!(same["against"]["same_top"], 1.0);
    assert_eq!(same["against"]["max_abs_difference"], 0.0);
    let int8 = sparing(&["eval", &model, "--data", &csv, "--precision", "int8", "--against", "f32", "--json"]).json();
    assert!(int8["against"]["max_abs_difference"].as_f64().unwrap() > 0.0);
    assert!(int8["against"]["mean_kl"].as_f64().unwrap() < 0.1);
    let shown = sparing(&["eval", &model, "--data", &csv, "--precision", "int8", "--against", "f32"]).ok();
    assert!(shown.contains("int8 against f32") && shown.contains("same top answer"), "{shown}");
}

#[test]
fn labels_of_other_names_are_renamed() {
    let model = fixture("bert-classify-text");
    let eval = |table: &str, more: &[&str]| {
        let (_folder, csv) = file("mine.csv", table);
        sparing(&[&["eval", &model, "--data", &csv, "--json"][..], more].concat())
    };
    let mut own = eval(TABLE, &[]).json();
    let theirs = TABLE.replace("zero", "2").replace("one", "good").replace("two", "0");
    let mut renamed = eval(&theirs, &["--labels", "2=zero,good=one,0=two"]).json();
    assert_eq!(own["metrics"].take(), renamed["metrics"].take());
    let told = eval(&theirs, &[]).error(1);
    assert!(
        told.contains("\"good\" is not one of the model's 3") && told.contains("--labels theirs=model's"),
        "{told}"
    );
    let told = eval(&theirs, &["--labels", "good=best"]).error(1);
    assert!(told.contains("\"best\" is not one of the model's 3"), "{told}");
    // The first rows of a table may have none of them.
    let ran = eval(TABLE, &["--labels", "good=one", "--limit", "1"]);
    let noted = ran.err.contains("mine.csv: no row has any of the labels that are to be renamed (good)");
    assert!(ran.code == 0 && noted, "{}", ran.err);
    for (wrong, why) in [("good", "a pair is expected"), ("good=one,Good=two", "is to be one and two")] {
        let ran = eval(TABLE, &["--labels", wrong]);
        assert!(ran.code == 2 && ran.err.contains(why), "{}", ran.err);
    }
}

#[test]
fn models_are_compared() {
    let (_table, data) = labelled(&fixture("bert-classify-text"), 60);
    let (_folder, shallow) = copied("bert-classify-text");
    let config = std::path::Path::new(&shallow).join("config.json");
    let two = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, two.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")).unwrap();
    let deep = fixture("bert-classify-text");
    let eval = |model: &str, more: &[&str]| sparing(&[&["eval", model, "--data", &data][..], more].concat());
    let scores =
        [&deep, &shallow].map(|model| eval(model, &["--json"]).json()["metrics"][0]["value"].as_f64().unwrap());
    assert!(scores[0] > scores[1], "labels are what the whole model says: {scores:?}");
    let found = eval(&shallow, &["--against", &deep, "--json"]).json();
    let one = &found["against"]["comparisons"][0];
    assert_eq!([&one["first"], &one["second"]].map(|x| x.as_f64().unwrap()), scores);
    assert_eq!((&one["mcnemar"]["only_second"], &found["against"]["complete"]), (&0.into(), &true.into()));
    assert!(one["interval"]["high"].as_f64().unwrap() < 0.0, "{one}");
    let shown = eval(&shallow, &["--against", &deep]).ok();
    assert!(shown.contains("against bert-classify-text (f32), 60 examples"), "{shown}");
    assert!(shown.contains("right here alone: 0, there alone"), "{shown}");

    // What is wrong with the other one is told before anything is scored.
    let written = std::path::Path::new(&shallow).with_file_name("predictions.jsonl");
    let told = eval(&deep, &["--against", "no-such-place", "--predictions", written.to_str().unwrap()]).error(1);
    assert!(told.contains("no-such-place") && !written.exists(), "{told}");
    let told = eval(&deep, &["--against", "f16"]).error(1);
    assert!(told.starts_with("--against f16: no precision (f32, bf16, int8"), "{told}");
    let told = eval(&deep, &["--against", &fixture("bert-answer-text")]).error(1);
    assert!(told.contains("another kind of head"), "{told}");
    let told = eval(&deep, &["--against", "builtin"]).error(1);
    assert!(told.contains("--against builtin: has 2 labels, where there are 3 here"), "{told}");
}

#[test]
fn what_was_scored_is_shown_whatever_becomes_of_the_other() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 20);
    // The third word begins every text.
    let (_folder, spoilt) = spoilt_in(&model, "bert.embeddings.word_embeddings.weight", 2);
    let ran = sparing(&["eval", &model, "--data", &data, "--against", &spoilt, "--json"]);
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(shown["metrics"][0]["value"].is_number() && shown["against"].is_null(), "{shown}");
    let told = ran.error(1);
    assert!(told.contains(&format!("--against {spoilt}: ")) && told.contains("not a number"), "{told}");
}

/// The tiny classifier with two of its labels, under these names.
fn of_two(labels: [usize; 2], names: [&str; 2]) -> (tempfile::TempDir, String) {
    use sparing_model::{Model, OwnedTensor};
    let (folder, path) = copied("bert-classify-text");
    let mut model = Model::load(path.as_ref()).unwrap();
    let rows = |name: &str, shape: &[usize], width: usize| {
        let mut all = vec![0.0; 3 * width];
        model.weights.tensor(name).unwrap().read(0, &mut all);
        let chosen: Vec<f32> = labels.iter().flat_map(|label| all[label * width..][..width].to_vec()).collect();
        OwnedTensor::f32(name, shape, &chosen)
    };
    let tensors = vec![rows("classifier.weight", &[2, 24], 24), rows("classifier.bias", &[2], 1)];
    model.weights = model.weights.replace(tensors).unwrap();
    let saved = folder.path().join("two");
    model.save(&saved).unwrap();
    let config = saved.join("config.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    text["id2label"] = serde_json::json!({ "0": names[0], "1": names[1] });
    text["label2id"] = serde_json::json!({ names[0]: 0, names[1]: 1 });
    std::fs::write(&config, text.to_string()).unwrap();
    (folder, saved.display().to_string())
}

#[test]
fn labels_in_another_order_are_the_same_labels() {
    let (_here, here) = of_two([0, 2], ["bad", "good"]);
    let (_there, there) = of_two([2, 0], ["Good", "bad"]);
    let texts = ["a film", "the plot is thin", "good", "not good at all", "actors", "the film is good", "thin plot"];
    let table = |names: [&str; 2]| {
        let rows = texts.iter().enumerate().map(|(i, text)| format!("{text},{}\n", names[usize::from(i % 3 > 0)]));
        file("mine.csv", format!("text,label\n{}", rows.collect::<String>()))
    };
    let (_named, data) = table(["bad", "good"]);
    let eval = |data: &str, there: &str| sparing(&["eval", &here, "--data", data, "--against", there, "--json"]);
    let found = eval(&data, &there).json();
    let rows = found["against"]["comparisons"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["metric"] == "f1"), "{found}");
    for row in rows {
        assert_eq!((&row["difference"], &row["first"]), (&0.0.into(), &row["second"]), "{row}");
    }
    // None of seven rows differs: up to three of seven others may.
    let interval = &rows[0]["interval"];
    assert_eq!([&interval["low"], &interval["high"]].map(|end| end.as_f64().unwrap()), [-3.0 / 7.0, 3.0 / 7.0]);
    assert_eq!(found["against"]["n"], 7);

    let (_numbered, data) = table(["0", "1"]);
    let told = eval(&data, &there).error(1);
    assert!(told.contains("another order (Good, bad) than here (bad, good)"), "{told}");
    assert!(told.contains("--labels 0=bad"), "{told}");
    // Several labels of a row, and one of every word.
    for (fixture, name, rows) in [
        ("bert-multilabel", "mine.csv", "text,label\nthe cat sat,0|1\n"),
        ("bert-token", "mine.jsonl", r#"{"words": ["the", "cat", "sat"], "tags": [0, 1, 0]}"#),
    ] {
        let (_folder, here) = with_vocabulary(fixture);
        let (_other, there) = with_vocabulary(fixture);
        let path = std::path::Path::new(&there).join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let names = config["id2label"].as_object().unwrap().clone();
        let turned = |number: usize| names[&(names.len() - 1 - number).to_string()].clone();
        config["id2label"] = (0..names.len()).map(|number| (number.to_string(), turned(number))).collect();
        std::fs::write(&path, config.to_string()).unwrap();
        let (_table, data) = file(name, rows);
        let told = sparing(&["eval", &here, "--data", &data, "--against", &there]).error(1);
        assert!(told.contains("in another order"), "{fixture}: {told}");
    }
    let (_strange, strange) = of_two([0, 2], ["spam", "ham"]);
    let ran = eval(&data, &strange);
    let told = format!("--against {strange}: its labels (spam, ham) are not those here (bad, good)");
    assert!(ran.code == 0 && ran.err.contains(&told), "{}", ran.err);
}

#[test]
fn limits_and_seeds() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", TABLE);
    let json = sparing(&["eval", &model, "--data", &csv, "--limit", "2", "--json"]).json();
    assert_eq!(json["examples"], 2);
    let args = ["eval", &model, "--data", &csv, "--sample", "3", "--seed", "9", "--json"];
    let (a, b) = (sparing(&args).json(), sparing(&args).json());
    assert_eq!(a["metrics"], b["metrics"]);
    assert_eq!(a["seed"], 9);
}

#[test]
fn answers_and_perplexity() {
    let (_a, squad) = file(
        "dev.json",
        r#"{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "the film is good .", "qas": [
            {"id": "1", "question": "is it good", "answers": [{"text": "good", "answer_start": 12}]}]}]}]}"#,
    );
    let json = sparing(&["eval", &fixture("bert-answer-text"), "--task", "squad", "--data", &squad, "--json"]).json();
    assert_eq!(json["metrics"][0]["metric"], "f1");
    let (_b, text) = file("text.txt", "The film is good and they call her a classic.\n".repeat(20));
    let json = sparing(&["eval", &fixture("gpt2-causal-text"), "--task", "language", "--data", &text, "--json"]).json();
    assert_eq!(json["metrics"][0]["metric"], "perplexity");
    assert!(json["metrics"][0]["value"].as_f64().unwrap() > 1.0);
}
