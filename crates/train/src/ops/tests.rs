//! Every operation, forward and backward, against Burn's own.

use super::*;
use crate::network::{Capture, Forward, Mode, Network};
use crate::{PaddedBatch, Parameters};
use burn::tensor::activation::{gelu, relu, softmax};
use burn::tensor::module::{embedding, layer_norm};
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_kernels::attention::Span;
use sparing_kernels::training::Dropout;
use sparing_kernels::{Activation, Format, isa};
use sparing_model::{HeadRows, Model, Sequence};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut random = crate::random::Random::new(seed);
    (0..len).map(|_| random.uniform() as f32 * 2.0 - 1.0).collect()
}

pub(crate) fn leaf(seed: u64, shape: [usize; 2]) -> Tensor<2> {
    let data = TensorData::new(numbers(seed, shape[0] * shape[1]), shape);
    Tensor::from_data(data, &Device::flex().autodiff()).require_grad()
}

pub(crate) fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor.without_autodiff().try_into_vec_as::<f32>().unwrap()
}

/// The result and the gradient of every input, where the result is pulled in a fixed direction.
fn run<const N: usize>(shapes: [[usize; 2]; N], f: &dyn Fn([Tensor<2>; N]) -> Tensor<2>) -> Vec<Vec<f32>> {
    let inputs: [Tensor<2>; N] = std::array::from_fn(|i| leaf(i as u64 + 1, shapes[i]));
    let out = f(inputs.clone());
    let pull = TensorData::new(numbers(99, out.shape().num_elements()), out.dims());
    let mut gradients = (out.clone() * Tensor::from_data(pull, &Device::flex())).sum().backward();
    let found = inputs.into_iter().map(|input| values(input.grad_remove(&mut gradients).unwrap()));
    std::iter::once(values(out)).chain(found.collect::<Vec<_>>()).collect()
}

pub(crate) fn compare<const N: usize>(
    what: &str,
    shapes: [[usize; 2]; N],
    fast: &dyn Fn([Tensor<2>; N]) -> Tensor<2>,
    slow: &dyn Fn([Tensor<2>; N]) -> Tensor<2>,
) {
    let (fast, slow) = (run(shapes, fast), run(shapes, slow));
    for (which, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
        assert_eq!(fast.len(), slow.len(), "{what} {which}");
        let far = fast.iter().zip(slow).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f32::max);
        assert!(far < 2e-5, "{what} {which}: {far:e}");
    }
}

pub(crate) fn map(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>) -> Tensor<2> {
    x.matmul(weight.transpose()) + bias
}

/// The factors of a dropout as a constant.
fn factors(dropout: Dropout, shape: [usize; 2]) -> Tensor<2> {
    let mut factors = vec![0.0; shape[0] * shape[1]];
    dropout.factors(0, &mut factors);
    Tensor::from_data(TensorData::new(factors, shape), &Device::flex())
}

#[test]
fn linear_maps() {
    for [rows, inputs, outputs] in [[1, 1, 1], [37, 19, 70], [150, 64, 33]] {
        let shapes = [[rows, inputs], [outputs, inputs], [1, outputs]];
        compare("linear", shapes, &|[x, w, b]| linear(Format::F32, x, w, Some(b)), &|[x, w, b]| map(x, w, b));
        // A weight that is stored the other way round (GPT-2).
        let shapes = [[rows, inputs], [inputs, outputs]];
        compare("turned", shapes, &|[x, w]| linear(Format::F32, x, w.transpose(), None), &|[x, w]| x.matmul(w));
    }
    let turned = |[a, b]: [Tensor<2>; 2]| a.transpose().matmul(b);
    compare("turned product", [[70, 20], [70, 33]], &|[a, b]| turned_product(a, b), &turned);
    for activation in [Activation::Gelu, Activation::Relu] {
        let shapes = [[41, 20], [50, 20], [1, 50], [20, 50], [1, 20]];
        compare(
            "feed-forward",
            shapes,
            &|[x, u, ub, d, db]| feed_forward(Format::F32, x, (u, Some(ub)), activation, (d, Some(db))),
            &|[x, u, ub, d, db]| {
                let inner = map(x, u, ub);
                map(if activation == Activation::Gelu { gelu(inner) } else { relu(inner) }, d, db)
            },
        );
    }
}

/// The same maps rounded to bf16, each way: as far from the exact ones as eight bits are, wherever the machine rounds at all.
#[test]
fn linear_maps_in_bf16() {
    let close = |what: &str, rounded: Vec<Vec<f32>>, exact: Vec<Vec<f32>>| {
        for (which, (rounded, exact)) in rounded.iter().zip(&exact).enumerate() {
            assert!(distance(rounded, exact) < 0.01, "{what} {which}: {}", distance(rounded, exact));
        }
        assert_eq!(rounded != exact, isa::has_bf16(isa::active()), "{what}");
    };
    for [rows, inputs, outputs] in [[3, 5, 7], [37, 19, 70], [150, 64, 33]] {
        let shapes = [[rows, inputs], [outputs, inputs], [1, outputs]];
        let one = |format| run(shapes, &|[x, w, b]| linear(format, x, w, Some(b)));
        close("linear", one(Format::Bf16), one(Format::F32));
        let shapes = [[rows, inputs], [outputs, inputs], [1, outputs], [inputs, outputs], [1, inputs]];
        let two = |format| {
            run(shapes, &|[x, u, ub, d, db]| feed_forward(format, x, (u, Some(ub)), Activation::Gelu, (d, Some(db))))
        };
        close("feed-forward", two(Format::Bf16), two(Format::F32));
    }
    let (square, one) = ([16, 16], [1, 16]);
    let three = |format| {
        run([[21, 16], [3, 16], square, one, square, one, square, one], &|[x, y, q, qb, k, kb, v, vb]| {
            projections(format, x, Some(y), [(q, Some(qb)), (k, Some(kb)), (v, Some(vb))])
        })
    };
    close("projections", three(Format::Bf16), three(Format::F32));
}

#[test]
fn projections_one_below_the_other() {
    let (rows, width) = (21, 16);
    let square = [width, width];
    let one = [1, width];
    compare(
        "projections",
        [[rows, width], square, one, square, one, square, one],
        &|[x, q, qb, k, kb, v, vb]| projections(Format::F32, x, None, [(q, Some(qb)), (k, Some(kb)), (v, Some(vb))]),
        &|[x, q, qb, k, kb, v, vb]| Tensor::cat(vec![map(x.clone(), q, qb), map(x.clone(), k, kb), map(x, v, vb)], 0),
    );
    compare(
        "projections of some queries",
        [[rows, width], [3, width], square, one, square, one, square, one],
        &|[x, y, q, qb, k, kb, v, vb]| {
            projections(Format::F32, x, Some(y), [(q, Some(qb)), (k, Some(kb)), (v, Some(vb))])
        },
        &|[x, y, q, qb, k, kb, v, vb]| Tensor::cat(vec![map(y, q, qb), map(x.clone(), k, kb), map(x, v, vb)], 0),
    );
}

#[test]
fn norms() {
    let shape = [45, 23];
    let slow = |x: Tensor<2>, w: Tensor<2>, b: Tensor<2>| layer_norm(x, w.reshape([23]), Some(b.reshape([23])), 1e-5);
    let dropout = Dropout::new(4, 0.2);
    compare("norm", [shape, [1, 23], [1, 23]], &|[x, w, b]| norm(x, None, None, w, b, 1e-5), &|[x, w, b]| {
        slow(x, w, b)
    });
    compare(
        "norm of a sum",
        [shape, shape, [1, 23], [1, 23]],
        &|[x, s, w, b]| norm(x, None, Some(s), w, b, 1e-5),
        &|[x, s, w, b]| slow(x + s, w, b),
    );
    compare(
        "norm of a sum after dropout",
        [shape, shape, [1, 23], [1, 23]],
        &|[x, s, w, b]| norm(x, Some(dropout), Some(s), w, b, 1e-5),
        &|[x, s, w, b]| slow(x * factors(dropout, shape) + s, w, b),
    );
}

#[test]
fn elements_and_rows() {
    let shape = [33, 700];
    let dropout = Dropout::new(8, 0.3);
    compare("dropout", [shape], &|[x]| drop(x, dropout), &|[x]| x * factors(dropout, shape));
    compare("gelu", [shape], &|[x]| activate(x, Activation::Gelu), &|[x]| gelu(x));
    compare("softmax", [shape], &|[x]| super::softmax(x), &|[x]| softmax(x, 1));
    compare("log of sums", [shape], &|[x]| log_sums(x), &|[x]| {
        let most = x.clone().detach().max_dim(1);
        (x - most.clone()).exp().sum_dim(1).log() + most
    });
    let at: Arc<[usize]> = Arc::new([3, 0, 3, 9, 1]);
    let indices = || Tensor::<2, Int>::from_data(TensorData::from([[3, 0, 3, 9, 1]]), &Device::flex());
    compare("gather", [[10, 6]], &|[x]| gather(x, at.clone()), &|[x]| embedding(x, indices()).reshape([5, 6]));
    let at: Arc<[usize]> = Arc::new([4, 0, 2]);
    compare("spread", [[3, 6]], &|[x]| spread(x, at.clone(), 5), &|[x]| {
        let row = |i: usize| x.clone().slice([i..i + 1, 0..6]);
        let none = || Tensor::zeros([1, 6], &Device::flex());
        Tensor::cat(vec![row(1), none(), row(2), none(), row(0)], 0)
    });
}

/// Numbers that somebody else holds are not overwritten; those of a part of a tensor neither.
#[test]
fn softmax_in_place_only_where_it_may() {
    let shape = [40, 500];
    let data = numbers(1, shape[0] * shape[1]);
    let fresh = || Tensor::<2>::from_data(TensorData::new(data.clone(), shape), &Device::flex());
    let want = values(softmax(fresh(), 1));
    let near = |got: Tensor<2>, want: &[f32]| {
        assert!(values(got).iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6));
    };
    near(super::softmax(fresh()), &want);
    let held = fresh();
    near(super::softmax(held.clone()), &want);
    assert_eq!(values(held.clone()), data);
    near(super::softmax(held.clone().slice([20..40, 0..500])), &want[20 * 500..]);
    near(super::softmax(held.slice([0..20, 0..500])), &want[..20 * 500]);
    near(super::softmax(fresh().transpose()), &values(softmax(fresh().transpose(), 1)));
}

#[test]
fn attention_of_packed_sequences() {
    let (heads, head_width) = (3, 8);
    let width = heads * head_width;
    for (lengths, causal, drops) in [(vec![5, 9], false, false), (vec![20, 1, 33], true, true)] {
        let total: usize = lengths.iter().sum();
        let mut spans = Vec::new();
        for length in &lengths {
            let from = spans.last().map_or(0, |s: &Span| s.keys.end);
            spans.push(Span { queries: from..from + length, keys: from..from + length, ..Span::default() });
        }
        let spans: Arc<[Span]> = spans.into();
        let dropout = drops.then(|| Dropout::new(3, 0.2));
        let shape = Heads { heads, head_width, scale: 0.3, causal };
        let slow = |stacked: Tensor<2>| {
            let [q, k, v] = [0, 1, 2].map(|i| stacked.clone().slice([i * total..(i + 1) * total, 0..width]));
            let mut number = 0;
            let mut rows = Vec::new();
            for span in spans.iter() {
                let n = span.keys.len();
                let columns = (0..heads).map(|head| {
                    let part = |m: &Tensor<2>| {
                        m.clone().slice([span.keys.clone(), head * head_width..(head + 1) * head_width])
                    };
                    let mut hidden = vec![0f32; n * n];
                    for (i, h) in hidden.iter_mut().enumerate() {
                        *h = if causal && i % n > i / n { -1e9 } else { 0.0 };
                    }
                    let hidden = Tensor::<2>::from_data(TensorData::new(hidden, [n, n]), &Device::flex());
                    let mut p = softmax(part(&q).matmul(part(&k).transpose()).mul_scalar(0.3) + hidden, 1);
                    if let Some(dropout) = dropout {
                        let mut factors = vec![0.0; n * n];
                        dropout.factors(number, &mut factors);
                        p = p * Tensor::<2>::from_data(TensorData::new(factors, [n, n]), &Device::flex());
                    }
                    number += n * n;
                    p.matmul(part(&v))
                });
                let columns: Vec<_> = columns.collect();
                rows.push(Tensor::cat(columns, 1));
            }
            Tensor::cat(rows, 0)
        };
        let fast = |x: Tensor<2>| attention(x, shape, spans.clone(), dropout);
        compare("attention", [[3 * total, width]], &|[x]| fast(x), &|[x]| slow(x));
    }
}

/// Models of all families and heads.
pub(crate) fn fixtures() -> Vec<(String, Model)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = paths
        .filter(|path| path.join("golden.json").exists())
        .map(|path| (path.display().to_string(), Model::load(&path).unwrap()))
        .collect();
    assert!(all.len() > 10, "fixtures are there");
    all
}

/// The gradients of all tensors by name, and the result, of a network that reads three short texts.
pub(crate) fn pulled(model: &Model, network: &Network, mode: Mode, device: &Device) -> Vec<(String, Vec<f32>)> {
    let parameters = Parameters::from_weights(&model.weights, &device.clone().autodiff()).unwrap();
    let batch = short_texts(&device.clone().autodiff());
    let out = network.forward(&parameters, &batch, mode).unwrap().output;
    let [count, rows, width] = out.dims();
    // Padding is nobody's business.
    let real = if rows == 1 { out } else { out * batch.mask.clone().float().reshape([count, rows, 1]) };
    let real: Tensor<2> = real.reshape([count * rows, width]);
    gradients_of(&parameters, real)
}

fn short_texts(device: &Device) -> PaddedBatch {
    let ids = |n: u32| (0..n).map(|i| 1 + (i * 7 + n) % 20).collect::<Vec<u32>>();
    let sequences: Vec<Sequence> =
        [5, 9, 1].iter().map(|n| Sequence { ids: ids(*n), types: vec![0; *n as usize] }).collect();
    PaddedBatch::new(&sequences, 12, device)
}

/// The gradients of all tensors by name where a result is pulled in a fixed direction, and the result.
fn gradients_of(parameters: &Parameters, result: Tensor<2>) -> Vec<(String, Vec<f32>)> {
    let [rows, width] = result.dims();
    let pull = TensorData::new(numbers(5, rows * width), [rows, width]);
    let pull = Tensor::from_data(pull, &result.device().without_autodiff());
    let mut gradients = (result.clone() * pull).sum().backward();
    let each = parameters
        .iter()
        .filter_map(|(name, p)| p.value.grad_remove(&mut gradients).map(|g| (name.to_string(), values(g))));
    let mut found: Vec<(String, Vec<f32>)> = each.collect();
    found.push(("output".to_string(), values(result)));
    found
}

/// That two lists of what [`pulled`] finds are the same, up to a share of each tensor's largest number.
pub(crate) fn same(name: &str, fast: &[(String, Vec<f32>)], slow: &[(String, Vec<f32>)], share: f32) {
    assert_eq!(fast.len(), slow.len(), "{name}");
    for ((tensor, fast), (_, slow)) in fast.iter().zip(slow) {
        let size = slow.iter().fold(0f32, |m, x| m.max(x.abs()));
        let far = fast.iter().zip(slow).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far <= share * (0.1 + size), "{name} {tensor}: {far:e} of {size:e}");
    }
}

/// Whole networks: the same result and the same gradients as with Burn's operations, padded and packed.
#[test]
fn networks() {
    let capturing = |hidden, attention| Mode { capture: Capture { hidden, attention }, ..Mode::default() };
    for (name, model) in fixtures() {
        let run = |network: Network, mode: Mode| pulled(&model, &network, mode, &Device::flex());
        let slow = run(Network::reference(&model.architecture), Mode::default());
        let [own, gpu] = [Network::new, Network::as_on_gpu];
        let whole = Mode::default();
        for (network, mode) in [(own, whole), (own, capturing(true, false)), (own, capturing(true, true)), (gpu, whole)]
        {
            same(&name, &run(network(&model.architecture), mode), &slow, 1e-4);
        }
    }
}

/// How far apart two lists of numbers are, as a share of the second one's length.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let length = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| x * x).sum::<f32>().sqrt();
    length(&mut a.iter().zip(b).map(|(a, b)| a - b)) / length(&mut b.iter().copied()).max(0.1)
}

/// Rounded to bf16 on the way into products: eight bits of every factor are left, and no more than that is lost. A gradient may jump
/// where an activation has a corner, or where the largest number is taken.
#[test]
fn networks_in_bf16() {
    for (name, model) in fixtures() {
        let run = |mode: Mode| pulled(&model, &Network::new(&model.architecture), mode, &Device::flex());
        let slow = run(Mode::default());
        let rounded = run(Mode { bf16: true, ..Mode::default() });
        let jumps = name.contains("mobilebert") || model.architecture.head.rows == HeadRows::Max;
        for ((tensor, rounded), (_, slow)) in rounded.iter().zip(&slow) {
            let far = distance(rounded, slow);
            let most = if tensor == "output" { 0.02 } else { [0.1, 0.3][usize::from(jumps)] };
            assert!(far <= most, "{name} {tensor}: {far}");
        }
        if isa::has_bf16(isa::active()) {
            assert_ne!(rounded, slow, "{name}: nothing was rounded");
        }
    }
}

/// Hidden states that are captured without padding are those of padded rows, and so is what flows back through them.
#[test]
fn hidden_states() {
    for (name, model) in fixtures() {
        let run = |network: Network| {
            let device = Device::flex().autodiff();
            let parameters = Parameters::from_weights(&model.weights, &device).unwrap();
            let mode = Mode { capture: Capture { hidden: true, attention: false }, ..Mode::default() };
            let Forward { hidden, present, .. } = network.forward(&parameters, &short_texts(&device), mode).unwrap();
            assert_eq!(hidden.len(), present.len(), "{name}");
            let real = hidden.into_iter().zip(present).map(|(state, present)| {
                let [count, length, width] = state.dims();
                (state * present.float().reshape([count, length, 1])).reshape([count * length, width])
            });
            gradients_of(&parameters, Tensor::cat(real.collect(), 0))
        };
        same(&name, &run(Network::new(&model.architecture)), &run(Network::reference(&model.architecture)), 1e-4);
    }
}
