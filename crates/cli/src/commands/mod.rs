//! One module per command: its options, and what it does with them.

pub mod bench;
pub mod calibrate;
pub mod completions;
pub mod eval;
pub mod inspect;
#[cfg(feature = "train")]
pub mod lra;
pub mod optimize;
pub mod quantize;
pub mod run;
pub mod serve;
pub mod study;
#[cfg(feature = "train")]
pub mod train;

#[cfg(not(feature = "train"))]
mod absent;
#[cfg(not(feature = "train"))]
pub use absent::{lra, train, training};
