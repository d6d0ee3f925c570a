//! The one trained model at hand, where it is: skipped elsewhere.

use sparing_model::{Family, HeadKind, Model};
use std::path::PathBuf;

#[test]
fn minilm_loads() {
    let directory = std::env::var_os("SPARING_MODELS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/models")), PathBuf::from)
        .join("minilm-l6-sst2");
    if !directory.exists() {
        eprintln!("skipped: {} is not there", directory.display());
        return;
    }
    let start = std::time::Instant::now();
    let model = Model::load(&directory).unwrap();
    let a = &model.architecture;
    assert_eq!((a.family, a.hidden, a.layers.len(), a.max_tokens), (Family::Bert, 384, 6, Some(512)));
    assert_eq!(
        (a.head.kind, a.head.labels.as_slice()),
        (HeadKind::Classify, ["negative".to_string(), "positive".to_string()].as_slice())
    );
    let matrix = model.weights.matrix(&a.layers[0].ffns[0].up).unwrap();
    assert_eq!(matrix.len(), 384 * 1536);
    assert!(matrix.iter().all(|x| x.is_finite() && x.abs() < 10.0));
    eprintln!("{:?}", start.elapsed());
}
