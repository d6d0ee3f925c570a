//! A training that is killed at any moment goes on to the same curve.

mod common;

use burn::tensor::Device;
use common::{bare, sentiment};
use sparing_train::*;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const FOLDER: &str = "SPARING_TRAIN_TEST_FOLDER";

/// Not a test of its own: the process that the real test starts and kills.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let data = sentiment(folder, 64);
    let model = bare("bert-classify-text");
    let job = Finetune {
        model: &model,
        train: &data,
        dev: Some(&data),
        options: TrainOptions {
            epochs: 12,
            batch: 8,
            schedule: Schedule { rate: 2e-3, curve: Curve::Cosine, warmup: Warmup::Steps(5) },
            dropout: 0.1,
            seed: 5,
            evaluate_every: Some(7),
            checkpoint_steps: Some(3),
            ..TrainOptions::default()
        },
        seeds: vec![5],
        max_tokens: Some(32),
        attention: None,
        quantization: None,
        device: Device::flex(),
        place: Place { directory: folder.join("out"), resume: true, overwrite: false },
    };
    let mut watch = |_: usize, event: &Event| {
        // Slow enough to be killed somewhere in the middle.
        if let Event::Step { .. } = event {
            std::thread::sleep(Duration::from_millis(4));
        }
        true
    };
    assert!(job.run(&mut watch).unwrap().complete);
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What is finished is taken as it is, but not for a training with other options; files of earlier versions do not say theirs.
#[test]
fn a_finished_training_is_not_taken_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 16);
    let model = bare("bert-classify-text");
    let job = |rate: f64, seed: u64| Finetune {
        model: &model,
        train: &data,
        dev: None,
        options: TrainOptions {
            steps: Some(2),
            batch: 8,
            schedule: Schedule { rate, ..TrainOptions::default().schedule },
            ..TrainOptions::default()
        },
        seeds: vec![seed],
        max_tokens: Some(32),
        attention: None,
        quantization: None,
        device: Device::flex(),
        place: Place { directory: folder.path().join("out"), resume: true, overwrite: false },
    };
    let first = job(1e-3, 1).run(&mut |_, _| true).unwrap();
    let idle = &mut |_: usize, _: &Event| -> bool { panic!("nothing is left to do") };
    assert_eq!(job(1e-3, 1).run(idle).unwrap().runs, first.runs);
    let elsewhere = bare("bert-mlm-text");
    let others = [
        (job(2e-3, 1), "schedule"),
        (job(1e-3, 2), "seed was 1, is 2"),
        (Finetune { max_tokens: Some(16), ..job(1e-3, 1) }, "at most 16 tokens"),
        (Finetune { model: &elsewhere, ..job(1e-3, 1) }, "subject"),
    ];
    for (other, named) in others {
        let message = other.run(idle).unwrap_err().to_string();
        assert!(message.contains(named) && message.contains("training.json"), "{message}");
        assert!(message.contains("another --out") && message.contains("--overwrite"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let lock = folder.path().join(".out.lock");
    assert!(!lock.exists(), "nothing lies about");
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let message = job(1e-3, 1).run(idle).unwrap_err().to_string();
    assert!(message.contains("another training writes there") && message.contains("out:"), "{message}");
    drop(held);
    let file = folder.path().join("out/training.json");
    let mut told: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(told.as_object_mut().unwrap().remove("options").is_some());
    std::fs::write(&file, told.to_string()).unwrap();
    assert_eq!(job(2e-3, 1).run(idle).unwrap().runs, first.runs);
}

/// The same of texts, finished or stopped on the way.
#[test]
fn a_pre_training_is_not_taken_for_one_of_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let (model, elsewhere) = (bare("bert-mlm-text"), bare("bert-classify-text"));
    let corpus = vec!["the film is good and the story is witty. ".repeat(9); 2];
    let other_texts = vec!["the plot is thin. ".repeat(9); 2];
    let job = |model, scratch, corpus| Pretrain {
        prepared: Prepared::new(model, &Wanted::MaskedLm).unwrap(),
        model,
        scratch,
        corpus,
        pairs: None,
        dev: None,
        options: TrainOptions { steps: Some(4), batch: 2, ..TrainOptions::default() },
        seeds: vec![0],
        max_tokens: 16,
        quantization: None,
        device: Device::flex(),
        place: Place { directory: folder.path().join("out"), resume: true, overwrite: false },
    };
    let refused = |place: &str| {
        let others =
            [job(&elsewhere, false, &corpus), job(&model, true, &corpus), job(&model, false, other_texts.as_slice())];
        for other in others {
            let message = other.run(&mut |_, _| panic!("another training")).unwrap_err().to_string();
            assert!(message.contains("subject was") && message.contains(place), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    };
    let stopped = job(&model, false, &corpus).run(&mut |_, event| !matches!(event, Event::Step { .. })).unwrap();
    assert!(!stopped.complete);
    refused("state.json");
    assert!(job(&model, false, &corpus).run(&mut |_, _| true).unwrap().complete);
    refused("training.json");
}

#[test]
fn a_killed_training_ends_as_one_that_was_not() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(start(whole.path()).wait().unwrap().success());
    let mut kills = 0;
    // Moments of all kinds: while loading, in a step, in a checkpoint, in an evaluation.
    for moment in [120, 260, 190, 330, 150, 410, 230, 290] {
        let mut child = start(broken.path());
        std::thread::sleep(Duration::from_millis(moment));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(start(broken.path()).wait().unwrap().success());
    assert!(kills > 0);
    let read = |folder: &Path, file: &str| std::fs::read(folder.join("out").join(file)).unwrap();
    for file in ["train.jsonl", "model.safetensors", "config.json"] {
        let (a, b) = (read(whole.path(), file), read(broken.path(), file));
        assert!(a == b, "{file} differs after {kills} kills");
    }
}
