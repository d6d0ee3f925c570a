//! The engine's fixtures: tiny models and what the reference computes with them.
#![allow(dead_code, reason = "every test uses a part of it")]

use serde_json::Value;
use sparing_engine::Calibrator;
use sparing_model::{Calibration, Model, Sequence};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Golden {
    pub sequences: Vec<Sequence>,
    pub outputs: Vec<Vec<f32>>,
    pub hidden: Vec<Vec<f32>>,
}

/// Name, model and golden numbers of every fixture; `FIXTURE=bert` takes only some.
pub fn fixtures() -> Vec<(String, Model, Golden)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures");
    let entries = std::fs::read_dir(root).expect("there are fixtures");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.join("golden.json").exists());
    paths.sort();
    let only = std::env::var("FIXTURE").unwrap_or_default();
    let named = paths.into_iter().map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path));
    let found: Vec<_> = named
        .filter(|(name, _)| name.contains(&only))
        .map(|(name, path)| (name, Model::load(&path).unwrap(), golden(&path)))
        .collect();
    assert!(!found.is_empty());
    found
}

pub fn fixture(name: &str) -> (Model, Golden) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures").join(name);
    (Model::load(&path).unwrap(), golden(&path))
}

fn golden(directory: &Path) -> Golden {
    let text = std::fs::read(directory.join("golden.json")).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let rows = |key: &str| -> Vec<Vec<f32>> {
        let lists = file[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let row = |list: &Value| list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        lists.iter().map(row).collect()
    };
    let ids = |list: &Value| -> Vec<u32> {
        list.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|v| v.as_u64().unwrap() as u32).collect()
    };
    let sequence = |s: &Value| Sequence { ids: ids(&s["ids"]), types: ids(&s["types"]) };
    Golden {
        sequences: file["sequences"].as_array().unwrap().iter().map(sequence).collect(),
        outputs: rows("outputs"),
        hidden: rows("hidden"),
    }
}

/// The largest difference, relative to the largest number wanted.
pub fn distance(got: &[Vec<f32>], want: &[Vec<f32>]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().flatten().fold(0f32, |m, x| m.max(x.abs())).max(1e-6);
    let mut worst = 0f32;
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len());
        for (g, w) in got.iter().zip(want) {
            assert!(g.is_finite());
            worst = worst.max((g - w).abs() / scale);
        }
    }
    worst
}

/// What samplers need to know, from the fixture's own sequences.
pub fn calibrated(model: &Model, golden: &Golden) -> Arc<Calibration> {
    let mut calibrator = Calibrator::new(model, 1).unwrap();
    calibrator.add(&golden.sequences).unwrap();
    Arc::new(calibrator.finish().unwrap())
}
