//! Operations of our own on the CPU, forward and backward, fused and on all cores.
//!
//! Burn's CPU backend computes element-wise operations one by one on one core, which is most of a training step. These
//! stand in the same graph of gradients beside Burn's operations; [`crate::network`] uses them where the numbers are in the
//! host's memory. Everywhere else, and as what tests compare them with, Burn's own operations remain.

mod attention;
mod elements;
mod host;
mod linear;
mod memory;
mod norm;
mod rows;
mod softmax;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use attention::{Heads, attention};
pub(crate) use elements::{activate, drop};
pub(crate) use host::on_host;
pub(crate) use linear::{feed_forward, linear, projections, turned_product};
pub(crate) use norm::norm;
pub(crate) use rows::{gather, spread};
pub(crate) use softmax::{log_sums, softmax};
