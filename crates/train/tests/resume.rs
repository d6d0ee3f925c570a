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
