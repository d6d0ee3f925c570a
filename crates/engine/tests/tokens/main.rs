//! Economised tokens: exact where nothing is saved, as a slow reference says, the same in any company, refused where they
//! cannot be.

#[path = "../common/mod.rs"]
mod common;
mod reference;

use common::{Golden, engine, fixture, fixtures, refuse};
use reference::Reference;
use sparing_engine::RunOptions;
use sparing_model::{AttentionPlan, Batch, Executor, Model, Precision, Sequence, Wanted};

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
            for plan in [
                "exact,drop=0",
                "exact,skip=0",
                "exact,keep=1",
                "exact,merge=0",
                "exact,drop=1e-30",
                "exact,skip=1e-30",
                "exact,keep=1000",
                "exact,merge=1e-30",
                "mca:1e-30,skip=1e-30",
            ] {
                let attention = plan.parse::<AttentionPlan>().unwrap();
                if attention.check_for(&model.architecture).is_err() {
                    assert!(!plan.contains("skip"), "{name} {plan}");
                    continue;
                }
                let economised = engine(&model, plan, 2, precision);
                let drops = attention.tokens.as_ref().unwrap().leaves_fewer();
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
fn tokens_are_economised_as_a_slow_reference_does_it() {
    let plans = [
        "exact,drop=0.9",
        "exact,skip=1",
        "exact,drop=0.8,skip=1.1",
        "exact,keep=0.7",
        "exact,keep=0.9,keep1=0.6,keep2=3",
        "exact,keep=1,keep1=0.5,skip=1",
        "exact,drop=0.7,keep=0.8",
        "exact,merge=0.3",
        "exact,merge=0.5",
        "exact,merge=0.2,merge1=0",
        "exact,merge=0.3,skip=1",
        "exact,drop=0.7,keep=0.9,merge=0.25,skip=0.9",
    ];
    for name in ["bert-classify", "electra-classify", "roberta-classify", "bert-hidden-odd"] {
        let (model, golden) = deeper(name);
        for plan in plans {
            let attention: AttentionPlan = plan.parse().unwrap();
            if attention.check_for(&model.architecture).is_err() {
                continue;
            }
            let tokens = attention.tokens.unwrap();
            let economised = engine(&model, plan, 2, Precision::F32);
            // What the head reads, by the hidden states of the first token if tokens leave.
            let wanted = if tokens.leaves_fewer() { Wanted::Head } else { Wanted::Hidden };
            let got = economised.run(&batch(&golden.sequences, wanted)).unwrap();
            let (mut away, mut largest) = (0, 1.0f32);
            for (sequence, got) in golden.sequences.iter().zip(&got.sequences) {
                let mut reference = Reference::new(&model, sequence);
                reference.run(&tokens);
                away += reference.away;
                largest = reference.tokens.iter().fold(largest, |most, token| most.max(token.size));
                let want = if tokens.leaves_fewer() { reference.head() } else { reference.hidden() };
                assert_eq!(want.len(), got.len(), "{name} {plan}");
                let off = got.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(off < 2e-4, "{name} {plan}: {off}");
            }
            assert!(away > 0, "{name} {plan}: nothing was saved, so nothing was tested");
            assert_eq!(largest > 1.0, tokens.merges(), "{name} {plan}: {largest}");
            let spent = economised.spending();
            assert!(spent.skipped > 0 && spent.model_ratio() > 1.0, "{spent:?}");
        }
    }
}

#[test]
fn operations_are_counted_on_the_tokens_that_are_there() {
    let (model, golden) = deeper("bert-classify");
    let sequence = golden.sequences.iter().max_by_key(|sequence| sequence.ids.len()).unwrap();
    let input = batch(std::slice::from_ref(sequence), Wanted::Head);
    let skipped = |plan: &str| {
        let engine = engine(&model, plan, 1, Precision::F32);
        engine.run(&input).unwrap();
        engine.spending().skipped
    };
    let tokens = sequence.ids.len();
    assert!(tokens > 8);
    // As many leave by a share and by a count, and in later layers not once more.
    let half = skipped("exact,keep0=0.5");
    assert_eq!(half, skipped(&format!("exact,keep0={}", (tokens as f32 / 2.0).round())));
    assert_eq!(half, skipped("exact,keep=0.5"));
    assert!(half > skipped("exact,keep0=0.75") && half > skipped("exact,keep1=0.5"));
    // Merging as many costs the search for them besides: means of keys over heads, then one half with the other.
    let (without_two, a) = (skipped(&format!("exact,keep0={}", tokens - 2)), &model.architecture.layers[0].attention);
    let search = tokens * a.heads * a.head_width + tokens * tokens * a.head_width / 2;
    let merged = skipped(&format!("exact,merge0={}", 2.0 / tokens as f32));
    assert_eq!(without_two, search as u64 + merged);
}

#[test]
fn the_same_on_any_number_of_threads_and_in_any_company() {
    for name in ["bert-classify", "electra-classify", "roberta-classify", "distilbert-classify", "albert-classify"] {
        let (model, golden) = deeper(name);
        for plan in [
            "exact,drop=0.9",
            "exact,skip=1",
            "mca:1,strict,drop=0.8,skip=1",
            "exact,drop=0.9,drop0=0,skip2=1",
            "exact,keep=0.8,keep2=0.5",
            "exact,merge=0.3",
            "mca:1,strict,keep=0.8,merge=0.2,skip=1",
        ] {
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
    for form in ["exact,drop=0.5", "exact,keep=0.5", "exact,merge=0.5", "exact,skip=0.5"] {
        refuse("mobilebert-classify", form, "bottleneck");
        refuse("gpt2-causal", form, "left to right");
        refuse("longformer-classify", form, "by distance");
        refuse("mpnet-classify", form, "by distance");
        refuse("xlnet-classify", form, "by distance");
    }
    for name in ["bert-token", "bert-answer", "bert-embed-mean", "bert-mlm"] {
        refuse(name, "exact,drop=0.5", "the head reads all of them; use skip instead of drop");
        refuse(name, "exact,keep=0.5", "use skip instead of keep");
        refuse(name, "exact,merge0=0.5", "use skip instead of merge");
    }
    refuse("bert-classify", "exact,drop=0.5,drop9=1", "no layer 9");
    refuse("bert-classify", "exact,skip=0.5,skip9=1", "no layer 9");
    refuse("bert-classify", "exact,keep9=0.5", "no layer 9");
    refuse("bert-classify", "sign:3,keep=0.5", "add keys0=exact or keep0=1");
    let (model, golden) = deeper("bert-classify");
    let engine = engine(&model, "exact,drop=0.5", 1, Precision::F32);
    let hidden = batch(&golden.sequences, Wanted::Hidden);
    assert!(engine.run(&hidden).unwrap_err().to_string().contains("but tokens leave"));
    assert!(engine.run_as(&hidden, &RunOptions::exact()).is_ok());
    assert!(engine.examine(&hidden, &RunOptions::default()).unwrap_err().to_string().contains("only values"));
}

#[test]
fn tokens_are_followed_as_they_are_computed() {
    for plan in ["exact,drop=0.9", "exact,skip=0.9", "exact,drop=0.7,skip=1.1", "exact,keep=0.5", "mca:0.4,skip=0.8"] {
        let (model, golden) = deeper("bert-classify");
        let engine = engine(&model, plan, 2, Precision::F32);
        for sequence in &golden.sequences {
            engine.reset_spending();
            engine.run(&batch(std::slice::from_ref(sequence), Wanted::Head)).unwrap();
            let (layers, done) = engine.follow(sequence).unwrap().unwrap();
            let spent = engine.spending();
            assert_eq!(spent.skipped, spent.model_exact.saturating_sub(done), "{plan}");
            let tokens = sequence.ids.len();
            for layer in &layers {
                assert_eq!((layer.came.len(), layer.stayed.len(), layer.busy.len()), (tokens, tokens, tokens));
                assert!(layer.stayed[0] && layer.stayed[tokens - 1]);
                // Who stays came, who is busy stays.
                assert!((0..tokens).all(|i| layer.stayed[i] <= layer.came[i] && layer.busy[i] <= layer.stayed[i]));
            }
            assert!(layers.windows(2).all(|pair| pair[0].layer < pair[1].layer && pair[0].stayed == pair[1].came));
        }
    }
    let (model, golden) = deeper("bert-classify");
    assert!(engine(&model, "mca:0.4", 1, Precision::F32).follow(&golden.sequences[0]).unwrap().is_none());
}
