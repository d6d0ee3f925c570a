//! The optimizer and the losses against numbers of PyTorch 2.15.

use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_train::losses::*;
use sparing_train::{AdamOptions, AdamW, NamedGradients, Parameters};
use std::collections::BTreeMap;

fn close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 2e-6 * w.abs().max(1.0), "{got:?} is not {want:?}");
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.inner().into_data().as_slice::<f32>().unwrap().to_vec()
}

const GRADIENTS: [([f32; 4], [f32; 2]); 3] = [
    ([0.3, -0.6, 1.2, 0.1], [0.4, -0.05]),
    ([-0.2, 0.5, 0.9, 3.0], [2.0, 0.01]),
    ([0.01, 0.02, -0.4, 0.3], [-1.0, 0.5]),
];

fn parameters() -> Parameters {
    let mut parameters = Parameters::empty(&Device::flex().autodiff());
    parameters.insert_values("w.weight", vec![0.5, -0.3, 0.2, 0.8], vec![2, 2]);
    parameters.insert_values("w.bias", vec![0.1, -0.2], vec![2]);
    parameters
}

fn gradients(step: usize) -> NamedGradients {
    let device = Device::flex();
    let (w, b) = GRADIENTS[step];
    let tensor = |values: Vec<f32>, shape: [usize; 2]| Tensor::from_data(TensorData::new(values, shape), &device);
    BTreeMap::from([
        ("w.weight".to_string(), tensor(w.to_vec(), [2, 2])),
        ("w.bias".to_string(), tensor(b.to_vec(), [1, 2])),
    ])
}

#[test]
fn adamw_is_torchs_with_clipping_and_no_decay_of_biases() {
    // torch.optim.AdamW([{w, weight_decay .1}, {b, weight_decay 0}], lr .01), clip_grad_norm_(1).
    let want: [(f32, [f32; 4], [f32; 2]); 3] = [
        (1.436141, [0.4895, -0.2897, 0.1898, 0.7892], [0.09, -0.19]),
        (3.75501, [0.484357, -0.285287, 0.181117, 0.780416], [0.080301, -0.183887]),
        (1.224949, [0.480037, -0.282055, 0.177039, 0.771859], [0.081003, -0.189849]),
    ];
    let options = AdamOptions { weight_decay: 0.1, ..AdamOptions::default() };
    let (mut adam, mut parameters) = (AdamW::new(options, BTreeMap::new()), parameters());
    for (step, (norm, w, b)) in want.iter().enumerate() {
        close(&numbers(adam.update(&mut parameters, gradients(step), 0.01).unwrap()), &[*norm]);
        close(&numbers(parameters.get("w.weight").unwrap().value.clone()), w);
        close(&numbers(parameters.get("w.bias").unwrap().value.clone()), b);
    }
    assert!(parameters.get("w.weight").unwrap().value.is_require_grad());
}

#[test]
fn scales_divide_the_rate_among_tensors() {
    let options = AdamOptions { weight_decay: 0.0, clip: None, ..AdamOptions::default() };
    let mut adam = AdamW::new(options, BTreeMap::from([("w.bias".to_string(), 0.5)]));
    let mut parameters = parameters();
    adam.update(&mut parameters, gradients(0), 0.01).unwrap();
    // The first update of Adam moves everything by its rate.
    close(&numbers(parameters.get("w.weight").unwrap().value.clone()), &[0.49, -0.29, 0.19, 0.79]);
    close(&numbers(parameters.get("w.bias").unwrap().value.clone()), &[0.095, -0.195]);
}

#[test]
fn losses_are_torchs() {
    let device = Device::flex();
    let s = Tensor::<2>::from_floats([[0.2, -1.0, 0.7], [1.5, 0.3, -0.4]], &device);
    let t = Tensor::<2>::from_floats([[0.5, -0.2, 1.1], [2.0, -1.0, 0.1]], &device);
    close(&numbers(cross_entropy(s.clone(), Tensor::<1, Int>::from_ints([2, 1], &device))), &[1.076933]);
    let labels = Tensor::<2>::from_floats([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], &device);
    close(&numbers(binary_cross_entropy(s.clone(), labels)), &[0.797228]);
    close(&numbers(soft_cross_entropy(s.clone(), t.clone(), 3.0)), &[9.580542]);
    close(&numbers(soft_divergence(s.clone(), t.clone(), 3.0)), &[0.151832]);
    close(&numbers(mean_squared(s.clone(), t.clone())), &[0.513333]);
    // Padding does not count: the third column stands for a token that is none.
    let wide = |x: Tensor<2>| x.transpose().reshape([1, 3, 2]);
    let mask = Tensor::<2, burn::tensor::Bool>::from_data(TensorData::new(vec![true, true, false], [1, 3]), &device);
    let seen = mean_squared(s.clone().narrow(1, 0, 2), t.clone().narrow(1, 0, 2));
    close(&numbers(masked_mean_squared(wide(s), wide(t), mask)), &numbers(seen));
}

#[test]
fn attention_losses_leave_padding_out() {
    let device = Device::flex();
    let range = |f: fn(f32) -> f32| -> Tensor<4> {
        let values: Vec<f32> = (0..18).map(|i| 2.0 * f(i as f32)).collect();
        let scores = Tensor::<4>::from_data(TensorData::new(values, [1, 2, 3, 3]), &device);
        burn::tensor::activation::softmax(scores, 3)
    };
    let mask = || Tensor::<2, burn::tensor::Bool>::from_data(TensorData::new(vec![true, true, false], [1, 3]), &device);
    close(&numbers(attention_mean_squared(range(f32::sin), range(f32::cos), mask())), &[0.202668]);
    close(&numbers(attention_divergence(range(f32::sin), range(f32::cos), mask())), &[0.591397]);
}
