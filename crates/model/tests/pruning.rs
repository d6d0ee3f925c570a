//! Pruned models: what plans may say, what edits may ask, and what becomes of stored integers, ranges and files.

mod common;

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use sparing_model::{Edits, Elements, FfnEdit, LayerEdit, Model, NewNumbers, OwnedTensor, Plan, ScaleAxis, Scales};
use std::collections::BTreeMap;

const AT: &str = "bert.encoder.layer.0";

fn bert() -> Model {
    load(files(&bert_config(), &bert_tensors("bert."))).unwrap()
}

fn heads(heads: &[usize]) -> Edits {
    one(LayerEdit { heads: Some(heads.to_vec()), ..LayerEdit::default() })
}

fn neurons(neurons: &[usize]) -> Edits {
    let ffn = FfnEdit { neurons: Some(neurons.to_vec()), ..FfnEdit::default() };
    one(LayerEdit { ffns: [(0, ffn)].into(), ..LayerEdit::default() })
}

fn one(edit: LayerEdit) -> Edits {
    Edits { layers: [(0, edit)].into() }
}

fn refused(model: &Model, edits: &Edits) -> String {
    let message = model.pruned(edits).err().expect("must be refused").to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn with_plan(elements: Value) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(&bert_config(), &bert_tensors("bert."));
    files.insert("sparing.json".into(), json!({ "elements": elements }).to_string().into_bytes());
    files
}

#[test]
fn plans_that_make_no_sense_are_refused_in_one_line() {
    for (elements, part) in [
        (
            json!({"layers": {"0": {"heads": [2]}}}),
            "sparing.json: elements: layer 0: there is no head 2; the layer has 2",
        ),
        (json!({"layers": {"0": {"heads": [1, 0]}}}), "heads 1 and 0 are not in ascending order"),
        (json!({"layers": {"0": {"heads": [1, 1]}}}), "heads 1 and 1 are not in ascending order"),
        (json!({"layers": {"1": {"heads": []}}}), "there is no layer 1; the model has 1"),
        (json!({"layers": {"0": {"width": 7}}}), "a feed-forward width of 7 where the block has 6"),
        (json!({"layers": {"0": {"width": [3, 3]}}}), "2 widths for 1 feed-forward blocks"),
        (json!({"layers": {"0": {"width": []}}}), "0 widths for 1 feed-forward blocks"),
        (json!({"layers": {"0": {"heads": [-1]}}}), "not a plan this version knows"),
        (json!({"layers": {"0": {"width": -1}}}), "not a plan this version knows"),
        (json!({"layers": {"x": {}}}), "not a plan this version knows"),
        (json!({"layers": {"0": {"depth": 1}}}), "not a plan this version knows"),
        (json!({"layer": {}}), "not a plan this version knows"),
        (json!({"layers": {"0": {"heads": [0]}}}), "after what sparing.json says of the layers"),
        (json!({"layers": {"0": {"width": 5}}}), "after what sparing.json says of the layers"),
    ] {
        let message = error(with_plan(elements));
        assert!(message.contains(part), "{message} lacks {part}");
    }
    // Heads and widths that are all there, and removed blocks whose matrices are there still: nobody reads those.
    for elements in
        [json!({"layers": {"0": {"heads": [0, 1], "width": 6}}}), json!({"layers": {"0": {"heads": [], "width": [0]}}})]
    {
        load(with_plan(elements)).unwrap();
    }
    // The other way round: a pruned file without its plan.
    let pruned = bert().pruned(&heads(&[1])).unwrap();
    let tensors: Vec<OwnedTensor> = pruned.weights.names().map(|name| pruned.weights.owned(name).unwrap()).collect();
    assert!(error(files(&bert_config(), &tensors)).contains("where config.json asks for [4, 4]"));
}

#[test]
fn edits_that_make_no_sense_are_refused_in_one_line() {
    let model = bert();
    let far = Edits { layers: [(3, LayerEdit::default())].into() };
    let block = one(LayerEdit { ffns: [(1, FfnEdit::default())].into(), ..LayerEdit::default() });
    let output = |weight: Option<usize>, bias: Option<usize>| {
        let numbers = |count: Option<usize>| count.map(|n| vec![0.0; n]);
        one(LayerEdit {
            heads: Some(vec![1]),
            output: NewNumbers { weight: numbers(weight), bias: numbers(bias) },
            ..LayerEdit::default()
        })
    };
    for (edits, part) in [
        (far, "there is no layer 3 to prune; the model has 1"),
        (heads(&[0, 2]), "layer 0: there is no head 2; the layer has 2"),
        (heads(&[1, 0]), "not in ascending order"),
        (neurons(&[0, 6]), "there is no neuron 6; the block has 6"),
        (neurons(&[3, 3]), "not in ascending order"),
        (block, "there is no feed-forward block 1"),
        (output(Some(16), None), "16 new numbers for the weight"),
        (output(None, Some(3)), "3 new numbers for the bias"),
    ] {
        let message = refused(&model, &edits);
        assert!(message.contains(part), "{message} lacks {part}");
    }
    let pruned = model.pruned(&heads(&[1])).unwrap();
    assert!(refused(&pruned, &heads(&[0])).contains("there is no head 0 any more; left are [1]"));
    let gone = model.pruned(&heads(&[])).unwrap();
    let numbers = NewNumbers { weight: Some(vec![0.0; 8]), bias: None };
    assert!(refused(&gone, &one(LayerEdit { output: numbers, ..LayerEdit::default() })).contains("8 new numbers"));
}

/// What makes up for heads that are gone is put where they went, once for all layers that share it.
#[test]
fn layers_that_share_a_tensor_get_the_same_new_numbers() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/albert-classify");
    let model = Model::load(&path).unwrap();
    let output = &model.architecture.layers[0].attention.output;
    let (outputs, inputs) = (output.outputs, 2 * model.architecture.layers[0].attention.head_width);
    let edits = |number: &dyn Fn(usize) -> f32, heads: &dyn Fn(usize) -> Vec<usize>| {
        let edit = |layer: usize| {
            let numbers = NewNumbers {
                weight: Some(vec![number(layer); outputs * inputs]),
                bias: Some(vec![number(layer); outputs]),
            };
            let ffn =
                FfnEdit { neurons: Some((0..20).collect()), down: NewNumbers { weight: None, ..numbers.clone() } };
            (layer, LayerEdit { heads: Some(heads(layer)), output: numbers, ffns: [(0, ffn)].into() })
        };
        Edits { layers: (0..model.architecture.layers.len()).map(edit).collect() }
    };
    let pruned = model.pruned(&edits(&|_| 7.0, &|_| vec![0, 2])).unwrap();
    let map = &pruned.architecture.layers[1].attention.output;
    assert_eq!(pruned.weights.matrix(map).unwrap(), vec![7.0; outputs * inputs]);
    assert_eq!(pruned.architecture.layers[2].ffns[0].up.outputs, 20);
    let other_numbers = refused(&model, &edits(&|layer| layer as f32, &|_| vec![0, 2]));
    let other_heads = refused(&model, &edits(&|_| 7.0, &|layer| vec![layer.min(1), 2]));
    for told in [other_numbers, other_heads] {
        assert!(told.starts_with("layer 1: tensor") && told.contains("is shared by layers"), "{told}");
    }
}

#[test]
fn heads_keep_their_names_and_neurons_get_new_ones() {
    let model = bert();
    let first = model.pruned(&neurons(&[1, 3, 4])).unwrap();
    let second = first.pruned(&neurons(&[0, 2])).unwrap();
    let at_once = model.pruned(&neurons(&[1, 4])).unwrap();
    assert_eq!(second.plan, at_once.plan);
    let name = format!("{AT}.output.dense.weight");
    assert_eq!(second.weights.owned(&name).unwrap(), at_once.weights.owned(&name).unwrap());
    // What counts up from 0 in rows of 6.
    assert_eq!(second.weights.vector(&name, 8).unwrap(), [1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0]);
    let both = second.pruned(&heads(&[1])).unwrap();
    assert_eq!(both.architecture.layers[0].attention.numbers(), [1]);
    assert_eq!(
        serde_json::to_value(&both.plan).unwrap(),
        json!({"elements": {"layers": {"0": {"heads": [1], "width": 2}}}})
    );
    assert_eq!(both.weights.vector(&format!("{AT}.attention.self.key.bias"), 2).unwrap(), [2.0, 3.0]);
    // Nothing removed, nothing to say.
    assert_eq!(model.pruned(&heads(&[0, 1])).unwrap().plan, Plan::default());
    assert_eq!(model.pruned(&Edits::default()).unwrap().architecture, model.architecture);
}

#[test]
fn what_is_removed_is_gone_and_the_rest_is_shared() {
    let model = bert();
    let gone = model.pruned(&heads(&[])).unwrap().pruned(&neurons(&[])).unwrap();
    let names: Vec<&str> = gone.weights.names().filter(|name| name.contains(AT)).collect();
    let left = ["attention.output.LayerNorm.bias", "attention.output.LayerNorm.weight", "attention.output.dense.bias"];
    let rest = ["output.LayerNorm.bias", "output.LayerNorm.weight", "output.dense.bias"];
    let want: Vec<String> = left.iter().chain(&rest).map(|part| format!("{AT}.{part}")).collect();
    assert_eq!(names, want);
    let half = model.pruned(&heads(&[0])).unwrap();
    for name in half.weights.names() {
        let [ours, theirs] = [&half, &model].map(|m| m.weights.tensor(name).unwrap());
        let same = ours.bytes().as_ptr() == theirs.bytes().as_ptr();
        assert_eq!(same, ours.shape == theirs.shape, "{name}");
    }
}

#[test]
fn a_calibration_of_the_whole_model_is_not_taken_for_the_pruned_one() {
    use sparing_model::{CALIBRATION_FILE, Calibration, LayerCalibration, value_fingerprint};
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    sparing_model::write_directory(
        &first,
        &[("config.json", bert_config().to_string().as_bytes())],
        &bert_tensors("bert."),
    )
    .unwrap();
    let model = Model::load(&first).unwrap();
    let layer =
        LayerCalibration { mean: vec![0.0; 4], std: vec![1.0; 4], basis: vec![0.5; 8], eigenvalues: vec![1.0; 4] };
    let fingerprint = value_fingerprint(&model.architecture, &model.weights).unwrap();
    let calibration = Calibration { layers: vec![layer], tokens: 9, fingerprint };
    calibration.write(&first.join(CALIBRATION_FILE)).unwrap();
    assert_eq!(model.calibration().unwrap(), Some(calibration.clone()));
    for edits in [heads(&[]), heads(&[1]), neurons(&[2])] {
        let pruned = model.pruned(&edits).unwrap();
        assert_eq!(pruned.calibration().unwrap(), None);
        pruned.save(&second).unwrap();
        assert!(!second.join(CALIBRATION_FILE).exists());
    }
    // Brought along by hand, it is refused; one of a model without attention is made and read.
    let pruned = model.pruned(&heads(&[1])).unwrap();
    let bytes = calibration.to_bytes().unwrap();
    let message = Calibration::from_bytes(&bytes, "c", &pruned).err().unwrap().to_string();
    assert!(message.contains("it was made for another model"), "{message}");
    let gone = model.pruned(&heads(&[])).unwrap();
    let fingerprint = value_fingerprint(&gone.architecture, &gone.weights).unwrap();
    let empty = Calibration { layers: vec![LayerCalibration::default()], tokens: 9, fingerprint };
    assert_eq!(Calibration::from_bytes(&empty.to_bytes().unwrap(), "c", &gone).unwrap(), empty);
}

#[test]
fn shards_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    std::fs::create_dir_all(&first).unwrap();
    let tensors = bert_tensors("bert.");
    let (a, b) = tensors.split_at(9);
    std::fs::write(first.join("a.safetensors"), serialise(a)).unwrap();
    std::fs::write(first.join("b.safetensors"), serialise(b)).unwrap();
    let index = json!({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}});
    std::fs::write(first.join("model.safetensors.index.json"), index.to_string()).unwrap();
    std::fs::write(first.join("config.json"), bert_config().to_string()).unwrap();
    let pruned = Model::load(&first).unwrap().pruned(&heads(&[0])).unwrap();
    pruned.save(&second).unwrap();
    let mut found: Vec<_> = std::fs::read_dir(&second).unwrap().map(|e| e.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["config.json", "model.safetensors", "sparing.json"]);
    assert!(Model::load(&second).unwrap().weights.names().eq(pruned.weights.names()));
}

#[test]
fn ranges_of_fused_maps_follow_their_names() {
    let config = json!({
        "model_type": "gpt2", "architectures": ["GPT2Model"], "vocab_size": 5, "n_positions": 4, "n_embd": 4,
        "n_layer": 1, "n_head": 2, "n_inner": 6
    });
    let shapes: [(&str, &[usize]); 16] = [
        ("wte.weight", &[5, 4]),
        ("wpe.weight", &[4, 4]),
        ("h.0.attn.c_attn.weight", &[4, 12]),
        ("h.0.attn.c_attn.bias", &[12]),
        ("h.0.attn.c_proj.weight", &[4, 4]),
        ("h.0.attn.c_proj.bias", &[4]),
        ("h.0.ln_1.weight", &[4]),
        ("h.0.ln_1.bias", &[4]),
        ("h.0.ln_2.weight", &[4]),
        ("h.0.ln_2.bias", &[4]),
        ("h.0.mlp.c_fc.weight", &[4, 6]),
        ("h.0.mlp.c_fc.bias", &[6]),
        ("h.0.mlp.c_proj.weight", &[6, 4]),
        ("h.0.mlp.c_proj.bias", &[4]),
        ("ln_f.weight", &[4]),
        ("ln_f.bias", &[4]),
    ];
    let mut model = load(files(&config, &tensors(&shapes))).unwrap();
    let mut quantization = sparing_model::Quantization::default();
    let attention = &model.architecture.layers[0].attention;
    for (i, map) in [&attention.query, &attention.key, &attention.value].into_iter().enumerate() {
        quantization.activations.ranges.insert(map.weight.name(), [0.0, 1.0 + i as f32]);
    }
    model.plan.quantization = Some(quantization);
    let pruned = model.pruned(&heads(&[1])).unwrap();
    let ranges = &pruned.plan.quantization.as_ref().unwrap().activations.ranges;
    let attention = &pruned.architecture.layers[0].attention;
    assert_eq!(attention.key.weight.name(), "h.0.attn.c_attn.weight[2..4]");
    for (i, map) in [&attention.query, &attention.key, &attention.value].into_iter().enumerate() {
        assert_eq!(ranges[&map.weight.name()], [0.0, 1.0 + i as f32]);
    }
    assert_eq!(pruned.weights.vector("h.0.attn.c_attn.bias", 6).unwrap(), [2.0, 3.0, 6.0, 7.0, 10.0, 11.0]);
    let gone = model.pruned(&heads(&[])).unwrap();
    assert!(gone.plan.quantization.unwrap().activations.ranges.is_empty());
}

#[test]
fn layers_that_share_weights_have_the_same_left() {
    let shared = json!({"model_type": "albert", "architectures": ["AlbertModel"], "vocab_size": 5, "embedding_size": 4,
        "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 6});
    let a = sparing_model::Architecture::from_config(shared.to_string().as_bytes(), None, &|_| false).unwrap();
    let apply = |elements: Value| {
        let elements: Elements = serde_json::from_value(elements).unwrap();
        elements.apply(&mut a.clone())
    };
    for left in [json!({"heads": [0]}), json!({"heads": []}), json!({"width": 2}), json!({"width": 0})] {
        let message = apply(json!({"layers": {"1": left}})).err().unwrap().to_string();
        assert!(message.contains("layers 0 and 1 share their weights"), "{message}");
        apply(json!({"layers": {"0": left, "1": left, "2": left}})).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Integers that are left are the same integers with the same scales, whatever is cut.
    #[test]
    fn stored_integers_stay_what_they_are(
        bits in 2u32..=8,
        by_column in any::<bool>(),
        keep in prop::collection::vec(any::<bool>(), 6),
        seed in any::<u32>(),
    ) {
        let most = (1i32 << (bits - 1)) - 1;
        let quantize = |tensor: OwnedTensor| {
            let [rows, columns] = tensor.shape[..] else { return tensor };
            if !tensor.name.contains("dense.weight") || tensor.name.contains("pooler") {
                return tensor;
            }
            let noise = |i: usize| (seed.wrapping_mul(2654435761).wrapping_add((i * i * 31) as u32) >> 7) as i32;
            let integers: Vec<i8> = (0..rows * columns).map(|i| (noise(i) % (most + 1)) as i8).collect();
            let (axis, count) = if by_column { (ScaleAxis::Column, columns) } else { (ScaleAxis::Row, rows) };
            let values = (0..count).map(|i| 0.1 + i as f32).collect();
            OwnedTensor::quantized(tensor.name, &[rows, columns], &integers, Scales { bits, axis, values })
        };
        let tensors: Vec<OwnedTensor> = bert_tensors("bert.").into_iter().map(quantize).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        sparing_model::write_directory(&path, &[("config.json", bert_config().to_string().as_bytes())], &tensors).unwrap();
        let model = Model::load(&path).unwrap();
        let kept: Vec<usize> = (0..6).filter(|i| keep[*i]).collect();
        let pruned = model.pruned(&neurons(&kept)).unwrap();
        pruned.save(&path).unwrap();
        let saved = Model::load(&path).unwrap();
        let (whole, left) = (&model.architecture.layers[0].ffns[0], &saved.architecture.layers[0].ffns[0]);
        let matrix = |model: &Model, map| model.weights.matrix(map).unwrap();
        let (up, down) = (matrix(&model, &whole.up), matrix(&model, &whole.down));
        let want: Vec<f32> = kept.iter().flat_map(|n| up[n * 4..n * 4 + 4].to_vec()).collect();
        prop_assert_eq!(matrix(&saved, &left.up), want);
        let want: Vec<f32> = (0..4).flat_map(|row| kept.iter().map(move |n| row * 6 + n)).map(|i| down[i]).collect();
        prop_assert_eq!(matrix(&saved, &left.down), want);
        for name in saved.weights.names() {
            let [ours, theirs] = [&saved, &model].map(|m| m.weights.tensor(name).unwrap().quantized().map(|q| q.bits()));
            prop_assert_eq!(ours, theirs, "{}", name);
        }
    }
}
