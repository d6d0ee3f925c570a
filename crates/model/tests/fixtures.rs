//! Every golden directory of the engine's tests must load: families, heads, shards, old spellings, element types.

use sparing_model::Model;
use std::path::Path;

#[test]
fn every_fixture_loads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures");
    let Ok(entries) = std::fs::read_dir(&root) else { return };
    let mut failures = Vec::new();
    for entry in entries {
        let directory = entry.unwrap().path();
        if directory.join("config.json").exists()
            && let Err(e) = Model::load(&directory)
        {
            failures.push(format!("{}: {e}", directory.file_name().unwrap().display()));
        }
    }
    failures.sort();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
