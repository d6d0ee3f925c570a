//! Every fixture of the engine through Burn: against the reference's numbers, against the engine, and back to the file.

#[path = "common/fixtures.rs"]
mod fixtures;

use burn::tensor::Device;
use fixtures::{calibrated, distance, fixture, fixtures};
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Executor, Family, HeadRows, OwnedTensor, Precision, Sequence, Wanted, Weights};
use sparing_train::{BurnExecutor, Capture, Mode, Network, PaddedBatch, Parameters};

/// All sequences of a fixture in one padded batch, with more padding than any needs.
fn padded(sequences: &[Sequence], device: &Device) -> PaddedBatch {
    let longest = sequences.iter().map(|s| s.ids.len()).max().unwrap();
    PaddedBatch::new(sequences, longest + 3, device)
}

/// The real rows of `[batch, rows, width]`.
fn real_rows(cube: burn::Tensor<3>, lengths: &[usize]) -> Vec<Vec<f32>> {
    let [_, rows, width] = cube.dims();
    let values = cube.into_data().try_to_vec::<f32>().unwrap();
    let keep = |length: usize| if rows == 1 { 1 } else { length };
    let each = values.chunks_exact(rows * width).zip(lengths);
    each.map(|(values, length)| values[..keep(*length) * width].to_vec()).collect()
}

#[test]
fn every_fixture_matches_the_reference_and_the_engine() {
    let device = Device::flex();
    let mut failed = Vec::new();
    for (name, model, golden) in fixtures() {
        let options = Options { threads: 2, precision: Some(Precision::F32), ..Options::default() };
        let engine = Engine::compile(&model, &options).unwrap();
        let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
        let network = Network::new(&model.architecture);
        let batch = padded(&golden.sequences, &device);
        let forward = network.forward(&parameters, &batch, Mode::default()).unwrap();
        let executor = BurnExecutor::new(&model.architecture, &parameters);
        let run = |executor: &dyn Executor, wanted: Wanted| {
            executor.run(&Batch { sequences: golden.sequences.clone(), wanted }).unwrap()
        };
        let (head, hidden) = (run(&executor, Wanted::Head), run(&executor, Wanted::Hidden));
        let (engine_head, engine_hidden) = (run(&engine, Wanted::Head), run(&engine, Wanted::Hidden));
        assert_eq!((head.width, hidden.width), (engine_head.width, engine_hidden.width), "{name}");
        let mut worst = |what: &str, got: &[Vec<f32>], want: &[Vec<f32>]| {
            let far = distance(got, want);
            if far > 1e-4 {
                failed.push(format!("{name} ({what}): {far:e}"));
            }
        };
        let output = real_rows(forward.output, &batch.lengths);
        let last = network.encode(&parameters, &batch, Mode::default(), None).unwrap().last;
        let last = real_rows(last, &batch.lengths);
        worst("padded head", &output, &golden.outputs);
        worst("padded hidden, engine", &last, &engine_hidden.sequences);
        worst("executor head", &head.sequences, &golden.outputs);
        worst("executor head, engine", &head.sequences, &engine_head.sequences);
        worst("executor hidden, engine", &hidden.sequences, &engine_hidden.sequences);
        if !golden.hidden.is_empty() {
            worst("padded hidden", &last, &golden.hidden);
        }
        if model.architecture.head.rows == HeadRows::All {
            let rows: Vec<Vec<usize>> = golden.sequences.iter().map(|s| vec![s.ids.len() - 1, 0]).collect();
            let (got, want) = (run(&executor, Wanted::Rows(rows.clone())), run(&engine, Wanted::Rows(rows)));
            worst("rows", &got.sequences, &want.sequences);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn weights_come_back_bit_by_bit() {
    for (name, model, _) in fixtures() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
            let tensors = parameters.to_tensors().unwrap();
            let floats = model.weights.names().filter(|n| parameters.contains(n)).count();
            assert_eq!(tensors.len(), floats);
            for tensor in &tensors {
                let stored = model.weights.tensor(&tensor.name).unwrap();
                let mut values = vec![0.0; stored.len()];
                stored.read(0, &mut values);
                let want = OwnedTensor::f32(&tensor.name, stored.shape, &values);
                assert!(*tensor == want, "{name}: {}", tensor.name);
            }
            // What was trained is loadable again.
            let again = Weights::from_tensors(&tensors).unwrap();
            model.architecture.check(&again).unwrap();
        }
    }
}

#[test]
fn captures_are_one_per_layer_and_probabilities_ignore_padding() {
    for (name, model, golden) in fixtures() {
        let device = Device::flex();
        let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
        let batch = padded(&golden.sequences, &device);
        let mode = Mode { capture: Capture { hidden: true, attention: true }, ..Mode::default() };
        let forward = Network::new(&model.architecture).forward(&parameters, &batch, mode).unwrap();
        let layers = model.architecture.layers.len();
        assert_eq!((forward.hidden.len(), forward.attention.len()), (layers + 1, layers), "{name}");
        for probabilities in forward.attention {
            let probabilities = probabilities.unwrap();
            let [_, heads, length, _] = probabilities.dims();
            let values = probabilities.into_data().try_to_vec::<f32>().unwrap();
            for (number, real) in batch.lengths.iter().enumerate() {
                for head in 0..heads {
                    for query in 0..*real {
                        let at = ((number * heads + head) * length + query) * length;
                        let seen: f32 = values[at..at + real].iter().sum();
                        let padding: f32 = values[at + real..at + length].iter().sum();
                        assert!((seen - 1.0).abs() < 1e-4 && padding == 0.0, "{name}: {seen} {padding}");
                    }
                }
            }
        }
    }
}

/// A number to differentiate: outputs weighted unevenly, padding left out.
fn objective(network: &Network, parameters: &Parameters, batch: &PaddedBatch) -> burn::Tensor<1> {
    let output = network.forward(parameters, batch, Mode::default()).unwrap().output;
    let [count, rows, width] = output.dims();
    let weight = |number: usize, row: usize, column: usize| {
        let real = rows == 1 || row < batch.lengths[number];
        if real { ((number * 7 + row * 3 + column * 5) % 11) as f32 / 11.0 - 0.4 } else { 0.0 }
    };
    let mut weights = Vec::with_capacity(count * rows * width);
    for number in 0..count {
        for row in 0..rows {
            weights.extend((0..width).map(|column| weight(number, row, column)));
        }
    }
    let weights = burn::tensor::TensorData::new(weights, [count, rows, width]);
    (output.tanh() * burn::Tensor::<3>::from_data(weights, &Device::flex())).sum()
}

/// Gradients by autodiff against those by differences, along a direction of each tensor at a time.
fn gradients_agree(name: &str, plan: &str) {
    let (model, golden) = fixture(name);
    let calibration = plan.starts_with("graded").then(|| calibrated(&model, &golden));
    let network = Network::new(&model.architecture).with_attention(&plan.parse().unwrap(), calibration).unwrap();
    let device = Device::flex().autodiff();
    let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let batch = padded(&golden.sequences, &device);
    let loss = objective(&network, &parameters, &batch);
    let mut grads = loss.backward();
    let mut tried = 0;
    let names: Vec<String> = parameters.iter().map(|(name, _)| name.to_string()).collect();
    for tensor in &names {
        let Some(gradient) = parameters.get(tensor).unwrap().value.grad_remove(&mut grads) else { continue };
        let gradient = gradient.into_data().try_to_vec::<f32>().unwrap();
        let length = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        assert!(length.is_finite(), "{name}: {tensor}");
        // Along the gradient itself the slope is its length. Too flat a tensor drowns in rounding.
        if length < 1e-2 {
            continue;
        }
        let value = |step: f64| {
            let mut moved = parameters.without_autodiff();
            let old = moved.get(tensor).unwrap();
            let shape = old.shape.clone();
            let mut values = old.value.clone().into_data().try_to_vec::<f32>().unwrap();
            for (value, g) in values.iter_mut().zip(&gradient) {
                *value += (step * f64::from(*g) / length) as f32;
            }
            moved.insert_values(tensor, values, shape);
            f64::from(objective(&network, &moved, &batch).into_scalar::<f32>())
        };
        // A long step sees curvature, a short one rounding, and at a kink (ReLU) the two sides differ: a right gradient
        // agrees with one of them.
        let here = value(0.0);
        let slopes = [2e-3, 5e-4, 1e-4].map(|step| {
            let (up, down) = ((value(step) - here) / step, (here - value(-step)) / step);
            [(up + down) / 2.0, up, down]
        });
        let near = |slope: &f64| (slope - length).abs() < 0.01 * length + 2e-3;
        assert!(slopes.iter().flatten().any(near), "{name}: {tensor}: {slopes:?} by differences, {length} by autodiff");
        tried += 1;
    }
    assert!(tried * 2 > names.len(), "{name}: only {tried} of {} tensors have a slope", names.len());
}

#[test]
fn gradients_of_bert() {
    gradients_agree("bert-classify", "exact");
}

/// Choices have no gradient, and small steps do not change them.
#[test]
fn gradients_with_economies() {
    for plan in ["exact,drop=0.9", "exact,skip=1.1", "exact,drop=0.8,skip=1.1", "graded:0.97,strict"] {
        gradients_agree("bert-classify", plan);
    }
}

#[test]
fn gradients_of_gpt2() {
    gradients_agree("gpt2-token", "exact");
}

#[test]
fn gradients_of_xlnet() {
    gradients_agree("xlnet-classify", "exact");
}

#[test]
fn gradients_of_the_others() {
    for name in ["mobilebert-classify", "longformer-answer", "mpnet-token", "albert-classify", "bert-mlm"] {
        gradients_agree(name, "exact");
    }
}

#[test]
fn frozen_tensors_have_no_gradient() {
    let (model, golden) = fixture("bert-classify");
    let device = Device::flex().autodiff();
    let mut parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    parameters.set_trainable(|name| name.starts_with("classifier"));
    let batch = padded(&golden.sequences, &device);
    let mut grads = objective(&Network::new(&model.architecture), &parameters, &batch).backward();
    for (name, parameter) in parameters.iter() {
        let has = parameter.value.grad_remove(&mut grads).is_some();
        assert_eq!(has, name.starts_with("classifier"), "{name}");
    }
}

#[test]
fn dropout_follows_the_seed() {
    let (model, golden) = fixture("bert-classify");
    let device = Device::flex();
    let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let batch = padded(&golden.sequences, &device);
    let network = Network::new(&model.architecture);
    let run = |seed: Option<u64>, dropout: f64| {
        seed.iter().for_each(|seed| device.seed(*seed));
        let forward = network.forward(&parameters, &batch, Mode { dropout, ..Mode::default() }).unwrap();
        forward.output.into_data().try_to_vec::<f32>().unwrap()
    };
    let exact = run(None, 0.0);
    let (one, two, three) = (run(Some(1), 0.1), run(Some(1), 0.1), run(Some(2), 0.1));
    assert_eq!(one, two);
    assert!(one != three && one != exact);
}

#[test]
fn fresh_heads_and_whole_models() {
    for (name, model, golden) in fixtures() {
        let device = Device::flex();
        // Every tensor the architecture names, with the shape it has in the file.
        let fresh = Parameters::random(&model.architecture, 5, &device);
        let weights = Weights::from_tensors(&fresh.to_tensors().unwrap()).unwrap();
        model.architecture.check(&weights).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (tensor, parameter) in fresh.iter() {
            if model.weights.contains(tensor) {
                assert_eq!(parameter.shape, model.weights.tensor(tensor).unwrap().shape, "{name}: {tensor}");
            }
        }
        let batch = padded(&golden.sequences, &device);
        Network::new(&model.architecture).forward(&fresh, &batch, Mode::default()).unwrap();
    }
    let (model, _) = fixture("bert-classify");
    assert_eq!(model.architecture.family, Family::Bert);
    let mut parameters = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
    assert!(parameters.init_head(&model.architecture, 1).unwrap().is_empty());
    parameters.remove("classifier.weight");
    assert_eq!(parameters.init_head(&model.architecture, 1).unwrap(), ["classifier.weight"]);
}
