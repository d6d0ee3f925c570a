//! What kernels of our own are told.

use crate::AdamOptions;

/// What a dropout drops: elements whose hash with seed and number is below `limit`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "gpu"), expect(dead_code, reason = "only kernels of our own read it"))]
pub(crate) struct Drops {
    /// Which of a seed's dropouts this is.
    pub(crate) number: u32,
    /// Of 2³² hashes.
    pub(crate) limit: u32,
    /// What the others are multiplied by.
    pub(crate) scale: f32,
}

impl Drops {
    /// Drops this share.
    pub(crate) fn new(share: f64, number: u32) -> Drops {
        let limit = (share * 2f64.powi(32)).min(f64::from(u32::MAX)) as u32;
        Drops { number, limit, scale: (1.0 / (1.0 - share)) as f32 }
    }
}

/// The numbers of one update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) epsilon: f32,
    /// The rate by the first moment's correction.
    pub(crate) change: f32,
    /// The rate, for decay.
    pub(crate) rate: f32,
    /// The inverse root of the second moment's correction.
    pub(crate) root: f32,
    /// The gradients' norm is scaled down to this; zero: never.
    pub(crate) limit: f32,
}

impl Step {
    /// Of an update with this rate; `corrections` of both moments.
    pub(crate) fn new(o: &AdamOptions, corrections: (f64, f64), rate: f64) -> Step {
        Step {
            beta1: o.beta1 as f32,
            beta2: o.beta2 as f32,
            epsilon: o.epsilon as f32,
            change: (rate / corrections.0) as f32,
            rate: rate as f32,
            root: (1.0 / corrections.1.sqrt()) as f32,
            limit: o.clip.unwrap_or(0.0) as f32,
        }
    }

    /// As a kernel reads them.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        let Step { beta1, beta2, epsilon, change, rate, root, limit } = *self;
        vec![beta1, beta2, epsilon, change, rate, root, limit]
    }
}
