//! Reading fixtures.
#![allow(dead_code)]

use serde::Deserialize;
use sparing_engine::{Engine, Options};
use sparing_model::{Model, Precision, Sequence};
use std::path::{Path, PathBuf};

/// Inputs and the reference implementation's outputs.
pub struct Golden {
    pub sequences: Vec<Sequence>,
    pub outputs: Vec<Vec<f32>>,
    pub hidden: Vec<Vec<f32>>,
    pub width: usize,
    /// Prompts and greedy continuations.
    pub generations: Vec<(Vec<u32>, Vec<u32>)>,
}

#[derive(Deserialize)]
struct File {
    sequences: Vec<Input>,
    outputs: Vec<Vec<f32>>,
    #[serde(default)]
    hidden: Vec<Vec<f32>>,
    width: usize,
    #[serde(default)]
    generations: Vec<Generation>,
}

#[derive(Deserialize)]
struct Input {
    ids: Vec<u32>,
    #[serde(default)]
    types: Vec<u32>,
}

#[derive(Deserialize)]
struct Generation {
    prompt: Vec<u32>,
    continuation: Vec<u32>,
}

impl Golden {
    pub fn read(directory: &Path) -> Golden {
        Golden::file(&directory.join("golden.json"))
    }

    pub fn file(path: &Path) -> Golden {
        let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file: File = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Golden {
            sequences: file.sequences.into_iter().map(|s| Sequence { ids: s.ids, types: s.types }).collect(),
            outputs: file.outputs,
            hidden: file.hidden,
            width: file.width,
            generations: file.generations.into_iter().map(|g| (g.prompt, g.continuation)).collect(),
        }
    }
}

/// The directory of fixtures.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every fixture with golden outputs: name and directory.
pub fn fixtures() -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(root())
        .expect("there are fixtures")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("golden.json").exists())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .collect();
    found.sort();
    let only = std::env::var("FIXTURE").unwrap_or_default();
    found.retain(|(name, _)| name.contains(&only));
    assert!(!found.is_empty());
    found
}

/// One fixture.
pub fn fixture(name: &str) -> PathBuf {
    root().join(name)
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

/// An engine with these economies of attention.
pub fn engine(model: &Model, attention: &str, threads: usize, precision: Precision) -> Engine {
    let (attention, precision) = (Some(attention.parse().unwrap()), Some(precision));
    Engine::compile(model, &Options { threads, precision, attention, ..Options::default() }).unwrap()
}

/// A fixture with these economies of attention is refused in one line that says so.
pub fn refuse(name: &str, attention: &str, part: &str) {
    let model = Model::load(&fixture(name)).unwrap();
    let options = Options { attention: Some(attention.parse().unwrap()), ..Options::default() };
    let message = Engine::compile(&model, &options).err().expect("refused").to_string();
    assert!(message.contains(part) && !message.contains('\n'), "{name}: {message}");
}
