//! How large what layers read may be in a training without a teacher: what the original's span on some texts, and some room.

use super::begin::BATCH;
use crate::network::ROOM;
use crate::{Capture, Mode, Network, PaddedBatch, Parameters};
use burn::tensor::Tensor;
use sparing_model::{Error, Sequence};

/// Texts that are read.
const TEXTS: usize = 256;

/// For every layer the largest size of every channel of what it reads, `[1, hidden]`, with room beyond it.
pub(super) fn bounds(network: &Network, parameters: &Parameters, texts: &[Sequence]) -> Result<Vec<Tensor<2>>, Error> {
    let device = parameters.device();
    let architecture = network.architecture();
    let mode = Mode { capture: Capture { hidden: true, attention: false }, ..Mode::default() };
    // Evenly spread, so that every kind of text is among them.
    let chosen: Vec<Sequence> = texts.iter().step_by(texts.len().div_ceil(TEXTS).max(1)).cloned().collect();
    let mut most: Vec<Tensor<2>> = Vec::new();
    for sequences in chosen.chunks(BATCH) {
        let batch = PaddedBatch::fitting(sequences, architecture.max_tokens, device);
        let found = network.encode(parameters, &batch, mode, None)?;
        let here = found.hidden.into_iter().zip(found.present).map(|(states, present)| {
            let [count, length, width] = states.dims();
            let real = present.float().reshape([count * length, 1]);
            states.abs().reshape([count * length, width]).mul(real).max_dim(0)
        });
        most = match most.is_empty() {
            true => here.collect(),
            false => most.into_iter().zip(here).map(|(a, b)| a.max_pair(b)).collect(),
        };
    }
    // A channel that is always zero would divide by its bound.
    Ok(most.into_iter().map(|most| most.mul_scalar(ROOM).clamp_min(1e-3)).collect())
}
