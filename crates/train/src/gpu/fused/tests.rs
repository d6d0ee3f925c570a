//! Every kernel of our own, on the GPU of a build with `wgpu` or `cuda`, beside the same operation on the CPU, which is Burn's.

use crate::gpu::{
    Counted, Looked, Seed, column_most, column_sums, dropout, gelu, linear, lookup, mean_square, norm, product,
    scale_and_shift, softmax, within,
};
use crate::ops::tests::{fixtures, numbers, pulled, same};
use crate::optimizer::{AdamOptions, AdamW};
use crate::{Mode, Network};
use burn::tensor::{DType, Device, Tensor, TensorData};

/// How far a number may be from the CPU's, as a share of the largest: CUDA rounds the f32 that it multiplies to tf32 (10 bits). On an
/// H200 all but gradients of whole networks are within 4e-4.
const FAR: f32 = if cfg!(feature = "cuda") { 1e-3 } else { 2e-4 };

/// The device of this build.
pub(crate) fn gpu() -> Device {
    crate::device(if cfg!(feature = "cuda") { "cuda" } else { "wgpu" }).unwrap()
}

fn on<const D: usize>(device: &Device, seed: u64, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers(seed, shape.iter().product()), shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec_as::<f32>().unwrap()
}

/// The results and all gradients of a function on the GPU and on the CPU, where it is made of Burn's operations.
fn compare<const N: usize, const D: usize>(
    name: &str,
    shapes: [[usize; D]; N],
    run: impl Fn([Tensor<D>; N]) -> Tensor<D>,
) {
    let [host, device] = [Device::flex(), gpu()].map(|device| {
        let inputs: [Tensor<D>; N] =
            std::array::from_fn(|i| on(&device, i as u64 + 1, shapes[i]).autodiff().require_grad());
        let out = run(inputs.clone());
        let pull = on(&device, 99, out.dims());
        let mut gradients = (out.clone() * pull).sum().backward();
        let mut found = vec![values(out.inner())];
        found.extend(inputs.iter().map(|input| values(input.grad_remove(&mut gradients).unwrap())));
        found
    });
    for (i, (host, device)) in host.iter().zip(&device).enumerate() {
        let size = host.iter().fold(1f32, |most, x| most.max(x.abs()));
        let far = host.iter().zip(device).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < FAR * size, "{name}, {i}: {far} of {size}");
        assert_eq!(host.len(), device.len(), "{name}, {i}");
    }
}

#[test]
fn elements() {
    compare("gelu", [[33, 70]], |[x]| gelu(x.mul_scalar(4.0)));
    compare("softmax", [[3, 2, 11, 7]], |[x]| softmax(x.mul_scalar(5.0)));
    compare("wide softmax", [[2, 1, 3, 300]], |[x]| softmax(x.mul_scalar(5.0)));
}

#[test]
fn norms_and_sums() {
    for [rows, width] in [[1, 23], [45, 23], [130, 384]] {
        compare("norm", [[rows, width], [1, width], [1, width]], |[x, w, b]| norm(x, w, b, 1e-5));
        compare("scale", [[rows, width], [1, width], [1, width]], |[x, w, b]| scale_and_shift(x, w, b));
        compare("sums", [[rows, width]], |[x]| {
            let [rows, width] = x.dims();
            linear(x.clone(), x.clone().slice([0..1, 0..width]), None).reshape([1, rows])
        });
    }
    for rows in [1, 31, 64, 65, 1000, 9000] {
        let [host, device] = [Device::flex(), gpu()].map(|device| values(column_sums(on(&device, 3, [rows, 140]))));
        let far = host.iter().zip(&device).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-2, "{rows}: {far}");
    }
}

#[test]
fn differences_and_bounds() {
    let constant = |x: &Tensor<2>, values: Vec<f32>, shape: [usize; 2]| {
        Tensor::<2>::from_data(TensorData::new(values, shape), &x.device().without_autodiff())
    };
    let tokens = |x: &Tensor<2>| constant(x, vec![1.0, 1.0, 0.0, 1.0, 0.0, 0.0], [2, 3]);
    compare("rows", [[6, 70]; 2], |[a, b]| mean_square(a.clone(), b, tokens(&a), Counted::Rows));
    compare("pairs", [[24, 3]; 2], |[a, b]| mean_square(a.clone(), b, tokens(&a), Counted::Pairs { heads: 4 }));
    compare("bounds", [[300, 3]], |[x]| within(x.clone(), constant(&x, vec![0.5, 0.1, 2.0], [1, 3])));
    for rows in [1, 65, 1000] {
        let [host, device] = [Device::flex(), gpu()].map(|device| values(column_most(on(&device, 3, [rows, 140]))));
        assert_eq!(host, device);
    }
}

/// Gradients of a table whose rows are looked up once, often or never.
#[test]
fn looked_up_rows() {
    for (rows, ids) in [(3, vec![1]), (2, vec![1; 700]), (40, (0..1000).map(|i| i * i % 31).collect::<Vec<i32>>())] {
        compare("lookup", [[rows, 5]], |[table]| {
            let looked = Looked::new(&table, ids.clone());
            lookup(table, &looked)
        });
    }
}

#[test]
fn products() {
    compare("linear", [[48, 32], [64, 32], [1, 64]], |[x, w, b]| linear(x, w, Some(b)));
    compare("product", [[2, 3, 17, 32], [2, 3, 32, 19]], |[a, b]| product(a, b));
}

/// Linear maps of bytes, beside the same rounding on the CPU; and that a device without them says so.
#[test]
fn products_of_bytes() {
    for [rows, inputs, outputs] in [[64, 64, 64], [256, 384, 1536], [80, 1536, 384]] {
        let [x, w, b] = [(1, [rows, inputs]), (2, [outputs, inputs]), (3, [1, outputs])]
            .map(|(seed, shape)| on::<2>(&gpu(), seed, shape));
        let found = super::byte_linear(&x, &w, Some(&b));
        assert_eq!(found.is_some(), cfg!(feature = "cuda"));
        let Some(found) = found else { return };
        let rounded = |matrix: Tensor<2>| {
            let width = matrix.dims()[1];
            let row = |row: &[f32]| {
                let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
                row.iter().map(|x| (x * (127.0 / most)).round() * (most / 127.0)).collect::<Vec<f32>>()
            };
            values(matrix).chunks(width).flat_map(row).collect::<Vec<f32>>()
        };
        let [host_x, host_w] = [x.clone(), w.clone()].map(rounded);
        let host = |values, shape| Tensor::<2>::from_data(TensorData::new(values, shape), &Device::flex());
        let wanted = linear(host(host_x, [rows, inputs]), host(host_w, [outputs, inputs]), None);
        let wanted = values(wanted + host(values(b.clone()), [1, outputs]));
        let found = values(found);
        let size = wanted.iter().fold(1f32, |most, x| most.max(x.abs()));
        let far = wanted.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // A number halfway between two bytes may go either way.
        assert!(far < 5e-4 * size, "{rows} x {inputs} x {outputs}: {far} of {size}");
        let narrow = super::byte_linear(&x.cast(DType::BF16), &w, None).unwrap();
        assert_eq!((narrow.dims(), narrow.dtype()), ([rows, outputs], DType::BF16));
    }
    // Sides that tensor cores do not take.
    let [x, w] = [[64, 40], [64, 40]].map(|shape| on::<2>(&gpu(), 1, shape));
    assert!(super::byte_linear(&x, &w, None).is_none());
}

/// What is dropped is the same on the way back; of 64,000 elements a tenth is dropped, to four deviations.
#[test]
fn dropped_elements() {
    let x = Tensor::<2>::ones([64, 1000], &gpu()).autodiff().require_grad();
    let seed = |seed: u64| Seed::new(&gpu(), seed);
    let out = dropout(x.clone(), 0.1, &seed(7), 0);
    let mut gradients = out.clone().sum().backward();
    let (out, back) = (values(out.inner()), values(x.grad_remove(&mut gradients).unwrap()));
    assert_eq!(out, back);
    assert!(out.iter().all(|x| *x == 0.0 || (x - 1.0 / 0.9).abs() < 1e-6));
    let share = out.iter().filter(|x| **x == 0.0).count() as f64 / 64_000.0;
    let deviation = (0.1 * 0.9 / 64_000.0_f64).sqrt();
    assert!((share - 0.1).abs() < 4.0 * deviation, "{share}");
    // Neither the next dropout of a pass nor another seed's drops the same.
    for (seed, number) in [(seed(7), 1), (seed(8), 0)] {
        let other = values(dropout(Tensor::<2>::ones([64, 1000], &gpu()), 0.1, &seed, number));
        let both = out.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count() as f64 / 64_000.0;
        let deviation = (0.01 * 0.99 / 64_000.0_f64).sqrt();
        assert!((both - 0.01).abs() < 4.0 * deviation, "{both}");
    }
}

#[test]
fn updates() {
    let [host, device] = [Device::flex(), gpu()].map(|device| {
        let mut parameters = crate::Parameters::empty(&device.clone().autodiff());
        // More tensors than one launch lays end to end.
        for i in 0..10 {
            parameters.insert_values(&format!("w{i}"), numbers(i, 20 * (i as usize + 1)), vec![20, i as usize + 1]);
        }
        let scales = std::collections::BTreeMap::from([("w3".to_string(), 0.5)]);
        let mut adam = AdamW::new(AdamOptions::default(), scales);
        for step in 0..4 {
            let gradients = (0..10).map(|i| (format!("w{i}"), on(&device, 50 + step + i, [20, i as usize + 1])));
            adam.update(&mut parameters, gradients.collect(), 0.1).unwrap();
        }
        parameters.iter().flat_map(|(_, p)| values(p.value.clone().inner())).collect::<Vec<f32>>()
    });
    let far = host.iter().zip(&device).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(host.len() == device.len() && far < 1e-5, "{far}");
}

/// Whole networks of all families: results and gradients as on the CPU. Tensor cores round to tf32.
#[test]
fn networks() {
    let share = if cfg!(feature = "cuda") { 5e-2 } else { 1e-3 };
    for (name, model) in fixtures() {
        let run = |device: &Device| pulled(&model, &Network::new(&model.architecture), Mode::default(), device);
        same(&name, &run(&gpu()), &run(&Device::flex()), share);
    }
}
