//! What a caller may choose when compiling.

use sparing_kernels::isa;
use sparing_model::{AttentionPlan, Calibration, Precision};
use std::sync::Arc;

/// What a caller may choose when compiling.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Threads, the caller's included; 0 means all cores.
    pub threads: usize,
    /// Precision of the linear maps; `None` means the plan's, else f32.
    pub precision: Option<Precision>,
    /// Exact economies.
    pub economies: Economies,
    /// How precisely attention's values are computed; `None` means as the plan says, else exactly.
    pub attention: Option<AttentionPlan>,
    /// What calibration data says of the model; `None` means the model directory's, if it is needed.
    pub calibration: Option<Arc<Calibration>>,
}

/// What a caller may choose for one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// Exact values, whatever the plan says.
    pub exact: bool,
    /// Seed of the draws; `None` means the plan's.
    pub seed: Option<u64>,
}

impl RunOptions {
    /// The exact model.
    pub fn exact() -> Self {
        RunOptions { exact: true, seed: None }
    }
}

/// Economies that change no answer. All are on by default; turning them off is for measuring what they save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Economies {
    /// The last layer computes queries, attention, output projection and feed-forward only for the rows the head reads.
    pub head_rows: bool,
    /// Identical inputs of a batch are computed once.
    pub once: bool,
    /// Norms without statistics of their own (PowerNorm, MobileBERT's NoNorm) are folded into the linear maps before them.
    pub fold: bool,
}

impl Default for Economies {
    fn default() -> Self {
        Economies { head_rows: true, once: true, fold: true }
    }
}

impl Economies {
    /// No economy at all.
    pub fn none() -> Self {
        Economies { head_rows: false, once: false, fold: false }
    }
}

/// The fastest precision that needs no calibration and no integer rounding: bf16 where the machine has
/// instructions for it, else f32.
pub fn auto_precision() -> Precision {
    if isa::has_bf16(isa::active()) { Precision::Bf16 } else { Precision::F32 }
}
