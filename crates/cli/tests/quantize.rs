//! `sparing quantize`.

mod common;

use common::{file, fixture, sparing};

fn table() -> (tempfile::TempDir, String) {
    let texts = ["a film", "the plot is thin", "good", "not good at all", "actors", "the film is good", "thin plot"];
    let mut csv = "review,stars\n".to_string();
    for i in 0..40 {
        csv += &format!("{} {},LABEL_{}\n", texts[i % texts.len()], texts[(i * 3 + 1) % texts.len()], i % 3);
    }
    file("mine.csv", csv)
}

#[test]
fn a_smaller_directory_that_everything_takes() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("small").display().to_string();
    let shown = sparing(&["quantize", &model, "--out", &out, "--bits", "embeddings=4,attention=8,ffn=6"]).ok();
    for word in ["times smaller", "without calibration", "embeddings     4", "attention      8", "ffn            6"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains("head"), "{shown}");
    let plan: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("small/sparing.json")).unwrap()).unwrap();
    assert_eq!(plan["precision"], "int8");
    assert_eq!(plan["quantization"]["bits"], serde_json::json!({"embeddings": 4, "attention": 8, "ffn": 6}));
    let answers = |model: &str, precision: &str| {
        sparing(&["run", model, "the film is good", "--json", "--precision", precision]).json_lines()
    };
    assert_eq!(answers(&out, "int8")[0]["tokens"], answers(&model, "f32")[0]["tokens"]);
    assert!(answers(&out, "f32")[0]["score"].as_f64().unwrap() > 0.0);
    let json = sparing(&["inspect", &out, "--length", "8", "--repeats", "1", "--json"]).json();
    assert_eq!(json["layers"], 2);
    // Again, from itself, onto itself only if asked to.
    assert!(sparing(&["quantize", &out, "--out", &out]).error(1).contains("--overwrite"));
    sparing(&["quantize", &out, "--out", &out, "--overwrite"]).ok();
}

/// Labels with other names, and texts to calibrate with that have none.
#[test]
fn texts_to_calibrate_with_need_no_labels_to_rename() {
    let (_table, path) = table();
    let theirs = std::fs::read_to_string(&path).unwrap().replace("LABEL_", "stars ");
    let (_renamed, data) = file("theirs.csv", &theirs);
    let texts: Vec<&str> = theirs.lines().map(|line| line.split(',').next().unwrap()).collect();
    let (_texts, texts) = file("texts.csv", texts.join("\n"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("small").display().to_string();
    let args = ["quantize", &fixture("bert-classify-text"), "--out", &out, "--calibrate", &texts, "--data", &data];
    let json = sparing(&[&args[..], &["--labels", "stars 0=0,stars 1=1,stars 2=2", "--json"]].concat()).json();
    assert_eq!(json["scored"]["examples"], 40);
}

#[test]
fn calibrated_on_some_and_scored_on_the_rest() {
    let model = fixture("bert-classify-text");
    let (_table, path) = table();
    let folder = tempfile::tempdir().unwrap();
    for (activations, ranges) in [("token", 0), ("static", 12)] {
        let out = folder.path().join(activations).display().to_string();
        let args = ["quantize", &model, "--out", &out, "--calibrate", &path, "--samples", "10", "--json"];
        let json = sparing(&[&args[..], &["--activations", activations]].concat()).json();
        assert_eq!(json["calibration"]["examples"], 10);
        assert_eq!(json["scored"]["examples"], 30);
        assert!(json["bytes_after"].as_f64() < json["bytes_before"].as_f64());
        assert!(json["scored"]["agreement"]["same_top"].as_f64().unwrap() > 0.5, "{json}");
        let plan = std::fs::read(folder.path().join(activations).join("sparing.json")).unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&plan).unwrap();
        let found = plan["quantization"]["activations"]["ranges"].as_object().map_or(0, |r| r.len());
        assert_eq!(found, ranges);
        // The score is the saved directory's.
        let again = sparing(&["quantize", &out, "--out", &format!("{out}2"), "--data", &path, "--json"]).json();
        assert_eq!(again["scored"]["examples"], 40);
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let model = fixture("bert-classify-text");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let with = |more: &[&str]| sparing(&[&["quantize", &model, "--out", &out], more].concat());
    assert!(with(&["--activations", "static"]).error(2).contains("--calibrate"));
    assert!(with(&["--calibrate", "nowhere.csv"]).error(1).contains("nowhere.csv"));
    assert_eq!(with(&["--bits", "knee=8"]).code, 2);
    assert_eq!(with(&["--bits", "9"]).code, 2);
    assert!(!folder.path().join("out").exists());
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("precious.txt"), "x").unwrap();
    let full = full.display().to_string();
    assert!(sparing(&["quantize", &model, "--out", &full, "--overwrite"]).error(1).contains("not a model directory"));
    assert!(folder.path().join("full/precious.txt").exists());
}
