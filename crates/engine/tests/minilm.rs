//! The real thing: MiniLM-L6 fine-tuned on SST-2, where its directory is there.

mod common;

use serde::Deserialize;
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Executor, Model, Precision, Sequence};
use std::path::PathBuf;

#[derive(Deserialize)]
struct File {
    sentences: Vec<Sentence>,
}

#[derive(Deserialize)]
struct Sentence {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

#[test]
fn logits_of_real_sentences() {
    let models = std::env::var_os("SPARING_MODELS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/models")), PathBuf::from);
    let directory = models.join("minilm-l6-sst2");
    if !directory.is_dir() {
        println!("skipped: there is no {}", directory.display());
        return;
    }
    let text = std::fs::read(common::root().join("minilm-sst2.json")).unwrap();
    let file: File = serde_json::from_slice(&text).unwrap();
    let model = Model::load(&directory).unwrap();
    // Bounds on logits of size 3: what the worst sentence and the mean may be off by. Quantization errs by so much per
    // answer, however small the answer, so the bounds are absolute.
    for (precision, worst, mean) in
        [(Precision::F32, 3e-5, 1e-5), (Precision::Bf16, 0.033, 0.01), (Precision::Int8, 0.3, 0.05)]
    {
        let engine = Engine::compile(&model, &Options { precision: Some(precision), ..Options::default() }).unwrap();
        let sequences = file.sentences.iter().map(|s| Sequence { ids: s.ids.clone(), types: vec![] }).collect();
        let outputs = engine.run(&Batch { sequences, ..Batch::default() }).unwrap();
        let mut errors = Vec::new();
        for (sentence, got) in file.sentences.iter().zip(&outputs.sequences) {
            for (got, want) in got.iter().zip(&sentence.logits) {
                assert!((got - want).abs() < worst, "{precision:?}: {got} where {want} is right");
                errors.push((got - want).abs());
            }
        }
        let off = errors.iter().sum::<f32>() / errors.len() as f32;
        assert!(off < mean, "{precision:?}: answers are off by {off} on average");
    }
}
