//! Every family, quantised: what the engine runs is what was rounded here.

use sparing_engine::{Engine, Options};
use sparing_model::{
    Batch, Bits, Executor, Functions, LayerBits, Model, OwnedTensor, Precision, Sequence, SoftmaxNetwork, Weights,
};
use sparing_quantize::{Part, Quantize, ScaleChoice, Statistics, Target, targets};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|path| path.join("config.json").exists());
    all.sort();
    assert!(all.len() > 10);
    all
}

fn batch(model: &Model) -> Batch {
    let words = model.architecture.embeddings.vocabulary as u32;
    let sequence =
        |n: u32, from: u32| Sequence { ids: (0..n).map(|i| (i * 5 + from) % words).collect(), types: vec![] };
    Batch { sequences: vec![sequence(9, 1), sequence(4, 7)], ..Batch::default() }
}

fn run(model: &Model, precision: Precision) -> Vec<f32> {
    let options = Options { precision: Some(precision), threads: 1, ..Options::default() };
    Engine::compile(model, &options).unwrap().run(&batch(model)).unwrap().sequences.concat()
}

fn quantized(path: &Path, bits: Bits, choice: ScaleChoice, statistics: Option<&Statistics>) -> Model {
    rounded(Model::load(path).unwrap(), bits, choice, statistics)
}

fn rounded(mut model: Model, bits: Bits, choice: ScaleChoice, statistics: Option<&Statistics>) -> Model {
    let job = Quantize {
        model: &model,
        bits,
        layers: Default::default(),
        choice,
        statistics,
        fixed_ranges: statistics.is_some(),
    };
    let changed = job.run(&mut |_, _| true).unwrap().unwrap();
    model.weights = model.weights.replace(changed.tensors).unwrap();
    model.plan = changed.plan;
    model
}

/// The model with floats in the place of integers.
fn expanded(model: &Model) -> Model {
    let whole = |name: &str| {
        let tensor = model.weights.tensor(name).unwrap();
        let mut values = vec![0.0; tensor.len()];
        tensor.read(0, &mut values);
        OwnedTensor::f32(name, tensor.shape, &values)
    };
    let integers = model.weights.names().filter(|name| model.weights.tensor(name).unwrap().quantized().is_some());
    let floats: Vec<OwnedTensor> = integers.map(whole).collect();
    Model::new(model.architecture.clone(), model.plan.clone(), model.weights.replace(floats).unwrap())
}

/// The same model once more.
fn again(model: &Model) -> Model {
    Model::new(model.architecture.clone(), model.plan.clone(), model.weights.clone())
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let square = |x: f32| x * x;
    let (difference, size) =
        a.iter().zip(b).fold((0f32, 1e-12f32), |(d, s), (x, y)| (d + square(x - y), s + square(*x)));
    (difference / size).sqrt()
}

#[test]
fn stored_integers_are_not_rounded_again() {
    for path in fixtures() {
        // The scales that the engine itself would choose: the same integers come to the same answers.
        let bits = Bits { attention: Some(8), ffn: Some(8), ..Bits::default() };
        let (exact, ours) = (Model::load(&path).unwrap(), quantized(&path, bits, ScaleChoice::Largest, None));
        let far = distance(&run(&exact, Precision::Int8), &run(&ours, Precision::Int8));
        assert!(far < 0.01, "{}: {far}", path.display());
    }
}

#[test]
fn few_bits_are_further_away_than_many() {
    for path in fixtures() {
        let exact = run(&Model::load(&path).unwrap(), Precision::F32);
        let far = |bits: u32| {
            let model = quantized(&path, Bits::all(bits), ScaleChoice::Searched, None);
            assert!(model.weights.size_in_bytes() < Model::load(&path).unwrap().weights.size_in_bytes());
            distance(&exact, &run(&model, Precision::F32))
        };
        let (eight, three) = (far(8), far(3));
        assert!(eight < 0.2 && eight < three / 2.0, "{}: {eight} {three}", path.display());
    }
}

#[test]
fn layers_have_bits_of_their_own_and_run_as_their_expanded_weights() {
    for path in fixtures() {
        let model = Model::load(&path).unwrap();
        let own = LayerBits { attention: Some(3), ffn: None };
        let job = Quantize {
            model: &model,
            bits: Bits::all(6),
            layers: [(0, own)].into(),
            choice: ScaleChoice::Searched,
            statistics: None,
            fixed_ranges: false,
        };
        let changed = job.run(&mut |_, _| true).unwrap().unwrap();
        let expanded: Vec<OwnedTensor> = changed
            .tensors
            .iter()
            .filter(|tensor| tensor.quantized.is_some())
            .map(|tensor| {
                let alone = Weights::from_tensors(std::slice::from_ref(tensor)).unwrap();
                let mut values = vec![0.0; alone.tensor(&tensor.name).unwrap().len()];
                alone.tensor(&tensor.name).unwrap().read(0, &mut values);
                OwnedTensor::f32(tensor.name.clone(), &tensor.shape, &values)
            })
            .collect();
        let mut floats = Model::load(&path).unwrap();
        floats.weights = model.weights.replace(expanded).unwrap();
        let mut small = Model::load(&path).unwrap();
        small.weights = model.weights.replace(changed.tensors).unwrap();
        small.plan = changed.plan;
        for target in targets(&model.architecture) {
            let bits = small.weights.tensor(&target.name).unwrap().quantized().unwrap().bits();
            let low = target.part == sparing_quantize::Part::Attention && target.layer == Some(0);
            assert_eq!(
                bits,
                if low {
                    3
                } else if target.small {
                    8
                } else {
                    6
                },
                "{}: {}",
                path.display(),
                target.name
            );
        }
        assert_eq!(run(&small, Precision::F32), run(&floats, Precision::F32), "{}", path.display());
        assert_eq!(small.plan.quantization.unwrap().layers, [(0, own)].into());
    }
}

/// Networks in softmax's place are part of attention: rounded, counted, once where layers share one.
#[test]
fn networks_in_the_place_of_softmax_are_rounded_too() {
    for name in ["bert-classify", "albert-classify", "mobilebert-classify"] {
        let path = fixtures().into_iter().find(|path| path.ends_with(name)).unwrap();
        for (shared, keys) in [(false, None), (true, None), (false, Some(6))] {
            let functions = Functions::all(SoftmaxNetwork { tokens: 16, shared, keys });
            let mut count = 0u32;
            let mut number = || {
                count = count.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (count >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            let fill = &mut |name: &str, shape: &[usize]| -> Vec<f32> {
                let phi = name.ends_with("running_phi");
                (0..shape.iter().product()).map(|_| if phi { 1.0 + number().abs() } else { 0.1 * number() }).collect()
            };
            let exact = Model::load(&path).unwrap().with_functions(&functions, fill).unwrap();
            let all = targets(&exact.architecture);
            let maps = exact.architecture.replacements().into_keys().filter(|name| name.ends_with(".weight"));
            let maps: Vec<String> = maps.collect();
            assert!(!maps.is_empty());
            for map in &maps {
                let found: Vec<&Target> = all.iter().filter(|target| target.name == *map).collect();
                assert!(found.len() == 1 && found[0].part == Part::Attention, "{name}: {map}");
            }
            let round = |bits: u32, choice| {
                rounded(again(&exact), Bits { attention: Some(bits), ..Bits::default() }, choice, None)
            };
            let small = round(8, ScaleChoice::Largest);
            for map in &maps {
                assert_eq!(small.weights.tensor(map).unwrap().quantized().map(|q| q.bits()), Some(8), "{name}: {map}");
            }
            // The engine runs what was rounded: the same as with the numbers that the integers stand for.
            let floats = expanded(&small);
            let case = format!("{name}, shared {shared}, {keys:?} keys");
            assert_eq!(run(&small, Precision::F32), run(&floats, Precision::F32), "{case}");
            let far = distance(&run(&floats, Precision::Int8), &run(&small, Precision::Int8));
            assert!(far < 0.01, "{case}: {far}");
            let want = run(&exact, Precision::F32);
            let [eight, three] =
                [8, 3].map(|bits| distance(&want, &run(&round(bits, ScaleChoice::Searched), Precision::F32)));
            assert!(eight < 0.2 && eight < three / 2.0, "{case}: {eight} {three}");
        }
    }
}

#[test]
fn every_map_of_the_program_is_observed_under_its_name() {
    for path in fixtures() {
        let model = Model::load(&path).unwrap();
        let options = Options { threads: 2, ..Options::default() };
        let engine = Engine::compile(&model, &options).unwrap();
        let mut seen = BTreeSet::new();
        let batch = batch(&model);
        let outputs = engine.observe(&batch, &mut |o| {
            assert_eq!(o.rows.len() % o.inputs, 0);
            assert!(o.rows.iter().all(|x| x.is_finite()));
            seen.insert(o.weight.to_string());
        });
        assert_eq!(outputs.unwrap().sequences, engine.run(&batch).unwrap().sequences, "{}", path.display());
        let all = targets(&model.architecture);
        let uses =
            |t: &Target| t.uses.iter().filter(|used| used.integer).map(|used| used.map.clone()).collect::<Vec<_>>();
        for map in all.iter().flat_map(uses) {
            // Tokens that attend globally only exist for some heads.
            assert!(seen.contains(&map) || map.contains("_global"), "{}: {map} in {seen:?}", path.display());
        }
    }
}

#[test]
fn biases_take_over_the_mean_error() {
    let path = fixtures().into_iter().find(|p| p.ends_with("bert-classify-text")).unwrap();
    let exact = Model::load(&path).unwrap();
    let engine = Engine::compile(&exact, &Options::default()).unwrap();
    // One token, always the same: means are what is read, so the correction is exact.
    let one = Batch { sequences: vec![Sequence { ids: vec![7], types: vec![] }], ..Batch::default() };
    let mut statistics = Statistics::new();
    let watch = &mut |o: sparing_engine::Observed<'_>| {
        let x: Vec<f64> = o.rows.iter().map(|x| f64::from(*x)).collect();
        let (least, most) = o.rows.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        let squares = x.iter().map(|x| x * x).collect();
        statistics.insert(
            o.weight.to_string(),
            sparing_quantize::Sums { rows: 1, sum: x, squares, least, most, products: None, leader: String::new() },
        );
    };
    let want = engine.observe(&one, watch).unwrap().sequences.concat();
    let bits = Bits { embeddings: None, ..Bits::all(3) };
    let answer = |model: &Model| {
        let options = Options { precision: Some(Precision::F32), ..Options::default() };
        Engine::compile(model, &options).unwrap().run(&one).unwrap().sequences.concat()
    };
    let blind = distance(&want, &answer(&quantized(&path, bits, ScaleChoice::Searched, None)));
    let calibrated = quantized(&path, bits, ScaleChoice::Searched, Some(&statistics));
    let far = distance(&want, &answer(&calibrated));
    assert!(far < 1e-4 && blind > 1e-3, "{far} {blind}");
    let ranges = &calibrated.plan.quantization.as_ref().unwrap().activations.ranges;
    assert_eq!(ranges.len(), 2 * 6, "{ranges:?}");
    // Fixed ranges are used: they fit this one token, so int8 stays near what the same weights give in f32.
    let near = distance(
        &answer(&calibrated),
        &Engine::compile(&calibrated, &Options::default()).unwrap().run(&one).unwrap().sequences.concat(),
    );
    assert!(near < 0.15, "{near}");
}
