//! The economies of attention that a training trains with.

use crate::{Example, Network, Parameters, Prepared, Rounding};
use burn::tensor::Device;
use sparing_engine::Calibrator;
use sparing_model::{Architecture, AttentionPlan, Calibration, Error, Model, Plan, Sequence, Weights};
use std::sync::Arc;

/// Texts to calibrate with, at most.
const TEXTS: usize = 512;

/// Economies, and the texts that samplers are calibrated with.
#[derive(Default)]
pub(crate) struct Economy {
    pub(crate) plan: AttentionPlan,
    texts: Vec<Sequence>,
}

impl Economy {
    /// The user's plan, else the model's. Samplers are calibrated with examples spread over all of them.
    pub(crate) fn new(asked: Option<&AttentionPlan>, model: &Model, examples: &[Example]) -> Economy {
        let plan = asked.or(model.plan.attention.as_ref()).cloned().unwrap_or_default();
        let step = examples.len().div_ceil(TEXTS).max(1);
        let calibrates = plan.mca.as_ref().is_some_and(|mca| mca.sampler.needs_calibration());
        let chosen = examples.iter().step_by(step).filter(|_| calibrates);
        Economy { plan, texts: chosen.map(|example| example.sequence.clone()).collect() }
    }

    /// The network to train, calibrated with the numbers that it begins with: a training that goes on finds the same.
    pub(crate) fn network(
        &self,
        prepared: &Prepared,
        origin: &Model,
        rounding: Option<&Rounding>,
    ) -> Result<Network, Error> {
        if self.plan.mca.is_some() && rounding.is_some() {
            return Err(Error::new(
                "attention: values are sampled in floats, and rounding is trained for integers; leave one of the two out",
            ));
        }
        let network = Network::new(&prepared.architecture);
        let parameters = (!self.texts.is_empty()).then(|| prepared.parameters(&origin.weights, 0, &Device::flex()));
        let calibration = match parameters.transpose()? {
            Some((parameters, _)) => self.calibrate(&prepared.architecture, &parameters)?,
            None => None,
        };
        network.with_attention(&self.plan, calibration)
    }

    /// What the plan's sampler must know of these parameters, if it must.
    pub(crate) fn calibrate(
        &self,
        architecture: &Architecture,
        parameters: &Parameters,
    ) -> Result<Option<Arc<Calibration>>, Error> {
        if self.texts.is_empty() {
            return Ok(None);
        }
        let weights = Weights::from_tensors(&parameters.to_tensors()?)?;
        let mut calibrator = Calibrator::new(&Model::new(architecture.clone(), Plan::default(), weights), 0)?;
        calibrator.add(&self.texts)?;
        calibrator.finish().map(|calibration| Some(Arc::new(calibration)))
    }
}

/// What a checkpoint says of it: nothing where nothing is economised.
impl std::fmt::Display for Economy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.plan.is_exact() { Ok(()) } else { write!(f, ", attention {}", self.plan) }
    }
}
