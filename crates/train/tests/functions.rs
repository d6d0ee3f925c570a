//! Replaced functions in Burn: what the engine computes, gradients that are right, and a student that learns.

#[path = "common/fixtures.rs"]
mod fixtures;
#[path = "common/mod.rs"]
mod tiny;

use burn::tensor::{Device, Tensor, TensorData};
use fixtures::{distance, fixture};
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Executor, Functions, HeadChoice, LoadOptions, Model, Precision, SoftmaxNetwork, Wanted};
use sparing_tasks::{Columns, Dataset, Select};
use sparing_train::{
    Beginning, Beyond, BurnExecutor, Capture, Event, Guide, Mapping, Mode, Network, PaddedBatch, Parameters, Place,
    Statistics, Teaching, TrainOptions, Transfer, TransferTexts,
};

fn all(tokens: usize, shared: bool, keys: Option<usize>) -> Functions {
    Functions::all(SoftmaxNetwork { tokens, shared, keys })
}

/// A fixture with functions replaced; every new number is different.
fn replaced(name: &str, functions: &Functions) -> Model {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32
    };
    let fill = &mut |name: &str, shape: &[usize]| {
        let phi = name.ends_with("running_phi");
        (0..shape.iter().product()).map(|_| if phi { 0.5 + next() } else { 0.2 * (next() - 0.5) }).collect()
    };
    fixture(name).0.with_functions(functions, fill).unwrap()
}

#[test]
fn burn_computes_what_the_engine_does() {
    for name in [
        "bert-classify",
        "distilbert-classify",
        "albert-classify",
        "electra-classify",
        "mobilebert-classify",
        "bert-mlm",
    ] {
        for (shared, keys) in [(false, None), (true, None), (false, Some(5))] {
            let (model, golden) = (replaced(name, &all(24, shared, keys)), fixture(name).1);
            let options = Options { threads: 2, precision: Some(Precision::F32), ..Options::default() };
            let engine = Engine::compile(&model, &options).unwrap();
            let burn = BurnExecutor::from_model(&model, &Device::flex()).unwrap();
            for wanted in [Wanted::Head, Wanted::Hidden] {
                let batch = Batch { sequences: golden.sequences.clone(), wanted };
                let far = distance(&burn.run(&batch).unwrap().sequences, &engine.run(&batch).unwrap().sequences);
                assert!(far <= 1e-4, "{name} {shared} {keys:?}: {far:e}");
            }
        }
    }
}

/// Families whose softmax stays, with all else replaced.
#[test]
fn burn_computes_what_the_engine_does_where_softmax_stays() {
    let functions = Functions { softmax: None, ..all(24, false, None) };
    for name in ["mpnet-classify", "xlnet-classify", "longformer-classify", "gpt2-classify"] {
        let (model, golden) = (replaced(name, &functions), fixture(name).1);
        let options = Options { threads: 2, precision: Some(Precision::F32), ..Options::default() };
        let engine = Engine::compile(&model, &options).unwrap();
        let burn = BurnExecutor::from_model(&model, &Device::flex()).unwrap();
        let batch = Batch { sequences: golden.sequences.clone(), wanted: Wanted::Head };
        let far = distance(&burn.run(&batch).unwrap().sequences, &engine.run(&batch).unwrap().sequences);
        assert!(far <= 1e-4, "{name}: {far:e}");
    }
}

/// With the batch's own statistics PowerNorm's gradient is exact: it is what differences say.
#[test]
fn batch_statistics_have_the_gradient_that_differences_have() {
    let model = replaced("bert-classify", &all(24, false, None));
    let golden = fixture("bert-classify").1;
    let device = Device::flex().autodiff();
    let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
    let batch = PaddedBatch::new(&golden.sequences, longest + 2, &device);
    let network = Network::new(&model.architecture);
    let mode = Mode { statistics: Statistics::Batch, ..Mode::default() };
    let loss = |parameters: &Parameters| {
        let output = network.forward(parameters, &batch, mode).unwrap().output;
        let [a, b, c] = output.dims();
        let pull: Vec<f32> = (0..a * b * c).map(|i| ((i * 7 % 5) as f32 - 2.0) * 0.3).collect();
        (output.clone() * Tensor::<3>::from_data(TensorData::new(pull, [a, b, c]), &device)).sum()
    };
    let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let mut gradients = loss(&parameters).backward();
    let value = |parameters: &Parameters| f64::from(loss(parameters).into_data().as_slice::<f32>().unwrap()[0]);
    for name in ["bert.encoder.layer.0.output.dense.bias", "bert.encoder.layer.0.attention.self.softmax.hidden.bias"] {
        let p = parameters.get(name).unwrap();
        let found = p.value.grad_remove(&mut gradients).unwrap().into_data().try_to_vec::<f32>().unwrap();
        let largest = found.iter().fold(0f32, |m, x| m.max(x.abs()));
        for place in [0, 3, 7] {
            let moved = |by: f32| {
                let mut parameters = parameters.clone();
                let mut numbers = p.value.clone().inner().into_data().try_to_vec::<f32>().unwrap();
                numbers[place] += by;
                parameters.insert_values(name, numbers, p.shape.clone());
                value(&parameters)
            };
            let slope = ((moved(2e-3) - moved(-2e-3)) / 4e-3) as f32;
            assert!(
                (found[place] - slope).abs() <= 0.05 * largest + 2e-3,
                "{name} {place}: {} for {slope}",
                found[place]
            );
        }
    }
    // Both statistics of every norm have changed: forward and on the way back.
    let changed = network.changed();
    assert!(changed.iter().any(|(name, _)| name.ends_with("running_phi")));
    assert!(changed.iter().any(|(name, _)| name.ends_with("running_nu")));
    assert!(network.changed().is_empty());
}

/// A layer that reads what the teacher's read knows nothing of the mistakes of those before it; one that reads its own, all.
#[test]
fn guided_layers_do_not_add_up_mistakes() {
    let (model, golden) = fixture("bert-classify");
    let device = Device::flex();
    let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
    let batch = PaddedBatch::new(&golden.sequences, longest, &device);
    let network = Network::new(&model.architecture);
    let mode = Mode { capture: Capture { hidden: true, attention: true }, ..Mode::default() };
    let right = Parameters::from_weights(&model.weights, &device).unwrap();
    let taught = network.forward(&right, &batch, mode).unwrap();
    // A student whose first layer is spoiled.
    let mut wrong = right.clone();
    let bias = right.get("bert.encoder.layer.0.output.dense.bias").unwrap();
    let numbers = bias.value.clone().into_data().try_to_vec::<f32>().unwrap();
    let spoiled = numbers.iter().enumerate().map(|(i, x)| x + (i % 3) as f32).collect();
    wrong.insert_values("bert.encoder.layer.0.output.dense.bias", spoiled, bias.shape.clone());
    let far = |own: f64| -> Vec<f32> {
        let guide = Some(Guide::Teacher { hidden: &taught.hidden, own });
        let found = network.forward_guided(&wrong, &batch, mode, None, guide).unwrap();
        let pairs = found.hidden.into_iter().zip(taught.hidden.clone());
        pairs.map(|(a, b)| (a - b).abs().max().into_scalar::<f32>()).collect()
    };
    let (theirs, half, own) = (far(0.0), far(0.5), far(1.0));
    assert!(theirs[0] == 0.0 && theirs[1] > 0.1, "{theirs:?}");
    assert!(theirs[2..].iter().all(|far| *far < 1e-6), "{theirs:?}");
    assert!(half[2] > 1e-3 && half[2] < own[2], "{half:?} {own:?}");
    // Right parameters within the teacher's bounds: nothing is changed.
    let guide = Some(Guide::Teacher { hidden: &taught.hidden, own: 1.0 });
    let found = network.forward_guided(&right, &batch, mode, None, guide).unwrap();
    let far = (found.output - taught.output).abs().max().into_scalar::<f32>();
    assert!(far < 1e-6, "{far}");
}

/// Without norms that look at rows, what is too large grows with the third power from layer to layer; not where a teacher is.
#[test]
fn guided_layers_stay_within_bounds() {
    let model = replaced("bert-classify", &all(24, false, None));
    let golden = fixture("bert-classify").1;
    let device = Device::flex();
    let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
    let batch = PaddedBatch::new(&golden.sequences, longest, &device);
    let network = Network::new(&model.architecture);
    let mode = Mode { capture: Capture { hidden: true, attention: false }, ..Mode::default() };
    let mut parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let taught = network.forward(&parameters, &batch, mode).unwrap();
    let name = "bert.embeddings.LayerNorm.weight";
    let weight = parameters.get(name).unwrap();
    let large = weight.value.clone().mul_scalar(1e4).into_data().try_to_vec::<f32>().unwrap();
    let shape = weight.shape.clone();
    parameters.insert_values(name, large, shape);
    let most = |hidden: &[Tensor<3>]| hidden[1].clone().abs().max().into_scalar::<f32>();
    let alone = network.forward(&parameters, &batch, mode).unwrap();
    let guide = Some(Guide::Teacher { hidden: &taught.hidden, own: 1.0 });
    let bound = network.forward_guided(&parameters, &batch, mode, None, guide).unwrap();
    let [alone, bound, right] = [alone, bound, taught].map(|forward| most(&forward.hidden));
    assert!(alone.is_nan() || alone >= 1e4 * right, "{alone} beside {right}");
    assert!(bound < 100.0 * right, "{bound} beside {right}");
}

/// Without a teacher, what layers read is held within bounds, and what lay beyond them is a loss with a slope.
#[test]
fn bounds_hold_what_layers_read_and_tell_what_lay_beyond() {
    let model = replaced("bert-classify", &all(24, false, None));
    let golden = fixture("bert-classify").1;
    let device = Device::flex().autodiff();
    let longest = golden.sequences.iter().map(|s| s.ids.len()).max().unwrap();
    let batch = PaddedBatch::new(&golden.sequences, longest, &device);
    let network = Network::new(&model.architecture);
    let mode = Mode { capture: Capture { hidden: true, attention: false }, ..Mode::default() };
    let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let free = network.forward(&parameters, &batch, mode).unwrap();
    let largest = |x: &Tensor<3>| x.clone().abs().max().into_scalar::<f32>();
    let width = model.architecture.hidden;
    let bounds = |of: f32| -> Vec<Tensor<2>> {
        let plain = Device::flex();
        free.hidden.iter().map(|x| Tensor::full([1, width], of * largest(x), &plain)).collect()
    };
    // Wide bounds change nothing and cost nothing.
    let (wide, narrow) = (bounds(1.001), bounds(0.25));
    let beyond = Beyond::default();
    let guide = Some(Guide::Bounds { most: &wide, beyond: &beyond });
    let found = network.forward_guided(&parameters, &batch, mode, None, guide).unwrap();
    let far = (found.output - free.output.clone()).abs().max().into_scalar::<f32>();
    assert!(far < 1e-6 && beyond.sum().unwrap().into_scalar::<f32>() == 0.0, "{far}");
    // Narrow ones cost, and the cost has a slope for what was cut off.
    let guide = Some(Guide::Bounds { most: &narrow, beyond: &beyond });
    let found = network.forward_guided(&parameters, &batch, mode, None, guide).unwrap();
    let far = (found.output - free.output.clone()).abs().max().into_scalar::<f32>();
    let cost = beyond.sum().unwrap();
    assert!(far > 1e-4 && cost.clone().into_scalar::<f32>() > 0.0, "{far}");
    let gradients = cost.backward();
    let word = parameters.get(&model.architecture.embeddings.word).unwrap().value.grad(&gradients).unwrap();
    assert!(word.abs().max().into_scalar::<f32>() > 0.0);
    assert!(beyond.sum().is_none());
}

fn teaching(layers: f64) -> Teaching {
    Teaching {
        hard: 0.1,
        soft: 0.9 / 225.0,
        divergence: 0.0,
        temperature: 15.0,
        logits: 0.0,
        hidden: layers + 1.0,
        attention: 100.0 * layers,
        attention_divergence: 0.0,
        mapping: Mapping::Uniform,
    }
}

#[test]
fn a_student_learns_what_its_teacher_computes_and_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = tiny::sentiment(folder.path(), 96);
    let teacher = Model::load(&tiny::fixture("bert-classify-text")).unwrap();
    let documents: Vec<String> =
        std::fs::read_to_string(folder.path().join("sentiment.csv")).unwrap().lines().map(str::to_string).collect();
    let layers = teacher.architecture.layers.len() as f64;
    let place = |name: &str| Place { directory: folder.path().join(name), resume: false, overwrite: false };
    let options = TrainOptions {
        steps: Some(200),
        batch: 8,
        dropout: 0.0,
        schedule: sparing_train::Schedule {
            rate: 1e-3,
            curve: sparing_train::Curve::Linear,
            warmup: sparing_train::Warmup::Steps(2),
        },
        freeze: vec!["position_embeddings".to_string()],
        ..TrainOptions::default()
    };
    let general = Transfer {
        teacher: &teacher,
        student: None,
        functions: all(24, false, None),
        texts: TransferTexts::Corpus { documents: &documents, dev: None },
        teaching: teaching(layers),
        guided: 0.2,
        norm_warmup: Some(0.25),
        beginning: Beginning { texts: 32, rows: 512, steps: 50, rate: 2e-3 },
        options: options.clone(),
        seeds: vec![0],
        max_tokens: 24,
        device: Device::flex(),
        place: place("general"),
    };
    general.run(&mut |_, _| true).unwrap();
    let losses: Vec<f64> = sparing_train::read_log(&folder.path().join("general/train.jsonl"))
        .unwrap()
        .into_iter()
        .filter_map(|line| if let sparing_train::Line::Step { loss, .. } = line { Some(loss) } else { None })
        .collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    assert!(mean(&losses[160..]) < 0.9 * mean(&losses[..40]), "{losses:?}");
    let student = Model::load(&folder.path().join("general")).unwrap();
    assert_eq!(student.plan.functions, Some(all(24, false, None)));
    let frozen = "bert.embeddings.position_embeddings.weight";
    let table = |model: &Model| {
        let tensor = model.weights.tensor(frozen).unwrap();
        let mut values = vec![0.0; tensor.len()];
        tensor.read(0, &mut values);
        values
    };
    assert!(table(&student) == table(&teacher));
    let other = tiny::bare("bert-classify");
    let job = |student: &Model| {
        let job = Transfer { student: Some(student), place: place("again"), texts: general.texts, ..copy(&general) };
        job.run(&mut |_, _| true)
    };
    job(&student).unwrap();
    assert!(Model::load(&folder.path().join("again")).is_ok());
    let message = job(&other).expect_err("refused").to_string();
    assert!(!message.contains('\n') && (message.contains("the student has")), "{message}");
    drop(data);
}

/// A pre-trained model without a head teaches plain text, its student goes on with a task, and labels alone teach too.
#[test]
fn a_headless_teacher_teaches_text_and_its_student_goes_on_with_a_task() {
    let folder = tempfile::tempdir().unwrap();
    tiny::sentiment(folder.path(), 64);
    let text = std::fs::read_to_string(folder.path().join("sentiment.csv")).unwrap();
    let documents: Vec<String> = text.lines().skip(1).map(str::to_string).collect();
    let table = folder.path().join("named.csv");
    std::fs::write(&table, text.replace(",fine", ",one").replace(",poor", ",two")).unwrap();
    let data = Dataset::table(&table, &Columns::default(), &Select::default()).unwrap();
    let (base, tuned) = (tiny::bare("bert-classify-text"), Model::load(&tiny::fixture("bert-classify-text")).unwrap());
    let layers = tuned.architecture.layers.len() as f64;
    let job = |name: &str| Transfer {
        teacher: &tuned,
        student: None,
        functions: all(24, false, None),
        texts: TransferTexts::Task { train: &data, dev: &data },
        teaching: teaching(layers),
        guided: 0.0,
        norm_warmup: None,
        beginning: Beginning { texts: 16, rows: 64, steps: 5, rate: 2e-3 },
        options: TrainOptions { steps: Some(12), batch: 8, dropout: 0.0, ..TrainOptions::default() },
        seeds: vec![3],
        max_tokens: 24,
        device: Device::flex(),
        place: Place { directory: folder.path().join(name), resume: true, overwrite: false },
    };
    let first = |name: &str| -> f64 {
        let lines = sparing_train::read_log(&folder.path().join(name).join("train.jsonl")).unwrap();
        let loss = |line| if let sparing_train::Line::Step { loss, .. } = line { Some(loss) } else { None };
        let losses: Vec<f64> = lines.into_iter().filter_map(loss).collect();
        assert!(losses.len() == 12 && losses.iter().all(|loss| *loss < 20.0), "{name}: {losses:?}");
        losses[0]
    };
    let message = Transfer { teacher: &base, ..job("none") }.run(&mut |_, _| true).expect_err("refused").to_string();
    assert!(message.contains("no head"), "{message}");
    let texts = TransferTexts::Corpus { documents: &documents, dev: None };
    assert!(Transfer { teacher: &base, texts, guided: 0.5, ..job("general") }.run(&mut |_, _| true).unwrap().complete);
    let bare = LoadOptions { head: Some(HeadChoice::Hidden) };
    let student = Model::load_with(&folder.path().join("general"), &bare).unwrap();
    assert!(Transfer { student: Some(&student), ..job("task") }.run(&mut |_, _| true).unwrap().complete);
    // Not guided at all: the first update reads its own as all others do, and a guided one does not.
    assert!(Transfer { student: Some(&student), guided: 4.0, ..job("guided") }.run(&mut |_, _| true).unwrap().complete);
    assert!(first("task") > 1.02 * first("guided"), "{} {}", first("task"), first("guided"));
    let alone = Teaching { hard: 1.0, soft: 0.0, hidden: 0.0, attention: 0.0, ..teaching(layers) };
    assert!(Transfer { teaching: alone, ..job("alone") }.run(&mut |_, _| true).unwrap().complete);
    assert!(first("alone") < first("task"));
    // A training of another student is neither gone on with nor, finished, taken for one's own.
    let message = job("task").run(&mut |_, _| true).expect_err("refused").to_string();
    assert!(message.contains("subject was") && !message.contains('\n'), "{message}");
    let stopped = &mut |_: usize, event: &Event| !matches!(event, Event::Step { step: 5, .. });
    assert!(!job("stopped").run(stopped).unwrap().complete);
    let message = Transfer { student: Some(&student), ..job("stopped") }.run(&mut |_, _| true).expect_err("refused");
    assert!(!message.to_string().contains('\n'), "{message}");
}

/// A transfer that was stopped, in its guided part and behind it, ends as one that was not.
#[test]
fn a_stopped_transfer_goes_on_to_the_same_student() {
    let folder = tempfile::tempdir().unwrap();
    tiny::sentiment(folder.path(), 64);
    let teacher = Model::load(&tiny::fixture("bert-classify-text")).unwrap();
    let documents: Vec<String> =
        std::fs::read_to_string(folder.path().join("sentiment.csv")).unwrap().lines().map(str::to_string).collect();
    let job = |name: &str| Transfer {
        teacher: &teacher,
        student: None,
        functions: all(24, false, None),
        texts: TransferTexts::Corpus { documents: &documents, dev: None },
        teaching: teaching(teacher.architecture.layers.len() as f64),
        guided: 0.5,
        norm_warmup: None,
        beginning: Beginning { texts: 16, rows: 64, steps: 5, rate: 2e-3 },
        options: TrainOptions { steps: Some(24), batch: 8, dropout: 0.0, ..TrainOptions::default() },
        seeds: vec![3],
        max_tokens: 24,
        device: Device::flex(),
        place: Place { directory: folder.path().join(name), resume: true, overwrite: false },
    };
    assert!(job("whole").run(&mut |_, _| true).unwrap().complete);
    for stop in [5, 17] {
        let mut watch = |_: usize, event: &Event| !matches!(event, Event::Step { step, .. } if *step == stop);
        assert!(!job("broken").run(&mut watch).unwrap().complete);
    }
    assert!(job("broken").run(&mut |_, _| true).unwrap().complete);
    for file in ["train.jsonl", "model.safetensors", "sparing.json"] {
        let [a, b] = ["whole", "broken"].map(|name| std::fs::read(folder.path().join(name).join(file)).unwrap());
        assert!(a == b, "{file} differs");
    }
    // What lies beyond all texts is left out of account, not weighed at random.
    let longest = documents.iter().map(|text| teacher.tokenizer().unwrap().encode(text, None, None).unwrap());
    let longest = longest.map(|encoded| encoded.sequence.ids.len()).max().unwrap();
    assert!((4..24).contains(&longest), "{longest}");
    let student = Model::load(&folder.path().join("whole")).unwrap();
    for layer in &student.architecture.layers {
        let network = layer.attention.network.as_ref().unwrap();
        let (hidden, output) =
            (student.weights.matrix(&network.hidden).unwrap(), student.weights.matrix(&network.output).unwrap());
        assert!(hidden.chunks(24).all(|row| row[longest..].iter().all(|x| *x == 0.0) && row[1] != 0.0));
        assert!(output[longest * 24..].iter().all(|x| *x == 0.0) && output[24] != 0.0);
    }
}

fn copy<'a>(job: &Transfer<'a>) -> Transfer<'a> {
    Transfer {
        teacher: job.teacher,
        student: job.student,
        functions: job.functions.clone(),
        texts: job.texts,
        teaching: job.teaching,
        guided: job.guided,
        norm_warmup: job.norm_warmup,
        beginning: job.beginning,
        options: job.options.clone(),
        seeds: job.seeds.clone(),
        max_tokens: job.max_tokens,
        device: job.device.clone(),
        place: job.place.clone(),
    }
}
