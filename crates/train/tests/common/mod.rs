//! Tiny models and tiny data.

use sparing_model::{HeadChoice, LoadOptions, Model};
use sparing_tasks::{Columns, Dataset, Select};
use std::path::{Path, PathBuf};

/// A golden model of the engine's tests.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures").join(name)
}

/// The model without its head.
pub fn bare(name: &str) -> Model {
    Model::load_with(&fixture(name), &LoadOptions { head: Some(HeadChoice::Hidden) }).unwrap()
}

/// Sentences whose label is decided by one word.
pub fn sentiment(folder: &Path, count: usize) -> Dataset {
    let subjects = ["the film", "the story", "the plot", "the woman", "the man", "the company", "the cafe", "it"];
    let ends = ["", " to me", " and moving", " in the morning", " about the country", " by the sea"];
    let words = [("good", "fine"), ("bad", "poor"), ("witty", "fine"), ("thin", "poor")];
    let mut text = String::from("text,label\n");
    for i in 0..count {
        let (word, label) = words[i % words.len()];
        let (subject, end) = (subjects[(i / 4) % subjects.len()], ends[(i / 7) % ends.len()]);
        text += &format!("{subject} is {word}{end},{label}\n");
    }
    let path = folder.join("sentiment.csv");
    std::fs::write(&path, text).unwrap();
    Dataset::table(&path, &Columns::default(), &Select::default()).unwrap()
}
