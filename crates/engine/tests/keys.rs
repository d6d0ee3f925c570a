//! Attention over chosen keys: exact where all are kept, the same in any company, beside other economies, refused where it
//! cannot be. What it computes is compared with a slow reference in the kernels, and with Burn in `sparing-train`.

mod common;

use common::{Golden, engine, fixtures, refuse};
use sparing_engine::RunOptions;
use sparing_model::{AttentionPlan, Batch, Executor, Model, Precision, Wanted};

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Int8];

/// Every fixture whose network can do what the plan says, with its layers twice, so that more of them choose.
fn able(plan: &str) -> Vec<(String, Model, Golden)> {
    let plan: AttentionPlan = plan.parse().unwrap();
    let deeper = |(name, directory): (String, std::path::PathBuf)| {
        let mut model = Model::load(&directory).unwrap();
        let layers = model.architecture.layers.clone();
        model.architecture.layers.extend(layers);
        (name, model, Golden::read(&directory))
    };
    let found = fixtures().into_iter().map(deeper);
    found.filter(|(_, model, _)| plan.check_for(&model.architecture).is_ok()).collect()
}

#[test]
fn every_family_but_two_chooses_keys() {
    let able = able("exact,keys=4");
    for family in ["bert", "distilbert", "roberta", "electra", "albert", "mobilebert", "mpnet", "gpt2"] {
        assert!(able.iter().any(|(name, ..)| name.starts_with(&format!("{family}-"))), "{family}");
    }
}

#[test]
fn all_keys_are_the_exact_model_to_the_bit() {
    for plan in ["sign:4096", "norm:4096", "value:4096", "grouped:4096", "sign:2"] {
        for (name, model, golden) in able(plan) {
            let layers = (0..model.architecture.layers.len()).filter(|_| plan == "sign:2");
            let plan = &layers.fold(plan.to_string(), |plan, layer| format!("{plan},keys{layer}=exact"));
            for precision in PRECISIONS {
                let (exact, chosen) = (engine(&model, "exact", 2, precision), engine(&model, plan, 2, precision));
                for wanted in [Wanted::Head, Wanted::Hidden] {
                    let batch = Batch { sequences: golden.sequences.clone(), wanted };
                    let want = exact.run(&batch).unwrap();
                    assert!(chosen.run(&batch).unwrap() == want, "{name} {precision:?} {plan}");
                }
                assert_eq!(chosen.spending().skipped, 0, "{name} {precision:?} {plan}");
            }
        }
    }
}

#[test]
fn the_same_on_any_number_of_threads_and_in_any_company() {
    for plan in ["sign:3", "norm:3,ends", "value:3", "grouped:1", "sign:3,ends,keys1=exact,keys2=2"] {
        for (name, model, golden) in able(plan) {
            for precision in PRECISIONS {
                let (one, two) = (engine(&model, plan, 1, precision), engine(&model, plan, 2, precision));
                let all = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
                let want = one.run(&all).unwrap();
                assert!(two.run(&all).unwrap() == want, "{name} {plan} {precision:?}");
                assert!(two.run(&all).unwrap() == want, "{name} {plan} {precision:?} again");
                let exact = engine(&model, "exact", 1, precision).run(&all).unwrap();
                assert!(two.run_as(&all, &RunOptions::exact()).unwrap() == exact, "{name} {plan} {precision:?}");
                let longer = golden.sequences.iter().any(|s| s.ids.len() > 3);
                assert!(
                    exact != want || !longer,
                    "{name} {plan} {precision:?}: nothing was chosen, so nothing was tested"
                );
                for (sequence, want) in golden.sequences.iter().zip(&want.sequences) {
                    let alone = Batch { sequences: vec![sequence.clone()], wanted: Wanted::Head };
                    let alone = two.run(&alone).unwrap();
                    let off = alone.sequences[0].iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                    assert!(off <= 1e-4, "{name} {plan} {precision:?} alone: {off}");
                }
            }
        }
    }
}

#[test]
fn fewer_keys_are_fewer_operations() {
    let (_, model, golden) = able("sign:2").into_iter().find(|(name, ..)| name == "bert-token").unwrap();
    let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
    let lengths: Vec<usize> = golden.sequences.iter().map(|s| s.ids.len()).collect();
    let mut before = u64::MAX;
    for plan in ["exact", "sign:8", "sign:4", "sign:2"] {
        let engine = engine(&model, plan, 1, Precision::F32);
        let scores = |parts: Vec<sparing_engine::LedgerPart>| parts.iter().find(|p| p.name == "scores").unwrap().flops;
        let flops = scores(engine.ledger(&lengths, &Wanted::Head).parts);
        assert!(flops < before, "{plan}");
        before = flops;
        engine.run(&batch).unwrap();
        assert_eq!(engine.spending().model_ratio() > 1.0, plan != "exact", "{plan}");
    }
}

#[test]
fn other_economies_go_with_it_in_other_layers() {
    for plan in [
        "mca:1,strict,layer1=exact,layer2=exact,layer3=exact,keys=3,keys0=exact",
        "exact,drop=0.9,drop1=0,drop2=0,keys=3,keys0=exact",
        "exact,skip=1,skip0=0,skip1=0,keys=3,ends,keys2=exact",
    ] {
        let found = able(plan);
        let classify = found.iter().find(|(name, ..)| name == "bert-classify");
        let (name, model, golden) = classify.expect("it can");
        let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
        let (one, two) = (engine(model, plan, 1, Precision::F32), engine(model, plan, 2, Precision::F32));
        let want = one.run(&batch).unwrap();
        assert!(two.run(&batch).unwrap() == want, "{name} {plan}");
        assert!(want.sequences.iter().flatten().all(|x| x.is_finite()), "{name} {plan}");
        assert!(one.spending().model_ratio() > 1.0, "{plan}: {:?}", one.spending());
    }
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    refuse("longformer-classify", "sign:8", "window");
    refuse("xlnet-classify", "sign:8", "every pair");
    refuse("bert-classify", "sign:8,keys9=4", "no layer 9");
    refuse("bert-classify", "mca:0.4,keys=8", "layer 0 chooses keys and computes values within budgets");
    refuse("bert-classify", "exact,drop=0.5,keys=8", "add keys0=exact or drop0=0");
    refuse("bert-classify", "exact,skip=0.5,keys=8", "add keys0=exact or skip0=0");
    let (_, model, golden) = able("sign:2").into_iter().find(|(name, ..)| name == "bert-classify").unwrap();
    let engine = engine(&model, "sign:2", 1, Precision::F32);
    let batch = Batch { sequences: golden.sequences, wanted: Wanted::Head };
    assert!(engine.examine(&batch, &RunOptions::default()).unwrap_err().to_string().contains("only values"));
}

#[test]
fn generation_is_exact() {
    let (_, model, golden) = able("sign:2").into_iter().find(|(name, ..)| name == "gpt2-causal").unwrap();
    let prompt = &golden.sequences[0].ids;
    let generate = |plan: &str| {
        engine(&model, plan, 1, Precision::F32).generate(prompt, &Default::default(), &mut |_| true).unwrap()
    };
    assert_eq!(generate("sign:2"), generate("exact"));
}
