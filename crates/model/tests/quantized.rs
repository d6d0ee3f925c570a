//! Matrices stored as integers are floats for everybody who reads them; a file that lies about them is refused.

mod common;

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use sparing_model::{Dtype, Linear, Matrix, Model, OwnedTensor, ScaleAxis, Scales, Weights, write_directory};
use std::collections::HashMap;

fn row_scales(bits: u32, values: &[f32]) -> Scales {
    Scales { bits, axis: ScaleAxis::Row, values: values.to_vec() }
}

/// A BERT whose matrices are all integers.
fn quantized_bert(bits: u32) -> Vec<OwnedTensor> {
    let most = (1i32 << (bits - 1)) - 1;
    let quantize = |t: OwnedTensor| {
        let [rows, columns] = t.shape[..] else { return t };
        let integers: Vec<i8> = (0..rows * columns).map(|i| (i as i32 * 7 % (2 * most + 1) - most) as i8).collect();
        let scales: Vec<f32> = (0..rows).map(|row| 0.25 + row as f32).collect();
        OwnedTensor::quantized(t.name, &[rows, columns], &integers, row_scales(bits, &scales))
    };
    bert_tensors("bert.").into_iter().map(quantize).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is written is read as integer x scale, from any place, at every width.
    #[test]
    fn numbers_are_integers_times_scales(
        bits in 2u32..=8,
        rows in 1usize..6,
        columns in 1usize..600,
        by_column: bool,
        seed: u32,
        from in 0usize..2000,
        length in 0usize..2000,
    ) {
        let most = (1i64 << (bits - 1)) - 1;
        let draw = |i: usize| (i as i64 * 2_654_435_761 + i64::from(seed)).rem_euclid(2 * most + 1) - most;
        let integers: Vec<i8> = (0..rows * columns).map(|i| draw(i) as i8).collect();
        let axis = if by_column { ScaleAxis::Column } else { ScaleAxis::Row };
        let scales: Vec<f32> = (0..if by_column { columns } else { rows }).map(|i| 0.1 * (i + 1) as f32).collect();
        let scale = |i: usize| scales[if by_column { i % columns } else { i / columns }];
        let values = Scales { bits, axis, values: scales.clone() };
        let tensor = OwnedTensor::quantized("a", &[rows, columns], &integers, values);
        let weights = Weights::from_tensors(std::slice::from_ref(&tensor)).unwrap();
        prop_assert_eq!(weights.names().collect::<Vec<_>>(), ["a"]);
        prop_assert_eq!(weights.owned("a").unwrap(), tensor);
        let read = weights.tensor("a").unwrap();
        prop_assert_eq!((read.shape, read.len(), read.is_real()), (&[rows, columns][..], rows * columns, true));
        let from = from.min(read.len());
        let to = (from + length).min(read.len());
        let mut out = vec![0.0; to - from];
        read.read(from, &mut out);
        let want: Vec<f32> = (from..to).map(|i| f32::from(integers[i]) * scale(i)).collect();
        prop_assert_eq!(out, want);
        // As a linear map the integers come back in the map's own layout.
        let (outputs, inputs) = if by_column { (columns, rows) } else { (rows, columns) };
        let weight = Matrix::Tensor { name: "a".into(), in_out: by_column, slice: None };
        let found = weights.integers(&Linear { weight, bias: None, inputs, outputs }).unwrap().unwrap();
        prop_assert_eq!(found.scales, scales);
        for output in 0..outputs {
            for input in 0..inputs {
                let at = if by_column { input * columns + output } else { output * columns + input };
                prop_assert_eq!(found.values[output * inputs + input], integers[at]);
            }
        }
        let other = Matrix::Tensor { name: "a".into(), in_out: !by_column, slice: None };
        let other = Linear { weight: other, bias: None, inputs: outputs, outputs: inputs };
        prop_assert_eq!(weights.integers(&other).unwrap(), None);
    }
}

#[test]
fn a_quantised_directory_loads_and_is_saved_bit_for_bit() {
    for bits in [2, 5, 8] {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        write_directory(&first, &[("config.json", bert_config().to_string().as_bytes())], &quantized_bert(bits))
            .unwrap();
        let model = Model::load(&first).unwrap();
        let query = model.weights.matrix(&model.architecture.layers[0].attention.query).unwrap();
        let found = model.weights.integers(&model.architecture.layers[0].attention.query).unwrap().unwrap();
        let want: Vec<f32> = (0..16).map(|i| f32::from(found.values[i]) * found.scales[i / 4]).collect();
        assert_eq!(query, want);
        model.save(&second).unwrap();
        let read = |path: &std::path::Path| std::fs::read(path.join("model.safetensors")).unwrap();
        assert!(read(&first) == read(&second));
        // The same tensors give the same file.
        write_directory(&second, &[("config.json", b"{}")], &quantized_bert(bits)).unwrap();
        assert!(read(&first) == read(&second));
    }
}

#[test]
fn replaced_tensors_and_all_others() {
    let weights = Weights::from_tensors(&bert_tensors("bert.")).unwrap();
    let name = "bert.encoder.layer.0.intermediate.dense.weight";
    let ours = OwnedTensor::quantized(name, &[6, 4], &[1; 24], row_scales(3, &[2.0; 6]));
    let replaced = weights.replace(vec![ours.clone()]).unwrap();
    assert!(replaced.names().eq(weights.names()));
    for other in weights.names().filter(|n| *n != name) {
        assert_eq!(replaced.owned(other).unwrap(), weights.owned(other).unwrap());
    }
    assert_eq!(replaced.owned(name).unwrap(), ours);
    assert!(replaced.size_in_bytes() < weights.size_in_bytes());
    let gone = OwnedTensor { name: "gone".into(), ..ours };
    assert!(weights.replace(vec![gone]).err().unwrap().to_string().contains("gone"));
}

/// A file with these tensors that says this of itself.
fn file(tensors: &[OwnedTensor], says: &str) -> Vec<u8> {
    use safetensors::tensor::TensorView;
    let view = |t: &OwnedTensor| {
        (t.name.clone(), TensorView::new(t.dtype, t.shape.clone(), &t.bytes.clone().leak()[..]).unwrap())
    };
    let metadata = HashMap::from([("sparing.quantized".to_string(), says.to_string())]);
    safetensors::serialize(tensors.iter().map(view), Some(metadata)).unwrap()
}

#[test]
fn files_that_lie_about_their_integers() {
    let bytes =
        |name: &str, shape: &[usize]| OwnedTensor::raw(name, Dtype::U8, shape, vec![0x55; shape.iter().product()]);
    let signed =
        |name: &str, shape: &[usize]| OwnedTensor::raw(name, Dtype::I8, shape, vec![3; shape.iter().product()]);
    let scale = |values: &[f32]| OwnedTensor::f32("a.scale", &[values.len()], values);
    let two = || vec![signed("a", &[2, 4]), scale(&[1.0, 2.0])];
    let says = |entry: Value| json!({ "a": entry }).to_string();
    let right = says(json!({"bits": 8, "shape": [2, 4]}));
    assert_eq!(Weights::from_bytes(file(&two(), &right)).unwrap().names().count(), 1);
    let huge = u64::MAX;
    let cases: Vec<(Vec<OwnedTensor>, String, &str)> = vec![
        (two(), "nonsense".into(), "sparing.quantized"),
        (two(), "[]".into(), "sparing.quantized"),
        (two(), says(json!({"bits": 8})), "shape"),
        (two(), says(json!({"bits": 8, "shape": [2, 4], "zero": 1})), "zero"),
        (two(), says(json!({"bits": -8, "shape": [2, 4]})), "sparing.quantized"),
        (two(), says(json!({"bits": 8, "shape": [2, -4]})), "sparing.quantized"),
        (two(), says(json!({"bits": 8, "shape": [2, 4], "axis": "diagonal"})), "axis|diagonal"),
        (two(), json!({"b": {"bits": 8, "shape": [2, 4]}}).to_string(), "\"b\" is not there"),
        (two(), says(json!({"bits": 1, "shape": [2, 4]})), "1 bits"),
        (two(), says(json!({"bits": 9, "shape": [2, 4]})), "9 bits"),
        (two(), says(json!({"bits": 4, "shape": [2, 4]})), "cannot hold"),
        (two(), says(json!({"bits": 8, "shape": [4, 2]})), "cannot hold"),
        (two(), says(json!({"bits": 8, "shape": [8]})), "no matrix"),
        (two(), says(json!({"bits": 8, "shape": []})), "no matrix"),
        (two(), says(json!({"bits": 8, "shape": [0, 4]})), "no matrix"),
        (two(), says(json!({"bits": 8, "shape": [huge, 4]})), "no matrix"),
        (two(), says(json!({"bits": 7, "shape": [1, huge / 2]})), "cannot hold"),
        (two(), says(json!({"bits": 8, "shape": [2, 4], "axis": "column"})), "where F32 [4] is needed"),
        (vec![bytes("a", &[2, 2]), scale(&[1.0, 1.0])], says(json!({"bits": 4, "shape": [2, 5]})), "cannot hold"),
        (vec![bytes("a", &[2, 2]), scale(&[1.0, 1.0])], says(json!({"bits": 8, "shape": [2, 2]})), "cannot hold"),
        (vec![bytes("a", &[4]), scale(&[1.0, 1.0])], says(json!({"bits": 4, "shape": [2, 4]})), "cannot hold"),
        (vec![signed("a", &[2, 4])], right.clone(), "no tensor of scales"),
        (vec![signed("a", &[2, 4]), scale(&[1.0])], right.clone(), "where F32 [2] is needed"),
        (vec![signed("a", &[2, 4]), signed("a.scale", &[2])], right.clone(), "where F32 [2] is needed"),
        (vec![signed("a", &[2, 4]), scale(&[1.0, f32::NAN])], right.clone(), "number 1"),
        (vec![signed("a", &[2, 4]), scale(&[f32::INFINITY, 1.0])], right.clone(), "number 0"),
        (vec![signed("a", &[2, 4]), scale(&[1.0, -1.0])], right, "number 1"),
        (
            two(),
            json!({"a": {"bits": 8, "shape": [2, 4]}, "a.scale": {"bits": 8, "shape": [2, 4]}}).to_string(),
            "\"a.scale\" is not there",
        ),
    ];
    for (tensors, says, expected) in cases {
        let message =
            Weights::from_bytes(file(&tensors, &says)).err().unwrap_or_else(|| panic!("{says} loads")).to_string();
        assert!(message.starts_with("model.safetensors: not a sound safetensors file: "), "{message}");
        assert!(
            !message.contains('\n') && expected.split('|').any(|e| message.contains(e)),
            "{says}: {message} lacks {expected}"
        );
    }
}

#[test]
fn norms_may_not_be_integers_that_nobody_explains() {
    let mut tensors = quantized_bert(8);
    let plain = tensors.iter().position(|t| t.name == "classifier.weight").unwrap();
    tensors[plain].quantized = None;
    let all = std::collections::BTreeMap::from([
        ("config.json".to_string(), bert_config().to_string().into_bytes()),
        ("model.safetensors".to_string(), file(&tensors_with_scales(&tensors), &metadata(&tensors))),
    ]);
    let message = error(all);
    assert!(message.contains("classifier.weight") && message.contains("I8"), "{message}");
}

fn tensors_with_scales(tensors: &[OwnedTensor]) -> Vec<OwnedTensor> {
    let scales = tensors.iter().filter_map(|t| {
        let values = &t.quantized.as_ref()?.values;
        Some(OwnedTensor::f32(format!("{}.scale", t.name), &[values.len()], values))
    });
    tensors.iter().cloned().chain(scales).collect()
}

fn metadata(tensors: &[OwnedTensor]) -> String {
    let entry = |t: &OwnedTensor| Some((t.name.clone(), json!({"bits": t.quantized.as_ref()?.bits, "shape": t.shape})));
    Value::Object(tensors.iter().filter_map(entry).collect()).to_string()
}

#[test]
fn mutated_quantised_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    write_directory(folder.path().join("m").as_path(), &[("config.json", b"{}")], &quantized_bert(4)).unwrap();
    let whole = std::fs::read(folder.path().join("m/model.safetensors")).unwrap();
    for at in (8..whole.len()).step_by(3) {
        for change in [1u8, 0x10, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            if let Ok(weights) = Weights::from_bytes(bytes) {
                for name in weights.names() {
                    let tensor = weights.tensor(name).unwrap();
                    tensor.read(0, &mut vec![0.0; tensor.len()]);
                }
            }
        }
    }
}
