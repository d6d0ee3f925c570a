//! Operations of our own for GPUs: Burn's tensor operations, with gradients written by hand, and kernels of our own in their
//! place ([`fused`]) where the build has them.
//!
//! What Burn derives for them is right but slow there. A sum over all rows, which the gradient of every bias and norm is,
//! gives each column to one thread that walks the rows one after the other; a weight's gradient is a product with few
//! tiles and a long inner side; a gradient through a composed operation launches two or three times as many kernels as
//! its formula needs. On the CPU [`crate::ops`] is faster still; tests run these there.

mod compare;
mod elements;
#[cfg(not(feature = "gpu"))]
#[path = "absent.rs"]
pub(crate) mod fused;
#[cfg(feature = "gpu")]
pub(crate) mod fused;
mod linear;
mod lookup;
mod norm;
mod numbers;
mod operation;
mod power;
mod product;
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use compare::{Counted, column_most, mean_square, within};
pub(crate) use elements::{Seed, dropout, gelu, softmax};
pub(crate) use linear::linear;
pub(crate) use lookup::{Looked, lookup, permuted_rows};
pub(crate) use norm::{add_row, norm, scale_and_shift, scaled};
pub(crate) use numbers::{Drops, Step};
pub(crate) use power::{Changed, Power, power_norm};
pub(crate) use product::{product, times};
pub(crate) use sums::{column_sums, transposed_product};
