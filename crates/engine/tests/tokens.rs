//! Economised tokens: exact where nothing is saved, as a slow reference says, the same in any company, refused where they
//! cannot be.

mod common;

use common::{Golden, fixture, fixtures};
use sparing_engine::{Engine, Options, RunOptions};
use sparing_model::{Batch, Executor, Model, NormKind, Precision, Sequence, Wanted};
use sparing_model::{Layer, Linear, Norm};

fn engine(model: &Model, attention: &str, threads: usize, precision: Precision) -> Engine {
    let (attention, precision) = (Some(attention.parse().unwrap()), Some(precision));
    Engine::compile(model, &Options { threads, precision, attention, ..Options::default() }).unwrap()
}

fn batch(sequences: &[Sequence], wanted: Wanted) -> Batch {
    Batch { sequences: sequences.to_vec(), wanted }
}

fn able(name: &str) -> bool {
    ["bert-", "distilbert-", "roberta-", "electra-", "albert-"].iter().any(|family| name.starts_with(family))
}

/// A fixture with its layers twice, so that more of them choose.
fn deeper(name: &str) -> (Model, Golden) {
    let mut model = Model::load(&fixture(name)).unwrap();
    let layers = model.architecture.layers.clone();
    model.architecture.layers.extend(layers);
    (model, Golden::read(&fixture(name)))
}

#[test]
fn a_cut_that_nothing_is_below_is_the_exact_model_to_the_bit() {
    for (name, directory) in fixtures().into_iter().filter(|(name, _)| able(name)) {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let exact = engine(&model, "exact", 2, precision);
            for plan in ["exact,drop=0", "exact,skip=0", "exact,drop=1e-30", "exact,skip=1e-30", "mca:1e-30,skip=1e-30"]
            {
                let attention = plan.parse::<sparing_model::AttentionPlan>().unwrap();
                if attention.check_for(&model.architecture).is_err() {
                    assert!(plan.contains("drop"), "{name} {plan}");
                    continue;
                }
                let economised = engine(&model, plan, 2, precision);
                let drops = attention.tokens.as_ref().unwrap().drops();
                for wanted in [Wanted::Head, Wanted::Hidden].into_iter().filter(|w| !drops || *w == Wanted::Head) {
                    let batch = batch(&golden.sequences, wanted);
                    assert_eq!(
                        economised.run(&batch).unwrap(),
                        exact.run(&batch).unwrap(),
                        "{name} {precision:?} {plan}"
                    );
                }
                assert_eq!(economised.spending().skipped, 0, "{name} {precision:?} {plan}");
            }
        }
    }
}

#[test]
fn dropping_and_skipping_are_what_a_slow_reference_does() {
    for name in ["bert-classify", "electra-classify", "roberta-classify", "bert-hidden-odd"] {
        let (model, golden) = deeper(name);
        for (drop, skip) in [(0.9, 0.0), (0.0, 1.0), (0.8, 1.1)] {
            let plan = format!("exact,drop={drop},skip={skip}");
            if plan.parse::<sparing_model::AttentionPlan>().unwrap().check_for(&model.architecture).is_err() {
                continue;
            }
            let economised = engine(&model, &plan, 2, Precision::F32);
            // What the head reads, by the hidden states of the first token if tokens leave.
            let wanted = if drop > 0.0 { Wanted::Head } else { Wanted::Hidden };
            let got = economised.run(&batch(&golden.sequences, wanted)).unwrap();
            let mut away = 0;
            for (sequence, got) in golden.sequences.iter().zip(&got.sequences) {
                let (mut want, left) = reference(&model, sequence, drop, skip);
                away += left;
                if drop > 0.0 {
                    want = head(&model, &want[..model.architecture.hidden]);
                }
                assert_eq!(want.len(), got.len(), "{name} {plan}");
                let off = got.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(off < 2e-4, "{name} {plan}: {off}");
            }
            assert!(away > 0, "{name} {plan}: nothing was saved, so nothing was tested");
            let spent = economised.spending();
            assert!(spent.skipped > 0 && spent.model_ratio() > 1.0, "{spent:?}");
        }
    }
}

#[test]
fn the_same_on_any_number_of_threads_and_in_any_company() {
    for name in ["bert-classify", "electra-classify", "roberta-classify", "distilbert-classify", "albert-classify"] {
        let (model, golden) = deeper(name);
        for plan in ["exact,drop=0.9", "exact,skip=1", "mca:1,strict,drop=0.8,skip=1", "exact,drop=0.9,drop0=0,skip2=1"]
        {
            for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
                let (one, two) = (engine(&model, plan, 1, precision), engine(&model, plan, 2, precision));
                let all = batch(&golden.sequences, Wanted::Head);
                let want = one.run(&all).unwrap();
                assert_eq!(two.run(&all).unwrap(), want, "{name} {plan} {precision:?}");
                assert_eq!(two.run(&all).unwrap(), want, "{name} {plan} {precision:?} again");
                assert_eq!(one.spending().skipped * 2, two.spending().skipped, "{name} {plan} {precision:?}");
                let exact = engine(&model, "exact", 1, precision).run(&all).unwrap();
                assert_eq!(two.run_as(&all, &RunOptions::exact()).unwrap(), exact, "{name} {plan} {precision:?}");
                for (sequence, want) in golden.sequences.iter().zip(&want.sequences) {
                    let alone = two.run(&batch(std::slice::from_ref(sequence), Wanted::Head)).unwrap();
                    let off = alone.sequences[0].iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                    assert!(off <= 1e-4, "{name} {plan} {precision:?} alone: {off}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let refuse = |name: &str, attention: &str, part: &str| {
        let model = Model::load(&fixture(name)).unwrap();
        let options = Options { attention: Some(attention.parse().unwrap()), ..Options::default() };
        let message = Engine::compile(&model, &options).err().expect("refused").to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{name}: {message}");
    };
    for form in ["exact,drop=0.5", "exact,skip=0.5"] {
        refuse("mobilebert-classify", form, "bottleneck");
        refuse("gpt2-causal", form, "left to right");
        refuse("longformer-classify", form, "by distance");
        refuse("mpnet-classify", form, "by distance");
        refuse("xlnet-classify", form, "by distance");
    }
    for name in ["bert-token", "bert-answer", "bert-embed-mean", "bert-mlm"] {
        refuse(name, "exact,drop=0.5", "the head reads all of them");
    }
    refuse("bert-classify", "exact,drop=0.5,drop9=1", "no layer 9");
    refuse("bert-classify", "exact,skip=0.5,skip9=1", "no layer 9");
    let (model, golden) = deeper("bert-classify");
    let engine = engine(&model, "exact,drop=0.5", 1, Precision::F32);
    let hidden = batch(&golden.sequences, Wanted::Hidden);
    assert!(engine.run(&hidden).unwrap_err().to_string().contains("tokens are dropped"));
    assert!(engine.run_as(&hidden, &RunOptions::exact()).is_ok());
    assert!(engine.examine(&hidden, &RunOptions::default()).unwrap_err().to_string().contains("only values"));
}

/// `W x + b` for every row.
fn linear(model: &Model, linear: &Linear, x: &[f32]) -> Vec<f32> {
    let weights = model.weights.matrix(linear).unwrap();
    let bias = linear.bias.as_ref().map(|bias| model.weights.bias(bias, linear.outputs).unwrap());
    let dot = |row: &[f32], w: &[f32]| row.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
    let product = |row: &[f32], i: usize| {
        dot(row, &weights[i * linear.inputs..(i + 1) * linear.inputs]) + bias.as_ref().map_or(0.0, |bias| bias[i])
    };
    x.chunks_exact(linear.inputs)
        .flat_map(|row| (0..linear.outputs).map(move |i| (row, i)))
        .map(|(row, i)| product(row, i))
        .collect()
}

fn normed(model: &Model, norm: &Norm, x: &[f32]) -> Vec<f32> {
    assert_eq!(norm.kind, NormKind::Layer);
    let (w, b) = (
        model.weights.vector(&norm.weight, norm.width).unwrap(),
        model.weights.vector(&norm.bias, norm.width).unwrap(),
    );
    let mut out = Vec::new();
    for row in x.chunks_exact(norm.width) {
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / row.len() as f32;
        out.extend((0..row.len()).map(|i| (row[i] - mean) / (variance + norm.eps).sqrt() * w[i] + b[i]));
    }
    out
}

fn activated(activation: sparing_model::Activation, x: &mut [f32]) {
    use sparing_model::Activation as A;
    for x in x {
        *x = match activation {
            A::Identity => *x,
            A::Relu => x.max(0.0),
            A::Tanh => x.tanh(),
            A::Silu => *x / (1.0 + (-*x).exp()),
            A::GeluTanh => 0.5 * *x * (1.0 + (0.797_884_6 * (*x + 0.044715 * x.powi(3))).tanh()),
            A::Gelu => 0.5 * *x * (1.0 + erf(*x as f64 / 2f64.sqrt()) as f32),
        };
    }
}

/// Its Taylor series.
fn erf(x: f64) -> f64 {
    let x = x.clamp(-4.0, 4.0);
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// The head on one row.
fn head(model: &Model, row: &[f32]) -> Vec<f32> {
    let mut x = row.to_vec();
    for stage in &model.architecture.head.stages {
        if let Some(map) = &stage.linear {
            x = linear(model, map, &x);
        }
        activated(stage.activation, &mut x);
        if let Some(norm) = &stage.norm {
            x = normed(model, norm, &x);
        }
    }
    x
}

/// Last hidden states, row after row, and how many times a token left or skipped.
fn reference(model: &Model, sequence: &Sequence, drop: f32, skip: f32) -> (Vec<f32>, usize) {
    let mut embeddings = Model::load(&fixture("bert-classify")).unwrap();
    embeddings.architecture = model.architecture.clone();
    embeddings.weights = model.weights.clone();
    embeddings.architecture.layers.clear();
    let start =
        engine(&embeddings, "exact", 1, Precision::F32).run(&batch(std::slice::from_ref(sequence), Wanted::Hidden));
    let mut x = start.unwrap().sequences.remove(0);
    let mut types = if sequence.types.is_empty() { vec![0; sequence.ids.len()] } else { sequence.types.clone() };
    let mut away = 0;
    let layers = &model.architecture.layers;
    for (number, layer) in layers.iter().enumerate() {
        let cuts = if number + 1 == layers.len() { (0.0, 0.0) } else { (drop, skip) };
        (x, types) = reference_layer(model, layer, &x, &types, cuts, &mut away);
    }
    (x, away)
}

fn reference_layer(
    model: &Model,
    layer: &Layer,
    x: &[f32],
    types: &[u32],
    (drop, skip): (f32, f32),
    away: &mut usize,
) -> (Vec<f32>, Vec<u32>) {
    let a = &layer.attention;
    let (n, d, width) = (types.len(), a.head_width, a.heads * a.head_width);
    let [q, k, v] = [&a.query, &a.key, &a.value].map(|map| linear(model, map, x));
    let mut context = vec![0f32; n * width];
    let mut measure = vec![0f32; n];
    for h in 0..a.heads {
        let part = |of: &[f32], row: usize| of[row * width + h * d..row * width + (h + 1) * d].to_vec();
        for i in 0..n {
            let scores = (0..n).map(|j| part(&q, i).iter().zip(part(&k, j)).map(|(a, b)| a * b).sum::<f32>() * a.scale);
            let scores: Vec<f32> = scores.map(f32::exp).collect();
            let sum: f32 = scores.iter().sum();
            for j in 0..n {
                let (p, value) = (scores[j] / sum, part(&v, j));
                measure[j] += p * value.iter().map(|x| x * x).sum::<f32>().sqrt();
                value.iter().enumerate().for_each(|(c, value)| context[i * width + h * d + c] += p * value);
            }
        }
    }
    let even = measure.iter().sum::<f32>() / n as f32;
    let ends = |j: usize| j == 0 || j + 1 == n || types[j] != types[j + 1];
    let below = |j: usize, cut: f32| !ends(j) && measure[j] / even < cut;
    let (mut out, mut kept) = (Vec::new(), Vec::new());
    for j in 0..n {
        if below(j, drop) {
            *away += 1;
            continue;
        }
        let mut at = linear(model, &a.output, &context[j * width..(j + 1) * width]);
        let residual = &x[j * at.len()..(j + 1) * at.len()];
        at.iter_mut().zip(residual).for_each(|(a, x)| *a += x);
        let mut at = normed(model, &layer.attention_norm, &at);
        let ffn = &layer.ffns[0];
        if below(j, skip) {
            *away += 1;
        } else {
            let mut inner = linear(model, &ffn.up, &at);
            activated(ffn.activation, &mut inner);
            let down = linear(model, &ffn.down, &inner);
            at.iter_mut().zip(down).for_each(|(a, x)| *a += x);
        }
        out.extend(normed(model, &ffn.norm, &at));
        kept.push(types[j]);
    }
    (out, kept)
}
