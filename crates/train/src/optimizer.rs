//! AdamW (Loshchilov and Hutter 2017, <https://arxiv.org/abs/1711.05101>) over named tensors.

use crate::Parameters;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use sparing_model::{Error, OwnedTensor, Weights};
use std::collections::BTreeMap;

/// How to update.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamOptions {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root.
    pub epsilon: f64,
    /// Share of a weight that a step with rate 1 takes away; biases and norms are spared.
    pub weight_decay: f64,
    /// The gradients' global norm is scaled down to this.
    pub clip: Option<f64>,
}

impl Default for AdamOptions {
    fn default() -> Self {
        AdamOptions { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01, clip: Some(1.0) }
    }
}

/// Gradients by tensor name, off the autodiff device.
pub type NamedGradients = BTreeMap<String, Tensor<2>>;

/// AdamW and its state.
pub struct AdamW {
    options: AdamOptions,
    step: u64,
    moments: BTreeMap<String, Moments>,
    /// Factor of the rate by name; 1 where there is none.
    scales: BTreeMap<String, f64>,
}

struct Moments {
    first: Tensor<2>,
    second: Tensor<2>,
}

impl AdamW {
    /// An optimizer that has seen nothing yet. `scales`: factor of the rate by tensor name, 1 where there is none.
    pub fn new(options: AdamOptions, scales: BTreeMap<String, f64>) -> AdamW {
        AdamW { options, step: 0, moments: BTreeMap::new(), scales }
    }

    /// Updates done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// One update with this rate. Returns the gradients' norm before clipping, `[1]`, still on the device.
    ///
    /// Tensors without a gradient stay as they are: a layer that was not used has nothing to learn and nothing to decay.
    pub fn update(&mut self, parameters: &mut Parameters, mut gradients: NamedGradients, rate: f64) -> Tensor<1> {
        let norm = global_norm(&gradients, parameters.device());
        let o = self.options;
        let clip = o.clip.map(|limit| (norm.clone().add_scalar(1e-6).recip() * limit).clamp_max(1.0));
        self.step += 1;
        let correction1 = 1.0 - o.beta1.powf(self.step as f64);
        let correction2 = 1.0 - o.beta2.powf(self.step as f64);
        for (name, parameter) in parameters.iter_mut() {
            let Some(mut g) = gradients.remove(name) else { continue };
            if let Some(clip) = &clip {
                g = g * clip.clone().reshape([1, 1]);
            }
            let rate = rate * self.scales.get(name).copied().unwrap_or(1.0);
            let square = (g.clone() * g.clone()).mul_scalar(1.0 - o.beta2);
            let g = g.mul_scalar(1.0 - o.beta1);
            let (first, second) = match self.moments.remove(name) {
                Some(m) => (m.first.mul_scalar(o.beta1) + g, m.second.mul_scalar(o.beta2) + square),
                None => (g, square),
            };
            let root = second.clone().sqrt().div_scalar(correction2.sqrt()).add_scalar(o.epsilon);
            let change = (first.clone() / root).mul_scalar(rate / correction1);
            let mut value = parameter.value.clone().inner();
            if o.weight_decay != 0.0 && decays(name, &parameter.shape) {
                value = value.mul_scalar(1.0 - rate * o.weight_decay);
            }
            parameter.value = (value - change).autodiff().require_grad();
            self.moments.insert(name.to_string(), Moments { first, second });
        }
        norm
    }

    /// The state as tensors, to be saved.
    pub(crate) fn to_tensors(&self) -> Result<Vec<OwnedTensor>, Error> {
        let mut tensors = Vec::with_capacity(2 * self.moments.len());
        for (name, moments) in &self.moments {
            tensors.push(to_owned(&format!("first/{name}"), &moments.first)?);
            tensors.push(to_owned(&format!("second/{name}"), &moments.second)?);
        }
        Ok(tensors)
    }

    /// Takes the state back from tensors, bit by bit.
    pub(crate) fn restore(&mut self, weights: &Weights, step: u64, device: &Device) -> Result<(), Error> {
        let device = device.clone().inner();
        self.moments.clear();
        for full in weights.names() {
            let Some(name) = full.strip_prefix("first/") else { continue };
            let first = from_weights(weights, full, &device)?;
            let second = from_weights(weights, &format!("second/{name}"), &device)?;
            self.moments.insert(name.to_string(), Moments { first, second });
        }
        self.step = step;
        Ok(())
    }
}

/// Biases and norms are not pulled towards zero.
fn decays(name: &str, shape: &[usize]) -> bool {
    shape.len() > 1 && !name.ends_with("bias")
}

/// The norm of all gradients as one vector, `[1]`.
fn global_norm(gradients: &NamedGradients, device: &Device) -> Tensor<1> {
    let squares: Vec<Tensor<1>> = gradients.values().map(|g| (g.clone() * g.clone()).sum()).collect();
    if squares.is_empty() {
        return Tensor::zeros([1], &device.clone().inner());
    }
    Tensor::cat(squares, 0).sum().sqrt()
}

/// A tensor's numbers in memory.
pub(crate) fn to_owned(name: &str, tensor: &Tensor<2>) -> Result<OwnedTensor, Error> {
    let shape = tensor.dims();
    let data = tensor.clone().inner().into_data();
    let values = data.as_slice::<f32>().map_err(|e| Error::new(format!("tensor \"{name}\" cannot be read ({e:?})")))?;
    Ok(OwnedTensor::f32(name, &shape, values))
}

/// A saved matrix on the device.
pub(crate) fn from_weights(weights: &Weights, name: &str, device: &Device) -> Result<Tensor<2>, Error> {
    let tensor = weights.tensor(name)?;
    let [rows, columns] = *tensor.shape else {
        return Err(Error::new(format!(
            "tensor \"{name}\" of the checkpoint has {} axes, not two",
            tensor.shape.len()
        )));
    };
    let mut values = vec![0.0; tensor.len()];
    tensor.read(0, &mut values);
    Ok(Tensor::from_data(TensorData::new(values, [rows, columns]), device))
}
