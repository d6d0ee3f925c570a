//! How long one update takes, and where the time goes.

use crate::data::{Example, Target};
use crate::gpu::fused;
use crate::objective::{Objective, Pass, Supervised};
use crate::optimizer::NamedGradients;
use crate::trainer::collect;
use crate::{AdamOptions, AdamW, Mode, Network, PaddedBatch, Parameters};
use burn::tensor::{Device, Tensor};
use serde::Serialize;
use sparing_model::{Architecture, Error, Model, Precision, Sequence};
use std::collections::BTreeMap;
use std::time::Instant;

/// What is timed: updates of one size, of a network with random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepShape {
    /// Sequences per update.
    pub batch: usize,
    /// Tokens per sequence, all real.
    pub length: usize,
    /// Dropout of hidden states and attention.
    pub dropout: f64,
    /// Matrix products in bf16.
    pub bf16: bool,
}

/// Seconds of the parts of one update, the device waited for after each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepParts {
    /// Inputs to loss.
    pub forward: f64,
    /// Loss to gradients.
    pub backward: f64,
    /// Gradients to new parameters.
    pub update: f64,
}

/// Updates to be timed.
pub struct StepClock {
    network: Network,
    parameters: Parameters,
    optimizer: AdamW,
    examples: Vec<Example>,
    shape: StepShape,
    device: Device,
    done: u64,
}

impl StepClock {
    /// A network with random numbers and a batch for it. The head must answer once per sequence.
    pub fn new(architecture: &Architecture, shape: StepShape, device: Device) -> Result<StepClock, Error> {
        let parameters = Parameters::random(architecture, 0, &device.clone().autodiff());
        let vocabulary = architecture.embeddings.vocabulary.clamp(1, 30_000);
        let example = |b: usize| {
            let ids = (b * shape.length..(b + 1) * shape.length).map(|i| ((i * 7919 + 13) % vocabulary) as u32);
            let sequence = Sequence { ids: ids.collect(), types: vec![] };
            Example { sequence, target: Target::Class(b % 2) }
        };
        let examples = (0..shape.batch).map(example).collect();
        let optimizer = AdamW::new(AdamOptions::default(), BTreeMap::new());
        let network = Network::new(architecture);
        Ok(StepClock { network, parameters, optimizer, examples, shape, device, done: 0 })
    }

    /// Does so many updates, as training does them; seconds of one, the device waited for at the end.
    pub fn run(&mut self, updates: usize) -> Result<f64, Error> {
        self.wait()?;
        let start = Instant::now();
        for _ in 0..updates {
            self.update(|| Ok(()))?;
        }
        self.wait()?;
        Ok(start.elapsed().as_secs_f64() / updates.max(1) as f64)
    }

    /// Does one update, the parts timed one by one.
    pub fn parts(&mut self) -> Result<StepParts, Error> {
        self.wait()?;
        let device = self.device.clone();
        let (mut last, mut seconds) = (Instant::now(), Vec::new());
        self.update(|| {
            wait(&device)?;
            seconds.push(last.elapsed().as_secs_f64());
            last = Instant::now();
            Ok(())
        })?;
        Ok(StepParts { forward: seconds[0], backward: seconds[1], update: seconds[2] })
    }

    /// One update; `after` is called after each of its three parts.
    fn update(&mut self, mut after: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let seed = self.done;
        self.done += 1;
        self.device.seed(seed);
        let all: Vec<usize> = (0..self.examples.len()).collect();
        let pass = Pass { seed, epoch: 0, step: 0, dropout: self.shape.dropout, bf16: self.shape.bf16 };
        let loss = Supervised::new(&self.network, &self.examples, None).loss(&self.parameters, &all, &pass)?;
        after()?;
        let mut gradients = NamedGradients::new();
        collect(&self.parameters, &loss.value, &mut gradients);
        after()?;
        self.optimizer.update(&mut self.parameters, gradients, 1e-5)?;
        after()
    }

    fn wait(&self) -> Result<(), Error> {
        wait(&self.device)
    }
}

/// Passes through a model's layers to be timed, nothing learnt and nothing read back.
pub struct PassClock {
    network: Network,
    parameters: Parameters,
    batch: PaddedBatch,
    mode: Mode,
    device: Device,
}

impl PassClock {
    /// A model's weights on a device, and sequences of one length. In int8 linear maps are products of bytes, and what else is
    /// multiplied is bf16; `None` where the device does not multiply bytes.
    pub fn new(
        model: &Model,
        sequences: &[Sequence],
        precision: Precision,
        device: &Device,
    ) -> Result<Option<PassClock>, Error> {
        let int8 = precision == Precision::Int8;
        if int8 && !multiplies_bytes(device) {
            return Ok(None);
        }
        let longest = sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(0);
        Ok(Some(PassClock {
            network: Network::new(&model.architecture),
            parameters: Parameters::from_weights(&model.weights, device)?,
            batch: PaddedBatch::new(sequences, longest, device),
            mode: Mode { bf16: precision != Precision::F32, int8, ..Mode::default() },
            device: device.clone(),
        }))
    }

    /// Seconds of one of so many passes in a row, the device waited for at the end.
    pub fn run(&self, passes: usize) -> Result<f64, Error> {
        wait(&self.device)?;
        let start = Instant::now();
        for _ in 0..passes {
            self.network.encode(&self.parameters, &self.batch, self.mode, None)?;
        }
        wait(&self.device)?;
        Ok(start.elapsed().as_secs_f64() / passes.max(1) as f64)
    }
}

/// Whether linear maps of bytes can be had of a device.
fn multiplies_bytes(device: &Device) -> bool {
    let ones = Tensor::<2>::ones([64, 64], device);
    fused::byte_linear(&ones, &ones, None).is_some()
}

pub(crate) fn wait(device: &Device) -> Result<(), Error> {
    device.sync().map_err(|e| Error::new(format!("the device failed ({e})")))
}
