//! Economised values from the command line: calibrate, evaluate, bad input in one line.

mod common;

use common::{file, fixture, sparing};

const DATA: &str =
    "text,label\na joy from start to end,one\na dull film,zero\nthe plot is thin,zero\nfunny and warm,one\n";

#[test]
fn calibrated_samplers_run_after_calibrate() {
    let model = fixture("bert-classify-text");
    let (_folder, data) = file("mine.csv", DATA);
    let (folder, _) = file("unused", "");
    let out = folder.path().join("calibration.safetensors").display().to_string();
    let said = sparing(&["calibrate", &model, "--data", &data, "--text", "text", "--out", &out]).ok();
    assert!(said.contains("2 layers") && said.contains("variance"), "{said}");
    let eval = |attention: &str, more: &[&str]| {
        let mut args = vec!["run", &model, "a joy", "a dull film", "--json", "--attention", attention];
        args.extend(more);
        sparing(&args)
    };
    let exact = eval("exact", &[]).json_lines();
    assert_eq!(eval("mca:1e-30,strict", &[]).json_lines(), exact);
    for sampler in ["calibrated", "systematic", "graded", "mean"] {
        let lines = eval(&format!("{sampler}:1.0,strict"), &["--calibration", &out]).json_lines();
        assert_eq!(lines.len(), 2, "{sampler}");
        let same = eval(&format!("{sampler}:1e-30"), &["--calibration", &out]).json_lines();
        assert_eq!(same, exact, "{sampler}");
        let message = eval(&format!("{sampler}:1.0"), &[]).error(1);
        assert!(message.contains("sparing calibrate"), "{message}");
    }
    let seeds = ["mca:1.0,strict,seed=1", "mca:1.0,strict,seed=2"].map(|a| eval(a, &[]).json_lines());
    assert_ne!(seeds[0], seeds[1]);
    // A calibration for another model.
    let message =
        sparing(&["run", &fixture("bert-mlm-text"), "a [MASK]", "--attention", "graded:0.4", "--calibration", &out]);
    let message = message.error(1);
    assert!(message.contains("made"), "{message}");
    let message = eval("graded:0.4", &["--calibration", &data]).error(1);
    assert!(message.contains("not a calibration"), "{message}");
    let message = eval("graded:0.4", &["--calibration", "no-such-file"]).error(1);
    assert!(message.contains("no-such-file"), "{message}");
}

#[test]
fn eval_and_bench_tell_what_was_spent() {
    let model = fixture("bert-classify-text");
    let (_folder, data) = file("mine.csv", DATA);
    let args = ["eval", &model, "--data", &data, "--attention", "mca:0.5,strict,padded=128"];
    let shown = sparing(&args).ok();
    assert!(shown.contains("fewer FLOPs on real tokens") && shown.contains("as the authors count"), "{shown}");
    let json = sparing(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(json["attention"]["plan"], "mca:0.5,padded=128,strict");
    assert!(json["attention"]["values_ratio"].as_f64().unwrap() >= 1.0, "{json}");
    let bench = ["bench", &model, "--attention", "exact", "--attention", "mca:1.0", "--batch", "1", "--length", "8"];
    let table = sparing(&[&bench[..], &["--repeats", "1"]].concat()).ok();
    assert!(table.contains("mca:1") && table.contains("exact"), "{table}");
}

#[test]
fn tokens_are_dropped_and_skip() {
    let model = fixture("bert-classify-text");
    let (_folder, data) = file("mine.csv", DATA);
    for plan in ["exact,drop=1", "exact,skip=1,skip1=0", "exact,keep=0.5", "exact,merge=0.25"] {
        let args = ["eval", &model, "--data", &data, "--attention", plan];
        let shown = sparing(&args).ok();
        assert!(shown.contains(&format!("attention {plan}: whole model")), "{shown}");
        let json = sparing(&[&args[..], &["--json"]].concat()).json();
        assert!(json["attention"]["model_ratio"].as_f64().unwrap() > 1.0, "{json}");
    }
    let run = |plan: &str| sparing(&["run", &model, "a joy", "--json", "--attention", plan]).json_lines();
    assert_eq!(run("exact,drop=0,skip=0"), run("exact"));
    assert_eq!(run("exact,keep=1,merge=0"), run("exact"));
    let message = sparing(&["run", &fixture("bert-mlm-text"), "a [MASK]", "--attention", "exact,drop=0.5"]).error(1);
    assert!(message.contains("use skip instead of drop"), "{message}");
}

#[test]
fn what_makes_no_sense_is_one_line_before_any_work() {
    let model = fixture("bert-classify-text");
    for (attention, part) in [
        ("mca:0", "alpha is 0"),
        ("mca:-1", "alpha is -1"),
        ("mca:NaN", "alpha is NaN"),
        ("mca", "mca:ALPHA"),
        ("exact,drop=-1", "drop is -1"),
        ("exact,drop=x", "a number is expected"),
        ("exact,skip9", "a number is expected"),
        ("exact,keep=2.5", "keep is 2.5"),
        ("exact,merge=0.9", "merge is 0.9"),
        ("exact,fall=1", "no setting"),
        ("best:0.4", "no sampler"),
    ] {
        let ran = sparing(&["run", &model, "x", "--attention", attention]);
        assert_eq!(ran.code, 2, "{attention}: {}", ran.err);
        assert!(ran.err.contains(part), "{attention}: {}", ran.err);
    }
    let message = sparing(&["run", &model, "x", "--attention", "mca:0.4,layer9=0.2"]).error(1);
    assert!(message.contains("no layer 9"), "{message}");
    let (folder, _) = file("unused", "");
    let copy = folder.path().display().to_string();
    for entry in std::fs::read_dir(&model).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    for (plan, part) in [
        (r#"{"attention": {"mca": {"alpha": 0}}}"#, "alpha is 0"),
        (r#"{"attention": {"mca": {"alpha": 0.4, "layers": {"7": 0.1}}}}"#, "no layer 7"),
        (r#"{"attention": {"mca": {"alpha": 0.4, "sampler": "graded"}}}"#, "sparing calibrate"),
        (r#"{"attention": {"mca": {"alpha": 0.4, "colour": 1}}}"#, "sparing.json"),
        (r#"{"attention": {"tokens": {"drop": {"cut": -1}}}}"#, "drop is -1"),
        (r#"{"attention": {"tokens": {"keep": {"all": 0}}}}"#, "keep is 0"),
        (r#"{"attention": {"tokens": {"skip": {"cut": 1, "layers": {"7": 1}}}}}"#, "no layer 7"),
    ] {
        std::fs::write(folder.path().join("sparing.json"), plan).unwrap();
        let message = sparing(&["run", &copy, "x"]).error(1);
        assert!(message.contains(part), "{plan}: {message}");
    }
    std::fs::write(folder.path().join("sparing.json"), r#"{"attention": {"mca": {"alpha": 0.4}}}"#).unwrap();
    sparing(&["run", &copy, "x"]).ok();
}
