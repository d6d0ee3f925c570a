//! Every golden directory of the engine's tests must load: families, heads, shards, old spellings, element types.
//! Where the reference tokenised texts, the ids and types must be the same.

use serde_json::Value;
use sparing_model::{Error, Model};
use std::path::Path;

#[test]
fn every_fixture_loads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures");
    let Ok(entries) = std::fs::read_dir(&root) else { return };
    let mut failures = Vec::new();
    for entry in entries {
        let directory = entry.unwrap().path();
        if directory.join("config.json").exists()
            && let Err(e) = Model::load(&directory).and_then(|model| compare_texts(&model, &directory))
        {
            failures.push(format!("{}: {e}", directory.file_name().unwrap().display()));
        }
    }
    failures.sort();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn compare_texts(model: &Model, directory: &Path) -> Result<(), Error> {
    let golden: Value = serde_json::from_slice(&std::fs::read(directory.join("golden.json")).unwrap()).unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect::<Vec<_>>();
    for text in golden.get("texts").and_then(Value::as_array).into_iter().flatten() {
        let pair = text.get("pair").and_then(Value::as_str);
        let encoded = model.tokenizer()?.encode(text["text"].as_str().unwrap(), pair, None)?;
        let types = text.get("types").map(numbers).unwrap_or_default();
        if encoded.sequence.ids != numbers(&text["ids"]) || encoded.sequence.types != types {
            return Err(Error::new(format!("{text} became {:?}", encoded.sequence)));
        }
    }
    Ok(())
}
