//! One encoder layer with its functions replaced (MA-BERT) beside the exact one, and how both grow with the text.
//!
//! `cargo run --release -p sparing-engine --example functions -- [layers] [width] [heads]`: a BERT with random numbers, one
//! thread. Candidates take turns within a round, and ratios are medians over rounds: the machine may be busy. A layer's time is
//! the whole encoder's, embeddings included, over its layers.

use sparing_engine::{Engine, Options};
use sparing_model::{
    Activations, Architecture, Batch, Error, Executor, Functions, Model, OwnedTensor, Plan, Precision, Quantization,
    Relu, Sequence, SoftmaxNetwork, Wanted, Weights,
};
use std::collections::BTreeMap;
use std::time::Instant;

const ROUNDS: usize = 15;

/// Numbers around zero.
fn numbers(count: usize, scale: f32, seed: &mut u32) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next() * scale).collect()
}

fn model(layers: usize, width: usize, heads: usize, tokens: usize) -> Result<Model, Error> {
    let config = format!(
        r#"{{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 1000, "hidden_size": {width},
        "num_attention_heads": {heads}, "num_hidden_layers": {layers}, "intermediate_size": {},
        "max_position_embeddings": {tokens}}}"#,
        4 * width
    );
    let architecture = Architecture::from_config(config.as_bytes(), None, &|_| false)?;
    let mut seed = 1;
    let mut tensors: BTreeMap<String, OwnedTensor> = BTreeMap::new();
    let mut put = |name: &str, shape: &[usize], scale: f32, shift: f32| {
        let values: Vec<f32> =
            numbers(shape.iter().product(), scale, &mut seed).into_iter().map(|x| x + shift).collect();
        tensors.insert(name.to_string(), OwnedTensor::f32(name, shape, &values));
    };
    let e = &architecture.embeddings;
    put(&e.word, &[e.vocabulary, width], 1.0, 0.0);
    for table in e.positions.iter().map(|p| (&p.name, p.rows)).chain(e.token_types.iter().map(|t| (&t.name, t.rows))) {
        put(table.0, &[table.1, width], 0.1, 0.0);
    }
    let norms = architecture.layers.iter().flat_map(|layer| layer.norms()).chain(&e.norm);
    for norm in norms {
        put(&norm.weight, &[width], 0.1, 1.0);
        put(&norm.bias, &[width], 0.1, 0.0);
    }
    for layer in &architecture.layers {
        let (a, ffn) = (&layer.attention, &layer.ffns[0]);
        for map in [&a.query, &a.key, &a.value, &a.output, &ffn.up, &ffn.down] {
            put(&map.weight.name(), &[map.outputs, map.inputs], 1.5 / (map.inputs as f32).sqrt(), 0.0);
            map.bias.iter().for_each(|bias| put(&bias.name, &[map.outputs], 0.02, 0.0));
        }
    }
    let tensors: Vec<OwnedTensor> = tensors.into_values().collect();
    Ok(Model::new(architecture, Plan::default(), Weights::from_tensors(&tensors)?))
}

fn replaced(exact: &Model, functions: &Functions) -> Result<Model, Error> {
    let mut seed = 7;
    exact.with_functions(functions, &mut |name, shape| {
        let count = shape.iter().product();
        if name.ends_with("running_phi") { vec![1.0; count] } else { numbers(count, 0.05, &mut seed) }
    })
}

/// Ranges of what linear maps read, so that int8 has nothing to find while it runs.
fn with_ranges(mut model: Model, batch: &Batch) -> Result<Model, Error> {
    let options = Options { threads: 1, economies: sparing_engine::Economies::none(), ..Options::default() };
    let mut ranges: BTreeMap<String, [f32; 2]> = BTreeMap::new();
    Engine::compile(&model, &options)?.observe(batch, &mut |seen| {
        let range = ranges.entry(seen.weight.to_string()).or_insert([0.0, 0.0]);
        *range = seen.rows.iter().fold(*range, |[least, most], x| [least.min(*x), most.max(*x)]);
    })?;
    let activations = Activations { ranges, ..Activations::default() };
    model.plan.quantization = Some(Quantization { activations, ..Quantization::default() });
    Ok(model)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Error> {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (layers, width, heads) =
        (*args.first().unwrap_or(&2), *args.get(1).unwrap_or(&768), *args.get(2).unwrap_or(&12));
    println!("BERT layers {width} wide, {heads} heads, one thread; time of a layer as a share of the exact layer's");
    println!("| tokens | precision | exact ms | relu | norms | softmax | all | all, 64 keys |");
    println!("|---|---|---|---|---|---|---|---|");
    for tokens in [32, 64, 128, 256, 512] {
        let exact = model(layers, width, heads, tokens)?;
        let softmax = SoftmaxNetwork { tokens, shared: false, keys: None };
        let kinds = [
            Functions { relu: Some(Relu::ALL), ..Functions::default() },
            Functions { power_norm: true, ..Functions::default() },
            Functions { softmax: Some(softmax), ..Functions::default() },
            Functions::all(softmax),
            Functions::all(SoftmaxNetwork { keys: Some(64.min(tokens)), ..softmax }),
        ];
        let ids = |text: u32| (0..tokens as u32).map(|i| (i * 37 + text * 11) % 1000).collect();
        let texts = (0..(512 / tokens).max(1) as u32).map(|text| Sequence { ids: ids(text), types: vec![] });
        let batch = Batch { sequences: texts.collect(), wanted: Wanted::Hidden };
        let mut models = vec![with_ranges(exact, &batch)?];
        for functions in &kinds {
            let plain = Model::new(models[0].architecture.clone(), Plan::default(), models[0].weights.clone());
            models.push(with_ranges(replaced(&plain, functions)?, &batch)?);
        }
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let options = Options { threads: 1, precision: Some(precision), ..Options::default() };
            let engines = models.iter().map(|model| Engine::compile(model, &options)).collect::<Result<Vec<_>, _>>()?;
            let mut times = vec![Vec::new(); engines.len()];
            for round in 0..=ROUNDS {
                for (engine, times) in engines.iter().zip(&mut times) {
                    let began = Instant::now();
                    engine.run(&batch)?;
                    // The first round warms up.
                    if round > 0 {
                        times.push(began.elapsed().as_secs_f64());
                    }
                }
            }
            let per_layer = 1e3 / (layers * batch.sequences.len()) as f64;
            let shares = times[1..].iter().map(|own| {
                let ratios = own.iter().zip(&times[0]).map(|(own, exact)| own / exact);
                format!("{:.2}", median(ratios.collect()))
            });
            let shares: Vec<String> = shares.collect();
            let exact = median(times[0].clone()) * per_layer;
            println!("| {tokens} | {precision:?} | {exact:.3} | {} |", shares.join(" | "));
        }
    }
    Ok(())
}
