//! Economised values: exact where nothing is saved, repeatable, the same in any company, refused where they cannot be.

mod common;

use common::{Golden, fixture, fixtures};
use sparing_engine::{Calibrator, Economies, Engine, Options, RunOptions};
use sparing_model::{AttentionPlan, Batch, Calibration, Executor, Model, Precision, Sequence, Wanted};
use std::sync::Arc;

const SAMPLERS: [&str; 6] = ["mca", "calibrated", "systematic", "graded", "mean", "int8"];

/// One or two of every family whose values can be economised.
const FAMILIES: [&str; 13] = [
    "albert-hidden-groups",
    "bert-classify",
    "bert-hidden-odd",
    "distilbert-token",
    "electra-classify",
    "gpt2-causal",
    "gpt2-hidden-inverse",
    "longformer-answer",
    "longformer-classify",
    "mpnet-classify",
    "roberta-hidden",
    "xlnet-classify",
    "xlnet-hidden-clamp",
];

/// Fixtures whose values can be economised, each with a calibration from its own sequences.
fn able() -> Vec<(String, Model, Golden, Arc<Calibration>)> {
    let mut found = Vec::new();
    for (name, directory) in fixtures() {
        if !FAMILIES.contains(&name.as_str()) {
            continue;
        }
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let calibration = calibrate(&model, &golden.sequences);
        found.push((name, model, golden, calibration));
    }
    found
}

fn calibrate(model: &Model, sequences: &[Sequence]) -> Arc<Calibration> {
    let mut calibrator = Calibrator::new(model, 1).unwrap();
    calibrator.add(sequences).unwrap();
    Arc::new(calibrator.finish().unwrap())
}

fn engine(
    model: &Model,
    attention: &str,
    calibration: &Arc<Calibration>,
    threads: usize,
    precision: Precision,
) -> Engine {
    let options = Options {
        threads,
        precision: Some(precision),
        attention: Some(attention.parse().unwrap()),
        calibration: Some(calibration.clone()),
        ..Options::default()
    };
    Engine::compile(model, &options).unwrap()
}

fn batch(sequences: &[Sequence], wanted: Wanted) -> Batch {
    Batch { sequences: sequences.to_vec(), wanted }
}

#[test]
fn alpha_near_zero_is_the_exact_model_to_the_bit() {
    for (name, model, golden, calibration) in able() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let exact = engine(&model, "exact", &calibration, 2, precision);
            for sampler in SAMPLERS {
                for strict in ["", ",strict"] {
                    let economised = engine(&model, &format!("{sampler}:1e-30{strict}"), &calibration, 2, precision);
                    for wanted in [Wanted::Head, Wanted::Hidden] {
                        let batch = batch(&golden.sequences, wanted);
                        let (got, want) = (economised.run(&batch).unwrap(), exact.run(&batch).unwrap());
                        assert_eq!(got, want, "{name} {precision:?} {sampler}{strict}");
                    }
                    let spent = economised.spending();
                    assert!(spent.tokens > 0 && spent.full > 0, "{name} {sampler}: {spent:?}");
                }
            }
        }
    }
}

#[test]
fn alpha_near_zero_is_the_exact_model_for_every_fixture() {
    for (name, directory) in fixtures().into_iter().filter(|(name, _)| !name.starts_with("mobilebert")) {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        let run = |attention: &str| {
            let options = Options { threads: 1, attention: Some(attention.parse().unwrap()), ..Options::default() };
            Engine::compile(&model, &options).unwrap().run(&batch(&golden.sequences, Wanted::Head)).unwrap()
        };
        assert_eq!(run("mca:1e-30,strict"), run("exact"), "{name}");
    }
}

#[test]
fn same_seed_same_answer_on_any_number_of_threads_and_in_any_company() {
    for (name, model, golden, calibration) in able() {
        for sampler in SAMPLERS {
            let plan = format!("{sampler}:1.0,strict,seed=7");
            let one = engine(&model, &plan, &calibration, 1, Precision::F32);
            let two = engine(&model, &plan, &calibration, 2, Precision::F32);
            let all = batch(&golden.sequences, Wanted::Hidden);
            let want = one.run(&all).unwrap();
            assert_eq!(two.run(&all).unwrap(), want, "{name} {sampler}");
            assert_eq!(two.run(&all).unwrap(), want, "{name} {sampler} again");
            for (sequence, want) in golden.sequences.iter().zip(&want.sequences) {
                let alone = two.run(&batch(std::slice::from_ref(sequence), Wanted::Hidden)).unwrap();
                let off = alone.sequences[0].iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(off <= 1e-5, "{name} {sampler} alone: {off}");
            }
            assert!(want.sequences.iter().flatten().all(|x| x.is_finite()), "{name} {sampler}");
        }
    }
}

#[test]
fn a_run_may_be_exact_or_have_its_own_seed() {
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let golden = Golden::read(&fixture("bert-classify"));
    let calibration = calibrate(&model, &golden.sequences);
    let exact = engine(&model, "exact", &calibration, 2, Precision::F32);
    let drawn = engine(&model, "mca:1.0,strict", &calibration, 2, Precision::F32);
    let batch = batch(&golden.sequences, Wanted::Head);
    let want = exact.run(&batch).unwrap();
    assert_eq!(drawn.run_as(&batch, &RunOptions::exact()).unwrap(), want);
    assert_eq!(drawn.spending(), Default::default(), "an exact run is not booked");
    let planned = drawn.run(&batch).unwrap();
    assert_ne!(planned, want);
    let seeds: Vec<_> =
        (0..4).map(|seed| drawn.run_as(&batch, &RunOptions { seed: Some(seed), exact: false }).unwrap()).collect();
    assert_eq!(seeds[0], planned, "the plan's seed is 0");
    assert_ne!(seeds[1], seeds[2]);
    let other = engine(&model, "mca:1.0,strict,seed=3", &calibration, 1, Precision::F32);
    assert_eq!(other.run(&batch).unwrap(), seeds[3]);
    let spent = drawn.spending();
    assert!(spent.values < spent.values_exact && spent.tokens > 0 && spent.values_ratio() > 1.0, "{spent:?}");
    assert!(spent.model_ratio() > 1.0 && spent.attention_ratio() <= spent.values_ratio());
    drawn.reset_spending();
    assert_eq!(drawn.spending(), Default::default());
}

#[test]
fn poolings_and_lengths_change_what_is_spent_as_they_must() {
    for (name, model, golden, calibration) in able() {
        let spent = |attention: &str| {
            let engine = engine(&model, attention, &calibration, 2, Precision::F32);
            engine.run(&batch(&golden.sequences, Wanted::Hidden)).unwrap();
            engine.spending()
        };
        let max = spent("mca:0.5,strict");
        // The largest is at least the mean, and at least the median.
        assert!(max.authors >= spent("mca:0.5,strict,pooling=mean").authors, "{name}");
        assert!(max.authors >= spent("mca:0.5,strict,pooling=median").authors, "{name}");
        assert!(max.values >= spent("mca:1,strict").values, "{name}");
        let padded = spent("mca:0.5,strict,padded=5000");
        assert!(padded.authors >= max.authors && padded.authors_exact > max.authors_exact, "{name}");
        // Whatever is bought instead of draws costs no more than they would.
        for sampler in ["graded", "mean"] {
            let spent = spent(&format!("{sampler}:0.5,strict"));
            assert!(spent.values <= spent.authors, "{name} {sampler}: {spent:?}");
        }
    }
}

#[test]
fn layers_of_their_own() {
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let golden = Golden::read(&fixture("bert-classify"));
    let calibration = calibrate(&model, &golden.sequences);
    let layers = model.architecture.layers.len();
    let all: String = (0..layers).map(|layer| format!(",layer{layer}=exact")).collect();
    let run = |attention: &str| {
        let engine = engine(&model, attention, &calibration, 1, Precision::F32);
        engine.run(&batch(&golden.sequences, Wanted::Hidden)).unwrap()
    };
    assert_eq!(run(&format!("mca:1{all},strict")), run("exact"));
    assert_eq!(run("mca:1,strict,layer0=1e-30,layer1=1e-30"), run("exact"), "the fixture has two layers");
    assert_ne!(run("mca:1,strict,layer0=exact"), run("exact"));
}

#[test]
fn generation_uses_exact_values() {
    let model = Model::load(&fixture("gpt2-causal")).unwrap();
    let golden = Golden::read(&fixture("gpt2-causal"));
    let calibration = calibrate(&model, &golden.sequences);
    let (prompt, continuation) = &golden.generations[0];
    let options = sparing_engine::GenerateOptions { max_new_tokens: continuation.len(), ..Default::default() };
    let drawn = engine(&model, "mca:1.0,strict", &calibration, 2, Precision::F32);
    assert_eq!(&drawn.generate(prompt, &options, &mut |_| true).unwrap(), continuation);
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let refuse = |model: &Model, attention: &str| {
        let attention: AttentionPlan = attention.parse().unwrap();
        let options = Options { attention: Some(attention), economies: Economies::default(), ..Options::default() };
        let message = Engine::compile(model, &options).err().expect("refused").to_string();
        assert!(!message.contains('\n'));
        message
    };
    let mobile = Model::load(&fixture("mobilebert-classify")).unwrap();
    assert!(refuse(&mobile, "mca:0.4").contains("bottleneck"));
    assert!(Calibrator::new(&mobile, 1).err().unwrap().to_string().contains("bottleneck"));
    let bert = Model::load(&fixture("bert-classify")).unwrap();
    assert!(refuse(&bert, "graded:0.4").contains("sparing calibrate"));
    assert!(refuse(&bert, "mca:0.4,layer99=0.2").contains("no layer 99"));
    assert!(Calibrator::new(&bert, 1).unwrap().finish().is_err(), "nothing was seen");
}

#[test]
fn calibrations_come_back_from_files_and_fit_one_model_only() {
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let golden = Golden::read(&fixture("bert-classify"));
    let calibration = calibrate(&model, &golden.sequences);
    let bytes = calibration.to_bytes().unwrap();
    assert_eq!(Calibration::from_bytes(&bytes, "a file", &model).unwrap(), *calibration);
    let refuse = |bytes: &[u8], model: &Model| {
        let message = Calibration::from_bytes(bytes, "a file", model).unwrap_err().to_string();
        assert!(message.starts_with("a file: ") && !message.contains('\n'), "{message}");
        message
    };
    let other = Model::load(&fixture("bert-regress")).unwrap();
    assert!(refuse(&bytes, &other).contains("other weights"));
    let wider = Model::load(&fixture("bert-hidden-wide")).unwrap();
    let message = refuse(&bytes, &wider);
    assert!(message.contains("another model") || message.contains("other weights"), "{message}");
    assert!(refuse(b"", &model).contains("not a calibration"));
    assert!(refuse(&bytes[..bytes.len() / 2], &model).contains("not a calibration"));
    let weights = std::fs::read(fixture("bert-classify").join("model.safetensors")).unwrap();
    assert!(refuse(&weights, &model).contains("not a calibration"));
    let mut broken = bytes.clone();
    let end = broken.len();
    broken[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(refuse(&broken, &model).contains("not finite"));
    // Every byte of the header may be anything.
    for at in (0..bytes.len().min(600)).step_by(7) {
        let mut broken = bytes.clone();
        broken[at] ^= 0x15;
        let _ = Calibration::from_bytes(&broken, "a file", &model);
    }
}

#[test]
fn examined_layers_are_exact_and_the_paper_keeps_its_promise() {
    for (name, model, golden, calibration) in able() {
        let all = batch(&golden.sequences, Wanted::Hidden);
        let economies = Economies { once: false, ..Economies::default() };
        let options = |attention: &str| Options {
            threads: 2,
            attention: Some(attention.parse().unwrap()),
            calibration: Some(calibration.clone()),
            economies,
            ..Options::default()
        };
        let exact = Engine::compile(&model, &options("exact")).unwrap();
        assert!(exact.examine(&all, &RunOptions::default()).unwrap_err().to_string().contains("exact"));
        let want = exact.run(&all).unwrap();
        let none = Engine::compile(&model, &options("mca:1e-30,strict")).unwrap();
        let (outputs, layers) = none.examine(&all, &RunOptions::default()).unwrap();
        assert_eq!(outputs, want, "{name}");
        assert_eq!(layers.len(), model.architecture.layers.len());
        assert!(layers.iter().all(|layer| layer.relative_error == 0.0), "{name}: {layers:?}");
        let engine = Engine::compile(&model, &options("mca:0.5,strict")).unwrap();
        let (mut error, mut bound) = (0.0, 0.0);
        for seed in 0..20 {
            let (outputs, layers) = engine.examine(&all, &RunOptions { seed: Some(seed), exact: false }).unwrap();
            assert_eq!(outputs, want, "{name}");
            for layer in layers {
                // Windows and masks make some of A zero, which only makes the error smaller.
                (error, bound) = (error + layer.error, bound + layer.bound);
                assert_eq!(layer.spent.len(), golden.sequences.len());
                assert!(layer.spent.iter().flatten().all(|share| (0.0..=1.0 + 1e-6).contains(share)), "{name}");
            }
        }
        assert!(error > 0.0 && error <= bound, "{name}: {error} above {bound}");
    }
}
