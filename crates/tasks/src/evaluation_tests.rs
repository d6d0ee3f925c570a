//! Evaluation from end to end with executors whose answers are known.

use crate::encode::tests::Words;
use crate::*;
use sparing_model::*;

/// An executor made of a function from a sequence and the wanted rows to numbers.
struct Fake<F>(usize, F);

impl<F: Fn(&Sequence, &[usize]) -> Vec<f32> + Send + Sync> Executor for Fake<F> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let one = |(i, s): (usize, &Sequence)| match &batch.wanted {
            Wanted::Rows(rows) => self.1(s, &rows[i]),
            _ => self.1(s, &(0..s.ids.len()).collect::<Vec<_>>()),
        };
        Ok(Outputs { width: self.0, sequences: batch.sequences.iter().enumerate().map(one).collect() })
    }
}

pub(crate) fn architecture(kind: HeadKind, labels: &[&str]) -> Architecture {
    Architecture {
        family: Family::Bert,
        hidden: 8,
        max_tokens: Some(512),
        embeddings: Embeddings {
            word: "word".into(),
            vocabulary: 1000,
            width: 8,
            trigram: false,
            positions: None,
            token_types: None,
            norm: None,
            projection: None,
            projection_place: ProjectionPlace::AfterNorm,
        },
        layers: vec![],
        final_norm: None,
        head: Head {
            rows: HeadRows::First,
            stages: vec![],
            kind,
            labels: labels.iter().map(|l| l.to_string()).collect(),
            global_tokens: GlobalTokens::None,
        },
    }
}

fn dataset(task: Task, examples: Vec<Example>) -> Dataset {
    let (source, label_column) = ("f".into(), "label".into());
    Dataset { task, source, place: "line", label_column, columns: vec![], examples, notes: vec![] }
}

fn example(text: &str, pair: Option<&str>, label: Label) -> Example {
    Example { text: text.into(), pair: pair.map(Into::into), label, ..Example::default() }
}

fn one(label: &str) -> Label {
    Label::One(label.into())
}

fn answers(texts: &[&str]) -> Label {
    Label::Answers(texts.iter().map(|t| Answer { text: t.to_string(), start: None }).collect())
}

fn id(word: &str) -> u32 {
    200 + word.bytes().map(u32::from).sum::<u32>() % 800
}

fn run(executor: &dyn Executor, kind: HeadKind, labels: &[&str], data: &Dataset) -> Result<Report, String> {
    let architecture = architecture(kind, labels);
    evaluate(executor, &Words, &architecture, data, &Options::default(), &mut |_| true).map_err(|e| e.to_string())
}

#[test]
fn majority_on_sst2_is_as_published() {
    let data = Dataset::builtin("sst2", &Select::default()).unwrap();
    let positive = Fake(2, |_: &Sequence, _: &[usize]| vec![-1.0, 1.0]);
    let report = run(&positive, HeadKind::Classify, &["negative", "positive"], &data).unwrap();
    // GLUE's most-frequent baseline on SST-2: 50.9.
    assert_eq!(report.headline().metric, Metric::Accuracy);
    assert_eq!(report.headline().value, 444.0 / 872.0);
    let interval = report.headline().interval.unwrap();
    assert!(interval.low > 0.46 && interval.high < 0.56 && interval.low < interval.high);
    assert_eq!((report.n, report.complete), (872, true));
    assert_eq!(report.examples, (0..872).collect::<Vec<_>>());
    // A model with its labels the other way round is right where this one is wrong.
    let report = run(&positive, HeadKind::Classify, &["POSITIVE", "NEGATIVE"], &data).unwrap();
    assert_eq!(report.headline().value, 428.0 / 872.0);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn prepared_once_scores_like_evaluate_every_time() {
    let data = Dataset::builtin("sst2", &Select { limit: Some(200), ..Select::default() }).unwrap();
    let architecture = architecture(HeadKind::Classify, &["negative", "positive"]);
    let prepared = Prepared::new(&Words, &architecture, &data, &Options::default()).unwrap();
    assert_eq!(prepared.lengths().count(), 200);
    for modulus in [2, 3, 5] {
        let fake = Fake(2, move |s: &Sequence, _: &[usize]| vec![(s.ids[1] % modulus) as f32, 0.5]);
        let report = run(&fake, HeadKind::Classify, &["negative", "positive"], &data).unwrap();
        let outputs: Vec<Outputs> = prepared.batches().iter().map(|batch| fake.run(batch).unwrap()).collect();
        assert_eq!(prepared.score(outputs.clone()).unwrap(), [report.headline().value]);
        assert!(prepared.score(outputs[1..].to_vec()).is_err());
    }
}

#[test]
fn cancelled_keeps_what_was_done() {
    let data = Dataset::builtin("sst2", &Select::default()).unwrap();
    let fake = Fake(2, |s: &Sequence, _: &[usize]| vec![s.ids.len() as f32, 0.0]);
    let architecture = architecture(HeadKind::Classify, &["negative", "positive"]);
    let (mut calls, mut last) = (0, 0);
    let report = evaluate(&fake, &Words, &architecture, &data, &Options::default(), &mut |p| {
        (calls, last) = (calls + 1, p.done);
        assert!(p.done <= p.total && p.tokens <= p.total_tokens);
        calls < 4
    })
    .unwrap();
    assert!(!report.complete);
    assert_eq!((report.n, calls), (last, 4));
    assert!(report.examples.windows(2).all(|w| w[0] < w[1]));
    let none = evaluate(&fake, &Words, &architecture, &data, &Options::default(), &mut |_| false);
    assert!(none.unwrap_err().to_string().starts_with("cancelled"));
}

#[test]
fn f1_follows_the_tasks_second_label() {
    let pair = |label| example("a", Some("b"), one(label));
    let data = dataset(Task::Mrpc, vec![pair("1"), pair("1"), pair("0")]);
    let always = |class: usize| {
        Fake(2, move |_: &Sequence, _: &[usize]| if class == 0 { vec![1.0, 0.0] } else { vec![0.0, 1.0] })
    };
    let names = ["equivalent", "not_equivalent"];
    let report = run(&always(0), HeadKind::Classify, &names, &data).unwrap();
    assert!((report.value(Metric::F1).unwrap() - 0.8).abs() < 1e-12);
    assert_eq!(run(&always(1), HeadKind::Classify, &names, &data).unwrap().value(Metric::F1), Some(0.0));
}

#[test]
fn heads_that_do_not_suit_are_refused() {
    let data = Dataset::builtin("sst2", &Select::default()).unwrap();
    let fake = Fake(3, |_: &Sequence, _: &[usize]| vec![0.0; 3]);
    let message = |kind, labels: &[&str]| run(&fake, kind, labels, &data).unwrap_err();
    assert_eq!(message(HeadKind::Answer, &[]), "the task sst2 cannot be done with a model that answers questions");
    assert!(message(HeadKind::Classify, &["a", "b", "c"]).starts_with("the task sst2 has 2 labels"));
    assert!(message(HeadKind::Classify, &["a", "b"]).starts_with("the model's head has 3 outputs"));
    let nan = Fake(2, |_: &Sequence, _: &[usize]| vec![f32::NAN; 2]);
    let e = run(&nan, HeadKind::Classify, &["a", "b"], &data).unwrap_err();
    assert!(e.contains("NaN") && !e.contains('\n'));
}

/// Whatever the head, what is not a number is no outcome, and the row is named that it came of.
#[test]
fn rows_whose_output_is_not_a_number_are_named() {
    // Long texts overflow.
    let number = |s: &Sequence| if s.ids.len() > 4 { f32::NAN } else { 0.5 };
    let once = Fake(2, |s: &Sequence, _: &[usize]| vec![number(s); 2]);
    let rows = Fake(2, |s: &Sequence, rows: &[usize]| vec![number(s); 2 * rows.len()]);
    let line = |line, text: &str, pair, label| Example { line, ..example(text, pair, label) };
    let long = "x y z w v u";
    let labelled = |label: &str| vec![line(2, "x", None, one(label)), line(3, long, None, one(label))];
    // Words of one letter, a space between them.
    let tags = |text: &str| {
        let words: Vec<(usize, usize)> = (0..text.len()).step_by(2).map(|at| (at, at + 1)).collect();
        Label::Tags { tags: vec!["a".into(); words.len()], words }
    };
    for (executor, kind, examples) in [
        (&once as &dyn Executor, HeadKind::Classify, labelled("a")),
        (&once, HeadKind::MultiLabel, labelled("a|b")),
        (&rows, HeadKind::TokenClassify, vec![line(2, "x", None, tags("x")), line(3, long, None, tags(long))]),
        (&rows, HeadKind::Answer, vec![line(3, "x", Some(long), answers(&["y"]))]),
        (
            &once,
            HeadKind::Embed { normalise: false },
            vec![line(2, "x", Some("y"), one("1")), line(3, "x", Some(long), one("2"))],
        ),
    ] {
        let message = run(executor, kind, &["a", "b"], &dataset(Task::Own, examples)).unwrap_err();
        assert!(message.starts_with("f line 3: the model's output is not a number"), "{kind:?}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn several_labels_and_scores() {
    let data = dataset(Task::Own, vec![example("x", None, one("a|c")), example("y", None, one("b"))]);
    let fake = Fake(3, |_: &Sequence, _: &[usize]| vec![1.0, -1.0, 2.0]);
    let report = run(&fake, HeadKind::MultiLabel, &["a", "b", "c"], &data).unwrap();
    assert_eq!(report.value(Metric::Accuracy), Some(0.5));
    assert!((report.value(Metric::F1Micro).unwrap() - 4.0 / 7.0).abs() < 1e-12);
    let data = dataset(Task::Own, ["1", "2", "4"].map(|l| example(l, None, one(l))).to_vec());
    let fake = Fake(1, |s: &Sequence, _: &[usize]| vec![s.ids[1] as f32]);
    let report = run(&fake, HeadKind::Regress, &["LABEL_0"], &data).unwrap();
    assert!((report.value(Metric::Pearson).unwrap() - 1.0).abs() < 1e-9);
}

#[test]
fn embeddings_are_scored_by_their_cosine() {
    let pair = |a, b, score| example(a, Some(b), one(score));
    let data = dataset(Task::Stsb, vec![pair("a", "a", "5.0"), pair("a", "z", "0.0"), pair("a", "m", "2.5")]);
    let fake = Fake(2, |s: &Sequence, _: &[usize]| {
        let angle = (s.ids[1] as f32 - 297.0) / 25.0;
        vec![angle.cos(), angle.sin()]
    });
    let report = run(&fake, HeadKind::Embed { normalise: true }, &[], &data).unwrap();
    assert!((report.value(Metric::Spearman).unwrap() - 1.0).abs() < 1e-9);
    let single = dataset(Task::Own, vec![example("a", None, one("1"))]);
    let e = run(&fake, HeadKind::Embed { normalise: true }, &[], &single).unwrap_err();
    assert!(e.contains("--pair"));
}

#[test]
fn words_are_read_at_their_first_token() {
    let tags = |words: Vec<(usize, usize)>, tags: &[&str]| Label::Tags {
        words,
        tags: tags.iter().map(|t| t.to_string()).collect(),
    };
    let data = dataset(
        Task::Own,
        vec![
            example("in New York", None, tags(vec![(0, 2), (3, 6), (7, 11)], &["O", "B-LOC", "I-LOC"])),
            // The words are larger than the tokens here: a word is read at its first token.
            example("Ann Lee ran", None, tags(vec![(0, 7), (8, 11)], &["B-PER", "O"])),
        ],
    );
    let labels = ["O", "B-LOC", "I-LOC", "B-PER"];
    let fake = Fake(4, |s: &Sequence, rows: &[usize]| {
        let class = |row: &usize| match s.ids[*row] {
            t if t == id("New") => 1,
            t if t == id("York") => 2,
            t if t == id("ran") => 3,
            _ => 0,
        };
        rows.iter().flat_map(|r| (0..4).map(move |c| f32::from(u8::from(c == class(r))))).collect()
    });
    let report = run(&fake, HeadKind::TokenClassify, &labels, &data).unwrap();
    assert_eq!(report.value(Metric::Accuracy), Some(3.0 / 5.0));
    assert_eq!(report.value(Metric::EntityF1), Some(0.5));
}

#[test]
fn answers_are_found_in_the_right_window() {
    let filler = "filler ".repeat(700);
    let context = format!("{filler}won by Denver Broncos today {filler}");
    let data = dataset(
        Task::Squad,
        vec![
            example(" who won", Some(&context), answers(&["the Denver Broncos"])),
            example("who", Some("by Denver"), answers(&["Seattle"])),
        ],
    );
    let fake = Fake(2, |s: &Sequence, rows: &[usize]| {
        let start = |t: u32| f32::from(u8::from(t == id("Denver"))) * 9.0;
        let end = |t: u32| f32::from(u8::from(t == id("Broncos"))) * 9.0;
        rows.iter().flat_map(|&r| [start(s.ids[r]), end(s.ids[r])]).collect()
    });
    let report = run(&fake, HeadKind::Answer, &[], &data).unwrap();
    assert_eq!(report.value(Metric::ExactMatch), Some(0.5));
    // 1405 words in windows of 379 that share 128: six, each with 5 tokens more; and one of 6 tokens.
    assert_eq!(report.tokens, 1405 + 5 * 128 + 6 * 5 + 6);
    let Outcome::Answer { predicted, score, .. } = &report.outcomes[0] else { panic!() };
    assert_eq!((predicted.as_str(), *score), ("Denver Broncos", 18.0));
    let Outcome::Answer { predicted, .. } = &report.outcomes[1] else { panic!() };
    assert_eq!(predicted, "Denver");
}

#[test]
fn silence_wins_where_it_scores_higher() {
    let question = |context: &str, label| example("q", Some(context), label);
    let data = dataset(Task::SquadV2, vec![question("x yes", answers(&["yes"])), question("x no", answers(&[]))]);
    let fake = Fake(2, |s: &Sequence, rows: &[usize]| {
        let logit = |t: u32| if t == id("yes") { 5.0 } else { f32::from(u8::from(t == 101)) * 3.0 };
        rows.iter().flat_map(|&r| [logit(s.ids[r]); 2]).collect()
    });
    let report = run(&fake, HeadKind::Answer, &[], &data).unwrap();
    assert_eq!(report.value(Metric::F1), Some(1.0));
    assert_eq!(report.value(Metric::UnanswerableAccuracy), Some(1.0));
}

#[test]
fn perplexity_of_known_models() {
    let text: String = (0..100).map(|i| format!("word{} ", i % 7)).collect();
    let data = dataset(Task::Language, vec![example(&text, None, Label::None)]);
    let uniform = Fake(1000, |_: &Sequence, rows: &[usize]| vec![0.5; 1000 * rows.len()]);
    let sure = Fake(1000, |s: &Sequence, rows: &[usize]| {
        let mut logits = vec![0.0; 1000 * rows.len()];
        for (i, &row) in rows.iter().enumerate() {
            logits[1000 * i + s.ids[row + 1] as usize] = 40.0;
        }
        logits
    });
    let causal = architecture(HeadKind::CausalLm, &[]);
    for (context, stride) in [(16, 8), (16, 16), (16, 1), (512, 512), (7, 3)] {
        let options = Options { context: Some(context), stride: Some(stride), ..Options::default() };
        let report = |e: &dyn Executor| evaluate(e, &Words, &causal, &data, &options, &mut |_| true).unwrap();
        let flat = report(&uniform);
        assert!((flat.headline().value - 1000.0).abs() < 1e-6, "{context} {stride}");
        assert!((report(&sure).headline().value - 1.0).abs() < 1e-6);
        let tokens: usize =
            flat.outcomes.iter().map(|o| if let Outcome::Loss { tokens, .. } = o { *tokens } else { 0 }).sum();
        // Each token but those that begin a window without context is predicted once.
        let missed = if stride == context { 100usize.div_ceil(context) } else { 1 };
        assert_eq!(tokens, 100 - missed, "{context} {stride}");
        let words: usize =
            flat.outcomes.iter().map(|o| if let Outcome::Loss { words, .. } = o { *words } else { 0 }).sum();
        assert_eq!(words, tokens, "a token is a word here");
    }
    let masked = architecture(HeadKind::MaskedLm, &[]);
    let options = Options { context: Some(22), ..Options::default() };
    let report = evaluate(&uniform, &Words, &masked, &data, &options, &mut |_| true).unwrap();
    assert!((report.headline().value - 1000.0).abs() < 1e-6);
    assert_eq!(report.n, 5);
    let options = Options { context: Some(8), stride: Some(9), ..Options::default() };
    assert!(evaluate(&uniform, &Words, &causal, &data, &options, &mut |_| true).is_err());
}

#[test]
fn agreement_of_executors() {
    let data = dataset(Task::Own, vec![example("a", None, Label::None), example("b c", None, Label::None)]);
    let options = Options::default();
    let compare = |a: &dyn Executor, b: &dyn Executor, kind| {
        agreement(a, b, &Words, &architecture(kind, &["x", "y", "z"]), &data, &options, &mut |_| true).unwrap()
    };
    let first = Fake(3, |_: &Sequence, _: &[usize]| vec![1.0, 2.0, -0.5]);
    let second = Fake(3, |s: &Sequence, _: &[usize]| match s.ids.len() {
        3 => vec![0.5, 2.5, 0.0],
        _ => vec![3.0, 2.0, -0.5],
    });
    let same = compare(&first, &first, HeadKind::Classify);
    assert_eq!((same.same_top, same.mean_kl, same.max_abs_difference), (Some(1.0), Some(0.0), 0.0));
    let other = compare(&first, &second, HeadKind::Classify);
    assert_eq!((other.n, other.same_top, other.max_abs_difference), (2, Some(0.5), 2.0));
    assert!(compare(&first, &second, HeadKind::MultiLabel).mean_kl.unwrap() > 0.0);
    let vectors = compare(&first, &first, HeadKind::Embed { normalise: false });
    assert_eq!((vectors.same_top, vectors.mean_kl), (None, None));
    assert!((vectors.mean_cosine.unwrap() - 1.0).abs() < 1e-12);
    // scipy.special.rel_entr(softmax(p), softmax(q)).sum()
    assert!((kl(&[1.0, 2.0, -0.5], &[0.5, 2.5, 0.0]) - KL).abs() < 1e-9);
}

/// SciPy 1.17.1.
const KL: f64 = 0.07891124670195954;

#[test]
fn comparison_of_reports() {
    let data = Dataset::builtin("sst2", &Select::default()).unwrap();
    let labels = ["negative", "positive"];
    let positive = Fake(2, |_: &Sequence, _: &[usize]| vec![0.0, 1.0]);
    let parity = Fake(2, |s: &Sequence, _: &[usize]| vec![(s.ids.len() % 2) as f32, 0.5]);
    let first = run(&positive, HeadKind::Classify, &labels, &data).unwrap();
    let second = run(&parity, HeadKind::Classify, &labels, &data).unwrap();
    let both = first.compare(&second, Metric::Accuracy, &Bootstrap::default()).unwrap();
    let interval = both.interval.unwrap();
    assert_eq!(both.n, 872);
    assert!((both.difference - (second.headline().value - first.headline().value)).abs() < 1e-12);
    assert!(interval.low < both.difference && both.difference < interval.high);
    let m = both.mcnemar.unwrap();
    assert_eq!(m.only_second as i64 - m.only_first as i64, (both.difference * 872.0).round() as i64);
    let none = first.compare(&first, Metric::Accuracy, &Bootstrap::default()).unwrap();
    assert_eq!((none.difference, none.mcnemar.unwrap().p), (0.0, 1.0));
    // The rows that are drawn never differ; others may.
    let ends = |found: &Comparison| found.interval.map(|i| (i.low, i.high)).unwrap();
    assert_eq!((ends(&none), ends(&none.clone().widened())), ((0.0, 0.0), (-3.0 / 872.0, 3.0 / 872.0)));
    assert_eq!(both.clone().widened(), both);
    assert!(first.compare(&second, Metric::Perplexity, &Bootstrap::default()).is_err());
}

#[test]
fn each_side_is_measured_by_its_own_labels() {
    let text = |i: usize| vec!["a"; 1 + i % 5].join(" ");
    let gold = |i: usize| one(if i.is_multiple_of(4) { "not_equivalent" } else { "equivalent" });
    let data = dataset(Task::Mrpc, (0..40).map(|i| example(&text(i), Some("b"), gold(i))).collect());
    let yes = |s: &Sequence| if s.ids.len().is_multiple_of(2) { 1.0 } else { 0.0 };
    let straight = Fake(2, |s: &Sequence, _: &[usize]| vec![0.5, yes(s)]);
    let turned = Fake(2, |s: &Sequence, _: &[usize]| vec![yes(s), 0.5]);
    let here = run(&straight, HeadKind::Classify, &["not_equivalent", "equivalent"], &data).unwrap();
    let there = run(&turned, HeadKind::Classify, &["Equivalent", "Not Equivalent"], &data).unwrap();
    for metric in [Metric::F1, Metric::Accuracy] {
        let found = there.compare(&here, metric, &Bootstrap::default()).unwrap();
        assert_eq!((found.first, found.difference), (here.value(metric).unwrap(), 0.0), "{metric:?}");
        assert_eq!(found.interval.map(|i| (i.low, i.high)), Some((0.0, 0.0)));
    }
}

#[test]
fn losses_of_other_windows_are_not_paired() {
    let text = (0..100).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
    let data = dataset(Task::Language, vec![example(&text, None, Label::None)]);
    let causal = architecture(HeadKind::CausalLm, &[]);
    let uniform = Fake(1000, |_: &Sequence, rows: &[usize]| vec![0.0; rows.len() * 1000]);
    let by = |context| {
        let options = Options { context: Some(context), ..Options::default() };
        evaluate(&uniform, &Words, &causal, &data, &options, &mut |_| true).unwrap()
    };
    let [first, same, other] = [20, 20, 24].map(by);
    let compare = |second: &Report| first.compare(second, Metric::Perplexity, &Bootstrap::default());
    assert!(compare(&same).unwrap().interval.is_some());
    let told = compare(&other).unwrap_err().to_string();
    assert!(told.contains("in other windows") && told.contains("cannot be paired"), "{told}");
    let apart = Comparison::apart(&first, &other, Metric::Perplexity);
    assert_eq!([apart.first, apart.second].map(f64::round), [1000.0; 2]);
    assert!(apart.difference.is_nan() && apart.interval.is_none());
}
