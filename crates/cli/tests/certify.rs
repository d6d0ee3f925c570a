//! The certified cascade from the command line: eval makes a certificate, run keeps it, what makes no sense is one line.

mod common;

use common::{file, fixture, sparing, with_vocabulary};
use serde_json::Value;

/// Texts in the words of the fixtures' vocabulary, none like another.
fn texts(n: usize) -> Vec<String> {
    let words = ["a", "the", "film", "plot", "classic", "they", "call", "her", "cat", "sat", "on", "mat"];
    let word = |i: usize| words[i % words.len()];
    (0..n).map(|i| [word(i), word(i / 12), word(i / 144), word(i * 7)].join(" ")).collect()
}

fn table(n: usize, label: &str) -> String {
    texts(n).iter().fold("text,label\n".to_string(), |all, text| all + text + "," + label + "\n")
}

const INT8: [&str; 2] = ["--precision", "int8"];

#[test]
fn eval_certifies_and_run_keeps_it() {
    let model = fixture("bert-classify-text");
    let (folder, data) = file("mine.csv", table(600, "zero"));
    let certificate = folder.path().join("certificate.json").display().to_string();
    let args = ["eval", &model, "--data", &data, "--attention", "mca:0.5,strict", "--certify", "0.9"];
    let report = sparing(&[&args[..], &["--save-certificate", &certificate, "--json"]].concat()).json();
    let certified = &report["certified"];
    assert_eq!((&report["examples"], &certified["inputs"]), (&Value::from(300), &Value::from(300)));
    assert_eq!(certified["contradicted"], false, "{certified}");
    let number = |name: &str| certified[name].as_f64().unwrap();
    // The cascade costs the cheap engine for all and the exact one for those escalated.
    let escalated = certified["tally"]["escalated"].as_f64().unwrap() / 300.0;
    let expected = number("flops_cheap") + escalated * number("flops_exact");
    assert!((number("flops") / expected - 1.0).abs() < 0.02, "{certified}");
    assert!(number("flops_cheap") < number("flops_exact") && number("same") >= number("same_cheap"), "{certified}");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&certificate).unwrap()).unwrap();
    assert_eq!(saved["escalate"], certified["certificate"]["escalate"]);
    // The same again, for people.
    let shown = sparing(&args).ok();
    assert!(
        shown.contains("certified: 90% of decisions") && shown.contains("300 of 600 inputs drawn at random"),
        "{shown}"
    );
    assert!(shown.contains("cheap alone") && shown.contains("cascade"), "{shown}");

    // Run: escalated texts get the exact model's scores, the others the cheap one's.
    let run = |more: &[&str]| {
        let mut args = vec!["run", &model, "--file", &data, "--text", "text", "--json"];
        args.extend(more);
        sparing(&args)
    };
    let cheap = ["--attention", "mca:0.5,strict"];
    let ran = run(&[&cheap[..], &["--certificate", &certificate, "--certify", "0.9"]].concat());
    assert!(ran.err.contains("of 600 inputs were run exactly"), "{}", ran.err);
    let told: usize = ran.err.split("note: ").find_map(|note| note.split(" of 600").next()?.parse().ok()).unwrap();
    let (cascade, exact, cheaply) = (ran.json_lines(), run(&[]).json_lines(), run(&cheap).json_lines());
    let is = |other: &[Value]| cascade.iter().zip(other).filter(|(a, b)| a["score"] == b["score"]).count();
    assert!(is(&exact) >= told && is(&cheaply) >= 600 - told, "{told}");
    let same = cascade.iter().zip(&exact).filter(|(a, b)| a["label"] == b["label"]).count();
    assert!(same >= 540, "{same} of 600 decisions are the exact model's");

    // For another configuration, another model, a stricter promise: refused.
    for (more, part) in [
        (&["--precision", "int8"][..], "not for int8"),
        (&["--attention", "mca:0.5,strict,seed=1"], "not for f32, attention mca:0.5,strict,seed=1"),
        (&["--attention", "mca:0.5,strict", "--certify", "0.95"], "promises 0.9, not 0.95"),
    ] {
        let message = run(&[more, &["--certificate", &certificate]].concat()).error(1);
        assert!(message.contains(part), "{message}");
    }
    let (_other, other) = with_vocabulary("bert-classify");
    let message = sparing(&["run", &other, "x", "--attention", "mca:0.5,strict", "--certificate", &certificate]);
    assert!(message.error(1).contains("another model"));
    let message = run(&["--precision", "int8", "--certificate", &data]).error(1);
    assert!(message.contains("not a certificate"), "{message}");
    assert!(run(&["--precision", "int8", "--certify", "0.9"]).error(2).contains("--save-certificate"));
}

#[test]
fn the_built_in_model_on_its_data() {
    let report = sparing(&["eval", "--limit", "300", "--precision", "int8", "--certify", "0.98", "--json"]).json();
    let certified = &report["certified"];
    assert_eq!((&certified["inputs"], &certified["contradicted"]), (&150.into(), &false.into()), "{certified}");
    let escalated = certified["tally"]["escalated"].as_u64().unwrap();
    assert!(certified["certificate"]["escalate"] != "everything" && escalated < 30, "{certified}");
}

#[test]
fn other_data_can_be_measured_on() {
    let model = fixture("bert-classify-text");
    let (_folder, data) = file("mine.csv", table(40, "zero"));
    // Without labels.
    let (_other, unlabelled) = file("more.csv", "text\n".to_string() + &texts(500).join("\n") + "\n");
    let args = ["eval", &model, "--data", &data, "--certify", "0.95", "--calibrate", &unlabelled];
    let report = sparing(&[&args[..], &INT8, &["--text", "text", "--label", "label", "--json"]].concat()).json();
    assert_eq!(report["examples"], 40);
    assert_eq!(report["certified"]["certificate"]["inputs"], 500);
    let few = [&args[..], &INT8, &["--text", "text", "--label", "label", "--calibrate-inputs", "30"]].concat();
    let ran = sparing(&few);
    assert!(ran.err.contains("30 inputs are too few") && ran.err.contains("59 are needed"), "{}", ran.err);
    let shown = ran.ok();
    assert!(
        shown.contains("not certified: everything is run exactly") && shown.contains("40 of 40 run exactly"),
        "{shown}"
    );
}

#[test]
fn every_kind_of_decision() {
    let certified = |args: &[&str]| sparing(&[args, &INT8, &["--certify", "0.9", "--json"]].concat()).json();
    let (_data, scores) = file("scores.csv", table(200, "1.5"));
    let (_model, regress) = with_vocabulary("bert-regress");
    let wide = certified(&["eval", &regress, "--data", &scores, "--tolerance", "10"]);
    assert_eq!(wide["certified"]["certificate"]["escalate"], "nothing");
    let narrow = certified(&["eval", &regress, "--data", &scores, "--tolerance", "1e-9"]);
    assert_eq!(narrow["certified"]["tally"]["escalated"], 100);
    assert_eq!(narrow["certified"]["same"], 100);
    let (_data, several) = file("several.csv", table(200, "zero|two"));
    let (_model, multilabel) = with_vocabulary("bert-multilabel");
    let report = certified(&["eval", &multilabel, "--data", &several]);
    assert_eq!(report["certified"]["contradicted"], false, "{report}");
    let tags = |text: &String| {
        let words: Vec<&str> = text.split(' ').collect();
        serde_json::json!({"tokens": words, "tags": vec!["zero"; words.len()]}).to_string()
    };
    let lines: Vec<String> = texts(200).iter().map(tags).collect();
    let (_data, tagged) = file("tags.jsonl", lines.join("\n"));
    let (_model, token) = with_vocabulary("bert-token");
    let report = certified(&["eval", &token, "--data", &tagged, "--text", "tokens", "--label", "tags"]);
    assert_eq!(report["certified"]["contradicted"], false, "{report}");
    let question = |text: &String| {
        let qas =
            serde_json::json!([{"id": text, "question": "the plot", "answers": [{"text": "film", "answer_start": 0}]}]);
        serde_json::json!({"context": format!("film {text} they call her the classic"), "qas": qas})
    };
    let paragraphs: Vec<Value> = texts(200).iter().map(question).collect();
    let squad = serde_json::json!({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]});
    let (_data, squad) = file("dev-v1.1.json", squad.to_string());
    let answers = fixture("bert-answer-text");
    let report = certified(&["eval", &answers, "--task", "squad", "--data", &squad]);
    assert_eq!((&report["certified"]["inputs"], &report["certified"]["contradicted"]), (&100.into(), &false.into()));
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let model = fixture("bert-classify-text");
    let (_folder, data) = file("mine.csv", table(8, "zero"));
    let eval = |more: &[&str]| sparing(&[&["eval", &model, "--data", &data], more].concat()).error(2);
    for share in ["0", "1", "1.5", "-0.1", "NaN"] {
        assert!(eval(&[&INT8[..], &["--certify", share]].concat()).contains("between 0 and 1"), "{share}");
    }
    let certify = ["--precision", "int8", "--certify", "0.9"];
    assert!(eval(&[&certify[..], &["--confidence", "1"]].concat()).contains("--confidence 1"));
    assert!(eval(&["--certify", "0.9"]).contains("exact model already"));
    assert!(eval(&[&certify[..], &["--tolerance", "0.1"]].concat()).contains("predict numbers"));
    assert!(eval(&[&certify[..], &["--calibrate", "train"]].concat()).contains("--data"));
    let (_model, regress) = with_vocabulary("bert-regress");
    let (_scores, scores) = file("scores.csv", table(8, "1.5"));
    let message = sparing(&[&["eval", &regress, "--data", &scores], &certify[..]].concat()).error(2);
    assert!(message.contains("--tolerance"), "{message}");
    let (_pairs, pairs) = file("pairs.csv", "text,pair,label\na film,a plot,1\na cat,a mat,2\n");
    let embed = fixture("bert-embed-mean");
    let args = ["eval", &embed, "--data", &pairs, "--pair", "pair"];
    let message = sparing(&[&args[..], &certify].concat()).error(2);
    assert!(message.contains("embeds texts"), "{message}");
    let (_text, text) = file("text.txt", "a film the plot\n".repeat(20));
    let generate = fixture("gpt2-causal-text");
    let message =
        sparing(&[&["eval", &generate, "--task", "language", "--data", &text], &certify[..]].concat()).error(2);
    assert!(message.contains("next token"), "{message}");
    let missing = sparing(&[&["eval", &model, "--data", &data, "--calibrate", "no-such.csv"], &certify[..]].concat());
    assert!(missing.error(1).contains("no-such.csv"));
}
