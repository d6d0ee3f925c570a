//! Lottery tickets of tiny models.

mod common;

use burn::tensor::Device;
use common::{bare, sentiment};
use sparing_model::{Model, Weights};
use sparing_tasks::Dataset;
use sparing_train::*;
use std::collections::BTreeSet;
use std::path::Path;

fn job<'a>(model: &'a Model, data: &'a Dataset, folder: &Path, resume: bool) -> Ticket<'a> {
    Ticket {
        model,
        train: data,
        dev: data,
        options: TrainOptions {
            epochs: 10,
            batch: 8,
            schedule: Schedule { rate: 5e-3, curve: Curve::Linear, warmup: Warmup::Ratio(0.1) },
            dropout: 0.0,
            ..TrainOptions::default()
        },
        max_tokens: Some(32),
        sparsity: 0.4,
        rounds: 2,
        device: Device::flex(),
        place: Place { directory: folder.join("out"), resume, overwrite: false },
    }
}

fn zeros(weights: &Weights, names: &BTreeSet<String>) -> (usize, usize) {
    let mut count = (0, 0);
    for name in names {
        let tensor = weights.tensor(name).unwrap();
        let values = weights.vector(name, tensor.len()).unwrap();
        count.0 += values.iter().filter(|x| **x == 0.0).count();
        count.1 += values.len();
    }
    count
}

#[test]
fn a_ticket_learns_with_holes_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let model = bare("bert-classify-text");
    let summary = job(&model, &data, folder.path(), false).run(&mut |_, _| true).unwrap();
    assert!(summary.complete);
    let kinds: Vec<RoundKind> = summary.rounds.iter().map(|round| round.kind).collect();
    assert_eq!(kinds, [RoundKind::Dense, RoundKind::Ticket, RoundKind::Ticket, RoundKind::Random]);
    assert_eq!(summary.rounds.iter().map(|round| round.sparsity).collect::<Vec<_>>(), [0.0, 0.2, 0.4, 0.4]);
    assert_eq!(summary.rounds[2].saved[0].value, 1.0, "{summary:?}");
    assert!(summary.rounds.windows(2).take(2).all(|pair| pair[1].bytes < pair[0].bytes), "{summary:?}");
    let saved = Model::load(&folder.path().join("out")).unwrap();
    let names = prunable(&saved.architecture);
    assert!(names.contains("bert.pooler.dense.weight") && !names.iter().any(|name| name.contains("embeddings")));
    assert!(!names.contains("classifier.weight"));
    let (gone, all) = zeros(&saved.weights, &names);
    assert_eq!((gone, all), ((0.4 * all as f64).round() as usize, summary.prunable));
    assert!(!folder.path().join("out.work").exists());
    // Asked again, it says the same without training.
    let again = job(&model, &data, folder.path(), true).run(&mut |_, _| panic!("nothing is left to do")).unwrap();
    assert_eq!(again, summary);
    let elsewhere = bare("bert-mlm-text");
    let again = |model| job(model, &data, folder.path(), true);
    let others = [
        (Ticket { sparsity: 0.5, ..again(&model) }, "sparsity was 0.4, is 0.5"),
        (again(&elsewhere), "options: model was"),
    ];
    for (other, named) in others {
        let message = other.run(&mut |_, _| panic!("another search")).unwrap_err().to_string();
        assert!(message.contains(named) && message.contains("another --out"), "{message}");
    }
}

#[test]
fn a_search_that_was_stopped_ends_as_one_that_was_not() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The same rows in the same file, so that both say the same of where they learned from.
    let data = sentiment(whole.path(), 48);
    let model = bare("bert-classify-text");
    let want = job(&model, &data, whole.path(), false).run(&mut |_, _| true).unwrap();
    // Stopped in the middle of the first round with holes, and of the last.
    for (stop, rounds) in [(1, 1), (3, 3)] {
        let mut steps = 0;
        let stopped = job(&model, &data, parts.path(), stop > 1).run(&mut |number, event| {
            steps += usize::from(number == stop && matches!(event, Event::Step { .. }));
            steps < 7
        });
        let stopped = stopped.unwrap();
        assert_eq!((stopped.complete, stopped.rounds.len()), (false, rounds));
    }
    let elsewhere = bare("bert-mlm-text");
    let again = |model| job(model, &data, parts.path(), true);
    for (other, named) in
        [(Ticket { sparsity: 0.5, ..again(&model) }, "sparsity was"), (again(&elsewhere), "model was")]
    {
        let message = other.run(&mut |_, _| panic!("another search")).unwrap_err().to_string();
        assert!(message.contains(named) && message.contains("start over with --overwrite"), "{message}");
    }
    let found = job(&model, &data, parts.path(), true).run(&mut |_, _| true).unwrap();
    assert_eq!(found.rounds, want.rounds);
    let read = |folder: &Path| std::fs::read(folder.join("out/model.safetensors")).unwrap();
    assert!(read(whole.path()) == read(parts.path()), "the tickets differ");
}

#[test]
fn masks_take_out_the_smallest_of_all_tensors_together_or_any() {
    let model = bare("bert-classify-text");
    let names = prunable(&model.architecture);
    let names: BTreeSet<String> = names.into_iter().filter(|name| model.weights.contains(name)).collect();
    let mut all: Vec<f32> = Vec::new();
    for name in &names {
        all.extend(model.weights.vector(name, model.weights.tensor(name).unwrap().len()).unwrap());
    }
    let mut sorted: Vec<f32> = all.iter().map(|x| x.abs()).collect();
    sorted.sort_by(f32::total_cmp);
    let gone = (0.3 * all.len() as f64).round() as usize;
    let masks = Masks::smallest(&model.weights, &names, 0.3).unwrap();
    assert_eq!(masks.count(), (all.len() - gone, all.len()));
    let mut parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
    masks.on(&Device::flex()).clear(&mut parameters);
    let pruned = Weights::from_tensors(&parameters.to_tensors().unwrap()).unwrap();
    for name in &names {
        let length = model.weights.tensor(name).unwrap().len();
        let (before, after) = (model.weights.vector(name, length).unwrap(), pruned.vector(name, length).unwrap());
        for (before, after) in before.iter().zip(after) {
            let want = if before.abs() < sorted[gone] { 0.0 } else { *before };
            assert_eq!(after, want, "{name}");
        }
    }
    // Growing shares of what was pruned are nested.
    let more = Masks::smallest(&pruned, &names, 0.5).unwrap();
    more.on(&Device::flex()).clear(&mut parameters);
    assert_eq!(
        zeros(&Weights::from_tensors(&parameters.to_tensors().unwrap()).unwrap(), &names).0,
        more.count().1 - more.count().0
    );
    let random = Masks::random(&model.weights, &names, 0.3, 1).unwrap();
    assert!(random.count() == masks.count() && random != masks);
    assert_eq!(random, Masks::random(&model.weights, &names, 0.3, 1).unwrap());
}
