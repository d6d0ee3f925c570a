//! Updates of all tensors at once, for devices where every operation costs a launch.

use super::{AdamOptions, NamedGradients};
use crate::Parameters;
use crate::gpu::{Step, fused};
use burn::tensor::{Tensor, TensorData};
use std::ops::Range;

/// Tensors end to end, with their moments.
pub(super) struct Flat {
    places: Vec<Place>,
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
        let (mut values, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        let (mut scale, mut decay) = (Vec::new(), Vec::new());
        let mut end = 0;
        for part in parts {
            let shape = part.value.dims();
            let range = end..end + shape[0] * shape[1];
            let [m, v] = part.moments.unwrap_or_else(|| [part.value.zeros_like(), part.value.zeros_like()]);
            values.push(line(part.value));
            first.push(line(m));
            second.push(line(v));
            scale.resize(range.end, part.scale as f32);
            decay.resize(range.end, part.decay as f32);
            end = range.end;
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
        let g = fused::together(&lines).unwrap_or_else(|| Tensor::cat(lines, 0));
        let norm = fused::square_sum(&g).unwrap_or_else(|| (g.clone() * g.clone()).sum()).sqrt();
        let found = fused::adam(
            [&self.value, &g, &self.first, &self.second],
            &norm,
            self.scale.as_ref(),
            self.decay.as_ref(),
            Step::new(o, corrections, rate),
        );
        [self.value, self.first, self.second] = found.unwrap_or_else(|| self.updated(o, corrections, g, &norm, rate));
        let mut places = self.places.iter();
        // Both are in the order of names.
        let mut next = places.next();
        for (name, parameter) in parameters.iter_mut() {
            if let Some(place) = next.filter(|place| place.name == name) {
                parameter.replace(cut(&self.value, place));
                next = places.next();
            }
        }
        norm
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
    flat.clone().slice([place.range.clone()]).reshape(place.shape)
}
