//! Which weights are there: magnitude pruning that leaves holes.

use crate::random::Random;
use crate::{NamedGradients, Parameters};
use burn::tensor::{Device, Tensor, TensorData};
use sparing_model::{Architecture, Error, Layer, Linear, Matrix, OwnedTensor, Weights};
use std::collections::{BTreeMap, BTreeSet};

/// The weights that pruning chooses from, by tensor: queries, keys, values, outputs, feed-forward blocks, and the head's
/// maps but the last (the pooler). Embeddings, biases, norms and the classifier stay whole.
pub fn prunable(architecture: &Architecture) -> BTreeSet<String> {
    let of_layer = |layer: &Layer| -> Vec<Linear> {
        let a = &layer.attention;
        let attention = [&a.query, &a.key, &a.value, &a.output].into_iter();
        attention.chain(layer.ffns.iter().flat_map(|ffn| [&ffn.up, &ffn.down])).cloned().collect()
    };
    let mut head: Vec<Linear> = architecture.head.stages.iter().filter_map(|stage| stage.linear.clone()).collect();
    head.pop();
    let mut names = BTreeSet::new();
    architecture.layers.iter().flat_map(of_layer).chain(head).for_each(|map| put(&map.weight, &mut names));
    names.remove(&architecture.embeddings.word);
    names
}

fn put(matrix: &Matrix, names: &mut BTreeSet<String>) {
    match matrix {
        Matrix::Tensor { name, .. } => _ = names.insert(name.clone()),
        Matrix::ConcatInputs(parts) => parts.iter().for_each(|(part, _)| put(part, names)),
    }
}

/// Per tensor, whether each number is there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Masks {
    kept: BTreeMap<String, Vec<bool>>,
}

impl Masks {
    /// Takes out the share of all numbers together whose magnitudes are least; of equal ones the first. What is zero
    /// already goes first, so masks of a pruned model's growing shares are nested.
    pub fn smallest(weights: &Weights, names: &BTreeSet<String>, share: f64) -> Result<Masks, Error> {
        let mut numbers: Vec<f32> = Vec::new();
        let mut sizes = Vec::new();
        for name in names {
            let tensor = weights.tensor(name)?;
            let from = numbers.len();
            numbers.resize(from + tensor.len(), 0.0);
            tensor.read(0, &mut numbers[from..]);
            sizes.push((name.clone(), tensor.len()));
        }
        // What is not a number is larger than all: it stays, and training says that it diverged.
        Ok(Masks::without(&numbers.iter().map(|x| x.abs().to_bits() as u64).collect::<Vec<_>>(), sizes, share))
    }

    /// Takes out a share at random.
    pub fn random(weights: &Weights, names: &BTreeSet<String>, share: f64, seed: u64) -> Result<Masks, Error> {
        let size = |name: &String| Ok((name.clone(), weights.tensor(name)?.len()));
        let sizes = names.iter().map(size).collect::<Result<Vec<_>, Error>>()?;
        let mut random = Random::at(seed, &[7]);
        let keys: Vec<u64> = (0..sizes.iter().map(|(_, size)| size).sum()).map(|_| random.bits()).collect();
        Ok(Masks::without(&keys, sizes, share))
    }

    /// Takes out the numbers with the least keys, the first of equal ones.
    fn without(keys: &[u64], sizes: Vec<(String, usize)>, share: f64) -> Masks {
        let gone = (share.clamp(0.0, 1.0) * keys.len() as f64).round() as usize;
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        let mut all = vec![true; keys.len()];
        if gone > 0 {
            order.select_nth_unstable_by_key(gone - 1, |i| (keys[*i as usize], *i));
            order[..gone].iter().for_each(|i| all[*i as usize] = false);
        }
        let mut rest = all.as_slice();
        let mut kept = BTreeMap::new();
        for (name, size) in sizes {
            let (these, others) = rest.split_at(size);
            kept.insert(name, these.to_vec());
            rest = others;
        }
        Masks { kept }
    }

    /// Numbers that are there, and all.
    pub fn count(&self) -> (usize, usize) {
        let all = self.kept.values().map(Vec::len).sum();
        (self.kept.values().flatten().filter(|kept| **kept).count(), all)
    }

    /// The same as numbers on a device, to multiply with.
    pub fn on(&self, device: &Device) -> Holes {
        let device = device.clone().without_autodiff();
        let tensor = |kept: &Vec<bool>| {
            let ones: Vec<f32> = kept.iter().map(|kept| f32::from(u8::from(*kept))).collect();
            let count = ones.len();
            Tensor::<1>::from_data(TensorData::new(ones, [count]), &device)
        };
        Holes { ones: self.kept.iter().map(|(name, kept)| (name.clone(), tensor(kept))).collect() }
    }

    /// Stores masked tensors sparsely, where that takes fewer bytes.
    pub(crate) fn store(&self, tensors: Vec<OwnedTensor>) -> Result<Vec<OwnedTensor>, Error> {
        let mut stored = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let kept =
                self.kept.get(&tensor.name).filter(|kept| 32 * kept.iter().filter(|k| !**k).count() > kept.len());
            let Some(kept) = kept else {
                stored.push(tensor);
                continue;
            };
            let numbers: Vec<f32> = tensor.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            stored.extend(OwnedTensor::sparse(&tensor.name, &tensor.shape, &numbers, kept));
        }
        Ok(stored)
    }
}

/// Masks on a device: 1 where a number is there, 0 where there is a hole.
#[derive(Default)]
pub struct Holes {
    ones: BTreeMap<String, Tensor<1>>,
}

impl Holes {
    fn through(&self, name: &str, value: Tensor<2>) -> Option<Tensor<2>> {
        let shape = value.dims();
        self.ones.get(name).map(|ones| value * ones.clone().reshape(shape))
    }

    /// Puts zeros into the holes.
    pub fn clear(&self, parameters: &mut Parameters) {
        for (name, parameter) in parameters.iter_mut() {
            if let Some(value) = self.through(name, parameter.value.clone().inner()) {
                parameter.replace(value);
            }
        }
    }

    /// Takes gradients out of the holes. An optimizer without a gradient moves nothing there, nor decays zeros, so holes
    /// stay holes.
    pub(crate) fn clear_gradients(&self, gradients: &mut NamedGradients) {
        for (name, gradient) in gradients.iter_mut() {
            if let Some(value) = self.through(name, gradient.clone()) {
                *gradient = value;
            }
        }
    }
}
