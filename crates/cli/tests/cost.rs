//! `sparing inspect` and `sparing bench`.

mod common;

use common::{command, file, finish, fixture, sparing};

#[test]
fn inspection_adds_up() {
    let model = fixture("bert-classify-text");
    let json = sparing(&["inspect", &model, "--length", "16,32", "--batch", "2", "--repeats", "2", "--json"]).json();
    assert_eq!(json["layers"], 2);
    assert_eq!(json["labels"].as_array().unwrap().len(), 3);
    let costs = json["costs"].as_array().unwrap();
    assert_eq!(costs.len(), 2);
    for cost in costs {
        let sum = |what: &str| cost[what].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum::<f64>();
        assert!(sum("seconds") > 0.0);
        let economies = &cost["economies"];
        assert_eq!(economies["once_flops"].as_f64().unwrap(), sum("flops"));
        assert_eq!(economies["padded_flops"], economies["unpadded_flops"]);
        assert!(economies["head_rows_flops"].as_f64() < economies["unpadded_flops"].as_f64());
        assert_eq!(cost["layers"].as_array().unwrap().len(), 2);
    }
    let shown = sparing(&["inspect", &model, "--length", "16", "--repeats", "1", "--layers"]).ok();
    for word in ["parameters", "FLOPs", "ffn up", "exact economies", "only the rows the head reads", "layer "] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn economies_are_counted_on_real_lengths() {
    let model = fixture("bert-classify-text");
    let (_folder, texts) = file("texts.txt", "a film\na film\nthe plot is thin and the actors are not good at all\n");
    let json = sparing(&["inspect", &model, "--data", &texts, "--batch", "3", "--repeats", "1", "--json"]).json();
    let economies = &json["costs"][0]["economies"];
    assert_eq!(economies["repeated"], 1);
    let flops = |name: &str| economies[name].as_f64().unwrap();
    assert!(flops("padded_flops") > flops("unpadded_flops"));
    assert!(flops("unpadded_flops") > flops("head_rows_flops"));
    assert!(flops("head_rows_flops") > flops("once_flops"));
}

#[test]
fn a_picture_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cost.svg");
    sparing(&[
        "inspect",
        &fixture("bert-classify-text"),
        "--length",
        "16",
        "--repeats",
        "1",
        "--svg",
        path.to_str().unwrap(),
    ])
    .ok();
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for word in ["parameters", "FLOPs", "time", "attention", "feed-forward", "embeddings"] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn what_chosen_keys_save_shows_beside_exact_attention() {
    let model = fixture("bert-classify-text");
    let args = ["inspect", &model, "--length", "32", "--repeats", "2", "--attention", "sign:8"];
    let json = sparing(&[&args[..], &["--json"]].concat()).json();
    let chosen = &json["costs"][0]["chosen"];
    assert_eq!(chosen["attention"], "exact,keys=8");
    for [exact, with] in [&chosen["attention_seconds"], &chosen["seconds"]].map(|pair| [&pair[0], &pair[1]]) {
        assert!(exact.as_f64().unwrap() > 0.0 && with.as_f64().unwrap() > 0.0);
    }
    let shown = sparing(&args).ok();
    assert!(shown.contains("with exact,keys=8") && shown.contains("times faster"), "{shown}");
    // Texts tell what tokens and values save; lengths do not.
    let (_folder, texts) = file("texts.txt", "a film\nthe plot is thin and the actors are not good at all\n");
    sparing(&["inspect", &model, "--data", &texts, "--repeats", "1", "--attention", "exact,drop=0.6"]).ok();
    let told = sparing(&["inspect", &model, "--length", "32", "--attention", "exact,drop=0.6"]).error(2);
    assert!(told.contains("goes by the text") && told.contains("sign:64"), "{told}");
}

#[test]
fn a_shape_takes_longer_texts_than_published() {
    let ran = sparing(&["inspect", "--shape", "electra-small", "--length", "600", "--repeats", "1", "--json"]);
    assert!(ran.err.contains("512 tokens as published"), "{}", ran.err);
    assert_eq!(ran.json()["costs"][0]["tokens"], 600);
    let told = sparing(&["inspect", "--shape", "electra-small", "--length", "999999"]).error(2);
    assert!(told.contains("at most 65536"), "{told}");
}

#[test]
fn every_family_can_be_inspected() {
    for entry in std::fs::read_dir(fixture(".")).unwrap() {
        let path = entry.unwrap().path();
        if path.join("model.safetensors").exists() {
            let json =
                sparing(&["inspect", path.to_str().unwrap(), "--length", "4", "--repeats", "1", "--json"]).json();
            assert!(json["costs"][0]["tokens"] == 4, "{}", path.display());
        }
    }
}

#[test]
fn a_sweep_has_a_row_per_combination() {
    let model = fixture("bert-classify-text");
    let args = [
        "bench",
        &model,
        "--batch",
        "1,2",
        "--length",
        "8,16",
        "--precision",
        "f32,int8",
        "--threads",
        "1,2",
        "--repeats",
        "2",
    ];
    let with = |format: &str| sparing(&[&args[..], &["-o", format]].concat());
    let json = with("json").json();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 16);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("p10_ms") <= number("median_ms") && number("median_ms") <= number("p90_ms"), "{row}");
        assert!(number("tokens_per_second") > 0.0 && number("gflops") > 0.0);
        assert_eq!(row["runs"], 2);
    }
    let csv = with("csv").ok();
    assert_eq!(csv.lines().count(), 17);
    assert!(!csv.contains("null") && csv.lines().all(|line| line.split(',').count() == 16), "{csv}");
    assert!(with("md").ok().contains("| --- |"));
    assert!(with("table").ok().contains("median ms"));
    let hidden = sparing(&[&args[..], &["-o", "json", "--output", "hidden"]].concat()).json();
    assert_eq!(hidden["output"], "hidden");
}

#[test]
fn a_generator_is_timed_too() {
    let json = sparing(&[
        "bench",
        &fixture("gpt2-causal-text"),
        "--batch",
        "2",
        "--length",
        "8",
        "--repeats",
        "1",
        "-o",
        "json",
    ])
    .json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn shapes_need_no_files() {
    let json = sparing(&["inspect", "--shape", "minilm-l6", "--length", "8", "--repeats", "1", "--json"]).json();
    let parameters: u64 = json["parameters"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(parameters, 22_713_986);
}

#[test]
fn the_worker_speaks_the_protocol_of_the_peers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.f32");
    let requests = format!("2 8 3\nids 2 5 6 3\ndump {} 2 8\n\n", path.display());
    let ran =
        finish(command(&["bench", &fixture("bert-classify-text"), "--worker", "--threads", "1"]), requests.as_bytes());
    let out = ran.ok();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].strip_prefix("READY ").unwrap().parse::<f64>().unwrap() >= 0.0);
    let (times, memory) = lines[1].split_once('|').unwrap();
    assert_eq!(times.split_whitespace().count(), 3);
    assert!(times.split_whitespace().all(|t| t.split(':').all(|n| n.parse::<f64>().is_ok())));
    assert_eq!(memory.split_whitespace().filter(|n| n.parse::<u64>().is_ok()).count(), 2);
    assert_eq!(lines[2].split_once('|').unwrap().0.split_whitespace().count(), 3);
    assert_eq!(std::fs::read(path).unwrap().len(), 2 * 3 * 4);
}

#[test]
fn a_pruned_model_shows_what_is_left_and_costs_less() {
    use sparing_model::{Edits, FfnEdit, LayerEdit, Model};
    let (folder, whole) = (tempfile::tempdir().unwrap(), fixture("bert-classify-text"));
    let path = folder.path().join("pruned").display().to_string();
    let ffn = FfnEdit { neurons: Some((0..5).collect()), ..FfnEdit::default() };
    let less = LayerEdit { heads: Some(vec![1]), ffns: [(0, ffn)].into(), ..LayerEdit::default() };
    let gone = LayerEdit { heads: Some(vec![]), ..LayerEdit::default() };
    let model = Model::load(whole.as_ref()).unwrap();
    model.pruned(&Edits { layers: [(0, less), (1, gone)].into() }).unwrap().save(path.as_ref()).unwrap();
    let inspect = |model: &str| sparing(&["inspect", model, "--length", "16", "--repeats", "1", "--json"]).json();
    let (before, after) = (inspect(&whole), inspect(&path));
    let sum = |report: &serde_json::Value, of: &str| -> f64 {
        let parts = report[of].as_object().unwrap_or_else(|| report["costs"][0][of].as_object().unwrap());
        parts.values().map(|n| n.as_f64().unwrap()).sum()
    };
    for of in ["parameters", "flops"] {
        assert!(sum(&after, of) < sum(&before, of), "{of}");
    }
    assert!(before.get("left").is_none());
    assert_eq!(after["left"][0], serde_json::json!({"layer": 0, "heads": [1], "widths": [5]}));
    assert_eq!(after["left"][1]["heads"], serde_json::json!([]));
    let layers = |report: &serde_json::Value| -> Vec<f64> {
        report["costs"][0]["layers"].as_array().unwrap().iter().map(|l| l["flops"].as_f64().unwrap()).collect()
    };
    assert!(layers(&before).iter().zip(layers(&after)).all(|(before, after)| after < *before));
    let shown = sparing(&["inspect", &path, "--length", "16", "--repeats", "1"]).ok();
    assert!(shown.contains("pruned; what is left"), "{shown}");
}
