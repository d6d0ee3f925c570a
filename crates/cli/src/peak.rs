//! What one core of this machine can do at most, measured when first asked for.

use sparing_model::Precision;

/// GFLOP/s of one core with this precision; none as long as the kernels offer no measurement.
pub fn gflops(precision: Precision) -> Option<f64> {
    let _ = precision;
    None
}
