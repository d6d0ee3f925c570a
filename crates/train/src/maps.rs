//! What attention looks at in one text: a matrix of shares per layer.

use crate::{Capture, Mode, Network, PaddedBatch, Parameters};
use burn::tensor::Device;
use sparing_model::{Error, Model, Sequence};

/// Shares of one layer, mean over its heads.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionMap {
    /// The layer, from 0.
    pub layer: usize,
    /// Of every query, one number per key: `[tokens, tokens]`.
    pub shares: Vec<f32>,
}

/// A map of every layer whose shares are one per token: not those without attention, nor those with projected keys.
pub fn attention_maps(model: &Model, sequence: &Sequence) -> Result<Vec<AttentionMap>, Error> {
    let device = Device::flex();
    let parameters = Parameters::from_weights(&model.weights, &device)?;
    let batch = PaddedBatch::new(std::slice::from_ref(sequence), sequence.ids.len(), &device);
    let mode = Mode { capture: Capture { attention: true, ..Capture::default() }, ..Mode::default() };
    let found = Network::new(&model.architecture).encode(&parameters, &batch, mode, None)?.attention;
    let mut maps = Vec::new();
    for (layer, shares) in found.into_iter().enumerate() {
        let Some(shares) = shares else { continue };
        let shares = shares.mean_dim(1).try_into_vec_as::<f32>();
        let shares = shares.map_err(|e| crate::device::unread(&format!("attention of layer {layer}"), e))?;
        maps.push(AttentionMap { layer, shares });
    }
    Ok(maps)
}
