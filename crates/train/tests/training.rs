//! Whole trainings of tiny models.

mod common;

use burn::tensor::Device;
use common::{bare, fixture, sentiment};
use sparing_model::{Edits, Family, FfnEdit, HeadKind, LayerEdit, Model, Sequence};
use sparing_tasks::{Columns, Dataset, Select, Split, Task};
use sparing_train::*;
use std::path::Path;

fn options(rate: f64, epochs: u64) -> TrainOptions {
    TrainOptions {
        epochs,
        batch: 8,
        schedule: Schedule { rate, curve: Curve::Linear, warmup: Warmup::Ratio(0.1) },
        // Dropout draws from a generator that tests running beside each other share.
        dropout: 0.0,
        ..TrainOptions::default()
    }
}

fn place(folder: &Path) -> Place {
    Place { directory: folder.join("out"), resume: false, overwrite: false }
}

fn finetune(folder: &Path, data: &Dataset, options: TrainOptions, seeds: Vec<u64>, bits: Option<u32>) -> Summary {
    let model = bare("bert-classify-text");
    let job = Finetune {
        model: &model,
        train: data,
        dev: Some(data),
        options,
        seeds,
        max_tokens: Some(32),
        attention: None,
        quantization: bits.map(Rounding::new),
        device: Device::flex(),
        place: place(folder),
    };
    job.run(&mut |_, _| true).unwrap()
}

#[test]
fn a_tiny_classifier_learns_everything_and_its_directory_runs() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let summary = finetune(folder.path(), &data, options(5e-3, 15), vec![1, 2], None);
    assert!(summary.complete && summary.runs.len() == 2);
    for run in &summary.runs {
        assert_eq!(run.saved[0].value, 1.0, "{run:?}");
        // The engine on the saved directory says what training said.
        assert_eq!(run.saved[0].value, run.trained[0].value);
        assert!(run.late_loss < 0.2, "{run:?}");
        let model = Model::load(&run.directory).unwrap();
        assert_eq!(model.architecture.head.kind, HeadKind::Classify);
        assert_eq!(model.architecture.head.labels, ["fine", "poor"]);
        for file in ["train.jsonl", "loss.svg", "training.json", "vocab.txt"] {
            assert!(run.directory.join(file).is_file(), "{file}");
        }
    }
    assert!(summary.means[0].half.is_some());
    assert!(!folder.path().join("out.work").exists());
}

#[test]
fn economies_of_attention_are_trained_with_and_carried_along() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let mut model = bare("bert-classify-text");
    model.plan.attention = Some("exact,drop=0.9".parse().unwrap());
    let plans = [
        (None, Some("exact,drop=0.9")),
        (Some("exact,skip=1"), Some("exact,skip=1")),
        (Some("mca:0.4,seed=3"), Some("mca:0.4,seed=3")),
        (Some("graded:0.8,strict"), Some("graded:0.8,strict")),
        (Some("exact"), None),
    ];
    for (asked, want) in plans {
        let job = Finetune {
            model: &model,
            train: &data,
            dev: Some(&data),
            options: options(5e-3, 15),
            seeds: vec![1],
            max_tokens: Some(32),
            attention: asked.map(|text| text.parse().unwrap()),
            quantization: None,
            device: Device::flex(),
            place: Place { overwrite: true, ..place(folder.path()) },
        };
        let run = job.run(&mut |_, _| true).unwrap().runs.remove(0);
        // What the engine says of the directory is what training said, calibrations of its own included.
        assert_eq!((run.trained[0].value, run.saved[0].value), (1.0, 1.0), "{asked:?}");
        let saved = Model::load(&run.directory).unwrap();
        assert_eq!(saved.plan.attention.map(|plan| plan.to_string()).as_deref(), want);
    }
}

#[test]
fn a_model_with_windows_is_trained_on_texts_that_did_not_fit_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.csv");
    let filler = "and the plot of the film is the plot of a film ".repeat(6);
    let rows = (0..32).map(|i| format!("{filler}{}\n", ["good,fine", "bad,poor"][i % 2]));
    std::fs::write(&path, "text,label\n".to_string() + &rows.collect::<String>()).unwrap();
    let data = Dataset::table(&path, &Columns::default(), &Select::default()).unwrap();
    let model = bare("bert-classify-text").windowed(8, Some(150)).unwrap();
    let job = Finetune {
        model: &model,
        train: &data,
        dev: Some(&data),
        options: options(5e-3, 12),
        seeds: vec![1],
        max_tokens: Some(150),
        attention: None,
        quantization: None,
        device: Device::flex(),
        place: place(folder.path()),
    };
    let run = job.run(&mut |_, _| true).unwrap().runs.remove(0);
    // What decides stands far from the first token, which sees everything, and behind the 40 positions there were.
    assert_eq!((run.trained[0].value, run.saved[0].value), (1.0, 1.0), "{run:?}");
    let saved = Model::load(&run.directory).unwrap();
    assert_eq!((saved.architecture.family, saved.architecture.longest_input()), (Family::Longformer, Some(150)));
    assert_eq!(saved.tokenizer().unwrap().max_tokens(), Some(150));
}

#[test]
fn a_pruned_model_is_trained_and_stays_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let whole = bare("bert-classify-text");
    let gone = LayerEdit { heads: Some(vec![]), ..LayerEdit::default() };
    let half = (0..whole.architecture.layers[0].ffns[0].up.outputs).step_by(2).collect();
    let ffn = FfnEdit { neurons: Some(half), ..FfnEdit::default() };
    let heads = whole.architecture.layers[0].attention.numbers();
    let less = LayerEdit { heads: Some(heads[1..].to_vec()), ffns: [(0, ffn)].into(), ..LayerEdit::default() };
    let model = whole.pruned(&Edits { layers: [(0, less), (1, gone)].into() }).unwrap();
    let job = Finetune {
        model: &model,
        train: &data,
        dev: Some(&data),
        options: options(5e-3, 40),
        seeds: vec![1],
        max_tokens: Some(32),
        attention: None,
        quantization: None,
        device: Device::flex(),
        place: place(folder.path()),
    };
    let run = job.run(&mut |_, _| true).unwrap().runs.remove(0);
    // Half of the labels are guessed by chance; less is left to learn with than of the whole model.
    assert_eq!(run.trained[0].value, run.saved[0].value);
    assert!(run.saved[0].value > 0.9, "{}", run.saved[0].value);
    let saved = Model::load(&run.directory).unwrap();
    assert_eq!(saved.plan.elements, model.plan.elements);
    assert_eq!(saved.architecture.layers, model.architecture.layers);
}

#[test]
fn numbers_make_a_regression() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.csv");
    let line = |i: usize| format!("the film is {},{}.5\n", ["bad", "thin", "good", "witty"][i % 4], i % 4);
    std::fs::write(&path, "text,label\n".to_string() + &(0..24).map(line).collect::<String>()).unwrap();
    let data = Dataset::table(&path, &Columns::default(), &Select::default()).unwrap();
    let summary = finetune(folder.path(), &data, options(1e-2, 60), vec![0], None);
    let config = std::fs::read_to_string(folder.path().join("out/config.json")).unwrap();
    assert!(config.contains("\"problem_type\": \"regression\""), "{config}");
    assert!(summary.runs[0].saved[0].value > 0.9, "{summary:?}");
}

#[test]
fn words_get_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.jsonl");
    let line = |i: usize| {
        let (word, tag) = [("good", "B-GOOD"), ("bad", "B-BAD"), ("witty", "B-GOOD"), ("thin", "B-BAD")][i % 4];
        let subject = ["film", "story", "plot"][i % 3];
        format!(
            "{{\"tokens\": [\"the\", \"{subject}\", \"is\", \"{word}\"], \"tags\": [\"O\", \"O\", \"O\", \"{tag}\"]}}\n"
        )
    };
    std::fs::write(&path, (0..24).map(line).collect::<String>()).unwrap();
    let data = Dataset::table(&path, &Columns::default(), &Select::default()).unwrap();
    let summary = finetune(folder.path(), &data, options(5e-3, 20), vec![0], None);
    let model = Model::load(&summary.runs[0].directory).unwrap();
    assert_eq!(model.architecture.head.kind, HeadKind::TokenClassify);
    assert_eq!(model.architecture.head.labels, ["B-BAD", "B-GOOD", "O"]);
    assert!(summary.runs[0].saved[0].value > 0.99, "{summary:?}");
}

#[test]
fn answers_are_found_in_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    let line = |i: usize| {
        let (word, subject) = (["good", "bad", "witty", "thin"][i % 4], ["film", "story", "plot"][i % 3]);
        let context = format!("the {subject} is {word} to me");
        let start = context.find(word).unwrap();
        format!(
            "{{\"id\": \"{i}\", \"question\": \"the {subject} is\", \"context\": \"{context}\", \
             \"answers\": {{\"text\": [\"{word}\"], \"answer_start\": [{start}]}}}}\n"
        )
    };
    std::fs::write(&path, (0..24).map(line).collect::<String>()).unwrap();
    let data = Dataset::read(Task::Squad, &path, Split::Train, &Select::default()).unwrap();
    let summary = finetune(folder.path(), &data, options(5e-3, 25), vec![0], None);
    let model = Model::load(&summary.runs[0].directory).unwrap();
    assert_eq!(model.architecture.head.kind, HeadKind::Answer);
    // Exact match of the directory that was saved.
    assert!(summary.runs[0].saved.iter().any(|v| v.value > 0.95), "{summary:?}");
}

#[test]
fn frozen_tensors_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 16);
    let freeze = vec!["embeddings".to_string()];
    let summary = finetune(folder.path(), &data, TrainOptions { freeze, ..options(1e-2, 1) }, vec![0], None);
    let trained = Model::load(&summary.runs[0].directory).unwrap();
    let before = bare("bert-classify-text");
    let mut moved = 0;
    for name in trained.weights.names() {
        let read = |model: &Model| {
            let tensor = model.weights.tensor(name).ok()?;
            let mut values = vec![0.0; tensor.len()];
            tensor.read(0, &mut values);
            Some(values)
        };
        let (Some(a), Some(b)) = (read(&before), read(&trained)) else { continue };
        assert!(a == b || !name.contains("embeddings"), "{name} moved");
        moved += usize::from(a != b);
    }
    assert!(moved > 0);
}

#[test]
fn accumulating_is_a_larger_batch() {
    let losses = |batch, accumulate| {
        let folder = tempfile::tempdir().unwrap();
        let data = sentiment(folder.path(), 32);
        let options = TrainOptions { batch, accumulate, ..options(1e-3, 2) };
        finetune(folder.path(), &data, options, vec![3], None);
        let lines = read_log(&folder.path().join("out/train.jsonl")).unwrap();
        lines.iter().filter(|l| matches!(l, Line::Step { .. })).count()
    };
    assert_eq!(losses(16, 1), losses(8, 2));
    assert_eq!(losses(16, 1), 4);
}

#[test]
fn quantization_aware_training_runs_in_int8() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let summary = finetune(folder.path(), &data, options(5e-3, 15), vec![0], Some(8));
    let run = &summary.runs[0];
    assert!((run.saved[0].value - run.trained[0].value).abs() < 0.03, "{run:?}");
    assert!(run.saved[0].value > 0.95, "{run:?}");
    let plan = std::fs::read_to_string(run.directory.join("sparing.json")).unwrap();
    assert!(plan.contains("int8"), "{plan}");
}

#[test]
fn early_stopping_and_what_is_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 32);
    // A rate of nearly nothing never gets better than the first evaluation.
    let stopped = TrainOptions { patience: Some(2), ..options(1e-12, 20) };
    let summary = finetune(folder.path(), &data, stopped, vec![0], None);
    assert_eq!((summary.runs[0].steps, summary.runs[0].kept), (12, 4), "{summary:?}");
    let model = bare("bert-classify-text");
    let again = Finetune {
        model: &model,
        train: &data,
        dev: None,
        options: options(1e-3, 1),
        seeds: vec![0],
        max_tokens: None,
        attention: None,
        quantization: None,
        device: Device::flex(),
        place: place(folder.path()),
    };
    let error = again.run(&mut |_, _| true).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
}

#[test]
fn a_student_comes_nearer_to_its_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let data = sentiment(folder.path(), 48);
    let taught = finetune(folder.path(), &data, options(5e-3, 12), vec![0], None);
    let teacher = Model::load(&taught.runs[0].directory).unwrap();
    let teaching = Teaching {
        hard: 0.2,
        // Has a floor, the entropy of the teacher's answers: its value is tested beside the others.
        soft: 0.01,
        divergence: 0.5,
        temperature: 2.0,
        logits: 0.1,
        hidden: 0.1,
        attention: 0.1,
        attention_divergence: 0.1,
        mapping: Mapping::Uniform,
    };
    let shapes = [
        StudentShape { layers: Some(1), ..StudentShape::default() },
        StudentShape { width: Some(16), ffn: Some(20), heads: Some(4), ..StudentShape::default() },
        StudentShape { share: true, layers: Some(3), embedding: Some(12), ..StudentShape::default() },
    ];
    for (i, shape) in shapes.iter().enumerate() {
        let job = Distill {
            teacher: &teacher,
            student: Prepared::student(&teacher, shape, Mapping::Uniform).unwrap(),
            origin: &teacher,
            train: &data,
            dev: Some(&data),
            teaching,
            options: options(1e-2, 30),
            seeds: vec![0],
            max_tokens: Some(32),
            attention: None,
            quantization: None,
            device: Device::flex(),
            place: Place { directory: folder.path().join(format!("student-{i}")), resume: false, overwrite: false },
        };
        let summary = job.run(&mut |_, _| true).unwrap();
        let directory = &summary.runs[0].directory;
        let lines = read_log(&directory.join("train.jsonl")).unwrap();
        let losses: Vec<f64> =
            lines.iter().filter_map(|l| if let Line::Step { loss, .. } = l { Some(*loss) } else { None }).collect();
        assert!(losses[losses.len() - 1] < 0.7 * losses[0], "{shape:?}: {losses:?}");
        let student = Model::load(directory).unwrap();
        assert!(!student.weights.names().any(|n| n.starts_with("distill.")));
        assert!(summary.runs[0].saved[0].value > 0.9, "{shape:?}: {summary:?}");
    }
}

#[test]
fn texts_are_learned_by_masks_and_by_next_words() {
    let pairs = Some(PairTask::SentenceOrder);
    for (name, wanted, pairs) in [
        ("bert-mlm-text", Wanted::MaskedLm, None),
        ("bert-mlm-text", Wanted::MaskedLm, pairs),
        ("gpt2-causal-text", Wanted::CausalLm, None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = bare(name);
        let corpus = vec!["the film is good and the story is witty, they call it a classic. ".repeat(20); 4];
        let job = Pretrain {
            prepared: Prepared::new(&model, &wanted).unwrap(),
            model: &model,
            scratch: false,
            corpus: &corpus,
            pairs,
            dev: None,
            options: options(5e-3, 6),
            seeds: vec![0],
            max_tokens: 32,
            quantization: None,
            device: Device::flex(),
            place: place(folder.path()),
        };
        let summary = job.run(&mut |_, _| true).unwrap();
        let lines = read_log(&summary.runs[0].directory.join("train.jsonl")).unwrap();
        let Line::Step { loss: first, .. } = lines[0] else { panic!() };
        assert!(
            summary.runs[0].late_loss < if pairs.is_some() { 0.75 } else { 0.6 } * first,
            "{name}: {first} {summary:?}"
        );
        let saved = Model::load(&summary.runs[0].directory).unwrap();
        assert_eq!(saved.weights.contains("cls.seq_relationship.weight"), pairs.is_some());
        sparing_engine::Engine::compile(&saved, &Default::default()).unwrap();
    }
}

#[test]
fn masking_hides_the_published_shares() {
    let model = Model::load(&fixture("bert-mlm-text")).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let masking = Masking::new(tokenizer).unwrap();
    let mask = tokenizer.mask_id().unwrap();
    let piece = tokenizer.encode(&"the film is good and not bad ".repeat(5), None, None).unwrap().sequence;
    let (mut chosen, mut masked, mut same, mut tokens) = (0, 0, 0, 0);
    for seed in 0..2000 {
        let example = masking.apply(&piece, seed);
        let Target::Rows(rows) = &example.target else { panic!() };
        for &(row, id) in rows {
            assert!(row > 0 && row + 1 < piece.ids.len() && id == piece.ids[row]);
            masked += usize::from(example.sequence.ids[row] == mask);
            same += usize::from(example.sequence.ids[row] == id);
        }
        let hidden: Vec<usize> = rows.iter().map(|r| r.0).collect();
        let changed = (0..piece.ids.len()).filter(|i| example.sequence.ids[*i] != piece.ids[*i]);
        assert!(changed.into_iter().all(|i| hidden.contains(&i)));
        chosen += rows.len();
        tokens += piece.ids.len() - 2;
    }
    let share = |n: usize| n as f64 / chosen as f64;
    assert!((chosen as f64 / tokens as f64 - MASKED_SHARE).abs() < 0.015);
    assert!(
        (share(masked) - 0.8).abs() < 0.015 && (share(same) - 0.1).abs() < 0.015,
        "{} {}",
        share(masked),
        share(same)
    );
    assert_eq!(masking.apply(&piece, 7), masking.apply(&piece, 7));
    // Next words: every row but the last has one.
    let gpt = Model::load(&fixture("gpt2-causal-text")).unwrap();
    let cut: Vec<Sequence> = pieces(gpt.tokenizer().unwrap(), &["it is good ".repeat(30)], 16, true).unwrap();
    assert!(cut.iter().all(|p| p.ids.len() <= 16) && cut.len() > 3);
}

#[test]
fn pairs_are_swapped_or_replaced_half_of_the_time() {
    let model = Model::load(&fixture("bert-mlm-text")).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let corpus = ["the film is good and the story is witty ".repeat(5), "they call it a classic ".repeat(9)];
    for task in [PairTask::SentenceOrder, PairTask::NextSentence] {
        let pairs = Pairs::new(tokenizer, &corpus, 24, task).unwrap();
        let mut changed = 0;
        for seed in 0..1000 {
            let i = seed as usize % pairs.lengths().len();
            let (pair, answer) = pairs.pair(i, seed);
            assert!(pair.ids.len() <= pairs.lengths()[i] && pair.ids.len() == pair.types.len());
            let second = pair.types.iter().position(|t| *t == 1).unwrap();
            assert_eq!(tokenizer.token(pair.ids[second - 1]).unwrap(), "[SEP]");
            assert_eq!(tokenizer.token(pair.ids[0]).unwrap(), "[CLS]");
            changed += answer;
        }
        assert!((450..550).contains(&changed), "{changed}");
    }
}
