//! What the engine promises besides the numbers.

mod common;

use common::{Golden, fixture};
use sparing_engine::{Economies, Engine, GenerateOptions, Options, StepKind};
use sparing_model::{Batch, Blocks, Executor, Model, OwnedTensor, Precision, Sequence, Wanted};

fn engine(name: &str, threads: usize) -> Engine {
    engine_with(name, threads, Economies::default())
}

fn engine_with(name: &str, threads: usize, economies: Economies) -> Engine {
    let model = Model::load(&fixture(name)).unwrap();
    Engine::compile(&model, &Options { threads, economies, ..Options::default() }).unwrap()
}

fn ids(ids: &[u32]) -> Sequence {
    Sequence { ids: ids.to_vec(), types: vec![] }
}

fn batch(sequences: Vec<Sequence>) -> Batch {
    Batch { sequences, ..Batch::default() }
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()))
}

/// A long input for a tiny vocabulary.
fn long(tokens: usize, vocabulary: usize, types: bool) -> Sequence {
    let ids = (0..tokens).map(|i| (i * i * 7 + i) as u32 % vocabulary as u32).collect();
    Sequence { ids, types: if types { (0..tokens).map(|i| (i > tokens / 3) as u32).collect() } else { vec![] } }
}

#[test]
fn identical_inputs_are_computed_once_and_answered_alike() {
    let once = engine("bert-classify", 2);
    let each = engine_with("bert-classify", 2, Economies::none());
    let two = Sequence { ids: vec![8, 9, 10], types: vec![0, 0, 1] };
    // The first and the last are the same to the model: no types are zeros.
    let zeros = Sequence { ids: vec![8, 9, 10], types: vec![0, 0, 0] };
    let all = vec![ids(&[8, 9, 10]), two.clone(), ids(&[11]), two, zeros];
    let (a, b) = (once.run(&batch(all.clone())).unwrap(), each.run(&batch(all)).unwrap());
    assert_eq!(a.sequences[0], a.sequences[4]);
    assert_eq!(a.sequences[1], a.sequences[3]);
    assert_ne!(a.sequences[0], a.sequences[1]);
    assert!(a.sequences.iter().zip(&b.sequences).all(|(a, b)| close(a, b)));
}

#[test]
fn identical_inputs_with_different_wanted_rows_differ() {
    let engine = engine("bert-token", 1);
    let all = engine.run(&batch(vec![ids(&[8, 9, 10])])).unwrap();
    let wanted = Wanted::Rows(vec![vec![0], vec![2], vec![0]]);
    let rows = engine.run(&Batch { sequences: vec![ids(&[8, 9, 10]); 3], wanted }).unwrap();
    assert!(close(&rows.sequences[0], &all.sequences[0][..all.width]));
    assert!(close(&rows.sequences[1], &all.sequences[0][2 * all.width..]));
    assert_eq!(rows.sequences[0], rows.sequences[2]);
    let none = engine.run(&Batch { sequences: vec![ids(&[8, 9])], wanted: Wanted::Rows(vec![vec![]]) }).unwrap();
    assert!(none.sequences[0].is_empty());
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let bert = engine("bert-classify", 1);
    let refused = |batch: Batch, part: &str| {
        let message = bert.run(&batch).unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    };
    assert!(bert.run(&Batch::default()).unwrap().sequences.is_empty());
    refused(batch(vec![ids(&[1]), ids(&[])]), "sequence 1 is empty");
    refused(batch(vec![ids(&[1_000_000])]), "token id 1000000 is outside the vocabulary");
    let limit = bert.architecture().max_tokens.unwrap();
    refused(batch(vec![ids(&vec![1; limit + 1])]), &format!("takes {limit} at most"));
    refused(batch(vec![Sequence { ids: vec![1], types: vec![9] }]), "token type 9");
    refused(batch(vec![Sequence { ids: vec![1, 2], types: vec![0] }]), "1 token types for 2 tokens");
    refused(Batch { sequences: vec![ids(&[1])], wanted: Wanted::Rows(vec![vec![0]]) }, "once per sequence");
    let tokens = engine("bert-token", 1);
    let wanted = Wanted::Rows(vec![vec![1]]);
    let message = tokens.run(&Batch { sequences: vec![ids(&[1])], wanted }).unwrap_err().to_string();
    assert!(message.contains("row 1 is wanted but there are 1 tokens"), "{message}");
    assert!(tokens.run(&Batch { sequences: vec![ids(&[1])], wanted: Wanted::Rows(vec![]) }).is_err());
    let never = &mut |_| true;
    assert!(bert.generate(&[1], &GenerateOptions::default(), never).unwrap_err().to_string().contains("generate"));
}

#[test]
fn many_threads_may_call_at_once() {
    let directory = fixture("bert-classify");
    let (engine, golden) = (engine("bert-classify", 2), Golden::read(&directory));
    let want = engine.run(&batch(golden.sequences.clone())).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(engine.run(&batch(golden.sequences.clone())).unwrap(), want);
                }
            });
        }
    });
}

#[test]
fn large_batches_go_through_in_waves() {
    let engine = engine_with("bert-classify", 3, Economies { once: false, ..Economies::default() });
    let sequences: Vec<Sequence> = (0..3000).map(|i| long(1 + i % 7, 60, false)).collect();
    let all = engine.run(&batch(sequences.clone())).unwrap();
    for i in [0, 1, 999, 1024, 2047, 2999] {
        let one = engine.run(&batch(vec![sequences[i].clone()])).unwrap();
        assert!(close(&all.sequences[i], &one.sequences[0]), "{i}");
    }
}

#[test]
fn long_relative_attention_agrees_between_blocks_and_single_queries() {
    // No golden is as long: blocks of distances, and several waves of position scores, against one query at a time.
    for tokens in [65, 200, 2500] {
        for name in ["xlnet-token", "xlnet-causal-uni"] {
            let engine = engine(name, 2);
            let sequence = long(tokens, engine.architecture().embeddings.vocabulary, true);
            let rows = vec![0, 1, 63, 64, tokens / 2, tokens - 1];
            let all = engine.run(&batch(vec![sequence.clone()])).unwrap();
            let wanted = Wanted::Rows(vec![rows.clone()]);
            let some = engine.run(&Batch { sequences: vec![sequence], wanted }).unwrap();
            for (i, row) in rows.iter().enumerate() {
                let (a, b) = (i * all.width, row * all.width);
                let (some, all) = (&some.sequences[0][a..a + all.width], &all.sequences[0][b..b + all.width]);
                assert!(close(some, all), "{name}, {tokens} tokens, row {row}");
            }
        }
    }
}

#[test]
fn the_ledger_counts_what_the_economies_save() {
    let engine = engine("bert-classify", 1);
    let plain = engine_with("bert-classify", 1, Economies::none());
    let lengths = [4, 12];
    let (saving, exact) = (engine.ledger(&lengths, &Wanted::Head), plain.ledger(&lengths, &Wanted::Head));
    assert_eq!((saving.tokens, saving.padded_tokens), (16, 24));
    assert_eq!(saving.flops_exact_padded(), exact.flops_exact_padded());
    assert!(saving.flops() < exact.flops() && exact.flops() < exact.flops_exact_padded());
    let same = plain.ledger(&[12, 12], &Wanted::Head);
    assert_eq!(same.flops(), same.flops_exact_padded());
    let hidden = engine.ledger(&[12, 12], &Wanted::Hidden);
    assert_eq!(hidden.flops(), hidden.flops_exact_padded());
    // One layer's feed-forward map by hand.
    let a = engine.architecture();
    let up: usize = a.layers.iter().map(|l| 2 * 24 * l.ffns[0].up.inputs * l.ffns[0].up.outputs).sum();
    let part = same.parts.iter().find(|p| p.name == "ffn up").unwrap();
    assert_eq!(part.flops, up as u64);
}

#[test]
fn the_profile_answers_as_the_run_does_and_names_every_part() {
    let engine = engine("bert-classify", 2);
    let golden = Golden::read(&fixture("bert-classify"));
    let (outputs, times) = engine.profile(&batch(golden.sequences.clone())).unwrap();
    assert_eq!(outputs, engine.run(&batch(golden.sequences)).unwrap());
    let layers = engine.architecture().layers.len();
    for part in ["qkv", "attention", "attention output", "ffn up", "ffn down"] {
        let found: Vec<_> = times.iter().filter(|t| t.part == part).collect();
        assert_eq!(found.len(), layers, "{part}");
        assert!(found.iter().all(|t| t.layer.is_some() && t.seconds > 0.0), "{part}");
    }
    assert!(times.iter().any(|t| t.part == "embeddings") && times.iter().any(|t| t.part == "head"));
}

#[test]
fn the_steps_hold_every_parameter() {
    for name in ["bert-classify", "mobilebert-token", "gpt2-hidden", "longformer-classify"] {
        let engine = engine(name, 1);
        let steps: Vec<_> = engine.steps().collect();
        let model = Model::load(&fixture(name)).unwrap();
        let stored: usize = model.weights.names().map(|n| model.weights.tensor(n).unwrap().len()).sum();
        let held: usize = steps.iter().filter(|s| !s.shared).map(|s| s.parameters).sum();
        // A pooler that no head reads, or masks, may be stored besides.
        assert!(held <= stored && held * 10 > stored * 9, "{name}: {held} of {stored}");
        let layers = engine.architecture().layers.len();
        assert_eq!(
            steps.iter().filter(|s| s.kind == StepKind::Attention && !s.name.contains("global")).count() % layers,
            0
        );
        assert!(steps.iter().any(|s| s.name == "layer 0 ffn up" && s.kind == StepKind::Linear));
        assert!(engine.weight_bytes() >= held * 4);
    }
}

#[test]
fn shared_layers_are_packed_once() {
    let engine = engine("albert-classify", 1);
    let steps: Vec<_> = engine.steps().filter(|s| s.kind == StepKind::Linear && s.layer.is_some()).collect();
    assert!(steps.iter().filter(|s| s.layer > Some(0)).all(|s| s.shared), "later layers repeat the first");
}

#[test]
fn generation_stops_where_it_is_told() {
    let engine = engine("gpt2-causal", 2);
    let options = GenerateOptions { max_new_tokens: 6, ..GenerateOptions::default() };
    let all = engine.generate(&[5, 6, 7], &options, &mut |_| true).unwrap();
    assert_eq!(all.len(), 6);
    let mut count = 0;
    let two = engine.generate(&[5, 6, 7], &options, &mut |_| {
        count += 1;
        count < 2
    });
    assert_eq!(two.unwrap(), all[..2]);
    let stop = GenerateOptions { stop: vec![all[3]], ..options.clone() };
    let end = all.iter().position(|t| *t == all[3]).unwrap();
    assert_eq!(engine.generate(&[5, 6, 7], &stop, &mut |_| true).unwrap(), all[..end]);
    let sampled = GenerateOptions { temperature: 1.5, top_k: 40, top_p: 0.9, seed: 3, ..options.clone() };
    let first = engine.generate(&[5, 6, 7], &sampled, &mut |_| true).unwrap();
    assert_eq!(first, engine.generate(&[5, 6, 7], &sampled, &mut |_| true).unwrap());
    // Up to the model's longest input, and no further.
    let limit = engine.architecture().max_tokens.unwrap();
    let much = GenerateOptions { max_new_tokens: 10 * limit, ..options.clone() };
    assert_eq!(engine.generate(&[5, 6, 7], &much, &mut |_| true).unwrap().len(), limit - 3 + 1);
    assert!(engine.generate(&[], &options, &mut |_| true).is_err());
    assert!(engine.generate(&vec![1; limit + 1], &options, &mut |_| true).is_err());
}

#[test]
fn the_plan_says_the_precision_unless_the_caller_does() {
    let mut model = Model::load(&fixture("bert-classify")).unwrap();
    let precision = |model: &Model, precision| {
        Engine::compile(model, &Options { threads: 1, precision, ..Options::default() }).unwrap().precision()
    };
    assert_eq!(precision(&model, None), Precision::F32);
    model.plan.precision = Some(Precision::Int8);
    assert_eq!(precision(&model, None), Precision::Int8);
    assert_eq!(precision(&model, Some(Precision::Bf16)), Precision::Bf16);
}

/// Of every family: maps of the blocks that stay multiply no bytes, all others do, and answers come closer to the exact ones.
#[test]
fn blocks_of_an_int8_model_stay_in_bf16_where_the_plan_says_so() {
    let families =
        ["bert", "distilbert", "albert", "electra", "roberta", "mpnet", "longformer", "xlnet", "gpt2", "mobilebert"];
    for name in families.map(|family| format!("{family}-classify")) {
        let mut model = Model::load(&fixture(&name)).unwrap();
        let input = batch(vec![long(20, model.architecture.embeddings.vocabulary, false)]);
        let compile = |model: &Model, precision| {
            Engine::compile(model, &Options { threads: 1, precision, ..Options::default() }).unwrap()
        };
        let answers = |engine: &Engine| engine.run(&input).unwrap().sequences.concat();
        let exact = answers(&compile(&model, None));
        model.plan.precision = Some(Precision::Int8);
        let int8 = answers(&compile(&model, None));
        let bf16 = answers(&compile(&model, Some(Precision::Bf16)));
        let layers = 0..model.architecture.layers.len();
        model.plan.bf16 = [(0, Blocks { attention: false, ffn: true })].into();
        for step in compile(&model, None).steps().filter(|step| step.kind == StepKind::Linear && step.layer.is_some()) {
            let ffn = step.part.starts_with("ffn") || step.part == "bottleneck";
            // Layers that share their weights are not one block: each says how it is multiplied.
            assert_eq!(step.bytes, !(ffn && step.layer == Some(0)), "{name}: {}", step.name);
        }
        assert_ne!(answers(&compile(&model, None)), int8, "{name}");
        model.plan.bf16 = layers.map(|layer| (layer, Blocks { attention: true, ffn: true })).collect();
        let all = compile(&model, None);
        assert_eq!((answers(&all), all.precision()), (bf16, Precision::Int8), "{name}");
        // Another precision is the caller's to ask for.
        assert_eq!(answers(&compile(&model, Some(Precision::F32))), exact, "{name}");
    }
}

/// What positions add to scores is swallowed by attention as scores are; tables that any text may read are read before the first.
#[test]
fn positions_that_are_no_numbers_are_refused_by_name() {
    let xlnet = ["r", "r_r_bias", "r_s_bias", "r_w_bias", "seg_embed"];
    let xlnet = xlnet.map(|part| ("xlnet-classify", format!("transformer.layer.0.rel_attn.{part}")));
    let mpnet = ("mpnet-classify", "mpnet.encoder.relative_attention_bias.weight".to_string());
    let tables = ["position", "token_type"];
    let tables = tables.map(|table| ("bert-classify", format!("bert.embeddings.{table}_embeddings.weight")));
    for (fixture_name, name) in xlnet.into_iter().chain([mpnet]).chain(tables) {
        let mut model = Model::load(&fixture(fixture_name)).unwrap();
        let tensor = model.weights.tensor(&name).unwrap();
        let (shape, mut values) = (tensor.shape.to_vec(), vec![0.0; tensor.len()]);
        tensor.read(0, &mut values);
        *values.last_mut().unwrap() = f32::NAN;
        model.weights = model.weights.replace(vec![OwnedTensor::f32(&name, &shape, &values)]).unwrap();
        let told = Engine::compile(&model, &Options::default()).map(drop).unwrap_err().to_string();
        assert!(told.contains(&format!("\"{name}\"")) && told.contains("not finite"), "{name}: {told}");
    }
}
