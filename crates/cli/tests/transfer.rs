//! `sparing train transfer` and what draws and times its students.
#![cfg(feature = "train")]

mod common;

use common::{Ran, fixture, labelled, sparing};
use std::path::Path;

/// A teacher that tells the labels of a table, and a text to read before.
struct Work(tempfile::TempDir);

impl Work {
    fn new() -> Work {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..40).map(|i| format!("the film is {}\n", ["good,fine", "bad,poor"][i % 2])).collect();
        std::fs::write(folder.path().join("t.csv"), format!("text,label\n{lines}")).unwrap();
        std::fs::write(folder.path().join("plain.txt"), lines.replace('\n', "\n\n")).unwrap();
        let work = Work(folder);
        let how = ["--epochs", "6", "--lr", "5e-3", "--dropout", "0", "--batch", "8"];
        let model = fixture("bert-classify-text");
        sparing(
            &[&["train", "finetune", &model, "--data", &work.at("t.csv"), "--out", &work.at("teacher")][..], &how]
                .concat(),
        )
        .ok();
        work
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn transfer(&self, texts: &[&str], more: &[&str], out: &str) -> Ran {
        let how = ["--steps", "8", "--batch", "8", "--begin-texts", "16", "--begin-steps", "3"];
        // A student has begun before; an option is given once.
        let own = ["--student", "--begin-texts", "--to"].iter().any(|flag| more.contains(flag));
        let how = if own { &how[..4] } else { &how[..] };
        let (teacher, out) = (self.at("teacher"), self.at(out));
        let mut args = vec!["train", "transfer", "--out", &out];
        if !more.contains(&"--teacher") {
            args.extend(["--teacher", &teacher]);
        }
        sparing(&[&args, texts, how, more].concat())
    }

    /// A model like another one, with the lines of its vocabulary in another order.
    fn shuffled(&self, name: &str) -> String {
        let (from, to) = (self.at(name), self.at(&format!("{name}-shuffled")));
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(&from).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(entry.path(), Path::new(&to).join(entry.file_name())).unwrap();
        }
        let words = Path::new(&to).join("vocab.txt");
        let text = std::fs::read_to_string(&words).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        let last = lines.len() - 1;
        lines.swap(last, last - 1);
        std::fs::write(&words, lines.join("\n")).unwrap();
        to
    }
}

#[test]
fn a_student_reads_text_goes_on_with_a_task_and_is_drawn() {
    let work = Work::new();
    let (plain, table) = (work.at("plain.txt"), work.at("t.csv"));
    let (text, task) = (["--corpus", &plain], ["--data", table.as_str()]);
    work.transfer(&text, &["--max-tokens", "16"], "general").ok();
    let general = work.at("general");
    let going_on = ["--student", general.as_str()];
    work.transfer(&task, &going_on, "student").ok();
    assert!(sparing(&["run", &work.at("student"), "the film is bad"]).code == 0);
    let figures = work.at("figures");
    sparing(&["study", "functions", &work.at("teacher"), &work.at("student"), "--out", &figures]).ok();
    for name in ["attention.svg", "networks.svg", "growth.svg"] {
        assert!(Path::new(&figures).join(name).is_file(), "{name}");
    }
    // Keys that are projected have no picture, which is said.
    work.transfer(&task, &["--linear", "4"], "linear").ok();
    let other = work.at("other");
    let told = sparing(&["study", "functions", &work.at("teacher"), &work.at("linear"), "--out", &other]);
    assert!(told.err.contains("no attention.svg") && told.code == 0, "{}", told.err);
    assert!(!Path::new(&other).join("attention.svg").exists());
    // What a student has is not changed on the way, in silence least of all.
    for more in [["--to", "relu"], ["--softmax", "shared"], ["--linear", "4"]] {
        let message = work.transfer(&task, &[&going_on[..], &more].concat(), "never").error(2);
        assert!(message.contains(more[0]) && message.contains("leave it out"), "{message}");
    }
    let message = work.transfer(&task, &["--to", "relu", "--linear", "4"], "never").error(2);
    assert!(message.contains("--linear") && message.contains("--to"), "{message}");
    let message = work.transfer(&task, &["--begin-texts", "0"], "never").error(2);
    assert!(message.contains("--norm-warmup"), "{message}");
    assert!(!Path::new(&work.at("never")).exists());
}

/// A student that does not fit its teacher is refused in one line that says in what.
#[test]
fn students_of_other_teachers_are_refused() {
    let work = Work::new();
    let (plain, table) = (work.at("plain.txt"), work.at("t.csv"));
    let task = ["--data", table.as_str()];
    work.transfer(&["--corpus", &plain], &["--max-tokens", "16"], "general").ok();
    let general = work.at("general");
    // As many words, two of which have changed places.
    let shuffled = work.shuffled("general");
    let message = work.transfer(&task, &["--student", &shuffled], "never").error(1);
    assert!(message.contains("token 178 is") && message.contains("share one vocabulary"), "{message}");
    let message = sparing(&["study", "functions", &work.at("teacher"), &shuffled, "--out", &work.at("none")]).error(1);
    assert!(message.contains("token 178 is") && message.contains("share one vocabulary"), "{message}");
    // A teacher that is half as wide.
    let (teacher, narrow) = (work.at("teacher"), work.at("narrow"));
    let half = ["--width", "12", "--heads", "2", "--ffn", "24", "--steps", "1", "--batch", "8"];
    sparing(&[&["train", "distill", "--teacher", &teacher, "--out", &narrow], &task[..], &half].concat()).ok();
    let message = work.transfer(&task, &["--teacher", &narrow, "--student", &general], "never").error(1);
    assert!(message.contains("24 numbers per token, the teacher 12"), "{message}");
    // Words that the teacher does not have.
    let other = ["--teacher", "builtin", "--student", &general];
    let message = work.transfer(&task, &other, "never").error(1);
    assert!(message.contains("the student has 180 words"), "{message}");
    let message = sparing(&["study", "functions", "builtin", &general, "--out", &work.at("none")]).error(1);
    assert!(message.contains("the student has 180 words"), "{message}");
    assert!(!Path::new(&work.at("never")).exists() && !Path::new(&work.at("none")).exists());
}

/// What has nothing to do is not taken in silence.
#[test]
fn options_that_would_be_ignored_are_refused() {
    let work = Work::new();
    let (plain, table, teacher) = (work.at("plain.txt"), work.at("t.csv"), work.at("teacher"));
    let (text, task) = (["--corpus", plain.as_str()], ["--data", table.as_str()]);
    let together = |texts: &[&str], more: &[&str], flags: [&str; 2]| {
        let told = work.transfer(texts, more, "never");
        assert_eq!(told.code, 2, "{}", told.err);
        assert!(flags.iter().all(|flag| told.err.contains(flag)), "{flags:?}: {}", told.err);
    };
    for (flag, value) in [
        ("--task", "sst2"),
        ("--data", table.as_str()),
        ("--dev", table.as_str()),
        ("--limit", "4"),
        ("--text", "text"),
        ("--pair", "text"),
        ("--label", "label"),
    ] {
        together(&text, &[flag, value], ["--corpus", flag]);
    }
    for flag in ["--alpha", "--beta", "--gamma", "--temperature"] {
        together(&task, &["--no-teacher", flag, "1"], ["--no-teacher", flag]);
    }
    for flag in ["--begin-texts", "--begin-steps"] {
        together(&task, &["--student", &teacher, flag, "3"], ["--student", flag]);
    }
    for flag in ["--eval-every", "--patience"] {
        together(&text, &[flag, "2"], ["--corpus", flag]);
    }
    together(&task, &["--no-teacher", "--guided", "2"], ["--no-teacher", "--guided"]);
    together(&task, &["--linear", "4", "--gamma", "1"], ["--linear", "--gamma"]);
    together(&task, &["--beta", "0", "--gamma", "1"], ["--beta 0", "--gamma"]);
    together(&task, &["--alpha", "0", "--temperature", "2"], ["--alpha 0", "--temperature"]);
    let begin = ["--begin-texts", "0", "--begin-steps", "3", "--norm-warmup", "0.1"];
    together(&task, &begin, ["--begin-texts 0", "--begin-steps"]);
    let told = work.transfer(&task, &["--guided", "8"], "never").error(1);
    assert!(told.contains("--guided 8: there are 8 updates"), "{told}");
    together(&task, &["--max-tokens", "64"], ["--max-tokens 64", "the teacher takes 40"]);
    work.transfer(&text, &["--max-tokens", "12"], "short").ok();
    let short = work.at("short");
    together(&task, &["--student", &short, "--max-tokens", "16"], ["--max-tokens 16", "--student"]);
    work.transfer(&task, &["--student", &short, "--max-tokens", "8"], "shorter").ok();
    for more in [["--norm-warmup", "0.1"], ["--begin-steps", "3"], ["--begin-texts", "16"]] {
        let message = work.transfer(&task, &[&["--to", "relu"][..], &more].concat(), "never").error(2);
        assert!(message.contains(more[0]) && message.contains("leave it out"), "{message}");
    }
    assert!(!Path::new(&work.at("never")).exists());
}

/// What has nothing to replace is told, and a student that would be the teacher is refused.
#[test]
fn replacements_that_change_nothing_are_told() {
    let work = Work::new();
    let table = work.at("t.csv");
    let task = ["--data", table.as_str()];
    // A feed-forward block with ReLU: nothing else of the teacher is another one's.
    let (teacher, from) = (work.at("relu-teacher"), work.at("teacher"));
    std::fs::create_dir(&teacher).unwrap();
    for entry in std::fs::read_dir(&from).unwrap().map(|entry| entry.unwrap()).filter(|e| e.path().is_file()) {
        std::fs::copy(entry.path(), Path::new(&teacher).join(entry.file_name())).unwrap();
    }
    let config = Path::new(&teacher).join("config.json");
    let mut values: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    values["hidden_act"] = "relu".into();
    std::fs::write(&config, values.to_string()).unwrap();
    let told = work.transfer(&task, &["--teacher", &teacher, "--to", "relu"], "never").error(1);
    assert!(told.contains("the student would be the teacher: relu replaces nothing"), "{told}");
    assert!(!Path::new(&work.at("never")).exists());
    let told = work.transfer(&task, &["--teacher", &teacher, "--to", "relu,clip"], "clipped");
    assert!(told.code == 0 && told.err.contains("relu replaces nothing: no block here"), "{}", told.err);
    assert!(!told.err.contains("clip replaces nothing"), "{}", told.err);
    let shown = sparing(&["inspect", &work.at("clipped")]).ok();
    assert!(shown.contains("replaced: GELU by ReLU, tanh by clipping\n  relu replaces nothing"), "{shown}");
    // The usual teacher has all of them.
    let told = work.transfer(&task, &["--to", "relu"], "usual");
    assert!(told.code == 0 && !told.err.contains("replaces nothing"), "{}", told.err);
    assert!(!sparing(&["inspect", &work.at("usual")]).ok().contains("replaces nothing"));
}

#[test]
fn labels_alone_teach_within_bounds() {
    let work = Work::new();
    let table = work.at("t.csv");
    let told = work.transfer(&["--data", &table], &["--no-teacher", "--lr", "5e-5", "--json"], "alone");
    let summary: serde_json::Value = serde_json::from_str(&told.ok()).unwrap();
    assert_eq!(summary["complete"], true, "{summary}");
    let message = work.transfer(&["--corpus", &work.at("plain.txt")], &["--no-teacher"], "never").error(2);
    assert!(message.contains("needs labels"), "{message}");
}

#[test]
fn a_layer_is_timed_in_every_way() {
    let model = fixture("bert-classify-text");
    let told =
        sparing(&["study", "layer", &model, "--length", "8", "--keys", "4", "--repeats", "1", "-o", "json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row["exact_ms"].as_f64().unwrap() > 0.0 && row["shares"].as_object().unwrap().len() == 5, "{row}");
    }
    // Texts that no network takes, and keys that are no fewer than tokens: neither becomes something else.
    let message = sparing(&["study", "layer", &model, "--length", "8,20", "--tokens", "10"]).error(2);
    assert!(message.contains("--tokens 10") && message.contains("20 (--length)"), "{message}");
    let short = ["study", "layer", &model, "--length", "8", "--keys", "8", "--repeats", "1", "-o"];
    let report = sparing(&[&short[..], &["json"]].concat()).json();
    let shares = report["rows"][0]["shares"].as_object().unwrap();
    assert!(shares.len() == 4 && shares.keys().all(|kind| !kind.contains("keys")), "{shares:?}");
    let table = sparing(&[&short[..], &["csv"]].concat()).ok();
    assert!(table.lines().skip(1).all(|line| line.ends_with(",–")), "{table}");
    let message = sparing(&["study", "layer", &model, "--length", "4000"]).error(2);
    assert!(message.contains("--length 4000"), "{message}");
}

/// An encoder of sentences is one after transfer, with the pooling that it had.
#[test]
fn an_encoder_of_sentences_stays_one() {
    use sparing_model::Model;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("plain.txt"), "the film is good\n\n".repeat(20)).unwrap();
    for name in ["bert-embed-cls", "bert-embed-max"] {
        let (teacher, out) = (fixture(name), at(name));
        let how = ["--steps", "2", "--batch", "8", "--begin-texts", "8", "--begin-steps", "2", "--max-tokens", "16"];
        let args = ["train", "transfer", "--teacher", &teacher, "--corpus", &at("plain.txt"), "--out", &out];
        sparing(&[&args[..], &how].concat()).ok();
        let answer = &sparing(&["run", &out, "the film is good", "--json"]).json_lines()[0];
        assert_eq!(answer["embedding"].as_array().unwrap().len(), 24, "{answer}");
        let [before, after] = [&teacher, &out].map(|path| Model::load(path.as_ref()).unwrap().architecture.head);
        assert_eq!(after, before);
    }
}

/// What a network is too short for is cut, not computed: a teacher that takes fewer tokens than its student.
#[test]
fn a_teacher_whose_functions_were_replaced_teaches_others_and_is_not_copied() {
    let work = Work::new();
    let long: String =
        (0..40).map(|i| format!("{} {}\n", "the film ".repeat(11), ["good,fine", "bad,poor"][i % 2])).collect();
    let (table, long_table) = (work.at("t.csv"), work.at("long.csv"));
    std::fs::write(&long_table, format!("text,label\n{long}")).unwrap();
    work.transfer(&["--data", &table], &["--max-tokens", "20"], "student").ok();
    let (teacher, plain, out) = (work.at("student"), work.at("teacher"), work.at("small"));
    let distill = |more: &[&str]| {
        let args = ["train", "distill", "--teacher", &teacher, "--data", &long_table, "--out", &out];
        sparing(&[&args[..], &["--steps", "2", "--batch", "8"], more].concat())
    };
    let message = distill(&["--layers", "1", "--max-tokens", "20"]).error(1);
    assert!(message.contains("sparing train transfer") && message.contains("--student"), "{message}");
    assert!(!Path::new(&out).exists());
    let told = distill(&["--student", &plain]);
    assert!(told.code == 0 && told.err.contains("cut to 20 tokens"), "{}", told.err);
}

/// A model that reads one way is not taught by text with hidden words.
#[test]
fn plain_text_is_for_models_that_read_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("plain.txt"), "The film is good\n\n".repeat(20)).unwrap();
    let teacher = fixture("gpt2-causal-text");
    let args = ["train", "transfer", "--teacher", &teacher, "--to", "relu", "--corpus", &at("plain.txt")];
    let message = sparing(&[&args[..], &["--out", &at("never")]].concat()).error(1);
    assert!(message.contains("read both ways") && message.contains("--task"), "{message}");
}

/// What goes by softmax's shares is refused where there are none, in a sentence that says so.
#[test]
fn economies_of_shares_are_refused_where_a_network_makes_them() {
    let work = Work::new();
    let table = work.at("t.csv");
    work.transfer(&["--data", &table], &["--max-tokens", "20"], "student").ok();
    let (student, never) = (work.at("student"), work.at("never"));
    let (_folder, many) = labelled(&student, 120);
    let why = "this model has a network in its place";
    for economies in ["tokens", "keys", "values", "merge", "heads,tokens"] {
        let args = ["optimize", &student, "--data", &many, "--out", &never, "--economies", economies];
        let message = sparing(&args).error(2);
        assert!(message.starts_with("--economies ") && message.contains(why), "{message}");
        assert!(!message.contains("heads:") && !Path::new(&never).exists(), "{message}");
    }
    let message = sparing(&["calibrate", &student, "--data", &table]).error(1);
    assert!(message.contains(why), "{message}");
    let message = sparing(&["inspect", &student, "the film is good"]).error(1);
    assert!(message.contains(why) && !message.contains("mca:"), "{message}");
    // Longer texts than its networks take are cut, which is told.
    let told = sparing(&["eval", &student, "--data", &table, "--max-tokens", "64"]);
    assert!(told.code == 0 && told.err.contains("--max-tokens 64: the model takes 20 at most"), "{}", told.err);
    let told = sparing(&["eval", &student, "--data", &table, "--max-tokens", "20"]);
    assert!(told.code == 0 && !told.err.contains("at most"), "{}", told.err);
}
