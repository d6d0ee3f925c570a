//! What calibration data says about the inputs of attention's values: a file beside the weights.

use crate::weights::{one_line, serialise};
use crate::{Architecture, Error, Model, OwnedTensor, Weights, replace_file};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;
use std::sync::Arc;

/// The file's name in a model directory.
pub const CALIBRATION_FILE: &str = "calibration.safetensors";

/// The largest file that is read: 100 layers of 16384 inputs have less.
const MAX_BYTES: u64 = 1 << 30;

/// What calibration data says about every layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The layers, in order.
    pub layers: Vec<LayerCalibration>,
    /// Tokens it was made from.
    pub tokens: usize,
    /// Of the value weights it was made with, see [`value_fingerprint`].
    pub fingerprint: u64,
}

/// What calibration data says about one layer; nothing of one without attention.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerCalibration {
    /// Mean of the rows that the value projection reads, `[inputs]`.
    pub mean: Vec<f32>,
    /// Their standard deviation, `[inputs]`.
    pub std: Vec<f32>,
    /// Per head the eigenvectors of the values' covariance, a direction in every column, most variance first:
    /// `[heads, head_width, head_width]`.
    pub basis: Vec<f32>,
    /// Variance in each direction, `[heads, head_width]`.
    pub eigenvalues: Vec<f32>,
}

/// Tells value weights apart: FNV-1a over the bits of all of them as f32.
pub fn value_fingerprint(architecture: &Architecture, weights: &Weights) -> Result<u64, Error> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for layer in &architecture.layers {
        for number in weights.matrix(&layer.attention.value)? {
            hash = (hash ^ number.to_bits() as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(hash)
}

impl Calibration {
    /// Reads a file, and checks that it belongs to the model.
    pub fn read(path: &Path, model: &Model) -> Result<Calibration, Error> {
        let label = path.display().to_string();
        let failed = |e: std::io::Error| Error::new(format!("{label}: cannot be read ({e})"));
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > MAX_BYTES {
            return Err(Error::new(format!("{label}: has {length} bytes, no calibration has as many")));
        }
        Calibration::from_bytes(&std::fs::read(path).map_err(failed)?, &label, model)
    }

    /// The same from bytes; `label` is what errors call them.
    pub fn from_bytes(bytes: &[u8], label: &str, model: &Model) -> Result<Calibration, Error> {
        let wrong = |what: &str| Error::new(format!("{label}: {what}"));
        let file = SafeTensors::deserialize(bytes)
            .map_err(|e| wrong(&format!("not a calibration file ({})", one_line(&e.to_string()))))?;
        let read = |name: &str, shape: &[usize]| {
            let tensor = file
                .tensor(name)
                .map_err(|_| wrong(&format!("holds no {name}; make it anew with sparing calibrate")))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                let found = tensor.shape();
                return Err(wrong(&format!(
                    "{name} is {found:?} where this model has {shape:?}: it was made for another model"
                )));
            }
            let numbers = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let numbers: Vec<f32> = numbers.collect();
            if numbers.iter().all(|x| x.is_finite()) {
                Ok(numbers)
            } else {
                Err(wrong(&format!("{name} is not finite")))
            }
        };
        let about = file.tensor("calibration").ok().filter(|t| t.dtype() == Dtype::U64 && t.shape() == [2]);
        let about = about.ok_or_else(|| wrong("not a calibration file; make one with sparing calibrate"))?;
        let mut words = about.data().as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let (found, tokens) = (words.next().unwrap_or(0), words.next().unwrap_or(0) as usize);
        let mut layers = Vec::new();
        for (number, layer) in model.architecture.layers.iter().enumerate() {
            let (attention, inputs) = (&layer.attention, layer.attention.value.inputs);
            let (heads, width) = (attention.heads, attention.head_width);
            if heads == 0 {
                layers.push(LayerCalibration::default());
                continue;
            }
            layers.push(LayerCalibration {
                mean: read(&format!("layers.{number}.mean"), &[inputs])?,
                std: read(&format!("layers.{number}.std"), &[inputs])?,
                basis: read(&format!("layers.{number}.basis"), &[heads, width, width])?,
                eigenvalues: read(&format!("layers.{number}.eigenvalues"), &[heads, width])?,
            });
        }
        let fingerprint = value_fingerprint(&model.architecture, &model.weights)?;
        if found != fingerprint {
            return Err(wrong("was made for other weights; make it anew with sparing calibrate"));
        }
        Ok(Calibration { layers, tokens, fingerprint })
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let about = [self.fingerprint, self.tokens as u64].iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut tensors = vec![OwnedTensor::raw("calibration", Dtype::U64, &[2], about)];
        for (number, layer) in self.layers.iter().enumerate().filter(|(_, layer)| !layer.basis.is_empty()) {
            let inputs = layer.mean.len();
            let width = layer.basis.len() / layer.eigenvalues.len().max(1);
            let heads = layer.eigenvalues.len() / width.max(1);
            let mut add = |name: &str, shape: &[usize], values: &[f32]| {
                tensors.push(OwnedTensor::f32(format!("layers.{number}.{name}"), shape, values));
            };
            add("mean", &[inputs], &layer.mean);
            add("std", &[inputs], &layer.std);
            add("basis", &[heads, width, width], &layer.basis);
            add("eigenvalues", &[heads, width], &layer.eigenvalues);
        }
        serialise(&tensors)
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be written ({e})", path.display()));
        replace_file(path, &self.to_bytes()?).map_err(failed)
    }
}

impl Calibration {
    /// The same of a model that lost heads since: `before` is what it was made for, `after` what is left. Means are those of
    /// the model before.
    pub fn of_heads(&self, before: &Architecture, after: &Model) -> Result<Calibration, Error> {
        let layers = self.layers.iter().zip(before.layers.iter().zip(&after.architecture.layers));
        let layers = layers.map(|(layer, (before, after))| {
            let (numbers, width) = (before.attention.numbers(), before.attention.head_width);
            let places =
                after.attention.numbers().into_iter().filter_map(|head| numbers.iter().position(|n| *n == head));
            let places: Vec<usize> = places.collect();
            if places.is_empty() {
                return LayerCalibration::default();
            }
            let part = |all: &[f32], each: usize| -> Vec<f32> {
                places.iter().flat_map(|place| &all[place * each..(place + 1) * each]).copied().collect()
            };
            LayerCalibration {
                mean: layer.mean.clone(),
                std: layer.std.clone(),
                basis: part(&layer.basis, width * width),
                eigenvalues: part(&layer.eigenvalues, width),
            }
        });
        let fingerprint = value_fingerprint(&after.architecture, &after.weights)?;
        Ok(Calibration { layers: layers.collect(), tokens: self.tokens, fingerprint })
    }
}

impl Model {
    /// The model with a calibration of its own, which is saved with it.
    pub fn calibrated(self, calibration: Calibration) -> Model {
        Model { calibration: Some(Arc::new(calibration)), ..self }
    }

    /// The model's own calibration, or the one that lies beside the weights, if there is one. None for a model that was pruned since it was read:
    /// what lies there is another model's.
    pub fn calibration(&self) -> Result<Option<Calibration>, Error> {
        if let Some(own) = &self.calibration {
            return Ok(Some(Calibration::clone(own)));
        }
        let Some(directory) = self.directory.as_ref().filter(|_| !self.pruned) else { return Ok(None) };
        let Some(bytes) = directory.read(CALIBRATION_FILE)? else { return Ok(None) };
        Calibration::from_bytes(&bytes, &directory.label(CALIBRATION_FILE), self).map(Some)
    }
}
