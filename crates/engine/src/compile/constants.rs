//! The numbers a program refers to, and packing them.

use crate::finite;
use crate::relative::{Buckets, Relative};
use crate::values::Economy;
use sparing_kernels::attention::ShareNetwork;
use sparing_kernels::{Format, InputRounding, PackedMatrix, Team};
use sparing_model::{Activations, Bias, Error, Integers, Linear, Matrix, Norm, NormKind, Weights};
use std::collections::HashMap;
use std::sync::Mutex;

/// The numbers that a program's steps refer to by their place here. Equal tensors are held once.
#[derive(Default)]
pub(crate) struct Constants {
    pub(crate) matrices: Vec<Packed>,
    pub(crate) norms: Vec<NormWeights>,
    /// What removed blocks add.
    pub(crate) shifts: Vec<Vec<f32>>,
    /// What residuals are multiplied by, where a norm was folded.
    pub(crate) scales: Vec<Vec<f32>>,
    /// Networks in softmax's place.
    pub(crate) networks: Vec<ShareNetwork>,
    pub(crate) buckets: Vec<Buckets>,
    pub(crate) relatives: Vec<Relative>,
    pub(crate) economies: Vec<Economy>,
}

impl Constants {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.matrices.iter().map(Packed::bytes).sum::<usize>()
            + self.norms.iter().map(|n| (n.weight.len() + n.bias.len()) * 4).sum::<usize>()
            + self.shifts.iter().chain(&self.scales).map(|vector| vector.len() * 4).sum::<usize>()
            + self.networks.iter().map(ShareNetwork::bytes).sum::<usize>()
            + self.buckets.iter().map(Buckets::bytes).sum::<usize>()
            + self.relatives.iter().map(Relative::bytes).sum::<usize>()
            + self.economies.iter().map(Economy::bytes).sum::<usize>()
    }
}

/// One or several linear maps of the same input, stacked along the outputs.
pub(crate) struct Packed {
    /// The weights' names, in order.
    pub(crate) names: Vec<String>,
    pub(crate) matrix: PackedMatrix,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Packed {
    fn bytes(&self) -> usize {
        self.matrix.bytes() + self.bias.as_ref().map_or(0, |b| b.len() * 4)
    }

    /// Numbers in it, whatever their format.
    pub(crate) fn parameters(&self) -> usize {
        self.matrix.outputs() * self.matrix.inputs() + self.bias.as_ref().map_or(0, Vec::len)
    }
}

/// A norm's vectors.
pub(crate) struct NormWeights {
    pub(crate) kind: NormKind,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) eps: f32,
}

/// A matrix to be packed: linear maps to stack, each with a tensor to add to its bias, if any.
pub(crate) struct Request<'a> {
    parts: Vec<(&'a Linear, Option<&'a str>)>,
    format: Format,
    /// Done to the outputs.
    fold: Option<Affine>,
}

/// `scale · x + shift`, one number each per channel: a norm without statistics of its own.
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    pub(crate) scale: Vec<f32>,
    pub(crate) shift: Vec<f32>,
}

impl Affine {
    /// A norm as what it does while it runs; `None` where that depends on the row.
    pub(crate) fn of(norm: &Norm, weights: &Weights) -> Result<Option<Affine>, Error> {
        let scale = match norm.kind {
            NormKind::Layer => return Ok(None),
            NormKind::Affine => finite::vector(weights, &norm.weight, norm.width)?,
            NormKind::Power => {
                let phi = weights.vector(&norm.running_phi(), norm.width)?;
                if let Some(channel) = phi.iter().position(|phi| !(phi.is_finite() && *phi > 0.0)) {
                    return Err(Error::new(format!(
                        "tensor \"{}\" holds {} for channel {channel}; phi is a mean of squares that PowerNorm divides by the root of, so it \
                         must be finite and positive",
                        norm.running_phi(),
                        phi[channel]
                    )));
                }
                let deviation = |phi: f32| (f64::from(phi) + f64::from(norm.eps)).sqrt();
                let weight = finite::vector(weights, &norm.weight, norm.width)?;
                weight.iter().zip(phi).map(|(w, phi)| (f64::from(*w) / deviation(phi)) as f32).collect()
            }
        };
        if let Some(channel) = scale.iter().position(|scale| !scale.is_finite()) {
            let (weight, phi) = (&norm.weight, norm.running_phi());
            return Err(Error::new(format!(
                "tensor \"{weight}\" over the root of \"{phi}\" is beyond all numbers for channel {channel}; one of the two is damaged, \
                 fetch the model anew"
            )));
        }
        Ok(Some(Affine { scale, shift: finite::vector(weights, &norm.bias, norm.width)? }))
    }
}

/// Collects what a program needs, each thing once; the matrices are packed at the end, all cores at it.
pub(crate) struct Collector<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) constants: Constants,
    requests: Vec<Request<'a>>,
    known: HashMap<String, usize>,
    /// Layers with economised values, and their value matrices.
    pub(crate) economies: Vec<(usize, usize)>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(weights: &'a Weights) -> Self {
        let (constants, requests, known) = (Constants::default(), Vec::new(), HashMap::new());
        Collector { weights, constants, requests, known, economies: Vec::new() }
    }

    /// The number of the stacked matrix.
    pub(crate) fn matrix(&mut self, parts: &[(&'a Linear, Option<&'a str>)], format: Format) -> usize {
        let mut key = format!("matrix {format:?}");
        for (linear, plus) in parts {
            key += &format!(" {:?} {:?} {plus:?}", linear.weight, linear.bias);
        }
        self.request(key, parts, format, None)
    }

    fn request(
        &mut self,
        key: String,
        parts: &[(&'a Linear, Option<&'a str>)],
        format: Format,
        fold: Option<Affine>,
    ) -> usize {
        let next = self.requests.len();
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            self.requests.push(Request { parts: parts.to_vec(), format, fold });
        }
        number
    }

    /// The numbers of a map with a norm folded into it, and of the scale that is left to the residual.
    pub(crate) fn folded(&mut self, linear: &'a Linear, norm: &Norm, format: Format) -> Result<(usize, usize), Error> {
        let rows = || Error::new(format!("\"{}\": a norm that depends on the row cannot be folded", norm.weight));
        let affine = Affine::of(norm, self.weights)?.ok_or_else(rows)?;
        let key = format!("scale {:?} {} {}", norm.kind, norm.weight, norm.eps);
        let next = self.constants.scales.len();
        let scale = *self.known.entry(key.clone()).or_insert(next);
        if scale == next {
            self.constants.scales.push(affine.scale.clone());
        }
        let key = format!("folded {key} {} {format:?} {:?} {:?}", norm.bias, linear.weight, linear.bias);
        Ok((self.request(key, &[(linear, None)], format, Some(affine)), scale))
    }

    /// The number of a network in softmax's place.
    pub(crate) fn network(
        &mut self,
        key: &str,
        make: impl FnOnce() -> Result<ShareNetwork, Error>,
    ) -> Result<usize, Error> {
        let key = format!("network {key}");
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        self.constants.networks.push(make()?);
        self.known.insert(key, self.constants.networks.len() - 1);
        Ok(self.constants.networks.len() - 1)
    }

    /// The number of a layer's economised values; `value` is their matrix.
    pub(crate) fn economy(&mut self, layer: usize, value: usize) -> usize {
        self.economies.iter().position(|known| *known == (layer, value)).unwrap_or_else(|| {
            self.economies.push((layer, value));
            self.economies.len() - 1
        })
    }

    /// The number of the norm.
    pub(crate) fn norm(&mut self, norm: &Norm) -> Result<usize, Error> {
        let key = format!("norm {:?} {} {} {}", norm.kind, norm.weight, norm.bias, norm.eps);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        self.constants.norms.push(match Affine::of(norm, self.weights)? {
            Some(Affine { scale, shift }) => {
                NormWeights { kind: NormKind::Affine, weight: scale, bias: shift, eps: 0.0 }
            }
            None => NormWeights {
                kind: norm.kind,
                weight: finite::vector(self.weights, &norm.weight, norm.width)?,
                bias: finite::vector(self.weights, &norm.bias, norm.width)?,
                eps: norm.eps,
            },
        });
        self.known.insert(key, self.constants.norms.len() - 1);
        Ok(self.constants.norms.len() - 1)
    }

    /// The number of a constant that is added to rows.
    pub(crate) fn constant(&mut self, bias: &Bias, length: usize) -> Result<usize, Error> {
        let key = format!("shift {bias:?}");
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        self.constants.shifts.push(finite::bias(self.weights, bias, length)?);
        self.known.insert(key, self.constants.shifts.len() - 1);
        Ok(self.constants.shifts.len() - 1)
    }

    /// The number of the bucketed distance table.
    pub(crate) fn buckets(&mut self, key: &str, make: impl FnOnce() -> Result<Buckets, Error>) -> Result<usize, Error> {
        let key = format!("buckets {key}");
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        self.constants.buckets.push(make()?);
        self.known.insert(key, self.constants.buckets.len() - 1);
        Ok(self.constants.buckets.len() - 1)
    }

    /// The number of the relative positions.
    pub(crate) fn relative(
        &mut self,
        key: &str,
        make: impl FnOnce() -> Result<Relative, Error>,
    ) -> Result<usize, Error> {
        let key = format!("relative {key}");
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        self.constants.relatives.push(make()?);
        self.known.insert(key, self.constants.relatives.len() - 1);
        Ok(self.constants.relatives.len() - 1)
    }

    /// Packs everything that was asked for.
    pub(crate) fn finish(self, activations: &Activations, team: &Team) -> Result<Constants, Error> {
        let Collector { weights, mut constants, requests, .. } = self;
        // Largest first: the cores finish together, and the largest unpacked copy meets the fewest packed ones.
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(requests[*i].size()));
        let packed: Vec<Mutex<Option<Result<Packed, Error>>>> = requests.iter().map(|_| Mutex::new(None)).collect();
        team.run(order.len(), &|task, _| {
            let result = requests[order[task]].pack(weights, activations);
            *packed[order[task]].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        });
        for slot in packed {
            let result = slot.into_inner().unwrap_or_else(|e| e.into_inner());
            constants.matrices.push(result.unwrap_or_else(|| Err(Error::new("a matrix was not packed")))?);
        }
        Ok(constants)
    }
}

impl Request<'_> {
    fn size(&self) -> usize {
        self.parts.iter().map(|(linear, _)| linear.outputs * linear.inputs).sum()
    }

    fn pack(&self, weights: &Weights, activations: &Activations) -> Result<Packed, Error> {
        let inputs = self.parts[0].0.inputs;
        let outputs = self.parts.iter().map(|(linear, _)| linear.outputs).sum();
        if let Some((linear, _)) = self.parts.iter().find(|(linear, _)| linear.inputs != inputs) {
            return Err(Error::new(format!("maps of {inputs} and {} inputs cannot be stacked", linear.inputs)));
        }
        let mut bias = Vec::with_capacity(outputs);
        for (linear, plus) in &self.parts {
            bias.extend(match &linear.bias {
                Some(bias) => finite::bias(weights, bias, linear.outputs)?,
                None => vec![0.0; linear.outputs],
            });
            if let Some(plus) = plus {
                let from = bias.len() - linear.outputs;
                for (b, p) in bias[from..].iter_mut().zip(finite::vector(weights, plus, linear.outputs)?) {
                    *b += p;
                }
            }
        }
        let mut biased = self.parts.iter().any(|(linear, plus)| linear.bias.is_some() || plus.is_some());
        if let Some(Affine { scale, shift }) = &self.fold {
            biased = true;
            for ((bias, scale), shift) in bias.iter_mut().zip(scale).zip(shift) {
                *bias = (f64::from(*bias) * f64::from(*scale) + f64::from(*shift)) as f32;
            }
        }
        let names: Vec<String> = self.parts.iter().map(|(linear, _)| linear.weight.name()).collect();
        let scales = self.fold.as_ref().map(|fold| &fold.scale);
        let matrix = match self.integers(weights)? {
            Some(mut found) => {
                // Every row has a scale of its own: folding rounds nothing.
                scales.iter().for_each(|scales| found.scales.iter_mut().zip(*scales).for_each(|(s, by)| *s *= by));
                PackedMatrix::pack_integers(&found.values, &found.scales, outputs, inputs)
            }
            None => {
                let mut floats = self.floats(weights)?;
                self.check_finite(&floats)?;
                for (row, scale) in floats.chunks_exact_mut(inputs.max(1)).zip(scales.into_iter().flatten()) {
                    row.iter_mut().for_each(|w| *w *= scale);
                }
                PackedMatrix::pack(&floats, outputs, inputs, self.format)
            }
        };
        self.parts.iter().for_each(|(linear, _)| release(weights, &linear.weight));
        let matrix = matrix.with_input(input_rounding(activations, &names));
        Ok(Packed { names, matrix, bias: biased.then_some(bias) })
    }

    /// All maps as floats, stacked.
    fn floats(&self, weights: &Weights) -> Result<Vec<f32>, Error> {
        if let [(linear, _)] = self.parts[..] {
            return weights.matrix(linear);
        }
        let mut values = Vec::with_capacity(self.size());
        for (linear, _) in &self.parts {
            values.extend_from_slice(&weights.matrix(linear)?);
            release(weights, &linear.weight);
        }
        Ok(values)
    }

    /// Refuses what is no number, by its map's name.
    fn check_finite(&self, floats: &[f32]) -> Result<(), Error> {
        let mut rest = floats;
        for (linear, _) in &self.parts {
            let (own, others) = rest.split_at(linear.outputs * linear.inputs);
            finite::check(&linear.weight.name(), own)?;
            rest = others;
        }
        Ok(())
    }

    /// All maps as integers, stacked, if they are to be integers and are stored so.
    fn integers(&self, weights: &Weights) -> Result<Option<Integers>, Error> {
        if self.format != Format::Int8 {
            return Ok(None);
        }
        let mut all = Integers { values: Vec::new(), scales: Vec::new() };
        for (linear, _) in &self.parts {
            let Some(part) = weights.integers(linear)? else { return Ok(None) };
            if self.parts.len() == 1 {
                return Ok(Some(part));
            }
            all.values.extend_from_slice(&part.values);
            all.scales.extend_from_slice(&part.scales);
        }
        Ok(Some(all))
    }
}

/// How a matrix' inputs are rounded: by the plan's range (the widest of stacked maps), else per token.
fn input_rounding(activations: &Activations, names: &[String]) -> InputRounding {
    let known: Option<Vec<&[f32; 2]>> = names.iter().map(|name| activations.ranges.get(name)).collect();
    let range = known
        .map(|ranges| ranges.iter().fold((f32::MAX, f32::MIN), |(least, most), [a, b]| (least.min(*a), most.max(*b))));
    InputRounding::new(((1u32 << activations.bits) - 1) as u8, range)
}

/// The packed copy is what will be read from now on.
fn release(weights: &Weights, matrix: &Matrix) {
    match matrix {
        Matrix::Tensor { name, .. } => weights.release(name),
        Matrix::ConcatInputs(parts) => parts.iter().for_each(|(part, _)| release(weights, part)),
    }
}
