//! `sparing lra`, with and without the feature.

mod common;

#[cfg(not(feature = "train"))]
#[test]
fn without_the_feature_it_says_how_to_get_it() {
    let message = common::sparing(&["lra", "train", "listops"]).error(1);
    assert!(message.contains("--features train"), "{message}");
    let message = common::sparing(&["bench", "attention", "--length", "64"]).error(1);
    assert!(message.contains("--features train"), "{message}");
}

#[cfg(feature = "train")]
mod with_training {
    use super::common::sparing;

    /// Short expressions from a seed, two mechanisms on them, stopped and gone on, and their table.
    #[test]
    fn prepare_train_and_table() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (data, runs) = (at("data"), at("runs"));
        let prepare =
            ["lra", "prepare", "listops", "--out", &data, "--examples", "200", "--length", "30", "--min-length", "4"];
        let made = sparing(&[&prepare[..], &["--json"]].concat()).json_lines();
        assert_eq!(made.len(), 3);
        assert!(
            made.iter().all(|made| made["bytes"].as_u64().unwrap() > 0 && made["mean_length"].as_f64().unwrap() > 4.0)
        );
        let how = ["lra", "train", "listops", "--attention", "full,local", "--data", &data, "--out", &runs];
        let less = ["--length", "32", "--batch", "4", "--steps", "6", "--json"];
        let train = |more: &[&str]| sparing(&[&how[..], &less, more].concat()).json_lines();
        let first = train(&["--until", "3"]);
        assert!(first.iter().all(|record| record["steps"] == 3 && record["planned"] == 6));
        let whole = train(&[]);
        assert_eq!(whole.len(), 2);
        assert!(whole.iter().all(|record| record["steps"] == 6 && record["score"].as_f64().unwrap() >= 0.0));
        // Done is done.
        assert_eq!(train(&[]), whole);
        // And something else is something else.
        let other = |more: &[&str]| sparing(&[&how[..], &less, more].concat()).error(1);
        let message = other(&["--lr", "0.5"]);
        assert!(message.contains("the rate differs") && message.contains("--out"), "{message}");
        assert!(other(&["--test-examples", "2"]).contains("the test examples differ"));
        let elsewhere = at("elsewhere");
        let absurd = [&how[..8], &[&elsewhere, "--lr=-1"], &less].concat();
        assert!(sparing(&absurd).error(2).contains("--lr"));
        let (table, picture) = (at("table.md"), at("picture.svg"));
        sparing(&["lra", "table", &runs, "--out", &table, "--picture", &picture, "--speed-of", "listops"]).ok();
        let table = std::fs::read_to_string(table).unwrap();
        assert!(table.contains("| full |") && table.contains("### listops"), "{table}");
        assert!(std::fs::read_to_string(&picture).unwrap().matches("<circle").count() == 2);
        let (records, picture) = (at("records.json"), at("another.svg"));
        sparing(&["lra", "table", &runs, "--json", "--out", &records, "--svg", &picture]).ok();
        let records: serde_json::Value = serde_json::from_slice(&std::fs::read(records).unwrap()).unwrap();
        assert_eq!(records.as_array().unwrap().len(), 2);
        assert!(std::fs::exists(picture).unwrap());
    }

    #[test]
    fn a_block_is_timed() {
        let run_as = |command: [&str; 2], format: &str| {
            let sizes = ["--length", "64,128", "--width", "16", "--heads", "2", "--repeats", "2", "-o", format];
            sparing(&[&command[..], &["--attention", "local,linear"], &sizes].concat()).ok()
        };
        let run = |format: &str| run_as(["bench", "attention"], format);
        assert_eq!(run_as(["lra", "bench"], "csv").lines().count(), 7);
        let rows: serde_json::Value = serde_json::from_str(&run("json")).unwrap();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), 6, "full attention is always there");
        assert!(rows.iter().all(|row| row["milliseconds"].as_f64().unwrap() > 0.0));
        assert_eq!(run("csv").lines().count(), 7);
        assert!(run("md").contains("| linear | 128 |"));
    }

    /// Figures are measured once, kept and shown by the table; what fails has its reason and keeps nothing else from being measured.
    #[test]
    fn updates_are_timed() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().display().to_string();
        let run = |more: &[&str]| {
            let how = ["lra", "speed", "--attention", "full,linear", "--batch", "2", "--each", "0", "--out", &runs];
            sparing(&[&how[..], more].concat())
        };
        let first = run(&["--length", "64", "--json"]).json_lines();
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|cell| cell["updates_per_second"].as_f64().unwrap() > 0.0 && cell["updates"] == 1));
        assert!(first.iter().all(|cell| cell["peak_bytes"].as_u64().unwrap() > 0), "{first:?}");
        let more = run(&["--length", "64,128", "--json"]).json_lines();
        assert_eq!((&more[0], &more[2]), (&first[0], &first[1]), "measured once");
        // What was being measured when all was killed is measured anew.
        let file = folder.path().join("speed/small-full-64-2-cpu.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut cell: serde_json::Value = serde_json::from_str(&text).unwrap();
        let broken = |cell: &mut serde_json::Value, why: &str| {
            (cell["failure"], cell["updates_per_second"]) = (why.into(), serde_json::Value::Null);
            std::fs::write(&file, cell.to_string()).unwrap();
        };
        broken(&mut cell, "being measured");
        assert!(run(&["--length", "64", "--json"]).json_lines()[0]["updates_per_second"].as_f64().is_some());
        // What has failed is not, unless it is asked for.
        broken(&mut cell, "out of luck");
        let shown = run(&["--length", "64,128"]).ok();
        assert!(shown.contains("out of luck: full at 64") && shown.contains("updates/s at 128"), "{shown}");
        let table = sparing(&["lra", "table", &runs]).ok();
        assert!(table.contains("- out of luck: full at 64") && table.contains("| linear |"), "{table}");
        assert!(run(&["--length", "64", "--retry", "--json"]).json_lines()[0]["failure"].is_null());
    }

    /// A configuration that has changed under its name, or does not say what it was, is measured anew.
    #[test]
    fn figures_of_another_encoder_are_measured_anew() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().display().to_string();
        let (config, file) = (folder.path().join("mine.json"), folder.path().join("speed/mine-linear-64-2-cpu.json"));
        let small = include_str!("../../train/configs/lra/small.json");
        let run = |text: &str| {
            std::fs::write(&config, text).unwrap();
            let how =
                ["lra", "speed", "--attention", "linear", "--batch", "2", "--each", "0", "--length", "64", "--json"];
            let config = config.display().to_string();
            sparing(&[&how[..], &["--out", &runs, "--config", &config]].concat()).json_lines().remove(0)
        };
        let first = run(small);
        assert_eq!(run(small), first, "measured once");
        let wider = run(&small.replace("\"mlp\": 128", "\"mlp\": 256"));
        assert!(wider["parameters"].as_u64() > first["parameters"].as_u64(), "{wider}");
        let mut silent = wider.clone();
        silent.as_object_mut().unwrap().remove("training");
        silent["parameters"] = 1.into();
        std::fs::write(&file, silent.to_string()).unwrap();
        assert_eq!(run(small)["parameters"], first["parameters"]);
    }

    #[test]
    fn mistakes_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().display().to_string();
        let train =
            |more: &[&str]| sparing(&[&["lra", "train", "listops", "--data", &out, "--out", &out][..], more].concat());
        assert!(train(&[]).error(1).contains("sparing lra prepare"));
        assert!(train(&["--attention", "fuller"]).error(2).contains("sinkhorn"));
        assert!(train(&["--config", "huge"]).error(2).contains("small and benchmark"));
        let gone = folder.path().join("none.json").display().to_string();
        assert!(train(&["--config", &gone]).error(1).contains("none.json"));
        assert!(train(&["--lr=-1"]).error(2).contains("--lr"), "told before the data are read");
        let tpu = train(&["--device", "tpu"]);
        assert!(tpu.code == 2 && tpu.err.contains("cpu, cuda and wgpu"), "{}", tpu.err);
        for (prepare, named) in [
            (&["text"][..], "--data"),
            (&["pathfinder", "--length", "64"], "--length"),
            (&["text", "--min-length", "4"], "--min-length"),
            (&["listops", "--min-length", "40", "--length", "30"], "--min-length 40"),
            // What makes sense is not made if the rest does not.
            (&["listops", "image", "--examples", "2", "--length", "600"], "image"),
        ] {
            let told = sparing(&[&["lra", "prepare", "--out", &out][..], prepare].concat()).error(2);
            assert!(told.contains(named), "{prepare:?}: {told}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(sparing(&["lra", "table", &out]).error(1).contains("no record"));
        assert!(sparing(&["lra", "speed", "--out", &out, "--each=-1"]).error(2).contains("--each"));
        let file = folder.path().join("mine.json");
        std::fs::write(&file, r#"{"kind":"local","blocks":3}"#).unwrap();
        let message = train(&["--attention", &file.display().to_string()]).error(1);
        assert!(message.contains("mine.json") && message.contains("blocks"), "{message}");
    }
}
