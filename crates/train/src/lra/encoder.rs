//! The arena's encoder: embedding, positions, layers with the norm before each block, pooling and a classifier. Attention
//! is whatever it is given.

use super::config::{EncoderConfig, Pool, Positions, Training};
use crate::attention::{Begin, Fresh, Input, Kind, Layout, ONE_BY_ONE, constant, unfolded};
use crate::sines::sines;
use crate::{Parameters, layers};
use burn::tensor::{Device, Tensor};
use serde::Serialize;
use sparing_model::Error;
use sparing_tasks::lra::{Example, Task};

/// An encoder for one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Encoder {
    config: EncoderConfig,
    kind: Kind,
    task: Task,
    length: usize,
}

/// Sequences of one length on the host.
struct Batch {
    ids: Vec<u32>,
    lengths: Vec<usize>,
    length: usize,
}

/// How to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// Dropout of hidden states.
    pub dropout: f64,
    /// Decides what mechanisms draw.
    pub seed: u64,
}

const DEVIATION: f64 = 0.02;

impl Encoder {
    /// The encoder of a training, once it is known to make sense.
    pub fn new(training: &Training, kind: &Kind, task: Task) -> Result<Encoder, Error> {
        training.check(kind)?;
        kind.mechanism().fits(task.side())?;
        Ok(Encoder { config: training.encoder.clone(), kind: kind.clone(), task, length: training.length })
    }

    /// Tokens before the first one: what is pooled, and what the mechanism wants.
    fn extra(&self) -> usize {
        self.kind.mechanism().prefix() + usize::from(self.config.pool == Pool::Cls)
    }

    fn layout(&self) -> Layout {
        let before = self.extra();
        Layout { longest: self.length + before, before, columns: self.task.side() }
    }

    /// Fresh numbers.
    pub fn parameters(&self, seed: u64, device: &Device) -> Parameters {
        let mut parameters = Parameters::empty(device);
        let EncoderConfig { width, mlp, attention_width, layers, .. } = self.config;
        let rows = self.length + self.extra();
        let sizes = self.config.sizes(rows);
        let mut add = |prefix: &str, tensors: Vec<Fresh>| {
            tensors.iter().for_each(|fresh| fresh.insert(&mut parameters, prefix, seed));
        };
        let table = |name: &str, rows: usize| Fresh::new(name, &[rows, width], Begin::Normal(DEVIATION));
        add("", vec![table("tokens", self.task.vocabulary() + self.extra())]);
        if self.config.positions == Positions::Learned {
            add("", vec![table("positions", rows)]);
        }
        for layer in 0..layers {
            let prefix = format!("layers.{layer}");
            add(&format!("{prefix}.attention"), self.kind.mechanism().tensors(&sizes));
            add(&prefix, [linear("output", width, attention_width), norm("attention_norm", width)].concat());
            let ffn = [linear("up", mlp, width), linear("down", width, mlp), norm("ffn_norm", width)];
            add(&prefix, ffn.concat());
        }
        let read = width * if self.task.sequences() == 2 { 4 } else { 1 };
        let head = [norm("norm", width), linear("hidden", mlp, read), linear("classes", self.task.classes(), mlp)];
        add("", head.concat());
        parameters
    }

    /// Scores of the classes, `[examples, classes]`.
    pub fn forward(&self, parameters: &Parameters, examples: &[Example<'_>], mode: Mode) -> Result<Tensor<2>, Error> {
        let pairs = self.task.sequences() == 2;
        let mut sequences: Vec<&[u8]> = examples.iter().map(|e| e.sequences[0]).collect();
        if pairs {
            sequences.extend(examples.iter().map(|e| e.sequences[1]));
        }
        let pooled = self.encode(parameters, &self.batch(&sequences, parameters.device()), mode)?;
        let read = match pairs {
            false => pooled,
            // Both encodings, what they share and how they differ.
            true => {
                let (a, b) = (
                    pooled.clone().slice_dim(0, 0..examples.len()),
                    pooled.slice_dim(0, examples.len()..2 * examples.len()),
                );
                Tensor::cat(vec![a.clone(), b.clone(), a.clone() * b.clone(), a - b], 1)
            }
        };
        let hidden = layers::relu(self.linear(parameters, "hidden", read)?);
        self.linear(parameters, "classes", hidden)
    }

    /// Ids with extra tokens before, padded to one length.
    fn batch(&self, sequences: &[&[u8]], device: &Device) -> Batch {
        let (extra, vocabulary) = (self.extra(), self.task.vocabulary() as u32);
        let cut = |sequence: &&[u8]| sequence.len().min(self.length).max(1);
        let longest = sequences.iter().map(cut).max().unwrap_or(1);
        let length = crate::padded_length(longest, Some(self.length), device) + extra;
        let mut ids = vec![0u32; sequences.len() * length];
        for (row, sequence) in ids.chunks_exact_mut(length).zip(sequences) {
            row.iter_mut().take(extra).enumerate().for_each(|(at, id)| *id = vocabulary + at as u32);
            for (id, token) in row[extra..].iter_mut().zip(sequence.iter()) {
                *id = u32::from(*token);
            }
        }
        let lengths = sequences.iter().map(|sequence| cut(sequence) + extra).collect();
        Batch { ids, lengths, length }
    }

    /// One row per sequence, `[sequences, width]`.
    fn encode(&self, parameters: &Parameters, batch: &Batch, mode: Mode) -> Result<Tensor<2>, Error> {
        let (count, length, width) = (batch.lengths.len(), batch.length, self.config.width);
        let get = |name: &str| Ok::<_, Error>(parameters.get(name)?.value.clone());
        let device = parameters.device();
        let words = layers::lookup(get("tokens")?, batch.ids.clone()).reshape([count, length, width]);
        let positions = match self.config.positions {
            Positions::Learned => Some(get("positions")?.slice_dim(0, 0..length)),
            Positions::Sine => {
                let all = (0..length).flat_map(|at| sines(at as f64, width)).collect();
                Some(constant(all, [length, width], device))
            }
            Positions::None => None,
        };
        let x = match positions {
            Some(positions) => words + positions.reshape([1, length, width]),
            None => words,
        };
        let mut x = x.reshape([count * length, width]);
        let mut drawn = mode.seed;
        let mut dropout = |x: Tensor<2>| {
            drawn = drawn.wrapping_add(1);
            layers::dropout(x, mode.dropout, drawn)
        };
        x = dropout(x);
        for layer in 0..self.config.layers {
            let prefix = format!("layers.{layer}");
            let normed = self.norm(parameters, &format!("{prefix}.attention_norm"), x.clone())?;
            let input = Input {
                x: normed.reshape([count, length, width]),
                lengths: &batch.lengths,
                heads: self.config.heads,
                causal: self.config.causal,
                layout: self.layout(),
                one_by_one: ONE_BY_ONE,
                seed: mode.seed.wrapping_add(layer as u64),
                parameters,
                prefix: &format!("{prefix}.attention"),
                known: None,
            };
            let mixed = unfolded(self.kind.attend(&input)?, self.config.heads);
            let mixed = self.linear(parameters, &format!("{prefix}.output"), mixed)?;
            x = x + dropout(mixed);
            let normed = self.norm(parameters, &format!("{prefix}.ffn_norm"), x.clone())?;
            let inner = layers::gelu(self.linear(parameters, &format!("{prefix}.up"), normed)?);
            let inner = self.linear(parameters, &format!("{prefix}.down"), dropout(inner))?;
            x = x + dropout(inner);
        }
        let x = self.norm(parameters, "norm", x)?.reshape([count, length, width]);
        Ok(match self.config.pool {
            Pool::Cls => {
                let place = self.kind.mechanism().prefix();
                x.slice_dim(1, place..place + 1).reshape([count, width])
            }
            Pool::Mean => {
                let mut shares = vec![0.0; count * length];
                for (row, real) in shares.chunks_exact_mut(length).zip(&batch.lengths) {
                    row[self.extra()..*real].fill(1.0 / (*real - self.extra()) as f32);
                }
                let shares = constant(shares, [count, 1, length], device);
                shares.matmul(x).reshape([count, width])
            }
        })
    }

    fn linear(&self, parameters: &Parameters, name: &str, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let weight = parameters.get(&format!("{name}.weight"))?.value.clone();
        let bias = parameters.get(&format!("{name}.bias"))?.value.clone();
        Ok(layers::linear(x, weight, Some(bias)))
    }

    fn norm(&self, parameters: &Parameters, name: &str, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let weight = parameters.get(&format!("{name}.weight"))?.value.clone();
        let bias = parameters.get(&format!("{name}.bias"))?.value.clone();
        Ok(layers::norm(x, weight, bias))
    }
}

fn linear(name: &str, outputs: usize, inputs: usize) -> Vec<Fresh> {
    vec![
        Fresh::map(&format!("{name}.weight"), outputs, inputs),
        Fresh::new(&format!("{name}.bias"), &[outputs], Begin::Zero),
    ]
}

fn norm(name: &str, width: usize) -> Vec<Fresh> {
    vec![
        Fresh::new(&format!("{name}.weight"), &[width], Begin::One),
        Fresh::new(&format!("{name}.bias"), &[width], Begin::Zero),
    ]
}
