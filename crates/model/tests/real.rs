//! The one trained model at hand, where it is: skipped elsewhere.

use sparing_model::{Family, HeadKind, Model};
use std::path::PathBuf;

fn minilm() -> Option<Model> {
    let directory = std::env::var_os("SPARING_MODELS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/models")), PathBuf::from)
        .join("minilm-l6-sst2");
    if !directory.exists() {
        eprintln!("skipped: {} is not there", directory.display());
        return None;
    }
    Some(Model::load(&directory).unwrap())
}

#[test]
fn minilm_loads() {
    let Some(model) = minilm() else { return };
    let a = &model.architecture;
    assert_eq!((a.family, a.hidden, a.layers.len(), a.max_tokens), (Family::Bert, 384, 6, Some(512)));
    assert_eq!((a.head.kind, a.head.labels.join(" ")), (HeadKind::Classify, "negative positive".to_string()));
    let matrix = model.weights.matrix(&a.layers[0].ffns[0].up).unwrap();
    assert_eq!(matrix.len(), 384 * 1536);
    assert!(matrix.iter().all(|x| x.is_finite() && x.abs() < 10.0));
}

#[test]
fn minilm_tokenises() {
    let Some(model) = minilm() else { return };
    let tokenizer = model.tokenizer().unwrap();
    assert_eq!(tokenizer.vocabulary(), 30522);
    assert_eq!(tokenizer.mask(), Some(("[MASK]", 103)));
    assert_eq!(tokenizer.special_ids(), [0, 100, 101, 102, 103]);
    let encoded = tokenizer.encode("A gorgeous, witty film.", None, None).unwrap();
    assert_eq!(encoded.tokens, ["[CLS]", "a", "gorgeous", ",", "witty", "film", ".", "[SEP]"]);
    assert_eq!(encoded.offsets[2], (2, 10));
    assert_eq!(encoded.texts[0], None);
    assert_eq!(encoded.texts[1], Some(0));
    assert_eq!(tokenizer.decode(&encoded.sequence.ids, true).unwrap(), "a gorgeous, witty film.");
}

#[test]
fn a_million_characters_are_cut_quickly() {
    let Some(model) = minilm() else { return };
    let tokenizer = model.tokenizer().unwrap();
    let start = std::time::Instant::now();
    for unit in ["a gorgeous, witty film. ", "x", " ", "日本語"] {
        let text = unit.repeat(1_000_000 / unit.chars().count());
        let encoded = tokenizer.encode(&text, Some(&text), None).unwrap();
        assert!(encoded.sequence.ids.len() <= 512);
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    // What is left out does not change what is kept.
    let text = "the quick brown fox jumps over lazy dogs; ".repeat(2000);
    let long = tokenizer.encode(&text, None, Some(128)).unwrap();
    let short = tokenizer.encode(&text[..4000], None, Some(128)).unwrap();
    assert_eq!(long, short);
    assert!(long.truncated && long.sequence.ids.len() == 128);
}
