//! Updates of all tensors at once, for devices where every operation costs a launch.

use super::{AdamOptions, NamedGradients};
use crate::Parameters;
use crate::feed;
use crate::gpu::{Step, fused};
use burn::tensor::{Tensor, TensorData};
use std::ops::Range;

/// Numbers from whose multiples on tensors lie on a GPU: a part that begins there is read without copying it (512 bytes in CUDA, 256 at
/// most elsewhere).
const STEP: usize = 128;

/// Tensors end to end, with their moments.
pub(super) struct Flat {
    places: Vec<Place>,
    /// How much room each has.
    rooms: Vec<usize>,
    /// The parameters are parts of `value`: who changes it changes them.
    shared: bool,
    value: Tensor<1>,
    first: Tensor<1>,
    second: Tensor<1>,
    /// What each element loses to decay per rate; `None`: nothing does.
    decay: Option<Tensor<1>>,
    /// Factor of the rate per element; `None`: one throughout.
    scale: Option<Tensor<1>>,
}

struct Place {
    name: String,
    shape: [usize; 2],
    range: Range<usize>,
}

/// One tensor to be laid behind the others.
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    pub(super) value: Tensor<2>,
    pub(super) moments: Option<[Tensor<2>; 2]>,
    /// Factor of the rate.
    pub(super) scale: f64,
    /// Share lost to decay per rate.
    pub(super) decay: f64,
}

impl Flat {
    pub(super) fn new(parts: Vec<Part>) -> Flat {
        let mut places = Vec::with_capacity(parts.len());
        let step = if parts.iter().any(|part| crate::ops::on_host(&part.value.device())) { 1 } else { STEP };
        let mut rooms = Vec::with_capacity(parts.len());
        let (mut values, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        let (mut scale, mut decay) = (Vec::new(), Vec::new());
        let mut end = 0;
        for part in parts {
            let shape = part.value.dims();
            let range = end..end + shape[0] * shape[1];
            let room = range.len().next_multiple_of(step);
            let fill = |line: Tensor<1>| match room - range.len() {
                0 => vec![line],
                missing => vec![line.clone(), Tensor::zeros([missing], &line.device())],
            };
            let [m, v] = part.moments.unwrap_or_else(|| [part.value.zeros_like(), part.value.zeros_like()]);
            values.extend(fill(line(part.value)));
            first.extend(fill(line(m)));
            second.extend(fill(line(v)));
            end += room;
            scale.resize(end, part.scale as f32);
            decay.resize(end, part.decay as f32);
            rooms.push(room);
            places.push(Place { name: part.name.to_string(), shape, range });
        }
        let value = Tensor::cat(values, 0);
        let device = value.device();
        let constant = |numbers: Vec<f32>, plain: f32| {
            let needed = numbers.iter().any(|x| *x != plain);
            needed.then(|| Tensor::from_data(TensorData::new(numbers, [end]), &device))
        };
        Flat {
            places,
            rooms,
            shared: false,
            first: Tensor::cat(first, 0),
            second: Tensor::cat(second, 0),
            decay: constant(decay, 0.0),
            scale: constant(scale, 1.0),
            value,
        }
    }

    /// Whether exactly these tensors are here.
    pub(super) fn holds(&self, gradients: &NamedGradients) -> bool {
        gradients.len() == self.places.len() && self.places.iter().all(|p| gradients.contains_key(&p.name))
    }

    /// Makes the parameters parts of what lies here, if this device can.
    pub(super) fn share(&mut self, parameters: &mut Parameters) {
        self.put(parameters);
        let part = |place: &Place| Some((&parameters.get(&place.name).ok()?.value, &self.value));
        self.shared =
            self.places.iter().all(|p| part(p).is_some_and(|(part, whole)| fused::shares_memory(part, whole)));
    }

    /// Values and moments as they are now.
    pub(super) fn copies(&self) -> [Tensor<1>; 3] {
        [&self.value, &self.first, &self.second].map(|x| x.clone().mul_scalar(1.0))
    }

    /// Goes back to values and moments as they were, where they are.
    pub(super) fn write_back(&self, copies: &[Tensor<1>; 3]) {
        for (to, from) in [&self.value, &self.first, &self.second].into_iter().zip(copies) {
            fused::write_over(to, from);
        }
    }

    /// Goes back to values and moments as they were, which come to lie elsewhere.
    pub(super) fn put_back(&mut self, copies: [Tensor<1>; 3], parameters: &mut Parameters) {
        [self.value, self.first, self.second] = copies;
        self.share(parameters);
    }

    /// Where parameters change, if they are parts of it.
    pub(super) fn place(&self) -> Option<Tensor<1>> {
        self.shared.then(|| self.value.clone())
    }

    /// One update; returns the gradients' norm before clipping.
    pub(super) fn update(
        &mut self,
        o: &AdamOptions,
        corrections: (f64, f64),
        parameters: &mut Parameters,
        mut gradients: NamedGradients,
        rate: f64,
    ) -> Tensor<1> {
        let lines: Vec<Tensor<1>> = self.places.iter().filter_map(|p| gradients.remove(&p.name)).map(line).collect();
        let g = fused::together(&lines, &self.rooms).unwrap_or_else(|| Tensor::cat(lines, 0));
        let norm = fused::square_sum(&g).unwrap_or_else(|| (g.clone() * g.clone()).sum()).sqrt();
        if self.shared {
            let now = Step::new(o, corrections, rate).numbers();
            let numbers = feed::floats(&g.device(), now, |moment| {
                Ok(moment.step.as_ref().map(Step::numbers).unwrap_or_default())
            });
            let all = [&self.value, &g, &self.first, &self.second];
            if fused::adam(all, &norm, self.scale.as_ref(), self.decay.as_ref(), &numbers).is_some() {
                return norm;
            }
        }
        [self.value, self.first, self.second] = self.updated(o, corrections, g, &norm, rate);
        self.put(parameters);
        norm
    }

    /// Puts what lies here into the parameters.
    fn put(&self, parameters: &mut Parameters) {
        // Both are in the order of names.
        let mut places = self.places.iter().peekable();
        for (name, parameter) in parameters.iter_mut() {
            if let Some(place) = places.next_if(|place| place.name == name) {
                parameter.replace(cut(&self.value, place));
            }
        }
    }

    /// Values and moments after an update, by Burn's operations.
    fn updated(
        &self,
        o: &AdamOptions,
        corrections: (f64, f64),
        mut g: Tensor<1>,
        norm: &Tensor<1>,
        rate: f64,
    ) -> [Tensor<1>; 3] {
        if let Some(limit) = o.clip {
            g = g * (norm.clone().add_scalar(1e-6).recip() * limit).clamp_max(1.0);
        }
        let square = (g.clone() * g.clone()).mul_scalar(1.0 - o.beta2);
        let first = self.first.clone().mul_scalar(o.beta1) + g.mul_scalar(1.0 - o.beta1);
        let second = self.second.clone().mul_scalar(o.beta2) + square;
        let root = second.clone().sqrt().div_scalar(corrections.1.sqrt()).add_scalar(o.epsilon);
        let mut change = (first.clone() / root).mul_scalar(rate / corrections.0);
        if let Some(scale) = &self.scale {
            change = change * scale.clone();
        }
        let mut value = self.value.clone();
        if let Some(decay) = &self.decay {
            value = value * decay.clone().mul_scalar(-rate).add_scalar(1.0);
        }
        [value - change, first, second]
    }

    /// The moments by tensor.
    pub(super) fn moments(&self) -> impl Iterator<Item = (String, [Tensor<2>; 2])> {
        self.places.iter().map(|p| (p.name.clone(), [cut(&self.first, p), cut(&self.second, p)]))
    }
}

fn line(tensor: Tensor<2>) -> Tensor<1> {
    let [rows, columns] = tensor.dims();
    tensor.reshape([rows * columns])
}

fn cut(flat: &Tensor<1>, place: &Place) -> Tensor<2> {
    let copied = || flat.clone().slice([place.range.clone()]).reshape(place.shape);
    fused::part(flat, place.range.clone(), place.shape).unwrap_or_else(copied)
}
