//! The search for a cheaper model within the loss of accuracy that is accepted.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod surgeon;

pub use surgeon::{Moments, Spared, Surgeon};
