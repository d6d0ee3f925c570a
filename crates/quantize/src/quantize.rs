//! The job: every target's numbers to integers, biases corrected, the plan that says so.

use crate::compensate::Compensation;
use crate::{Part, ScaleChoice, Statistics, Target, bits_of, round_matrix, targets};
use sparing_model::{Activations, Bias, Bits, Error, Model, OwnedTensor, Plan, Precision, Quantization};
use sparing_model::{ScaleAxis, Scales, Tensor};
use std::collections::BTreeMap;

/// What to quantise, and how.
pub struct Quantize<'a> {
    /// The model.
    pub model: &'a Model,
    /// Bits by part.
    pub bits: Bits,
    /// How scales are chosen.
    pub choice: ScaleChoice,
    /// What linear maps read. With it errors are weighted by the mean square of what a weight is multiplied with, and
    /// biases take over the mean error (Nagel et al. 2019, section 4.2, <https://arxiv.org/abs/1906.04721>).
    pub statistics: Option<&'a Statistics>,
    /// Round activations over the ranges of the statistics, instead of per token.
    pub fixed_ranges: bool,
}

/// What came out.
pub struct Changed {
    /// Tensors to put in place of the model's.
    pub tensors: Vec<OwnedTensor>,
    /// The plan that says what was done.
    pub plan: Plan,
    /// Per part: weights, bytes they take (scales included), and the mean of squared error over squared weight.
    pub parts: BTreeMap<Part, (usize, usize, f64)>,
}

impl Quantize<'_> {
    /// Does it. `progress` gets the weights done and in all; `None` if it returned false.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize) -> bool) -> Result<Option<Changed>, Error> {
        let all = targets(&self.model.architecture);
        let chosen: Vec<(&Target, u32)> = all.iter().filter_map(|t| Some((t, bits_of(&self.bits, t.part)?))).collect();
        let weights = &self.model.weights;
        let mut total = 0;
        for (target, _) in &chosen {
            total += weights.tensor(&target.name)?.len();
        }
        let mut done = 0;
        let mut found = Found::default();
        for (target, bits) in chosen {
            if !progress(done, total) {
                return Ok(None);
            }
            self.tensor(target, bits, weights.tensor(&target.name)?, &mut found)?;
            done += weights.tensor(&target.name)?.len();
        }
        progress(done, total);
        let mut tensors = found.tensors;
        for (name, change) in found.biases {
            let stored = weights.tensor(&name)?;
            let mut values = weights.vector(&name, stored.len())?;
            values.iter_mut().zip(&change).for_each(|(b, c)| *b += c);
            tensors.push(OwnedTensor::f32(name, stored.shape, &values));
        }
        let parts =
            found.parts.into_iter().map(|(part, s)| (part, (s.weights, s.bytes, s.error / s.square.max(1e-300))));
        Ok(Some(Changed { tensors, plan: self.plan(&all), parts: parts.collect() }))
    }

    fn plan(&self, all: &[Target]) -> Plan {
        let mut activations = Activations::default();
        let maps = all.iter().flat_map(|t| &t.uses).filter(|used| self.fixed_ranges && used.integer);
        for used in maps {
            if let Some(sums) = self.statistics.and_then(|s| s.get(&used.map)) {
                activations.ranges.insert(used.map.clone(), [sums.least, sums.most]);
            }
        }
        // Other economies stay.
        let mut plan = self.model.plan.clone();
        plan.precision = Some(Precision::Int8);
        plan.quantization = Some(Quantization { bits: self.bits, activations });
        plan
    }

    fn tensor(&self, target: &Target, bits: u32, tensor: Tensor<'_>, found: &mut Found) -> Result<(), Error> {
        let rows = tensor.shape.first().copied().unwrap_or(0);
        if tensor.shape.len() < 2 || tensor.is_empty() {
            return Err(Error::new(format!(
                "tensor \"{}\" has shape {:?}; only matrices are quantised",
                target.name, tensor.shape
            )));
        }
        let columns = tensor.len() / rows;
        let mut values = vec![0.0; tensor.len()];
        tensor.read(0, &mut values);
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::new(format!(
                "tensor \"{}\" holds {bad}; such weights cannot be quantised",
                target.name
            )));
        }
        // Row-major [outputs, inputs], whatever the file's layout.
        let by_column = target.axis == ScaleAxis::Column;
        let (outputs, inputs) = if by_column { (columns, rows) } else { (rows, columns) };
        let values = if by_column { transpose(&values, rows, columns) } else { values };
        // What the maps read, and which outputs they compute.
        let seen: Vec<_> = target
            .uses
            .iter()
            .filter_map(|used| Some((used, self.statistics?.get(&used.map)?)))
            .filter(|(used, sums)| used.inputs.end <= sums.sum.len() && used.inputs.len() == inputs)
            .map(|(used, sums)| {
                let part = |all: Vec<f32>| all[used.inputs.clone()].to_vec();
                (used, part(sums.mean()), part(sums.mean_square()))
            })
            .collect();
        let importance = |output: usize| -> Option<&[f32]> {
            let (_, _, squares) = seen.iter().find(|(used, ..)| used.outputs.contains(&output))?;
            // Inputs that are always zero say nothing: then all weights matter alike.
            squares.iter().any(|s| *s > 0.0).then_some(squares.as_slice())
        };
        let mut integers = round_matrix(&values, inputs, &importance, bits, self.choice);
        if let Some(compensation) = self.compensation(target, inputs) {
            compensation.round(&values, bits, &mut integers);
        }
        let error = |i: usize| values[i] - f32::from(integers.values[i]) * integers.scales[i / inputs];
        for (used, mean, _) in &seen {
            let Some(Bias { name, slice }) = &used.bias else { continue };
            let stored = self.model.weights.tensor(name)?.len();
            let from = slice.map_or(0, |s| s.0);
            let change = found.biases.entry(name.clone()).or_insert_with(|| vec![0.0; stored]);
            for (place, output) in used.outputs.clone().enumerate() {
                let missing: f64 =
                    mean.iter().enumerate().map(|(j, x)| f64::from(*x) * f64::from(error(output * inputs + j))).sum();
                change[from + place] += missing as f32;
            }
        }
        let sums = found.parts.entry(target.part).or_default();
        sums.weights += values.len();
        sums.error += (0..values.len()).map(|i| f64::from(error(i)).powi(2)).sum::<f64>();
        sums.square += values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let stored = if by_column { transpose(&integers.values, outputs, inputs) } else { integers.values };
        let scales = Scales { bits, axis: target.axis, values: integers.scales };
        let tensor = OwnedTensor::quantized(target.name.clone(), tensor.shape, &stored, scales);
        sums.bytes += tensor.bytes.len() + 4 * outputs;
        found.tensors.push(tensor);
        Ok(())
    }
}

impl Quantize<'_> {
    /// How rounding errors of a matrix are made up for, if its inputs were watched together.
    fn compensation(&self, target: &Target, inputs: usize) -> Option<Compensation> {
        let statistics = self.statistics?;
        // All maps of a fused tensor read the same.
        let used = target.uses.first().filter(|used| used.inputs == (0..inputs))?;
        let leader = &statistics.get(&used.map)?.leader;
        statistics.get(leader)?.products.as_ref()?.compensation()
    }
}

#[derive(Default)]
struct Found {
    tensors: Vec<OwnedTensor>,
    /// What is added to biases.
    biases: BTreeMap<String, Vec<f32>>,
    parts: BTreeMap<Part, PartSums>,
}

#[derive(Default)]
struct PartSums {
    weights: usize,
    bytes: usize,
    error: f64,
    square: f64,
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}
