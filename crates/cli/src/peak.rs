//! What one core of this machine can do at most, measured when first asked for.

use sparing_kernels::{Format, peak};
use sparing_model::Precision;
use std::sync::OnceLock;

/// GFLOP/s (for int8: GOP/s) of one core with this precision.
pub fn gflops(precision: Precision) -> f64 {
    static MEASURED: [OnceLock<f64>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
    let (place, format) = match precision {
        Precision::F32 => (0, Format::F32),
        Precision::Bf16 => (1, Format::Bf16),
        Precision::Int8 => (2, Format::Int8),
    };
    *MEASURED[place].get_or_init(|| peak::operations_per_second(format) / 1e9)
}
