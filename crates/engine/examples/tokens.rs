//! Accuracy and time of plans on labelled texts, one thread, every batch timed beside the exact model.
//!
//! `cargo run --release -p sparing-engine --example tokens -- MODEL TEXTS.tsv f32|bf16|int8 ROUNDS PLAN..`; TEXTS has a heading, a text
//! and a label per line. Every batch runs ROUNDS times, with the
//! exact model and the plan in turn; seconds are sums of the best. "agrees" is with the exact model's answers, "moved" by how
//! much outputs differ on average.
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
    println!(
        "{:<44} {:>8} {:>7} {:>8} {:>9} {:>9} {:>8}",
        "plan", "accuracy", "agrees", "moved", "seconds", "faster", "FLOPs"
    );
    let exact = engine("exact")?;
    for plan in std::iter::once("exact").chain(plans.iter().map(String::as_str)) {
        let engine = engine(plan)?;
        let (mut seconds, mut right, mut same, mut moved) = ([0.0; 2], 0, 0, 0.0);
        for (batch, labels) in &batches {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..rounds {
                for (engine, best) in [&exact, &engine].into_iter().zip(&mut best) {
                    let began = Instant::now();
                    engine.run(batch)?;
                    *best = best.min(began.elapsed().as_secs_f64());
                }
            }
            seconds.iter_mut().zip(best).for_each(|(all, best)| *all += best);
            let (want, got) = (exact.run(batch)?, engine.run(batch)?);
            for ((want, got), label) in want.sequences.iter().zip(&got.sequences).zip(labels) {
                right += usize::from(top(got) == *label);
                same += usize::from(top(got) == top(want));
                moved += want.iter().zip(got).map(|(a, b)| (a - b).abs() as f64).sum::<f64>() / want.len() as f64;
            }
        }
        let all = examples.len() as f64;
        println!(
            "{plan:<44} {:>8.2} {:>7.2} {:>8.4} {:>9.3} {:>8.2}x {:>7.2}x",
            100.0 * right as f64 / all,
            100.0 * same as f64 / all,
            moved / all,
            seconds[1],
            seconds[0] / seconds[1],
            engine.spending().model_ratio()
        );
    }
    Ok(())
}

/// The answer.
fn top(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap_or(0)
}
