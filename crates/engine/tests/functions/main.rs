//! Networks in softmax's place, ReLU, PowerNorm and clipping: what runs is what the paper writes, and nothing in it is more
//! than a sum, a product or a comparison.

#[path = "../common/mod.rs"]
mod common;
mod reference;

use common::{Golden, distance, fixture};
use sparing_engine::{Economies, Engine, Function, Options, StepInfo, StepKind};
use sparing_model::{
    Activation, Activations, Batch, Executor, Functions, HeadKind, HeadRows, LoadOptions, Model, NormKind, Precision,
    Quantization, Relu, Sequence, SoftmaxNetwork, Wanted,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Numbers between -1 and 1, by SplitMix64.
fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// A fixture with functions replaced and fresh numbers for what is new.
fn replaced(name: &str, functions: &Functions, seed: u64) -> Model {
    let mut seed = seed;
    let model = Model::load(&fixture(name)).unwrap();
    let fill = &mut |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let phi = name.ends_with("running_phi");
        (0..count).map(|_| if phi { 0.3 + random(&mut seed).abs() } else { random(&mut seed) * 0.1 }).collect()
    };
    model.with_functions(functions, fill).unwrap()
}

fn all(tokens: usize, shared: bool, keys: Option<usize>) -> Functions {
    Functions::all(SoftmaxNetwork { tokens, shared, keys })
}

fn engine(model: &Model, precision: Precision, economies: Economies) -> Engine {
    Engine::compile(model, &Options { threads: 2, precision: Some(precision), economies, ..Options::default() })
        .unwrap()
}

fn run(engine: &Engine, sequences: &[Sequence], wanted: Wanted) -> Vec<Vec<f32>> {
    engine.run(&Batch { sequences: sequences.to_vec(), wanted }).unwrap().sequences
}

/// Texts of one token, of a few and of as many as fit.
fn texts(name: &str, tokens: usize) -> Vec<Sequence> {
    let golden = Golden::read(&fixture(name)).sequences;
    let ids: Vec<u32> = golden.iter().flat_map(|s| s.ids.clone()).cycle().take(tokens).collect();
    let sequence = |n: usize| Sequence { ids: ids[..n].to_vec(), types: vec![] };
    [1, 2, 3, 7, tokens - 1, tokens].map(sequence).to_vec()
}

const FIXTURES: [&str; 6] = [
    "bert-classify",
    "distilbert-classify",
    "albert-classify",
    "roberta-classify",
    "electra-classify",
    "mobilebert-classify",
];

#[test]
fn everything_is_what_the_paper_writes() {
    for (number, name) in FIXTURES.into_iter().enumerate() {
        let longest = Model::load(&fixture(name)).unwrap().architecture.longest_input().unwrap();
        let tokens = longest.min(20);
        for (shared, keys) in [(false, None), (true, None), (false, Some(6)), (true, Some(1))] {
            let model = replaced(name, &all(tokens, shared, keys), number as u64);
            let texts = texts(name, tokens);
            let want: Vec<reference::Rows> = texts.iter().map(|text| reference::hidden(&model, text)).collect();
            let flat = |rows: &reference::Rows| rows.iter().flatten().map(|x| *x as f32).collect::<Vec<f32>>();
            let hidden: Vec<Vec<f32>> = want.iter().map(flat).collect();
            let heads: Vec<Vec<f32>> =
                want.iter().map(|rows| reference::head(&model, rows).iter().map(|x| *x as f32).collect()).collect();
            for (precision, most) in [(Precision::F32, 1e-5), (Precision::Bf16, 6e-2), (Precision::Int8, 0.25)] {
                for economies in [Economies::default(), Economies::none()] {
                    let engine = engine(&model, precision, economies);
                    let far = distance(&run(&engine, &texts, Wanted::Hidden), &hidden);
                    assert!(far <= most, "{name} {shared} {keys:?} {precision:?} {economies:?}: hidden {far:e}");
                    // What the head clips depends on signs, which rounding may turn.
                    let far = distance(&run(&engine, &texts, Wanted::Head), &heads);
                    assert!(
                        far <= most || precision != Precision::F32,
                        "{name} {shared} {keys:?} {precision:?} {economies:?}: head {far:e}"
                    );
                }
            }
        }
    }
}

/// The same at the size that people run: the built-in model, six layers of 384 channels and networks of 128 tokens. Norms divide
/// by the size of what they are given, as layer norms did, by another number in every channel; networks are random around an
/// equal share of every token.
#[test]
fn a_whole_model_is_what_the_paper_writes() {
    let tokens = 128;
    let published = sparing_builtin::model(&LoadOptions::default()).unwrap();
    let phis = RefCell::new(BTreeMap::<String, Vec<f64>>::new());
    let made = |phis: &BTreeMap<String, Vec<f64>>| {
        let mut seed = 7;
        let fill = &mut |name: &str, shape: &[usize]| -> Vec<f32> {
            let count = shape.iter().product();
            match phis.get(name) {
                Some(phi) => phi.iter().map(|phi| *phi as f32).collect(),
                None if name.ends_with("running_phi") => vec![1.0; count],
                None if name.ends_with("output.bias") => vec![1.0 / 32.0; count],
                None => (0..count).map(|_| random(&mut seed) * 0.02).collect(),
            }
        };
        published.with_functions(&all(tokens, false, None), fill).unwrap()
    };
    // Long enough for keys and values to be mixed, and short enough for the published way.
    let text = |n: usize| Sequence { ids: (0..n as u32).map(|i| 1000 + i * 7919 % 20000).collect(), types: vec![] };
    let texts = [text(64), text(9), text(1)];
    let unfit = made(&phis.borrow());
    reference::hidden_with(&unfit, &texts[0], &|name, rows| {
        let width = rows[0].len();
        let square = rows.iter().flatten().map(|x| x * x).sum::<f64>() / (rows.len() * width) as f64;
        let phi = (0..width).map(|channel| square * (0.75 + (channel * 37 % 64) as f64 / 128.0));
        phis.borrow_mut().entry(name.to_string()).or_insert(phi.collect()).clone()
    });
    let model = made(&phis.borrow());
    let want: Vec<reference::Rows> = texts.iter().map(|text| reference::hidden(&model, text)).collect();
    let small = |numbers: Vec<f64>| numbers.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    let heads: Vec<Vec<f32>> = want.iter().map(|rows| small(reference::head(&model, rows))).collect();
    let hidden: Vec<Vec<f32>> = want.into_iter().map(|rows| small(rows.concat())).collect();
    for economies in [Economies::default(), Economies::none()] {
        let engine = engine(&model, Precision::F32, economies);
        for (wanted, right) in [(Wanted::Hidden, &hidden), (Wanted::Head, &heads)] {
            let far = distance(&run(&engine, &texts, wanted.clone()), right);
            assert!(far <= 1e-5, "{economies:?} {wanted:?}: {far:e}");
        }
    }
}

#[test]
fn each_replacement_stands_on_its_own() {
    let softmax = Some(SoftmaxNetwork { tokens: 16, shared: false, keys: None });
    let kinds = [
        Functions { softmax, ..Functions::default() },
        Functions { relu: Some(Relu::In(vec![1])), ..Functions::default() },
        Functions { power_norm: true, ..Functions::default() },
        Functions { clip: true, ..Functions::default() },
    ];
    let golden = Golden::read(&fixture("bert-classify"));
    let mut answers = Vec::new();
    for functions in &kinds {
        let model = replaced("bert-classify", functions, 3);
        let [folded, plain] = [Economies::default(), Economies::none()]
            .map(|economies| run(&engine(&model, Precision::F32, economies), &golden.sequences, Wanted::Head));
        let far = distance(&folded, &plain);
        assert!(far <= 1e-5, "{functions:?}: {far:e}");
        assert!(distance(&folded, &golden.outputs) > 1e-4, "{functions:?} changes nothing");
        answers.push(folded);
    }
    assert!(answers.windows(2).all(|pair| pair[0] != pair[1]));
}

/// Families that cannot have a network in softmax's place have all else.
#[test]
fn where_softmax_stays_the_others_are_replaced() {
    let functions = Functions { relu: Some(Relu::ALL), power_norm: true, clip: true, softmax: None };
    for name in ["mpnet-classify", "xlnet-classify", "longformer-classify", "gpt2-classify"] {
        let model = replaced(name, &functions, 5);
        let golden = Golden::read(&fixture(name));
        let [folded, plain] = [Economies::default(), Economies::none()]
            .map(|economies| run(&engine(&model, Precision::F32, economies), &golden.sequences, Wanted::Head));
        let far = distance(&folded, &plain);
        assert!(far <= 1e-5, "{name}: {far:e}");
        assert!(distance(&folded, &golden.outputs) > 1e-4, "{name}: nothing has changed");
    }
}

#[test]
fn nothing_but_sums_products_and_comparisons_runs() {
    for name in FIXTURES {
        for keys in [None, Some(5)] {
            let mut model = replaced(name, &all(16, false, keys), 1);
            for precision in [Precision::F32, Precision::Bf16] {
                for step in engine(&model, precision, Economies::default()).steps() {
                    assert_eq!(step.functions, [], "{name} {precision:?}: {} computes more", step.name);
                }
            }
            // Integers: ranges that are known beforehand leave no division.
            let exact = engine(&model, Precision::F32, Economies::none());
            let mut ranges = std::collections::BTreeMap::new();
            let batch = Batch { sequences: texts(name, 16), wanted: Wanted::Hidden };
            exact
                .observe(&batch, &mut |seen| {
                    let range: &mut [f32; 2] = ranges.entry(seen.weight.to_string()).or_insert([0.0, 0.0]);
                    *range = seen.rows.iter().fold(*range, |[least, most], x| [least.min(*x), most.max(*x)]);
                })
                .unwrap();
            let computed = |model: &Model| {
                let engine = engine(model, Precision::Int8, Economies::default());
                let each = |step: StepInfo| step.functions.iter().map(move |f| (step.name.clone(), *f));
                engine.steps().flat_map(each).collect::<Vec<_>>()
            };
            let found = computed(&model);
            assert!(!found.is_empty(), "{name}: a range of every token's own divides");
            assert!(found.iter().all(|(_, f)| *f == Function::Division), "{name}: {found:?}");
            let activations = Activations { ranges, ..Activations::default() };
            model.plan.quantization = Some(Quantization { activations, ..Quantization::default() });
            assert_eq!(computed(&model), [], "{name}: no range is left to find, and nothing else to compute");
            let products = [StepKind::Linear, StepKind::Attention];
            for step in engine(&model, Precision::Int8, Economies::default()).steps() {
                if step.layer.is_some() && products.contains(&step.kind) {
                    assert!(step.bytes, "{name}: {} multiplies no bytes", step.name);
                }
            }
            let far = distance(
                &run(&engine(&model, Precision::Int8, Economies::default()), &batch.sequences, Wanted::Hidden),
                &run(&exact, &batch.sequences, Wanted::Hidden),
            );
            // Layers that share weights share a range, which is too wide for some of them.
            assert!(far <= 0.25 || name.starts_with("albert"), "{name} {keys:?}: {far:e}");
        }
    }
    // The published model has them all.
    let model = Model::load(&fixture("bert-classify")).unwrap();
    let found: Vec<Function> =
        engine(&model, Precision::F32, Economies::default()).steps().flat_map(|step| step.functions.to_vec()).collect();
    use Function::*;
    assert!([Exponential, ErrorFunction, SquareRoot, Division].iter().all(|f| found.contains(f)), "{found:?}");
}

/// A step's name and what it computes beside sums, products and comparisons.
type Computed = (String, Function);

/// What the programs for the head, for chosen rows and for hidden states compute, by step.
fn computed(model: &Model, precision: Precision) -> [Vec<Computed>; 3] {
    let engine = engine(model, precision, Economies::default());
    let each = |step: StepInfo| step.functions.iter().map(move |f| (step.name.clone(), *f));
    [Wanted::Head, Wanted::Rows(vec![]), Wanted::Hidden]
        .map(|wanted| engine.steps_for(&wanted).flat_map(each).collect())
}

/// What a head keeps of its own, as docs/methods/ma-bert.md says: one that fills masks is as published, a mean of tokens
/// divides by their number, unit length takes a root. All else is sums, products and comparisons.
fn kept_by_the_head(model: &Model) -> Vec<Function> {
    use Function::*;
    let head = &model.architecture.head;
    let activation = |activation: Activation| match activation {
        Activation::Gelu => vec![ErrorFunction, Division],
        Activation::Identity | Activation::Relu | Activation::Clip => vec![],
        _ => vec![Exponential, Division],
    };
    let mut kept = Vec::new();
    if head.kind == HeadKind::MaskedLm {
        for stage in &head.stages {
            kept.extend(activation(stage.activation));
            kept.extend(stage.norm.iter().filter(|n| n.kind == NormKind::Layer).flat_map(|_| [SquareRoot, Division]));
        }
    }
    kept.extend((head.rows == HeadRows::Mean).then_some(Division));
    if head.kind == (HeadKind::Embed { normalise: true }) {
        kept.extend([SquareRoot, Division]);
    }
    kept
}

/// Every fixture that can have a network in softmax's place, whatever its head: labels, numbers, labels of tokens, answers,
/// masked words, hidden states and vectors of texts; in floats, and in integers with calibrated ranges.
#[test]
fn of_every_head_only_what_the_documents_name_is_left() {
    let others = ["gpt2", "longformer", "mpnet", "xlnet"];
    let mut kinds = Vec::new();
    for (name, _) in common::fixtures() {
        if others.iter().any(|family| name.starts_with(family)) {
            continue;
        }
        let mut model = replaced(&name, &all(16, false, None), 1);
        let kept = kept_by_the_head(&model);
        let check = |model: &Model, precision: Precision, how: &str| {
            let [head, rows, hidden] = computed(model, precision);
            assert_eq!(hidden, [], "{name} {precision:?} {how}: hidden states");
            for steps in [head, rows] {
                let found: Vec<Function> = steps.iter().map(|(_, f)| *f).collect();
                assert_eq!(found, kept, "{name} {precision:?} {how}: {steps:?}");
            }
        };
        check(&model, Precision::F32, "");
        check(&model, Precision::Bf16, "");
        // As `sparing quantize --activations static` does it: what every map reads, the head's included, by running the model.
        let mut ranges = BTreeMap::new();
        let batch = Batch { sequences: texts(&name, 16), wanted: Wanted::Head };
        engine(&model, Precision::F32, Economies::none())
            .observe(&batch, &mut |seen| {
                let range: &mut [f32; 2] = ranges.entry(seen.weight.to_string()).or_insert([0.0, 0.0]);
                *range = seen.rows.iter().fold(*range, |[least, most], x| [least.min(*x), most.max(*x)]);
            })
            .unwrap();
        let [_, _, dynamic] = computed(&model, Precision::Int8);
        assert!(dynamic.iter().any(|(_, f)| *f == Function::Division), "{name}: a range of every token's own divides");
        let activations = Activations { ranges, ..Activations::default() };
        model.plan.quantization = Some(Quantization { activations, ..Quantization::default() });
        check(&model, Precision::Int8, "calibrated");
        kinds.push(model.architecture.head.kind);
    }
    use HeadKind::*;
    let embed = [true, false].map(|normalise| Embed { normalise });
    let wanted = [&[Classify, MultiLabel, Regress, TokenClassify, Answer, MaskedLm, Hidden], &embed[..]].concat();
    // With FIXTURE set not all are there.
    let all_there = wanted.iter().all(|kind| kinds.contains(kind));
    assert!(all_there || std::env::var_os("FIXTURE").is_some(), "{kinds:?}");
}

#[test]
fn a_layer_has_no_norm_left_and_one_step_per_map() {
    let model = replaced("bert-classify", &all(16, false, None), 1);
    let steps: Vec<_> = engine(&model, Precision::F32, Economies::default()).steps().collect();
    let of_layer: Vec<&str> = steps.iter().filter(|s| s.layer == Some(0)).map(|s| s.name.as_str()).collect();
    assert_eq!(
        of_layer,
        ["layer 0 qkv", "layer 0 attention", "layer 0 attention output", "layer 0 ffn up", "layer 0 ffn down"]
    );
}

/// What is replaced by what was there before is named; elsewhere nothing is.
#[test]
fn what_changes_nothing_is_told() {
    let softmax = Some(SoftmaxNetwork { tokens: 16, shared: false, keys: None });
    for (name, softmax, idle) in [
        ("bert-classify", softmax, &[][..]),
        // No tanh where there is no pooler, none either where words are filled in.
        ("bert-token", softmax, &["clip"]),
        ("bert-mlm", softmax, &["clip"]),
        ("gpt2-classify", None, &["clip"]),
        ("mobilebert-classify", softmax, &["relu", "norm"]),
        ("mobilebert-hidden", softmax, &["relu", "norm", "clip"]),
        ("mobilebert-hidden-plain", softmax, &["clip"]),
    ] {
        let functions = Functions { softmax, relu: Some(Relu::ALL), power_norm: true, clip: true };
        let model = Model::load(&fixture(name)).unwrap();
        let told = functions.idle(&model.architecture).unwrap();
        let first: Vec<&str> = told.iter().map(|why| why.split(' ').next().unwrap()).collect();
        assert_eq!(first, idle, "{name}");
        // The same is said of the model that was made so, when the published one has to be looked up.
        assert_eq!(replaced(name, &functions, 1).idle_functions().unwrap(), told, "{name}");
        assert_eq!(model.idle_functions().unwrap(), [""; 0], "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let refused = |name: &str, functions: &Functions| {
        let model = Model::load(&fixture(name)).unwrap();
        let fill = &mut |_: &str, shape: &[usize]| vec![0.0; shape.iter().product()];
        let message = model.with_functions(functions, fill).err().expect("refused").to_string();
        assert!(!message.contains('\n'));
        message
    };
    let softmax = |tokens: usize, keys: Option<usize>| all(tokens, false, keys);
    assert!(refused("bert-classify", &softmax(0, None)).contains("0 tokens"));
    assert!(refused("bert-classify", &softmax(16, Some(17))).contains("17 keys"));
    assert!(refused("bert-classify", &softmax(8000, None)).contains("the model takes"));
    assert!(refused("gpt2-classify", &softmax(16, None)).contains("earlier tokens only"));
    assert!(refused("mpnet-classify", &softmax(16, None)).contains("positions in its scores"));
    assert!(refused("longformer-classify", &softmax(16, None)).contains("window"));
    let relu = Functions { relu: Some(Relu::In(vec![99])), ..Functions::default() };
    assert!(refused("bert-classify", &relu).contains("no layer 99"));
    // Longer than the network, and economies that need softmax.
    let model = replaced("bert-classify", &softmax(8, None), 1);
    let engine = engine(&model, Precision::F32, Economies::default());
    let batch = Batch { sequences: texts("bert-classify", 9), wanted: Wanted::Head };
    let message = engine.run(&batch).expect_err("refused").to_string();
    assert!(message.contains('8') && !message.contains('\n'), "{message}");
    let options = Options { attention: Some("mca:0.4".parse().unwrap()), ..Options::default() };
    let message = Engine::compile(&model, &options).err().expect("refused").to_string();
    assert!(message.contains("network in its place"), "{message}");
}

/// A mean of squares that is none is refused, with the tensor's name.
#[test]
fn phi_that_nothing_can_be_divided_by_is_refused() {
    for value in [0.0, -1.0, f32::INFINITY, f32::NAN] {
        let mut model = replaced("bert-classify", &all(12, false, None), 3);
        let name = "bert.encoder.layer.0.output.LayerNorm.running_phi";
        let mut phi = model.weights.vector(name, model.architecture.hidden).unwrap();
        phi[5] = value;
        let tensor = sparing_model::OwnedTensor::f32(name, &[phi.len()], &phi);
        model.weights = model.weights.replace(vec![tensor]).unwrap();
        let message = Engine::compile(&model, &Options::default()).err().expect("refused").to_string();
        let said = format!("tensor \"{name}\" holds {value} for channel 5");
        assert!(message.starts_with(&said) && message.contains("finite and positive"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}
