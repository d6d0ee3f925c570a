//! Quantization-aware training: numbers are rounded on the way forward as the engine will round them, and gradients
//! pass as if they were not (straight-through estimator, Bengio et al. 2013, <https://arxiv.org/abs/1308.3432>).

use crate::LinearHook;
use crate::ranges::Ranges;
use burn::tensor::{Bool, Device, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::{
    Activations, Architecture, Bits, Blocks, Error, LayerBits, OwnedTensor, Plan, Precision, Quantization, Weights,
};
use sparing_model::{ScaleAxis, Scales};
use sparing_quantize::{ScaleChoice, Target, Use, round_matrix, spread_step, targets};
use std::collections::{BTreeMap, BTreeSet};

/// The smallest step, as the engine has it: a row of zeros must not divide by zero.
const LEAST_STEP: f64 = 1e-30;

/// What is rounded to how many bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rounding {
    /// Bits of the weights by part; one step size per output (or row of a table), symmetric (Q8BERT).
    pub bits: Bits,
    /// Layers that differ.
    #[serde(default)]
    pub layers: BTreeMap<usize, LayerBits>,
    /// Bits of what linear maps read; `None`: that stays as it is, and the engine runs in floats.
    pub activation_bits: Option<u32>,
    /// Blocks whose activations stay as they are all the same, by layer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bf16: BTreeMap<usize, Blocks>,
    /// `None`: activations are rounded over each token's range. Else over one range per map, a moving average that keeps
    /// this share of itself at every update.
    pub decay: Option<f64>,
}

impl Rounding {
    /// All weights in this many bits, activations in 8 over each token's range.
    pub fn new(bits: u32) -> Rounding {
        let (layers, bf16) = (BTreeMap::new(), BTreeMap::new());
        Rounding { bits: Bits::all(bits), layers, activation_bits: Some(8), bf16, decay: None }
    }

    /// All numbers of bits that weights have.
    pub fn weight_bits(&self) -> impl Iterator<Item = u32> {
        let Bits { embeddings, attention, ffn, head } = self.bits;
        let layers = self.layers.values().flat_map(|layer| [layer.attention, layer.ffn]);
        [embeddings, attention, ffn, head].into_iter().chain(layers).flatten()
    }
}

/// Rounds what the engine will round: the weights of all parts that have bits, and the inputs of the maps that int8 runs
/// on integers.
pub struct FakeQuantization {
    rounding: Rounding,
    targets: Vec<Target>,
    /// Bits by the name of a linear map or of a table.
    weights: BTreeMap<String, u32>,
    /// Maps that run on integers.
    integer: BTreeSet<String>,
    /// Maps that read what another reads, and whose input is rounded under the other's name.
    followers: BTreeMap<String, String>,
    ranges: Ranges,
}

impl FakeQuantization {
    /// For the maps of an architecture; ranges are kept on the device.
    pub fn new(rounding: &Rounding, architecture: &Architecture, device: &Device) -> Result<FakeQuantization, Error> {
        if let Some(bits) = rounding.weight_bits().chain(rounding.activation_bits).find(|bits| !(2..=8).contains(bits))
        {
            return Err(Error::new(format!("{bits} bits cannot be trained for; from 2 to 8 can")));
        }
        let decay = rounding.decay.unwrap_or(0.0);
        if !(0.0..1.0).contains(&decay) {
            return Err(Error::new(format!(
                "a moving average cannot keep {decay} of itself; from 0 to below 1 can be"
            )));
        }
        let targets = targets(architecture);
        let mut weights = BTreeMap::new();
        let mut integer = BTreeSet::new();
        for target in &targets {
            let bits = target.bits(&rounding.bits, &rounding.layers);
            for name in target.uses.iter().map(|used| &used.map).chain([&target.name]) {
                weights.extend(bits.map(|bits| (name.clone(), bits)));
            }
            let rounds = rounding.activation_bits.is_some() && !target.is_of(&rounding.bf16);
            let runs = |used: &&Use| used.integer && rounds;
            integer.extend(target.uses.iter().filter(runs).map(|used| used.map.clone()));
        }
        let mut followers = BTreeMap::new();
        for a in architecture.layers.iter().map(|layer| &layer.attention) {
            // Values that read something else have a range of their own, which is looked for first.
            followers.insert(a.key.weight.name(), a.query.weight.name());
            followers.insert(a.value.weight.name(), a.query.weight.name());
        }
        let ranges = Ranges::new(decay, device);
        Ok(FakeQuantization { rounding: rounding.clone(), targets, weights, integer, followers, ranges })
    }

    /// The same with the ranges as they are now, for evaluation: nothing is averaged any more.
    pub fn frozen(&self) -> FakeQuantization {
        FakeQuantization {
            rounding: self.rounding.clone(),
            targets: self.targets.clone(),
            weights: self.weights.clone(),
            integer: self.integer.clone(),
            followers: self.followers.clone(),
            ranges: self.ranges.frozen(),
        }
    }

    /// The plan of what comes out: the engine runs it on integers, if activations were rounded too.
    pub fn plan(&self) -> Result<Plan, Error> {
        let Rounding { bits, ref layers, activation_bits, .. } = self.rounding;
        let mut activations = Activations::default();
        activations.bits = activation_bits.unwrap_or(activations.bits);
        if self.rounding.decay.is_some() {
            let known = self.ranges.read()?;
            for map in &self.integer {
                let range = known.get(map).or_else(|| known.get(self.followers.get(map)?));
                activations.ranges.extend(range.map(|range| (map.clone(), [range.least, range.most])));
            }
        }
        let quantization = Some(Quantization { bits, layers: layers.clone(), activations });
        let precision = activation_bits.map(|_| Precision::Int8);
        let bf16 = precision.map(|_| self.rounding.bf16.clone()).unwrap_or_default();
        Ok(Plan { precision, bf16, quantization, ..Plan::default() })
    }

    /// Stores tensors as integers: exactly what the rounded network computes with.
    pub fn store(&self, tensors: Vec<OwnedTensor>) -> Result<Vec<OwnedTensor>, Error> {
        let bits: BTreeMap<&str, (&Target, u32)> = self
            .targets
            .iter()
            .filter_map(|t| Some((t.name.as_str(), (t, t.bits(&self.rounding.bits, &self.rounding.layers)?))))
            .collect();
        let store = |tensor: OwnedTensor| match bits.get(tensor.name.as_str()) {
            Some((target, bits)) => integers(tensor, target.axis, *bits),
            None => Ok(tensor),
        };
        tensors.into_iter().map(store).collect()
    }
}

/// A matrix as integers, with the scales that [`FakeQuantization`] rounds with.
fn integers(tensor: OwnedTensor, axis: ScaleAxis, bits: u32) -> Result<OwnedTensor, Error> {
    let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
    let weights = Weights::from_tensors(&[tensor])?;
    let read = weights.tensor(&name)?;
    let (rows, count) = (shape[0], read.len());
    let columns = count / rows;
    let mut values = vec![0.0; count];
    read.read(0, &mut values);
    if axis == ScaleAxis::Row {
        let found = round_matrix(&values, columns, &|_| None, bits, ScaleChoice::Spread);
        let scales = Scales { bits, axis, values: found.scales };
        return Ok(OwnedTensor::quantized(name, &shape, &found.values, scales));
    }
    let turned: Vec<f32> = (0..count).map(|i| values[i % rows * columns + i / rows]).collect();
    let found = round_matrix(&turned, rows, &|_| None, bits, ScaleChoice::Spread);
    let stored: Vec<i8> = (0..count).map(|i| found.values[i % columns * rows + i / columns]).collect();
    Ok(OwnedTensor::quantized(name, &shape, &stored, Scales { bits, axis, values: found.scales }))
}

/// Rows rounded to signed integers of this many bits, a step size per row; gradients pass.
fn round_rows(rows: Tensor<2>, bits: u32) -> Tensor<2> {
    let most = f64::from((1 << (bits - 1)) - 1);
    let exact = rows.clone().inner();
    let mut step = exact.clone().abs().max_dim(1).div_scalar(most);
    // As `ScaleChoice::Spread` chooses it.
    if let Some(best) = spread_step(bits) {
        let deviation = exact.clone().powi_scalar(2).mean_dim(1).sqrt();
        step = step.min_pair(deviation.mul_scalar(best));
    }
    let step = step.clamp_min(LEAST_STEP);
    let rounded = (exact.clone() / step.clone()).round().clamp(-most, most) * step;
    // The difference is a constant: the gradient is that of the number itself.
    rows + (rounded - exact)
}

impl LinearHook for FakeQuantization {
    fn weight(&self, name: &str, weight: Tensor<2>) -> Tensor<2> {
        match self.weights.get(name) {
            Some(bits) => round_rows(weight, *bits),
            None => weight,
        }
    }

    fn looked_up(&self, name: &str, rows: Tensor<2>) -> Tensor<2> {
        // A row's step size depends on that row alone: rounding what was looked up is rounding the table.
        match self.weights.get(name) {
            Some(bits) => round_rows(rows, *bits),
            None => rows,
        }
    }

    fn input(&self, name: &str, input: Tensor<2>, real: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let Some(bits) = self.rounding.activation_bits.filter(|_| self.integer.contains(name)) else { return input };
        let steps = f64::from((1 << bits) - 1);
        let exact = input.clone().inner();
        let (mut least, mut most) = (exact.clone().min_dim(1), exact.clone().max_dim(1));
        if self.rounding.decay.is_some()
            && let Some(range) = self.ranges.see(name, &least, &most, real)
        {
            (least, most) = range;
        }
        let step = (most - least.clone()).div_scalar(steps).clamp_min(LEAST_STEP);
        let rounded = ((exact.clone() - least.clone()) / step.clone()).round().clamp(0.0, steps) * step + least;
        input + (rounded - exact)
    }

    fn memory(&self) -> Result<serde_json::Value, Error> {
        serde_json::to_value(self.ranges.read()?).map_err(|e| Error::new(format!("ranges of activations: {e}")))
    }

    fn recall(&self, memory: &serde_json::Value) -> Result<(), Error> {
        let known: Option<BTreeMap<_, _>> = serde_json::from_value(memory.clone())
            .map_err(|e| Error::new(format!("a checkpoint's ranges of activations: {e}")))?;
        self.ranges.set(known.unwrap_or_default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bert() -> Architecture {
        let config = br#"{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 9, "hidden_size": 4,
            "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6, "max_position_embeddings": 5}"#;
        Architecture::from_config(config, None, &|_| false).unwrap()
    }

    fn numbers(tensor: Tensor<2>) -> Vec<f32> {
        tensor.inner().into_data().as_slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn what_blocks_read_that_stay_in_bf16_is_not_rounded() {
        let (a, device) = (bert(), Device::flex());
        let bf16: BTreeMap<usize, Blocks> = [(0, Blocks { attention: false, ffn: true })].into();
        let rounding = Rounding { bf16: bf16.clone(), ..Rounding::new(8) };
        let q = FakeQuantization::new(&rounding, &a, &device).unwrap();
        let x = || Tensor::<2>::from_floats([[0.0, 5.1, 1.011]], &device);
        let (ffn, attention) = (&a.layers[0].ffns[0].up.weight, &a.layers[0].attention.query.weight);
        assert_eq!(numbers(q.input(&ffn.name(), x(), None))[2], 1.011);
        assert!((numbers(q.input(&attention.name(), x(), None))[2] - 1.02).abs() < 1e-5);
        assert_eq!((q.plan().unwrap().precision, q.plan().unwrap().bf16), (Some(Precision::Int8), bf16.clone()));
        // Where nothing is rounded to int8 nothing is kept from it.
        let floats = Rounding { activation_bits: None, ..rounding };
        assert!(FakeQuantization::new(&floats, &a, &device).unwrap().plan().unwrap().bf16.is_empty());
    }

    #[test]
    fn rounds_like_the_engine_and_lets_gradients_through() {
        let device = Device::flex().autodiff();
        let a = bert();
        let map = a.layers[0].ffns[0].up.weight.name();
        let q = FakeQuantization::new(&Rounding::new(8), &a, &Device::flex()).unwrap();
        let w = Tensor::<2>::from_floats([[1.27, -0.504, 0.0], [0.0, 0.0, 0.0]], &device).require_grad();
        let rounded = q.weight(&map, w.clone());
        let values = numbers(rounded.clone());
        for (got, want) in values.iter().zip([1.27, -0.50, 0.0, 0.0, 0.0, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{values:?}");
        }
        let gradients = rounded.sum().backward();
        let g = w.grad(&gradients).unwrap().into_data();
        assert_eq!(g.as_slice::<f32>().unwrap(), [1.0; 6]);
        // 0 to 5.1 in 255 steps of 0.02.
        let x = Tensor::<2>::from_floats([[0.0, 5.1, 1.011]], &device);
        assert!((numbers(q.input(&map, x.clone(), None))[2] - 1.02).abs() < 1e-5);
        // What the engine does not round stays as it is; tables are rounded.
        assert_eq!(numbers(q.input("pooler", x.clone(), None))[2], 1.011);
        let row = numbers(q.looked_up(&a.embeddings.word, x));
        assert!((row[2] - 5.1 / 127.0 * 25.0).abs() < 1e-5, "{row:?}");
        for wrong in [
            Rounding::new(1),
            Rounding { activation_bits: Some(16), ..Rounding::new(8) },
            Rounding { decay: Some(1.0), ..Rounding::new(8) },
        ] {
            assert!(FakeQuantization::new(&wrong, &a, &Device::flex()).is_err());
        }
    }

    #[test]
    fn layers_have_bits_of_their_own_and_are_stored_as_they_were_trained() {
        let device = Device::flex();
        let a = bert();
        let (up, query) = (a.layers[0].ffns[0].up.weight.name(), a.layers[0].attention.query.weight.name());
        let layers = BTreeMap::from([(0, LayerBits { ffn: Some(3), attention: None })]);
        let bits = Bits { embeddings: Some(4), attention: Some(6), ..Bits::default() };
        let rounding = Rounding { bits, layers: layers.clone(), activation_bits: None, ..Rounding::new(8) };
        let q = FakeQuantization::new(&rounding, &a, &device).unwrap();
        let plan = q.plan().unwrap();
        assert_eq!((plan.precision, &plan.quantization.as_ref().unwrap().layers), (None, &layers));
        // Nothing runs on integers, so nothing that is read is rounded.
        let x = Tensor::<2>::from_floats([[0.0, 5.1, 1.011]], &device);
        assert_eq!(numbers(q.input(&up, x.clone(), None)), numbers(x));
        let positions = a.embeddings.positions.as_ref().unwrap().name.clone();
        let values: Vec<f32> = (0..24).map(|i| ((i * 37 % 23) as f32 - 11.0).powi(3) / 7.3).collect();
        for (name, shape, bits) in
            [(&up, [6, 4], 3), (&query, [4, 4], 6), (&a.embeddings.word, [6, 4], 4), (&positions, [5, 4], 8)]
        {
            let values = &values[..shape[0] * shape[1]];
            let tensor = Tensor::<1>::from_floats(values, &device).reshape(shape);
            let trained = numbers(q.weight(name, tensor));
            let stored = q.store(vec![OwnedTensor::f32(name, &shape, values)]).unwrap();
            let weights = Weights::from_tensors(&stored).unwrap();
            let stored = weights.tensor(name).unwrap();
            assert_eq!(stored.quantized().unwrap().bits(), bits, "{name}");
            let mut read = vec![0.0; values.len()];
            stored.read(0, &mut read);
            assert!(trained.iter().zip(&read).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {trained:?} {read:?}");
        }
    }

    #[test]
    fn ranges_are_averaged_kept_and_named_for_all_who_read_the_same() {
        let device = Device::flex();
        let a = bert();
        let attention = &a.layers[0].attention;
        let (query, value) = (attention.query.weight.name(), attention.value.weight.name());
        let rounding = Rounding { decay: Some(0.9), ..Rounding::new(8) };
        let q = FakeQuantization::new(&rounding, &a, &device).unwrap();
        // The second row is padding, however large.
        let real = Tensor::<2, Bool>::from_bool(burn::tensor::TensorData::new(vec![true, false], [2, 1]), &device);
        for most in [1.0, 3.0] {
            let x = Tensor::<2>::from_floats([[-1.0, most], [-99.0, 99.0]], &device);
            q.input(&query, x, Some(&real));
        }
        // Bias-corrected: (0.1 * 0.9 * 1 + 0.1 * 3) / (1 - 0.81).
        let plan = q.plan().unwrap();
        let ranges = &plan.quantization.as_ref().unwrap().activations.ranges;
        assert_eq!(ranges[&query], ranges[&value]);
        assert!((ranges[&query][1] - 0.39 / 0.19).abs() < 1e-5 && ranges[&query][0] == -1.0, "{ranges:?}");
        plan.check().unwrap();
        // Evaluation changes nothing, and cuts off what lies beyond.
        let frozen = q.frozen();
        let x = Tensor::<2>::from_floats([[50.0, 0.0]], &device);
        assert!((numbers(frozen.input(&query, x, None))[0] - 0.39 / 0.19).abs() < 1e-5);
        assert_eq!(frozen.plan().unwrap(), plan);
        // A checkpoint goes back to the same.
        let again = FakeQuantization::new(&rounding, &a, &device).unwrap();
        again.recall(&q.memory().unwrap()).unwrap();
        assert_eq!(again.plan().unwrap(), plan);
        again.recall(&serde_json::Value::Null).unwrap();
        assert!(again.plan().unwrap().quantization.unwrap().activations.ranges.is_empty());
    }
}
