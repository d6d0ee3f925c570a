//! Running calibration data through the exact model and noting what the value projections read.

use super::eigen::eigen;
use crate::{Economies, Engine, Options};
use sparing_kernels::{Epilogue, Format, PackedMatrix, Rows, RowsMut, Scratch, gemm};
use sparing_model::{
    AttentionPlan, Batch, Calibration, Error, LayerCalibration, Model, Precision, Sequence, Wanted, value_fingerprint,
};
use std::collections::HashMap;

/// Sequences are run in batches of so many tokens: few enough to go through the engine in one wave, whose rows come by
/// once per layer.
const BATCH_TOKENS: usize = 1024;

/// Collects a [`Calibration`].
pub struct Calibrator {
    engine: Engine,
    layers: Vec<Statistics>,
    /// By the name of the value weights: the layers that have them.
    named: HashMap<String, Vec<usize>>,
    fingerprint: u64,
    tokens: usize,
}

/// Sums over the rows of one layer.
struct Statistics {
    heads: usize,
    width: usize,
    /// `None` where no heads are left.
    value: Option<PackedMatrix>,
    count: f64,
    sum: Vec<f64>,
    squares: Vec<f64>,
    /// Of values, `[heads * width]`.
    value_sum: Vec<f64>,
    /// Of products of values, `[heads, width, width]`.
    products: Vec<f64>,
    scratch: Scratch,
    values: Vec<f32>,
}

impl Calibrator {
    /// Prepares a model. `threads` as in [`Options`].
    pub fn new(model: &Model, threads: usize) -> Result<Calibrator, Error> {
        let attention = AttentionPlan::default();
        let options = Options {
            threads,
            precision: Some(Precision::F32),
            economies: Economies::none(),
            attention: Some(attention),
            ..Options::default()
        };
        let engine = Engine::compile(model, &options)?;
        let mut layers = Vec::new();
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, layer) in model.architecture.layers.iter().enumerate() {
            if layer.bottleneck.is_some() {
                return Err(Error::new(
                    "values of layers with a bottleneck (MobileBERT) cannot be economised, nor calibrated",
                ));
            }
            let a = &layer.attention;
            let (heads, width, inputs) = (a.heads, a.head_width, a.value.inputs);
            let value = match heads {
                0 => None,
                _ => Some(PackedMatrix::pack(&model.weights.matrix(&a.value)?, heads * width, inputs, Format::F32)),
            };
            layers.push(Statistics {
                heads,
                width,
                value,
                count: 0.0,
                sum: vec![0.0; inputs],
                squares: vec![0.0; inputs],
                value_sum: vec![0.0; heads * width],
                products: vec![0.0; heads * width * width],
                scratch: Scratch::default(),
                values: Vec::new(),
            });
            if heads > 0 {
                named.entry(a.value.weight.name()).or_default().push(number);
            }
        }
        let fingerprint = value_fingerprint(&model.architecture, &model.weights)?;
        Ok(Calibrator { engine, layers, named, fingerprint, tokens: 0 })
    }

    /// Adds sequences.
    pub fn add(&mut self, sequences: &[Sequence]) -> Result<(), Error> {
        let mut rest = sequences;
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |s: &&Sequence| {
                tokens += s.ids.len();
                tokens <= BATCH_TOKENS
            };
            let (batch, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            self.add_batch(batch)?;
            rest = others;
        }
        Ok(())
    }

    fn add_batch(&mut self, sequences: &[Sequence]) -> Result<(), Error> {
        let tokens: usize = sequences.iter().map(|s| s.ids.len()).sum();
        let batch = Batch { sequences: sequences.to_vec(), wanted: Wanted::Hidden };
        // Layers that share weights come by under one name: they are told apart by how many rows came before.
        let mut seen: HashMap<String, usize> = HashMap::new();
        let (named, layers) = (&self.named, &mut self.layers);
        self.engine.observe(&batch, &mut |observed| {
            let Some(sharing) = named.get(observed.weight) else { return };
            let before = seen.entry(observed.weight.to_string()).or_default();
            if let Some(layer) = sharing.get(*before / tokens) {
                layers[*layer].add(observed.rows);
            }
            *before += observed.rows.len() / observed.inputs;
        })?;
        self.tokens += tokens;
        Ok(())
    }

    /// Tokens seen so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// What was found.
    pub fn finish(self) -> Result<Calibration, Error> {
        if self.tokens < 2 {
            return Err(Error::new("a calibration needs texts of two tokens at least"));
        }
        let layers = self.layers.iter().map(Statistics::finish).collect();
        Ok(Calibration { layers, tokens: self.tokens, fingerprint: self.fingerprint })
    }
}

impl Statistics {
    fn add(&mut self, rows: &[f32]) {
        let Some(value) = &self.value else { return };
        let inputs = self.sum.len();
        let all = self.heads * self.width;
        let count = rows.len() / inputs;
        self.count += count as f64;
        for row in rows.chunks_exact(inputs) {
            for ((x, sum), square) in row.iter().zip(&mut self.sum).zip(&mut self.squares) {
                *sum += *x as f64;
                *square += *x as f64 * *x as f64;
            }
        }
        self.values.resize(count * all, 0.0);
        let out = RowsMut::f32(&mut self.values, all);
        gemm(Rows::f32(rows, inputs), value, &Epilogue::default(), out, &mut self.scratch);
        for row in self.values.chunks_exact(all) {
            for (sum, y) in self.value_sum.iter_mut().zip(row) {
                *sum += *y as f64;
            }
            for (values, products) in
                row.chunks_exact(self.width).zip(self.products.chunks_exact_mut(self.width * self.width))
            {
                for (y, products) in values.iter().zip(products.chunks_exact_mut(self.width)) {
                    products.iter_mut().zip(values).for_each(|(p, z)| *p += *y as f64 * *z as f64);
                }
            }
        }
    }

    fn finish(&self) -> LayerCalibration {
        if self.heads == 0 {
            return LayerCalibration::default();
        }
        let (n, width) = (self.count.max(1.0), self.width);
        let mean: Vec<f64> = self.sum.iter().map(|sum| sum / n).collect();
        let variance = self.squares.iter().zip(&mean).map(|(square, mean)| (square / n - mean * mean).max(0.0));
        let (mut basis, mut eigenvalues) = (Vec::new(), Vec::new());
        for head in 0..self.heads {
            let middle: Vec<f64> = self.value_sum[head * width..(head + 1) * width].iter().map(|sum| sum / n).collect();
            let products = &self.products[head * width * width..(head + 1) * width * width];
            let covariance: Vec<f64> =
                products.iter().enumerate().map(|(i, p)| p / n - middle[i / width] * middle[i % width]).collect();
            let (values, vectors) = eigen(&covariance, width);
            basis.extend(vectors.iter().map(|x| *x as f32));
            eigenvalues.extend(values.iter().map(|x| x.max(0.0) as f32));
        }
        LayerCalibration {
            std: variance.map(|v| v.sqrt() as f32).collect(),
            mean: mean.iter().map(|m| *m as f32).collect(),
            basis,
            eigenvalues,
        }
    }
}
