//! Error of A·H by sampler and alpha on real texts, every layer from the exact model's inputs, beside what was spent.
//!
//! `cargo run --release -p sparing-engine --example values -- MODEL CALIBRATION TEXTS [seeds]`; TEXTS has one text per line (of
//! a .tsv the first column, without its heading).

use sparing_engine::{Economies, Engine, Options, RunOptions};
use sparing_model::{AttentionPlan, Batch, Calibration, Error, Model, Sequence, Wanted};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let [_, model, calibration, texts, rest @ ..] = &args[..] else {
        return Err(Error::new("usage: values MODEL CALIBRATION TEXTS [seeds]"));
    };
    let seeds: u64 = rest.first().and_then(|s| s.parse().ok()).unwrap_or(4);
    let model = Model::load(Path::new(model))?;
    let calibration = Arc::new(Calibration::read(Path::new(calibration), &model)?);
    let content = std::fs::read_to_string(texts).map_err(|e| Error::new(format!("{texts}: {e}")))?;
    let skip = usize::from(texts.ends_with(".tsv"));
    let lines = content.lines().skip(skip).map(|line| line.split('\t').next().unwrap_or("")).take(200);
    let tokenizer = model.tokenizer()?;
    let sequences = lines.map(|text| Ok(tokenizer.encode(text, None, None)?.sequence));
    let sequences = sequences.collect::<Result<Vec<Sequence>, Error>>()?;
    let batch = Batch { sequences, wanted: Wanted::Hidden };
    println!("{:<12} {:>6} {:>10} {:>10} {:>10} {:>10}", "sampler", "alpha", "fewer", "relative", "error", "bound");
    for alpha in [0.2, 0.4, 1.0] {
        for sampler in ["mca", "calibrated", "systematic", "graded", "mean", "int8"] {
            let attention: AttentionPlan = format!("{sampler}:{alpha},strict").parse()?;
            let options = Options {
                attention: Some(attention),
                calibration: Some(calibration.clone()),
                economies: Economies::none(),
                ..Options::default()
            };
            let engine = Engine::compile(&model, &options)?;
            let random = matches!(sampler, "mca" | "calibrated" | "systematic");
            let (mut relative, mut error, mut bound, mut spent, mut n) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for seed in 0..if random { seeds } else { 1 } {
                let (_, layers) = engine.examine(&batch, &RunOptions { seed: Some(seed), exact: false })?;
                for layer in layers {
                    relative += layer.relative_error;
                    error += layer.error;
                    bound += layer.bound;
                    let shares = layer.spent.iter().flatten();
                    spent += shares.clone().map(|s| *s as f64).sum::<f64>() / shares.count() as f64;
                    n += 1.0;
                }
            }
            println!(
                "{sampler:<12} {alpha:>6} {:>9.2}x {:>10.3} {:>10.3} {:>10.3}",
                n / spent,
                relative / n,
                error / n,
                bound / n
            );
        }
    }
    Ok(())
}
