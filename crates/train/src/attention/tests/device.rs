//! Every mechanism on the GPU of a build with `wgpu` or `cuda` beside the CPU: what it gives and all gradients.

use super::super::{Input, Kind, Layout, Sizes, catalogue};
use crate::Parameters;
use crate::random::Random;
use burn::tensor::{Device, Tensor, TensorData};

const SIZES: Sizes = Sizes { length: 300, width: 32, attention_width: 32, heads: 2 };
const LENGTHS: [usize; 2] = [300, 201];

fn gpu() -> Device {
    crate::device(if cfg!(feature = "cuda") { "cuda" } else { "wgpu" }).unwrap()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().unwrap()
}

/// The result at real tokens, then the gradients of the rows and of every trained tensor, with their names.
fn found(kind: &Kind, causal: bool, device: &Device) -> Vec<(String, Vec<f32>)> {
    let mut parameters = Parameters::empty(&device.clone().autodiff());
    kind.mechanism().tensors(&SIZES).iter().for_each(|fresh| fresh.insert(&mut parameters, "a", 3));
    let mut random = Random::at(3, &[99]);
    let shape = [LENGTHS.len(), SIZES.length, SIZES.width];
    let rows: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32).collect();
    let x = Tensor::<3>::from_data(TensorData::new(rows, shape), device).autodiff().require_grad();
    let input = Input {
        x: x.clone(),
        lengths: &LENGTHS,
        heads: SIZES.heads,
        causal,
        layout: Layout::of(SIZES.length),
        one_by_one: usize::MAX,
        seed: 3,
        parameters: &parameters,
        prefix: "a",
        known: None,
    };
    let mixed = kind.attend(&input).unwrap();
    // What stands in padding's place is anything, and nobody reads it.
    let groups = LENGTHS.len() * SIZES.heads;
    let real = |group: usize, token: usize| f32::from(u8::from(token < LENGTHS[group / SIZES.heads]));
    let real = (0..groups).flat_map(|group| (0..SIZES.length).map(move |token| real(group, token))).collect();
    let real = Tensor::<3>::from_data(TensorData::new(real, [groups, SIZES.length, 1]), device).autodiff();
    let mixed = mixed * real;
    let mut gradients = (mixed.clone() * mixed.clone()).sum().backward();
    let mut all = vec![("result".to_string(), values(mixed.inner()))];
    all.push(("rows".to_string(), values(x.grad_remove(&mut gradients).unwrap())));
    for (name, parameter) in parameters.iter().filter(|(_, parameter)| parameter.trainable) {
        all.push((name.to_string(), values(parameter.value.grad_remove(&mut gradients).unwrap())));
    }
    all
}

#[test]
fn the_gpu_computes_what_the_cpu_does() {
    let both = |(name, kind): (String, Kind)| [(name.clone(), kind.clone(), false), (name, kind, true)];
    let all = catalogue().unwrap().into_iter().flat_map(both);
    for (name, kind, causal) in all.filter(|(_, kind, causal)| !causal || kind.mechanism().causal()) {
        let (host, device) = (found(&kind, causal, &Device::flex()), found(&kind, causal, &gpu()));
        assert_eq!(host.len(), device.len(), "{name} causal {causal}");
        for ((what, host), (_, device)) in host.iter().zip(&device) {
            let size = host.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            let far = host.iter().zip(device).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(host.len() == device.len() && far < 2e-3 * size, "{name} causal {causal}, {what}: {far} of {size}");
        }
    }
}
