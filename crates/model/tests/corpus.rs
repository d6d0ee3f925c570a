//! The fuzz target's corpus as an ordinary test: `config.json`, a zero byte, then `model.safetensors`.

mod common;

use common::load;
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn the_corpus_loads_or_says_why() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/directory");
    let mut loaded = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let split = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
        let files = BTreeMap::from([
            ("config.json".to_string(), data[..split].to_vec()),
            ("model.safetensors".to_string(), data.get(split + 1..).unwrap_or_default().to_vec()),
        ]);
        let result = load(files);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Names say what to expect: "sound-…" loads, everything else gets one line.
        assert_eq!(result.is_ok(), name.starts_with("sound-"), "{name}: {:?}", result.err());
        match result {
            Ok(model) => {
                loaded += 1;
                for layer in &model.architecture.layers {
                    model.weights.matrix(&layer.attention.query).unwrap();
                }
            }
            Err(e) => assert!(!e.to_string().contains('\n'), "{name}"),
        }
    }
    assert!(loaded > 0);
}
