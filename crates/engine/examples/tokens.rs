//! Accuracy and time of plans on labelled texts, one thread, runs interleaved.
//!
//! `cargo run --release -p sparing-engine --example tokens -- MODEL TEXTS.tsv f32|bf16|int8 ROUNDS PLAN..`; TEXTS has a heading, a text
//! and a label per line. Every plan is timed beside the exact model in every round; the ratio is that of the best rounds.
//! `LIMIT=N` takes the first N texts, `TOKENS=N` joins them to sequences of N tokens (accuracy then means nothing).

use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Error, Executor, Model, Precision, Sequence, Wanted};
use std::path::Path;
use std::time::Instant;

/// Texts one after the other, cut to sequences of this many tokens; for time, their labels mean nothing.
fn joined(examples: &[(Sequence, usize)], length: usize) -> Vec<(Sequence, usize)> {
    let ends = |sequence: &Sequence| (sequence.ids[0], sequence.ids[sequence.ids.len() - 1]);
    let words = examples.iter().flat_map(|(s, _)| s.ids[1..s.ids.len() - 1].iter().copied());
    let words: Vec<u32> = words.collect();
    let (first, last) = ends(&examples[0].0);
    let make = |part: &[u32]| Sequence { ids: [&[first], part, &[last]].concat(), types: vec![] };
    words.chunks_exact(length - 2).map(|part| (make(part), 0)).collect()
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let [_, model, texts, precision, rounds, plans @ ..] = &args[..] else {
        return Err(Error::new("usage: tokens MODEL TEXTS.tsv f32|bf16|int8 ROUNDS PLAN.."));
    };
    let precision = match precision.as_str() {
        "bf16" => Precision::Bf16,
        "int8" => Precision::Int8,
        _ => Precision::F32,
    };
    let rounds: usize = rounds.parse().map_err(|_| Error::new("ROUNDS is a number"))?;
    let model = Model::load(Path::new(model))?;
    let tokenizer = model.tokenizer()?;
    let content = std::fs::read_to_string(texts).map_err(|e| Error::new(format!("{texts}: {e}")))?;
    let limit = std::env::var("LIMIT").ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
    let mut examples = Vec::new();
    for line in content.lines().skip(1).take(limit) {
        let Some((text, label)) = line.split_once('\t') else { continue };
        let sequence = tokenizer.encode(text, None, None)?.sequence;
        examples.push((sequence, label.trim().parse::<usize>().map_err(|_| Error::new("labels are numbers"))?));
    }
    if let Some(length) = std::env::var("TOKENS").ok().and_then(|n| n.parse().ok()) {
        examples = joined(&examples, length);
    }
    examples.sort_by_key(|(sequence, _)| sequence.ids.len());
    let batches: Vec<(Batch, Vec<usize>)> = examples
        .chunks(64)
        .map(|chunk| {
            let sequences: Vec<Sequence> = chunk.iter().map(|(s, _)| s.clone()).collect();
            (Batch { sequences, wanted: Wanted::Head }, chunk.iter().map(|(_, l)| *l).collect())
        })
        .collect();
    let engine = |plan: &str| {
        let attention = Some(plan.parse()?);
        Engine::compile(&model, &Options { threads: 1, precision: Some(precision), attention, ..Options::default() })
    };
    let plans = std::iter::once("exact").chain(plans.iter().map(String::as_str));
    let engines = plans.map(|plan| Ok((plan, engine(plan)?))).collect::<Result<Vec<_>, Error>>()?;
    let mut best = vec![f64::INFINITY; engines.len()];
    let mut right = vec![0; engines.len()];
    let mut answers: Vec<Vec<Vec<f32>>> = vec![Vec::new(); engines.len()];
    for round in 0..rounds {
        for (number, (_, engine)) in engines.iter().enumerate() {
            let began = Instant::now();
            let mut hits = 0;
            for (batch, labels) in &batches {
                let outputs = engine.run(batch)?;
                if round == 0 {
                    answers[number].extend(outputs.sequences.iter().cloned());
                }
                for (logits, label) in outputs.sequences.iter().zip(labels) {
                    let top = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                    hits += usize::from(top == Some(*label));
                }
            }
            best[number] = best[number].min(began.elapsed().as_secs_f64());
            assert!(round == 0 || hits == right[number], "the same in every round");
            right[number] = hits;
        }
    }
    println!(
        "{:<44} {:>8} {:>7} {:>8} {:>9} {:>9} {:>8}",
        "plan", "accuracy", "agrees", "moved", "seconds", "faster", "FLOPs"
    );
    let top = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    for (number, (plan, engine)) in engines.iter().enumerate() {
        let pairs = answers[number].iter().zip(&answers[0]);
        let same = pairs.clone().filter(|(a, b)| top(a) == top(b)).count() as f64 / examples.len() as f64;
        let moved: f64 = pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs() as f64).sum::<f64>()).sum();
        println!(
            "{plan:<44} {:>8.2} {:>7.2} {:>8.4} {:>9.3} {:>8.2}x {:>7.2}x",
            100.0 * right[number] as f64 / examples.len() as f64,
            100.0 * same,
            moved / examples.len() as f64,
            best[number],
            best[0] / best[number],
            engine.spending().model_ratio()
        );
    }
    Ok(())
}
