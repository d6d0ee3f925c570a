//! What was removed is gone, and what is left computes what the whole model computes with the removed weights zeroed.

mod common;

use common::{Golden, distance, fixture, fixtures};
use sparing_engine::{Economies, Engine, GenerateOptions, Options, StepKind};
use sparing_model::{Batch, Edits, Executor, FfnEdit, Layer, LayerEdit, Linear, Matrix, Model, NewNumbers};
use sparing_model::{OwnedTensor, Precision, Sequence, Wanted, Weights};
use std::collections::BTreeMap;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// Some of them: now and then none, now and then all.
    fn some(&mut self, all: &[usize]) -> Vec<usize> {
        match self.below(4) {
            0 => vec![],
            1 => all.to_vec(),
            _ => all.iter().copied().filter(|_| self.below(2) == 0).collect(),
        }
    }
}

/// Edits of every layer; layers that share weights get the same.
fn random_edits(model: &Model, random: &mut Random) -> Edits {
    edits(model, |layer| {
        let neurons = |ffn: &sparing_model::Ffn| (0..ffn.up.outputs).collect::<Vec<_>>();
        let heads = random.some(&layer.attention.numbers());
        (heads, layer.ffns.iter().map(|ffn| random.some(&neurons(ffn))).collect())
    })
}

/// Edits by what `choose` keeps of a layer: heads, and neurons of every block.
fn edits(model: &Model, mut choose: impl FnMut(&Layer) -> (Vec<usize>, Vec<Vec<usize>>)) -> Edits {
    let mut shared: BTreeMap<String, LayerEdit> = BTreeMap::new();
    let mut all = Edits::default();
    for (number, layer) in model.architecture.layers.iter().enumerate() {
        let name = layer.attention.output.weight.name();
        let edit = shared.entry(name).or_insert_with(|| {
            let (heads, ffns) = choose(layer);
            let ffn = |neurons| FfnEdit { neurons: Some(neurons), ..FfnEdit::default() };
            let ffns = ffns.into_iter().map(ffn).enumerate().collect();
            LayerEdit { heads: Some(heads), ffns, ..LayerEdit::default() }
        });
        all.layers.insert(number, edit.clone());
    }
    all
}

/// A map's tensor with zeros in the columns that `keep` is false for.
fn zeroed(weights: &Weights, map: &Linear, keep: impl Fn(usize) -> bool) -> OwnedTensor {
    let Matrix::Tensor { name, in_out, slice: None } = &map.weight else { panic!("{map:?}") };
    let mut values = weights.matrix(map).unwrap();
    for row in values.chunks_exact_mut(map.inputs) {
        row.iter_mut().enumerate().filter(|(i, _)| !keep(*i)).for_each(|(_, x)| *x = 0.0);
    }
    if *in_out {
        values = (0..values.len()).map(|i| values[i % map.outputs * map.inputs + i / map.outputs]).collect();
    }
    OwnedTensor::f32(name, weights.tensor(name).unwrap().shape, &values)
}

/// The whole model, with zeros where edits would remove.
fn reference(directory: &std::path::Path, edits: &Edits) -> Model {
    let mut model = Model::load(directory).unwrap();
    let mut changed: BTreeMap<String, OwnedTensor> = BTreeMap::new();
    let mut put = |tensor: OwnedTensor| _ = changed.insert(tensor.name.clone(), tensor);
    for (number, edit) in &edits.layers {
        let layer = &model.architecture.layers[*number];
        let attention = &layer.attention;
        if let Some(heads) = &edit.heads {
            put(zeroed(&model.weights, &attention.output, |i| heads.contains(&(i / attention.head_width))));
        }
        for (block, ffn) in &edit.ffns {
            if let Some(neurons) = &ffn.neurons {
                put(zeroed(&model.weights, &layer.ffns[*block].down, |i| neurons.contains(&i)));
            }
        }
    }
    model.weights = model.weights.replace(changed.into_values().collect()).unwrap();
    model
}

fn engine(model: &Model, precision: Precision, economies: Economies) -> Engine {
    let options = Options { threads: 2, precision: Some(precision), economies, ..Options::default() };
    Engine::compile(model, &options).unwrap()
}

fn exact(model: &Model) -> Engine {
    engine(model, Precision::F32, Economies::default())
}

fn run(engine: &Engine, sequences: &[Sequence], wanted: Wanted) -> Vec<Vec<f32>> {
    engine.run(&Batch { sequences: sequences.to_vec(), wanted }).unwrap().sequences
}

/// How far two models are apart: heads, hidden states, and some rows of those that answer per token.
fn apart(a: &Engine, b: &Engine, sequences: &[Sequence]) -> f32 {
    let mut all = vec![Wanted::Head, Wanted::Hidden];
    if a.architecture().head.rows == sparing_model::HeadRows::All {
        all.push(Wanted::Rows(sequences.iter().map(|s| vec![s.ids.len() - 1, 0]).collect()));
    }
    let apart = |wanted: Wanted| distance(&run(a, sequences, wanted.clone()), &run(b, sequences, wanted));
    all.into_iter().map(apart).fold(0.0, f32::max)
}

#[test]
fn every_family_is_what_it_is_with_zeros() {
    let mut failed = Vec::new();
    for (number, (name, directory)) in fixtures().into_iter().enumerate() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let mut random = Random(number as u64);
        for _ in 0..4 {
            let edits = random_edits(&model, &mut random);
            let (pruned, zeros) = (model.pruned(&edits).unwrap(), reference(&directory, &edits));
            for economies in [Economies::default(), Economies::none()] {
                let of = |model: &Model| engine(model, Precision::F32, economies);
                let apart = apart(&of(&pruned), &of(&zeros), &golden.sequences);
                if apart > 1e-5 {
                    failed.push(format!("{name} {economies:?}: {apart:e} {:?}", pruned.plan.elements));
                }
            }
            for (precision, tolerance) in [(Precision::Bf16, 0.05), (Precision::Int8, 0.2)] {
                let of = |model: &Model| engine(model, precision, Economies::default());
                let apart = apart(&of(&pruned), &of(&zeros), &golden.sequences);
                if apart > tolerance {
                    failed.push(format!("{name} {precision:?}: {apart:e} {:?}", pruned.plan.elements));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn whole_blocks_may_go_from_anywhere() {
    for (name, directory) in fixtures() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let layers = model.architecture.layers.len();
        let all = edits(&model, |layer| (vec![], vec![vec![]; layer.ffns.len()]));
        let attention =
            edits(&model, |layer| (vec![], layer.ffns.iter().map(|ffn| (0..ffn.up.outputs).collect()).collect()));
        let blocks = edits(&model, |layer| (layer.attention.numbers(), vec![vec![]; layer.ffns.len()]));
        let shared = name.starts_with("albert");
        let last = Edits { layers: attention.layers.clone().into_iter().filter(|(l, _)| l + 1 == layers).collect() };
        for edits in [all, attention, blocks].into_iter().chain((!shared).then_some(last)) {
            let pruned = model.pruned(&edits).unwrap();
            let apart = apart(&exact(&pruned), &exact(&reference(&directory, &edits)), &golden.sequences);
            assert!(apart <= 1e-5, "{name}: {apart:e} {:?}", pruned.plan.elements);
        }
    }
}

#[test]
fn what_is_saved_answers_to_the_bit_and_is_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |path: &std::path::Path| std::fs::metadata(path.join("model.safetensors")).map_or(0, |m| m.len());
    for (number, (name, directory)) in fixtures().into_iter().enumerate() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let mut random = Random(1000 + number as u64);
        let first = model.pruned(&random_edits(&model, &mut random)).unwrap();
        // Once more, from what is left.
        let pruned = first.pruned(&random_edits(&first, &mut random)).unwrap();
        let target = folder.path().join(&name);
        pruned.save(&target).unwrap();
        let saved = Model::load(&target).unwrap();
        assert_eq!(saved.plan, pruned.plan, "{name}");
        assert_eq!(saved.architecture, pruned.architecture, "{name}");
        assert_eq!(
            std::fs::read(directory.join("config.json")).unwrap(),
            std::fs::read(target.join("config.json")).unwrap()
        );
        for precision in [Precision::F32, Precision::Int8] {
            let of = |model: &Model| engine(model, precision, Economies::default());
            let (a, b) = (of(&pruned), of(&saved));
            for wanted in [Wanted::Head, Wanted::Hidden] {
                assert_eq!(run(&a, &golden.sequences, wanted.clone()), run(&b, &golden.sequences, wanted), "{name}");
            }
        }
        if pruned.plan.elements.is_some() && bytes(&directory) > 0 {
            assert!(bytes(&target) < bytes(&directory), "{name}");
        }
        // What was not touched is the same, bit for bit.
        for tensor in saved.weights.names() {
            let (ours, theirs) = (saved.weights.tensor(tensor).unwrap(), model.weights.tensor(tensor).unwrap());
            assert!(ours.shape != theirs.shape || ours.bytes() == theirs.bytes(), "{name}: {tensor}");
        }
    }
}

#[test]
fn the_ledger_and_the_steps_know_what_is_gone() {
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let layers = model.architecture.layers.len();
    let whole = exact(&model);
    let none = edits(&model, |layer| (vec![], vec![vec![]; layer.ffns.len()]));
    let nothing = exact(&model.pruned(&none).unwrap());
    assert!(nothing.steps().all(|s| s.kind != StepKind::Attention && s.kind != StepKind::Linear || s.layer.is_none()));
    assert_eq!(nothing.steps().filter(|s| s.kind == StepKind::Shift).count(), 2 * layers);
    let part = |engine: &Engine, name: &str| {
        let ledger = engine.ledger(&[12, 12], &Wanted::Hidden);
        ledger.parts.iter().find(|p| p.name == name).map_or(0, |p| p.flops)
    };
    for name in ["qkv", "scores", "values", "ffn up"] {
        assert!(part(&whole, name) > 0);
        assert_eq!(part(&nothing, name), 0, "{name}");
    }
    // One operation for every element of a constant.
    assert_eq!(part(&nothing, "ffn down"), (24 * layers * model.architecture.hidden) as u64);
    let half = edits(&model, |layer| {
        let heads = layer.attention.numbers();
        let neurons = (0..layer.ffns[0].up.outputs / 2).collect();
        (heads[..heads.len() / 2].to_vec(), vec![neurons])
    });
    let half = exact(&model.pruned(&half).unwrap());
    for name in ["qkv", "scores", "values", "attention output", "ffn up", "ffn down"] {
        assert_eq!(2 * part(&half, name), part(&whole, name), "{name}");
    }
    assert!(half.weight_bytes() < whole.weight_bytes() && nothing.weight_bytes() < half.weight_bytes());
    // The profile has no times for what is not there.
    let (_, times) = nothing
        .profile(&Batch { sequences: Golden::read(&fixture("bert-classify")).sequences, ..Batch::default() })
        .unwrap();
    assert!(times.iter().all(|t| t.part != "qkv" && t.part != "attention"));
}

#[test]
fn rows_behind_the_last_attention_are_only_those_the_head_reads() {
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let layers = model.architecture.layers.len();
    let gone = LayerEdit { heads: Some(vec![]), ..LayerEdit::default() };
    let last = exact(&model.pruned(&Edits { layers: [(layers - 1, gone.clone())].into() }).unwrap());
    let all = exact(&model.pruned(&Edits { layers: (0..layers).map(|l| (l, gone.clone())).collect() }).unwrap());
    let up = |engine: &Engine, wanted| {
        let ledger = engine.ledger(&[10], &wanted);
        ledger.parts.iter().find(|p| p.name == "ffn up").unwrap().flops
    };
    let row = up(&last, Wanted::Hidden) / 10 / layers as u64;
    // The layer of the last attention, and the one behind it, have one row each.
    assert_eq!(up(&last, Wanted::Head), row * (10 * (layers as u64 - 2) + 2));
    assert_eq!(up(&all, Wanted::Head), row * layers as u64);
}

#[test]
fn economies_of_attention_leave_layers_without_it_alone() {
    for (name, wanted) in [("bert-classify", Wanted::Head), ("bert-token", Wanted::Head)] {
        let model = Model::load(&fixture(name)).unwrap();
        let golden = Golden::read(&fixture(name));
        let gone = LayerEdit { heads: Some(vec![]), ..LayerEdit::default() };
        for layer in 0..model.architecture.layers.len() {
            let pruned = model.pruned(&Edits { layers: [(layer, gone.clone())].into() }).unwrap();
            let want = run(&exact(&pruned), &golden.sequences, wanted.clone());
            for plan in ["mca:1e-30", "exact,skip=1e-30", "mca:1e-30,skip=1e-30", "int8:1e-30"] {
                let options = Options { threads: 1, attention: Some(plan.parse().unwrap()), ..Options::default() };
                let engine = Engine::compile(&pruned, &options).unwrap();
                assert!(distance(&run(&engine, &golden.sequences, wanted.clone()), &want) < 1e-5, "{name} {plan}");
            }
        }
    }
}

#[test]
fn a_removed_block_adds_the_constant_it_is_given() {
    let directory = fixture("bert-hidden");
    let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
    let hidden = model.architecture.hidden;
    let constant = |scale: f32| (0..hidden).map(|i| (i as f32 * 0.7).sin() * scale).collect::<Vec<f32>>();
    let new = |bias: Vec<f32>| NewNumbers { weight: None, bias: Some(bias) };
    let gone = |ffn: Vec<f32>, output: Vec<f32>| LayerEdit {
        heads: Some(vec![]),
        output: new(output),
        ffns: [(0, FfnEdit { neurons: Some(vec![]), down: new(ffn) })].into(),
    };
    let edits = Edits { layers: [(0, gone(constant(1.0), constant(-0.5)))].into() };
    let pruned = model.pruned(&edits).unwrap();
    let mut zeros = reference(&directory, &edits);
    let layer = &zeros.architecture.layers[0];
    let vector =
        |map: &Linear, values: Vec<f32>| OwnedTensor::f32(&map.bias.as_ref().unwrap().name, &[hidden], &values);
    let changed = vec![vector(&layer.ffns[0].down, constant(1.0)), vector(&layer.attention.output, constant(-0.5))];
    zeros.weights = zeros.weights.replace(changed).unwrap();
    assert!(apart(&exact(&pruned), &exact(&zeros), &golden.sequences) < 1e-5);
    assert!(apart(&exact(&pruned), &exact(&reference(&directory, &edits)), &golden.sequences) > 1e-2);
}

#[test]
fn new_weights_stand_where_the_old_ones_stood() {
    // Two layouts, and a family without a bias in attention's output.
    for name in ["bert-hidden", "gpt2-hidden", "xlnet-hidden"] {
        let (model, golden) = (Model::load(&fixture(name)).unwrap(), Golden::read(&fixture(name)));
        let layer = &model.architecture.layers[0];
        let keep = edits(&model, |layer| {
            (layer.attention.numbers()[1..].to_vec(), vec![(3..layer.ffns[0].up.outputs).collect()])
        });
        let pruned = model.pruned(&keep).unwrap();
        // The same numbers again, from where they are after the cut.
        let again = |map: &Linear| NewNumbers { weight: Some(pruned.weights.matrix(map).unwrap()), bias: None };
        let mut same = keep.clone();
        let edit = same.layers.get_mut(&0).unwrap();
        let left = &pruned.architecture.layers[0];
        edit.output = again(&left.attention.output);
        edit.ffns.get_mut(&0).unwrap().down = again(&left.ffns[0].down);
        let same = model.pruned(&same).unwrap();
        for sequences in golden.sequences.chunks(2) {
            assert_eq!(run(&exact(&same), sequences, Wanted::Hidden), run(&exact(&pruned), sequences, Wanted::Hidden));
        }
        assert!(left.ffns[0].down.inputs < layer.ffns[0].down.inputs);
    }
}

#[test]
fn a_pruned_model_generates() {
    let model = Model::load(&fixture("gpt2-causal")).unwrap();
    let mut random = Random(5);
    for _ in 0..6 {
        let edits = random_edits(&model, &mut random);
        let options = GenerateOptions { max_new_tokens: 8, ..GenerateOptions::default() };
        let of = |model: &Model| exact(model).generate(&[5, 6, 7], &options, &mut |_| true).unwrap();
        assert_eq!(of(&model.pruned(&edits).unwrap()), of(&reference(&fixture("gpt2-causal"), &edits)));
    }
}
