//! Post-training quantization: weights as integers of 2 to 8 bits with a scale per output.
//!
//! [`targets`] says which tensors may be quantised and what part they belong to, [`calibrate`] looks at what linear maps
//! read, [`Quantize`] chooses scales, rounds, and corrects biases. What comes out replaces tensors of the model
//! ([`sparing_model::Weights::replace`]) and is its plan.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod calibrate;
pub mod cholesky;
mod compensate;
mod quantize;
mod round;
mod targets;

pub use calibrate::{Statistics, Sums, calibrate};
pub use compensate::{Compensation, Products};
pub use quantize::{Changed, Quantize, Rounded, with_biases};
pub use round::{ScaleChoice, round_matrix, round_row, spread_step};
pub use targets::{Part, SMALL_TABLES, Target, Use, bits_of, targets};
