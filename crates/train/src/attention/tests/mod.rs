//! Every mechanism against what its paper says, on the host, slowly and obviously.

mod causal;
mod closed;
mod cost;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod device;
mod knobs;
mod patterns;
mod randomised;
mod recurrent;
mod sorted;

use super::{Input, Kind, Layout, Sizes};
use crate::Parameters;
use crate::random::Random;
use burn::tensor::{Device, Tensor, TensorData};

/// A layer with fresh tensors and drawn rows.
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) sizes: Sizes,
    pub(super) lengths: Vec<usize>,
    pub(super) causal: bool,
    pub(super) seed: u64,
    pub(super) layout: Layout,
    /// Tokens of each sequence with padding.
    rows: usize,
    x: Vec<f32>,
    parameters: Parameters,
}

/// Queries, keys or values `[groups, length, width]` on the host.
pub(super) type Rows = Vec<f64>;

impl Case {
    /// Sequences of these lengths, padded to the longest or `length`; two heads of width 4.
    pub(super) fn new(kind: &str, length: usize, lengths: &[usize], causal: bool, seed: u64) -> Case {
        Case::of(
            serde_json::from_str(kind).unwrap(),
            Sizes { length, width: 8, attention_width: 8, heads: 2 },
            lengths,
            causal,
            seed,
        )
    }

    pub(super) fn of(kind: Kind, sizes: Sizes, lengths: &[usize], causal: bool, seed: u64) -> Case {
        let device = Device::flex().autodiff();
        let mut parameters = Parameters::empty(&device);
        kind.mechanism().tensors(&sizes).iter().for_each(|fresh| fresh.insert(&mut parameters, "a", seed));
        let mut random = Random::at(seed, &[99]);
        let x = (0..lengths.len() * sizes.length * sizes.width).map(|_| 1.5 * random.normal() as f32).collect();
        let (rows, layout) = (sizes.length, Layout::of(sizes.length));
        Case { kind, sizes, lengths: lengths.to_vec(), causal, seed, layout, rows, x, parameters }
    }

    /// A single sequence without the padding behind so many rows.
    pub(super) fn cut(mut self, rows: usize) -> Case {
        self.x.truncate(rows * self.sizes.width);
        Case { rows, ..self }
    }

    /// The same with smaller rows: queries and keys are shorter, and scores nearer to each other.
    pub(super) fn scaled(mut self, by: f32) -> Case {
        self.x.iter_mut().for_each(|x| *x *= by);
        self
    }

    /// Calls with the layer's input, tracked for gradients or not.
    pub(super) fn with<T>(&self, tracked: bool, job: impl FnOnce(&Input<'_>) -> T) -> T {
        let parameters = if tracked { self.parameters.clone() } else { self.parameters.without_autodiff() };
        let shape = [self.lengths.len(), self.rows, self.sizes.width];
        let x = Tensor::from_data(TensorData::new(self.x.clone(), shape), &Device::flex());
        let x = if tracked { x.autodiff() } else { x };
        job(&Input {
            x,
            lengths: &self.lengths,
            heads: self.sizes.heads,
            causal: self.causal,
            layout: self.layout,
            one_by_one: usize::MAX,
            seed: self.seed,
            parameters: &parameters,
            prefix: "a",
            known: None,
        })
    }

    /// What the mechanism makes of it, `[groups, length, head width]`; all heads at once and one by one give the same.
    pub(super) fn mixed(&self) -> Rows {
        let (together, one_by_one) = (self.mixed_from(usize::MAX), self.mixed_from(0));
        let most = together.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let apart = self.apart(&together, &one_by_one);
        assert!(apart <= 1e-5 * (1.0 + most), "{:?}: heads one by one: {apart}", self.kind);
        together
    }

    /// The same with heads one by one from so many tokens on.
    pub(super) fn mixed_from(&self, one_by_one: usize) -> Rows {
        self.with(false, |input| {
            numbers(self.kind.attend(&Input { x: input.x.clone(), one_by_one, ..*input }).unwrap())
        })
    }

    /// Queries, keys and values.
    pub(super) fn projected(&self) -> [Rows; 3] {
        self.with(false, |input| {
            let heads = input.all().unwrap();
            [numbers(heads.query), numbers(heads.key), numbers(heads.value)]
        })
    }

    /// The real tokens of a group.
    pub(super) fn real(&self, group: usize) -> usize {
        self.lengths[group / self.sizes.heads]
    }

    pub(super) fn groups(&self) -> usize {
        self.lengths.len() * self.sizes.heads
    }

    /// Changes a row of the input.
    pub(super) fn disturb(&mut self, sequence: usize, token: usize) {
        let from = (sequence * self.rows + token) * self.sizes.width;
        self.x[from..from + self.sizes.width].iter_mut().for_each(|x| *x = 3.0 - 2.0 * *x);
    }

    /// A tensor of the layer.
    pub(super) fn tensor(&self, name: &str) -> Rows {
        let value = self.parameters.get(&format!("a.{name}")).unwrap().value.clone();
        value.inner().try_into_vec_as::<f32>().unwrap().into_iter().map(f64::from).collect()
    }

    /// Puts other numbers into a tensor of the layer.
    pub(super) fn set(&mut self, name: &str, values: &[f64]) {
        let shape = self.parameters.get(&format!("a.{name}")).unwrap().shape.clone();
        self.parameters.insert_values(&format!("a.{name}"), values.iter().map(|x| *x as f32).collect(), shape);
    }

    /// Full attention over the keys that `seen(query, key)` allows, scores with something added.
    pub(super) fn dense(
        &self,
        seen: &dyn Fn(usize, usize) -> bool,
        added: &dyn Fn(usize, usize, usize) -> f64,
    ) -> Rows {
        let [q, k, v] = self.projected();
        let (length, width) = (self.rows, self.sizes.head_width());
        let mut out = vec![0.0; q.len()];
        for group in 0..self.groups() {
            for i in 0..self.real(group) {
                let row = |x: &Rows, at: usize| x[(group * length + at) * width..][..width].to_vec();
                let keys: Vec<usize> = (0..self.real(group)).filter(|j| seen(i, *j)).collect();
                let score = |j: &usize| {
                    let dot: f64 = row(&q, i).iter().zip(row(&k, *j)).map(|(a, b)| a * b).sum();
                    (dot / (width as f64).sqrt() + added(group, i, *j)).exp()
                };
                let scores: Vec<f64> = keys.iter().map(score).collect();
                let sum: f64 = scores.iter().sum();
                for (j, score) in keys.iter().zip(&scores) {
                    for (column, value) in row(&v, *j).iter().enumerate() {
                        out[(group * length + i) * width + column] += score / sum * value;
                    }
                }
            }
        }
        out
    }

    /// The largest difference of two results at real tokens.
    pub(super) fn apart(&self, a: &Rows, b: &Rows) -> f64 {
        assert_eq!(a.len(), b.len());
        let each = self.rows * self.sizes.head_width();
        let real = |at: usize| at % each / self.sizes.head_width() < self.real(at / each);
        let differences = (0..a.len()).filter(|at| real(*at)).map(|at| (a[at] - b[at]).abs());
        differences.fold(0.0, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) })
    }

    /// The root of the mean squared difference at real tokens.
    pub(super) fn error(&self, a: &Rows, b: &Rows) -> f64 {
        let each = self.rows * self.sizes.head_width();
        let real = |at: &usize| at % each / self.sizes.head_width() < self.real(at / each);
        let squares: Vec<f64> = (0..a.len()).filter(real).map(|at| (a[at] - b[at]).powi(2)).collect();
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    }
}

pub(super) fn numbers(x: Tensor<3>) -> Rows {
    x.try_into_vec_as::<f32>().unwrap().into_iter().map(f64::from).collect()
}

/// Nothing added to scores.
pub(super) fn nothing(_: usize, _: usize, _: usize) -> f64 {
    0.0
}
