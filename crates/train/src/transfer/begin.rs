//! How a student in the teacher's image begins: as close to the teacher as its new functions can be.
//!
//! The teacher reads some texts. Every PowerNorm begins as the map of each channel that is closest (least squares) to what
//! the layer norm did to that channel; every network begins trained on rows of the teacher's scores to give their softmax.

use crate::optimizer::NamedGradients;
use crate::random::Random;
use crate::trainer::collect;
use crate::{AdamOptions, AdamW, LinearHook, Mode, Network, PaddedBatch, Parameters};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation};
use serde::Serialize;
use sparing_model::{Architecture, Error, Layer, Norm, NormKind, Sequence, ShareNetwork};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Texts that are read together.
pub(super) const BATCH: usize = 16;
/// Rows of scores that are fitted together.
const ROWS: usize = 512;

/// How much is done before transfer begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beginning {
    /// Texts that the teacher reads; 0: norms and networks begin fresh.
    pub texts: usize,
    /// Rows of scores that are kept of every layer.
    pub rows: usize,
    /// Updates of every network.
    pub steps: usize,
    /// Their learning rate.
    pub rate: f64,
}

impl Default for Beginning {
    fn default() -> Self {
        Beginning { texts: 256, rows: 8192, steps: 300, rate: 2e-3 }
    }
}

/// Sums over rows, one number per channel: of the rows' count, x, x², y and x y.
#[derive(Clone)]
struct Sums {
    count: f64,
    x: Tensor<2>,
    xx: Tensor<2>,
    y: Tensor<2>,
    xy: Tensor<2>,
}

/// Looks at the teacher.
struct Probe<'a> {
    norms: RefCell<BTreeMap<String, Sums>>,
    /// Rows of scores and shares by layer, `[rows, tokens]` each, zeros where there is no token.
    rows: RefCell<BTreeMap<usize, Vec<[Tensor<2>; 2]>>>,
    /// Rows of the batch at hand, by their place among `[batch * heads * length]`.
    places: RefCell<BTreeMap<usize, Vec<i32>>>,
    batch: RefCell<Option<PaddedBatch>>,
    networks: &'a BTreeMap<usize, &'a ShareNetwork>,
}

impl LinearHook for Probe<'_> {
    fn looks_inside(&self) -> bool {
        true
    }

    fn normed(&self, norm: &Norm, before: &Tensor<2>, behind: &Tensor<2>, real: Option<&Tensor<2, Bool>>) {
        let x = match real {
            Some(real) => before.clone() * real.clone().float(),
            None => before.clone(),
        };
        let count = self.batch.borrow().as_ref().map_or(0, PaddedBatch::tokens) as f64;
        let y = match real {
            Some(real) => behind.clone() * real.clone().float(),
            None => behind.clone(),
        };
        let sum = |x: Tensor<2>| x.sum_dim(0);
        let (xx, xy) = (sum(x.clone() * x.clone()), sum(x.clone() * y.clone()));
        let mut new = Sums { count, x: sum(x), xx, y: sum(y), xy };
        let mut norms = self.norms.borrow_mut();
        if let Some(old) = norms.remove(&norm.weight) {
            new = Sums {
                count: old.count + new.count,
                x: old.x + new.x,
                xx: old.xx + new.xx,
                y: old.y + new.y,
                xy: old.xy + new.xy,
            };
        }
        norms.insert(norm.weight.clone(), new);
    }

    fn shares(&self, layer: usize, scores: &Tensor<4>, shares: &Tensor<4>) {
        let (Some(network), places) = (self.networks.get(&layer), self.places.borrow()) else { return };
        let Some(places) = places.get(&layer).filter(|places| !places.is_empty()) else { return };
        let [count, heads, queries, keys] = scores.dims();
        let device = scores.device();
        let at: Tensor<1, Int> = Tensor::from_data(TensorData::new(places.clone(), [places.len()]), &device);
        let pick = |x: &Tensor<4>| x.clone().reshape([count * heads * queries, keys]).select(0, at.clone());
        let shares = pick(shares);
        // Hidden scores are far below all others, and their shares zero.
        let seen = shares.clone().greater_elem(0.0).float();
        let scores = pick(scores).clamp_min(-1e4) * seen;
        let wide = |x: Tensor<2>| match network.tokens.checked_sub(keys) {
            Some(more) if more > 0 => Tensor::cat(vec![x, Tensor::zeros([places.len(), more], &device)], 1),
            _ => x.slice([0..places.len(), 0..network.tokens]),
        };
        self.rows.borrow_mut().entry(layer).or_default().push([wide(scores), wide(shares)]);
    }
}

impl Beginning {
    /// Gives a student's norms and networks their first numbers.
    pub(super) fn begin(
        &self,
        architecture: &Architecture,
        parameters: &mut Parameters,
        (teacher, teacher_parameters): (&Network, &Parameters),
        texts: &[Sequence],
        seed: u64,
    ) -> Result<(), Error> {
        let layers = architecture.layers.iter().enumerate();
        let networks: BTreeMap<usize, &ShareNetwork> =
            layers.filter_map(|(i, layer)| Some((i, layer.attention.network.as_ref()?))).collect();
        let mut random = Random::at(seed, &[7]);
        let mut order: Vec<usize> = (0..texts.len()).collect();
        random.shuffle(&mut order);
        order.truncate(self.texts);
        let probe = Probe {
            norms: RefCell::default(),
            rows: RefCell::default(),
            places: RefCell::default(),
            batch: RefCell::default(),
            networks: &networks,
        };
        let device = teacher_parameters.device().clone();
        let batches = order.len().div_ceil(BATCH).max(1);
        let rows = self.rows.div_ceil(batches);
        for chosen in order.chunks(BATCH) {
            let sequences: Vec<Sequence> = chosen.iter().map(|&i| texts[i].clone()).collect();
            let batch = PaddedBatch::fitting(&sequences, architecture.max_tokens, &device);
            let longest = batch.lengths.iter().copied().max().unwrap_or(1);
            for (layer, places) in (0..architecture.layers.len()).map(|layer| {
                let heads = teacher.architecture().layers[layer].attention.heads;
                let place = |random: &mut Random| {
                    let (text, head) = (random.below(chosen.len()), random.below(heads.max(1)));
                    let query = random.below(batch.lengths[text]);
                    ((text * heads + head) * batch.length + query) as i32
                };
                (layer, (0..rows.min(chosen.len() * heads * longest)).map(|_| place(&mut random)).collect())
            }) {
                probe.places.borrow_mut().insert(layer, places);
            }
            *probe.batch.borrow_mut() = Some(batch.clone());
            teacher.encode(teacher_parameters, &batch, Mode::default(), Some(&probe))?;
        }
        let norms = architecture.layers.iter().flat_map(Layer::norms).chain(&architecture.embeddings.norm);
        for norm in norms.filter(|norm| norm.kind == NormKind::Power) {
            if let Some(sums) = probe.norms.borrow().get(&norm.weight) {
                begin_norm(norm, sums, parameters)?;
            }
        }
        let mut rows = probe.rows.take();
        let mut done = BTreeSet::new();
        for (layer, network) in &networks {
            begin_projections(network, parameters);
            let name = network.hidden.weight.name();
            if !done.insert(name.clone()) {
                continue;
            }
            // A shared network learns from all layers that share it.
            let same = networks.iter().filter(|(_, other)| other.hidden.weight.name() == name).map(|(i, _)| *i);
            let all: Vec<[Tensor<2>; 2]> = same.flat_map(|i| rows.remove(&i).unwrap_or_default()).collect();
            let seed = Random::at(seed, &[8, *layer as u64]).bits();
            self.fit(network, parameters, all, seed)?;
        }
        parameters.add_statistics(architecture);
        Ok(())
    }

    /// Trains a network on rows of scores.
    fn fit(
        &self,
        network: &ShareNetwork,
        parameters: &mut Parameters,
        rows: Vec<[Tensor<2>; 2]>,
        seed: u64,
    ) -> Result<(), Error> {
        let width = network.hidden.inputs;
        let mut random = Random::new(seed);
        let mut own = Parameters::empty(parameters.device());
        let mut fresh = |name: &str, shape: Vec<usize>, deviation: f64| {
            let count = shape.iter().product();
            let values = (0..count).map(|_| (random.normal() * deviation) as f32).collect();
            own.insert_values(name, values, shape);
        };
        let scale = 1.0 / (width as f64).sqrt();
        let [hidden, output] = [&network.hidden, &network.output].map(|map| (map.weight.name(), map.bias.clone()));
        fresh(&hidden.0, vec![width, width], scale);
        fresh(&output.0, vec![width, width], 0.1 * scale);
        for bias in [&hidden.1, &output.1].into_iter().flatten() {
            fresh(&bias.name, vec![width], 0.0);
        }
        if !rows.is_empty() && self.steps > 0 {
            let (scores, shares): (Vec<_>, Vec<_>) = rows.into_iter().map(|[scores, shares]| (scores, shares)).unzip();
            let [mut scores, mut shares] = [scores, shares].map(|rows| Tensor::cat(rows, 0));
            if let Some(projections) = &network.projections {
                // What a projection makes of scores, and how much of all shares the keys have that it joins.
                let map = parameters.get(&projections.keys.weight.name())?.value.clone().without_autodiff();
                let joined = map.clone().greater_elem(0.0).float();
                scores = scores.matmul(map.transpose());
                shares = shares.matmul(joined.transpose());
            }
            // What no text was long enough for neither counts nor is counted, until a text is.
            let seen = scores.clone().abs().sum_dim(0).greater_elem(0.0).float();
            leave_out(&mut own, &hidden.0, seen.clone())?;
            leave_out(&mut own, &output.0, seen.transpose())?;
            let mut optimizer =
                AdamW::new(AdamOptions { weight_decay: 0.0, ..AdamOptions::default() }, BTreeMap::new());
            let count = scores.dims()[0];
            for step in 0..self.steps {
                let chosen: Vec<i32> = (0..ROWS.min(count)).map(|_| random.below(count) as i32).collect();
                let chosen = indices(chosen, &scores.device());
                let (x, y) = (scores.clone().select(0, chosen.clone()), shares.clone().select(0, chosen));
                let seen = x.clone().abs().greater_elem(0.0).float();
                let [x, y, seen] = [x, y, seen].map(Tensor::autodiff);
                let map = |x: Tensor<2>, (weight, bias): (Tensor<2>, Option<Tensor<2>>)| {
                    let product = x.matmul(weight.transpose());
                    bias.map_or(product.clone(), |bias| product + bias)
                };
                let inner = activation::relu(map(x, own.linear(&network.hidden)?));
                let far = (map(inner, own.linear(&network.output)?) - y) * seen;
                let loss = (far.clone() * far).sum().div_scalar(ROWS.min(count) as f64);
                let mut gradients = NamedGradients::new();
                collect(&own, &loss, &mut gradients);
                let left = 1.0 - step as f64 / self.steps as f64;
                optimizer.update(&mut own, gradients, self.rate * left)?;
            }
        }
        for (name, parameter) in own.iter() {
            parameters.insert(name, parameter.value.clone(), parameter.shape.clone());
        }
        Ok(())
    }
}

/// Clears what is not seen of a matrix: a row or a column of ones and zeros.
fn leave_out(parameters: &mut Parameters, name: &str, seen: Tensor<2>) -> Result<(), Error> {
    let (value, shape) = (parameters.get(name)?.value.clone().without_autodiff(), parameters.get(name)?.shape.clone());
    let values = (value * seen).try_into_vec_as::<f32>();
    let values = values.map_err(|e| crate::device::unread(&format!("\"{name}\""), e))?;
    parameters.insert_values(name, values, shape);
    Ok(())
}

/// Numbers of rows on a device.
fn indices(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// The map of every channel that is closest to what a layer norm did to it.
fn begin_norm(norm: &Norm, sums: &Sums, parameters: &mut Parameters) -> Result<(), Error> {
    let read = |tensor: &Tensor<2>| -> Result<Vec<f64>, Error> {
        let values = tensor.clone().try_into_vec_as::<f32>();
        let values = values.map_err(|e| crate::device::unread("statistics", e))?;
        Ok(values.into_iter().map(|x| f64::from(x) / sums.count.max(1.0)).collect())
    };
    let (x, xx, y, xy) = (read(&sums.x)?, read(&sums.xx)?, read(&sums.y)?, read(&sums.xy)?);
    let mut begin = [vec![], vec![], vec![]];
    for i in 0..norm.width {
        let variance = (xx[i] - x[i] * x[i]).max(0.0);
        // A channel that never changes is a constant.
        let slope = if variance > 1e-12 * xx[i] { (xy[i] - x[i] * y[i]) / variance } else { 0.0 };
        // One that is always zero has a mean of squares that nothing can be divided by.
        let phi = xx[i].max(f64::from(f32::MIN_POSITIVE));
        let numbers = [slope * (xx[i] + f64::from(norm.eps)).sqrt(), y[i] - slope * x[i], phi];
        begin.iter_mut().zip(numbers).for_each(|(list, number)| list.push(number as f32));
    }
    for (name, values) in [norm.weight.clone(), norm.bias.clone(), norm.running_phi()].iter().zip(begin) {
        parameters.insert_values(name, values, vec![norm.width]);
    }
    Ok(())
}

/// Keys and values are joined in groups of neighbours: a projection begins as their mean.
fn begin_projections(network: &ShareNetwork, parameters: &mut Parameters) {
    let Some(projections) = &network.projections else { return };
    for map in [&projections.keys, &projections.values] {
        let mut values = vec![0.0; map.outputs * map.inputs];
        let group = |token: usize| token * map.outputs / map.inputs;
        for token in 0..map.inputs {
            let members = (0..map.inputs).filter(|other| group(*other) == group(token)).count();
            values[group(token) * map.inputs + token] = 1.0 / members as f32;
        }
        parameters.insert_values(&map.weight.name(), values, vec![map.outputs, map.inputs]);
    }
}
