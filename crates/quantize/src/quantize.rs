//! The job: every target's numbers to integers, biases corrected, the plan that says so.

use crate::compensate::Compensation;
use crate::{Part, ScaleChoice, Statistics, Target, round_matrix, targets};
use sparing_model::{Activations, Bias, Bits, Error, LayerBits, Model, OwnedTensor, Plan, Precision, Quantization};
use sparing_model::{ScaleAxis, Scales, Weights};
use std::collections::BTreeMap;

/// What to quantise, and how.
pub struct Quantize<'a> {
    /// The model.
    pub model: &'a Model,
    /// Bits by part.
    pub bits: Bits,
    /// Layers that differ.
    pub layers: BTreeMap<usize, LayerBits>,
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
        let chosen = all.iter().filter_map(|target| Some((target, target.bits(&self.bits, &self.layers)?)));
        let chosen: Vec<(&Target, u32)> = chosen.collect();
        let weights = &self.model.weights;
        let mut total = 0;
        for (target, _) in &chosen {
            total += weights.tensor(&target.name)?.len();
        }
        let mut done = 0;
        let mut rounded = Vec::new();
        for (target, bits) in chosen {
            if !progress(done, total) {
                return Ok(None);
            }
            let compensation = self.compensation(target);
            rounded.push(self.round(target, bits, compensation.as_ref())?);
            done += weights.tensor(&target.name)?.len();
        }
        progress(done, total);
        let mut parts: BTreeMap<Part, [f64; 4]> = BTreeMap::new();
        for one in &rounded {
            let more = [one.weights as f64, one.bytes as f64, one.error, one.square];
            parts.entry(one.part).or_default().iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        let of =
            |[weights, bytes, error, square]: [f64; 4]| (weights as usize, bytes as usize, error / square.max(1e-300));
        let parts = parts.into_iter().map(|(part, sums)| (part, of(sums))).collect();
        Ok(Some(Changed { tensors: with_biases(weights, rounded.iter())?, plan: self.plan(&all), parts }))
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
        plan.quantization = Some(Quantization { bits: self.bits, layers: self.layers.clone(), activations });
        plan
    }

    /// How rounding errors of a matrix are made up for, if its inputs were watched together.
    pub fn compensation(&self, target: &Target) -> Option<Compensation> {
        let statistics = self.statistics?;
        // All maps of a fused tensor read the same.
        let used = target.uses.first().filter(|used| used.inputs.start == 0)?;
        let leader = &statistics.get(&used.map)?.leader;
        statistics.get(leader)?.products.as_ref()?.compensation()
    }

    /// Rounds one tensor.
    pub fn round(&self, target: &Target, bits: u32, compensation: Option<&Compensation>) -> Result<Rounded, Error> {
        let tensor = self.model.weights.tensor(&target.name)?;
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
        if let Some(compensation) = compensation.filter(|compensation| compensation.inputs() == inputs) {
            compensation.round(&values, bits, &mut integers);
        }
        let error = |i: usize| values[i] - f32::from(integers.values[i]) * integers.scales[i / inputs];
        let mut biases = Vec::new();
        for (used, mean, _) in &seen {
            let Some(Bias { name, slice }) = &used.bias else { continue };
            let missing = |output: usize| -> f64 {
                mean.iter().enumerate().map(|(j, x)| f64::from(*x) * f64::from(error(output * inputs + j))).sum()
            };
            let change = used.outputs.clone().map(|output| missing(output) as f32).collect();
            biases.push((name.clone(), slice.map_or(0, |slice| slice.0), change));
        }
        let squares = (0..values.len()).map(|i| f64::from(error(i)).powi(2)).sum();
        let stored = if by_column { transpose(&integers.values, outputs, inputs) } else { integers.values };
        let scales = Scales { bits, axis: target.axis, values: integers.scales };
        let tensor = OwnedTensor::quantized(target.name.clone(), tensor.shape, &stored, scales);
        Ok(Rounded {
            part: target.part,
            weights: values.len(),
            bytes: tensor.bytes.len() + 4 * outputs,
            error: squares,
            square: values.iter().map(|v| f64::from(*v).powi(2)).sum(),
            tensor,
            biases,
        })
    }
}

/// A tensor that was rounded.
pub struct Rounded {
    tensor: OwnedTensor,
    /// Biases, from where on, and what is added to them.
    biases: Vec<(String, usize, Vec<f32>)>,
    part: Part,
    weights: usize,
    bytes: usize,
    /// Sum of squared errors, and of squared weights.
    error: f64,
    square: f64,
}

/// Tensors to put in place of a model's: those that were rounded, and biases that take over their mean errors.
pub fn with_biases<'a>(
    weights: &Weights,
    rounded: impl Iterator<Item = &'a Rounded>,
) -> Result<Vec<OwnedTensor>, Error> {
    let (mut tensors, mut biases) = (Vec::new(), BTreeMap::new());
    for one in rounded {
        tensors.push(one.tensor.clone());
        for (name, from, change) in &one.biases {
            if !biases.contains_key(name) {
                biases.insert(name.clone(), weights.vector(name, weights.tensor(name)?.len())?);
            }
            let values = biases.get_mut(name).into_iter().flat_map(|values| values.iter_mut().skip(*from));
            values.zip(change).for_each(|(bias, change)| *bias += change);
        }
    }
    for (name, values) in biases {
        let shape = weights.tensor(&name)?.shape.to_vec();
        tensors.push(OwnedTensor::f32(name, &shape, &values));
    }
    Ok(tensors)
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}
