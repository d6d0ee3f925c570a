//! Models that were given windows: where those hide nothing, answers stay; where they hide, Python says the same.

mod common;

use common::{Golden, distance, engine, fixture, fixtures};
use sparing_model::{Batch, Executor, Family, HeadKind, Model, Precision, Wanted};
use std::path::Path;
use std::process::Command;

#[test]
fn windows_that_hide_nothing_change_no_answer() {
    let mut tried = 0;
    for (name, directory) in fixtures() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let can = matches!(model.architecture.family, Family::Bert | Family::Roberta);
        if !can || matches!(model.architecture.head.kind, HeadKind::Embed { .. }) {
            continue;
        }
        tried += 1;
        let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
        let reach = model.architecture.longest_input().unwrap();
        for positions in [None, Some(3 * reach + 1)] {
            let windowed = model.windowed(2 * longest, positions).unwrap();
            assert_eq!(windowed.architecture.family, Family::Longformer, "{name}");
            assert_eq!(windowed.architecture.longest_input(), positions.or(Some(reach)), "{name}");
            assert_eq!(windowed.architecture.head.labels, model.architecture.head.labels, "{name}");
            let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
            let got = engine(&windowed, "exact", 2, Precision::F32).run(&batch).unwrap().sequences;
            let far = distance(&got, &golden.outputs);
            assert!(far < 1e-4, "{name}, {positions:?}: {far:e}");
        }
    }
    assert!(tried >= 10 || std::env::var("FIXTURE").is_ok());
}

#[test]
fn texts_are_tokenised_as_before() {
    let model = Model::load(&fixture("bert-classify-text")).unwrap();
    let windowed = model.windowed(4, Some(100)).unwrap();
    let (before, after) = (model.tokenizer().unwrap(), windowed.tokenizer().unwrap());
    for (text, second) in [("a plain text", None), ("one", Some("and two"))] {
        assert_eq!(before.encode(text, second, None).unwrap(), after.encode(text, second, None).unwrap());
    }
    assert_eq!((before.max_tokens(), after.max_tokens()), (Some(40), Some(100)));
}

/// `SPARING_PYTHON`, else `python3`, if it has transformers and torch.
fn python() -> Option<String> {
    let python = std::env::var("SPARING_PYTHON").unwrap_or("python3".to_string());
    let has = Command::new(&python).args(["-c", "import torch, transformers"]).output();
    let found = has.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: {python} has no torch and transformers");
    }
    found.then_some(python)
}

#[test]
fn python_reads_the_directory_and_answers_alike() {
    let Some(python) = python() else { return };
    let model = Model::load(&fixture("bert-classify-text")).unwrap();
    let windowed = model.windowed(6, Some(100)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("windowed");
    windowed.save(&directory).unwrap();
    let again = Model::load(&directory).unwrap();
    // Longer than the window and than the 40 positions that there were.
    let texts = ["the cat sat".to_string(), "a good plot and a bad one ".repeat(8)];
    let tokenizer = again.tokenizer().unwrap();
    let sequences = texts.iter().map(|text| tokenizer.encode(text, None, None).unwrap().sequence).collect::<Vec<_>>();
    assert!(sequences[1].ids.len() > 50, "{}", sequences[1].ids.len());
    let batch = Batch { sequences: sequences.clone(), wanted: Wanted::Head };
    let got = engine(&again, "exact", 2, Precision::F32).run(&batch).unwrap().sequences;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windows.py");
    let output = Command::new(python).arg(script).arg(&directory).args(&texts).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<(Vec<u32>, Vec<f32>)> = serde_json::from_slice(&output.stdout).unwrap();
    let (ids, logits): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    assert_eq!(ids, sequences.into_iter().map(|s| s.ids).collect::<Vec<_>>());
    let far = distance(&got, &logits);
    assert!(far < 1e-4, "{far:e}");
}
