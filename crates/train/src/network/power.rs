//! PowerNorm in a pass: which statistic it divides by, and where the new ones go.

use super::pass::Pass;
use crate::Parameters;
use crate::gpu::{self, Changed, Power};
use burn::tensor::Tensor;
use sparing_model::{Architecture, Error, Layer, Norm, NormKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What PowerNorm divides by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Statistics {
    /// The running statistic, which stays as it is: evaluation.
    #[default]
    Fixed,
    /// The batch's own; the running one follows it: the beginning of a training.
    Batch,
    /// The running one, which follows the batch's: training.
    Running,
}

/// Statistics that have changed.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<BTreeMap<String, Tensor<2>>>>);

impl Running {
    fn put(&self, name: &str, value: Tensor<2>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string(), value);
    }

    /// All of them, once.
    pub(super) fn take(&self) -> Vec<(String, Tensor<2>)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

/// Name of the statistic of the way back; it belongs to a training, not to the model.
fn running_nu(norm: &Norm) -> String {
    norm.running_phi().replace("running_phi", "running_nu")
}

impl Parameters {
    /// Makes the statistics of all power norms constants, and adds those of the way back, zeros.
    pub(crate) fn add_statistics(&mut self, architecture: &Architecture) {
        let norms = architecture.layers.iter().flat_map(Layer::norms).chain(&architecture.embeddings.norm);
        for norm in norms.filter(|norm| norm.kind == NormKind::Power) {
            if let Ok(phi) = self.get(&norm.running_phi()) {
                let phi = phi.value.clone().without_autodiff();
                self.put(&running_nu(norm), phi.zeros_like());
                self.put(&norm.running_phi(), phi);
            }
        }
    }
}

impl Pass<'_> {
    pub(super) fn power_norm(
        &self,
        norm: &Norm,
        rows: Tensor<2>,
        weight: Tensor<2>,
        bias: Tensor<2>,
    ) -> Result<Tensor<2>, Error> {
        let name = norm.running_phi();
        let phi = self.get(&name)?.without_autodiff();
        let statistics = self.mode.statistics;
        if statistics == Statistics::Fixed {
            let inverse = phi.add_scalar(norm.eps).sqrt().recip();
            let inverse = if weight.device().is_autodiff() { inverse.autodiff() } else { inverse };
            return Ok(gpu::scale_and_shift(rows, weight * inverse, bias));
        }
        let nu_name = running_nu(norm);
        let nu = match self.parameters.get(&nu_name) {
            Ok(nu) => nu.value.clone().without_autodiff(),
            Err(_) => phi.zeros_like(),
        };
        let tokens = self.batch.tokens().max(1) as f64;
        let share = match self.real() {
            Some(real) => real.float().div_scalar(tokens),
            None => Tensor::ones([rows.dims()[0], 1], &self.device).div_scalar(tokens),
        };
        let power = Power { phi, nu, share, eps: norm.eps, batch: statistics == Statistics::Batch };
        let running = self.running.clone();
        let tell = move |changed: Changed, value: Tensor<2>| match changed {
            Changed::Phi => running.put(&name, value),
            Changed::Nu => running.put(&nu_name, value),
        };
        Ok(gpu::power_norm(rows, weight, bias, power, tell))
    }
}
