//! What is written is what was read, whole or not at all.

mod common;

use common::*;
use proptest::prelude::*;
use sparing_model::{Dtype, Model, OwnedTensor, Precision, Weights, write_directory};
use std::path::Path;

fn write_bert(directory: &Path) {
    // Odd spacing and fields nobody knows must survive.
    let config =
        bert_config().to_string().replace("{\"architectures\"", "{ \"unknown\": [1,  2.50],\n\"architectures\"");
    let words = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n".as_slice();
    write_directory(directory, &[("config.json", config.as_bytes()), ("vocab.txt", words)], &bert_tensors("bert."))
        .unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_round_trip_keeps_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("deep/second"));
    write_bert(&first);
    let mut model = Model::load(&first).unwrap();
    model.save(&second).unwrap();
    assert_eq!(names(&second), ["config.json", "model.safetensors", "vocab.txt"]);
    for name in names(&first) {
        assert_eq!(std::fs::read(first.join(&name)).unwrap(), std::fs::read(second.join(&name)).unwrap(), "{name}");
    }
    // Onto itself, while it is mapped, with a plan.
    model.plan.precision = Some(Precision::Int8);
    model.save(&first).unwrap();
    assert_eq!(model.weights.tensor("classifier.bias").unwrap().len(), 3);
    assert_eq!(Model::load(&first).unwrap().plan, model.plan);
    assert_eq!(names(folder.path()), ["deep", "first"]);
}

#[test]
fn shards_and_modules_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    std::fs::create_dir_all(first.join("1_Pooling")).unwrap();
    let tensors = bert_tensors("");
    let (a, b) = tensors.split_at(7);
    std::fs::write(first.join("a.safetensors"), serialise(a)).unwrap();
    std::fs::write(first.join("b.safetensors"), serialise(b)).unwrap();
    let map: serde_json::Map<_, _> = [(a, "a"), (b, "b")]
        .into_iter()
        .flat_map(|(part, file)| part.iter().map(move |t| (t.name.clone(), format!("{file}.safetensors").into())))
        .collect();
    std::fs::write(first.join("model.safetensors.index.json"), serde_json::json!({"weight_map": map}).to_string())
        .unwrap();
    std::fs::write(first.join("config.json"), bert_config().to_string()).unwrap();
    std::fs::write(
        first.join("modules.json"),
        r#"[{"type": "m.Transformer"}, {"type": "m.Pooling", "path": "1_Pooling"}]"#,
    )
    .unwrap();
    std::fs::write(first.join("1_Pooling/config.json"), "{}").unwrap();
    Model::load(&first).unwrap().save(&second).unwrap();
    assert_eq!(names(&first), names(&second));
    let copy = Model::load(&second).unwrap();
    assert_eq!(copy.architecture, Model::load(&first).unwrap().architecture);
}

#[test]
fn a_failed_write_leaves_things_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("model");
    write_bert(&target);
    let before = std::fs::read(target.join("model.safetensors")).unwrap();
    // A file name that cannot be written, after some that can.
    let bad = write_directory(&target, &[("config.json", b"{}"), ("a\0b", b"")], &bert_tensors(""));
    assert!(bad.err().unwrap().to_string().contains("cannot be written"));
    let twice = [OwnedTensor::f32("x", &[1], &[0.0]), OwnedTensor::f32("x", &[1], &[0.0])];
    assert!(write_directory(&target, &[], &twice).is_err());
    assert_eq!(std::fs::read(target.join("model.safetensors")).unwrap(), before);
    assert_eq!(names(folder.path()), ["model"]);
}

#[test]
fn directories_with_other_things_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
    let message = write_directory(folder.path(), &[("config.json", b"{}")], &[]).err().unwrap().to_string();
    assert!(message.contains("not a model directory"), "{message}");
    let file = folder.path().join("thesis.tex");
    assert!(write_directory(&file, &[], &[]).err().unwrap().to_string().contains("is a file"));
}

#[test]
fn a_model_with_something_else_beside_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("model");
    write_bert(&target);
    let model = Model::load(&target).unwrap();
    // What came with it is replaced with it.
    std::fs::write(target.join("LICENSE"), "").unwrap();
    model.save(&target).unwrap();
    assert!(!target.join("LICENSE").exists());
    std::fs::create_dir(target.join("drafts")).unwrap();
    let before = names(&target);
    let message = model.save(&target).err().unwrap().to_string();
    assert!(message.contains("model: holds drafts") && message.contains("not a model directory"), "{message}");
    assert_eq!((names(&target), names(folder.path())), (before, vec!["model".to_string()]));
}

#[test]
fn beside_what_is_there_nothing_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_bert(&at("first"));
    let model = Model::load(&at("first")).unwrap();
    assert_eq!(model.save_beside(&at("a")).unwrap(), at("a"));
    std::fs::create_dir(at("a-3")).unwrap();
    std::fs::write(at("a-4"), "").unwrap();
    // Taken; free; empty, which is as good as free; taken by a file.
    assert_eq!(model.save_beside(&at("a/")).unwrap(), at("a-2"));
    assert_eq!(model.save_beside(&at("a")).unwrap(), at("a-3"));
    assert_eq!(model.save_beside(&at("a")).unwrap(), at("a-5"));
    assert_eq!(names(folder.path()), ["a", "a-2", "a-3", "a-4", "a-5", "first"]);
    assert_eq!(names(&at("a-3")), names(&at("first")));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nothing", at("link")).unwrap();
        assert_eq!(model.save_beside(&at("link")).unwrap(), at("link-2"));
        assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    }
}

#[test]
fn a_model_made_in_memory_has_nothing_to_save() {
    let model = load(files(&bert_config(), &bert_tensors(""))).unwrap();
    let bare = Model::new(model.architecture, model.plan, model.weights);
    assert!(bare.save(Path::new("nowhere")).err().unwrap().to_string().contains("write_directory"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Tensors of any shape and type come back bit for bit, and convert at any offset.
    #[test]
    fn tensors_survive(shape in prop::collection::vec(0usize..5, 0..4), half in any::<bool>(), seed in any::<u32>()) {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| (i as u32).wrapping_mul(seed) as i32 as f32 / 65536.0).collect();
        let tensor = if half { OwnedTensor::bf16("t", &shape, &values) } else { OwnedTensor::f32("t", &shape, &values) };
        // A one-byte neighbour, so that nothing is aligned by luck.
        let odd = OwnedTensor::raw("a", Dtype::U8, &[3], vec![1, 2, 3]);
        let weights = Weights::from_tensors(&[odd, tensor.clone()]).unwrap();
        let read = weights.tensor("t").unwrap();
        prop_assert_eq!(read.bytes(), tensor.bytes.as_slice());
        prop_assert_eq!(read.shape, shape.as_slice());
        let mut out = vec![0.0; count / 2];
        read.read(count - count / 2, &mut out);
        for (out, value) in out.iter().zip(&values[count - count / 2..]) {
            prop_assert!((out - value).abs() <= value.abs() / 128.0);
        }
        weights.release("t");
    }
}
