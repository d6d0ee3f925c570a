//! Every family and head against the reference implementation's numbers.

mod common;

use common::{Golden, distance, fixtures};
use sparing_engine::{Economies, Engine, GenerateOptions, Options};
use sparing_model::{Batch, Executor, Model, Precision, Sequence, Wanted};

fn run(engine: &Engine, sequences: &[Sequence], wanted: Wanted) -> Vec<Vec<f32>> {
    engine.run(&Batch { sequences: sequences.to_vec(), wanted }).unwrap().sequences
}

fn one_by_one(engine: &Engine, sequences: &[Sequence], wanted: Wanted) -> Vec<Vec<f32>> {
    sequences.iter().flat_map(|s| run(engine, std::slice::from_ref(s), wanted.clone())).collect()
}

/// The largest distance over batching, outputs and hidden states.
fn worst(engine: &Engine, golden: &Golden) -> f32 {
    let sequences = &golden.sequences;
    let mut worst = 0f32;
    for (wanted, want) in [(Wanted::Head, &golden.outputs), (Wanted::Hidden, &golden.hidden)] {
        if want.is_empty() {
            continue;
        }
        worst = worst.max(distance(&run(engine, sequences, wanted.clone()), want));
        worst = worst.max(distance(&one_by_one(engine, sequences, wanted), want));
    }
    worst
}

fn compile(model: &Model, threads: usize, precision: Precision, economies: Economies) -> Engine {
    Engine::compile(model, &Options { threads, precision: Some(precision), economies, ..Options::default() }).unwrap()
}

#[test]
fn every_fixture_matches_in_f32() {
    let mut failed = Vec::new();
    for (name, directory) in fixtures() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        for threads in [1, 3] {
            for economies in [Economies::default(), Economies::none()] {
                let engine = compile(&model, threads, Precision::F32, economies);
                assert_eq!(engine.run(&Batch::default()).unwrap().width, golden.width, "{name}");
                let worst = worst(&engine, &golden);
                if worst > 1e-4 {
                    failed.push(format!("{name} ({threads} threads, {economies:?}): {worst:e}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_fixture_is_near_in_bf16_and_int8() {
    let mut failed = Vec::new();
    for (name, directory) in fixtures() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        for (precision, tolerance) in [(Precision::Bf16, 0.08), (Precision::Int8, 0.2)] {
            let engine = compile(&model, 2, precision, Economies::default());
            let worst = worst(&engine, &golden);
            if worst > tolerance {
                failed.push(format!("{name} ({precision:?}): {worst:e}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn chosen_rows_are_the_rows_of_the_whole_answer() {
    for (name, directory) in fixtures() {
        let (model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        if model.architecture.head.rows != sparing_model::HeadRows::All {
            continue;
        }
        let engine = compile(&model, 2, Precision::F32, Economies::default());
        // The last row, then the first, of each; nothing of the second sequence.
        let mut rows: Vec<Vec<usize>> = golden.sequences.iter().map(|s| vec![s.ids.len() - 1, 0]).collect();
        if let Some(second) = rows.get_mut(1) {
            second.clear();
        }
        let width = golden.width;
        let pick = |(all, rows): (&Vec<f32>, &Vec<usize>)| -> Vec<f32> {
            rows.iter().flat_map(|r| all[r * width..(r + 1) * width].to_vec()).collect()
        };
        let want: Vec<Vec<f32>> = golden.outputs.iter().zip(&rows).map(pick).collect();
        let worst = distance(&run(&engine, &golden.sequences, Wanted::Rows(rows)), &want);
        assert!(worst < 1e-4, "{name}: {worst:e}");
    }
}

#[test]
fn generation_is_the_references_and_the_same_without_a_cache() {
    let mut seen = 0;
    for (name, directory) in fixtures() {
        let golden = Golden::read(&directory);
        for (prompt, continuation) in &golden.generations {
            let model = Model::load(&directory).unwrap();
            for economies in [Economies::default(), Economies::none()] {
                let engine = compile(&model, 2, Precision::F32, economies);
                let options = GenerateOptions { max_new_tokens: continuation.len(), ..GenerateOptions::default() };
                let mut streamed = Vec::new();
                let on_token = &mut |token| {
                    streamed.push(token);
                    true
                };
                let got = engine.generate(prompt, &options, on_token).unwrap();
                assert_eq!(&got, continuation, "{name}");
                assert_eq!(got, streamed);
                let mut ids = prompt.clone();
                for token in &got {
                    let last = Wanted::Rows(vec![vec![ids.len() - 1]]);
                    let logits = run(&engine, &[Sequence { ids: ids.clone(), types: vec![] }], last).remove(0);
                    let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
                    assert_eq!(best as u32, *token, "{name}");
                    ids.push(*token);
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}
