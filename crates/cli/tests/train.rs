//! `sparing train`, with and without the feature.

mod common;

#[cfg(not(feature = "train"))]
#[test]
fn without_the_feature_it_says_how_to_get_it() {
    let message = common::sparing(&["train", "finetune", "model", "--task", "sst2"]).error(1);
    assert!(message.contains("--features train"), "{message}");
}

#[cfg(not(feature = "train"))]
#[test]
fn nor_does_optimize_train_without_it() {
    let message = common::sparing(&["optimize", "--recover"]).error(1);
    assert!(message.contains("--features train"), "{message}");
}

#[cfg(feature = "train")]
mod with_training {
    use super::common::{command, copied, file, finish, fixture, labelled, labelled_in, sparing};
    use std::process::{Command, Stdio};

    fn table(folder: &std::path::Path) -> String {
        let lines: String = (0..40).map(|i| format!("the film is {}\n", ["good,fine", "bad,poor"][i % 2])).collect();
        let path = folder.join("t.csv");
        std::fs::write(&path, "text,label\n".to_string() + &lines).unwrap();
        path.display().to_string()
    }

    #[test]
    fn finetune_distill_and_run_what_came_out() {
        let folder = tempfile::tempdir().unwrap();
        let data = table(folder.path());
        let out = |name: &str| folder.path().join(name).display().to_string();
        let how = ["--data", &data, "--epochs", "12", "--lr", "5e-3", "--dropout", "0", "--batch", "8", "--json"];
        let model = fixture("bert-classify-text");
        let run = |first: &[&str]| sparing(&[first, &how].concat());
        let told = run(&["train", "finetune", &model, "--out", &out("a")]);
        let summary: serde_json::Value = serde_json::from_str(&told.ok()).unwrap();
        assert_eq!(summary["runs"][0]["saved"][0]["value"], 1.0, "{summary}");
        assert!(sparing(&["run", &out("a"), "the film is bad"]).ok().contains("poor"));
        // What is there is not lost by accident.
        assert!(run(&["train", "finetune", &model, "--out", &out("a")]).error(1).contains("--overwrite"));
        let told = run(&["train", "distill", "--teacher", &out("a"), "--layers", "1", "--out", &out("b")]);
        let summary: serde_json::Value = serde_json::from_str(&told.ok()).unwrap();
        assert_eq!(summary["complete"], true, "{summary}");
        assert!(sparing(&["inspect", &out("b")]).code == 0);
        // A model is the mean of itself and itself, whatever the weights; another shape is refused.
        let mean = |models: [&str; 2]| {
            sparing(&["train", "average", models[0], models[1], "--weights", "3,1", "--out", &out("c")])
        };
        mean([&out("a"), &out("a")]).ok();
        let run = |name: &str| sparing(&["run", &out(name), "the film is bad", "--json"]).ok();
        assert_eq!(run("c"), run("a"));
        assert!(mean([&out("a"), &out("b")]).error(1).contains("differ in tensor"));
    }

    #[test]
    fn a_model_gets_windows_and_is_studied_as_a_longformer() {
        let folder = tempfile::tempdir().unwrap();
        let (data, out) = (table(folder.path()), folder.path().join("long").display().to_string());
        let windows = ["--window", "4", "--positions", "90", "--steps", "2", "--batch", "4", "--json"];
        let model = fixture("bert-classify-text");
        sparing(&[&["train", "finetune", &model, "--data", &data, "--out", &out], &windows[..]].concat()).ok();
        assert!(sparing(&["run", &out, "the film is bad"]).code == 0);
        let (subject, study) = (format!("{data}={out}"), folder.path().join("study").display().to_string());
        let few = ["--rows", "8", "--seeds", "2", "--rounds", "1", "--alpha", "1"];
        sparing(&[&["study", "mca", "--model", &subject, "--out", &study], &few[..]].concat()).ok();
        let tables = std::fs::read_to_string(folder.path().join("study/mca.md")).unwrap();
        assert!(tables.contains("## Table 3") && tables.contains("as long as they are"), "{tables}");
    }

    /// Ctrl-C saves; the same command with --resume ends where an undisturbed one does.
    #[cfg(unix)]
    #[test]
    fn an_interrupted_training_is_saved_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let data = table(folder.path());
        let model = fixture("bert-classify-text");
        let out = |name: &str| folder.path().join(name);
        let run = |name: &str, more: &[&str]| {
            let out = out(name).display().to_string();
            let how = ["train", "finetune", &model, "--data", &data, "--epochs", "120", "--batch", "4", "--out", &out];
            command(&[&how, more].concat())
        };
        assert_eq!(finish(run("whole", &[]), &[]).code, 0);
        let log = out("broken.work").join("seed-0/train.jsonl");
        let mut child = run("broken", &[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = || std::fs::read_to_string(&log).map_or(0, |text| text.lines().count());
        while lines() < 20 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(interrupted.success());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("--resume"));
        assert!(!out("broken").exists() && out("broken.work").exists());
        assert_eq!(finish(run("broken", &["--resume"]), &[]).code, 0);
        for file in ["train.jsonl", "model.safetensors"] {
            let read = |name: &str| std::fs::read(out(name).join(file)).unwrap();
            assert!(read("whole") == read("broken"), "{file} differs");
        }
    }

    #[test]
    fn an_optimised_model_is_fine_tuned_in_rounds() {
        let model = fixture("bert-classify-text");
        let (_table, data) = labelled(&model, 120);
        let (_other, rows) = labelled_in(&model, 200..300);
        let folder = tempfile::tempdir().unwrap();
        let out = |name: &str| folder.path().join(name).display().to_string();
        let run = |name: &str, more: &[&str]| {
            let name = out(name);
            let args = ["optimize", &model, "--data", &data, "--out", &name, "--group", "4", "--json"];
            let how = ["--recover", "--train", &rows, "--epochs", "1", "--update-rows", "16"];
            sparing(&[&args[..], &how, more].concat())
        };
        for more in [
            ["--economies", "heads,width"],
            ["--economies", "heads,width,precision"],
            ["--focus", "size"],
            ["--focus", "accuracy"],
        ] {
            let report = run(&more.join("-"), &[&more[..], &["--max-loss", "20%", "--rounds", "3"]].concat()).json();
            let candidates = report["candidates"].as_array().unwrap();
            let tuned = candidates.iter().filter(|c| c["what"].as_str().unwrap().ends_with("fine-tuned")).count();
            // Where evaluation alone went to the end of the way, there is nothing left to train for. How far a precision goes on a
            // model this small is the clock's to say.
            let least = usize::from(!["size", "heads,width,precision"].contains(&more[1]));
            assert!((least..=3).contains(&tuned), "{more:?}: {tuned} of {}", candidates.len());
            let notes = report["notes"].to_string();
            assert!(!notes.contains("failed"), "{more:?}: {notes}");
            // What was measured by a fresh process is what was saved, trained or not, and nothing lies about. Whether less of a model this small
            // is faster is the clock's to say too.
            assert!(report["chosen"].is_u64() || notes.contains("slower by the clock"), "{more:?}: {notes}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            std::fs::remove_dir_all(folder.path().join(more.join("-"))).unwrap();
        }
        // The published way: every trial is trained for a while, what is chosen to the end.
        let paper = ["--strategy", "paper", "--analysis", "finetune", "--analysis-rows", "16", "--trials", "4"];
        let report = run("paper", &[&paper[..], &["--economies", "blocks,heads", "--max-loss", "20%"]].concat()).json();
        assert_eq!(report["analysis"], "fine-tune");
        if let Some(chosen) = report["chosen"].as_u64() {
            assert!(report["candidates"][chosen as usize]["what"].as_str().unwrap().ends_with("fine-tuned"));
        }
        // A training that changes nothing leaves the answers of what was trained.
        let still = ["--strategy", "top-layers", "--lr", "0", "--economies", "blocks,heads", "--max-loss", "90%"];
        let report = run("still", &still).json();
        let candidates = report["candidates"].as_array().unwrap();
        let what = |c: &serde_json::Value| c["what"].as_str().unwrap().to_string();
        let tuned = candidates.last().unwrap();
        let was = what(tuned).strip_suffix(", fine-tuned").unwrap().to_string();
        let before = candidates.iter().find(|c| what(c) == was).unwrap();
        assert_eq!(before["search_score"], tuned["search_score"], "{was}");
        assert_eq!(before["agreement"], tuned["agreement"], "{was}");
    }

    #[test]
    fn fine_tuning_needs_rows_of_its_own() {
        let model = fixture("bert-classify-text");
        let (_table, data) = labelled(&model, 120);
        let message = sparing(&["optimize", &model, "--data", &data, "--recover"]).error(2);
        assert!(message.contains("--train"), "{message}");
        let message =
            sparing(&["optimize", &model, "--data", &data, "--train", &data, "--recover", "--lr", "7"]).error(2);
        assert!(message.contains("--lr 7"), "{message}");
        // What is reported as unseen must not have been learnt.
        let message = sparing(&["optimize", &model, "--data", &data, "--train", &data, "--recover"]).error(2);
        assert!(message.contains("training needs others"), "{message}");
        for wrong in [["--economies", "bits"], ["--economies", "heads,tokens"]] {
            let focus = if wrong[1] == "bits" { "speed" } else { "size" };
            let message =
                sparing(&["optimize", &model, "--data", &data, "--focus", focus, wrong[0], wrong[1]]).error(2);
            assert!(message.contains("nothing comes of it"), "{message}");
        }
    }

    /// What nothing can come of is told before the training, and a slash at the end of a name does not make it another.
    #[test]
    fn the_place_of_the_result_is_looked_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let data = table(folder.path());
        let run = |command: &[&str], out: &str| {
            let out = folder.path().join(out).display().to_string();
            let how = ["--data", &data, "--out", &out, "--steps", "2", "--batch", "4"];
            sparing(&[&["train"], command, &how].concat())
        };
        let model = fixture("bert-classify-text");
        std::fs::write(folder.path().join("file"), "").unwrap();
        for (out, said) in [("file", "is a file"), ("file/", "is a file"), ("file/in", "file: is not a directory")] {
            let told = run(&["finetune", &model], out).error(1);
            assert!(told.contains(said), "{out}: {told}");
            assert!(!folder.path().join("file.work").exists());
        }
        run(&["finetune", &model], "m/").ok();
        let ticket = ["ticket", &model, "--sparsity", "0.1", "--rounds", "1"];
        run(&ticket, "t/").ok();
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "m", "t", "t.csv"]);
        assert!(folder.path().join("m/config.json").is_file());
        let usage = ["train", "finetune", &model, "--data", &data, "--out", "."];
        assert!(sparing(&usage).error(2).contains("--out"));
    }

    /// Not taken for a training that has diverged.
    #[test]
    fn broken_weights_are_told_by_name() {
        let (folder, model) = copied("bert-classify-text");
        let weights = std::path::Path::new(&model).join("model.safetensors");
        let mut bytes = std::fs::read(&weights).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        let (_table, data) = labelled(&model, 120);
        std::fs::write(&weights, bytes).unwrap();
        let out = folder.path().join("out").display().to_string();
        for command in [
            &["train", "finetune", &model][..],
            &["train", "transfer", "--teacher", &model],
            &["train", "distill", "--layers", "1", "--teacher", &model],
            &["optimize", &model],
        ] {
            let told = sparing(&[command, &["--data", &data, "--out", &out]].concat()).error(1);
            assert!(told.contains(&model) && told.contains("tensor \"") && told.contains("not finite"), "{told}");
        }
        std::fs::write(std::path::Path::new(&model).join("config.json"), "{").unwrap();
        let told = sparing(&["train", "transfer", "--teacher", &model, "--data", &data, "--out", &out]).error(1);
        assert!(told.contains(&model) && told.contains("config.json"), "{told}");
        assert!(!folder.path().join("out").exists() && !folder.path().join("out.work").exists());
        let texts = folder.path().join("latin.txt");
        std::fs::write(&texts, b"one\ncaf\xe9\n").unwrap();
        let (model, texts) = (fixture("bert-mlm-text"), texts.display().to_string());
        let told = sparing(&["train", "pretrain", &model, "--corpus", &texts, "--out", &out]).error(1);
        assert!(told.contains("latin.txt line 2") && told.contains("UTF-8"), "{told}");
    }

    #[test]
    fn wrong_use_is_told_before_anything_is_read() {
        let model = fixture("bert-classify-text");
        let train =
            |more: &[&str]| sparing(&[&["train", "finetune", &model, "--data", "x.csv", "--out", "y"], more].concat());
        assert!(train(&["--lr", "5e5"]).error(2).contains("--lr"));
        assert!(train(&["--seed", "1,1"]).error(2).contains("different seeds"));
        let tpu = train(&["--device", "tpu"]);
        assert!(tpu.code == 2 && tpu.err.contains("cpu, cuda and wgpu"), "{}", tpu.err);
        for wrong in ["--epsilon=-1", "--clip=nan", "--checkpoint-minutes=nan"] {
            assert!(train(&[wrong]).error(2).contains(wrong.split('=').next().unwrap()));
        }
        for weights in ["--weights=1,-1", "--weights=nan,1", "--weights=1"] {
            let told = sparing(&["train", "average", &model, &model, weights, "--out", "y"]).error(2);
            assert!(told.contains("--weights"), "{told}");
        }
        let (_texts, texts) = file("texts.txt", "one\n\ntwo\n");
        let generates = fixture("gpt2-causal-text");
        let told = sparing(&["train", "pretrain", &generates, "--corpus", &texts, "--pairs", "next", "--out", "y"]);
        assert!(told.error(2).contains("--pairs"));
        assert!(train(&[]).error(1).contains("x.csv"));
        assert!(train(&["--positions", "99"]).error(2).contains("--window"));
        for window in ["0", "7"] {
            assert!(train(&["--window", window]).error(2).contains("an even number"));
        }
        assert!(train(&["--window", "8", "--positions", "39"]).error(1).contains("fewer than the model's 40"));
        let other = fixture("electra-classify");
        let windowed = sparing(&["train", "finetune", &other, "--data", "x.csv", "--out", "y", "--window", "8"]);
        assert!(windowed.error(1).contains("only BERT and RoBERTa"));
        for name in ["finetune", "distill", "pretrain", "average", "bench"] {
            assert!(sparing(&["train", name, "--help"]).ok().contains("Examples:"));
        }
    }
}
