//! AdamW (Loshchilov and Hutter 2017, <https://arxiv.org/abs/1711.05101>) over named tensors.

mod flat;
mod host;

use crate::Parameters;
use crate::gpu::Step;
use burn::tensor::{Device, Tensor, TensorData};
use flat::Flat;
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
    /// On a GPU, the tensors of the last update and their moments.
    flat: Option<Flat>,
    /// Factor of the rate by name; 1 where there is none.
    scales: BTreeMap<String, f64>,
    /// On the CPU, update in one pass over memory.
    fused: bool,
    layout: u64,
}

/// Parameters and moments as they were after so many updates.
pub(crate) struct Copies {
    numbers: [Tensor<1>; 3],
    step: u64,
}

/// Means of gradients and of their squares.
enum Moments {
    Device(Box<[Tensor<2>; 2]>),
    Host { first: Vec<f32>, second: Vec<f32>, shape: [usize; 2] },
}

impl AdamW {
    /// An optimizer that has seen nothing yet. `scales`: factor of the rate by tensor name, 1 where there is none.
    pub fn new(options: AdamOptions, scales: BTreeMap<String, f64>) -> AdamW {
        AdamW { options, step: 0, moments: BTreeMap::new(), flat: None, scales, fused: true, layout: 0 }
    }

    /// Updates done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// One update with this rate. Returns the gradients' norm before clipping, `[1]`, still on the device.
    ///
    /// Tensors without a gradient stay as they are: a layer that was not used has nothing to learn and nothing to decay.
    pub fn update(
        &mut self,
        parameters: &mut Parameters,
        gradients: NamedGradients,
        rate: f64,
    ) -> Result<Tensor<1>, Error> {
        self.step += 1;
        self.apply(parameters, gradients, rate)
    }

    /// What the next update's numbers are; it is counted as done.
    pub(crate) fn advance(&mut self, rate: f64) -> Step {
        self.step += 1;
        Step::new(&self.options, self.corrections(), rate)
    }

    /// Another number whenever the parameters have come to lie elsewhere.
    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    /// Parameters and moments as they are now.
    pub(crate) fn copies(&self) -> Option<Copies> {
        self.flat.as_ref().map(|flat| Copies { numbers: flat.copies(), step: self.step })
    }

    /// Goes back to what [`AdamW::copies`] found, where it is.
    pub(crate) fn write_back(&mut self, copies: &Copies) {
        if let Some(flat) = &self.flat {
            flat.write_back(&copies.numbers);
            self.step = copies.step;
        }
    }

    /// The same elsewhere: nothing of what lies here is read any more.
    pub(crate) fn put_back(&mut self, copies: Copies, parameters: &mut Parameters) {
        if let Some(flat) = &mut self.flat {
            flat.put_back(copies.numbers, parameters);
            self.step = copies.step;
            self.layout += 1;
        }
    }

    /// Where all parameters lie, if updates change them there.
    pub(crate) fn place(&self) -> Option<Tensor<1>> {
        self.flat.as_ref().and_then(Flat::place)
    }

    /// The update that was counted last.
    pub(crate) fn apply(
        &mut self,
        parameters: &mut Parameters,
        gradients: NamedGradients,
        rate: f64,
    ) -> Result<Tensor<1>, Error> {
        if self.fused && parameters.device().clone().inner() == Device::flex() {
            self.update_on_host(parameters, gradients, rate)
        } else {
            Ok(self.update_on_device(parameters, gradients, rate))
        }
    }

    /// `1 - beta^step` of both moments: what is missing from means that began at zero.
    fn corrections(&self) -> (f64, f64) {
        let AdamOptions { beta1, beta2, .. } = self.options;
        (1.0 - beta1.powf(self.step as f64), 1.0 - beta2.powf(self.step as f64))
    }

    /// The rate of one tensor, and what decay leaves of it.
    fn rate(&self, name: &str, shape: &[usize], rate: f64) -> (f64, f64) {
        let rate = rate * self.scales.get(name).copied().unwrap_or(1.0);
        (rate, if decays(name, shape) { 1.0 - rate * self.options.weight_decay } else { 1.0 })
    }

    /// All tensors end to end as one: a GPU's time goes by the number of operations.
    fn update_on_device(&mut self, parameters: &mut Parameters, gradients: NamedGradients, rate: f64) -> Tensor<1> {
        if gradients.is_empty() {
            return Tensor::zeros([1], &parameters.device().clone().inner());
        }
        if self.flat.as_ref().is_none_or(|flat| !flat.holds(&gradients)) {
            self.spill();
            let mut flat = self.flatten(parameters, &gradients);
            flat.share(parameters);
            self.flat = Some(flat);
            self.layout += 1;
        }
        let (o, corrections) = (self.options, self.corrections());
        let Some(flat) = &mut self.flat else { unreachable!("made above") };
        flat.update(&o, corrections, parameters, gradients, rate)
    }

    /// Lays the tensors that have gradients end to end, with what is known of their moments.
    fn flatten(&mut self, parameters: &Parameters, gradients: &NamedGradients) -> Flat {
        let mut parts = Vec::new();
        for (name, parameter) in parameters.iter().filter(|(name, _)| gradients.contains_key(*name)) {
            let moments = match self.moments.remove(name) {
                Some(Moments::Device(moments)) => Some(*moments),
                _ => None,
            };
            let (scale, keep) = self.rate(name, &parameter.shape, 1.0);
            parts.push(flat::Part { name, value: parameter.value.clone().inner(), moments, scale, decay: 1.0 - keep });
        }
        Flat::new(parts)
    }

    /// Takes the tensors that lie end to end apart.
    fn spill(&mut self) {
        let Some(flat) = self.flat.take() else { return };
        self.moments.extend(flat.moments().map(|(name, m)| (name, Moments::Device(Box::new(m)))));
    }

    fn update_on_host(
        &mut self,
        parameters: &mut Parameters,
        gradients: NamedGradients,
        rate: f64,
    ) -> Result<Tensor<1>, Error> {
        let device = parameters.device().clone().inner();
        let mut gradients: BTreeMap<String, TensorData> =
            gradients.into_iter().map(|(name, g)| (name, g.into_data())).collect();
        let squares = gradients.values().map(host::square_sum).collect::<Result<Vec<f64>, _>>()?;
        let norm = squares.iter().sum::<f64>().sqrt();
        let clip = self.options.clip.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0)) as f32;
        let (correction1, correction2) = self.corrections();
        for (name, parameter) in parameters.iter_mut() {
            let Some(gradient) = gradients.remove(name) else { continue };
            let gradient = host::numbers(&gradient)?;
            let (rate, keep) = self.rate(name, &parameter.shape, rate);
            let factors = host::Factors {
                clip,
                change: (rate / correction1) as f32,
                keep: keep as f32,
                root: (1.0 / correction2.sqrt()) as f32,
            };
            let shape = parameter.value.dims();
            let (mut first, mut second) = match self.moments.remove(name) {
                Some(Moments::Host { first, second, .. }) => (first, second),
                _ => (vec![0.0; gradient.len()], vec![0.0; gradient.len()]),
            };
            // The parameter lets go of its numbers, so that they are changed where they are.
            let empty = Tensor::zeros([1, 1], &parameter.value.device());
            let mut value = std::mem::replace(&mut parameter.value, empty).inner().into_data();
            let numbers = value.as_mut_slice::<f32>();
            let numbers = numbers.map_err(|e| Error::new(format!("tensor \"{name}\" cannot be changed ({e:?})")))?;
            host::update(&self.options, &factors, numbers, gradient, &mut first, &mut second);
            parameter.replace(Tensor::from_data(value, &device));
            self.moments.insert(name.to_string(), Moments::Host { first, second, shape });
        }
        Ok(host::scalar(norm, &device))
    }

    /// The state as tensors, to be saved.
    pub(crate) fn to_tensors(&self) -> Result<Vec<OwnedTensor>, Error> {
        let mut tensors = Vec::with_capacity(2 * self.moments.len());
        let names = |name: &str| (format!("first/{name}"), format!("second/{name}"));
        let on_device =
            |name: &str, m: &[Tensor<2>; 2]| Ok([to_owned(&names(name).0, &m[0])?, to_owned(&names(name).1, &m[1])?]);
        for (name, moments) in self.flat.iter().flat_map(Flat::moments) {
            tensors.extend(on_device(&name, &moments)?);
        }
        for (name, moments) in &self.moments {
            let names = names(name);
            tensors.extend(match moments {
                Moments::Device(m) => on_device(name, m)?,
                Moments::Host { first, second, shape } => {
                    [OwnedTensor::f32(names.0, shape, first), OwnedTensor::f32(names.1, shape, second)]
                }
            });
        }
        Ok(tensors)
    }

    /// Takes the state back from tensors, bit by bit.
    pub(crate) fn restore(&mut self, weights: &Weights, step: u64, device: &Device) -> Result<(), Error> {
        let device = device.clone().inner();
        let host = self.fused && device == Device::flex();
        self.moments.clear();
        self.flat = None;
        for full in weights.names() {
            let Some(name) = full.strip_prefix("first/") else { continue };
            let second = format!("second/{name}");
            let moments = if host {
                let (first, shape) = matrix(weights, full)?;
                Moments::Host { first, second: matrix(weights, &second)?.0, shape }
            } else {
                let first = from_weights(weights, full, &device)?;
                Moments::Device(Box::new([first, from_weights(weights, &second, &device)?]))
            };
            self.moments.insert(name.to_string(), moments);
        }
        self.step = step;
        Ok(())
    }
}

/// Biases and norms are not pulled towards zero.
fn decays(name: &str, shape: &[usize]) -> bool {
    shape.len() > 1 && !name.ends_with("bias")
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
    let (values, shape) = matrix(weights, name)?;
    Ok(Tensor::from_data(TensorData::new(values, shape), device))
}

/// A saved matrix.
fn matrix(weights: &Weights, name: &str) -> Result<(Vec<f32>, [usize; 2]), Error> {
    let tensor = weights.tensor(name)?;
    let [rows, columns] = *tensor.shape else {
        return Err(Error::new(format!(
            "tensor \"{name}\" of the checkpoint has {} axes, not two",
            tensor.shape.len()
        )));
    };
    let mut values = vec![0.0; tensor.len()];
    tensor.read(0, &mut values);
    Ok((values, [rows, columns]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_updating_agree() {
        let mut sums = Vec::new();
        for fused in [true, false] {
            let mut parameters = Parameters::empty(&Device::flex().autodiff());
            parameters.insert_values("w", (0..60).map(|i| (i as f32).sin()).collect(), vec![6, 10]);
            parameters.insert_values("w.bias", (0..10).map(|i| (i as f32).cos()).collect(), vec![10]);
            let scales = BTreeMap::from([("w".to_string(), 0.5)]);
            let mut adam = AdamW { fused, ..AdamW::new(AdamOptions::default(), scales.clone()) };
            for step in 0..5 {
                let g = |rows: usize| {
                    let g: Vec<f32> = (0..rows * 10).map(|i| ((i * (step + 2)) as f32).cos()).collect();
                    Tensor::from_data(TensorData::new(g, [rows, 10]), &Device::flex())
                };
                let mut gradients = BTreeMap::from([("w".to_string(), g(6))]);
                // A tensor that is not always used.
                if step != 2 {
                    gradients.insert("w.bias".to_string(), g(1));
                }
                adam.update(&mut parameters, gradients, 0.1).unwrap();
            }
            let tensors: Vec<OwnedTensor> =
                adam.to_tensors().unwrap().into_iter().chain(parameters.to_tensors().unwrap()).collect();
            let numbers = |t: &OwnedTensor| -> Vec<f32> {
                t.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
            };
            sums.push(tensors.iter().flat_map(numbers).collect::<Vec<f32>>());
            // Saved and restored, the state is the same bit by bit.
            let saved = Weights::from_tensors(&adam.to_tensors().unwrap()).unwrap();
            let mut again = AdamW { fused, ..AdamW::new(AdamOptions::default(), scales) };
            again.restore(&saved, 5, parameters.device()).unwrap();
            assert_eq!(again.to_tensors().unwrap(), adam.to_tensors().unwrap());
        }
        assert_eq!(sums[0].len(), 210);
        assert!(sums[0].iter().zip(&sums[1]).all(|(a, b)| (a - b).abs() < 1e-5), "{sums:?}");
    }
}
