//! What tensors begin as. Made on the host from seed and name, so that they are the same on every device.

use crate::Parameters;
use crate::random::Random;

/// Sizes of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The longest sequence.
    pub length: usize,
    /// Width of rows.
    pub width: usize,
    /// Width of all heads together.
    pub attention_width: usize,
    /// Heads.
    pub heads: usize,
}

impl Sizes {
    /// Width of one head.
    pub fn head_width(&self) -> usize {
        self.attention_width / self.heads
    }
}

/// A tensor to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Fresh {
    /// Its name within its layer.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub begin: Begin,
    /// Whether training changes it.
    pub trainable: bool,
}

/// The first numbers of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Begin {
    /// Zeros.
    Zero,
    /// Ones.
    One,
    /// Normal with this deviation.
    Normal(f64),
    /// Rows that are orthogonal in groups as large as they are long, each as long as a normal row is (FAVOR+).
    Orthogonal,
}

impl Fresh {
    /// A matrix `[outputs, inputs]` that keeps the size of what it maps (Glorot and Bengio 2010).
    pub fn map(name: &str, outputs: usize, inputs: usize) -> Fresh {
        let begin = Begin::Normal((2.0 / (outputs + inputs) as f64).sqrt());
        Fresh { name: name.to_string(), shape: vec![outputs, inputs], begin, trainable: true }
    }

    /// Any tensor that is trained.
    pub fn new(name: &str, shape: &[usize], begin: Begin) -> Fresh {
        Fresh { name: name.to_string(), shape: shape.to_vec(), begin, trainable: true }
    }

    /// The same, never trained.
    pub fn fixed(self) -> Fresh {
        Fresh { trainable: false, ..self }
    }

    /// Puts it among others, its name after a prefix.
    pub fn insert(&self, parameters: &mut Parameters, prefix: &str, seed: u64) {
        let name = if prefix.is_empty() { self.name.clone() } else { format!("{prefix}.{}", self.name) };
        // FNV-1a.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut random = Random::at(seed, &[hash]);
        let count: usize = self.shape.iter().product();
        let values = match self.begin {
            Begin::Zero => vec![0.0; count],
            Begin::One => vec![1.0; count],
            Begin::Normal(deviation) => (0..count).map(|_| (deviation * random.normal()) as f32).collect(),
            Begin::Orthogonal => orthogonal(self.shape[0], count / self.shape[0].max(1), &mut random),
        };
        parameters.insert_values(&name, values, self.shape.clone());
        if !self.trainable {
            for (_, parameter) in parameters.iter_mut().filter(|(other, _)| *other == name) {
                parameter.trainable = false;
                parameter.replace(parameter.value.clone());
            }
        }
    }
}

/// `rows` of `width`: Gram and Schmidt's method on normal rows, `width` at a time, then lengths of other normal rows.
pub(crate) fn orthogonal(rows: usize, width: usize, random: &mut Random) -> Vec<f32> {
    let mut all: Vec<f32> = Vec::with_capacity(rows * width);
    let mut group: Vec<Vec<f64>> = Vec::new();
    for _ in 0..rows {
        if group.len() == width {
            group.clear();
        }
        let mut row: Vec<f64> = (0..width).map(|_| random.normal()).collect();
        let length: f64 = (0..width).map(|_| random.normal().powi(2)).sum::<f64>().sqrt();
        for before in &group {
            let along: f64 = row.iter().zip(before).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(before).for_each(|(a, b)| *a -= along * b);
        }
        let norm = row.iter().map(|a| a * a).sum::<f64>().sqrt().max(1e-12);
        row.iter_mut().for_each(|a| *a /= norm);
        all.extend(row.iter().map(|a| (a * length) as f32));
        group.push(row);
    }
    all
}
